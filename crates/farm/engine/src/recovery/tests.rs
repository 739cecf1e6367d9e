//! Tests of recovery.

mod bytes;
mod chance;
mod machine;
mod oracle;
mod runs;
mod world;
