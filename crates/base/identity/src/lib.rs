//! Who is at the other end, and what they may do. Bytes in, bytes out.
//!
//! - [`Identity`] and [`Audience`]: what a connection is to us, and what a request asks for.
//! - [`keys`]: the secrets of a cluster, and the file that holds them.
//! - [`greeting`]: both sides of a new connection prove that they know a key.
//! - [`seal`]: the bytes of that connection are authenticated from then on.
//! - [`tokens`]: signed grants of parts of the key space.
//! - [`files`]: what a file is that was given in the place of another one.
//! - [`rules`]: what the certificate of a peer must say; [`Verdict`]: what came of it.
//!
//! Time and random bytes are arguments, so the same code runs under simulation, and a fault is planted where they are
//! made. The algorithms are those of `ring`.
//!
//! Promises: hostile bytes lead to an error, never to a panic, and to no more memory than a small multiple of their
//! length. Neither `Debug` nor an error shows a secret.
//! What may never happen: a peer gets an identity without a key of it; something that was recorded is accepted again.

pub mod files;
pub mod greeting;
mod identity;
pub mod keys;
pub mod rules;
pub mod seal;
mod secret;
pub mod tokens;
mod verdict;

pub use identity::{Audience, Identity};
pub use verdict::{Side, Verdict};
