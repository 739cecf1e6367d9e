mod btree;
mod catalog;
mod hash;
mod judge;
mod kv;
