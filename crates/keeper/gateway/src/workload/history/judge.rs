//! The verdict over the history: each answer has a place, and is the one that it must have there.

use super::Asked;
use super::model::{BASE, Changed, Did, Model, Seen};
use super::past::{History, Past};
use super::stream::Entry;
use super::watched;
use crate::wire::{Answer, Code, MultiResult, Request, Stat, Text};
use bytes::Bytes;
use std::collections::BTreeMap;

/// How often it is tried which of several requests without an answer has happened.
const GUESSES_MAX: usize = 1000;

/// Of a request that was answered by itself.
#[derive(Clone, Copy)]
struct Placed<'a> {
    zxid: i64,
    asked: &'a Asked,
    answer: &'a Result<Answer, Code>,
}

/// # Errors
/// The first promise that was broken.
pub fn judge(history: &History) -> Result<(), String> {
    orders(history)?;
    let past = Judge::new(history).run(history.entries)?;
    (0..history.connections.len()).try_for_each(|number| watched::judge(history, number, &past))
}

/// True if the answer does not say what has become of the request.
fn is_open(asked: &Asked) -> bool {
    let over = [
        Code::SESSION_EXPIRED,
        Code::SESSION_MOVED,
        Code::CONNECTION_LOSS,
    ];
    match &asked.told {
        None => true,
        Some((_, Err(code))) => over.contains(code),
        Some((_, Ok(_))) => false,
    }
}

/// True for what has a place of its own.
pub fn is_write(request: &Request) -> bool {
    request.changes_nodes() || *request == Request::CloseSession
}

/// What was sent after something was answered has a later place, and no session goes back. A `sync` knows all changes
/// that were answered before it was sent.
fn orders(history: &History) -> Result<(), String> {
    let mut steps: Vec<(u64, bool, &Asked)> = Vec::new();
    for asked in history.asked.iter().filter(|asked| !is_open(asked)) {
        steps.push((asked.sent, false, asked));
        steps.push((asked.answered, true, asked));
    }
    steps.sort_by_key(|(step, ..)| *step);
    let (mut last, mut last_change) = (0, 0);
    let mut before: BTreeMap<u64, (i64, i64)> = BTreeMap::new();
    let mut of_sessions: BTreeMap<i64, (i64, &Asked)> = BTreeMap::new();
    for (_, is_answer, asked) in steps {
        if !is_answer {
            before.insert(asked.sent, (last, last_change));
            continue;
        }
        let Some((zxid, answer)) = &asked.told else {
            continue;
        };
        let (then, change) = before[&asked.sent];
        if is_write(&asked.request) && *zxid <= then {
            return Err(format!(
                "{asked} has a place that was answered before it was sent: {then:#x}"
            ));
        }
        if matches!(asked.request, Request::Sync { .. }) && *zxid < change {
            return Err(format!("{asked} does not know {change:#x}"));
        }
        let before = of_sessions.insert(asked.session, (*zxid, asked));
        if let Some((seen, before)) = before
            && *zxid < seen
        {
            return Err(format!("{asked} goes back behind {before}"));
        }
        last = last.max(*zxid);
        let is_told = |entry: &Entry| entry.zxid;
        if is_write(&asked.request)
            && answer.is_ok()
            && history.entries.binary_search_by_key(zxid, is_told).is_ok()
        {
            last_change = last_change.max(*zxid);
        }
    }
    Ok(())
}

/// The last place that was answered before a step.
fn last_before(history: &History, step: u64) -> i64 {
    let before = history.asked.iter().filter(|asked| asked.answered < step);
    let zxids = before.filter_map(|asked| Some(asked.told.as_ref()?.0));
    zxids.max().unwrap_or_default()
}

#[derive(Clone)]
struct Judge<'a> {
    model: Model,
    past: Past,
    /// Times of day, as they were told of each zxid.
    times: BTreeMap<i64, i64>,
    writes: Vec<Placed<'a>>,
    reads: Vec<Placed<'a>>,
    /// Without an answer, each with the last place that was answered before it was sent.
    open: Vec<(&'a Asked, i64)>,
    /// Data that was read, by path and mzxid: the stream does not have all of it.
    read: BTreeMap<(&'a str, i64), &'a Option<Bytes>>,
    /// The request of each session that has happened last.
    last: BTreeMap<i64, u64>,
    ended: BTreeMap<i64, i64>,
}

impl<'a> Judge<'a> {
    fn new(history: &History<'a>) -> Judge<'a> {
        let (mut writes, mut reads, mut open) = (Vec::new(), Vec::new(), Vec::new());
        for asked in history.asked {
            let placed = asked.told.as_ref().filter(|_| !is_open(asked));
            let placed = placed.map(|(zxid, answer)| Placed {
                zxid: *zxid,
                asked,
                answer,
            });
            match placed {
                Some(placed) if is_write(&asked.request) => writes.push(placed),
                Some(placed) => reads.push(placed),
                None if is_write(&asked.request) => {
                    open.push((asked, last_before(history, asked.sent)));
                }
                None => {}
            }
        }
        let read = reads.iter().flat_map(data_of).collect();
        writes.sort_by_key(|placed| std::cmp::Reverse(placed.zxid));
        reads.sort_by_key(|placed| std::cmp::Reverse(placed.zxid));
        Judge {
            model: Model::default(),
            past: Past::default(),
            times: BTreeMap::new(),
            writes,
            reads,
            open,
            read,
            last: BTreeMap::new(),
            ended: BTreeMap::new(),
        }
    }

    /// Finds a history that all answers fit in.
    fn run(self, entries: &[Entry]) -> Result<Past, String> {
        let mut guesses = vec![(self, 0)];
        let mut wrong = None;
        for _ in 0..GUESSES_MAX {
            let Some((guess, at)) = guesses.pop() else {
                break;
            };
            match guess.go_on(entries, at, &mut guesses) {
                Ok(past) => return Ok(past),
                Err(why) => wrong = wrong.or(Some(why)),
            }
        }
        Err(wrong.unwrap_or_default())
    }

    /// Goes through all places, in their order, from the entry with the number `at` on. Where several requests without
    /// an answer may have happened, the first is taken, and the others are put among the `guesses`.
    fn go_on(
        mut self,
        entries: &[Entry],
        mut at: usize,
        guesses: &mut Vec<(Self, usize)>,
    ) -> Result<Past, String> {
        loop {
            let write = self.writes.last().map(|placed| placed.zxid);
            let entry = entries.get(at);
            let places = [write, entry.map(|entry| entry.zxid)];
            let next = places.into_iter().flatten().min();
            self.answer_reads(next)?;
            let Some(next) = next else { break };
            let entry = entry.filter(|entry| entry.zxid == next);
            at += usize::from(entry.is_some());
            match (self.writes.pop_if(|placed| placed.zxid == next), entry) {
                (Some(placed), entry) => self.write(&placed, entry)?,
                (None, Some(entry)) => {
                    let others = self.happened(entry)?;
                    guesses.extend(others.into_iter().rev().map(|other| (other, at)));
                }
                (None, None) => {}
            }
            if self.writes.last().is_some_and(|other| other.zxid == next) {
                return Err(format!("{next:#x} is the place of two requests"));
            }
        }
        for session in self.ended.keys() {
            self.has_nothing_left(*session)?;
        }
        Ok(self.past)
    }

    /// Looks at the reads of the state before `next`.
    fn answer_reads(&mut self, next: Option<i64>) -> Result<(), String> {
        let is_before = |placed: &mut Placed| next.is_none_or(|next| placed.zxid < next);
        while let Some(placed) = self.reads.pop_if(is_before) {
            let (request, asked) = (&placed.asked.request, placed.asked);
            if matches!(request, Request::Sync { .. } | Request::SetWatches { .. }) {
                continue;
            }
            let expected = self.model.read(request);
            self.compare(asked, placed.answer, expected)?;
        }
        Ok(())
    }

    fn write(&mut self, placed: &Placed, entry: Option<&Entry>) -> Result<(), String> {
        let (asked, zxid) = (placed.asked, placed.zxid);
        self.follows(asked)?;
        if asked.request == Request::CloseSession {
            match entry {
                Some(entry) if entry.ended == Some(asked.session) => self.end(entry)?,
                _ => return Err(format!("{asked} is answered, and is not in the stream")),
            }
            return self.has_nothing_left(asked.session);
        }
        let applied = self.model.apply(zxid, asked.session, &asked.request);
        let told = entry.map_or(&[][..], |entry| &entry.changed);
        if !is_same(&applied.seen, told) {
            return Err(format!(
                "{asked} is in the stream as {told:?}, and should be {:?}",
                applied.seen
            ));
        }
        self.compare(asked, placed.answer, applied.answer)?;
        self.note(applied.seen);
        Ok(())
    }

    /// The requests of a session happen in their order, and none when it has ended.
    fn follows(&mut self, asked: &Asked) -> Result<(), String> {
        // What a client asks to end may have begun to end before.
        if let Some(ended) = self.ended.get(&asked.session)
            && asked.request != Request::CloseSession
        {
            return Err(format!(
                "{asked} has happened, and its session has ended at {ended:#x}"
            ));
        }
        let last = self.last.entry(asked.session).or_default();
        if asked.sent <= *last {
            return Err(format!("{asked} happens behind a later one of its session"));
        }
        *last = asked.sent;
        Ok(())
    }

    fn note(&mut self, seen: Vec<Seen>) {
        for one in seen {
            let path = &one.changed.path;
            let above = crate::paths::parent(path).map(Text::from);
            for path in [Some(path.clone()), above].into_iter().flatten() {
                let moment = self.model.moment(&path);
                let moments = self.past.moments.entry(path).or_default();
                moments.push((one.zxid, moment));
            }
            self.past.seen.push(one);
        }
    }

    /// Something that was answered to nobody. Returns what else it may have been.
    fn happened(&mut self, entry: &Entry) -> Result<Vec<Self>, String> {
        if entry.ended.is_some() {
            self.end(entry)?;
            return Ok(Vec::new());
        }
        if entry.changed.is_empty() || self.went_by_itself(entry)? {
            return Ok(Vec::new());
        }
        let all = 0..self.open.len();
        let mut guesses: Vec<Self> = all.filter_map(|place| self.guess(place, entry)).collect();
        if guesses.is_empty() {
            return Err(format!("nobody has asked for {entry:?}, or not again"));
        }
        *self = guesses.remove(0);
        Ok(guesses)
    }

    /// True if nobody needs to have asked for it.
    fn went_by_itself(&mut self, entry: &Entry) -> Result<bool, String> {
        let [Changed { path, did, .. }] = &entry.changed[..] else {
            return Ok(false);
        };
        if *did == Did::Created && path == BASE {
            self.model.begin(entry.zxid);
            let begun = (entry.zxid, self.model.moment(BASE));
            self.past.moments.insert(BASE.into(), vec![begun]);
            return Ok(true);
        }
        if *did != Did::Deleted || !self.model.may_go(path) {
            return Ok(false);
        }
        let mut seen = Vec::new();
        let removed = self.model.remove(entry.zxid, path, &mut seen);
        removed.map_err(|code| format!("{entry:?}: {code}"))?;
        self.note(seen);
        Ok(true)
    }

    /// What is so if the request at this place is what has happened; `None` if it cannot be.
    fn guess(&self, place: usize, entry: &Entry) -> Option<Self> {
        let (asked, after) = self.open[place];
        let has_ended = self.ended.contains_key(&asked.session);
        let last = self.last.get(&asked.session);
        let is_late = last.is_some_and(|last| asked.sent <= *last);
        if has_ended || is_late || entry.zxid <= after {
            return None;
        }
        let mut model = self.model.clone();
        let applied = model.apply(entry.zxid, asked.session, &asked.request);
        if !is_same(&applied.seen, &entry.changed) || !self.is_what_was_read(&model, entry) {
            return None;
        }
        let mut guess = Judge {
            model,
            ..self.clone()
        };
        guess.open.remove(place);
        guess.last.insert(asked.session, asked.sent);
        guess.note(applied.seen);
        Some(guess)
    }

    /// True if the data that an entry leaves is that of the answers.
    fn is_what_was_read(&self, model: &Model, entry: &Entry) -> bool {
        entry.changed.iter().all(|changed| {
            let read = self.read.get(&(changed.path.as_str(), entry.zxid));
            let data = model.data(&changed.path);
            read.is_none_or(|read| data.is_none_or(|data| data == *read))
        })
    }

    /// A session ends, and its ephemeral nodes with it: all, or some and the others right behind.
    fn end(&mut self, entry: &Entry) -> Result<(), String> {
        let session = entry.ended.unwrap_or_default();
        self.ended.entry(session).or_insert(entry.zxid);
        for changed in &entry.changed {
            let its = self.model.ephemerals(session);
            if changed.did != Did::Deleted || !its.contains(&changed.path) {
                return Err(format!("{changed:?} with the end of session {session:#x}"));
            }
            let mut seen = Vec::new();
            let removed = self.model.remove(entry.zxid, &changed.path, &mut seen);
            removed.map_err(|code| format!("{changed:?}: {code}"))?;
            self.note(seen);
        }
        Ok(())
    }

    fn has_nothing_left(&self, session: i64) -> Result<(), String> {
        match &self.model.ephemerals(session)[..] {
            [] => Ok(()),
            left => Err(format!("session {session:#x} has ended, and left {left:?}")),
        }
    }

    fn compare(
        &mut self,
        asked: &Asked,
        told: &Result<Answer, Code>,
        expected: Result<Answer, Code>,
    ) -> Result<(), String> {
        let told = told.clone().map(|answer| self.without_times(answer));
        let told = match told {
            Ok(answer) => Ok(answer.map_err(|wrong| format!("{asked}: {wrong}"))?),
            Err(code) => Err(code),
        };
        match told == expected {
            true => Ok(()),
            false => Err(format!(
                "{asked} should be answered {}",
                super::shown(&expected)
            )),
        }
    }

    /// The answer without the times of day, which must be the same in all answers.
    fn without_times(&mut self, mut answer: Answer) -> Result<Answer, String> {
        let mut stats: Vec<&mut Stat> = Vec::new();
        match &mut answer {
            Answer::PathAndStat(_, stat)
            | Answer::Stat(stat)
            | Answer::Data(_, stat)
            | Answer::Acl(_, stat)
            | Answer::ChildrenAndStat(_, stat) => stats.push(stat),
            Answer::Listed(listed) => {
                stats.push(&mut listed.stat);
                stats.extend(&mut listed.stats);
            }
            Answer::Multi(results) | Answer::MultiRead(results) => {
                for result in results {
                    match result {
                        MultiResult::PathAndStat(_, stat)
                        | MultiResult::Stat(stat)
                        | MultiResult::Exists(stat)
                        | MultiResult::ChildrenAndStat(_, stat)
                        | MultiResult::Data(_, stat) => stats.push(stat),
                        MultiResult::Listed(listed) => {
                            stats.push(&mut listed.stat);
                            stats.extend(&mut listed.stats);
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
        for stat in stats {
            for (zxid, time) in [(stat.czxid, &mut stat.ctime), (stat.mzxid, &mut stat.mtime)] {
                let known = *self.times.entry(zxid).or_insert(*time);
                if known != *time {
                    return Err(format!("{zxid:#x} is of {time}, and was of {known}"));
                }
                *time = 0;
            }
        }
        Ok(answer)
    }
}

/// The data that a read was answered, by path and mzxid.
fn data_of<'a>(placed: &Placed<'a>) -> Vec<((&'a str, i64), &'a Option<Bytes>)> {
    let one = |request: &'a Request, data: &'a Option<Bytes>, stat: &Stat| match request {
        Request::GetData { path, .. } => Some(((path.as_str(), stat.mzxid), data)),
        _ => None,
    };
    match (&placed.asked.request, placed.answer) {
        (request, Ok(Answer::Data(data, stat))) => one(request, data, stat).into_iter().collect(),
        (Request::MultiRead { operations, .. }, Ok(Answer::MultiRead(results))) => operations
            .iter()
            .zip(results)
            .filter_map(|(request, result)| match result {
                MultiResult::Data(data, stat) => one(request, data, stat),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    }
}

fn is_same(seen: &[Seen], told: &[Changed]) -> bool {
    seen.iter().map(|seen| &seen.changed).eq(told)
}
