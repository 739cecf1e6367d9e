//! The table of all requests.

use crate::endpoint::Interface;
use crate::transport::Transport;
use bytes::Bytes;
use plinth_core::codec::Source;
use plinth_core::{Result, Uid};
use plinth_identity::Audience;
use std::future::Future;
use std::pin::Pin;

/// A kind of request, without its type: for tools that send any request.
pub struct RequestKind {
    pub name: &'static str,
    /// Where it is declared, as `module_path!()` says.
    pub module: &'static str,
    pub method: u16,
    pub audience: Audience,
    /// Makes a request with random fields and returns its encoding.
    pub draw: fn(&mut dyn Source) -> Bytes,
    /// Sends a request with random fields to a role.
    pub ask: fn(&Transport, &Interface, &mut dyn Source) -> Asked,
}

/// A request under way, without the type of its reply.
pub type Asked = Pin<Box<dyn Future<Output = Result<()>>>>;

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
                module: ::std::module_path!(),
                method: $method,
                audience: <$request as $crate::Request>::AUDIENCE,
                draw: |source| <$request as Codec>::draw(source).to_bytes(),
                ask: |transport, role, source| {
                    let request = <$request as Codec>::draw(source);
                    let call = transport.call(&role.endpoint::<$request>(), request);
                    ::std::boxed::Box::pin(async move { call.await.map(drop) })
                },
            };
        };
    )*};
}
