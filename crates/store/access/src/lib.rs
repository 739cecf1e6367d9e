//! What a caller may read and write, by its identity, by what is configured for clients, and by its token.
//!
//! ```text
//! \xff/access/clients       all, reads or tokens: what a client may do without a token
//! \xff/access/keys/<name>   32 bytes: a public key whose tokens count
//! ```
//!
//! [`Access`] is what these rows say. Commit proxies have them as the rest of the system keyspace, and storage servers
//! read them again and again. A [`Guard`] finds the [`Right`] of a request and remembers the tokens that it has
//! verified.
//!
//! Promises: operators and servers may do everything; a client may do what is configured, and what its token grants
//! until its end, while the token's key is trusted; no token grants a row that decides about others.
//! What may never happen: a token counts after its end, or after its key was revoked here.

mod guard;
mod known;
mod rows;

pub use guard::{Guard, Refused, Right, TOKENS_MAX};
pub use known::Known;
pub use rows::{Access, Clients, clients_row, key_row, name_of_key};
