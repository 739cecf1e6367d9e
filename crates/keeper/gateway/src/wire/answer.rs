//! Answers and events, in both directions.

use super::codes::{Code, keeper_state, opcode, xid};
use super::frame::{Xid, XidWidth, put_frame};
use super::jute::{
    Malformed, Taken, length, put_buffer, put_int, put_long, put_slice, put_text, put_texts,
    take_buffer, take_int, take_long, take_optional_text, take_text, take_texts,
};
use super::listed::Listed;
use super::multi;
use super::record::{Acl, ClientInfo, Stat};
use super::text::Text;
use bytes::Bytes;
use plinth_core::output::Output;

/// What stands before every answer but the one to the greeting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnswerHeader {
    pub xid: Xid,
    /// Of the last transaction that the server had applied.
    pub zxid: i64,
    /// 0, or the number of a [`Code`]; then nothing follows.
    pub error: i32,
}

impl AnswerHeader {
    /// Where numbers of requests have four bytes.
    pub const BYTES: usize = 16;

    fn put(self, out: &mut Output) {
        self.xid.put(out);
        put_long(out, self.zxid);
        put_int(out, self.error);
    }

    fn take(input: &mut Bytes, width: XidWidth) -> Taken<AnswerHeader> {
        Ok(AnswerHeader {
            xid: Xid::take(input, width)?,
            zxid: take_long(input)?,
            error: take_int(input)?,
        })
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// After an error; and to ping, delete, auth, set watches, check and remove watches, and close session.
    Empty,
    /// To a plain create.
    Path(Text),
    /// To the other creates.
    PathAndStat(Text, Stat),
    /// To exists, set data and set ACL.
    Stat(Stat),
    /// To get data and reconfig.
    Data(Option<Bytes>, Stat),
    Acl(Vec<Acl>, Stat),
    Children(Vec<Text>),
    ChildrenAndStat(Vec<Text>, Stat),
    /// To a list with details.
    Listed(Listed),
    /// The request's path, which may be null.
    Sync(Option<Text>),
    /// The header has no error, even if the multi has failed: then every result is one. Before the operation that
    /// failed, the code is `Ok`; after it, `RuntimeInconsistency`.
    Multi(Vec<MultiResult>),
    MultiRead(Vec<MultiResult>),
    Ephemerals(Vec<Text>),
    /// To get all children's number. Also 0 to add watch.
    Number(i32),
    WhoAmI(Vec<ClientInfo>),
    Sasl(Bytes),
}

/// The result of one operation of a multi.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MultiResult {
    /// Of a plain create.
    Path(Text),
    /// Of the other creates.
    PathAndStat(Text, Stat),
    Deleted,
    /// Of a change of data.
    Stat(Stat),
    Checked,
    Data(Option<Bytes>, Stat),
    Children(Vec<Text>),
    /// The results from here on are only ClickHouse's. Of exists.
    Exists(Stat),
    /// Of the list that has a `Stat`, and of one that has some children.
    ChildrenAndStat(Vec<Text>, Stat),
    Listed(Listed),
    /// Of a recursive list.
    Paths(Vec<Text>),
    /// Of a create of what may be there.
    Ensured(Text),
    /// Of an operation of this kind whose answer has nothing in it.
    Done(i32),
    /// Of an operation of this kind that has failed among several reads.
    Failed(i32, Code),
    Error(Code),
}

/// Appends a frame with the answer.
pub fn encode_answer(out: &mut Output, header: AnswerHeader, answer: &Answer) {
    put_frame(out, |out| {
        header.put(out);
        answer.put(out);
    });
}

/// As [`Answer::Data`], from borrowed bytes.
pub fn encode_data(out: &mut Output, header: AnswerHeader, data: Option<&[u8]>, stat: &Stat) {
    put_frame(out, |out| {
        header.put(out);
        match data {
            Some(data) => put_slice(out, data),
            None => put_int(out, -1),
        }
        stat.put(out);
    });
}

/// As [`Answer::Children`], or with `stat` as [`Answer::ChildrenAndStat`], from borrowed names.
pub fn encode_children<'a>(
    out: &mut Output,
    header: AnswerHeader,
    children: impl IntoIterator<Item = &'a str>,
    stat: Option<&Stat>,
) {
    put_frame(out, |out| {
        header.put(out);
        let (at, mut count) = (out.mark(), 0);
        put_int(out, 0);
        for child in children {
            put_text(out, child);
            count += 1;
        }
        out.patch(at, &length(count).to_be_bytes());
        if let Some(stat) = stat {
            stat.put(out);
        }
    });
}

/// Decodes what follows the header of an answer without an error. `opcode` is the request's.
///
/// # Errors
/// The bytes are no such answer: the connection must end.
pub fn decode_answer(opcode: i32, mut body: Bytes) -> Result<Answer, Malformed> {
    let input = &mut body;
    Ok(match opcode {
        opcode::CREATE | opcode::CREATE_IF_NOT_EXISTS => Answer::Path(take_text(input)?),
        opcode::CREATE_2 | opcode::CREATE_CONTAINER | opcode::CREATE_TTL => {
            Answer::PathAndStat(take_text(input)?, Stat::take(input)?)
        }
        opcode::EXISTS | opcode::SET_DATA | opcode::SET_ACL | opcode::CHECK => {
            Answer::Stat(Stat::take(input)?)
        }
        opcode::GET_DATA | opcode::RECONFIG => {
            Answer::Data(take_buffer(input)?, Stat::take(input)?)
        }
        opcode::GET_ACL => Answer::Acl(Acl::take_all(input)?, Stat::take(input)?),
        opcode::GET_CHILDREN | opcode::LIST_RECURSIVE => Answer::Children(take_texts(input)?),
        opcode::GET_CHILDREN_2 | opcode::FILTERED_LIST => {
            Answer::ChildrenAndStat(take_texts(input)?, Stat::take(input)?)
        }
        opcode::LIST_WITH_STAT_AND_DATA => Answer::Listed(Listed::take(input)?),
        opcode::SYNC => Answer::Sync(take_optional_text(input)?),
        opcode::MULTI => Answer::Multi(multi::take_steps(input, MultiResult::take)?),
        opcode::MULTI_READ => Answer::MultiRead(multi::take_steps(input, MultiResult::take)?),
        opcode::GET_EPHEMERALS => Answer::Ephemerals(take_texts(input)?),
        opcode::GET_ALL_CHILDREN_NUMBER | opcode::ADD_WATCH => Answer::Number(take_int(input)?),
        opcode::WHO_AM_I => Answer::WhoAmI(ClientInfo::take_all(input)?),
        opcode::SASL => Answer::Sasl(take_buffer(input)?.unwrap_or_default()),
        _ => Answer::Empty,
    })
}

impl Answer {
    fn put(&self, out: &mut Output) {
        match self {
            Answer::Empty => {}
            Answer::Path(path) => put_text(out, path),
            // Of any text that a client has sent.
            Answer::Sync(Some(path)) => put_slice(out, &Text::as_java_encodes(path)),
            Answer::Sync(None) => put_int(out, -1),
            Answer::PathAndStat(path, stat) => {
                put_text(out, path);
                stat.put(out);
            }
            Answer::Stat(stat) => stat.put(out),
            Answer::Data(data, stat) => {
                put_buffer(out, data.as_ref());
                stat.put(out);
            }
            Answer::Acl(acl, stat) => {
                Acl::put_all(out, acl);
                stat.put(out);
            }
            Answer::Children(texts) | Answer::Ephemerals(texts) => put_texts(out, texts),
            Answer::ChildrenAndStat(children, stat) => {
                put_texts(out, children);
                stat.put(out);
            }
            Answer::Listed(listed) => listed.put(out),
            Answer::Multi(results) | Answer::MultiRead(results) => {
                for result in results {
                    result.put(out);
                }
                multi::put_end(out);
            }
            Answer::Number(number) => put_int(out, *number),
            Answer::WhoAmI(infos) => ClientInfo::put_all(out, infos),
            Answer::Sasl(token) => put_buffer(out, Some(token)),
        }
    }
}

impl MultiResult {
    fn opcode(&self) -> i32 {
        match self {
            MultiResult::Path(_) => opcode::CREATE,
            MultiResult::PathAndStat(..) => opcode::CREATE_2,
            MultiResult::Deleted => opcode::DELETE,
            MultiResult::Stat(_) => opcode::SET_DATA,
            MultiResult::Checked => opcode::CHECK,
            MultiResult::Data(..) => opcode::GET_DATA,
            MultiResult::Children(_) => opcode::GET_CHILDREN,
            MultiResult::Exists(_) => opcode::EXISTS,
            MultiResult::ChildrenAndStat(..) => opcode::GET_CHILDREN_2,
            MultiResult::Listed(_) => opcode::LIST_WITH_STAT_AND_DATA,
            MultiResult::Paths(_) => opcode::LIST_RECURSIVE,
            MultiResult::Ensured(_) => opcode::CREATE_IF_NOT_EXISTS,
            MultiResult::Done(opcode) | MultiResult::Failed(opcode, _) => *opcode,
            MultiResult::Error(_) => opcode::ERROR,
        }
    }

    fn put(&self, out: &mut Output) {
        let error = match self {
            MultiResult::Error(code) | MultiResult::Failed(_, code) => code.0,
            _ => 0,
        };
        multi::put_step(out, self.opcode(), error);
        match self {
            MultiResult::Path(path) | MultiResult::Ensured(path) => put_text(out, path),
            MultiResult::PathAndStat(path, stat) => {
                put_text(out, path);
                stat.put(out);
            }
            MultiResult::Deleted
            | MultiResult::Checked
            | MultiResult::Done(_)
            | MultiResult::Failed(..) => {}
            MultiResult::Stat(stat) | MultiResult::Exists(stat) => stat.put(out),
            MultiResult::Data(data, stat) => {
                put_buffer(out, data.as_ref());
                stat.put(out);
            }
            MultiResult::Children(names) | MultiResult::Paths(names) => put_texts(out, names),
            MultiResult::ChildrenAndStat(children, stat) => {
                put_texts(out, children);
                stat.put(out);
            }
            MultiResult::Listed(listed) => listed.put(out),
            MultiResult::Error(code) => put_int(out, code.0),
        }
    }

    fn take((opcode, error): (i32, i32), input: &mut Bytes) -> Taken<MultiResult> {
        if error != 0 && opcode != opcode::ERROR {
            return Ok(MultiResult::Failed(opcode, Code(error)));
        }
        Ok(match opcode {
            opcode::CREATE => MultiResult::Path(take_text(input)?),
            opcode::CREATE_2 => MultiResult::PathAndStat(take_text(input)?, Stat::take(input)?),
            opcode::DELETE => MultiResult::Deleted,
            opcode::SET_DATA => MultiResult::Stat(Stat::take(input)?),
            opcode::CHECK => MultiResult::Checked,
            opcode::GET_DATA => MultiResult::Data(take_buffer(input)?, Stat::take(input)?),
            opcode::GET_CHILDREN => MultiResult::Children(take_texts(input)?),
            opcode::EXISTS => MultiResult::Exists(Stat::take(input)?),
            opcode::GET_CHILDREN_2 => {
                MultiResult::ChildrenAndStat(take_texts(input)?, Stat::take(input)?)
            }
            opcode::LIST_WITH_STAT_AND_DATA => MultiResult::Listed(Listed::take(input)?),
            opcode::LIST_RECURSIVE => MultiResult::Paths(take_texts(input)?),
            opcode::CREATE_IF_NOT_EXISTS => MultiResult::Ensured(take_text(input)?),
            opcode::CHECK_NOT_EXISTS
            | opcode::REMOVE_RECURSIVE
            | opcode::CHECK_STAT
            | opcode::TRY_REMOVE => MultiResult::Done(opcode),
            opcode::ERROR => MultiResult::Error(Code(take_int(input)?)),
            _ => return Err(Malformed),
        })
    }
}

/// A watch has seen something, or the state of the session has changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WatchEvent {
    /// One of [`event`](super::codes::event).
    pub kind: i32,
    /// One of [`keeper_state`].
    pub state: i32,
    /// Empty if the event is of the session.
    pub path: Text,
    /// Of the transaction that caused it. Servers before 3.9 send -1.
    pub zxid: i64,
}

impl WatchEvent {
    /// An event of a node, for a client that is connected.
    pub fn of_a_node(kind: i32, path: Text, zxid: i64) -> WatchEvent {
        WatchEvent {
            kind,
            state: keeper_state::SYNC_CONNECTED,
            path,
            zxid,
        }
    }
}

/// Appends a frame with the event, for a connection whose numbers have so many bytes.
pub fn encode_event(out: &mut Output, event: &WatchEvent, width: XidWidth) {
    put_frame(out, |out| {
        let header = AnswerHeader {
            xid: width.of(xid::WATCH_EVENT),
            zxid: event.zxid,
            error: 0,
        };
        header.put(out);
        put_int(out, event.kind);
        put_int(out, event.state);
        put_slice(out, &Text::as_java_encodes(&event.path));
    });
}

/// What a client may receive after the greeting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Incoming {
    /// With what follows the header, for [`decode_answer`].
    Answer(AnswerHeader, Bytes),
    Event(WatchEvent),
}

/// Decodes a frame for a client, except the answer to its greeting.
///
/// # Errors
/// The bytes are neither: the connection must end.
pub fn decode_incoming(mut frame: Bytes, width: XidWidth) -> Result<Incoming, Malformed> {
    let input = &mut frame;
    let header = AnswerHeader::take(input, width)?;
    if header.xid != width.of(xid::WATCH_EVENT) {
        return Ok(Incoming::Answer(header, frame));
    }
    Ok(Incoming::Event(WatchEvent {
        kind: take_int(input)?,
        state: take_int(input)?,
        path: take_optional_text(input)?.unwrap_or_default(),
        zxid: header.zxid,
    }))
}
