//! The request trait.

use plinth_core::codec::Codec;
use plinth_identity::Audience;

/// A request, the reply it asks for, and its number on the wire.
pub trait Request: Codec + 'static {
    type Reply: Codec + 'static;
    /// Unique among all requests; part of the endpoint's token.
    const METHOD: u16;
    const NAME: &'static str;
    /// Who may send it.
    const AUDIENCE: Audience;
}
