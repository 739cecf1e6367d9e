//! Tests of log servers from outside: one program, which is linked once, with a module for each suite.

mod damaged_blocks;
mod large_blocks;
