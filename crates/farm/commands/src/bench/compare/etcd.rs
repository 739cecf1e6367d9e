//! etcd's gRPC, version 3, as far as reads and writes of one key need it.

use bytes::Bytes;
use plinth_terminal::Outcome;
use prost::Message;
use std::net::SocketAddr;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

#[derive(Clone, PartialEq, Message)]
struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct KeyValue {
    #[prost(bytes = "bytes", tag = "5")]
    value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct RangeResponse {
    #[prost(message, repeated, tag = "2")]
    kvs: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    value: Bytes,
}

#[derive(Clone, PartialEq, Message)]
struct PutResponse {}

/// A client. Clones share a connection.
#[derive(Clone)]
pub struct Etcd(Grpc<Channel>);

impl Etcd {
    pub async fn connect(at: SocketAddr) -> Outcome<Etcd> {
        let failed = |error: tonic::transport::Error| format!("etcd at {at}: {error}");
        let endpoint = Endpoint::from_shared(format!("http://{at}")).map_err(failed)?;
        Ok(Etcd(Grpc::new(endpoint.connect().await.map_err(failed)?)))
    }

    async fn ask<Q, A>(&mut self, question: Q, path: &'static str) -> Outcome<A>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let ready = self.0.ready().await;
        ready.map_err(|error| format!("etcd: {error}"))?;
        let path = PathAndQuery::from_static(path);
        let asked = tonic::Request::new(question);
        let answer = self.0.unary(asked, path, ProstCodec::<Q, A>::default());
        let answer = answer.await.map_err(|status| format!("etcd: {status}"))?;
        Ok(answer.into_inner())
    }

    /// A linearizable read: etcd's default.
    pub async fn get(&mut self, key: &[u8]) -> Outcome<Option<Bytes>> {
        let key = Bytes::copy_from_slice(key);
        let answer: RangeResponse = self
            .ask(RangeRequest { key }, "/etcdserverpb.KV/Range")
            .await?;
        Ok(answer.kvs.into_iter().next().map(|found| found.value))
    }

    pub async fn set(&mut self, key: &[u8], value: Bytes) -> Outcome {
        let key = Bytes::copy_from_slice(key);
        let put = PutRequest { key, value };
        let answer: Outcome<PutResponse> = self.ask(put, "/etcdserverpb.KV/Put").await;
        answer.map(drop)
    }
}
