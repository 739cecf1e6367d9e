//! Requests that change nothing: answered from the replica. Whether a watch is set is decided on the same state as the
//! answer.
//!
//! What is not in memory is loaded. Others may change it as fast as that: then the read takes its turn in the
//! pipeline, which does not move on meanwhile.

mod lists;
mod multi;
mod reserved;
pub mod system;

use crate::acl;
use crate::operations;
use crate::paths;
use crate::replica::Replica;
use crate::store::may_pass;
use crate::talk::Talk;
use crate::trace as traces;
use crate::tree::clickhouse::is_as_expected;
use crate::tree::execute::Operation;
use crate::tree::node::{Data, Node};
use crate::tree::plan::Known;
use crate::tree::quota::{Counted, Used};
use crate::wire::{
    Answer, AnswerHeader, ClientInfo, Code, Request, Stat, Text, WatchEvent, Xid, encode_answer,
    encode_children, encode_data, encode_event, event, permission,
};
use crate::writes::{Outcome, StepStat};
use crate::{LIST_BYTES_MAX, READ_TRIES};
use bytes::Bytes;
use plinth_core::{Error, Result as StoreResult};
use plinth_runtime::sync::oneshot;
use plinth_runtime::{Duration, Pace, planted, probe, sleep, trace, trace_warn};
use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Pause after an error of the store that will go away.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// True for a read that can be answered in the middle of a batch: all that it needs is loaded with the batch.
pub fn can_ride(request: &Request) -> bool {
    match request {
        // What is shown of the keeper itself depends on another node, too.
        Request::GetData { path, .. }
        | Request::Exists { path, .. }
        | Request::GetChildren { path, .. }
        | Request::GetChildren2 { path, .. } => !is_counted(path) && !system::is_in(path),
        _ => false,
    }
}

/// Answers a read from what the replica knows at this moment; false if it does not know enough.
pub fn answer_now(connection: &Talk, xid: Xid, request: Request) -> bool {
    let answering = pin!(answer_unless_overtaken(connection, xid, request));
    // Reads end at once unless they have to wait for the store, and answer at their end.
    let ended = answering.poll(&mut Context::from_waker(Waker::noop()));
    matches!(ended, Poll::Ready(None))
}

/// Answers a request whose turn it is.
pub async fn answer(connection: &Talk, xid: Xid, request: Request) {
    let overtaken = answer_unless_overtaken(connection, xid, request).await;
    if let Some(request) = overtaken {
        answer_in_the_pipeline(connection, xid, request).await;
    }
}

/// Gives the request back if others have changed what it reads each time that it was loaded.
async fn answer_unless_overtaken(connection: &Talk, xid: Xid, request: Request) -> Option<Request> {
    let is_answered = match &request {
        Request::GetData { path, watch } => get_data(connection, xid, path, *watch).await,
        Request::GetChildren { path, watch } => {
            children(connection, xid, path, *watch, false).await
        }
        Request::GetChildren2 { path, watch } => {
            children(connection, xid, path, *watch, true).await
        }
        _ => {
            answer_other(connection, xid, request).await;
            return None;
        }
    };
    (!is_answered).then_some(request)
}

async fn answer_other(connection: &Talk, xid: Xid, request: Request) {
    match request {
        Request::Exists { path, watch } => exists(connection, xid, &path, watch).await,
        Request::GetAcl { path } => {
            let at = counted_at(connection, &path).await;
            answer_of_then(connection, xid, at, get_acl(connection, &path).await);
        }
        Request::MultiRead {
            operations,
            breaks_off,
        } => {
            multi::answer(connection, xid, operations, breaks_off).await;
        }
        Request::List { .. } | Request::ListRecursive { .. } => {
            multi::answer_one(connection, xid, request).await;
        }
        Request::CheckNotExists { .. } | Request::CheckStat { .. } => {
            let result = check(connection, &request).await;
            let result = result.map(|()| Answer::Empty);
            connection.answer_with(xid, result.as_ref().map_err(|code| *code));
        }
        Request::SetWatches { .. } => set_watches(connection, xid, request).await,
        Request::GetEphemerals { prefix } => {
            let found = ephemerals(connection, &prefix).await;
            answer_of_store(connection, xid, found);
        }
        Request::GetAllChildrenNumber { path } => {
            let counted = number_below(connection, &path).await;
            answer_of_store(connection, xid, counted);
        }
        other => {
            let result = rest(connection, other).await;
            connection.answer_with(xid, result.as_ref().map_err(|code| *code));
        }
    }
}

async fn answer_in_the_pipeline(connection: &Talk, xid: Xid, request: Request) {
    probe!("keeper_read_in_the_pipeline");
    let asked = request.clone();
    let answer = move |talk: &Talk| answer_now(talk, xid, asked);
    let answered = in_the_pipeline(connection, request, usize::MAX, answer).await;
    if answered != Ok(true) {
        // It is too long for any answer, or the gateway ends.
        connection.answer_with(xid, Err(Code::CONNECTION_LOSS));
    }
}

/// Has the pipeline load what the request looks at, as far as `most` bytes of memory go, and calls `then` when it has:
/// nothing changes meanwhile. Fails if the gateway ends.
async fn in_the_pipeline<T: 'static>(
    connection: &Talk,
    request: Request,
    most: usize,
    then: impl FnOnce(&Talk) -> T + 'static,
) -> Result<T, Code> {
    let pipeline = &connection.life.pipeline;
    pipeline.has_room().await;
    let look = Operation::Look {
        session: connection.session,
        request,
        most,
    };
    // The life has the pipeline, and must not be held by what waits there.
    let life = Rc::downgrade(&connection.life);
    let (of, gateway) = (connection.connection.clone(), connection.gateway.clone());
    let (sender, receiver) = oneshot();
    let complete = move |_: &Replica, _: Outcome, _: Vec<StepStat>| {
        let Some(life) = life.upgrade() else { return };
        if sender.is_closed() {
            return; // its connection has ended
        }
        let talk = Talk {
            connection: of,
            life,
            gateway,
        };
        let _ = sender.send(then(&talk)); // it waits
    };
    pipeline.submit(look, Box::new(complete));
    receiver.await.map_err(|_| Code::CONNECTION_LOSS)
}

async fn rest(connection: &Talk, request: Request) -> Result<Answer, Code> {
    let clients = &connection.life.clients;
    match request {
        Request::AddWatch { path, mode } => {
            let added = clients
                .watches
                .borrow_mut()
                .add(&path, connection.client, mode);
            added.map(|()| Answer::Number(0))
        }
        Request::CheckWatches { path, kind } => {
            let has = clients
                .watches
                .borrow()
                .check(&path, connection.client, kind);
            has.map(|()| Answer::Empty)
        }
        Request::RemoveWatches { path, kind } => {
            let removed = clients
                .watches
                .borrow_mut()
                .remove(&path, connection.client, kind);
            removed.map(|()| Answer::Empty)
        }
        Request::WhoAmI => {
            let identities = connection.identities.borrow();
            let info = |identity: &acl::Identity| ClientInfo {
                scheme: identity.scheme.clone(),
                user: shown_user(identity),
            };
            Ok(Answer::WhoAmI(identities.iter().map(info).collect()))
        }
        Request::Reconfig { .. } => {
            operations::refused(
                connection.gateway.operations.as_ref(),
                connection,
                "reconfig",
            );
            Err(Code::RECONFIG_DISABLED)
        }
        _ => Err(Code::UNIMPLEMENTED),
    }
}

/// Answers with what was read of the store, and the zxid that it has: the replica may have moved on since.
fn answer_of_store(connection: &Talk, xid: Xid, read: Result<(i64, Answer), Code>) {
    match read {
        Err(code) => connection.answer_with(xid, Err(code)),
        Ok((zxid, answer)) => answer_of_then(connection, xid, Some(zxid), Ok(answer)),
    }
}

/// Answers as of the zxid `at`, or as of now.
fn answer_of_then(connection: &Talk, xid: Xid, at: Option<i64>, read: Result<Answer, Code>) {
    match read {
        Err(code) => connection.answer_with(xid, Err(code)),
        Ok(answer) => {
            let header = header_at(connection, xid, at);
            connection.answer(header, |out| encode_answer(out, header, &answer));
        }
    }
}

/// Ends when all that the client itself has done is in the store's rows: the zxid that they have at least.
async fn caught_up(connection: &Talk) -> i64 {
    let _ = connection.life.pipeline.refreshed().await;
    connection.life.replica.stored_zxid()
}

async fn ephemerals(connection: &Talk, prefix: &str) -> Result<(i64, Answer), Code> {
    let session = connection.session;
    let mut tries = Tries::new();
    let (zxid, all) = loop {
        let zxid = caught_up(connection).await;
        let read = async |replica: &Replica| replica.ephemerals(session).await;
        let (all, are_of_now) = patiently(connection, "", read).await?;
        if are_of_now {
            break (connection.life.replica.zxid(), all);
        }
        if !tries.again() {
            break (zxid, all);
        }
    };
    let has_prefix = |path: &Text| prefix.trim().is_empty() || path.starts_with(prefix);
    let found = all.into_iter().filter(has_prefix).collect();
    Ok((zxid, Answer::Ephemerals(found)))
}

async fn number_below(connection: &Talk, path: &str) -> Result<(i64, Answer), Code> {
    readable(connection, path).await?;
    let zxid = caught_up(connection).await;
    let path = paths::named(path);
    let read = async |replica: &Replica| replica.count_below(path).await;
    let (number, _) = patiently(connection, path, read).await?;
    let number = i32::try_from(number).unwrap_or(i32::MAX);
    Ok((zxid, Answer::Number(number)))
}

/// The name in a digest, without the hash of the password.
fn shown_user(identity: &acl::Identity) -> Text {
    match (&*identity.scheme, identity.id.split_once(':')) {
        ("digest", Some((user, _))) => user.into(),
        _ => identity.id.clone(),
    }
}

/// Reads until the store answers. The connection is closed if that takes too long ([`crate::ISOLATION_MS`]). An error
/// that would come again fails the request.
async fn patiently<T>(
    connection: &Talk,
    path: &str,
    read: impl AsyncFn(&Replica) -> StoreResult<T>,
) -> Result<T, Code> {
    loop {
        match read(&connection.life.replica).await {
            Ok(found) => return Ok(found),
            Err(Error::transaction_too_old | Error::future_version) => {
                let _ = connection.life.pipeline.refreshed().await;
            }
            Err(error) => {
                if !error.is_retryable() {
                    trace_warn!("KeeperReadFailed", "path" => path, "error" => error);
                }
                if !may_pass(error) {
                    return Err(Code::DATA_INCONSISTENCY);
                }
                sleep(RETRY_PAUSE).await;
            }
        }
    }
}

/// Makes the node known. What is known may be out of date as soon as anybody waits: look at the replica again.
async fn load(connection: &Talk, path: &str) -> Result<(), Code> {
    let read = async |replica: &Replica| replica.load(path).await;
    if !patiently(connection, path, read).await? {
        let _ = connection.life.pipeline.refreshed().await;
    }
    Ok(())
}

/// How often something is loaded.
struct Tries(usize);

impl Tries {
    fn new() -> Tries {
        Tries(READ_TRIES.get())
    }

    /// False if it was enough.
    fn again(&mut self) -> bool {
        let left = self.0.checked_sub(1);
        self.0 = left.unwrap_or(0);
        left.is_some()
    }
}

/// The node now. Nothing is awaited after its return, so what the caller does with it is of the same state. Fails if
/// its rows are damaged.
async fn node(connection: &Talk, path: &str) -> Result<Option<Rc<Node>>, Code> {
    let path = paths::named(path);
    if !paths::is_valid(path) {
        return Ok(None);
    }
    let mut tries = Tries::new();
    let may_be_shown = connection.gateway.options.clickhouse && system::is_in(path);
    if may_be_shown && system::tells_flags(path) {
        connection.is_clickhouse.set(true);
    }
    loop {
        if may_be_shown
            && matches!(
                connection.life.replica.node_if_known(system::ROOT),
                Known::Unknown
            )
        {
            load(connection, system::ROOT).await?;
            continue;
        }
        match connection.life.replica.node_if_known(path) {
            _ if path == traces::NODE && system::is_shown(connection, path) => {
                return Ok(Some(system::saying(connection.traces.tell().await)));
            }
            _ if system::is_shown(connection, path) => {
                return Ok(system::node(&connection.gateway.options, path));
            }
            Known::Here(node) => return Ok(Some(node)),
            Known::Absent => return Ok(None),
            Known::Damaged => return Err(Code::DATA_INCONSISTENCY),
            Known::Unknown if tries.again() => load(connection, path).await?,
            Known::Unknown => {
                // Once it is known, it remains so whatever others change.
                probe!("keeper_node_loaded_in_the_pipeline");
                let look = Request::Exists {
                    path: path.into(),
                    watch: false,
                };
                in_the_pipeline(connection, look, usize::MAX, |_| ()).await?;
            }
        }
    }
}

/// The node, if the client may read it.
async fn readable(connection: &Talk, path: &str) -> Result<Rc<Node>, Code> {
    let node = node(connection, path).await?.ok_or(Code::NO_NODE)?;
    acl::check(&node.acl, permission::READ, &connection.identities.borrow())?;
    Ok(node)
}

/// The node's `Stat`, also where its data is made for who asks, if the client may read it.
async fn readable_stat(connection: &Talk, path: &str) -> Result<Stat, Code> {
    let path = paths::named(path);
    loop {
        let node = readable(connection, path).await?;
        let Some(counted) = paths::counted(path) else {
            return Ok(node.stat());
        };
        let said = with_counts(connection, &node, counted).await?;
        // One that has gone meanwhile is not the one that is watched from now on.
        if !matches!(connection.life.replica.node_if_known(path), Known::Absent) {
            return Ok(said.stat());
        }
    }
}

/// As [`readable`], with the data. `None` if others have changed that each time that it was loaded.
async fn readable_with_data(
    connection: &Talk,
    path: &str,
    mut tries: Tries,
) -> Result<Option<Rc<Node>>, Code> {
    let path = paths::named(path);
    loop {
        let node = readable(connection, path).await?;
        if let Some(counted) = paths::counted(path) {
            let said = with_counts(connection, &node, counted).await?;
            let now = connection.life.replica.node_if_known(path);
            if matches!(now, Known::Absent) {
                continue; // it has gone meanwhile: nobody would hear of that who watches it
            }
            return Ok(Some(said));
        }
        match node.data {
            Data::None | Data::Here(_) => return Ok(Some(node)),
            Data::Damaged(_) => return Err(Code::DATA_INCONSISTENCY),
            Data::Unread(_) if tries.again() => {}
            Data::Unread(_) => return Ok(None),
        }
        let read = async |replica: &Replica| replica.data(path, &node).await;
        if patiently(connection, path, read).await?.is_none() {
            let _ = connection.life.pipeline.refreshed().await;
        }
    }
}

/// The node of a quota that says how much there is. Its data is made for who asks, instead of with each change. The
/// client's own nodes are among them if the gateway has [`caught_up`].
async fn with_counts(connection: &Talk, statistics: &Node, path: &str) -> Result<Rc<Node>, Code> {
    if let Some(used) = counted_use(&connection.life.replica, path) {
        return Ok(said(statistics, used.nodes, used.bytes));
    }
    let below = async |replica: &Replica| replica.count_below(path).await;
    let (mut count, mut bytes) = patiently(connection, path, below).await?;
    if let Some(node) = node(connection, path).await? {
        count += 1;
        bytes += node.data.len();
    }
    Ok(said(statistics, count as i64, bytes as i64))
}

/// True for a node whose data says how much there is.
fn is_counted(path: &str) -> bool {
    paths::counted(paths::named(path)).is_some()
}

/// The zxid that an answer about such a node has; all that the client has done is counted from now on.
async fn counted_at(connection: &Talk, path: &str) -> Option<i64> {
    match is_counted(path) {
        true => Some(caught_up(connection).await),
        false => None,
    }
}

/// How long the data is that is made for who asks; `None` for other nodes.
async fn counted_length(connection: &Talk, path: &str) -> Option<i32> {
    let counted = paths::counted(paths::named(path))?;
    let node = node(connection, path).await.ok()??;
    let said = with_counts(connection, &node, counted).await.ok()?;
    Some(said.stat().data_length)
}

fn with_length(stat: Stat, length: Option<i32>) -> Stat {
    let data_length = length.unwrap_or(stat.data_length);
    Stat {
        data_length,
        ..stat
    }
}

/// The node's `Stat` from what is known now: what a quota will say that is being counted is not.
pub fn stat_now(replica: &Replica, path: &str, stat: Stat) -> Stat {
    let counted = paths::counted(paths::named(path));
    let used = counted.and_then(|counted| counted_use(replica, counted));
    let length = used.map(|used| said_text(used.nodes, used.bytes).len() as i32);
    with_length(stat, length)
}

/// What the gateway knows already, unless the quota is new.
fn counted_use(replica: &Replica, path: &str) -> Option<Used> {
    let quotas = replica.quotas.borrow();
    let watched = quotas.get(path)?;
    (watched.quota.counted == Counted::All).then_some(watched.used)
}

fn said_text(count: i64, bytes: i64) -> String {
    format!("count={count},bytes={bytes}")
}

fn said(statistics: &Node, count: i64, bytes: i64) -> Rc<Node> {
    Rc::new(Node {
        data: Data::Here(said_text(count, bytes).into()),
        ..statistics.clone()
    })
}

fn header(connection: &Talk, xid: Xid) -> AnswerHeader {
    header_at(connection, xid, None)
}

fn header_at(connection: &Talk, xid: Xid, at: Option<i64>) -> AnswerHeader {
    AnswerHeader {
        xid,
        zxid: at.unwrap_or_else(|| connection.life.replica.zxid()),
        error: 0,
    }
}

async fn exists(connection: &Talk, xid: Xid, path: &str, watch: bool) {
    if path.contains('\0') {
        return connection.answer_with(xid, Err(Code::BAD_ARGUMENTS));
    }
    let at = counted_at(connection, path).await;
    let found = readable_stat(connection, path).await;
    // Nobody learns from a watch what may not be read. A node that is not there may be waited for.
    if watch && matches!(found, Ok(_) | Err(Code::NO_NODE)) {
        let mut watches = connection.life.clients.watches.borrow_mut();
        watches.watch_data(path, connection.client);
    }
    answer_of_then(connection, xid, at, found.map(Answer::Stat));
}

fn data_of(node: &Node) -> Option<&Bytes> {
    match &node.data {
        Data::Here(bytes) => Some(bytes),
        Data::None => None,
        Data::Unread(_) | Data::Damaged(_) => unreachable!("data is read before it is answered"),
    }
}

async fn get_data(connection: &Talk, xid: Xid, path: &str, watch: bool) -> bool {
    let at = counted_at(connection, path).await;
    let node = match readable_with_data(connection, path, Tries::new()).await {
        Ok(Some(node)) => node,
        Ok(None) => return false,
        Err(code) => {
            connection.answer_with(xid, Err(code));
            return true;
        }
    };
    let header = header_at(connection, xid, at);
    let is_told = connection.answer(header, |out| {
        let data = data_of(&node).map(|data| &data[..]);
        encode_data(out, header, data, &node.stat());
    });
    if watch && is_told {
        let mut watches = connection.life.clients.watches.borrow_mut();
        watches.watch_data(path, connection.client);
    }
    true
}

/// Makes the list of children known. Fails if it takes more than `most` bytes of memory. `None` if others have changed
/// it each time that it was loaded.
async fn readable_list(
    connection: &Talk,
    path: &str,
    most: usize,
    mut tries: Tries,
) -> Result<Option<Rc<Node>>, Code> {
    let path = paths::named(path);
    let replica = &connection.life.replica;
    let is_known = || replica.with_children(path, |_| ()).is_some();
    let part = Cell::default();
    loop {
        let node = readable(connection, path).await?;
        if is_known() || system::is_shown(connection, path) {
            return Ok(Some(node));
        }
        if !tries.again() {
            return Ok(None);
        }
        let read = async |replica: &Replica| replica.load_more_children(path, most, &part).await;
        if !patiently(connection, path, read).await? {
            return Err(Code::CONNECTION_LOSS);
        }
        if !is_known() {
            let _ = connection.life.pipeline.refreshed().await;
        }
    }
}

/// The names in a list that is known.
fn names_of(connection: &Talk, path: &str) -> Vec<Text> {
    let shown = system::children(connection, path);
    let names = shown.or_else(|| connection.life.replica.names(path));
    names.unwrap_or_default()
}

/// A check by itself, as of an operation of a multi.
async fn check(connection: &Talk, request: &Request) -> Result<(), Code> {
    let (Request::CheckNotExists { path, version } | Request::CheckStat { path, version, .. }) =
        request
    else {
        return Err(Code::UNIMPLEMENTED);
    };
    if !paths::is_valid(path) {
        return Err(Code::BAD_ARGUMENTS);
    }
    let node = match (readable(connection, path).await, request) {
        (Err(Code::NO_NODE), Request::CheckNotExists { .. }) => return Ok(()),
        (node, _) => node?,
    };
    let is_expected = *version == -1 || node.version == *version;
    let now = |node: &Node| stat_now(&connection.life.replica, path, node.stat());
    match request {
        Request::CheckStat { stat, .. } if is_expected && is_as_expected(&now(&node), stat) => {
            Ok(())
        }
        Request::CheckStat { .. } => Err(Code::BAD_VERSION),
        _ if is_expected => Err(Code::NODE_EXISTS),
        _ => Ok(()),
    }
}

async fn children(connection: &Talk, xid: Xid, path: &str, watch: bool, with_stat: bool) -> bool {
    let at = counted_at(connection, path).await;
    let length = counted_length(connection, path).await;
    let node = match readable_list(connection, path, LIST_BYTES_MAX.get(), Tries::new()).await {
        Ok(Some(node)) => node,
        Ok(None) => return false,
        Err(code) => {
            connection.answer_with(xid, Err(code));
            return true;
        }
    };
    let header = header_at(connection, xid, at);
    let stat = with_stat.then(|| with_length(node.stat(), length));
    let is_told = match system::children(connection, paths::named(path)) {
        Some(names) => {
            let names = names.iter().map(|name| &**name);
            connection.answer(header, |out| {
                encode_children(out, header, names, stat.as_ref())
            })
        }
        None => {
            let replica = &connection.life.replica;
            let told = replica.with_children(paths::named(path), |names| {
                let names = names.iter().map(|name| &**name);
                connection.answer(header, |out| {
                    encode_children(out, header, names, stat.as_ref())
                })
            });
            told.expect("a list that was found is known until somebody waits")
        }
    };
    if watch && is_told {
        let mut watches = connection.life.clients.watches.borrow_mut();
        watches.watch_children(path, connection.client);
    }
    true
}

async fn get_acl(connection: &Talk, path: &str) -> Result<Answer, Code> {
    let length = counted_length(connection, path).await;
    let node = node(connection, path).await?.ok_or(Code::NO_NODE)?;
    let identities = connection.identities.borrow();
    acl::check(&node.acl, permission::READ | permission::ADMIN, &identities)?;
    let stat = with_length(node.stat(), length);
    Ok(Answer::Acl(acl::masked(&node.acl, &identities), stat))
}

/// Sets the watches of a client that comes from another connection, and tells it what has happened meanwhile.
async fn set_watches(connection: &Talk, xid: Xid, request: Request) {
    let Request::SetWatches {
        relative_zxid,
        data,
        exist,
        child,
        persistent,
        recursive,
        breaks_off,
    } = request
    else {
        return;
    };
    let (mut pace, mut set, mut told) = (Pace::new(), 0, 0);
    let (client, clients) = (connection.client, &connection.life.clients);
    let kinds = [
        (data, Kind::Data),
        (exist, Kind::Exist),
        (child, Kind::Child),
    ];
    for (paths, kind) in kinds {
        for path in paths {
            // Nothing is known of what is damaged: its watches are set.
            let missed = match node(connection, &path).await {
                Ok(found) => missed(found.as_deref(), kind, relative_zxid),
                Err(_) => None,
            };
            match missed {
                Some(kind) => {
                    // Nobody knows which transaction it was.
                    let event = WatchEvent::of_a_node(kind, path, -1);
                    connection.push(|out| encode_event(out, &event, connection.protocol.xids));
                    told += 1;
                }
                None if kind == Kind::Child => {
                    clients.watches.borrow_mut().watch_children(&path, client)
                }
                None => clients.watches.borrow_mut().watch_data(&path, client),
            }
            set += 1;
            pace.rest_if_over().await;
        }
    }
    for (paths, mode) in [(persistent, 0), (recursive, 1)] {
        for path in paths {
            let _ = clients.watches.borrow_mut().add(&path, client, mode);
            set += 1;
        }
    }
    let session = format!("{:#x}", connection.session);
    trace!("KeeperWatchesSetAgain", "session" => session, "watches" => set, "missed" => told);
    let result = match breaks_off {
        false => Ok(&Answer::Empty),
        true => Err(Code::MARSHALLING_ERROR),
    };
    connection.answer_with(xid, result);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Data,
    Exist,
    Child,
}

/// The event that a client which knows everything through `seen` has missed.
fn missed(node: Option<&Node>, kind: Kind, seen: i64) -> Option<i32> {
    let is_untold = planted!(
        "keeper_missed_event_not_told",
        "a client that comes from another gateway is not told what its watches have missed"
    );
    if is_untold && seen > 0 {
        return None;
    }
    match (kind, node) {
        (Kind::Exist, Some(_)) => Some(event::CREATED),
        (Kind::Exist, None) => None,
        (_, None) => Some(event::DELETED),
        (Kind::Data, Some(node)) => (node.mzxid > seen).then_some(event::DATA_CHANGED),
        (Kind::Child, Some(node)) => (node.pzxid > seen).then_some(event::CHILDREN_CHANGED),
    }
}
