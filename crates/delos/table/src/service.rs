//! The service of `proto/table.proto` over gRPC, and its client: each call is one message each way.

use crate::limits::REQUEST_BYTES;
use crate::proto::{Answer, Described, Description, Page, Query, Request};
use prost::Message;
use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::Channel;
use tonic::{Response, Status};
use tonic_prost::ProstCodec;

/// A request is a little larger before it is understood.
const ASKED_BYTES_MAX: usize = 2 * REQUEST_BYTES;
const ANSWER_BYTES_MAX: usize = 4 * REQUEST_BYTES;

/// Declares the calls: what a server does, how it is found by the path, and the client.
macro_rules! calls {
    ($($(#[$meta:meta])* $call:ident($asked:ty) -> $answer:ty = $path:literal;)*) => {
        #[tonic::async_trait]
        pub trait Tables: Send + Sync + 'static {$(
            $(#[$meta])*
            async fn $call(&self, asked: $asked) -> Result<$answer, Status>;
        )*}

        impl<T: Tables> Service<http::Request<Body>> for TablesServer<T> {
            type Response = http::Response<Body>;
            type Error = Infallible;
            type Future = BoxFuture<Self::Response, Infallible>;

            fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
                Poll::Ready(Ok(()))
            }

            fn call(&mut self, asked: http::Request<Body>) -> Self::Future {
                let tables = self.0.clone();
                match asked.uri().path() {
                    $($path => Box::pin(answer(asked, move |asked: $asked| {
                        let tables = tables.clone();
                        Box::pin(async move { tables.$call(asked).await.map(Response::new) })
                    })),)*
                    _ => Box::pin(async { Ok(Status::unimplemented("there is no such call").into_http()) }),
                }
            }
        }

        impl TablesClient {$(
            $(#[$meta])*
            ///
            /// # Errors
            /// It is refused, or there is no answer.
            pub async fn $call(&mut self, asked: $asked) -> Result<$answer, Status> {
                self.ask($path, asked).await
            }
        )*}
    };
}

calls! {
    /// Changes rows or schemas: all of it, or nothing.
    execute(Request) -> Answer = "/plinth.table.v1.Tables/Execute";
    /// Reads one page of rows, with everything that was answered anywhere before the call.
    read(Query) -> Page = "/plinth.table.v1.Tables/Read";
    /// Tells what the tables look like.
    describe(Description) -> Described = "/plinth.table.v1.Tables/Describe";
}

/// Serves calls by some [`Tables`].
pub struct TablesServer<T>(Arc<T>);

impl<T> TablesServer<T> {
    pub fn new(tables: T) -> Self {
        TablesServer(Arc::new(tables))
    }
}

impl<T> Clone for TablesServer<T> {
    fn clone(&self) -> Self {
        TablesServer(self.0.clone())
    }
}

impl<T> NamedService for TablesServer<T> {
    const NAME: &'static str = "plinth.table.v1.Tables";
}

struct Call<F>(F);

impl<A, B, F> UnaryService<A> for Call<F>
where
    F: FnMut(A) -> BoxFuture<Response<B>, Status>,
{
    type Response = B;
    type Future = BoxFuture<Response<B>, Status>;

    fn call(&mut self, asked: tonic::Request<A>) -> Self::Future {
        (self.0)(asked.into_inner())
    }
}

async fn answer<A, B>(
    asked: http::Request<Body>,
    call: impl FnMut(A) -> BoxFuture<Response<B>, Status>,
) -> Result<http::Response<Body>, Infallible>
where
    A: Message + Default + 'static,
    B: Message + Default + 'static,
{
    let grpc = tonic::server::Grpc::new(ProstCodec::default());
    let mut grpc = grpc.max_decoding_message_size(ASKED_BYTES_MAX);
    Ok(grpc.unary(Call(call), asked).await)
}

#[derive(Clone)]
pub struct TablesClient(tonic::client::Grpc<Channel>);

impl TablesClient {
    pub fn new(channel: Channel) -> Self {
        let client = tonic::client::Grpc::new(channel);
        TablesClient(client.max_decoding_message_size(ANSWER_BYTES_MAX))
    }

    async fn ask<A, B>(&mut self, path: &'static str, asked: A) -> Result<B, Status>
    where
        A: Message + 'static,
        B: Message + Default + 'static,
    {
        let not_ready = |error| Status::unknown(format!("Service was not ready: {error}"));
        self.0.ready().await.map_err(not_ready)?;
        let path = http::uri::PathAndQuery::from_static(path);
        let asked = tonic::Request::new(asked);
        let answer = self.0.unary(asked, path, ProstCodec::default()).await?;
        Ok(answer.into_inner())
    }
}
