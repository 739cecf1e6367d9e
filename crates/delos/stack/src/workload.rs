//! The simulated workloads: replicas on the machines of a cluster, clients that write and read registers, and an
//! operator, while faults strike. The log is on log servers, one in each process, or in streams of the store.
//!
//! Promises that it checks:
//! - Writes and reads are linearizable, also while a replica reads under a lease and clocks drift.
//! - What was proposed at a replica in some order is done in that order, and once (SessionOrder).
//! - A write that is refused, or that is certainly lost, changes nothing.
//! - No read sees an entry of the log by half (Batching).
//! - Replicas have the same rows at the same position.
//! - An engine that was never switched on has no rows.
//! - What is restored from the backup has the rows that the replicas had at that position.
//! - The backup begins anew only if its engine was off meanwhile.
//! - No replica is behind the beginning of the log, and all serve again when all is well.
//!
//! Meanwhile the operator switches engines, exchanges loglets, trims the log and has it backed up.

mod backups;
mod judge;
mod messages;
mod on_stream;
mod operator;
mod registers;
mod shelf;

use crate::engines::guard::Guard;
use crate::engines::session_order;
use crate::replica::kind::Kind;
use crate::replica::messages::{CallService, Called};
use crate::replica::{self, Config, Settings};
use crate::stacks::ENGINES;
use bytes::Bytes;
use judge::Judge;
use messages::{Burst, BurstDone, History, OfEngine, Past, Rows};
use plinth_client::Database;
use plinth_core::EngineKind;
use plinth_core::codec::Codec;
use plinth_rpc::{Interface, Transport};
use plinth_runtime::random::{below, chance};
use plinth_runtime::{Duration, now, probe, sleep, trace_warn};
use plinth_workload::{Boxed, Day, Place, Site, Verdict, Workload};
use registers::{HISTORY_LEN, REGISTERS, Registers};
use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

/// Writes of one burst.
const BURST_MAX: u64 = 6;
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// All replicas serve within this time when all machines are well again.
const SERVE_LIMIT: Duration = Duration::from_secs(120);
const CACHE_BYTES: usize = 1 << 20;

static KINDS: [&Kind; 1] = [&KIND];
static KIND: Kind = Kind::of::<Registers>();

/// Where the log is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum LogIn {
    LogServers,
    Stream,
}

plinth_workload::application! {
    plinth_workload::Application {
        name: "delos",
        module: module_path!(),
        serve: |place| Box::pin(serve(place)),
        keeps_data: true,
        workloads: &[plinth_workload::Kind {
            name: "delos",
            make: |site| Rc::new(Delos::new(site, LogIn::LogServers)),
        }],
    }
}

mod with_stream {
    use super::*;

    plinth_workload::application! {
        plinth_workload::Application {
            name: "delos_stream",
            module: module_path!(),
            serve: |place| Box::pin(serve_on_stream(place)),
            keeps_data: true,
            workloads: &[plinth_workload::Kind {
                name: "delos_stream",
                make: |site| Rc::new(Delos::new(site, LogIn::Stream)),
            }],
        }
    }
}

/// One life of a process.
async fn serve(place: Place) {
    let config = Config {
        directory: place.data_directory,
        listen: place.listen,
        public: None,
        kinds: &KINDS,
        engine: engine_at(place.listen),
        cache_bytes: CACHE_BYTES,
        service: None,
        settings: Settings::default(),
        places: shelf::open,
    };
    let Err(why) = replica::serve(config).await;
    trace_warn!("DelosReplicaStopped", "address" => place.listen, "reason" => why);
}

async fn serve_on_stream(place: Place) {
    let address = place.listen;
    let why = on_stream::serve(place).await;
    trace_warn!("DelosReplicaStopped", "address" => address, "reason" => why);
}

/// Replicas may have different storage engines.
fn engine_at(address: SocketAddr) -> EngineKind {
    match address.ip().to_canonical() {
        std::net::IpAddr::V4(ip) if ip.octets()[3].is_multiple_of(2) => EngineKind::Memory,
        _ => EngineKind::Ssd,
    }
}

/// See the module.
pub struct Delos {
    log_in: LogIn,
    site: Rc<Site>,
    transport: Transport,
    judge: Judge,
    backup: backups::Remembered,
    log_servers: RefCell<Vec<Interface>>,
    /// Nobody writes at this replica for a while.
    cut_off: Cell<Option<SocketAddr>>,
    /// The engine that promises an order is on all the time.
    keeps_order: bool,
    /// This engine is never switched on.
    never_on: Option<Guard>,
}

impl Delos {
    fn new(site: Rc<Site>, log_in: LogIn) -> Self {
        shelf::clear();
        let keeps_order = chance(0.7);
        let never_on = ENGINES[below(ENGINES.len() as u64) as usize];
        let may_stay_off = !keeps_order || never_on.name != session_order::GUARD.name;
        Delos {
            log_in,
            site,
            transport: Transport::client(),
            judge: Judge::default(),
            backup: backups::Remembered::default(),
            log_servers: RefCell::default(),
            cut_off: Cell::new(None),
            keeps_order,
            never_on: may_stay_off.then_some(never_on),
        }
    }

    /// Calls the service at one replica.
    async fn call(&self, server: SocketAddr, operation: &str, request: Bytes) -> Option<Called> {
        let operation = operation.into();
        self.ask(server, CallService { operation, request }).await
    }

    /// The answer, if there is one.
    async fn fetch<T: Codec>(
        &self,
        server: SocketAddr,
        operation: &str,
        request: Bytes,
    ) -> Option<T> {
        match self.call(server, operation, request).await? {
            Called::Done(answer) => T::from_bytes(answer),
            _ => None,
        }
    }

    /// Writes in bursts at one replica until an answer does not come.
    async fn visit(&self, server: &mut SocketAddr, day: Day) -> Option<()> {
        while !day.is_over() {
            day.think().await;
            match below(10) {
                0..4 => self.write(server).await?,
                4 => self.look_at_engine(*server).await?,
                5 | 6 => self.read(*server).await?,
                // Also at replicas that others do not write at now. They may be cut off.
                _ => drop(self.read(self.any_server()).await),
            }
        }
        Some(())
    }

    async fn write(&self, server: &mut SocketAddr) -> Option<()> {
        if self.cut_off.get() == Some(*server) {
            self.read(*server).await;
            *server = self.any_server();
            return Some(());
        }
        let writes = self.judge.draw_burst(REGISTERS, 1 + below(BURST_MAX));
        let reads = chance(0.3);
        let floor = self.judge.floor();
        let burst = Burst {
            writes: writes.clone(),
            reads,
        };
        let done: BurstDone = match self.call(*server, "burst", burst.to_bytes()).await? {
            Called::Done(done) => BurstDone::from_bytes(done)?,
            Called::Elsewhere(holder) => {
                let nothing = vec![messages::Outcome::NOT_DONE; writes.len()];
                self.judge.take_outcomes(floor, &writes, &nothing);
                *server = holder;
                return Some(());
            }
            _ => return None,
        };
        if let Some(rows) = done.read {
            self.judge_own_read(&done.outcomes, &rows);
            self.judge.take_read(floor, rows);
        }
        self.judge.take_outcomes(floor, &writes, &done.outcomes);
        Some(())
    }

    /// A read behind a burst sees what of it is done.
    fn judge_own_read(&self, outcomes: &[messages::Outcome], rows: &Rows) {
        let last = outcomes.iter().filter_map(|outcome| outcome.place()).max();
        if let Some(last) = last.filter(|last| self.keeps_order && *last > rows.count) {
            self.judge.complain(format!(
                "a read sees {} writes, and not place {last}, which was proposed before it",
                rows.count
            ));
        }
    }

    pub async fn read(&self, server: SocketAddr) -> Option<()> {
        let floor = self.judge.floor();
        let rows = self.fetch(server, "read", Bytes::new()).await?;
        self.judge.take_read(floor, rows);
        Some(())
    }

    async fn look_at_engine(&self, server: SocketAddr) -> Option<()> {
        let Some(engine) = self.never_on else {
            return Some(());
        };
        let of = OfEngine {
            engine: engine.name.into(),
        };
        let rows: u64 = self.fetch(server, "of_engine", of.to_bytes()).await?;
        if rows > 0 {
            self.judge.complain(format!(
                "engine {} was never switched on, and has {rows} rows",
                engine.name
            ));
        }
        Some(())
    }

    /// The whole history, as one replica tells it.
    async fn history_at(&self, server: SocketAddr) -> Option<Vec<Past>> {
        let mut all = Vec::new();
        loop {
            let from = (all.len() as u64 + 1).to_bytes();
            let part: History = self.fetch(server, "history", from).await?;
            let is_last = part.past.len() < HISTORY_LEN;
            all.extend(part.past);
            if is_last {
                return Some(all);
            }
        }
    }

    /// Waits until the replica serves.
    async fn await_history(&self, server: SocketAddr) -> Result<Vec<Past>, String> {
        let begun = now();
        loop {
            if let Some(history) = self.history_at(server).await {
                return Ok(history);
            }
            if begun.elapsed() > SERVE_LIMIT {
                return Err(format!("the replica at {server} does not serve again"));
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    async fn check_all(&self) -> Verdict {
        for server in &self.site.servers {
            let floor = self.judge.floor();
            let history = self.await_history(*server).await?;
            if (history.len() as u64) < floor {
                let count = history.len();
                return Err(format!(
                    "{server} has {count} writes, and {floor} were told"
                ));
            }
            self.judge.finish(&history, self.keeps_order)?;
            self.read(*server).await;
            self.look_at_engine(*server).await;
        }
        self.surely_compare_checksums().await?;
        if self.log_in == LogIn::LogServers {
            self.check_backup().await?;
        }
        if self.judge.done.get() > 100 {
            probe!("delos_many_writes");
        }
        self.judge.complaints.verdict()
    }
}

impl Workload for Delos {
    fn name(&self) -> &'static str {
        match self.log_in {
            LogIn::LogServers => "delos",
            LogIn::Stream => "delos_stream",
        }
    }

    fn setup(&self, _: Database) -> Boxed<'_, ()> {
        Box::pin(async {
            if self.log_in == LogIn::LogServers {
                self.create().await;
            }
            self.begin().await;
            if self.log_in == LogIn::LogServers && chance(0.6) {
                self.back_up().await;
            }
            self.await_all().await;
        })
    }

    fn clients(&self) -> u64 {
        4
    }

    fn work(&self, _: Database, client: u64, day: Day) -> Boxed<'_, ()> {
        Box::pin(async move {
            let mut server = self.any_server();
            while !day.is_over() {
                if client == 0 {
                    sleep(Duration::from_millis(below(4000))).await;
                    self.operate().await;
                } else if self.visit(&mut server, day).await.is_none() {
                    server = self.any_server();
                    day.think().await;
                }
            }
        })
    }

    fn check(&self, _: Database) -> Boxed<'_, Verdict> {
        Box::pin(self.check_all())
    }
}
