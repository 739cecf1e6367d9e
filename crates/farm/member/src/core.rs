//! What all tasks of a member share: what it knows of the membership, and its clock.

use crate::frame::{self, Frame, What};
use crate::life::Life;
use crate::post::Post;
use crate::record::{Record, Seat};
use crate::register::Register;
use crate::view::{Left, View};
use bytes::Bytes;
use plinth_core::codec::Codec;
use plinth_farm_fabric::{Fabric, Machine};
use plinth_farm_time::{Body, Clock, MemberId, Notice, Server};
use plinth_runtime::sync::{Notify, Watch};
use plinth_runtime::{nobody_has_lied, probe, trace, trace_warn};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

/// A larger record is not sent: whoever needs it reads it.
const TAKEN_BYTES_MAX: usize = 64 << 10;

/// Replicas that were reported as whole, in the configuration with this number.
#[derive(Default)]
pub(crate) struct Reported {
    pub number: u64,
    /// Machine and region.
    pub replicas: BTreeSet<(u16, u16)>,
}

pub(crate) struct Core<F, R> {
    pub fabric: Rc<F>,
    pub register: R,
    pub clock: Rc<Clock>,
    pub own: Seat,
    pub life: Life,
    pub post: Post<F>,
    record: RefCell<Rc<Record>>,
    /// This life was in a record.
    has_entered: Cell<bool>,
    pub view: Watch<Option<View>>,
    pub left: Watch<Option<Left>>,
    /// A newer record is known.
    pub news: Notify,
    /// There is something to decide.
    pub kick: Notify,
    /// The register has something newer.
    pub is_outdated: Cell<bool>,
    /// A message has come.
    pub stirred: Notify,
    pub reported: RefCell<Reported>,
    /// Called before another machine is opened.
    pub meet: Box<dyn Fn(&Seat)>,
    /// Called before the fabric takes the configuration with this number.
    pub closing: Option<Box<dyn Fn(u64)>>,
    /// Somebody wants the configuration with this number to be followed by one of the same members. 0: nobody.
    pub anew: Cell<u64>,
    pub may_renumber: bool,
}

impl<F: Fabric + 'static, R: Register + 'static> Core<F, R> {
    pub fn new(parts: (Rc<F>, R, Seat, Life), server: Server, record: Record) -> Core<F, R> {
        let (fabric, register, own, life) = parts;
        let kick = Notify::new();
        Core {
            post: Post::new(fabric.clone(), kick.clone()),
            fabric,
            register,
            clock: Rc::new(Clock::new(server)),
            own,
            life,
            record: RefCell::new(Rc::new(record)),
            has_entered: Cell::new(false),
            view: Watch::new(None),
            left: Watch::new(None),
            news: Notify::new(),
            kick,
            is_outdated: Cell::new(true),
            stirred: Notify::new(),
            reported: RefCell::default(),
            meet: Box::new(|_| ()),
            closing: None,
            may_renumber: false,
            anew: Cell::new(0),
        }
    }

    pub fn id(&self) -> MemberId {
        self.own.id
    }

    /// The newest one that is known.
    pub fn record(&self) -> Rc<Record> {
        self.record.borrow().clone()
    }

    pub fn has_left(&self) -> bool {
        self.left.with(Option::is_some)
    }

    pub fn has_entered(&self) -> bool {
        self.has_entered.get()
    }

    /// For good.
    pub fn leave(&self, why: Left) {
        self.clock.update(|server, _| server.leave());
        if !self.has_left() {
            trace_warn!("FarmMemberLeft", "id" => format!("{:?}", self.id()), "why" => why);
            self.left.set(Some(why));
            self.kick.notify_all();
            self.news.notify_all();
        }
    }

    /// Moves the server on, and sends what it has to say.
    pub fn update<T>(&self, change: impl FnOnce(&mut Server, u64) -> T) -> T {
        let (changed, messages, notices, number) = self.clock.update(|server, now| {
            let changed = change(server, now);
            let number = server.configuration().map_or(0, |c| c.number);
            let (messages, notices) = (server.take_messages(), server.take_notices());
            (changed, messages, notices, number)
        });
        if number > self.record().number() {
            // It has heard of the configuration before the record was read.
            self.outdate();
        }
        for (to, message) in messages {
            let number = message.number;
            if matches!(message.body, Body::NewConfig { .. }) {
                self.send_taken(to, number);
            }
            self.send(to, number, What::Time(message));
        }
        for notice in notices {
            match notice {
                Notice::Outdated { .. } => self.outdate(),
                Notice::Broken => self.leave(Left::Broken),
                Notice::Drifting { master, rate } => trace_warn!(
                    "FarmClockDrifts",
                    "master" => format!("{master:?}"),
                    "rate" => format!("{rate:?}"),
                ),
            }
        }
        changed
    }

    /// The register has something newer than is known here.
    pub fn outdate(&self) {
        self.is_outdated.set(true);
        self.kick.notify_all();
    }

    /// Tells a member the record that has the configuration with this number, so that it need not read the register.
    fn send_taken(&self, to: MemberId, number: u64) {
        let record = self.record();
        if record.number() == number && record.to_bytes().len() <= TAKEN_BYTES_MAX {
            self.send(to, number, What::Taken(Record::clone(&record)));
        }
    }

    pub fn send(&self, to: MemberId, number: u64, what: What) {
        let record = self.record();
        let Some(seat) = record.seat_of(to) else {
            return;
        };
        let from = self.id();
        let frame = Frame { from, to, what };
        self.post
            .send(seat.machine, number, frame::to_bytes(&frame));
    }

    /// Takes a message of the fabric whose first byte is [`frame::TAG`].
    pub fn receive(&self, from: Machine, bytes: Bytes) {
        let Some(frame) = frame::from_bytes(bytes) else {
            probe!("farm_member_frame_malformed");
            return;
        };
        if frame.to != self.id() || self.has_left() {
            return; // for another life of this machine
        }
        let record = self.record();
        let is_known = |seat: &Seat| seat.machine == from.0;
        if !record.seat_of(frame.from).is_some_and(is_known) {
            self.outdate();
            return;
        }
        match frame.what {
            What::Time(message) => {
                // What it has to say next is said now, and not a tick later.
                self.update(|server, now| {
                    server.receive(frame.from, &message, now);
                    server.tick(now);
                });
                self.stirred.notify_all();
            }
            What::News(revision) if revision > record.revision => self.outdate(),
            What::News(_) => (),
            What::Taken(taken) => {
                let is_ours = taken.cluster == record.cluster && taken.is_sane();
                if is_ours && taken.revision > record.revision {
                    self.learn(taken);
                    self.kick.notify_all();
                }
            }
            What::Anew(number) => self.note_anew(number),
            What::Whole { number, regions } => self.note_whole(number, from.0, &regions),
        }
    }

    /// Somebody cannot go on in the configuration with this number. If there is another one, that is settled.
    pub fn note_anew(&self, number: u64) {
        if number == self.record().number() && self.anew.replace(number) != number {
            self.kick.notify_all();
        }
    }

    /// These replicas are whole, if the present configuration is that with `number`.
    pub fn note_whole(&self, number: u64, machine: u16, regions: &[u16]) {
        let record = self.record();
        if number != record.number() {
            return;
        }
        let mut reported = self.reported.borrow_mut();
        if reported.number != number {
            *reported = Reported {
                number,
                ..Reported::default()
            };
        }
        for region in regions {
            let replicas = record.regions.get(usize::from(*region));
            let mut replicas = replicas.into_iter().flatten();
            if replicas.any(|r| r.machine == machine && !r.is_whole)
                && reported.replicas.insert((machine, *region))
            {
                self.kick.notify_all();
            }
        }
    }

    /// A record that the register has, or has had.
    pub fn learn(&self, record: Record) {
        if record.revision <= self.record().revision && self.has_entered() {
            return;
        }
        let (before, number) = (self.record().number(), record.number());
        assert!(
            before <= number || !nobody_has_lied(),
            "revision {} has configuration {number}, after {before}",
            record.revision
        );
        let is_in = record.seat_of(self.id()).is_some() || record.is_waiting(self.id());
        let has_gone = self.has_entered() && !is_in;
        let was_waiting = self.record().is_waiting(self.id());
        let is_taken = was_waiting && record.has_elsewhere(&self.own);
        let (configuration, restored) = (record.configuration.clone(), record.restored);
        trace!(
            "FarmRecord",
            "revision" => record.revision,
            "number" => record.number(),
            "members" => record.machines.len(),
        );
        let lost = record.lost().count();
        if lost > 0 {
            trace_warn!("FarmRegionsLost", "regions" => lost, "number" => record.number());
        }
        self.has_entered.set(is_in || self.has_entered());
        *self.record.borrow_mut() = Rc::new(record);
        if let Some(configuration) = configuration {
            self.update(|server, now| {
                restored.into_iter().for_each(|r| server.learn_restored(r));
                server.learn(configuration, now);
            });
        }
        if has_gone {
            self.leave(if is_taken { Left::Taken } else { Left::Removed });
        }
        self.news.notify_all();
        self.stirred.notify_all();
        self.show();
    }

    /// Reads the register.
    pub async fn read(&self) {
        self.is_outdated.set(false);
        match self.register.read().await {
            Ok(Some(record)) if record.cluster == self.record().cluster => self.learn(record),
            Ok(_) => self.leave(Left::Refused(
                "the register has another cluster: check the cluster file".to_owned(),
            )),
            Err(error) => {
                trace!("FarmRegisterUnreadable", "error" => error);
                self.is_outdated.set(true);
            }
        }
    }

    /// Shows the view to who follows it, if it is another one than before.
    pub fn show(&self) {
        let record = self.record();
        let number = record.number();
        if number == 0 || self.post.configured.get() != number || self.has_left() {
            return;
        }
        let is_committed = self.clock.update(|server, _| {
            let is_of_record = server.configuration().map(|c| c.number) == Some(number);
            is_of_record && server.is_committed()
        });
        let is_shown = |view: &Option<View>| {
            let shows = |view: &View| {
                view.record.revision == record.revision && view.is_committed == is_committed
            };
            view.as_ref().is_some_and(shows)
        };
        if !self.view.with(is_shown) {
            // The fabric is in the configuration, so this life is a member of it.
            assert!(
                record.seat_of(self.id()).is_some() || !nobody_has_lied(),
                "configuration {number} is shown to {:?}, which is no member",
                self.id()
            );
            trace!("FarmViewShown", "number" => number, "is_committed" => is_committed);
            self.kick.notify_all();
            self.view.set(Some(View {
                record,
                is_committed,
            }));
        }
    }
}
