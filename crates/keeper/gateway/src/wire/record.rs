//! Records that stand in several messages, and the greeting.

use super::frame::{FrameError, XidWidth, front, put_frame, take_frame};
use super::jute::{
    Malformed, STRING_BYTES_MIN, Taken, length, put_bool, put_int, put_list, put_long, put_slice,
    put_text, take_bool, take_buffer, take_int, take_list, take_long, take_optional_text,
};
use super::text::Text;
use bytes::{Buf, Bytes, BytesMut};
use plinth_core::output::Output;

/// What there is to know of a node besides its data.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Stat {
    /// Of the transaction that created the node.
    pub czxid: i64,
    /// Of the transaction that changed the data last.
    pub mzxid: i64,
    /// When the node was created and changed, in milliseconds since 1970.
    pub ctime: i64,
    pub mtime: i64,
    /// How often the data, the list of children and the access list have changed.
    pub version: i32,
    pub cversion: i32,
    pub aversion: i32,
    /// Session whose end removes the node; 0 if none does.
    pub ephemeral_owner: i64,
    pub data_length: i32,
    pub num_children: i32,
    /// Of the transaction that changed the list of children last.
    pub pzxid: i64,
}

impl Stat {
    pub const BYTES: usize = 68;
    /// What a [`CheckStat`](super::Request::CheckStat) expects of which each number may be any.
    pub const ANY: Stat = Stat {
        czxid: -1,
        mzxid: -1,
        ctime: -1,
        mtime: -1,
        version: -1,
        cversion: -1,
        aversion: -1,
        ephemeral_owner: -1,
        data_length: -1,
        num_children: -1,
        pzxid: -1,
    };

    pub(super) fn put(&self, out: &mut Output) {
        out.buffer().reserve(Stat::BYTES);
        for number in [self.czxid, self.mzxid, self.ctime, self.mtime] {
            put_long(out, number);
        }
        for number in [self.version, self.cversion, self.aversion] {
            put_int(out, number);
        }
        put_long(out, self.ephemeral_owner);
        put_int(out, self.data_length);
        put_int(out, self.num_children);
        put_long(out, self.pzxid);
    }

    pub(super) fn take(input: &mut Bytes) -> Taken<Stat> {
        Ok(Stat {
            czxid: take_long(input)?,
            mzxid: take_long(input)?,
            ctime: take_long(input)?,
            mtime: take_long(input)?,
            version: take_int(input)?,
            cversion: take_int(input)?,
            aversion: take_int(input)?,
            ephemeral_owner: take_long(input)?,
            data_length: take_int(input)?,
            num_children: take_int(input)?,
            pzxid: take_long(input)?,
        })
    }
}

/// An entry of an access list.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Acl {
    pub perms: i32,
    pub scheme: Text,
    pub id: Text,
}

impl Acl {
    /// Fewest bytes of an entry.
    const BYTES_MIN: usize = 4 + 2 * STRING_BYTES_MIN;

    /// All permissions for everyone.
    pub fn open() -> Vec<Acl> {
        vec![Acl {
            perms: super::codes::permission::ALL,
            scheme: Text::from_static("world"),
            id: Text::from_static("anyone"),
        }]
    }

    fn put(out: &mut Output, acl: &Acl) {
        put_int(out, acl.perms);
        put_text(out, &acl.scheme);
        put_text(out, &acl.id);
    }

    /// A scheme or an id that is not there becomes an empty one. No such scheme exists, so the entry is refused as
    /// ZooKeeper refuses it.
    fn take(input: &mut Bytes) -> Taken<Acl> {
        Ok(Acl {
            perms: take_int(input)?,
            scheme: take_optional_text(input)?.unwrap_or_default(),
            id: take_optional_text(input)?.unwrap_or_default(),
        })
    }

    pub(super) fn put_all(out: &mut Output, acl: &[Acl]) {
        put_list(out, acl, Acl::put);
    }

    /// A list that is not there is an empty one: the answer to both is `InvalidAcl`.
    pub(super) fn take_all(input: &mut Bytes) -> Taken<Vec<Acl>> {
        take_list(input, Acl::BYTES_MIN, Acl::take)
    }
}

/// One of the names by which the server knows a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientInfo {
    pub scheme: Text,
    pub user: Text,
}

impl ClientInfo {
    pub(super) fn put_all(out: &mut Output, infos: &[ClientInfo]) {
        put_list(out, infos, |out, info| {
            put_text(out, &info.scheme);
            put_text(out, &info.user);
        });
    }

    pub(super) fn take_all(input: &mut Bytes) -> Taken<Vec<ClientInfo>> {
        take_list(input, 2 * STRING_BYTES_MIN, |input| {
            Ok(ClientInfo {
                scheme: take_optional_text(input)?.unwrap_or_default(),
                user: take_optional_text(input)?.unwrap_or_default(),
            })
        })
    }
}

/// A client's first message. It has no header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectRequest {
    pub protocol_version: i32,
    /// The client wants compressed blocks. Only those whose numbers have eight bytes say so here.
    pub is_packed: bool,
    pub last_zxid_seen: i64,
    pub timeout_ms: i32,
    /// 0 for a new session.
    pub session_id: i64,
    /// Empty if there is none.
    pub password: Bytes,
    /// May the server be read-only? `None` from clients before 3.4, which do not know the question.
    pub read_only: Option<bool>,
}

/// How a connection goes on behind its greeting.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Protocol {
    /// In [compressed blocks](super::packed), in both directions.
    pub is_packed: bool,
    pub xids: XidWidth,
}

impl Protocol {
    /// ZooKeeper's, and what ClickHouse's clients may ask for.
    pub const FORMS: [Protocol; 4] = [
        Protocol::of(false, XidWidth::Four),
        Protocol::of(true, XidWidth::Four),
        Protocol::of(false, XidWidth::Eight),
        Protocol::of(true, XidWidth::Eight),
    ];

    pub const fn of(is_packed: bool, xids: XidWidth) -> Protocol {
        Protocol { is_packed, xids }
    }
}

/// What ClickHouse's clients say of themselves, in place of ZooKeeper's 0.
mod version {
    pub const PACKED: i32 = 10;
    /// From here on a greeting has one byte more, which its length does not count.
    pub const WIDE: i32 = 11;
}

impl Protocol {
    /// The version by which a client says what it wants, and a server that it can.
    pub fn version(self) -> i32 {
        match self {
            Protocol {
                xids: XidWidth::Eight,
                ..
            } => version::WIDE,
            Protocol {
                is_packed: true, ..
            } => version::PACKED,
            Protocol { .. } => 0,
        }
    }
}

impl ConnectRequest {
    /// What the client asks for. `None` if that is something that nobody here knows.
    pub fn protocol(&self) -> Option<Protocol> {
        let (is_packed, xids) = match self.protocol_version {
            version::PACKED => (true, XidWidth::Four),
            version::WIDE => (self.is_packed, XidWidth::Eight),
            newer if newer > version::WIDE => return None,
            _ => (false, XidWidth::Four),
        };
        Some(Protocol { is_packed, xids })
    }
}

/// Takes the greeting at the front of `buffer`, without its length; `None` until it is whole.
///
/// # Errors
/// As [`take_frame`].
pub fn take_greeting(buffer: &mut BytesMut, bytes_max: usize) -> Result<Option<Bytes>, FrameError> {
    let Some(bytes) = front(buffer).transpose()? else {
        return Ok(None);
    };
    let Some(version) = buffer.get(4..8).and_then(|bytes| bytes.try_into().ok()) else {
        return Ok(None); // no greeting is so short
    };
    if bytes > bytes_max || i32::from_be_bytes(version) < version::WIDE {
        return take_frame(buffer, bytes_max);
    }
    if buffer.len() < 4 + bytes + 1 {
        return Ok(None);
    }
    buffer.advance(4);
    Ok(Some(buffer.split_to(bytes + 1).freeze()))
}

/// The answer to [`ConnectRequest`]. It has no header.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectAnswer {
    pub protocol_version: i32,
    /// 0 if the session has expired.
    pub timeout_ms: i32,
    pub session_id: i64,
    pub password: Bytes,
    /// Only for clients that have asked: some of the others expect an answer of a fixed length.
    pub read_only: Option<bool>,
}

fn take_read_only(input: &mut Bytes) -> Taken<Option<bool>> {
    input.has_remaining().then(|| take_bool(input)).transpose()
}

fn put_password(out: &mut Output, password: &Bytes, read_only: Option<bool>) {
    put_slice(out, password);
    if let Some(read_only) = read_only {
        put_bool(out, read_only);
    }
}

/// # Errors
/// The frame is no greeting: the connection must end.
pub fn decode_connect_request(mut frame: Bytes) -> Result<ConnectRequest, Malformed> {
    let input = &mut frame;
    let protocol_version = take_int(input)?;
    Ok(ConnectRequest {
        protocol_version,
        is_packed: protocol_version >= version::WIDE && take_bool(input)?,
        last_zxid_seen: take_long(input)?,
        timeout_ms: take_int(input)?,
        session_id: take_long(input)?,
        password: take_buffer(input)?.unwrap_or_default(),
        read_only: take_read_only(input)?,
    })
}

pub fn encode_connect_request(out: &mut Output, request: &ConnectRequest) {
    let is_wide = request.protocol_version >= version::WIDE;
    let start = out.mark();
    put_frame(out, |out| {
        put_int(out, request.protocol_version);
        if is_wide {
            put_bool(out, request.is_packed);
        }
        put_long(out, request.last_zxid_seen);
        put_int(out, request.timeout_ms);
        put_long(out, request.session_id);
        put_password(out, &request.password, request.read_only);
    });
    if is_wide {
        // As ClickHouse's clients count.
        let counted = out.len_from(start) - 4 - 1;
        out.patch(start, &length(counted).to_be_bytes());
    }
}

/// # Errors
/// The frame does not answer a greeting: the connection must end.
pub fn decode_connect_answer(mut frame: Bytes) -> Result<ConnectAnswer, Malformed> {
    let input = &mut frame;
    Ok(ConnectAnswer {
        protocol_version: take_int(input)?,
        timeout_ms: take_int(input)?,
        session_id: take_long(input)?,
        password: take_buffer(input)?.unwrap_or_default(),
        read_only: take_read_only(input)?,
    })
}

pub fn encode_connect_answer(out: &mut Output, answer: &ConnectAnswer) {
    put_frame(out, |out| {
        put_int(out, answer.protocol_version);
        put_int(out, answer.timeout_ms);
        put_long(out, answer.session_id);
        put_password(out, &answer.password, answer.read_only);
    });
}
