//! The register of one set of coordinators, read and written on a majority of them (disk Paxos, FDB §2.3.1).

use crate::ClusterFile;
use crate::look::{Look, together};
use crate::owner::{self, Whose, whose};
use plinth_core::{Error, Result, Uid};
use plinth_protocol::coordination::{
    CoordinatedValue, Generation, ReadRegister, ReadRegisterReply, WriteRegister,
    WriteRegisterReply, ask,
};
use plinth_rpc::{Request, Transport};
use plinth_runtime::sync::QueueReceiver;
use plinth_runtime::{
    Boxed, Duration, Instant, TaskGroup, buggify, fault, planted, probe, sync, trace,
};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A coordinator that has not answered within this time is asked again.
const RETRY: Duration = Duration::from_millis(1000);
/// How long the write of a successor is repeated to the coordinators outside the majority.
const TELL_ALL: Duration = Duration::from_secs(5);
/// If a majority has no value, the other coordinators are waited for this long: one of them may have one.
const NOTHING_GRACE: Duration = Duration::from_secs(1);

/// Pause of a reader that others have outrun: those who meet must not go on doing so.
const OUTRUN_PAUSE_MS: std::ops::Range<u64> = 5..50;

/// A coordinator refuses the state of another system with this.
pub(crate) const OF_ANOTHER_SYSTEM: Error = Error::wrong_connection_file;

/// What was read from a majority.
pub(crate) struct Found {
    pub value: Option<CoordinatedValue>,
    /// True if a majority has this very value, or if it says that the state has moved. Otherwise another reader may
    /// miss it, and nothing may follow from it before it is written again (pitfall 32).
    pub is_settled: bool,
}

/// The coordinators that a read or a write waits for, for people.
#[derive(Clone)]
pub struct Unheard {
    file: ClusterFile,
    /// How each one that was asked and has not answered is, by its number.
    looks: Rc<RefCell<BTreeMap<usize, Look>>>,
}

impl Unheard {
    fn new(file: &ClusterFile) -> Self {
        let (file, looks) = (file.clone(), Rc::default());
        Unheard { file, looks }
    }

    fn note(&self, coordinator: usize, look: Look) {
        self.looks.borrow_mut().insert(coordinator, look);
    }

    fn has_answered(&self, coordinator: usize) {
        self.looks.borrow_mut().remove(&coordinator);
    }

    /// `None` if nothing is under way that lacks an answer.
    pub fn told(&self) -> Option<String> {
        let (looks, all) = (self.looks.borrow(), &self.file.coordinators);
        let said = looks.iter().map(|(i, look)| (&all[*i], look.to_string()));
        let (needed, of) = (self.file.majority(), all.len());
        (!looks.is_empty()).then(|| {
            let who = together(said);
            format!("coordinators that do not take part: {who}; {needed} of {of} are needed")
        })
    }
}

/// A coordinator is told that the state has moved when the next ones have it. So one that says so is enough: the
/// others of the former set may be gone for good.
fn says_moved(reply: &ReadRegisterReply) -> bool {
    reply.value.as_ref().is_some_and(|value| value.moved)
}

pub(crate) struct Register {
    transport: Transport,
    pub file: ClusterFile,
    generation: Generation,
    /// Who holds which database, if the last read could not tell whose state counts.
    pub divided: Option<String>,
    pub unheard: Unheard,
}

impl Register {
    /// `writer` distinguishes attempts with the same number: no two living registers may share one.
    pub fn new(transport: &Transport, file: ClusterFile, writer: Uid) -> Self {
        Register {
            transport: transport.clone(),
            unheard: Unheard::new(&file),
            file,
            generation: Generation { number: 0, writer },
            divided: None,
        }
    }

    /// Reads the newest value and fences all earlier readers' writes. Waits until a majority answers.
    /// [`Error::invalid_cluster_id`] if they hold states of two databases.
    pub fn read(&mut self) -> Boxed<'_, Result<Found>> {
        Box::pin(async move {
            // The first attempt of a process finds out how far others are. It has met nobody for that.
            let mut has_met = self.generation.number > 0;
            loop {
                self.generation.number += 1;
                let request = ReadRegister {
                    register: self.file.register(),
                    generation: self.generation,
                };
                let majority = self.file.majority();
                let is_open = |replies: &[ReadRegisterReply]| {
                    let has_nothing = |reply: &ReadRegisterReply| reply.value.is_none();
                    replies.iter().all(has_nothing) || !owner::is_sure(replies, majority)
                };
                let (from, mut replies) = self.ask_majority(request, is_open, moves).await?;
                if let Some(found) = moved(&replies, majority) {
                    return Ok(found);
                }
                self.divided = None;
                match whose(&replies, majority) {
                    Whose::One => {}
                    Whose::Mostly(owner) => {
                        probe!("coordinators_of_two_databases");
                        owner::only(&owner, &mut replies);
                    }
                    Whose::Divided => {
                        probe!("coordinators_are_divided");
                        let told: Vec<_> = from.iter().copied().zip(&replies).collect();
                        self.divided = Some(owner::divided(&self.file.coordinators, &told));
                        return Err(Error::invalid_cluster_id);
                    }
                }
                let highest = replies
                    .iter()
                    .map(|r| r.read_generation)
                    .max()
                    .expect("a majority answered");
                if highest > self.generation {
                    probe!("coordinated_state_read_outrun");
                    assert!(
                        highest.number >= self.generation.number,
                        "the generation of a reader goes back from {:?} to {highest:?}",
                        self.generation
                    );
                    self.generation.number = highest.number;
                    if std::mem::replace(&mut has_met, true) {
                        let pause = plinth_runtime::random::range(OUTRUN_PAUSE_MS);
                        plinth_runtime::sleep(Duration::from_millis(pause)).await;
                    }
                    continue;
                }
                return Ok(found(replies, majority));
            }
        })
    }

    /// Reads the newest value and fences nobody. `None` if a majority is not known to have it: then nothing may follow
    /// from it. Waits until a majority answers.
    pub fn peek(&self) -> Boxed<'_, Option<Option<CoordinatedValue>>> {
        Box::pin(async move {
            let request = ReadRegister {
                register: self.file.register(),
                generation: Generation::default(),
            };
            let majority = self.file.majority();
            let is_open = |replies: &[ReadRegisterReply]| {
                let newest = replies.iter().map(|reply| reply.write_generation).max();
                let have_it = replies.iter().map(|reply| Some(reply.write_generation));
                have_it.filter(|of| *of == newest).count() < majority
            };
            let (_, mut replies) = self.ask_majority(request, is_open, moves).await.ok()?;
            if let Some(found) = moved(&replies, majority) {
                return Some(found.value);
            }
            match whose(&replies, majority) {
                Whose::One => {}
                Whose::Mostly(owner) => owner::only(&owner, &mut replies),
                Whose::Divided => return None,
            }
            let found = found(replies, majority);
            found.is_settled.then_some(found.value)
        })
    }

    /// Like [`read`](Self::read), and ensures that a majority has the value. Fails if there was another reader since.
    pub fn read_settled(&mut self) -> Boxed<'_, Result<Option<CoordinatedValue>>> {
        Box::pin(async move {
            loop {
                let found = self.read().await?;
                let Some(value) = found.value else {
                    return Ok(None);
                };
                if found.is_settled
                    || planted!(
                        "minority_is_enough",
                        "what a minority of the coordinators has is acted on before a majority has it"
                    )
                {
                    return Ok(Some(value));
                }
                probe!("coordinated_state_settled");
                self.write(value).await?; // then once more: the next write needs a read of its own
            }
        })
    }

    /// Replaces the value read. Fails if there was another reader since. A second write needs a read of its own.
    pub fn write(&mut self, value: CoordinatedValue) -> Boxed<'_, Result<()>> {
        Box::pin(async move {
            assert!(
                self.generation.number > 0,
                "a register is written that was not read: no other writer is fenced"
            );
            let request = WriteRegister {
                register: self.file.register(),
                generation: self.generation,
                value,
            };
            if ends_in_the_middle() {
                self.tell_one(request).await;
                return Err(Error::coordinated_state_conflict);
            }
            // The others may be gone for good, because the state has moved.
            let is_refused = |reply: &WriteRegisterReply| match reply.accepted {
                true => Suffices::No,
                false => Suffices::AtOnce,
            };
            let (_, replies) = self.ask_majority(request, |_| false, is_refused).await?;
            if replies.iter().all(|reply| reply.accepted) {
                return Ok(());
            }
            probe!("coordinated_state_conflict");
            Err(Error::coordinated_state_conflict)
        })
    }

    /// False if the coordinators refuse every state of its system. The first generation writes nothing.
    pub async fn would_take(&self, value: CoordinatedValue) -> bool {
        let request = WriteRegister {
            register: self.file.register(),
            generation: Generation::default(),
            value,
        };
        let asked = self.ask_majority(request, |_| false, |_| Suffices::No);
        asked.await.is_ok()
    }

    /// Repeats the last write to all coordinators: it may have reached only a majority.
    pub fn tell_all(&self, value: CoordinatedValue) {
        let calls = self.file.coordinators.iter().map(|place| {
            let request = WriteRegister {
                register: self.file.register(),
                generation: self.generation,
                value: value.clone(),
            };
            ask(&self.transport, place, request)
        });
        let all = plinth_runtime::join_all(calls.collect::<Vec<_>>());
        plinth_runtime::spawn("tell coordinators", async move {
            plinth_runtime::timeout(TELL_ALL, all).await; // who is away for longer is never told
        })
        .detach();
    }

    /// Writes to one coordinator only, like a writer that ends on the way.
    async fn tell_one(&self, request: WriteRegister) {
        let chosen = plinth_runtime::random::below(self.file.coordinators.len() as u64);
        let place = &self.file.coordinators[chosen as usize];
        probe!("coordinated_state_on_a_minority");
        plinth_runtime::timeout(RETRY, ask(&self.transport, place, request)).await;
    }

    /// Asks each coordinator until it answers, or refuses as one of another system. Gives each answer with the number
    /// of its coordinator.
    fn ask_each<R: Request + Clone>(
        &self,
        request: R,
    ) -> (TaskGroup, QueueReceiver<(usize, Result<R::Reply>)>) {
        let (sender, replies) = sync::queue();
        let tasks = TaskGroup::new();
        self.unheard.looks.borrow_mut().clear();
        for (i, place) in self.file.coordinators.iter().enumerate() {
            let (place, unheard) = (place.clone(), self.unheard.clone());
            let (transport, request, sender) =
                (self.transport.clone(), request.clone(), sender.clone());
            tasks.spawn("ask coordinator", async move {
                loop {
                    match plinth_runtime::timeout(RETRY, ask(&transport, &place, request.clone()))
                        .await
                    {
                        Some(answer @ (Ok(_) | Err(OF_ANOTHER_SYSTEM))) => {
                            unheard.has_answered(i);
                            let _ = sender.send((i, answer)); // enough others may have answered
                            return;
                        }
                        Some(Err(error)) => {
                            trace!("CoordinatorUnavailable", "address" => place, "error" => error);
                            unheard.note(i, look_of(error));
                            plinth_runtime::sleep(Duration::from_millis(100)).await;
                        }
                        None => unheard.note(i, Look::Silent),
                    }
                }
            });
        }
        (tasks, replies)
    }

    /// Returns the first majority of answers, with the numbers of the coordinators that gave them. Asks coordinators
    /// that fail again until there is one. If those answers are `few`, also waits a moment for the other
    /// coordinators. One answer that `suffices` ends it: then there may be fewer. Fails if so many are of another
    /// system that there is no majority without them ([`OF_ANOTHER_SYSTEM`]).
    async fn ask_majority<R: Request + Clone>(
        &self,
        request: R,
        few: impl Fn(&[R::Reply]) -> bool,
        suffices: impl Fn(&R::Reply) -> Suffices,
    ) -> Result<(Vec<usize>, Vec<R::Reply>)> {
        let (_asking, mut replies) = self.ask_each(request);
        let (mut from, mut answers) = (Vec::new(), Vec::new());
        let all = self.file.coordinators.len();
        let (mut end, mut strangers) = (None, 0);
        while answers.len() < self.file.majority() {
            let answer = match end {
                None => replies.recv().await,
                Some(end) => match before(end, replies.recv()).await {
                    Some(answer) => answer,
                    None => return Ok((from, answers)),
                },
            };
            let (i, answer) = answer.expect("the askers hold the sender until they have answered");
            let answer = match answer {
                Ok(answer) => answer,
                Err(error) => {
                    strangers += 1;
                    if strangers > all - self.file.majority() {
                        return Err(error);
                    }
                    continue;
                }
            };
            let suffices = suffices(&answer);
            from.push(i);
            answers.push(answer);
            match suffices {
                Suffices::No => {}
                Suffices::AtOnce => return Ok((from, answers)),
                Suffices::Alone => end = end.or(Some(plinth_runtime::now() + NOTHING_GRACE)),
            }
        }
        if end.is_some() || few(&answers) {
            let end = end.unwrap_or_else(|| plinth_runtime::now() + NOTHING_GRACE);
            while answers.len() + strangers < all {
                let Some(Some((i, answer))) = before(end, replies.recv()).await else {
                    break;
                };
                let Ok(answer) = answer else {
                    strangers += 1;
                    continue;
                };
                from.push(i);
                answers.push(answer);
            }
        }
        assert!(
            (self.file.majority()..=all).contains(&answers.len()),
            "{} answers of {all} coordinators: a majority answers, and each of them once",
            answers.len()
        );
        Ok((from, answers))
    }
}

fn look_of(error: Error) -> Look {
    match error {
        Error::connection_failed => Look::Unreached,
        error => Look::Fails(error),
    }
}

/// `None` if that takes longer than until `end`.
async fn before<T>(end: Instant, answer: impl Future<Output = T>) -> Option<T> {
    let left = end.saturating_since(plinth_runtime::now());
    plinth_runtime::timeout(left, answer).await
}

/// Whether one answer tells all.
enum Suffices {
    No,
    /// If the others are silent. What they say may be more.
    Alone,
    AtOnce,
}

/// A state is only marked as moved once the next coordinators have it, so one mark is enough, though the others may be
/// gone for good. But a coordinator that comes back with a former database's mark leads nobody away from the database
/// that the others have.
fn moves(reply: &ReadRegisterReply) -> Suffices {
    match says_moved(reply) {
        false => Suffices::No,
        true if owner::owner_in(reply).is_some() => Suffices::Alone,
        true => Suffices::AtOnce,
    }
}

fn moved(replies: &[ReadRegisterReply], majority: usize) -> Option<Found> {
    let marks = replies.iter().filter(|reply| says_moved(reply));
    let reply = marks.into_iter().find(|reply| {
        let is_foreign = owner::is_outvoted(reply, replies, majority);
        if is_foreign {
            probe!("coordinator_moved_with_another_database");
        }
        !is_foreign
    })?;
    Some(Found {
        value: reply.value.clone(),
        is_settled: true,
    })
}

fn found(replies: Vec<ReadRegisterReply>, majority: usize) -> Found {
    let newest = replies.iter().map(|reply| reply.write_generation).max();
    let mut have_it = replies
        .into_iter()
        .filter(|reply| Some(reply.write_generation) == newest);
    let first = have_it.next().expect("a majority answered");
    Found {
        value: first.value,
        is_settled: 1 + have_it.count() >= majority,
    }
}

/// True if this process should act as if it ended during a write.
fn ends_in_the_middle() -> bool {
    // Readers that act on a value of a minority are planted together with writers that reach only a minority.
    let planted = fault::is_planted("minority_is_enough") && plinth_runtime::random::chance(0.3);
    planted || buggify!(0.05)
}
