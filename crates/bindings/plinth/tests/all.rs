//! Tests of the client from outside: one program, which is linked once, with a module for each suite.

mod cluster_file;
mod handles;
mod leaderboard;
