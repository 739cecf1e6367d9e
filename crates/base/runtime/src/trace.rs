//! Trace events: a record for operators, and for the analysis of failed runs.
//!
//! On a real worker an event is one JSON line to the process's sink, if it has one. Under simulation, events are kept
//! in a ring, and their text is part of the run's fingerprint, so that a difference in behaviour shows.

pub(crate) mod lines;

pub use lines::{Severity, set_sink};

use crate::{real, sim};
use std::fmt::Display;

/// `trace!("EventName", "key" => value, …)`: values are anything that implements `Display`.
#[macro_export]
macro_rules! trace {
    ($name:literal $(, $key:literal => $value:expr)* $(,)?) => {
        $crate::trace_at!($crate::trace::Severity::Info, $name $(, $key => $value)*)
    };
}

/// Like `trace!`, for events that need an operator's attention.
#[macro_export]
macro_rules! trace_warn {
    ($name:literal $(, $key:literal => $value:expr)* $(,)?) => {
        $crate::trace_at!($crate::trace::Severity::Warn, $name $(, $key => $value)*)
    };
}

/// Like `trace!`, for events that say who did what.
#[macro_export]
macro_rules! audit {
    ($name:literal $(, $key:literal => $value:expr)* $(,)?) => {
        $crate::trace_at!($crate::trace::Severity::Audit, $name $(, $key => $value)*)
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! trace_at {
    ($severity:expr, $name:literal $(, $key:literal => $value:expr)*) => {
        if $crate::trace::is_enabled() {
            $crate::trace::emit($severity, $name, &[$(($key, &$value as &dyn ::std::fmt::Display)),*]);
        }
    };
}

#[doc(hidden)]
pub fn is_enabled() -> bool {
    lines::has_sink() || sim::is_entered()
}

#[doc(hidden)]
pub fn emit(severity: Severity, name: &str, fields: &[(&str, &dyn Display)]) {
    match sim::current() {
        Some(world) => {
            let head = |line: &mut String| world.write_trace_head(line);
            world.keep_trace(lines::render(severity, name, fields, head));
        }
        None => lines::send(real::unix_time_ms(), severity, name, fields),
    }
}
