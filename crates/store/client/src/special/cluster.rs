//! What the client knows of its cluster: the file, the connection string, the status, the processes.

use super::{MODULES, Module, Rows, single};
use crate::source::Subject;
use crate::transaction::Transaction;
use bytes::Bytes;
use plinth_core::{Result, Value};

const CLUSTER_FILE_PATH: &[u8] = b"\xff\xff/cluster_file_path";
const CONNECTION_STRING: &[u8] = b"\xff\xff/connection_string";
const STATUS: &[u8] = b"\xff\xff/status/json";
const WORKERS: &[u8] = b"\xff\xff/worker_interfaces/";

#[linkme::distributed_slice(MODULES)]
static OF_CLUSTER_FILE_PATH: Module = Module {
    begin: CLUSTER_FILE_PATH,
    end: b"\xff\xff/cluster_file_path\0",
    rows: |transaction, _| {
        let path = transaction.database().cluster_file_path();
        let rows = single(CLUSTER_FILE_PATH, path.map(Value::from));
        Box::pin(async { Ok(rows) })
    },
    writable: &[],
};

#[linkme::distributed_slice(MODULES)]
static OF_CONNECTION_STRING: Module = Module {
    begin: CONNECTION_STRING,
    end: b"\xff\xff/connection_string\0",
    rows: |transaction, _| {
        Box::pin(described(
            transaction,
            CONNECTION_STRING,
            Subject::ConnectionString,
        ))
    },
    writable: &[],
};

#[linkme::distributed_slice(MODULES)]
static OF_STATUS: Module = Module {
    begin: STATUS,
    end: b"\xff\xff/status/json\0",
    rows: |transaction, _| Box::pin(described(transaction, STATUS, Subject::Status)),
    writable: &[],
};

#[linkme::distributed_slice(MODULES)]
static OF_WORKERS: Module = Module {
    begin: WORKERS,
    end: b"\xff\xff/worker_interfaces0",
    rows: |transaction, _| {
        Box::pin(async {
            let cluster = transaction.database().cluster();
            let status = cluster.describe(Subject::Status).await?;
            Ok(workers(&status.unwrap_or_default()))
        })
    },
    writable: &[],
};

/// The row of a key whose value is a description of the cluster.
async fn described(
    transaction: &Transaction,
    key: &'static [u8],
    subject: Subject,
) -> Result<Rows> {
    let cluster = transaction.database().cluster();
    Ok(single(key, cluster.describe(subject).await?))
}

/// One row for each process. An address is its own interface: there is nothing behind it but the address.
fn workers(status: &[u8]) -> Rows {
    let status: serde_json::Value = serde_json::from_slice(status).unwrap_or_default();
    let processes = status["cluster"]["processes"].as_object();
    let addresses = processes
        .into_iter()
        .flat_map(|all| all.values())
        .filter_map(|process| process["address"].as_str());
    let mut rows: Rows = addresses
        .map(|address| {
            let key = Bytes::from([WORKERS, address.as_bytes()].concat());
            (key, Value::from(address.to_owned()))
        })
        .collect();
    rows.sort();
    rows
}
