//! Counters of roles and processes, in the form of FoundationDB: `{"hz": …, "counter": …}`. Its third number, the
//! roughness, needs a look at the clock for each operation; there is none here.

use plinth_protocol::control::{Count, ProcessStatus};
use serde_json::{Value, json};

/// The sum of a number that several have.
#[derive(Clone, Copy, Default)]
pub struct Sum {
    pub total: u64,
    pub hz: f64,
}

impl Sum {
    pub fn of<'a>(counts: impl IntoIterator<Item = &'a Count>, name: &str) -> Sum {
        let named = counts.into_iter().filter(|count| count.name == name);
        named.fold(Sum::default(), |sum, count| Sum {
            total: sum.total + count.total,
            hz: sum.hz + count.hz,
        })
    }

    pub fn and(self, other: Sum) -> Sum {
        Sum {
            total: self.total + other.total,
            hz: self.hz + other.hz,
        }
    }

    pub fn json(self) -> Value {
        json!({"hz": rounded(self.hz), "counter": self.total})
    }
}

/// What all roles have done together.
pub fn of_all_roles<'a>(processes: impl Iterator<Item = &'a ProcessStatus>, name: &str) -> Sum {
    let roles = processes.flat_map(|process| &process.roles);
    Sum::of(roles.flat_map(|role| &role.counts), name)
}

/// Only a rate.
pub fn hz(rate: f64) -> Value {
    json!({"hz": rounded(rate)})
}

/// Six digits after the point are more than anybody reads.
pub fn rounded(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}
