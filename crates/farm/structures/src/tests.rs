mod btree;
mod hash;
mod judge;
mod model;
