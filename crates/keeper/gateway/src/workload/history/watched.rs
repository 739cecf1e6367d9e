//! What a client was told of watches: each change that one of its watches sees, once, in their order, and before it
//! was answered of a state that has the change.

use super::Asked;
use super::model::{Did, Moment, Seen};
use super::past::{History, Past};
use crate::paths;
use crate::wire::{Answer, Code, MultiResult, Request, Text, WatchEvent, event};
use std::collections::{BTreeSet, VecDeque};

/// What a watch is of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Of {
    Data,
    Children,
}

/// What a client that sets a watch again knows of the node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    Data,
    /// There was none.
    Exist,
    Child,
}

impl Kind {
    pub fn of(self) -> Of {
        match self {
            Kind::Data | Kind::Exist => Of::Data,
            Kind::Child => Of::Children,
        }
    }

    /// What its client has missed of a node that is like this, and has seen everything through `seen`.
    fn missed(self, node: Moment, seen: i64) -> Option<i32> {
        match (self, node) {
            (Kind::Exist, Some(_)) => Some(event::CREATED),
            (Kind::Exist, None) => None,
            (_, None) => Some(event::DELETED),
            (Kind::Data, Some((mzxid, _))) => (mzxid > seen).then_some(event::DATA_CHANGED),
            (Kind::Child, Some((_, pzxid))) => (pzxid > seen).then_some(event::CHILDREN_CHANGED),
        }
    }
}

/// The watches that a request sets when it is answered so.
pub fn watches_of(asked: &Asked) -> Vec<(Kind, &Text)> {
    let Some((_, answer)) = &asked.told else {
        return Vec::new();
    };
    match (&asked.request, answer) {
        (Request::MultiRead { operations, .. }, Ok(Answer::MultiRead(results))) => {
            let parts = operations.iter().zip(results);
            let set = parts.filter_map(|(request, result)| watch_of(request, code_of(result)));
            set.collect()
        }
        (request, answer) => watch_of(request, answer.as_ref().err().copied())
            .into_iter()
            .collect(),
    }
}

fn code_of(result: &MultiResult) -> Option<Code> {
    match result {
        MultiResult::Failed(_, code) | MultiResult::Error(code) => Some(*code),
        _ => None,
    }
}

/// The watch that a read sets, which has failed with this code if there is one.
fn watch_of(request: &Request, failed: Option<Code>) -> Option<(Kind, &Text)> {
    match (request, failed) {
        (Request::Exists { path, watch: true } | Request::GetData { path, watch: true }, None) => {
            Some((Kind::Data, path))
        }
        (Request::Exists { path, watch: true }, Some(Code::NO_NODE)) => Some((Kind::Exist, path)),
        (
            Request::GetChildren { path, watch: true }
            | Request::GetChildren2 { path, watch: true }
            | Request::List {
                path, watch: true, ..
            },
            None,
        ) => Some((Kind::Child, path)),
        _ => None,
    }
}

/// A watch, and the place behind which it sees changes.
type Set<'a> = (i64, Of, &'a str);

/// # Errors
/// The first promise that was broken.
pub fn judge(history: &History, number: usize, past: &Past) -> Result<(), String> {
    let connection = &history.connections[number];
    let session = connection.session;
    let of_connection = || {
        history
            .asked
            .iter()
            .filter(|asked| asked.connection == number)
    };
    let answered = || of_connection().filter_map(|asked| Some((asked, asked.told.as_ref()?.0)));
    let last = answered().map(|(_, zxid)| zxid).max().unwrap_or_default();
    let late = |(behind, event): &&(i64, WatchEvent)| event.zxid != -1 && event.zxid <= *behind;
    if let Some((behind, event)) = connection.heard.iter().find(late) {
        return Err(format!(
            "session {session:#x} has seen {behind:#x} before it was told {event:?}"
        ));
    }
    let heard = connection.heard.iter().map(|(_, event)| event);
    let (mut missed, told): (Vec<_>, Vec<_>) = heard.partition(|event| event.zxid == -1);
    let mut set: Vec<Set> = Vec::new();
    for (asked, zxid) in answered() {
        for (kind, path) in watches_of(asked) {
            set.push((zxid, kind.of(), path));
        }
    }
    if let Some(again) = of_connection().find(|a| matches!(a.request, Request::SetWatches { .. })) {
        if again.told.is_none() {
            return Ok(()); // it is all that was sent
        }
        set.extend(set_again(again, past, &mut missed, &told)?);
    }
    if let Some(event) = missed.first() {
        return Err(format!("session {session:#x} has not missed {event:?}"));
    }
    let due = due(set, past);
    for (place, event) in told.iter().enumerate() {
        let is_due = due.get(place).is_some_and(|(zxid, kind, path)| {
            (event.zxid, event.kind) == (*zxid, *kind) && event.path == **path
        });
        if !is_due {
            let due = due.get(place);
            return Err(format!(
                "session {session:#x} is told {event:?}, due is {due:x?}"
            ));
        }
    }
    match due.get(told.len()).filter(|(zxid, ..)| *zxid <= last) {
        Some(lost) => Err(format!(
            "session {session:#x} has seen {last:#x}, and was not told {lost:x?}"
        )),
        None => Ok(()),
    }
}

/// The watches that are set again, without those that have missed something: the client was told so.
fn set_again<'a>(
    asked: &'a Asked,
    past: &Past,
    missed: &mut Vec<&WatchEvent>,
    told: &[&WatchEvent],
) -> Result<Vec<Set<'a>>, String> {
    let Request::SetWatches {
        relative_zxid,
        data,
        exist,
        child,
        ..
    } = &asked.request
    else {
        return Ok(Vec::new());
    };
    let (seen, through) = (*relative_zxid, asked.told.as_ref().map_or(0, |told| told.0));
    // Lists come last: if one of two watches of a node was told that it has gone, it is that of the list.
    let kinds = [
        (Kind::Child, child),
        (Kind::Data, data),
        (Kind::Exist, exist),
    ];
    let all = kinds
        .into_iter()
        .flat_map(|(kind, paths)| paths.iter().map(move |path| (kind, path)));
    let mut set = Vec::new();
    for (kind, path) in all {
        let moments = past.moments(path, seen, through);
        let events: BTreeSet<Option<i32>> = moments
            .iter()
            .map(|(_, node)| kind.missed(*node, seen))
            .collect();
        let is_its =
            |event: &&WatchEvent| event.path == **path && events.contains(&Some(event.kind));
        let of_list = |event: &&WatchEvent| is_its(event) && event.kind == event::CHILDREN_CHANGED;
        let place = missed.iter().position(of_list);
        if let Some(place) = place.or_else(|| missed.iter().position(is_its)) {
            missed.swap_remove(place);
            continue;
        }
        if !events.contains(&None) {
            return Err(format!(
                "{asked} does not tell what {kind:?} of {path} has missed"
            ));
        }
        // Whoever waits for a node may have missed that it came and went.
        let first = told
            .iter()
            .find(|event| event.path == **path && event.kind == event::CREATED);
        let is_possible = |(zxid, node): &&(i64, Moment)| {
            kind.missed(*node, seen).is_none() && first.is_none_or(|event| *zxid < event.zxid)
        };
        let from = moments.iter().rev().find(is_possible);
        let from = from.map_or(seen, |(zxid, _)| (*zxid).max(seen));
        set.push((from, kind.of(), path.as_str()));
    }
    Ok(set)
}

/// The events that the watches lead to, each with its place, kind and path.
fn due<'a>(mut set: Vec<Set<'a>>, past: &'a Past) -> Vec<(i64, i32, &'a str)> {
    set.sort_unstable();
    let mut set = VecDeque::from(set);
    let mut active: BTreeSet<(Of, &str)> = BTreeSet::new();
    let mut due = Vec::new();
    for seen in &past.seen {
        while let Some((_, of, path)) = set.pop_front_if(|(from, ..)| *from < seen.zxid) {
            active.insert((of, path));
        }
        let Seen { zxid, changed, .. } = seen;
        let path = changed.path.as_str();
        let kind = match changed.did {
            Did::Created => event::CREATED,
            Did::DataSet => event::DATA_CHANGED,
            Did::Deleted => event::DELETED,
            Did::AclSet => continue,
        };
        let of_data = active.remove(&(Of::Data, path));
        let of_children = changed.did == Did::Deleted && active.remove(&(Of::Children, path));
        if (of_data || of_children) && seen.is_told {
            due.push((*zxid, kind, path));
        }
        if changed.did == Did::DataSet {
            continue;
        }
        let above = paths::parent(path).unwrap_or(path);
        if active.remove(&(Of::Children, above)) && seen.is_told_above {
            due.push((*zxid, event::CHILDREN_CHANGED, above));
        }
    }
    due
}
