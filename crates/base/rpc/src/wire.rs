//! The request trait and the table of all requests.

use bytes::Bytes;
use plinth_core::Uid;
use plinth_core::codec::{Codec, Source};
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

/// A kind of request, without its type: for tools that send any request.
pub struct RequestKind {
    pub name: &'static str,
    pub method: u16,
    pub audience: Audience,
    /// Makes a request with random fields and returns its encoding.
    pub draw: fn(&mut dyn Source) -> Bytes,
}

impl RequestKind {
    /// The token of such a request at role `id`.
    pub fn token(&self, id: Uid) -> u64 {
        crate::endpoint::token_of(self.method, id)
    }
}

/// Every request linked into this program, in no particular order.
#[linkme::distributed_slice]
pub static REQUESTS: [RequestKind];

/// Declares requests, with who may send each: `requests! { GetLeader = 7 for Clients => GetLeaderReply; }`. Audiences
/// are those of [`Audience`].
#[macro_export]
macro_rules! requests {
    ($($request:ident = $method:literal for $audience:ident => $reply:ty;)*) => {$(
        impl $crate::Request for $request {
            type Reply = $reply;
            const METHOD: u16 = $method;
            const NAME: &'static str = stringify!($request);
            const AUDIENCE: $crate::macro_support::plinth_identity::Audience =
                $crate::macro_support::plinth_identity::Audience::$audience;
        }

        const _: () = {
            use $crate::macro_support::{linkme, plinth_core::codec::Codec};
            #[linkme::distributed_slice($crate::REQUESTS)]
            #[linkme(crate = linkme)]
            static KIND: $crate::RequestKind = $crate::RequestKind {
                name: stringify!($request),
                method: $method,
                audience: <$request as $crate::Request>::AUDIENCE,
                draw: |source| <$request as Codec>::draw(source).to_bytes(),
            };
        };
    )*};
}
