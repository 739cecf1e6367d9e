//! What the keeper wants to reach beside ZooKeeper, and what of it was reached.
//!
//! What is shown decides: figures are judged with two digits behind the point.

use crate::spread::Spread;
use plinth_measure::latency::round;
use serde_json::{Value, json};

/// Requests for each second of the servers' processors.
const PER_CPU_SECOND: f64 = 2.0;
/// Throughput, if the sessions have cores of their own.
const APART: f64 = 2.0;
/// Throughput, if they share those of the servers.
const SHARED: f64 = 1.5;
/// Throughput of one session that only writes: a disk decides it.
const ONE_WRITER: f64 = 1.3;
/// Throughput of ClickHouse's mix with a hundred sessions.
const CLICKHOUSE: f64 = 3.0;
const P99: f64 = 1.0;
const MEMORY: f64 = 0.5;
/// A server with more gateways must not be below the one with less. Rounds differ by as much.
const NOT_BELOW: f64 = 0.97;

const DIGITS: i32 = 2;

/// A multiple of another server's figure that is wanted.
#[derive(Clone, PartialEq, Debug)]
pub struct Goal {
    pub name: &'static str,
    pub wanted: f64,
    pub is_least: bool,
    /// `None` if it was not measured.
    pub found: Option<Spread>,
    /// The machine allows no more, whoever wants what.
    pub is_budget: bool,
}

impl Goal {
    fn least(name: &'static str, wanted: f64, found: Option<Spread>) -> Goal {
        Goal {
            name,
            wanted: round(wanted, DIGITS),
            is_least: true,
            found,
            is_budget: false,
        }
    }

    fn most(name: &'static str, wanted: f64, found: Option<Spread>) -> Goal {
        Goal {
            is_least: false,
            ..Goal::least(name, wanted, found)
        }
    }

    /// `None` if it is not known.
    pub fn is_met(&self) -> Option<bool> {
        let found = round(self.found?.median, DIGITS);
        Some(match self.is_least {
            true => found >= self.wanted,
            false => found <= self.wanted,
        })
    }

    pub fn to_json(&self) -> Value {
        json!({
            "goal": self.name,
            "wanted": self.wanted,
            "at": if self.is_least { "least" } else { "most" },
            "found": self.found.map(|found| round(found.median, DIGITS)),
            "is_met": self.is_met(),
            "is_budget": self.is_budget,
        })
    }
}

/// The servers of one workload with a number of clients.
pub struct Cell<'a> {
    /// `None` if it was not measured.
    pub peer: Option<&'a Value>,
    pub others: Vec<&'a Value>,
}

impl<'a> Cell<'a> {
    pub fn of(objects: &'a [Value]) -> Cell<'a> {
        let is_peer = |object: &&Value| object["label"] == object["peer"];
        let (peers, others): (Vec<&Value>, _) = objects.iter().partition(is_peer);
        Cell {
            peer: peers.first().copied(),
            others,
        }
    }

    /// Objects that stand behind each other and differ in nothing but the server.
    pub fn all(objects: &'a [Value]) -> Vec<Cell<'a>> {
        let same = |a: &Value, b: &Value| {
            let fields = ["workload", "clients", "outstanding", "nodes", "peer"];
            fields.iter().all(|field| a[*field] == b[*field])
        };
        objects.chunk_by(same).map(Cell::of).collect()
    }

    pub fn any(&self) -> &'a Value {
        self.peer.unwrap_or_else(|| self.others[0])
    }

    /// The goals of one of the others.
    pub fn goals(&self, number: usize) -> Vec<Goal> {
        let object = self.others[number];
        let times = |name| Spread::read(&object["times_peer"], name);
        let mut goals = vec![
            self.throughput(object),
            Goal::least(
                "per processor second",
                PER_CPU_SECOND,
                times("operations_per_server_cpu_s_whole"),
            ),
            Goal::most("p99", P99, times("p99_ms")),
            Goal::most("memory", MEMORY, times("server_memory_bytes")),
        ];
        if number > 0 {
            let before = Spread::read(&object["times_before"], "operations_per_second");
            goals.push(Goal::least("not below the one before", NOT_BELOW, before));
        }
        goals
    }

    fn throughput(&self, object: &Value) -> Goal {
        let found = Spread::read(&object["times_peer"], "operations_per_second");
        let goal = |wanted| Goal::least("throughput", wanted, found);
        let is_apart = object["has_own_cores"] == true;
        match (object["workload"].as_str(), object["clients"].as_u64()) {
            (Some("reads-0"), Some(1)) => goal(ONE_WRITER),
            (Some("clickhouse"), Some(100)) => goal(CLICKHOUSE),
            _ if is_apart => goal(APART),
            _ => match self.reachable(object) {
                Some(reachable) if reachable < SHARED => Goal {
                    is_budget: true,
                    ..goal(reachable)
                },
                _ => goal(SHARED),
            },
        }
    }

    /// The multiple of the peer's throughput at which the machine is used up by a server that takes as little of a
    /// processor for each request as is wanted, and by its sessions.
    fn reachable(&self, object: &Value) -> Option<f64> {
        let peer = Needs::of(self.peer?)?;
        let load_us = Needs::of(object)?.load_us;
        let most = cores_us(object)? / (peer.server_us / PER_CPU_SECOND + load_us);
        Some(most / peer.rate)
    }

    /// Processor time, in µs, that there is for the servers for each request at the wanted throughput: all cores, less
    /// what the sessions take.
    pub fn budget_us(&self, object: &Value) -> Option<f64> {
        let wanted = self.throughput(object).wanted * Needs::of(self.peer?)?.rate;
        let all = cores_us(object)? / wanted;
        match object["has_own_cores"] == true {
            true => Some(all),
            false => Some(all - Needs::of(object)?.load_us),
        }
    }
}

/// In a second.
fn cores_us(object: &Value) -> Option<f64> {
    object["cores"].as_f64().map(|cores| cores * 1e6)
}

/// What each request takes of the processors, in µs, and requests a second.
pub struct Needs {
    pub rate: f64,
    pub server_us: f64,
    pub load_us: f64,
}

impl Needs {
    pub fn of(object: &Value) -> Option<Needs> {
        let median = |name| Spread::read(&object["figures"], name).map(|spread| spread.median);
        let positive = |name| median(name).filter(|figure| *figure > 0.0);
        Some(Needs {
            rate: positive("operations_per_second")?,
            server_us: 1e6 / positive("operations_per_server_cpu_s_whole")?,
            load_us: median("load_us_per_operation")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(median: f64) -> Value {
        json!({"median": median, "least": median, "most": median})
    }

    /// Requests a second, and µs of the servers and of the sessions for each.
    fn object(label: &str, clients: u64, rate: f64, server_us: f64, load_us: f64) -> Value {
        json!({
            "label": label, "peer": "zookeeper", "workload": "reads-50", "clients": clients, "cores": 2,
            "figures": {
                "operations_per_second": spread(rate),
                "operations_per_server_cpu_s_whole": spread(1e6 / server_us),
                "load_us_per_operation": spread(load_us),
            },
            "times_peer": {"operations_per_second": spread(rate / 10_000.0), "p99_ms": spread(1.004)},
        })
    }

    #[test]
    fn what_is_shown_decides_and_what_was_not_measured_is_not_met_or_missed() {
        let objects = [
            object("zookeeper", 100, 10_000.0, 20.0, 10.0),
            object("plinth", 100, 14_960.0, 20.0, 10.0),
            object("plinth-2", 100, 14_900.0, 20.0, 10.0),
        ];
        let cell = Cell::of(&objects);
        let met = |number: usize| -> Vec<Option<bool>> {
            cell.goals(number).iter().map(Goal::is_met).collect()
        };
        assert_eq!(met(0), [Some(true), None, Some(true), None]);
        assert_eq!(met(1), [Some(false), None, Some(true), None, None]);
        assert_eq!(cell.goals(0)[0].wanted, 1.5);
        // 2 cores for 15,000 requests a second are 133.3 µs for each.
        let budget = cell.budget_us(cell.others[0]).expect("all is known");
        assert!((budget - 123.33).abs() < 0.01, "{budget}");
    }

    #[test]
    fn nobody_must_do_more_than_two_cores_can_and_more_is_asked_of_sessions_apart() {
        // ZooKeeper takes both cores, and half of them are the sessions': no server can do 1.5 times as much.
        let mut objects = [
            object("zookeeper", 800, 40_000.0, 20.0, 30.0),
            object("plinth", 800, 40_000.0, 20.0, 30.0),
        ];
        let goal = Cell::of(&objects).goals(0)[0].clone();
        assert_eq!((goal.wanted, goal.is_budget), (1.25, true));
        for object in &mut objects {
            object["has_own_cores"] = json!(true);
        }
        assert_eq!(Cell::of(&objects).goals(0)[0].wanted, 2.0);
    }

    #[test]
    fn cells_are_objects_behind_each_other_that_differ_in_the_server_only() {
        let objects = [
            object("zookeeper", 1, 1.0, 1.0, 1.0),
            object("plinth", 1, 1.0, 1.0, 1.0),
            object("zookeeper", 100, 1.0, 1.0, 1.0),
            object("plinth", 100, 1.0, 1.0, 1.0),
            object("plinth-2", 100, 1.0, 1.0, 1.0),
        ];
        let others: Vec<usize> = Cell::all(&objects)
            .iter()
            .map(|cell| cell.others.len())
            .collect();
        assert_eq!(others, [1, 2]);
    }
}
