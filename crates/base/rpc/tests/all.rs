//! Tests of connections from outside: one program, which is linked once, with a module for each suite.

mod buffers;
mod certificates;
mod failure;
mod identities;
mod limits;
mod names;
mod waiters;
