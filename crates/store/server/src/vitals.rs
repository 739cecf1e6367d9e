//! State of the process and its machine, measured once a second, for status requests.

use crate::data_directory::DataDirectory;
use crate::rates::Rates;
use plinth_core::Uid;
use plinth_protocol::control::{ProcessStatus, RequestLatency, WorkerStatus};
use plinth_protocol::tally::*;
use plinth_rpc::Transport;
use plinth_runtime::machine::{self, Usage};
use plinth_runtime::metric::latency::Timed;
use plinth_runtime::{Duration, Instant, disk, now, sleep, tally};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;

/// How often the lag of the event loop is measured.
const TICK: Duration = Duration::from_millis(100);
/// Ticks in a round. Each round asks the system, and drops the lag of the round before last.
const TICKS_A_ROUND: u32 = 10;
/// Latencies are those of so many rounds.
const LATENCY_ROUNDS: usize = 60;
/// The requests whose latencies are told: reads, commits, read versions.
const TOLD: [&str; 6] = [
    "Get",
    "GetValues",
    "GetKey",
    "GetRange",
    "Commit",
    "GetReadVersion",
];

type Times = BTreeMap<&'static str, Timed>;

pub struct Vitals {
    started: Instant,
    worker: RefCell<WorkerStatus>,
    usage: RefCell<Usage>,
    rates: RefCell<Rates>,
    /// The newest is last.
    times: RefCell<VecDeque<Times>>,
}

impl Default for Vitals {
    fn default() -> Self {
        Vitals {
            started: now(),
            worker: RefCell::new(WorkerStatus {
                disk_total: 0,
                disk_free: 0,
                loop_lag_ms: 0.0,
            }),
            usage: RefCell::default(),
            rates: RefCell::default(),
            times: RefCell::default(),
        }
    }
}

impl Vitals {
    pub fn status(&self) -> WorkerStatus {
        self.worker.borrow().clone()
    }

    pub fn usage(&self) -> Usage {
        self.usage.borrow().clone()
    }

    pub fn process(&self) -> ProcessStatus {
        let (usage, rates) = (self.usage.borrow(), self.rates.borrow());
        ProcessStatus {
            uptime_s: self.started.elapsed().as_secs_f64(),
            command_line: without_passwords(machine::arguments()).join(" "),
            resident_bytes: usage.resident_bytes,
            virtual_bytes: usage.virtual_bytes,
            memory_limit_bytes: usage.limit_bytes,
            machine_memory_bytes: usage.memory_bytes,
            machine_memory_available_bytes: usage.memory_available_bytes,
            counts: rates.of_process(),
            roles: rates.of_roles(),
            latencies: self.latencies(),
        }
    }

    fn latencies(&self) -> Vec<RequestLatency> {
        let times = self.times.borrow();
        let (Some(first), Some(last)) = (times.front(), times.back()) else {
            return Vec::new();
        };
        let lately = |(name, all): (&&'static str, &Timed)| {
            let lately = match first.get(name) {
                Some(before) => all.since(before),
                None => all.clone(),
            };
            RequestLatency {
                request: name.to_string(),
                count: lately.count,
                sum_s: lately.sum.as_secs_f64(),
                buckets: lately.buckets.to_vec(),
            }
        };
        last.iter().map(lately).collect()
    }

    /// `roles` lists the roles of this process.
    pub async fn measure(
        &self,
        directory: &DataDirectory,
        transport: &Transport,
        roles: impl Fn() -> Vec<Uid>,
    ) -> Infallible {
        let mut before = Duration::ZERO;
        loop {
            // The loop goes on if the disk does not answer: file operations will report that.
            if let Ok(space) = disk::space(&directory.path).await {
                let mut status = self.worker.borrow_mut();
                (status.disk_total, status.disk_free) = (space.total, space.free);
            }
            let usage = machine::usage(&directory.path).await;
            self.note(usage, transport.refused_connections(), roles());
            self.note_times(transport);
            let mut worst = Duration::ZERO;
            for _ in 0..TICKS_A_ROUND {
                let due = now() + TICK;
                sleep(TICK).await;
                worst = worst.max(now().saturating_since(due));
                self.worker.borrow_mut().loop_lag_ms = worst.max(before).as_secs_f64() * 1000.0;
            }
            before = worst;
        }
    }

    fn note(&self, usage: Usage, refused: u64, roles: Vec<Uid>) {
        let own = numbers(&usage)
            .into_iter()
            .chain([(REFUSED_CONNECTIONS, refused)]);
        let own = own.map(|(name, number)| ((None, name), number));
        let of_role = |role: Uid| {
            let tallies = tally::of(role).into_iter();
            tallies.map(move |(name, number)| ((Some(role), name), number))
        };
        let numbers = own.chain(roles.into_iter().flat_map(of_role));
        self.rates.borrow_mut().note(now(), numbers);
        *self.usage.borrow_mut() = usage;
    }

    fn note_times(&self, transport: &Transport) {
        let told = transport.latencies().into_iter();
        let told = told.filter(|(name, _)| TOLD.contains(name));
        let told = told.map(|(name, latency)| (name, latency.timed()));
        let turns = (LOOP_TURN, plinth_runtime::turns());
        let times: Times = told.chain([turns]).collect();
        let mut all = self.times.borrow_mut();
        all.push_back(times);
        if all.len() > LATENCY_ROUNDS {
            all.pop_front();
        }
    }
}

fn numbers(usage: &Usage) -> Vec<(&'static str, u64)> {
    let us = |time: Duration| time.as_micros() as u64;
    let (disk, connections) = (&usage.disk, &usage.connections);
    vec![
        (CPU_US, us(usage.process_cpu)),
        (MACHINE_BUSY_US, us(usage.machine_busy)),
        (MACHINE_US, us(usage.machine_time)),
        (CONNECTIONS_ESTABLISHED, connections.established),
        (CONNECTIONS_CLOSED, connections.closed),
        (CONNECTION_ERRORS, connections.errors),
        (SENT_BYTES, connections.sent_bytes),
        (RECEIVED_BYTES, connections.received_bytes),
        (MACHINE_SENT_BYTES, usage.sent_bytes),
        (MACHINE_RECEIVED_BYTES, usage.received_bytes),
        (RETRANSMITTED_SEGMENTS, usage.retransmitted_segments),
        (DISK_READS, disk.reads),
        (DISK_SECTORS_READ, disk.sectors_read),
        (DISK_WRITES, disk.writes),
        (DISK_SECTORS_WRITTEN, disk.sectors_written),
        (DISK_BUSY_US, us(disk.busy)),
    ]
}

/// Whoever sees the status document sees the arguments.
fn without_passwords(mut arguments: Vec<String>) -> Vec<String> {
    let mut is_value = false;
    for argument in &mut arguments {
        let name_ends = argument.find('=').unwrap_or(argument.len());
        let is_name = argument.starts_with('-') && argument[..name_ends].ends_with("password");
        if is_value {
            *argument = "…".into();
        } else if is_name && name_ends < argument.len() {
            argument.replace_range(name_ends + 1.., "…");
        }
        is_value = is_name && name_ends == argument.len();
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_told() {
        let given = "plinth server --tls-password secret --tls_password=secret --listen a:1";
        let given = given.split(' ').map(String::from).collect();
        let told = without_passwords(given).join(" ");
        let wanted = "plinth server --tls-password … --tls_password=… --listen a:1";
        assert_eq!(told, wanted);
    }
}
