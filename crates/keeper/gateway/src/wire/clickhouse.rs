//! Requests of ClickHouse's keeper that ZooKeeper does not know. The layouts are those of ClickHouse's client.
//!
//! ```text
//!   500  path | watch: 1 | filter: 1                              names | stat
//!   501  path | version: 4                                        nothing
//!   502  as a create                                              path
//!   503  path | most nodes: 4                                     nothing
//!   504  path | version: 4 | stat                                 nothing
//!   505  path | version: 4                                        nothing
//!   506  path | watch: 1 | filter: 1 | stats: 1 | data: 1         names | stat | stats | data
//!   507  path | most nodes: 4                                     paths
//! ```

use super::codes::opcode;
use super::jute::{Taken, put_bool, put_int, put_text, take_bool, take_int, take_text};
use super::kinds::Request;
use super::listed::{Details, Filter};
use super::record::Stat;
use bytes::{BufMut, Bytes};
use plinth_core::output::Output;

/// Whose requests are understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialect {
    /// Of all others the server knows nothing, as ZooKeeper's.
    ZooKeeper,
    /// ClickHouse's besides.
    ClickHouse,
}

impl Request {
    /// A list that has all children, and no more than their names, is one of ZooKeeper's.
    pub fn simplified(self) -> Request {
        match self {
            Request::List {
                path,
                watch,
                filter: Filter::All,
                details: None,
            } => Request::GetChildren2 { path, watch },
            Request::MultiRead {
                operations,
                breaks_off,
            } => Request::MultiRead {
                operations: operations.into_iter().map(Request::simplified).collect(),
                breaks_off,
            },
            other => other,
        }
    }
}

/// True for a request that is not in ZooKeeper's protocol.
pub(super) fn is_own(opcode: i32) -> bool {
    (opcode::FILTERED_LIST..=opcode::LIST_RECURSIVE).contains(&opcode)
}

/// Takes one of these requests, but a create.
pub(super) fn take(opcode: i32, input: &mut Bytes) -> Taken<Request> {
    let path = take_text(input)?;
    Ok(match opcode {
        opcode::FILTERED_LIST | opcode::LIST_WITH_STAT_AND_DATA => Request::List {
            path,
            watch: take_bool(input)?,
            filter: Filter::take(input)?,
            details: match opcode {
                opcode::FILTERED_LIST => None,
                _ => Some(Details {
                    stat: take_bool(input)?,
                    data: take_bool(input)?,
                }),
            },
        },
        opcode::LIST_RECURSIVE => Request::ListRecursive {
            path,
            most: take_most(input)?,
        },
        opcode::REMOVE_RECURSIVE => Request::DeleteRecursive {
            path,
            most: take_most(input)?,
        },
        opcode::CHECK_NOT_EXISTS => Request::CheckNotExists {
            path,
            version: take_int(input)?,
        },
        opcode::CHECK_STAT => Request::CheckStat {
            path,
            version: take_int(input)?,
            stat: Stat::take(input)?,
        },
        opcode::TRY_REMOVE => Request::TryDelete {
            path,
            version: take_int(input)?,
        },
        _ => Request::Unknown { opcode },
    })
}

fn take_most(input: &mut Bytes) -> Taken<u32> {
    take_int(input).map(i32::cast_unsigned)
}

/// Appends what follows the header of one of these requests.
pub(super) fn put(request: &Request, out: &mut Output) {
    match request {
        Request::List {
            path,
            watch,
            filter,
            details,
        } => {
            put_text(out, path);
            put_bool(out, *watch);
            out.buffer().put_u8(*filter as u8);
            if let Some(details) = details {
                put_bool(out, details.stat);
                put_bool(out, details.data);
            }
        }
        Request::ListRecursive { path, most } | Request::DeleteRecursive { path, most } => {
            put_text(out, path);
            put_int(out, most.cast_signed());
        }
        Request::CheckNotExists { path, version } | Request::TryDelete { path, version } => {
            put_text(out, path);
            put_int(out, *version);
        }
        Request::CheckStat {
            path,
            version,
            stat,
        } => {
            put_text(out, path);
            put_int(out, *version);
            stat.put(out);
        }
        _ => {}
    }
}
