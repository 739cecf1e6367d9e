//! Tests of the whole program, most of them with real processes: one program, which is linked once, with a module for
//! each suite. `cargo test -p plinth-cli --test all chaos::` runs one suite; scripts/suites lists them.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // they observe processes and files from outside

mod common;

mod alerts;
mod bad_input;
mod bench_delos;
mod bindings;
mod bindings_own_tests;
mod bindings_promises;
mod certificates;
mod chaos;
mod coordinators;
mod copy;
mod damaged_files;
mod delos;
mod delos_backup;
mod delos_certificates;
mod delos_chaos;
mod delos_tutorial;
mod delos_watch;
mod deployments;
mod docs_examples;
mod farm_bench;
mod farm_clocks;
mod farm_keys;
mod farm_on_disk;
mod farm_server;
mod files_and_names;
mod full_disk;
mod growth;
mod growth_under_load;
mod keeper;
mod keeper_bad_input;
mod keeper_moves;
mod keeper_secure;
mod keys;
mod kills;
mod lagging;
mod large_work;
mod many_connections;
mod memory;
mod named_hosts;
mod other_cluster_files;
mod packages;
mod ports_in_use;
mod ready;
mod real_cluster;
mod recovery_waits;
mod refused_requests;
mod rights;
mod said_by_exit_codes;
mod settings;
mod shell;
mod simulated;
mod stack_machines;
mod status_document;
mod streams;
mod table;
mod table_secure;
mod table_service;
mod throttle;
mod tidy;
mod two_databases;
mod zelos;
