//! Several reads in one request, all answered of the same state: nobody sees half of what a transaction has changed.
//!
//! What is not in memory is loaded first, within memory that was reserved for it, and kept. If all of it is there at
//! one moment, that is the state. If others change it faster than it is loaded, the reads take their turn in the
//! pipeline, which does not move on meanwhile. The answer leaves at the moment whose state it shows: later it would be
//! behind events of what it does not show.

use super::reserved::{LOADS_AT_ONCE, Reserved, load_list, path_of, too_long};
use super::{
    Tries, caught_up, counted_length, header, in_the_pipeline, lists, names_of, node,
    readable_list, readable_stat, readable_with_data, with_length,
};
use crate::paths;
use crate::room::once;
use crate::talk::Talk;
use crate::tree::node::Node;
use crate::wire::{Answer, Code, MultiResult, Request, Stat, Text, Xid, encode_answer, opcode};
use crate::{ANSWER_BYTES_MAX, LIST_BYTES_MAX, READ_TRIES};
use bytes::Bytes;
use plinth_runtime::random::chance;
use plinth_runtime::{join_all, planted, probe};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// What a request reserves first. One that needs more reserves so many times as much, until it is enough.
const FIRST_BYTES: usize = 64 << 10;
const GROWTH: usize = 8;

type Results = Result<Vec<MultiResult>, Code>;

/// Answers the request.
pub async fn answer(connection: &Talk, xid: Xid, operations: Vec<Request>, breaks_off: bool) {
    answer_as(connection, xid, operations, Form::Several { breaks_off }).await;
}

/// Answers one read that looks at many nodes.
pub async fn answer_one(connection: &Talk, xid: Xid, operation: Request) {
    answer_as(connection, xid, vec![operation], Form::One).await;
}

async fn answer_as(connection: &Talk, xid: Xid, operations: Vec<Request>, form: Form) {
    // What is counted for the answer is of no one state anyway, and waits each time.
    let (mut counted, mut counted_at) = (Vec::new(), None);
    for operation in operations.iter().filter(|operation| is_counted(operation)) {
        if counted_at.is_none() {
            counted_at = Some(caught_up(connection).await);
        }
        counted.push(read_until_there(connection, operation).await);
    }
    let several = Rc::new(Several {
        xid,
        operations,
        counted,
        counted_at,
        form,
    });
    if is_torn() {
        return several.answer_one_by_one(connection).await;
    }
    if let Err(code) = several.answer_together(connection).await {
        connection.answer_with(xid, Err(code));
    }
}

fn is_torn() -> bool {
    planted!(
        "keeper_multi_read_torn",
        "each of several reads in a request is answered of the state of its own time"
    )
}

/// How the answer looks.
#[derive(Clone, Copy)]
enum Form {
    One,
    Several { breaks_off: bool },
}

/// A request, and what was counted for it.
struct Several {
    xid: Xid,
    operations: Vec<Request>,
    counted: Vec<MultiResult>,
    /// All changes up to this zxid are in it.
    counted_at: Option<i64>,
    form: Form,
}

impl Several {
    async fn answer_one_by_one(&self, connection: &Talk) {
        let mut results = Vec::new();
        for operation in &self.operations {
            results.push(read_until_there(connection, operation).await);
        }
        self.send(connection, results);
    }

    fn send(&self, connection: &Talk, results: Vec<MultiResult>) {
        let watched: Vec<Watched> = {
            let read = self.operations.iter().zip(&results);
            read.filter_map(|(operation, result)| watched(operation, result))
                .collect()
        };
        let mut header = header(connection, self.xid);
        header.zxid = self.counted_at.unwrap_or(header.zxid);
        let answer = match self.form {
            Form::One => match results.into_iter().next().map(alone) {
                Some(Ok(answer)) => answer,
                Some(Err(code)) => return connection.answer_with(self.xid, Err(code)),
                None => return connection.answer_with(self.xid, Err(Code::SYSTEM_ERROR)),
            },
            Form::Several { breaks_off } => {
                if breaks_off {
                    header.error = Code::MARSHALLING_ERROR.0;
                }
                Answer::MultiRead(self.in_form(connection, results))
            }
        };
        let is_told = connection.answer(header, |out| encode_answer(out, header, &answer));
        if is_told {
            watched
                .into_iter()
                .for_each(|watched| set_watch(connection, watched));
        }
    }

    /// Where a read has failed, ZooKeeper's clients expect an error in the place of its result, and ClickHouse's a
    /// result that has an error.
    fn in_form(&self, connection: &Talk, results: Vec<MultiResult>) -> Vec<MultiResult> {
        if !connection.is_clickhouse.get() {
            return results;
        }
        let of = |(operation, result): (&Request, MultiResult)| match result {
            MultiResult::Error(code) => MultiResult::Failed(opcode_of(operation), code),
            other => other,
        };
        self.operations.iter().zip(results).map(of).collect()
    }

    /// Answers with what the replica knows at this moment; false if it does not know enough.
    fn answer_now(&self, connection: &Talk) -> bool {
        match self.now(connection) {
            Some(Ok(results)) => self.send(connection, results),
            Some(Err(code)) => connection.answer_with(self.xid, Err(code)),
            None => return false,
        }
        true
    }

    fn now(&self, connection: &Talk) -> Option<Results> {
        let (mut results, mut bytes) = (Vec::new(), 0);
        let mut counted = self.counted.iter();
        for operation in &self.operations {
            let result = match is_counted(operation) {
                true => counted.next()?.clone(),
                false => {
                    let reading = pin!(read_one(connection, operation));
                    match reading.poll(&mut Context::from_waker(Waker::noop())) {
                        Poll::Ready(Some(result)) => result,
                        Poll::Ready(None) | Poll::Pending => return None,
                    }
                }
            };
            bytes += bytes_of(&result);
            if bytes > ANSWER_BYTES_MAX.get() {
                return Some(Err(too_long()));
            }
            results.push(result);
        }
        Some(Ok(results))
    }

    /// Fails if it has not answered.
    async fn answer_together(self: &Rc<Self>, connection: &Talk) -> Result<(), Code> {
        if self.answer_now(connection) {
            return Ok(());
        }
        let replica = &connection.life.replica;
        let most = replica.room.most();
        let paths = self.operations.iter().map(path_of);
        let paths: Vec<Text> = paths.map(Text::from).collect();
        let mut bytes = FIRST_BYTES.min(most);
        loop {
            let reserved = Reserved::take(replica.clone(), paths.clone(), bytes).await;
            if self.answer_within(connection, &reserved).await? {
                return Ok(());
            }
            if bytes == most {
                return Err(too_long());
            }
            probe!("keeper_multi_read_reserves_more");
            bytes = bytes.saturating_mul(GROWTH).min(most);
        }
    }

    /// False if more must be reserved.
    async fn answer_within(
        self: &Rc<Self>,
        connection: &Talk,
        reserved: &Reserved,
    ) -> Result<bool, Code> {
        for _ in 0..READ_TRIES.get() {
            if !self.load(connection, reserved).await? {
                return Ok(false);
            }
            if self.answer_now(connection) {
                return Ok(true);
            }
            probe!("keeper_multi_read_overtaken");
        }
        self.answer_in_the_pipeline(connection, reserved).await
    }

    /// Loads what the replica does not know. False if that takes more than was reserved.
    async fn load(&self, connection: &Talk, reserved: &Reserved) -> Result<bool, Code> {
        let mut left = reserved.bytes;
        let loaded = self.operations.iter();
        let loaded = once(loaded.filter(|operation| !is_counted(operation)));
        for some in loaded.chunks(LOADS_AT_ONCE) {
            // How much more there is to load is known from the nodes.
            join_all(some.iter().map(|read| node(connection, path_of(read)))).await;
            let (lists, others): (Vec<&Request>, Vec<&Request>) =
                some.iter().partition(|read| is_list(read));
            for list in lists {
                // One after the other: nobody knows how long the names are.
                let Some(rest) = load_list(connection, list, left).await? else {
                    return Ok(false);
                };
                left = rest;
            }
            let (deep, others): (Vec<&Request>, Vec<&Request>) =
                others.into_iter().partition(|read| lists::is_deep(read));
            for list in deep {
                let Some(rest) = lists::load(connection, reserved, list, left).await? else {
                    return Ok(false);
                };
                left = rest;
            }
            let cost = || {
                let reads = others.iter();
                reads.map(|read| connection.life.replica.cost(read)).sum()
            };
            if left < cost() {
                return Ok(false);
            }
            join_all(others.iter().map(|read| read_one(connection, read))).await;
            let Some(rest) = left.checked_sub(cost()) else {
                return Ok(false); // others have made it longer meanwhile
            };
            left = rest;
        }
        Ok(true)
    }

    /// Lets the reads take their turn among the writes of all clients. False if more must be reserved.
    async fn answer_in_the_pipeline(
        self: &Rc<Self>,
        connection: &Talk,
        reserved: &Reserved,
    ) -> Result<bool, Code> {
        probe!("keeper_multi_read_in_the_pipeline");
        let reads = Request::MultiRead {
            operations: self.operations.clone(),
            breaks_off: false,
        };
        let several = self.clone();
        let answer = move |talk: &Talk| several.answer_now(talk);
        in_the_pipeline(connection, reads, reserved.bytes, answer).await
    }
}

fn is_counted(operation: &Request) -> bool {
    match operation {
        Request::GetData { path, .. }
        | Request::Exists { path, .. }
        | Request::GetChildren2 { path, .. } => super::is_counted(path),
        _ => false,
    }
}

fn is_list(operation: &Request) -> bool {
    matches!(
        operation,
        Request::GetChildren { .. } | Request::GetChildren2 { .. }
    )
}

/// Memory of a result.
fn bytes_of(result: &MultiResult) -> usize {
    let of_data = |data: &Option<Bytes>| data.as_ref().map_or(0, Bytes::len) + 4;
    let of_names = |names: &[Text]| names.iter().map(|name| name.len() + 4).sum::<usize>();
    let more = match result {
        MultiResult::Data(data, _) => of_data(data),
        MultiResult::Children(names)
        | MultiResult::ChildrenAndStat(names, _)
        | MultiResult::Paths(names) => of_names(names),
        MultiResult::Listed(listed) => {
            let data: usize = listed.data.iter().map(of_data).sum();
            of_names(&listed.names) + listed.stats.len() * Stat::BYTES + data
        }
        _ => 0,
    };
    size_of::<MultiResult>() + more
}

/// `None` if others have changed it as it was loaded.
async fn read_one(connection: &Talk, operation: &Request) -> Option<MultiResult> {
    let result = read_or_refuse(connection, operation).await;
    result.unwrap_or_else(|code| Some(MultiResult::Error(code)))
}

async fn read_or_refuse(
    connection: &Talk,
    operation: &Request,
) -> Result<Option<MultiResult>, Code> {
    let listed = async |path: &Text| {
        let longest = LIST_BYTES_MAX.get();
        readable_list(connection, path, longest, Tries(1)).await
    };
    let names = |path: &Text| names_of(connection, paths::named(path));
    match operation {
        Request::Exists { path, .. } if path.contains('\0') => Err(Code::BAD_ARGUMENTS),
        Request::Exists { path, .. } => {
            let stat = readable_stat(connection, path).await?;
            Ok(Some(MultiResult::Exists(stat)))
        }
        Request::GetData { path, .. } => {
            let node = readable_with_data(connection, path, Tries(1)).await?;
            Ok(node.map(|node| MultiResult::Data(super::data_of(&node).cloned(), node.stat())))
        }
        Request::GetChildren { path, .. } => {
            let node = listed(path).await?;
            Ok(node.map(|_| MultiResult::Children(names(path))))
        }
        Request::GetChildren2 { path, .. } => {
            let length = counted_length(connection, path).await;
            let node = listed(path).await?;
            let stat = |node: Rc<Node>| with_length(node.stat(), length);
            Ok(node.map(|node| MultiResult::ChildrenAndStat(names(path), stat(node))))
        }
        list => lists::read(connection, list).await,
    }
}

async fn read_until_there(connection: &Talk, operation: &Request) -> MultiResult {
    loop {
        if let Some(result) = read_one(connection, operation).await {
            return result;
        }
    }
}

/// What a watch is of: the node itself, or its list of children.
enum Watched<'a> {
    Node(&'a Text),
    Children(&'a Text),
}

/// The watch that a read asks for. Nobody learns from a watch what may not be read, and a node that is not there may
/// be waited for.
fn watched<'a>(operation: &'a Request, result: &MultiResult) -> Option<Watched<'a>> {
    match (operation, result) {
        (
            Request::Exists { path, watch: true },
            MultiResult::Exists(_) | MultiResult::Error(Code::NO_NODE),
        )
        | (Request::GetData { path, watch: true }, MultiResult::Data(..)) => {
            Some(Watched::Node(path))
        }
        (_, MultiResult::Error(_)) => None,
        (
            Request::GetChildren { path, watch: true }
            | Request::GetChildren2 { path, watch: true }
            | Request::List {
                path, watch: true, ..
            },
            _,
        ) => Some(Watched::Children(path)),
        _ => None,
    }
}

fn set_watch(connection: &Talk, watched: Watched<'_>) {
    if planted!(
        "keeper_watch_among_reads_lost",
        "one watch in ten that is set by one of several reads in a request is forgotten"
    ) && chance(0.1)
    {
        return;
    }
    let mut watches = connection.life.clients.watches.borrow_mut();
    match watched {
        Watched::Node(path) => watches.watch_data(path, connection.client),
        Watched::Children(path) => watches.watch_children(path, connection.client),
    }
}

/// The kind of a read's result.
fn opcode_of(read: &Request) -> i32 {
    match read.opcode() {
        opcode::FILTERED_LIST => opcode::GET_CHILDREN_2,
        other => other,
    }
}

/// The answer to a list that is not among other reads.
fn alone(result: MultiResult) -> Result<Answer, Code> {
    match result {
        MultiResult::ChildrenAndStat(names, stat) => Ok(Answer::ChildrenAndStat(names, stat)),
        MultiResult::Listed(listed) => Ok(Answer::Listed(listed)),
        MultiResult::Paths(paths) => Ok(Answer::Children(paths)),
        MultiResult::Error(code) => Err(code),
        _ => Err(Code::SYSTEM_ERROR),
    }
}
