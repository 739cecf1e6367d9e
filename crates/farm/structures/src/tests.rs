mod btree;
mod model;
