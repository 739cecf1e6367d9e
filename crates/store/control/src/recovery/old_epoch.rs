//! The end of the previous epoch: its log servers are sealed, and the system keyspace is read from them.

use super::addresses::{address_now, hosts};
use super::cut_off::CutOff;
use super::witnesses::{Witnessed, Witnesses};
use crate::context::Context;
use plinth_core::version::MAX_VERSIONS_IN_FLIGHT;
use plinth_core::{Epoch, Error, Mutation, MutationBatch, MutationKind, Result, Tag, Version};
use plinth_log::cursor;
use plinth_protocol::control::DatabaseState;
use plinth_protocol::log::{LogGeneration, NeedDamagedLog, Seal, SealReply};
use plinth_rpc::Interface;
use plinth_runtime::sync::QueueSender;
use plinth_runtime::{Duration, Instant, fault, never, planted, probe, trace, trace_warn};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;

/// A log server that has not answered a seal by then is asked again.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(50);
/// Pause before a damaged log server is asked again: its files may have been restored.
const RETRY_DAMAGED: Duration = Duration::from_millis(500);
/// Holes of a log server that are named.
const HOLES_TOLD: usize = 4;
/// Old log servers that have not answered for this long are reported.
const SILENCE_TOLD: Duration = Duration::from_secs(1);

/// How long the recovery waits for log servers that it could do without, if they may be about to answer. They may
/// have versions that another log server has lost, and with all of them nothing needs to be copied.
const GRACE: Duration = Duration::from_millis(250);
/// The same wait if all that answered of some log set came back from their disks, whether or not the others seem to
/// be gone: machines that lost power together do not come back together, and a server whose disk has lied has less
/// than it acknowledged.
const GRACE_FOR_WITNESSES: Duration = Duration::from_millis(2500);
/// Interval, during this wait, at which the recovery checks whether they may still answer.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// What was found of the previous epoch.
pub(super) struct Predecessor {
    pub state: DatabaseState,
    pub known_committed: Version,
    pub recovered_to: Version,
    pub rows: Vec<(bytes::Bytes, bytes::Bytes)>,
}

pub(super) async fn end_epoch(context: &Context, mut state: DatabaseState) -> Result<Predecessor> {
    context.phase.set("sealing_old_logs");
    let generation = state.log_system.current().ok_or(Error::file_corrupt)?;
    let answers = seal(context, &state, generation).await?;
    let hosts = context.workers.with(hosts);
    for log in state
        .log_system
        .generations
        .iter_mut()
        .flat_map(|g| &mut g.logs)
    {
        log.address = *hosts.get(&log.id).unwrap_or(&log.address);
    }
    let generation = state.log_system.current().ok_or(Error::file_corrupt)?;
    let (known_committed, recovered_to) = end_of_log(generation, &answers);
    follows_its_begin(generation, known_committed, recovered_to)?;
    trace!("Sealed", "epoch" => generation.epoch,
        "known_committed" => known_committed, "recovered_to" => recovered_to);
    context.phase.set("reading_system_keyspace");
    let answered: Vec<bool> = answers.iter().map(Option::is_some).collect();
    // Everything before the generation's recovery transaction is superseded by the snapshot in it.
    let range = generation.start..=recovered_to;
    let messages = cursor::read_sealed(
        &context.transport,
        generation,
        &answered,
        Tag::SYSTEM,
        range,
    )
    .await?;
    let rows = system_rows(messages.iter().flat_map(|m| &m.runs).cloned())?;
    Ok(Predecessor {
        known_committed,
        recovered_to,
        rows,
        state,
    })
}

/// Checks the end of a generation against its begin. It knows what came before it as committed. Its recovery
/// transaction was on every log server before the coordinators named it, so the log does not end below that, unless
/// disks have lost it: then the recovery goes on with what there is.
fn follows_its_begin(
    generation: &LogGeneration,
    known_committed: Version,
    recovered_to: Version,
) -> Result<()> {
    let (start, epoch) = (generation.start, generation.epoch);
    if never!(
        known_committed < start - 1,
        "EpochEndsBeforeItsBegin",
        "epoch" => epoch,
        "start" => start,
        "known_committed" => known_committed
    ) {
        return Err(Error::cluster_recovery_failed);
    }
    let begun = generation
        .recovered_to
        .saturating_add(MAX_VERSIONS_IN_FLIGHT);
    never!(
        recovered_to < begun,
        "RecoveryTransactionLost",
        "epoch" => epoch,
        "begun" => begun,
        "recovered_to" => recovered_to
    );
    Ok(())
}

/// The answer to a seal of the log server at a place; `None`: its files are damaged.
type Answer = (usize, Option<SealReply>);

/// Seals log servers until every log set has a member that answered, and has what is known committed.
async fn seal(
    context: &Context,
    state: &DatabaseState,
    generation: &LogGeneration,
) -> Result<Vec<Option<SealReply>>> {
    let (sender, mut replies) = plinth_runtime::sync::queue();
    let tasks = plinth_runtime::TaskGroup::new();
    let ask = |place: usize, pause: Duration| {
        let log = generation.logs[place];
        let sealing = seal_one(context, log, state.epoch + 1, place, sender.clone());
        tasks.spawn("seal", async move {
            plinth_runtime::sleep(pause).await;
            sealing.await;
        });
    };
    (0..generation.logs.len()).for_each(|place| ask(place, Duration::ZERO));
    let witnesses = Witnesses::ask(context, state, generation);
    let mut answers: Vec<Option<SealReply>> = vec![None; generation.logs.len()];
    let (mut damaged, mut set_back) = (BTreeSet::new(), BTreeMap::new());
    let (mut covered_since, mut cut_off) = (None, CutOff::default());
    let mut told = plinth_runtime::now();
    loop {
        let witnessed = witnesses.newest();
        for (place, end) in leave_out_damaged(&mut answers, witnessed.version) {
            let log = generation.logs[place];
            if set_back.insert(place, (end, witnessed.clone())).is_none() {
                never!("LogLacksCommitted", "id" => log.id, "address" => log.address,
                    "ends" => end, "committed" => witnessed.version);
            }
            damaged.insert(place);
            ask(place, RETRY_DAMAGED); // its files may be restored
        }
        let answered: Vec<bool> = answers.iter().map(Option::is_some).collect();
        let holes = with_holes(generation, &answers);
        damaged.extend(holes.iter().copied());
        let patience = if generation.covers_every_set(&answered) && holes.is_empty() {
            let since: Instant = *covered_since.get_or_insert_with(plinth_runtime::now);
            let (may_answer, grace) = others(context, generation, &answers, &damaged);
            let are_heard = witnesses.were_asked() || has_stayed_everywhere(generation, &answers);
            if are_heard && (!may_answer || since.elapsed() >= grace) {
                if answered.contains(&false) {
                    probe!("recovery_without_all_logs");
                }
                return Ok(answers);
            }
            probe!("recovery_waits_for_more_logs");
            LOOK_AGAIN
        } else {
            covered_since = None;
            if told.elapsed() >= SILENCE_TOLD {
                told = plinth_runtime::now();
                tell_missing(context, generation, &answers, &damaged, &set_back);
                if cut_off.look(context, generation, answered) {
                    return Err(give_up(context));
                }
                need_damaged(context, generation, &holes, &damaged);
            }
            SILENCE_TOLD.saturating_sub(told.elapsed())
        };
        match plinth_runtime::timeout(patience, replies.recv()).await {
            Some(Some((place, None))) => note_damaged(context, generation, place, &mut damaged),
            Some(Some((place, reply))) => {
                damaged.remove(&place); // its files were restored, or others have what it lacks
                answers[place] = reply;
            }
            _ => {}
        }
    }
}

/// Ends this controller, so that a process becomes controller that reaches the log servers.
fn give_up(context: &Context) -> Error {
    probe!("controller_gives_up_its_place");
    trace_warn!("ControllerIsCutOff", "from" => "log servers that other processes reach");
    context.is_cut_off.set(true);
    Error::coordinated_state_conflict
}

/// Seals a log server, however long that takes. Reports meanwhile that it is damaged, if it says so.
fn seal_one(
    context: &Context,
    mut log: Interface,
    epoch: Epoch,
    place: usize,
    sender: QueueSender<Answer>,
) -> impl Future<Output = ()> + 'static {
    let (transport, workers) = (context.transport.clone(), context.workers.clone());
    async move {
        loop {
            // It may have come back under another address.
            log.address = address_now(&workers, &log);
            let call = transport.call(&log.endpoint::<Seal>(), Seal { epoch });
            let pause = match plinth_runtime::timeout(ANSWER_LIMIT, call).await {
                Some(Ok(reply)) => {
                    let is_whole = reply.lost.is_empty();
                    let _ = sender.send((place, Some(reply))); // enough others may have answered
                    if is_whole {
                        return;
                    }
                    RETRY_DAMAGED // its files may be restored
                }
                Some(Err(Error::file_corrupt)) => {
                    let _ = sender.send((place, None));
                    RETRY_DAMAGED
                }
                Some(Err(_)) | None => RETRY,
            };
            plinth_runtime::sleep(pause).await;
        }
    }
}

/// Notes that the files of a log server are damaged. If others have what it held, the recovery goes on without it.
/// Otherwise its process is told, and reports the damage.
fn note_damaged(
    context: &Context,
    generation: &LogGeneration,
    place: usize,
    damaged: &mut BTreeSet<usize>,
) {
    let mut log = generation.logs[place];
    log.address = address_now(&context.workers, &log);
    if damaged.insert(place) {
        probe!("recovery_meets_damaged_log");
        trace!("OldLogDamaged", "id" => log.id, "address" => log.address);
    }
    need_damaged(context, generation, &[place], damaged);
}

/// Tells the processes of those damaged log servers without which no epoch can begin: what they lack is nowhere else.
fn need_damaged(
    context: &Context,
    generation: &LogGeneration,
    places: &[usize],
    damaged: &BTreeSet<usize>,
) {
    let is_needed = |place: &&usize| generation.needs(**place, |other| !damaged.contains(&other));
    for place in places.iter().filter(is_needed) {
        probe!("recovery_needs_damaged_log");
        let mut log = generation.logs[*place];
        log.address = address_now(&context.workers, &log);
        let endpoint = log.endpoint::<NeedDamagedLog>();
        drop(context.transport.call(&endpoint, NeedDamagedLog {})); // repeated with the next answer
    }
}

/// The places of log servers with damaged files that cannot read what no other member of a log set has either, and
/// that the epoch may have acknowledged. None if all of it can be joined from what each has.
fn with_holes(generation: &LogGeneration, answers: &[Option<SealReply>]) -> Vec<usize> {
    let is_lost = |answer: &SealReply, version: Version| {
        let mut lost = answer.lost.iter();
        lost.any(|(after, up_to)| *after < version && version <= *up_to)
    };
    let answered: Vec<bool> = answers.iter().map(Option::is_some).collect();
    let all = || answers.iter().flatten().flat_map(|answer| &answer.lost);
    let up_to = match all().next() {
        Some(_) if generation.covers_every_set(&answered) => end_of_log(generation, answers).1,
        _ => Version::MAX,
    };
    // What is missing begins with a hole of some log server.
    let begins = all().map(|(after, _)| after + 1);
    let missing = begins
        .filter(|version| *version <= up_to)
        .filter(|version| {
            let have = |answer: &Option<SealReply>| {
                let has = |answer: &SealReply| {
                    answer.durable.version() >= *version && !is_lost(answer, *version)
                };
                answer.as_ref().is_some_and(has)
            };
            !generation.covers_every_set(&answers.iter().map(have).collect::<Vec<_>>())
        });
    let missing: Vec<Version> = missing.collect();
    let lacks = |answer: &SealReply| missing.iter().any(|version| is_lost(answer, *version));
    let places = answers.iter().enumerate();
    let places = places.filter(|(_, answer)| answer.as_ref().is_some_and(lacks));
    places.map(|(place, _)| place).collect()
}

/// Once every log set is covered: whether a log server that has not answered may still do so, and how long to wait
/// for it.
fn others(
    context: &Context,
    generation: &LogGeneration,
    answers: &[Option<SealReply>],
    damaged: &BTreeSet<usize>,
) -> (bool, Duration) {
    let silent = (0..answers.len()).filter(|i| answers[*i].is_none() && !damaged.contains(i));
    let is_planted = planted!(
        "shorter_log_is_believed",
        "a recovery ends the log where one server's disk ends that has lost what it acknowledged"
    );
    if has_stayed_everywhere(generation, answers) || is_planted {
        let mut silent = silent.map(|place| &generation.logs[place]);
        return (silent.any(|log| may_answer(context, log)), GRACE);
    }
    (silent.count() > 0, GRACE_FOR_WITNESSES)
}

/// True if it answered and did not come back from its disk: then it still has all that it acknowledged.
fn has_stayed(answer: &Option<SealReply>) -> bool {
    answer.as_ref().is_some_and(|answer| !answer.came_back)
}

/// True if a member of each log set did.
fn has_stayed_everywhere(generation: &LogGeneration, answers: &[Option<SealReply>]) -> bool {
    let stayed: Vec<bool> = answers.iter().map(has_stayed).collect();
    generation.covers_every_set(&stayed)
}

/// True while nothing shows that the log server is gone.
fn may_answer(context: &Context, log: &Interface) -> bool {
    let address = address_now(&context.workers, log);
    let transport = &context.transport;
    transport.refusals(address) == 0 && !transport.unreachable().contains(&address)
}

/// The versions that a log server lacks, for people.
fn of_holes(answer: &SealReply) -> String {
    let holes = answer.lost.iter().take(HOLES_TOLD);
    let holes = holes.map(|(after, up_to)| format!("versions {} to {up_to}", after + 1));
    holes.collect::<Vec<_>>().join(", ")
}

/// Says what the recovery waits for.
fn tell_missing(
    context: &Context,
    generation: &LogGeneration,
    answers: &[Option<SealReply>],
    damaged: &BTreeSet<usize>,
    set_back: &BTreeMap<usize, (Version, Witnessed)>,
) {
    let what = missing_logs(context, generation, answers, damaged, set_back);
    trace!("WaitingForOldLogs", "epoch" => generation.epoch, "for" => what);
    context.phase.wait_for(what);
}

/// The log servers that have not answered, or lack what no other has, with their last known addresses, for people.
fn missing_logs(
    context: &Context,
    generation: &LogGeneration,
    answers: &[Option<SealReply>],
    damaged: &BTreeSet<usize>,
    set_back: &BTreeMap<usize, (Version, Witnessed)>,
) -> String {
    let is_missing = |place: &usize| answers[*place].is_none() || damaged.contains(place);
    let silent = (0..generation.logs.len()).filter(is_missing);
    let silent = silent.map(|place| {
        let log = &generation.logs[place];
        let at = address_now(&context.workers, log);
        let why = match (damaged.contains(&place), &answers[place]) {
            (true, Some(answer)) => format!(", whose files are damaged at {}", of_holes(answer)),
            (true, None) => match set_back.get(&place) {
                Some((end, Witnessed { version, who })) => format!(
                    ", whose files were set back: they end at version {end}, and {version} was committed, says {who}"
                ),
                None => ", whose files are damaged".to_owned(),
            },
            (false, _) => String::new(),
        };
        format!("{at} (log {}{why})", log.id)
    });
    let silent: Vec<String> = silent.collect();
    format!(
        "log servers of epoch {} that do not answer or are damaged, and without which some of the log is not there: \
         {}",
        generation.epoch,
        silent.join(", ")
    )
}

/// Leaves out log servers that lack what was committed, and returns their places and ends. What is known committed was
/// on every log server's disk. A server that no longer has it is damaged at its end, where damage looks like a torn
/// write, or has older files, and its answer says nothing about the log. One that never went away has all that it
/// acknowledged: `witnessed`, which others say, is only about those that came back.
fn leave_out_damaged(
    answers: &mut [Option<SealReply>],
    witnessed: Version,
) -> Vec<(usize, Version)> {
    let known_committed = answers.iter().flatten().map(|a| a.known_committed).max();
    let is_believed = fault::is_planted("shorter_log_is_believed");
    let lacks = |answer: &SealReply| {
        let end = answer.durable.version();
        Some(end) < known_committed || (answer.came_back && end < witnessed && !is_believed)
    };
    let mut damaged = Vec::new();
    for (place, answer) in answers.iter_mut().enumerate() {
        if let Some(lacking) = answer.take_if(|answer| lacks(answer)) {
            damaged.push((place, lacking.durable.version()));
        }
    }
    damaged
}

/// Computes (PEV, RV): the versions up to PEV are where they belong, those above PEV up to RV are copied, and those
/// above RV never happened (FDB §2.4.4, pitfall 13).
///
/// RV must not be below an acknowledged version, and an acknowledged version is on every log server's disk. So RV is
/// the newest version that every log server which answered has, as far as it knows. A log server that came back from
/// its disk does not know: a disk whose syncs lie, or that has lost a write, has less than was acknowledged, and
/// looks as if it had never had more. So only the log servers that never went away bound RV; if there are none, RV is
/// the newest version that any log server has. In both cases some member of each log set must have everything up to
/// RV.
fn end_of_log(generation: &LogGeneration, answers: &[Option<SealReply>]) -> (Version, Version) {
    let everybody = answers.iter().all(Option::is_some);
    let answered: Vec<bool> = answers.iter().map(Option::is_some).collect();
    assert!(
        generation.covers_every_set(&answered) && answered.contains(&true),
        "a log set of epoch {} has no member that answered: {answered:?}",
        generation.epoch
    );
    let answers_there = || answers.iter().flatten();
    let known_committed = answers_there()
        .map(|a| a.known_committed)
        .max()
        .expect("somebody answered");
    let on_all = answers_there().map(|a| a.durable.version()).min();
    let on_all = on_all.expect("somebody answered");
    let stayed = answers.iter().filter(|a| has_stayed(a)).flatten();
    let at_most = stayed.map(|a| a.durable.version()).min();
    let on_every_set = |version: &Version| {
        let have = |answer: &Option<SealReply>| {
            answer
                .as_ref()
                .is_some_and(|a| a.durable.version() >= *version)
        };
        generation.covers_every_set(&answers.iter().map(have).collect::<Vec<_>>())
    };
    let candidates = answers_there().map(|a| a.durable.version());
    let candidates = candidates.filter(|v| at_most.is_none_or(|most| *v <= most));
    let recovered_to = candidates.filter(on_every_set).max().unwrap_or(on_all);
    let recovered_to = if planted!(
        "recovery_keeps_unfinished",
        "a recovery keeps versions that some log server does not have on disk"
    ) {
        answers_there()
            .map(|a| a.durable.version())
            .max()
            .unwrap_or(on_all)
    } else if planted!(
        "recovery_ends_too_early",
        "a recovery keeps only what was known to be committed, not all that was"
    ) {
        known_committed
    } else if fault::is_planted("shorter_log_is_believed") {
        on_all
    } else {
        recovered_to
    };
    if recovered_to > on_all {
        probe!("recovery_keeps_what_a_log_has_lost");
    }
    assert!(
        known_committed <= on_all,
        "version {known_committed} is known committed, but some log server has only {on_all} on disk"
    );
    assert!(
        known_committed <= recovered_to,
        "version {known_committed} is known committed, and the log is to end at {recovered_to}"
    );
    if everybody {
        return (on_all.min(recovered_to), recovered_to);
    }
    (known_committed, recovered_to)
}

/// Replays the stream of system mutations.
fn system_rows(
    runs: impl Iterator<Item = bytes::Bytes>,
) -> Result<Vec<(bytes::Bytes, bytes::Bytes)>> {
    let mut rows: BTreeMap<bytes::Bytes, bytes::Bytes> = BTreeMap::new();
    for run in runs {
        let batch = MutationBatch::parse(run).ok_or(Error::file_corrupt)?;
        batch
            .iter_owned()
            .for_each(|mutation| apply(&mut rows, &mutation));
    }
    Ok(rows.into_iter().collect())
}

fn apply(rows: &mut BTreeMap<bytes::Bytes, bytes::Bytes>, mutation: &Mutation) {
    match mutation.kind {
        MutationKind::Set => drop(rows.insert(mutation.first.clone(), mutation.second.clone())),
        MutationKind::ClearRange => {
            rows.retain(|key, _| *key < mutation.first || *key >= mutation.second)
        }
        kind => {
            let existing = rows.get(&mutation.first).map(|v| &v[..]);
            match plinth_core::atomic::apply(kind, existing, &mutation.second) {
                Some(value) => drop(rows.insert(mutation.first.clone(), value)),
                None => drop(rows.remove(&mutation.first)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_core::Uid;
    use plinth_protocol::DurableVersion;

    fn generation(logs: usize, replication: u32) -> LogGeneration {
        let log = |i: usize| Interface::new(([10, 0, 0, i as u8], 1).into(), Uid(i as u128));
        LogGeneration {
            epoch: 1,
            logs: (0..logs).map(log).collect(),
            replication,
            tags_a_set: 1,
            start: 1,
            recovered_to: 0,
        }
    }

    fn answer(durable: Version, known_committed: Version) -> Option<SealReply> {
        Some(SealReply {
            durable: DurableVersion::of_nothing(durable),
            known_committed,
            came_back: false,
            lost: vec![],
        })
    }

    fn from_disk(durable: Version, known_committed: Version) -> Option<SealReply> {
        let answer = answer(durable, known_committed);
        answer.map(|answer| SealReply {
            came_back: true,
            ..answer
        })
    }

    #[test]
    fn the_log_ends_at_the_lowest_durable_version_of_those_that_answered() {
        let answers = [answer(30, 10), None, answer(25, 20)];
        assert_eq!(end_of_log(&generation(3, 2), &answers), (20, 25));
    }

    #[test]
    fn what_every_log_server_has_on_disk_is_as_good_as_committed() {
        let answers = [answer(30, 10), answer(25, 20)];
        assert_eq!(end_of_log(&generation(2, 2), &answers), (25, 25));
    }

    #[test]
    fn a_log_server_whose_disk_has_lost_what_it_acknowledged_does_not_say_where_the_log_ends() {
        // Version 30 was acknowledged by both.
        let answers = [answer(30, 10), from_disk(20, 10)];
        assert_eq!(end_of_log(&generation(2, 2), &answers), (20, 30));
        // The other one came back from its disk too, and has more.
        let answers = [from_disk(30, 10), from_disk(20, 10)];
        assert_eq!(end_of_log(&generation(2, 2), &answers), (20, 30));
        // A log server that does not answer may have less than the others.
        let answers = [answer(30, 10), from_disk(20, 15), None];
        assert_eq!(end_of_log(&generation(3, 3), &answers), (15, 30));
    }

    #[test]
    fn a_version_that_a_log_set_has_lost_with_all_its_members_cannot_be_kept() {
        let answers = [answer(30, 10), from_disk(20, 10), from_disk(25, 10)];
        assert_eq!(end_of_log(&generation(3, 2), &answers), (20, 25));
    }

    #[test]
    fn what_a_log_server_that_stayed_does_not_have_was_not_acknowledged() {
        let answers = [from_disk(40, 10), answer(30, 10), from_disk(20, 10)];
        assert_eq!(end_of_log(&generation(3, 3), &answers), (20, 30));
    }

    #[test]
    fn holes_of_log_servers_matter_where_no_other_member_of_a_set_has_what_is_in_them() {
        let holed = |lost: &[(Version, Version)]| {
            let answer = from_disk(100, 10);
            answer.map(|answer| SealReply {
                lost: lost.to_vec(),
                ..answer
            })
        };
        let two = generation(2, 2);
        let apart = [holed(&[(10, 20), (50, 60)]), holed(&[(20, 30), (0, 5)])];
        assert!(with_holes(&two, &apart).is_empty());
        let overlap = [holed(&[(10, 20)]), holed(&[(19, 30)])];
        assert_eq!(with_holes(&two, &overlap), [0, 1]);
        let beside_a_whole_one = [holed(&[(10, 20)]), answer(100, 10)];
        assert!(with_holes(&two, &beside_a_whole_one).is_empty());
        // The set of the last two has no other member.
        let three = [answer(100, 10), holed(&[(10, 20)]), holed(&[(15, 16)])];
        assert_eq!(with_holes(&generation(3, 2), &three), [1, 2]);
        assert!(with_holes(&generation(3, 3), &three).is_empty());
        // The other one has lost the end of the log, or was never asked to take it.
        let lost_its_end = [holed(&[(30, 40)]), from_disk(20, 10)];
        assert_eq!(with_holes(&two, &lost_its_end), [0]);
        let not_acknowledged = [holed(&[(30, 40)]), answer(20, 10)];
        assert!(with_holes(&two, &not_acknowledged).is_empty());
    }

    #[test]
    fn a_log_server_that_lacks_a_committed_version_is_left_out() {
        let mut answers = [answer(30, 10), answer(15, 10), None, answer(25, 20)];
        assert_eq!(leave_out_damaged(&mut answers, 0), [(1, 15)]);
        assert_eq!(answers, [answer(30, 10), None, None, answer(25, 20)]);
        assert_eq!(end_of_log(&generation(4, 3), &answers), (20, 25));
        assert!(leave_out_damaged(&mut answers, 0).is_empty());
    }

    #[test]
    fn a_log_server_that_came_back_without_what_others_know_to_be_committed_is_left_out() {
        let mut answers = [from_disk(30, 10), from_disk(20, 10), answer(22, 10)];
        assert!(leave_out_damaged(&mut answers, 20).is_empty());
        assert_eq!(leave_out_damaged(&mut answers, 25), [(1, 20)]);
        assert_eq!(answers, [from_disk(30, 10), None, answer(22, 10)]);
        assert_eq!(leave_out_damaged(&mut answers, 31), [(0, 30)]);
    }

    #[test]
    #[should_panic(expected = "known committed")]
    fn a_log_never_ends_below_what_is_known_committed() {
        end_of_log(&generation(2, 2), &[answer(5, 5), answer(4, 4)]);
    }
}
