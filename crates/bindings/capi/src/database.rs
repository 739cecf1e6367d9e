//! Databases and tenants.

use crate::arguments::{Code, bytes_at, code, functions, text_at};
use crate::connection::Connection;
use crate::future::Future;
use crate::payload::Payload;
use crate::transaction::Transaction;
use crate::{options, state, tls};
use bytes::Bytes;
use plinth_coordination::{ClusterFile, cluster_file, key_file};
use plinth_core::{Error, Result};
use plinth_identity::keys::Keyring;
use plinth_runtime::trace_warn;
use std::ffi::{c_char, c_int};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Protocol version of FoundationDB 7.3's servers.
const SERVER_PROTOCOL: u64 = 0x0fdb_00b0_7300_0000;
const CLUSTER_FILE_BYTES_MAX: usize = 1 << 20;

/// `FDBDatabase`.
pub struct Database {
    pub(crate) connection: Arc<Connection>,
    coordinators: Vec<String>,
}

/// `FDBTenant`: a database on each loop, over that of the database that it belongs to. It is made without a request:
/// if there is no such tenant, operations on it fail.
pub struct Tenant {
    connection: Arc<Connection>,
    name: Bytes,
    /// The database, which lives as long as the tenant.
    parent: Arc<Connection>,
}

/// The path of the cluster file: the given one, or where FoundationDB's and Plinth's clients look for it.
fn find_cluster_file(given: Option<&str>) -> Result<PathBuf> {
    if let Some(path) = given.filter(|path| !path.is_empty()) {
        return Ok(path.into());
    }
    for variable in ["FDB_CLUSTER_FILE", cluster_file::ENVIRONMENT_VARIABLE] {
        if let Some(path) = std::env::var_os(variable).filter(|path| !path.is_empty()) {
            return Ok(path.into());
        }
    }
    let usual = [
        "fdb.cluster",
        cluster_file::DEFAULT_NAME,
        "/etc/foundationdb/fdb.cluster",
        cluster_file::SYSTEM_WIDE_PATH,
    ];
    let found = usual.iter().map(Path::new).find(|path| path.exists());
    found
        .map(Path::to_owned)
        .ok_or(Error::no_cluster_file_found)
}

fn read_cluster_file(path: &Path) -> Result<ClusterFile> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the caller's thread has no event loop"
    )]
    let text = std::fs::read(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::no_cluster_file_found,
        _ => Error::file_not_readable,
    })?;
    if text.len() > CLUSTER_FILE_BYTES_MAX {
        return Err(Error::file_too_large);
    }
    parse(std::str::from_utf8(&text).map_err(|_| Error::connection_string_invalid)?)
}

fn parse(text: &str) -> Result<ClusterFile> {
    ClusterFile::parse(text).map_err(|_| Error::connection_string_invalid)
}

/// The keys beside the cluster file. One that cannot be used is an error, and not the same as none.
fn read_keys(cluster_file: &Path) -> Result<Option<Keyring>> {
    let path = key_file::beside(cluster_file);
    let (mode, bytes) = match tls::read_with_mode(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(_) => return Err(Error::file_not_readable),
        Ok(found) => found,
    };
    match key_file::parse(&path, mode, &bytes) {
        Ok(file) => Ok(Some(Keyring::new(&file))),
        Err(line) => {
            trace_warn!("KeysNotRead", "why" => line);
            Err(Error::permission_denied)
        }
    }
}

fn open(mut file: ClusterFile, path: Option<PathBuf>) -> Result<Box<Database>> {
    let coordinators = file.coordinators.iter().map(ToString::to_string).collect();
    file.keys = path.as_deref().map(read_keys).transpose()?.flatten();
    file.certificates = tls::read(&file, path.as_deref())?;
    let connection = Connection::open(move |id| {
        state::open_database(id, file, path.as_deref());
    })?;
    Ok(Box::new(Database {
        connection,
        coordinators,
    }))
}

fn give(out: &mut *mut Database, opened: Result<Box<Database>>) -> Code {
    code(opened.map(|database| *out = Box::into_raw(database)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_create_database(path: *const c_char, out: &mut *mut Database) -> Code {
    // SAFETY: the header's contract.
    let path = unsafe { text_at(path) };
    let opened = path
        .and_then(|path| find_cluster_file(path.as_deref()))
        .and_then(|path| open(read_cluster_file(&path)?, Some(path)));
    give(out, opened)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_create_database_from_connection_string(
    text: *const c_char,
    out: &mut *mut Database,
) -> Code {
    // SAFETY: the header's contract.
    let text = unsafe { text_at(text) };
    let file = text
        .and_then(|text| text.ok_or(Error::connection_string_invalid))
        .and_then(|text| parse(&text));
    give(out, file.and_then(|file| open(file, None)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_database_destroy(database: *mut Database) {
    if !database.is_null() {
        // SAFETY: made by `give`, and given back once.
        drop(unsafe { Box::from_raw(database) });
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_database_set_option(
    database: &Database,
    option: c_int,
    value: *const u8,
    length: c_int,
) -> Code {
    // SAFETY: the header's contract.
    let value = unsafe { bytes_at(value, length) };
    let option = value.and_then(|value| options::of_database(option, &value));
    code(option.map(|option| {
        if let Some(option) = option {
            let set = move |id| state::set_database_option(id, option);
            database.connection.on_each_loop(set);
        }
    }))
}

functions! {
    fn fdb_database_create_transaction(database: &Database, out: &mut *mut Transaction) -> Code {
        *out = Box::into_raw(Box::new(Transaction::new(&database.connection)));
        0
    }

    fn fdb_database_open_tenant(
        database: &Database, [name, length], out: &mut *mut Tenant
    ) -> Code {
        code(name.map(|name| {
            let parent = database.connection.clone();
            let (of, called) = (parent.id(), name.clone());
            let connection = parent.open_beside(move |id| state::open_tenant(of, id, &called));
            *out = Box::into_raw(Box::new(Tenant { connection, name, parent }));
        }))
    }

    fn fdb_tenant_create_transaction(tenant: &Tenant, out: &mut *mut Transaction) -> Code {
        *out = Box::into_raw(Box::new(Transaction::new(&tenant.connection)));
        0
    }

    fn fdb_tenant_get_id(tenant: &Tenant) -> *mut Future {
        Transaction::new(&tenant.parent).tenant_id(tenant.name.clone())
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_tenant_destroy(tenant: *mut Tenant) {
    if !tenant.is_null() {
        // SAFETY: made by `fdb_database_open_tenant`, and given back once.
        drop(unsafe { Box::from_raw(tenant) });
    }
}

/// The busyness of the busiest loop. It is not measured: always 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_database_get_main_thread_busyness(_database: &Database) -> f64 {
    0.0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_database_get_server_protocol(
    _database: &Database,
    _expected: u64,
) -> *mut Future {
    Future::early(Ok(Payload::Uint64(SERVER_PROTOCOL)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn fdb_database_get_client_status(database: &Database) -> *mut Future {
    let quoted: Vec<String> = database
        .coordinators
        .iter()
        .map(|address| format!("\"{address}\""))
        .collect();
    let status = format!(
        "{{\"Healthy\":true,\"ClusterID\":\"\",\"Coordinators\":[{}],\"CurrentCoordinator\":\"\",\
        \"Connections\":[],\"NumConnectionsFailed\":0,\
        \"InitializationState\":\"created\",\"InitializationError\":0}}",
        quoted.join(",")
    );
    Future::early(Ok(Payload::Key(Bytes::from(status))))
}
