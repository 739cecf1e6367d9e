//! The simulated workload: clients of the gateways, which write, read, watch and come and go while faults strike.
//!
//! Promises that it checks:
//! - Writes are linearizable: versions of a node are given out once, in the order of the zxids, and a write that began
//!   after another was answered has a later version.
//! - A session's reads see its writes and never go back, over connections to other gateways too. A read after `sync`
//!   sees every write that was answered before.
//! - Who watches a node hears of a change before seeing it, and of every change that it sees later.
//! - The totals of the tree are those of its nodes, and so is what is used of each quota. No hard limit is passed.
//! - A transaction is seen whole or not yet, and several reads in one request see one state.
//! - Odd requests are answered as ZooKeeper answers them.
//! - Ephemeral nodes are there while their session lives, gone when its end was answered, and gone in time when its
//!   client has gone.
//! - No session ends early, also if its client comes back just in time.
//! - Each connection goes on in the form that its client has asked for ([`forms`]), and breaks no rule of it.
//! - All that some clients do with the same few nodes is one history ([`history`]).

mod asking;
mod exact;
mod forms;
mod history;
mod quotas;
mod together;

use crate::client::{Client, Failure};
use crate::life::Options;
use crate::store::Most;
use crate::stored::read_page;
use crate::tree::node::Node;
use crate::tree::rows::Rows;
use crate::tree::totals::Totals;
use crate::wire::{Answer, Code, Request, Stat, Text, create_flags, event};
use crate::zxid::Zxids;
use asking::{ANSWER_LIMIT, ask, create, settle, sync};
use bytes::Bytes;
use forms::Forms;
use history::History;
use plinth_client::Database;
use plinth_core::Error;
use plinth_runtime::random::{below, chance};
use plinth_runtime::{Duration, Either, Instant, now, race, sleep, sleep_until, timeout};
use plinth_workload::{Boxed, Complaints, Day, Site, Verdict, Workload};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

const REGISTERS: usize = 3;
/// Clients of the first kind: the others are those of the history.
const CLIENTS: u64 = 3;
const ALL_CLIENTS: u64 = CLIENTS + 3;
/// Changes of the nodes that change together, in a row.
const CHANGES_TOGETHER: usize = 8;
const TIMEOUT_MS: i32 = 4000;
/// A session that ends so soon after its client was last answered ends early, whatever clocks there are: those of
/// simulated machines go apart by a few hundredths.
const ENDS_EARLY: Duration = Duration::from_millis(TIMEOUT_MS as u64 * 9 / 10);
/// The longest that a client's ephemeral nodes may outlive it when all machines are well again.
const END_LIMIT: Duration = Duration::from_secs(120);

/// A write that was answered.
struct Written {
    value: String,
    mzxid: i64,
}

/// What all clients together know of a register.
#[derive(Default)]
struct Known {
    written: BTreeMap<i32, Written>,
}

impl Known {
    /// The newest version that was answered.
    fn newest(&self) -> i32 {
        self.written
            .last_key_value()
            .map_or(0, |(version, _)| *version)
    }
}

/// A client and its session.
#[derive(Default)]
struct Me {
    number: u64,
    session: Option<(i64, Bytes, i64)>,
    /// A request of the session that was sent since then was answered.
    answered: Option<Instant>,
    /// The newest version of each register that the session has seen.
    seen: [i32; REGISTERS],
    /// Registers with a watch that has not told anything, and the version when it was set.
    watched: [Option<i32>; REGISTERS],
    /// Ephemeral nodes of the session that were answered.
    ephemerals: Vec<Text>,
    writes: u64,
}

pub struct Keeping {
    site: Rc<Site>,
    known: RefCell<[Known; REGISTERS]>,
    complaints: Complaints,
    names: Cell<u64>,
    forms: Forms,
    history: History,
}

fn register(r: usize) -> Text {
    format!("/simulated/r{r}").into()
}

impl Keeping {
    pub fn new(site: Rc<Site>) -> Self {
        Keeping {
            site,
            known: RefCell::default(),
            complaints: Complaints::default(),
            names: Cell::new(0),
            forms: Forms::default(),
            history: History::default(),
        }
    }

    /// Connects to some gateway, with the session if there is one; `None` if that fails.
    async fn connect(&self, me: &mut Me, may_be_read_only: bool) -> Option<Client> {
        let servers = &self.site.servers;
        let server = servers[below(servers.len() as u64) as usize];
        let session = me.session.clone();
        let way = (self.forms.next(), may_be_read_only);
        let connecting = Client::connect_as(server, TIMEOUT_MS, session, way);
        match timeout(ANSWER_LIMIT, Box::pin(connecting)).await? {
            Ok(client) => Some(client),
            Err(failure @ Failure::Broken(_)) => {
                self.complaints.add(format!("{failure}, at a greeting"));
                None
            }
            Err(Failure::Refused(_)) => {
                if let Some(silent) = me.answered.map(Instant::elapsed)
                    && silent < ENDS_EARLY
                {
                    self.complaints.add(format!(
                        "a session has expired {silent:?} after its client was answered"
                    ));
                }
                // The session has expired, and with it everything that was the session's.
                *me = Me {
                    number: me.number,
                    writes: me.writes,
                    ..Me::default()
                };
                None
            }
            Err(_) => None,
        }
    }

    /// A connection of its own, with requests that few clients send.
    async fn ask_oddly(&self) {
        let servers = &self.site.servers;
        let server = servers[below(servers.len() as u64) as usize];
        let home = format!("/simulated/x{}", self.next_name());
        if let Some(Err(wrong)) = exact::ask(server, &home).await {
            self.complaints.add(wrong);
        }
    }

    /// One connection: some requests, then it is dropped, or the session closed.
    async fn visit(&self, me: &mut Me, day: Day) -> Option<()> {
        let client = self.connect(me, chance(0.5)).await?;
        let resumed = self.resume(me, &client).await;
        self.take_events(me, &client).await;
        resumed?;
        let requests = 1 + below(20);
        for _ in 0..requests {
            if day.is_over() {
                break;
            }
            day.think().await;
            let began = now();
            let done = self.one(me, &client).await;
            if done.is_some() && !client.is_read_only() {
                me.answered = Some(began);
            }
            // The connection may be over after this: what it has told counts.
            self.take_events(me, &client).await;
            me.session = Some(client.session());
            done?;
        }
        if !client.is_read_only() && chance(0.2) {
            self.close(me, client).await?;
        }
        Some(())
    }

    /// Sets the watches again, and looks for the ephemeral nodes: a session that lives has them. A gateway that only
    /// reads does not know whether it lives.
    async fn resume(&self, me: &mut Me, client: &Client) -> Option<()> {
        let resumes = me.session.is_some();
        let seen = me.session.as_ref().map_or(0, |session| session.2);
        me.session = Some(client.session());
        if !resumes {
            return Some(());
        }
        let watched = (0..REGISTERS).filter(|r| me.watched[*r].is_some());
        let request = Request::SetWatches {
            relative_zxid: seen,
            data: watched.map(register).collect(),
            exist: Vec::new(),
            child: Vec::new(),
            persistent: Vec::new(),
            recursive: Vec::new(),
            breaks_off: false,
        };
        ask(client, request).await.ok()?;
        let ephemerals = match client.is_read_only() {
            true => Vec::new(),
            false => me.ephemerals.clone(),
        };
        for path in ephemerals {
            let request = Request::Exists {
                path: path.clone(),
                watch: false,
            };
            match ask(client, request).await {
                Ok(_) => {}
                Err(Some(Code::NO_NODE)) => {
                    let session = client.session_id();
                    self.complaints.add(format!(
                        "session {session:#x} lives, but its node {path} is gone"
                    ));
                }
                Err(_) => return None,
            }
        }
        Some(())
    }

    /// No fault of the network makes a server break the protocol.
    fn note_broken(&self, client: &Client) {
        if let Some(failure @ Failure::Broken(_)) = client.failure() {
            self.complaints.add(failure.to_string());
        }
    }

    /// Takes the events that have come.
    async fn take_events(&self, me: &mut Me, client: &Client) {
        self.note_broken(client);
        while let Some(Some(told)) = timeout(Duration::ZERO, client.next_event()).await {
            for r in 0..REGISTERS {
                if told.path == *register(r) && told.kind == event::DATA_CHANGED {
                    me.watched[r] = None;
                }
            }
        }
    }

    async fn one(&self, me: &mut Me, client: &Client) -> Option<()> {
        let r = below(REGISTERS as u64) as usize;
        if chance(0.1) {
            return self.use_quotas(client).await;
        }
        if chance(0.05) {
            return self.change_together(me, client).await;
        }
        match below(10) {
            0..3 => self.set(me, client, r).await,
            3..6 => {
                self.get(me, client, r, me.watched[r].is_none() && chance(0.7))
                    .await
            }
            6 => self.set_and_get(me, client, r).await,
            7 => self.sync_and_get(me, client, r).await,
            8 => self.create_ephemeral(me, client).await,
            _ => self.create_numbered(client).await,
        }
    }

    /// As long as what changes carry along, as what is in a node's row only, or as what has rows of its own.
    fn next_value(&self, me: &mut Me) -> String {
        me.writes += 1;
        let more = [0, 0, 100, 2000][below(4) as usize];
        format!("{}-{}{:more$}", me.number, me.writes, "")
    }

    fn set_request(r: usize, value: &str) -> Request {
        Request::SetData {
            path: register(r),
            data: Some(Bytes::from(value.to_string())),
            version: -1,
        }
    }

    async fn set(&self, me: &mut Me, client: &Client, r: usize) -> Option<()> {
        let value = self.next_value(me);
        let least = self.known.borrow()[r].newest();
        match ask(client, Self::set_request(r, &value)).await {
            Ok(Answer::Stat(stat)) => self.note_written(me, r, value, least, stat),
            Ok(other) => self
                .complaints
                .add(format!("a set is answered with {other:?}")),
            Err(_) => return None,
        }
        Some(())
    }

    /// `least`: the newest version that was answered before the write began.
    fn note_written(&self, me: &mut Me, r: usize, value: String, least: i32, stat: Stat) {
        let known = &mut self.known.borrow_mut()[r];
        let (version, mzxid) = (stat.version, stat.mzxid);
        if version <= least {
            self.complaints.add(format!(
                "a write of register {r} has version {version}, after {least} was answered"
            ));
        }
        let before = known.written.range(..version).next_back();
        let after = known.written.range(version..).next();
        let is_in_order = before.is_none_or(|(_, w)| w.mzxid < mzxid)
            && after.is_none_or(|(v, w)| *v != version && w.mzxid > mzxid);
        if !is_in_order {
            self.complaints.add(format!(
                "version {version} of register {r} is given out twice, or out of the order of zxids"
            ));
        }
        known.written.insert(version, Written { value, mzxid });
        me.seen[r] = me.seen[r].max(version);
    }

    async fn get(&self, me: &mut Me, client: &Client, r: usize, watch: bool) -> Option<()> {
        let request = Request::GetData {
            path: register(r),
            watch,
        };
        match ask(client, request).await {
            Ok(Answer::Data(data, stat)) => {
                if watch {
                    // Its event may have come already, right behind the answer.
                    me.watched[r] = Some(stat.version);
                }
                self.take_events(me, client).await;
                self.note_read(me, r, data, stat);
            }
            Ok(other) => self
                .complaints
                .add(format!("a read is answered with {other:?}")),
            Err(_) => return None,
        }
        Some(())
    }

    fn note_read(&self, me: &mut Me, r: usize, data: Option<Bytes>, stat: Stat) {
        let version = stat.version;
        if version < me.seen[r] {
            let seen = me.seen[r];
            self.complaints.add(format!(
                "a session reads version {version} of register {r} after {seen}"
            ));
        }
        me.seen[r] = version;
        if let Some(set_at) = me.watched[r]
            && version > set_at
        {
            self.complaints.add(format!(
                "version {version} of register {r} is read before the event that announces it"
            ));
        }
        let known = self.known.borrow();
        if let Some(written) = known[r].written.get(&version) {
            let value = data.as_deref().map(String::from_utf8_lossy);
            if value.as_deref() != Some(&*written.value) || stat.mzxid != written.mzxid {
                self.complaints.add(format!(
                    "version {version} of register {r} is {value:?}, and was {:?}",
                    written.value
                ));
            }
        }
    }

    /// All are sent before any is answered. The read sees the write before it, and not the one behind it. Half of the
    /// reads are of another register.
    async fn set_and_get(&self, me: &mut Me, client: &Client, r: usize) -> Option<()> {
        let (first, second) = (self.next_value(me), self.next_value(me));
        let least = self.known.borrow()[r].newest();
        let set = client.submit(Self::set_request(r, &first));
        let of = if chance(0.5) { r } else { (r + 1) % REGISTERS };
        let get = client.submit(Request::GetData {
            path: register(of),
            watch: false,
        });
        let set_again = client.submit(Self::set_request(r, &second));
        let Ok(Answer::Stat(before)) = settle(timeout(ANSWER_LIMIT, set).await) else {
            return None;
        };
        self.note_written(me, r, first, least, before);
        let (data, read) = match settle(timeout(ANSWER_LIMIT, get).await) {
            Ok(Answer::Data(data, read)) => (data, read),
            Ok(_) => return None,
            Err(code) => return self.explain(client, code, "a read behind a write fails"),
        };
        self.take_events(me, client).await;
        self.note_read(me, of, data, read);
        let Ok(Answer::Stat(after)) = settle(timeout(ANSWER_LIMIT, set_again).await) else {
            return None;
        };
        self.note_written(me, r, second, least, after);
        if of == r && !(before.version..after.version).contains(&read.version) {
            self.complaints.add(format!(
                "a read of register {r} between writes of versions {} and {} saw {}",
                before.version, after.version, read.version
            ));
        }
        Some(())
    }

    async fn sync_and_get(&self, me: &mut Me, client: &Client, r: usize) -> Option<()> {
        let least = self.known.borrow()[r].newest();
        ask(client, sync(register(r))).await.ok()?;
        let request = Request::GetData {
            path: register(r),
            watch: false,
        };
        let Ok(Answer::Data(data, stat)) = ask(client, request).await else {
            return None;
        };
        self.take_events(me, client).await;
        self.note_read(me, r, data, stat);
        if stat.version < least {
            let version = stat.version;
            self.complaints.add(format!(
                "a read after sync sees version {version} of register {r}, not {least}"
            ));
        }
        Some(())
    }

    fn next_name(&self) -> u64 {
        self.names.set(self.names.get() + 1);
        self.names.get()
    }

    async fn create_ephemeral(&self, me: &mut Me, client: &Client) -> Option<()> {
        let path: Text = format!("/simulated/e/{}", self.next_name()).into();
        match ask(client, create(path.clone(), create_flags::EPHEMERAL)).await {
            Ok(_) => me.ephemerals.push(path),
            Err(code) => self.explain(client, code, "an ephemeral node cannot be created")?,
        }
        Some(())
    }

    async fn create_numbered(&self, client: &Client) -> Option<()> {
        let path = Text::from("/simulated/s/n");
        let request = create(path, create_flags::PERSISTENT_SEQUENTIAL);
        // Several at once: of two gateways' or two batches' numbers, none may be given out twice.
        let asked: Vec<_> = (0..1 + below(4))
            .map(|_| client.submit(request.clone()))
            .collect();
        for answer in asked {
            match settle(timeout(ANSWER_LIMIT, answer).await) {
                Ok(_) => {}
                Err(code) => self.explain(client, code, "a numbered node cannot be created")?,
            }
        }
        Some(())
    }

    async fn use_quotas(&self, client: &Client) -> Option<()> {
        let asked = match chance(0.2) {
            true => Ok(quotas::come_and_go(client).await),
            false => quotas::press(client).await,
        };
        match asked {
            // Whether there was something to make or to delete is chance.
            Ok(Ok(_) | Err(Some(_))) => Some(()),
            Ok(Err(None)) => None,
            Err(wrong) => {
                self.complaints.add(wrong);
                Some(())
            }
        }
    }

    /// Changes the nodes that change together, while another client, often at another gateway, reads them.
    async fn change_together(&self, me: &mut Me, client: &Client) -> Option<()> {
        let other = self.connect(&mut Me::default(), true).await?;
        let write = async {
            for _ in 0..CHANGES_TOGETHER {
                together::set(client, &self.next_value(me)).await.ok()?;
            }
            Some(())
        };
        let read = async {
            loop {
                match together::get(&other).await {
                    Ok(Ok(_)) => {}
                    Ok(Err(_)) => return None,
                    Err(wrong) => return Some(wrong),
                }
            }
        };
        let written = match race(write, read).await {
            Either::Left(written) => written,
            Either::Right(wrong) => {
                wrong
                    .into_iter()
                    .for_each(|wrong| self.complaints.add(wrong));
                None // the client may have had no answer yet
            }
        };
        let _ = timeout(ANSWER_LIMIT, other.close()).await;
        written
    }

    /// Complains of a code; ends the visit without one.
    fn explain(&self, client: &Client, code: Option<Code>, what: &str) -> Option<()> {
        match code? {
            Code::SESSION_MOVED | Code::SESSION_EXPIRED => None,
            Code::NOT_READ_ONLY if client.is_read_only() => None,
            code => {
                self.complaints.add(format!("{what}: {code}"));
                Some(())
            }
        }
    }

    /// Ends the session. When that is answered, its ephemeral nodes are gone.
    async fn close(&self, me: &mut Me, client: Client) -> Option<()> {
        let paths = std::mem::take(&mut me.ephemerals);
        *me = Me {
            number: me.number,
            writes: me.writes,
            ..Me::default()
        };
        let closed = timeout(ANSWER_LIMIT, client.close()).await;
        if !matches!(closed, Some(Ok(()))) {
            return None;
        }
        let client = self.connect(me, false).await?;
        ask(&client, sync("/".into())).await.ok()?;
        for path in paths {
            let request = Request::Exists {
                path: path.clone(),
                watch: false,
            };
            match ask(&client, request).await {
                Ok(_) => self.complaints.add(format!(
                    "the ephemeral node {path} is still there after its session's end"
                )),
                Err(Some(Code::NO_NODE)) => {}
                Err(_) => return None,
            }
        }
        let _ = timeout(ANSWER_LIMIT, client.close()).await;
        Some(())
    }

    /// Connects until it succeeds.
    async fn surely_connect(&self) -> Client {
        loop {
            match self.connect(&mut Me::default(), false).await {
                Some(client) => return client,
                None => sleep(Duration::from_millis(200)).await,
            }
        }
    }

    async fn make(&self, path: &str) {
        self.make_with(create(path.into(), create_flags::PERSISTENT))
            .await;
    }

    async fn make_with(&self, request: Request) {
        loop {
            let client = self.surely_connect().await;
            match ask(&client, request.clone()).await {
                Ok(_) | Err(Some(Code::NODE_EXISTS)) => return,
                Err(_) => sleep(Duration::from_millis(200)).await,
            }
        }
    }

    /// Waits until no ephemeral node is left.
    async fn await_end_of_ephemerals(&self) -> Verdict {
        let began = now();
        loop {
            let client = self.surely_connect().await;
            let _ = ask(&client, sync("/".into())).await;
            let request = Request::GetChildren {
                path: "/simulated/e".into(),
                watch: false,
            };
            let left = match ask(&client, request).await {
                Ok(Answer::Children(names)) if names.is_empty() => return Ok(()),
                Ok(Answer::Children(names)) => format!("{names:?}"),
                other => format!("{other:?}"),
            };
            if began.elapsed() > END_LIMIT {
                return Err(format!("ephemeral nodes outlive their sessions: {left}"));
            }
            sleep(Duration::from_secs(1)).await;
        }
    }

    async fn check_registers(&self) -> Verdict {
        for r in 0..REGISTERS {
            let (data, stat) = loop {
                let client = self.surely_connect().await;
                let _ = ask(&client, sync("/".into())).await;
                let request = Request::GetData {
                    path: register(r),
                    watch: false,
                };
                if let Ok(Answer::Data(data, stat)) = ask(&client, request).await {
                    break (data, stat);
                }
            };
            self.note_read(&mut Me::default(), r, data, stat);
            let newest = self.known.borrow()[r].newest();
            if stat.version < newest {
                return Err(format!(
                    "register {r} is at version {}, and {newest} was answered",
                    stat.version
                ));
            }
        }
        Ok(())
    }
}

/// The totals must be those of the nodes that there are.
async fn check_totals(database: &Database) -> Verdict {
    let rows = Rows::new(&Options::default().tree);
    let both = database.run(async |transaction| {
        let mut kept = Totals::default();
        let found = read_page(&transaction, rows.totals(), Most::ALL)
            .await?
            .rows;
        found.iter().for_each(|(key, row)| kept.take_row(key, row));
        let mut counted = Totals {
            nodes: 1, // the root's second name
            ..Totals::default()
        };
        let found = read_page(&transaction, rows.all_nodes(), Most::ALL)
            .await?
            .rows;
        for (key, row) in found.iter().filter(|(key, _)| Rows::is_node(key)) {
            let node = Node::from_row(row, Zxids { base: 0 }).ok_or(Error::file_corrupt)?;
            let path = rows.node_path(key).ok_or(Error::file_corrupt)?;
            counted.add_change(path, None, Some(&node));
        }
        Ok((kept, counted, quotas::check(&transaction, &rows).await?))
    });
    match both.await {
        Ok((kept, counted, of_quotas)) if kept == counted => of_quotas,
        Ok((kept, counted, _)) => Err(format!(
            "totals are {kept:?}, and the nodes say {counted:?}"
        )),
        Err(error) => Err(format!("totals cannot be read: {error}")),
    }
}

/// What needs nothing but the gateways.
impl Keeping {
    pub async fn make_nodes(&self) {
        for path in ["/simulated", "/simulated/e", "/simulated/s"] {
            self.make(path).await;
        }
        for r in 0..REGISTERS {
            self.make(&register(r)).await;
        }
        for path in quotas::nodes() {
            self.make(&path).await;
        }
        for path in together::nodes() {
            self.make(&path).await;
        }
        self.make_with(quotas::limit()).await;
    }

    /// What the client with this number does until the end of the day.
    pub async fn live(&self, client: u64, day: Day) {
        let mut me = Me {
            number: client,
            ..Me::default()
        };
        while !day.is_over() {
            if chance(0.05) {
                self.ask_oddly().await;
            }
            if self.visit(&mut me, day).await.is_none() {
                day.think().await;
            }
            if let Some(answered) = me.answered
                && chance(0.05)
            {
                // It comes back just in time.
                sleep_until(answered + Duration::from_millis(3600 + below(400))).await;
            }
        }
    }

    /// Looks at everything when all machines are well again.
    ///
    /// # Errors
    /// A promise was broken: it says which.
    pub async fn check_clients(&self) -> Verdict {
        self.check_registers().await?;
        self.await_end_of_ephemerals().await?;
        self.complaints.verdict()
    }
}

impl Workload for Keeping {
    fn name(&self) -> &'static str {
        "keeper"
    }

    fn setup(&self, database: Database) -> Boxed<'_, ()> {
        Box::pin(async move {
            self.make_nodes().await;
            self.make_history().await;
            while !quotas::are_counted(&database, history::LIMITED).await {
                sleep(Duration::from_millis(200)).await;
            }
        })
    }

    fn clients(&self) -> u64 {
        ALL_CLIENTS + 1
    }

    fn work(&self, database: Database, client: u64, day: Day) -> Boxed<'_, ()> {
        Box::pin(async move {
            match client {
                0..CLIENTS => self.live(client, day).await,
                CLIENTS..ALL_CLIENTS => self.live_in_history(client, day).await,
                _ => self.follow_history(&database, day).await,
            }
        })
    }

    fn check(&self, database: Database) -> Boxed<'_, Verdict> {
        Box::pin(async move {
            let of_clients = self.check_clients().await;
            let of_totals = check_totals(&database).await;
            of_clients?;
            self.check_history(&database).await?;
            of_totals
        })
    }
}
