//! What every command line of Plinth shares, whatever it is a command of.
//!
//! - [`commands`]: the list of commands. [`examples`](mod@examples): what their pages end with.
//! - [`connect`]: how a tool finds its cluster, and what it says if the cluster does not answer.
//! - [`tls`], [`knobs`], [`configuration`], [`seconds`], [`numbers`], [`choices`]: flags, and files of flags;
//!   [`sources`]: where a flag comes from that nobody has typed; [`given`]: files that are others than are wanted.
//! - [`token`]: what a client may show; [`denial`]: why it is refused; [`system_errors`]: what the system says of
//!   files, in words.
//! - [`serving`], [`process`], [`children`], [`ports`], [`remembered`], [`allocator`], [`notify`], [`trace_file`],
//!   [`pages`]: what a process has that serves. [`interrupts`]: the end of one that does not; [`leavings`]: what it
//!   must not leave.
//! - [`keys`], [`status`], [`text`]: key files, status documents, and text of other systems.
//! - [`shell`], [`watching`], [`progress`], [`wrap`], [`wording`], [`outputs`]: what a person sees, and files that are
//!   made.

pub mod allocator;
pub mod children;
pub mod choices;
pub mod commands;
pub mod configuration;
pub mod connect;
pub mod denial;
pub mod examples;
pub mod given;
pub mod interrupts;
pub mod keys;
pub mod knobs;
pub mod leavings;
pub mod notify;
pub mod numbers;
pub mod outputs;
pub mod pages;
pub mod ports;
pub mod process;
pub mod progress;
pub mod remembered;
pub mod seconds;
pub mod served;
pub mod serving;
pub mod shell;
pub mod sources;
pub mod status;
pub mod system_errors;
pub mod text;
pub mod tls;
pub mod token;
pub mod trace_file;
pub mod watching;
pub mod wording;
pub mod wrap;

pub use examples::examples;

/// Result of a command; the error is one line for the user.
pub type Outcome<T = ()> = Result<T, String>;
