//! Tests of whole servers from outside: one program, which is linked once, with a module for each suite.

mod common;
mod cut_off_controller;
mod damaged_logs;
mod damaged_storage;
mod distribution;
mod embedded;
mod lagging_storage;
mod lost_coordinators;
mod more_logs;
mod moved_coordinators;
mod named_coordinators;
mod set_back_logs;
mod slow_logs;
mod status_in_recoveries;
mod tls;
mod tokens;
mod traced_commits;
mod two_databases;
