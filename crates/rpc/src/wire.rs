//! What a request is.

use plinth_core::codec::Codec;

/// A request, the reply it asks for, and its number on the wire.
pub trait Request: Codec + 'static {
    type Reply: Codec + 'static;
    /// Unique among all requests; part of the endpoint's token.
    const METHOD: u16;
    const NAME: &'static str;
}

/// Declares requests: `requests! { GetLeader = 7 => GetLeaderReply; }`.
#[macro_export]
macro_rules! requests {
    ($($request:ident = $method:literal => $reply:ty;)*) => {$(
        impl $crate::Request for $request {
            type Reply = $reply;
            const METHOD: u16 = $method;
            const NAME: &'static str = stringify!($request);
        }
    )*};
}
