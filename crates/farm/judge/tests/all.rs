//! Tests of the judges from outside: one program, which is linked once, with a module for each suite.

mod anomalies;
mod generated;
mod speed;
mod text;
mod written;
