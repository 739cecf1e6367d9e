mod btree;
mod catalog;
mod hash;
mod judge;
mod kv;
mod model;
