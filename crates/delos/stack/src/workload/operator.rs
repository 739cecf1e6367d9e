//! What an operator of the simulated service does: makes it, and changes it while it is used.

use super::{Delos, LogIn};
use crate::coordinated_register::CoordinatedRegister;
use crate::engines::guard::Guard;
use crate::engines::{batching, log_backup};
use crate::quorum::client::QuorumLoglets;
use crate::quorum::messages::Config;
use crate::replica::messages::{
    Adopt, AskChecksum, AskStatus, Greet, MarkLog, ReconfigureLog, ReplicaStatus, SwitchEngine,
    Told, TrimLog, process,
};
use crate::replica::serves::Serves;
use crate::stacks::ENGINES;
use crate::virtual_log::VirtualLog;
use crate::workload::registers::Registers;
use plinth_coordination::{ClusterFile, places};
use plinth_core::Uid;
use plinth_rpc::{Interface, Request};
use plinth_runtime::random::{self, below, chance};
use plinth_runtime::sim::control;
use plinth_runtime::{Duration, probe, sleep, timeout, trace};
use std::net::SocketAddr;

/// A request without an answer by then may be done or not.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
const RETRY_PAUSE: Duration = Duration::from_millis(200);
/// At the end, marks are made until all replicas have remembered one.
const MARKS_MAX: usize = 20;

impl Delos {
    /// Asks a process once; `None` without an answer in time.
    pub async fn ask<R: Request>(&self, address: SocketAddr, request: R) -> Option<R::Reply> {
        let endpoint = process(address).endpoint::<R>();
        let asked = timeout(ANSWER_LIMIT, self.transport.call(&endpoint, request));
        asked.await?.ok()
    }

    /// Asks a process until it answers.
    async fn surely_ask<R: Request + Clone>(&self, address: SocketAddr, request: R) -> R::Reply {
        loop {
            match self.ask(address, request.clone()).await {
                Some(answer) => return answer,
                None => sleep(RETRY_PAUSE).await,
            }
        }
    }

    pub fn any_server(&self) -> SocketAddr {
        let servers = &self.site.servers;
        servers[below(servers.len() as u64) as usize]
    }

    /// Makes the service, on all processes.
    pub async fn create(&self) {
        let servers = &self.site.servers;
        let service = ClusterFile::new("simulated", "d1", places(servers.iter().copied()));
        let mut log_servers = Vec::new();
        for (number, server) in servers.iter().enumerate() {
            let greeting = self.surely_ask(*server, Greet {}).await;
            log_servers.push(greeting.log_server);
            let adopt = Adopt {
                service: service.to_string(),
                kind: Registers::KIND.into(),
                name: format!("replica-{number}"),
            };
            while !self
                .surely_ask(*server, adopt.clone())
                .await
                .refused
                .is_empty()
            {
                sleep(RETRY_PAUSE).await;
            }
        }
        self.log_servers.replace(log_servers.clone());
        let first = fresh(self.any_server(), log_servers).to_description();
        let coordinators = service.into();
        loop {
            let register = CoordinatedRegister::new(&self.transport, &coordinators);
            let loglets = QuorumLoglets {
                transport: self.transport.clone(),
            };
            let made = VirtualLog::open(register, loglets, first.clone());
            if matches!(timeout(ANSWER_LIMIT, made).await, Some(Ok(_))) {
                break;
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    /// Waits until every replica serves, and switches some engines on.
    pub async fn begin(&self) {
        for server in &self.site.servers {
            while !self
                .surely_ask(*server, AskStatus {})
                .await
                .waits_for
                .is_empty()
            {
                sleep(RETRY_PAUSE).await;
            }
        }
        for engine in ENGINES {
            let is_first = chance(0.8) || (self.keeps_order && self.is_order(engine));
            if is_first && !self.is_never_on(engine) {
                let engine_on = SwitchEngine {
                    engine: engine.name.into(),
                    on: true,
                };
                let server = self.any_server();
                while !is_done(&self.surely_ask(server, engine_on.clone()).await) {
                    sleep(RETRY_PAUSE).await;
                }
            }
        }
    }

    /// Waits until every replica has heard of everything so far: what a switch promises holds behind it.
    pub async fn await_all(&self) {
        for server in &self.site.servers {
            while self.read(*server).await.is_none() {
                sleep(RETRY_PAUSE).await;
            }
        }
    }

    fn is_never_on(&self, engine: Guard) -> bool {
        self.never_on.is_some_and(|of| of.name == engine.name)
    }

    fn is_order(&self, engine: Guard) -> bool {
        engine.name == crate::engines::session_order::GUARD.name
    }

    /// Does something to the service that it must bear.
    pub async fn operate(&self) {
        match below(13) {
            12 if self.log_in == LogIn::LogServers => self.back_up().await,
            10.. => self.cut_off(self.any_server()).await,
            0..3 => self.switch_some().await,
            3..5 => self.reconfigure().await,
            5..7 => drop(self.compare_checksums().await),
            _ => self.trim().await,
        }
    }

    async fn switch_some(&self) {
        let engine = ENGINES[below(ENGINES.len() as u64) as usize];
        let on = chance(0.8);
        // Proposals that are under way when Batching is switched off go down again, behind later ones.
        if self.keeps_order && !on && engine.name == batching::GUARD.name {
            return;
        }
        if self.is_never_on(engine) || (self.keeps_order && self.is_order(engine)) {
            return;
        }
        let switch = SwitchEngine {
            engine: engine.name.into(),
            on,
        };
        trace!("DelosSwitches", "engine" => engine.name, "on" => switch.on);
        if !on && engine.name == log_backup::GUARD.name {
            self.backup.is_switched_off();
        }
        let told = self.ask(self.any_server(), switch).await;
        if told.is_some_and(|told| is_done(&told)) {
            probe!("delos_engine_switched");
        }
    }

    /// Cuts a replica off from all others, but not from the clients, for longer than a lease lasts.
    async fn cut_off(&self, server: SocketAddr) {
        let processes = control().processes();
        let machine_of = |address| processes.iter().find(|of| of.address == address);
        let Some(one) = machine_of(server).map(|of| of.machine) else {
            return;
        };
        let others = self.site.servers.iter().filter_map(|of| machine_of(*of));
        let others: Vec<_> = others
            .map(|of| of.machine)
            .filter(|of| *of != one)
            .collect();
        // A write that is under way there would hold its reads up.
        self.cut_off.set(Some(server));
        sleep(Duration::from_millis(500)).await;
        trace!("DelosCutsOff", "address" => server);
        others
            .iter()
            .for_each(|other| control().partition(one, *other, true));
        sleep(Duration::from_millis(random::range(1000..8000))).await;
        others.iter().for_each(|other| control().heal(one, *other));
        self.cut_off.set(None);
    }

    async fn reconfigure(&self) {
        let servers = self.log_servers.borrow().clone();
        let sequencer = self.any_server();
        trace!("DelosReconfigures", "sequencer" => sequencer);
        let asked = ReconfigureLog { sequencer, servers };
        let told = self.ask(self.any_server(), asked).await;
        if told.is_some_and(|told| is_done(&told)) {
            probe!("delos_log_reconfigured");
        }
    }

    /// Lets go of what a replica has applied, once all replicas count: who has never said anything is not waited for.
    async fn trim(&self) {
        let server = self.any_server();
        let Some(status) = self.ask(server, AskStatus {}).await else {
            return;
        };
        let ReplicaStatus {
            applied, in_view, ..
        } = status;
        if in_view.len() == self.site.servers.len() && applied > 0 {
            probe!("delos_log_trimmed");
            self.ask(server, TrimLog { before: applied }).await;
            self.look_at_backup().await;
        }
    }

    /// Makes a mark and compares what the replicas remember of it. True if all remember it.
    pub async fn compare_checksums(&self) -> bool {
        let Some(told) = self.ask(self.any_server(), MarkLog {}).await else {
            return false;
        };
        if !is_done(&told) {
            return false;
        }
        let mut known = Vec::new();
        for server in &self.site.servers {
            let asked = AskChecksum { mark: told.pos };
            let said = self.ask(*server, asked).await;
            known.extend(said.and_then(|said| said.checksum));
        }
        if known.iter().any(|sum| *sum != known[0]) {
            self.judge.complain(format!(
                "replicas have different rows at position {}: checksums {known:x?}",
                told.pos
            ));
        }
        known.len() == self.site.servers.len()
    }

    /// When all is well again, all replicas have the same rows.
    ///
    /// # Errors
    /// Some replica does not say.
    pub async fn surely_compare_checksums(&self) -> Result<(), String> {
        for _ in 0..MARKS_MAX {
            if self.compare_checksums().await {
                return Ok(());
            }
            sleep(RETRY_PAUSE).await;
        }
        Err("no mark is remembered by all replicas".into())
    }
}

fn is_done(told: &Told) -> bool {
    told.refused.is_empty()
}

/// A loglet that nobody has used.
fn fresh(sequencer: SocketAddr, servers: Vec<Interface>) -> Config {
    Config {
        loglet: Uid(random::uid()),
        sequencer,
        servers,
    }
}
