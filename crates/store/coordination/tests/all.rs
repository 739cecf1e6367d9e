//! Tests of coordinators from outside: one program, which is linked once, with a module for each suite.

mod elections;
mod moves;
