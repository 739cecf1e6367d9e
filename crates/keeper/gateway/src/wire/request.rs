//! Requests, in both directions.

use super::clickhouse::{self, Dialect};
use super::codes::{Code, create_flags, opcode};
use super::frame::{Header, Xid, XidWidth, put_frame};
use super::jute::{
    Malformed, STRING_BYTES_MIN, Taken, put_bool, put_buffer, put_int, put_long, put_optional_text,
    put_text, put_texts, take_bool, take_buffer, take_int, take_long, take_optional_list,
    take_optional_text,
};
pub use super::kinds::{CreateKind, Request};
use super::multi;
use super::record::Acl;
use super::text::Text;
use bytes::Bytes;
use plinth_core::output::Output;

/// To ZooKeeper's tables of watches null is a path like others. No node has this one.
const NULL: Text = Text::from_static("\0");

/// Decodes a frame that is not the first of its connection. Bytes after the request are ignored, as in ZooKeeper's
/// server.
///
/// A request that cannot be read is answered with the code. A read with null in place of a path is such a request.
///
/// # Errors
/// There is no header, or an attempt to authenticate cannot be read: the connection must end.
pub fn decode_request(
    mut frame: Bytes,
    dialect: Dialect,
    width: XidWidth,
) -> Result<(Header, Result<Request, Code>), Malformed> {
    let header = Header::take(&mut frame, width)?;
    match Request::take(header.opcode, &mut frame, dialect) {
        Ok(request) => Ok((header, Ok(request))),
        // A client waits for the outcome of these before all else, and would go on as someone it is not.
        Err(Malformed) if matches!(header.opcode, opcode::AUTH | opcode::SASL) => Err(Malformed),
        Err(Malformed) => Ok((header, Err(Code::MARSHALLING_ERROR))),
    }
}

/// Appends a frame with the request.
pub fn encode_request(out: &mut Output, xid: impl Into<Xid>, request: &Request) {
    put_frame(out, |out| {
        let (xid, opcode) = (xid.into(), request.opcode());
        Header { xid, opcode }.put(out);
        request.put(out);
    });
}

impl Request {
    /// True for a change of nodes that a client asks for.
    pub fn changes_nodes(&self) -> bool {
        matches!(
            self,
            Request::Create { .. }
                | Request::Delete { .. }
                | Request::DeleteContainer { .. }
                | Request::NoPath(_)
                | Request::SetData { .. }
                | Request::SetAcl { .. }
                | Request::Multi { .. }
                | Request::TryDelete { .. }
                | Request::DeleteRecursive { .. }
        )
    }

    /// The reads in one that has several; otherwise it is its only part.
    pub fn parts(&self) -> &[Request] {
        match self {
            Request::MultiRead { operations, .. } => operations,
            only => std::slice::from_ref(only),
        }
    }

    pub fn opcode(&self) -> i32 {
        match self {
            Request::Create { kind, .. } => kind.opcode(),
            Request::Delete { .. } => opcode::DELETE,
            Request::Exists { .. } => opcode::EXISTS,
            Request::GetData { .. } => opcode::GET_DATA,
            Request::SetData { .. } => opcode::SET_DATA,
            Request::GetAcl { .. } => opcode::GET_ACL,
            Request::SetAcl { .. } => opcode::SET_ACL,
            Request::GetChildren { .. } => opcode::GET_CHILDREN,
            Request::GetChildren2 { .. } => opcode::GET_CHILDREN_2,
            Request::Sync { .. } => opcode::SYNC,
            Request::Ping => opcode::PING,
            Request::Check { .. } => opcode::CHECK,
            Request::DeleteContainer { .. } => opcode::DELETE_CONTAINER,
            Request::NoPath(request) => request.opcode(),
            Request::Multi { .. } => opcode::MULTI,
            Request::MultiRead { .. } => opcode::MULTI_READ,
            Request::Reconfig { .. } => opcode::RECONFIG,
            Request::CheckWatches { .. } => opcode::CHECK_WATCHES,
            Request::RemoveWatches { .. } => opcode::REMOVE_WATCHES,
            Request::SetWatches {
                persistent,
                recursive,
                breaks_off: false,
                ..
            } if persistent.is_empty() && recursive.is_empty() => opcode::SET_WATCHES,
            Request::SetWatches { .. } => opcode::SET_WATCHES_2,
            Request::AddWatch { .. } => opcode::ADD_WATCH,
            Request::Auth { .. } => opcode::AUTH,
            Request::Sasl { .. } => opcode::SASL,
            Request::GetEphemerals { .. } => opcode::GET_EPHEMERALS,
            Request::GetAllChildrenNumber { .. } => opcode::GET_ALL_CHILDREN_NUMBER,
            Request::WhoAmI => opcode::WHO_AM_I,
            Request::CloseSession => opcode::CLOSE_SESSION,
            Request::List { details: None, .. } => opcode::FILTERED_LIST,
            Request::List { .. } => opcode::LIST_WITH_STAT_AND_DATA,
            Request::ListRecursive { .. } => opcode::LIST_RECURSIVE,
            Request::CheckNotExists { .. } => opcode::CHECK_NOT_EXISTS,
            Request::CheckStat { .. } => opcode::CHECK_STAT,
            Request::TryDelete { .. } => opcode::TRY_REMOVE,
            Request::DeleteRecursive { .. } => opcode::REMOVE_RECURSIVE,
            Request::Unknown { opcode } => *opcode,
        }
    }

    fn take(opcode: i32, input: &mut Bytes, dialect: Dialect) -> Taken<Request> {
        match opcode {
            opcode::MULTI => multi::take_steps(input, |(opcode, _), input| {
                take_transaction_step(opcode, input, dialect)
            })
            .map(|operations| Request::Multi { operations }),
            opcode::MULTI_READ => multi::take_steps(input, |(opcode, _), input| match dialect {
                Dialect::ZooKeeper => take_step(opcode, input),
                Dialect::ClickHouse => take_wide_read_step(opcode, input).map(Step::Read),
            })
            .and_then(as_far_as_it_goes),
            _ if clickhouse::is_own(opcode) && dialect == Dialect::ZooKeeper => {
                Ok(Request::Unknown { opcode })
            }
            opcode::CREATE_IF_NOT_EXISTS => take_create_if_not_exists(input),
            _ if clickhouse::is_own(opcode) => clickhouse::take(opcode, input),
            opcode::CREATE | opcode::CREATE_2 | opcode::CREATE_CONTAINER | opcode::CREATE_TTL => {
                take_create(CreateKind::of(opcode), input)
            }
            opcode::CHECK_WATCHES | opcode::REMOVE_WATCHES | opcode::ADD_WATCH => {
                take_of_watches(opcode, input)
            }
            opcode::SET_WATCHES | opcode::SET_WATCHES_2 => take_set_watches(opcode, input),
            opcode::RECONFIG => Ok(Request::Reconfig {
                joining: take_optional_text(input)?,
                leaving: take_optional_text(input)?,
                new_members: take_optional_text(input)?,
                config_id: take_long(input)?,
            }),
            opcode::AUTH => Ok(Request::Auth {
                kind: take_int(input)?,
                scheme: take_optional_text(input)?.unwrap_or_default(),
                auth: take_buffer(input)?,
            }),
            opcode::SASL => Ok(Request::Sasl {
                token: take_buffer(input)?.unwrap_or_default(),
            }),
            opcode::GET_EPHEMERALS => Ok(Request::GetEphemerals {
                prefix: take_optional_text(input)?.unwrap_or_default(),
            }),
            opcode::SYNC => Ok(Request::Sync {
                path: take_optional_text(input)?,
            }),
            opcode::PING => Ok(Request::Ping),
            opcode::WHO_AM_I => Ok(Request::WhoAmI),
            opcode::CLOSE_SESSION => Ok(Request::CloseSession),
            _ => take_of_a_node(opcode, input),
        }
    }

    /// Appends what follows the header.
    pub(super) fn put(&self, out: &mut Output) {
        match self {
            Request::Create { .. } => self.put_create(out),
            Request::Delete { path, version } | Request::Check { path, version } => {
                put_text(out, path);
                put_int(out, *version);
            }
            Request::Exists { path, watch }
            | Request::GetData { path, watch }
            | Request::GetChildren { path, watch }
            | Request::GetChildren2 { path, watch } => {
                put_text(out, path);
                put_bool(out, *watch);
            }
            Request::SetData {
                path,
                data,
                version,
            } => {
                put_text(out, path);
                put_buffer(out, data.as_ref());
                put_int(out, *version);
            }
            Request::SetAcl { path, acl, version } => {
                put_text(out, path);
                Acl::put_all(out, acl);
                put_int(out, *version);
            }
            Request::GetAcl { path }
            | Request::DeleteContainer { path }
            | Request::GetAllChildrenNumber { path }
            | Request::GetEphemerals { prefix: path } => put_text(out, path),
            Request::CheckWatches { path, kind: number }
            | Request::RemoveWatches { path, kind: number }
            | Request::AddWatch { path, mode: number } => {
                put_text(out, path);
                put_int(out, *number);
            }
            Request::Multi { operations } => put_steps(out, operations, false),
            Request::MultiRead {
                operations,
                breaks_off,
            } => put_steps(out, operations, *breaks_off),
            Request::SetWatches { .. } => self.put_set_watches(out),
            Request::Sync { path } => put_optional_text(out, path.as_ref()),
            Request::NoPath(request) => {
                let path = out.mark();
                request.put(out);
                out.patch(path, &(-1_i32).to_be_bytes());
            }
            Request::Reconfig { .. } | Request::Auth { .. } | Request::Sasl { .. } => {
                self.put_rare(out);
            }
            Request::List { .. }
            | Request::ListRecursive { .. }
            | Request::CheckNotExists { .. }
            | Request::CheckStat { .. }
            | Request::TryDelete { .. }
            | Request::DeleteRecursive { .. } => clickhouse::put(self, out),
            Request::Ping | Request::WhoAmI | Request::CloseSession | Request::Unknown { .. } => {}
        }
    }

    fn put_create(&self, out: &mut Output) {
        let Request::Create {
            kind,
            path,
            data,
            acl,
            flags,
            ttl,
        } = self
        else {
            return;
        };
        put_text(out, path);
        put_buffer(out, data.as_ref());
        Acl::put_all(out, acl);
        put_int(out, *flags);
        if *kind == CreateKind::Ttl {
            put_long(out, *ttl);
        }
    }

    fn put_set_watches(&self, out: &mut Output) {
        let Request::SetWatches {
            relative_zxid,
            data,
            exist,
            child,
            persistent,
            recursive,
            breaks_off,
        } = self
        else {
            return;
        };
        put_long(out, *relative_zxid);
        let lists = match self.opcode() {
            opcode::SET_WATCHES => &[data, exist, child][..],
            _ => &[data, exist, child, persistent, recursive],
        };
        let last = lists.iter().rposition(|list| !list.is_empty());
        for (place, list) in lists.iter().enumerate() {
            match *breaks_off && last.is_none_or(|last| place > last) {
                true => put_int(out, -1),
                false => put_texts(out, list),
            }
        }
    }

    fn put_rare(&self, out: &mut Output) {
        match self {
            Request::Reconfig {
                joining,
                leaving,
                new_members,
                config_id,
            } => {
                for text in [joining, leaving, new_members] {
                    put_optional_text(out, text.as_ref());
                }
                put_long(out, *config_id);
            }
            Request::Auth { kind, scheme, auth } => {
                put_int(out, *kind);
                put_text(out, scheme);
                put_buffer(out, auth.as_ref());
            }
            Request::Sasl { token } => put_buffer(out, Some(token)),
            _ => {}
        }
    }
}

fn put_steps(out: &mut Output, operations: &[Request], breaks_off: bool) {
    for operation in operations {
        multi::put_step(out, operation.opcode(), -1);
        operation.put(out);
    }
    if breaks_off {
        multi::put_step(out, opcode::GET_DATA, -1);
        put_int(out, -1);
        put_bool(out, false);
    }
    multi::put_end(out);
}

impl CreateKind {
    pub fn opcode(self) -> i32 {
        match self {
            CreateKind::Plain => opcode::CREATE,
            CreateKind::WithStat => opcode::CREATE_2,
            CreateKind::Container => opcode::CREATE_CONTAINER,
            CreateKind::Ttl => opcode::CREATE_TTL,
            CreateKind::IfNotExists => opcode::CREATE_IF_NOT_EXISTS,
        }
    }

    fn of(opcode: i32) -> CreateKind {
        match opcode {
            opcode::CREATE_2 => CreateKind::WithStat,
            opcode::CREATE_CONTAINER => CreateKind::Container,
            opcode::CREATE_TTL => CreateKind::Ttl,
            opcode::CREATE_IF_NOT_EXISTS => CreateKind::IfNotExists,
            _ => CreateKind::Plain,
        }
    }
}

/// Requests that name a node first.
fn take_of_a_node(opcode: i32, input: &mut Bytes) -> Taken<Request> {
    if !is_of_a_node(opcode) {
        return Ok(Request::Unknown { opcode });
    }
    let sent = take_optional_text(input)?;
    let is_null = sent.is_none();
    let path = sent.unwrap_or_default();
    Ok(match opcode {
        opcode::DELETE => {
            let version = take_int(input)?;
            or_no_path(is_null, Request::Delete { path, version })
        }
        opcode::DELETE_CONTAINER => or_no_path(is_null, Request::DeleteContainer { path }),
        // Null is as bad a path as an empty one.
        opcode::SET_DATA => Request::SetData {
            path,
            data: take_buffer(input)?,
            version: take_int(input)?,
        },
        opcode::SET_ACL => Request::SetAcl {
            path,
            acl: Acl::take_all(input)?,
            version: take_int(input)?,
        },
        opcode::CHECK => Request::Check {
            path,
            version: take_int(input)?,
        },
        _ if is_null => return Err(Malformed),
        opcode::EXISTS => Request::Exists {
            path,
            watch: take_bool(input)?,
        },
        opcode::GET_DATA => Request::GetData {
            path,
            watch: take_bool(input)?,
        },
        opcode::GET_CHILDREN => Request::GetChildren {
            path,
            watch: take_bool(input)?,
        },
        opcode::GET_CHILDREN_2 => Request::GetChildren2 {
            path,
            watch: take_bool(input)?,
        },
        opcode::GET_ACL => Request::GetAcl { path },
        _ => Request::GetAllChildrenNumber { path },
    })
}

fn or_no_path(is_null: bool, request: Request) -> Request {
    match is_null {
        true => Request::NoPath(Box::new(request)),
        false => request,
    }
}

fn is_of_a_node(opcode: i32) -> bool {
    matches!(
        opcode,
        opcode::DELETE
            | opcode::EXISTS
            | opcode::GET_DATA
            | opcode::GET_CHILDREN
            | opcode::GET_CHILDREN_2
            | opcode::SET_DATA
            | opcode::SET_ACL
            | opcode::CHECK
            | opcode::GET_ACL
            | opcode::DELETE_CONTAINER
            | opcode::GET_ALL_CHILDREN_NUMBER
    )
}

fn take_create(kind: CreateKind, input: &mut Bytes) -> Taken<Request> {
    let path = take_optional_text(input)?;
    let is_null = path.is_none();
    let create = Request::Create {
        kind,
        path: path.unwrap_or_default(),
        data: take_buffer(input)?,
        acl: Acl::take_all(input)?,
        flags: take_int(input)?,
        ttl: if kind == CreateKind::Ttl {
            take_long(input)?
        } else {
            -1
        },
    };
    Ok(or_no_path(is_null, create))
}

/// One without a path cannot be read: no ZooKeeper says what else it should be.
fn take_create_if_not_exists(input: &mut Bytes) -> Taken<Request> {
    match take_create(CreateKind::IfNotExists, input)? {
        Request::NoPath(_) => Err(Malformed),
        create => Ok(create),
    }
}

fn take_of_watches(opcode: i32, input: &mut Bytes) -> Taken<Request> {
    let path = take_optional_text(input)?.unwrap_or(NULL);
    let number = take_int(input)?;
    Ok(match opcode {
        opcode::CHECK_WATCHES => Request::CheckWatches { path, kind: number },
        opcode::REMOVE_WATCHES => Request::RemoveWatches { path, kind: number },
        _ => Request::AddWatch { path, mode: number },
    })
}

fn take_set_watches(opcode: i32, input: &mut Bytes) -> Taken<Request> {
    let relative_zxid = take_long(input)?;
    let sent = match opcode {
        opcode::SET_WATCHES_2 => 5,
        _ => 3,
    };
    let mut lists: [Vec<Text>; 5] = Default::default();
    let mut breaks_off = false;
    for (place, list) in lists.iter_mut().take(sent).enumerate() {
        // What comes after something null is still to be read, and nothing more.
        let taken = take_optional_list(input, STRING_BYTES_MIN, take_optional_text)?;
        let is_null = taken.is_none();
        for path in taken.into_iter().flatten() {
            match path {
                _ if breaks_off => {}
                Some(path) => list.push(path),
                // No node is asked for.
                None if place >= 3 => list.push(NULL),
                None => breaks_off = true,
            }
        }
        breaks_off |= is_null;
    }
    let [data, exist, child, persistent, recursive] = lists;
    Ok(Request::SetWatches {
        relative_zxid,
        data,
        exist,
        child,
        persistent,
        recursive,
        breaks_off,
    })
}

/// An operation of a multi that writes. Another multi is none, so nothing nests.
fn take_transaction_step(opcode: i32, input: &mut Bytes, dialect: Dialect) -> Taken<Request> {
    match has_no_path(input) {
        // ZooKeeper's server looks at all paths before all else.
        true => Err(Malformed),
        false => take_write_step(opcode, input, dialect),
    }
}

/// Its path may be null.
fn take_write_step(opcode: i32, input: &mut Bytes, dialect: Dialect) -> Taken<Request> {
    match opcode {
        opcode::CREATE_TTL => as_in_a_multi(take_create(CreateKind::Ttl, input)?),
        opcode::CREATE | opcode::CREATE_2 | opcode::CREATE_CONTAINER => {
            let has_acl = has_acl(input.clone())?;
            let create = as_in_a_multi(take_create(CreateKind::of(opcode), input)?)?;
            has_acl.then_some(create).ok_or(Malformed)
        }
        opcode::DELETE | opcode::SET_DATA | opcode::CHECK => take_of_a_node(opcode, input),
        _ if dialect == Dialect::ZooKeeper => Err(Malformed),
        opcode::CREATE_IF_NOT_EXISTS => take_create_if_not_exists(input),
        opcode::CHECK_NOT_EXISTS
        | opcode::CHECK_STAT
        | opcode::TRY_REMOVE
        | opcode::REMOVE_RECURSIVE => clickhouse::take(opcode, input),
        _ => Err(Malformed),
    }
}

/// True if the access list of a create is not null. ZooKeeper's server can read no other one in a multi.
fn has_acl(mut create: Bytes) -> Taken<bool> {
    let (_path, _data) = (take_optional_text(&mut create)?, take_buffer(&mut create)?);
    Ok(take_int(&mut create)? != -1)
}

fn has_no_path(step: &Bytes) -> bool {
    step.starts_with(&(-1_i32).to_be_bytes())
}

/// An operation of what should be several reads.
enum Step {
    /// `None` if its path is null.
    Read(Option<Request>),
    Write,
}

/// ZooKeeper's server takes writes for operations, too, and finds out later that they are no reads.
fn take_step(opcode: i32, input: &mut Bytes) -> Taken<Step> {
    let is_read = matches!(opcode, opcode::GET_DATA | opcode::GET_CHILDREN);
    match is_read {
        true => take_read_step(opcode, input).map(Step::Read),
        false => take_write_step(opcode, input, Dialect::ZooKeeper).map(|_| Step::Write),
    }
}

/// An operation of a multi that reads; `None` if its path is null. It leaves no watch, whatever it says.
fn take_read_step(opcode: i32, input: &mut Bytes) -> Taken<Option<Request>> {
    let path = take_optional_text(input)?;
    let (_watch, watch) = (take_bool(input)?, false);
    match opcode {
        opcode::GET_DATA => Ok(path.map(|path| Request::GetData { path, watch })),
        opcode::GET_CHILDREN => Ok(path.map(|path| Request::GetChildren { path, watch })),
        _ => Err(Malformed),
    }
}

/// As [`take_read_step`], with all reads that ClickHouse's keeper takes, and their watches.
fn take_wide_read_step(opcode: i32, input: &mut Bytes) -> Taken<Option<Request>> {
    match opcode {
        opcode::EXISTS | opcode::GET_DATA | opcode::GET_CHILDREN | opcode::GET_CHILDREN_2 => {
            if has_no_path(input) {
                let (_path, _watch) = (take_int(input)?, take_bool(input)?);
                return Ok(None);
            }
            take_of_a_node(opcode, input).map(Some)
        }
        opcode::FILTERED_LIST | opcode::LIST_WITH_STAT_AND_DATA | opcode::LIST_RECURSIVE => {
            clickhouse::take(opcode, input).map(Some)
        }
        _ => Err(Malformed),
    }
}

/// As ZooKeeper's server: it cannot read a request of reads and writes, and where all are writes it ends at the first.
fn as_far_as_it_goes(steps: Vec<Step>) -> Taken<Request> {
    let all = steps.len();
    let writes = steps.iter().filter(|step| matches!(step, Step::Write));
    let writes = writes.count();
    if 0 < writes && writes < all {
        return Err(Malformed);
    }
    let read = |step| match step {
        Step::Read(request) => request,
        Step::Write => None,
    };
    let operations: Vec<Request> = steps.into_iter().map_while(read).collect();
    Ok(Request::MultiRead {
        breaks_off: operations.len() < all,
        operations,
    })
}

/// In a multi, ZooKeeper's server goes by the flags of a create more than by its opcode.
fn as_in_a_multi(mut create: Request) -> Taken<Request> {
    use create_flags::{CONTAINER, EPHEMERAL_SEQUENTIAL, PERSISTENT};
    let named = match &mut create {
        Request::NoPath(named) => &mut **named,
        named => named,
    };
    if let Request::Create {
        kind, flags, ttl, ..
    } = named
    {
        let is_ttl = *kind == CreateKind::Ttl;
        match *flags {
            PERSISTENT..=EPHEMERAL_SEQUENTIAL if is_ttl => (*kind, *ttl) = (CreateKind::Plain, -1),
            PERSISTENT..=EPHEMERAL_SEQUENTIAL => {}
            CONTAINER => (*kind, *ttl) = (CreateKind::Container, -1),
            // Flags that do not exist are found later: then the operation fails, and not the whole request.
            _ if is_ttl => {}
            _ => return Err(Malformed),
        }
    }
    Ok(create)
}
