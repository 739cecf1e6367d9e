//! All kinds of requests to the same few nodes, by clients of several gateways. Everything that they were told is
//! kept, and judged as one history when all is over.
//!
//! - Each write that was answered has a place: its zxid. A model of the tree to which the writes are applied in this
//!   order gives each answer, to the last number of each `Stat`.
//! - Each read is answered as the model has it at the zxid of the answer.
//! - A place that was answered is behind all that were answered before the request was sent. No session goes back.
//! - A request without an answer has happened once or not at all, in its turn. Nothing else has happened.
//! - The end of a session takes its ephemeral nodes, and nothing happens for the session afterwards.
//! - Watches tell of each change once, before the client sees it, also if it has gone to another gateway meanwhile.

mod draw;
mod judge;
mod model;
mod past;
mod stream;
mod watched;

use super::asking::{ANSWER_LIMIT, ask, flags, sync};
use super::{Keeping, Me, quotas};
use crate::client::{Client, Told};
use crate::life::Options;
use crate::wire::{Answer, Code, Request, Text, WatchEvent, event};
use draw::Drawing;
pub use model::LIMITED;
use model::{BASE, BYTES_MAX, NODES_MAX};
use plinth_client::Database;
use plinth_runtime::random::{below, chance};
use plinth_runtime::{Duration, Instant, now, probe, sleep, sleep_until, timeout};
use plinth_workload::{Day, Verdict};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use stream::Followed;
use watched::{Kind, Of};

/// Requests that a client sends before it waits for answers.
const TOGETHER_MAX: u64 = 6;
/// Clients meet so often, to ask for the same things at the same time.
const MEETING: Duration = Duration::from_millis(400);
/// How long it may take until no session has ephemeral nodes.
const END_LIMIT: Duration = Duration::from_secs(120);

/// A request, and what its client was told.
pub struct Asked {
    session: i64,
    /// Number of the connection.
    connection: usize,
    request: Request,
    /// Of the steps that all clients take: when it was sent, and when it was answered.
    sent: u64,
    answered: u64,
    /// `None` if there was no answer.
    told: Option<(i64, Result<Answer, Code>)>,
}

/// What was heard on a connection besides answers.
pub struct Connection {
    session: i64,
    /// Events, each with the last zxid that was answered before it.
    heard: Vec<(i64, WatchEvent)>,
}

/// See the module.
#[derive(Default)]
pub struct History {
    steps: Cell<u64>,
    asked: RefCell<Vec<Asked>>,
    connections: RefCell<Vec<Connection>>,
    drawing: RefCell<Drawing>,
    followed: RefCell<Followed>,
    began: Cell<Option<Instant>>,
}

/// A client with what it waits for.
struct Watcher {
    me: Me,
    watches: BTreeMap<(Of, Text), Kind>,
}

impl History {
    fn step(&self) -> u64 {
        self.steps.set(self.steps.get() + 1);
        self.steps.get()
    }

    /// Waits until all clients do something with the same node, or for as long as others think.
    async fn meet(&self, day: Day) {
        if chance(0.2) {
            self.drawing.borrow_mut().scatter();
            return day.think().await;
        }
        let began = self.began.get().unwrap_or_else(now);
        self.began.set(Some(began));
        let number = began.elapsed().as_millis() / MEETING.as_millis() + 1;
        let number = u32::try_from(number).unwrap_or(u32::MAX);
        sleep_until(began + MEETING * number).await;
        self.drawing.borrow_mut().gather(number);
    }

    fn connected(&self, client: &Client) -> usize {
        let mut connections = self.connections.borrow_mut();
        connections.push(Connection {
            session: client.session_id(),
            heard: Vec::new(),
        });
        connections.len() - 1
    }

    /// Sends some requests, and waits for their answers. False if one has none.
    async fn ask(&self, client: &Client, connection: usize, requests: Vec<Request>) -> bool {
        let send = |request: Request| {
            let answer = client.submit_for_all(request.clone());
            let asked = Asked {
                session: client.session_id(),
                connection,
                request,
                sent: self.step(),
                answered: u64::MAX,
                told: None,
            };
            (asked, answer)
        };
        let sent: Vec<_> = requests.into_iter().map(send).collect();
        let mut is_answered = true;
        for (mut asked, answer) in sent {
            let told: Option<Told> = match is_answered {
                true => timeout(ANSWER_LIMIT, answer).await,
                // Those behind it have their answers already, or get none.
                false => timeout(Duration::ZERO, answer).await,
            };
            is_answered &= matches!(told, Some(Ok(_)));
            if let Some(Ok((zxid, answer))) = told {
                asked.answered = self.step();
                self.drawing.borrow_mut().learn(&asked.request, &answer);
                asked.told = Some((zxid, answer));
            }
            self.asked.borrow_mut().push(asked);
        }
        is_answered
    }

    /// Takes the events that have come.
    async fn take_events(&self, client: &Client, connection: usize, watcher: &mut Watcher) {
        while let Some(Some(heard)) = timeout(Duration::ZERO, client.next_event_behind()).await {
            let (path, kind) = (&heard.1.path, heard.1.kind);
            if kind != event::CHILDREN_CHANGED {
                watcher.watches.remove(&(Of::Data, path.clone()));
            }
            if matches!(kind, event::CHILDREN_CHANGED | event::DELETED) {
                watcher.watches.remove(&(Of::Children, path.clone()));
            }
            self.connections.borrow_mut()[connection].heard.push(heard);
        }
    }
}

impl Watcher {
    /// Some requests. No watch is set that the client has.
    fn draw(&self, drawing: &mut Drawing) -> Vec<Request> {
        let mut set: Vec<(Of, Text)> = self.watches.keys().cloned().collect();
        let count = 1 + below(TOGETHER_MAX);
        (0..count)
            .map(|_| drawing.request(self.me.number, &mut set))
            .collect()
    }

    fn set_again(&self) -> Option<Request> {
        let of = |wanted: Kind| {
            let its = self.watches.iter().filter(|(_, kind)| **kind == wanted);
            its.map(|((_, path), _)| path.clone()).collect()
        };
        (!self.watches.is_empty()).then(|| Request::SetWatches {
            relative_zxid: self.me.session.as_ref().map_or(0, |session| session.2),
            data: of(Kind::Data),
            exist: of(Kind::Exist),
            child: of(Kind::Child),
            persistent: Vec::new(),
            recursive: Vec::new(),
            breaks_off: false,
        })
    }
}

impl Keeping {
    pub(super) async fn make_history(&self) {
        let quotas = ["", "/q"].map(|of| format!("/zookeeper/quota{BASE}{of}"));
        for path in quotas.iter().map(String::as_str).chain([BASE]) {
            self.make(path).await;
        }
        let limits = format!("byteHardLimit={BYTES_MAX};countHardLimit={NODES_MAX}");
        self.make_with(quotas::create_limits(LIMITED, &limits))
            .await;
    }

    /// What a client of the history does until the end of the day.
    pub(super) async fn live_in_history(&self, number: u64, day: Day) {
        let mut watcher = Watcher {
            me: Me {
                number,
                ..Me::default()
            },
            watches: BTreeMap::new(),
        };
        while !day.is_over() {
            if self.visit_history(&mut watcher, day).await.is_none() {
                day.think().await;
            }
        }
    }

    /// Reads the stream of changes until the end of the day, before it is cut.
    pub(super) async fn follow_history(&self, database: &Database, day: Day) {
        day.fill(async || {
            // What goes wrong goes wrong again when all is well, and is told then.
            let _ = stream::follow(database, &tree(), &self.history.followed).await;
        })
        .await;
    }

    /// One connection.
    async fn visit_history(&self, watcher: &mut Watcher, day: Day) -> Option<()> {
        let connected = self.connect(&mut watcher.me, false).await;
        if watcher.me.session.is_none() {
            watcher.watches.clear();
        }
        let client = connected?;
        let connection = self.history.connected(&client);
        // As ClickHouse's clients do before they ask for what ZooKeeper does not know.
        ask(&client, flags()).await.ok()?;
        let again = watcher.set_again();
        let mut is_good = match again {
            Some(again) => self.burst(watcher, &client, connection, vec![again]).await,
            None => true,
        };
        let mut left = 1 + below(20);
        while is_good && left > 0 && !day.is_over() {
            self.history.meet(day).await;
            self.history.take_events(&client, connection, watcher).await;
            let requests = watcher.draw(&mut self.history.drawing.borrow_mut());
            left = left.saturating_sub(requests.len() as u64);
            is_good = self.burst(watcher, &client, connection, requests).await;
        }
        if is_good && chance(0.2) {
            let close = vec![Request::CloseSession];
            is_good = self.burst(watcher, &client, connection, close).await;
            let number = watcher.me.number;
            watcher.watches.clear();
            watcher.me = Me {
                number,
                ..Me::default()
            };
        }
        is_good.then_some(())
    }

    /// Sends requests, and notes all that the client is told. False if the connection is over.
    async fn burst(
        &self,
        watcher: &mut Watcher,
        client: &Client,
        connection: usize,
        requests: Vec<Request>,
    ) -> bool {
        let began = now();
        let first = self.history.asked.borrow().len();
        let is_good = self.history.ask(client, connection, requests).await;
        self.note_broken(client);
        let of_connection = |asked: &&Asked| asked.connection == connection;
        {
            let asked = self.history.asked.borrow();
            let ours = asked[first..].iter().filter(of_connection);
            for (kind, path) in ours.flat_map(watched::watches_of) {
                watcher.watches.insert((kind.of(), path.clone()), kind);
            }
        }
        if is_good {
            watcher.me.answered = Some(began);
        }
        self.history.take_events(client, connection, watcher).await;
        watcher.me.session = Some(client.session());
        is_good
    }

    /// Waits until no session has ephemeral nodes, and reads all nodes once more.
    async fn read_history(&self) -> Verdict {
        let began = now();
        loop {
            let client = self.surely_connect().await;
            let connection = self.history.connected(&client);
            if let Some(ephemerals) = self.read_all(&client, connection).await {
                match &ephemerals[..] {
                    [] => return Ok(()),
                    left if began.elapsed() > END_LIMIT => {
                        return Err(format!("ephemeral nodes outlive their sessions: {left:?}"));
                    }
                    _ => {}
                }
            }
            sleep(Duration::from_secs(1)).await;
        }
    }

    /// Reads all nodes, and returns those that are ephemeral; `None` if the connection is over.
    async fn read_all(&self, client: &Client, connection: usize) -> Option<Vec<Text>> {
        let mut left: Vec<Text> = vec![BASE.into()];
        let mut ephemerals = Vec::new();
        while let Some(path) = left.pop() {
            let first = self.history.asked.borrow().len();
            let requests = draw::all_of(&path);
            let requests = [vec![sync(path.clone())], requests].concat();
            if !self.history.ask(client, connection, requests).await {
                return None;
            }
            for asked in &self.history.asked.borrow()[first..] {
                if let Some((_, Ok(Answer::ChildrenAndStat(names, stat)))) = &asked.told {
                    let child = |name: &Text| Text::from(crate::paths::join(&path, name));
                    left.extend(names.iter().map(child));
                    if stat.ephemeral_owner != 0 {
                        ephemerals.push(path.clone());
                    }
                }
            }
        }
        Some(ephemerals)
    }

    /// # Errors
    /// A promise was broken: it says which.
    pub(super) async fn check_history(&self, database: &Database) -> Verdict {
        self.read_history().await?;
        let followed = stream::follow(database, &tree(), &self.history.followed).await;
        followed.map_err(|error| format!("the stream cannot be read: {error}"))?;
        let followed = self.history.followed.borrow();
        if followed.is_cut {
            probe!("keeper_history_cut");
            return Ok(());
        }
        judge::judge(&past::History {
            asked: &self.history.asked.borrow(),
            connections: &self.history.connections.borrow(),
            entries: &followed.entries,
        })
    }
}

fn tree() -> String {
    Options::default().tree
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:#x}: {}",
            self.session,
            short(&format!("{:?}", self.request))
        )?;
        match &self.told {
            Some((zxid, answer)) => write!(f, " at {zxid:#x}: {}", shown(answer)),
            None => f.write_str(" without an answer"),
        }
    }
}

fn shown(answer: &Result<Answer, Code>) -> String {
    short(&format!("{answer:?}"))
}

/// Without the spaces that make data long.
fn short(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
