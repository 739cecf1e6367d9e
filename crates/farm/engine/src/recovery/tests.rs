//! Tests of recovery.

mod chance;
mod machine;
mod oracle;
mod runs;
mod world;
