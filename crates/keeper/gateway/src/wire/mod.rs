//! ZooKeeper's protocol: jute records in frames.
//!
//! A client greets with a [`ConnectRequest`]; then each frame is a [`Header`] and a [`Request`], or an
//! [`AnswerHeader`] and an [`Answer`], or a [`WatchEvent`]. Both directions are here: the server and this project's
//! client use the same code. ClickHouse's clients may ask for numbers of eight bytes ([`XidWidth`]) and for compressed
//! blocks around all that follows the greeting ([`packed`]).
//!
//! Promises: no input causes a panic, an allocation of more than a small multiple of its own size, or recursion.
//! What ZooKeeper's server makes of a record that is strange but readable is kept: trailing bytes are ignored, and a
//! list of negative length is empty.

mod answer;
mod clickhouse;
mod codes;
mod frame;
#[cfg(test)]
mod golden;
#[cfg(test)]
mod golden_clickhouse;
#[cfg(test)]
mod golden_forms;
mod jute;
mod kinds;
mod listed;
mod multi;
pub mod packed;
mod record;
mod request;
#[cfg(test)]
mod tests;
mod text;

pub use answer::{
    Answer, AnswerHeader, Incoming, MultiResult, WatchEvent, decode_answer, decode_incoming,
    encode_answer, encode_children, encode_data, encode_event,
};
pub use clickhouse::Dialect;
pub use codes::{
    Code, create_flags, event, keeper_state, opcode, permission, watch_mode, watcher, xid,
};
pub use frame::{FrameError, Header, Skip, Xid, XidWidth, frame_bytes, take_frame};
pub use jute::Malformed;
pub use listed::{Details, Filter, Listed};
pub use record::{
    Acl, ClientInfo, ConnectAnswer, ConnectRequest, Protocol, Stat, decode_connect_answer,
    decode_connect_request, encode_connect_answer, encode_connect_request, take_greeting,
};
pub use request::{CreateKind, Request, decode_request, encode_request};
pub use text::Text;
