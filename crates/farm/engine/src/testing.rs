//! Test support: what machines need beside an engine until members bring it, and both fabrics as one type.

pub mod clocks;
pub mod fabrics;
pub mod machines;
