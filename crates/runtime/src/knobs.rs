//! Knobs: every limit and interval of the database, in one place, with its unit in its name.
//!
//! A knob is one line below: name, type, default and, where an extreme value is legal, the range from which
//! the simulator sometimes draws one. `knobs()` gives this thread's set; take it once per use, so that a
//! changed set is seen.
//!
//! What a knob may be set to, for a process or a whole cluster, are its [bounds](Knobs::bounds): they follow from what relies
//! on it, and are written here, at the knob. Nothing outside them is ever in force.
//!
//! A cluster may set some for all of its processes: [`set_overrides`]. What a process was given itself stays.

use plinth_core::version::MAX_VERSIONS_IN_FLIGHT;
use std::cell::RefCell;
use std::rc::Rc;

/// A type a knob can have.
pub trait KnobValue: Copy + PartialOrd + std::str::FromStr + std::fmt::Display {
    fn to_f64(self) -> f64;
    fn from_f64(v: f64) -> Self;
}

macro_rules! knob_value {
    ($($t:ty),*) => {$(
        impl KnobValue for $t {
            fn to_f64(self) -> f64 { self as f64 }
            fn from_f64(v: f64) -> $t { v as $t }
        }
    )*};
}
knob_value!(u64, i64, usize, u32, f64);

macro_rules! knobs {
    ($(
        $(#[$doc:meta])* $name:ident: $t:ty = $default:expr
        $(, sim $low:expr, $high:expr)? $(, legal $least:expr, $most:expr)?;
    )*) => {
        #[derive(Clone, PartialEq, Debug)]
        pub struct Knobs { $($(#[$doc])* pub $name: $t,)* }

        impl Default for Knobs {
            fn default() -> Knobs { Knobs { $($name: $default,)* } }
        }

        impl Knobs {
            /// Every knob's name.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Replaces each knob that has a range by an extreme, with probability `p`.
            pub fn randomise(&mut self, p: f64) {
                $($(if crate::random::chance(p) { self.$name = extreme::<$t>($low, $high); })?)*
            }

            /// Sets a knob by name from text: for command lines and scenario files. Refuses what is outside its bounds.
            pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
                match name {
                    $(stringify!($name) => {
                        let value: $t = value.parse()
                            .map_err(|_| format!("knob {name}: {value:?} is not a {}", stringify!($t)))?;
                        check(name, value.to_f64())?;
                        self.$name = value;
                    })*
                    _ => return Err(format!("there is no knob {name:?}")),
                }
                Ok(())
            }

            /// What a knob lies between, both included: what those who rely on it can bear, where that is written; else not
            /// below what is simulated, and not far above what is usual.
            pub fn bounds(name: &str) -> Option<(f64, f64)> {
                match name {
                    $(stringify!($name) => {
                        let simulated: &[$t] = &[$($low, $high)?];
                        let legal: &[$t] = &[$($least, $most)?];
                        Some(bounds(KnobValue::to_f64($default as $t), simulated, legal))
                    })*
                    _ => None,
                }
            }

            /// Replaces each knob by one end of its bounds, or something between, with probability `p`.
            pub fn randomise_within_bounds(&mut self, p: f64) {
                $(if crate::random::chance(p) {
                    let (low, high) = Knobs::bounds(stringify!($name)).expect("it is one");
                    self.$name = extreme(<$t>::from_f64(low), <$t>::from_f64(high));
                })*
            }

            fn check(&self) -> Result<(), String> {
                $(check(stringify!($name), self.$name.to_f64())?;)*
                Ok(())
            }

            /// Takes from `overrides` each knob that has its default value here.
            fn overridden(&self, overrides: &[(String, String)]) -> Knobs {
                let (mut knobs, defaults) = (self.clone(), Knobs::default());
                for (name, value) in overrides {
                    // Unknown ones, and those whose value is none, are of another version of this program.
                    let _ = knobs.set(name, value);
                }
                $(if self.$name != defaults.$name { knobs.$name = self.$name; })*
                knobs
            }

            /// Names and values, for `status` and for a failed run's report.
            pub fn list(&self) -> Vec<(&'static str, String)> {
                vec![$((stringify!($name), self.$name.to_string())),*]
            }
        }
    };
}

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// A versionstamp has two bytes for the order in the batch.
const BATCH_COUNT_MAX: usize = u16::MAX as usize + 1;
/// A resolver remembers so many replies, in case a proxy did not get one: no more batches are under way.
pub const BATCHES_REMEMBERED: usize = 64;
/// What is gathered up to so many bytes, and the largest transaction or row beyond, fits into a frame.
const FRAME_SAFE_BYTES: usize = 32 * MIB;

knobs! {
    /// A connection with requests outstanding is pinged this often, unless somebody watches the process at its other end.
    rpc_ping_interval_ms: u64 = 500, sim 200, 2000, legal 50, 10_000;
    /// A ping that is not answered in this time closes the connection.
    rpc_ping_timeout_ms: u64 = 1500, sim 1000, 6000, legal 200, 30_000;
    connect_timeout_ms: u64 = 2000, legal 50, 30_000;
    /// A role not heard of for this long is taken for dead; its process is pinged five times meanwhile.
    failure_detection_ms: u64 = 500, sim 300, 1500, legal 100, 10_000;
    /// One that is silent because a turn of its loop takes long, as its process still says past the loop, is waited for so long.
    busy_peer_ms: u64 = 5000, sim 500, 8000, legal 100, 60_000;
    coordinator_lease_ms: u64 = 2000, sim 1000, 4000, legal 1000, 20_000;
    election_interval_ms: u64 = 100, sim 50, 500, legal 10, 500;
    /// Requests for a read version that may wait at a proxy; more are refused.
    grv_queue_max: usize = 100_000, sim 1, 100;
    /// The ratekeeper looks at the servers, and GRV proxies ask it what they may let in, this often.
    rate_interval_ms: u64 = 200, sim 50, 1000, legal 20, 1000;
    /// The ratekeeper's targets. Seconds by which a storage server may be behind what is committed: reads wait for so long.
    rate_storage_lag_s: f64 = 0.5;
    /// Seconds, beyond the window that readers need, by which a storage server's disk may be behind.
    rate_durability_lag_s: f64 = 30.0;
    /// Seconds that a commit may take beyond what its disks do.
    rate_commit_latency_s: f64 = 0.25;
    /// Bytes of a large disk that stay free; of a small one a twentieth.
    rate_free_bytes: f64 = 4e9;
    commit_batch_count_max: usize = 4096, sim 1, 4096, legal 1, BATCH_COUNT_MAX;
    commit_batch_bytes_max: usize = 4 * MIB, sim 1000, 4 * MIB, legal 1000, FRAME_SAFE_BYTES;
    commit_batches_in_flight_max: usize = 8, sim 1, 8, legal 1, BATCHES_REMEMBERED;
    /// Transactions that wait or are under way at a commit proxy may hold this many bytes; one is always let in.
    commit_proxy_bytes_max: usize = 256 * MIB, sim 1000, MIB;
    /// The system keyspace is written anew to its stream after this many bytes of log, so that the log can be popped.
    system_snapshot_interval_bytes: usize = 32 * MIB, sim 10_000, MIB;
    /// A proxy without commits sends an empty batch this often, so that versions move on.
    empty_commit_interval_ms: u64 = 500, sim 100, 2000, legal 10, 5000;
    /// How many versions back a transaction may read: 5 seconds (FDB §2.4). A recovery jumps [`MAX_VERSIONS_IN_FLIGHT`], so
    /// that nobody reads before it; proxies remember for as long which resolver had which keys.
    version_window: i64 = 5_000_000, sim 500_000, 5_000_000, legal 500_000, MAX_VERSIONS_IN_FLIGHT;
    /// Above this the oldest unpopped mutations of a log server are kept on disk only.
    log_memory_bytes_max: usize = 64 * MIB, sim 100_000, 64 * MIB;
    log_segment_bytes: usize = 64 * MIB, sim 64 * KIB, MIB, legal 64 * KIB, 1024 * MIB;
    /// A disk on which an operation takes longer is taken for sick: nothing new goes there.
    disk_stall_ms: u64 = 5000, sim 2000, 10_000, legal 500, 600_000;
    /// A disk that works again gets no log servers for so long, and twice as long each time that it fails anew.
    disk_trust_ms: u64 = 30_000, sim 1000, 60_000, legal 1000, 3_600_000;
    storage_commit_interval_ms: u64 = 500, sim 50, 1000, legal 10, 10_000;
    /// How long a storage server rests after a commit of its engine, measured in such commits, if that is longer. Later commits
    /// are larger, and a page with several new rows is written once.
    storage_commit_rest: f64 = 4.0, sim 0.0, 5.0;
    /// About so many bytes go into one commit of a storage engine.
    storage_commit_bytes_max: usize = 16 * MIB, sim 100, 16 * MIB, legal 100, 512 * MIB;
    /// Above this a storage server gives up old versions early, and pulls no new ones while that can make room.
    storage_window_bytes_max: usize = 512 * MIB, sim 50_000, MIB;
    /// Reads that may wait for a version at a storage server; more are refused.
    storage_reads_waiting_max: usize = 200_000, sim 1, 100;
    peek_bytes_max: usize = MIB, sim 100, MIB, legal 100, 8 * MIB;
    /// Limit of one range reply.
    range_bytes_max: usize = MIB, sim 200, MIB, legal 200, FRAME_SAFE_BYTES;
    /// How long a read waits for a version that the server does not have yet.
    future_version_wait_ms: u64 = 1000, sim 200, 2000, legal 10, 10_000;
    /// Pages of a shard that moves here which may wait for the engine.
    fetch_parts_max: usize = 16, sim 1, 16;
    /// About so many bytes of fetched rows go into one commit: those who wait for the disk wait for all of it.
    fetch_commit_bytes_max: usize = 2 * MIB, sim 100, 2 * MIB, legal 100, 128 * MIB;
    /// How long a storage server rests from storing fetched rows, measured in commits with such.
    fetch_rest: f64 = 2.0, sim 0.0, 3.0;
    fetch_page_bytes: usize = MIB, sim 100, MIB, legal 100, FRAME_SAFE_BYTES;
    /// A row is in the sample of sizes with a probability of its bytes over this.
    byte_sample_unit: u32 = 16_384, sim 50, 16_384;
    watches_max: usize = 10_000, sim 1, 20;
    /// The memory engine writes this much of its rolling snapshot between two laps.
    memory_engine_snapshot_bytes: usize = 64 * MIB, sim 4 * KIB, 64 * KIB, legal 4 * KIB, 1024 * MIB;
    client_locations_max: usize = 100_000, sim 1, 1000;
    /// A new database begins with so many shards, beside that of the system keyspace. More are cut as data comes.
    first_shards: usize = 1, sim 1, 64, legal 1, 200_000;
    /// Small shards that are not empty are joined only while there are more than this for every team.
    shards_per_team: usize = 4, sim 1, 16;
    recovery_retry_ms: u64 = 200, legal 10, 10_000;
    /// The data distributor looks at the world this often.
    distribution_interval_ms: u64 = 1000, sim 100, 3000, legal 50, 60_000;
    /// How fast replicas are compared in the background, bytes of one of them a second; and the pause between two rounds.
    scan_bytes_per_second: usize = 4 * MIB, sim 10_000, 4 * MIB;
    scan_pause_ms: u64 = 60_000, sim 1000, 20_000;
    /// A storage server that has been away for so long is taken for lost: others get its shards.
    storage_failure_ms: u64 = 10_000, sim 2000, 15_000, legal 2000, 1_000_000;
    /// How often the sequencer looks whether all resolvers have about the same to do.
    resolver_balance_ms: u64 = 1000, sim 20, 1000;
    /// Shards that move at once, in all and to one server.
    moves_max: usize = 16, sim 1, 16;
    moves_per_server_max: usize = 2, sim 1, 4;
    /// A shard is split when it is larger than about three times this, and more in a large database.
    shard_bytes_min: usize = 10 * MIB, sim 500, 10 * MIB;
    shard_bytes_max: usize = 500 * MIB;
    shard_write_bytes_per_second_max: usize = 8 * MIB, sim 3000, 8 * MIB;
}

/// The low end, the high end, or something between, evenly over the orders of magnitude.
fn extreme<T: KnobValue>(low: T, high: T) -> T {
    match crate::random::below(3) {
        0 => low,
        1 => high,
        _ => {
            let (l, h) = (low.to_f64().max(1.0).ln(), high.to_f64().max(1.0).ln());
            let drawn = T::from_f64((l + (h - l) * crate::random::unit()).exp());
            if drawn < low {
                low
            } else if drawn > high {
                high
            } else {
                drawn
            }
        }
    }
}

/// A knob without a range in the simulator may be up to so many times larger or smaller.
const USUAL_FACTOR: f64 = 100.0;

fn bounds<T: KnobValue>(default: f64, simulated: &[T], legal: &[T]) -> (f64, f64) {
    if let [least, most] = legal {
        return (least.to_f64(), most.to_f64());
    }
    let low = simulated.first().map(|low| low.to_f64());
    (
        low.unwrap_or(default / USUAL_FACTOR),
        default * USUAL_FACTOR,
    )
}

fn check(name: &str, value: f64) -> Result<(), String> {
    let (low, high) = Knobs::bounds(name).expect("it is one");
    match low <= value && value <= high {
        true => Ok(()),
        false => Err(format!("knob {name}: {value} is not from {low} to {high}")),
    }
}

/// A process's own knobs, and those in force.
#[derive(Clone, Default)]
pub(crate) struct KnobSet {
    own: Knobs,
    in_force: Rc<Knobs>,
}

thread_local! {
    static KNOBS: RefCell<KnobSet> = RefCell::default();
}

/// This thread's knobs.
pub fn knobs() -> Rc<Knobs> {
    KNOBS.with(|k| k.borrow().in_force.clone())
}

/// Replaces this thread's own knobs; those of the cluster are forgotten. Inside a simulation, the run's.
pub fn set_knobs(knobs: Knobs) {
    if let Err(broken) = knobs.check() {
        panic!("{broken}");
    }
    replace(KnobSet {
        in_force: Rc::new(knobs.clone()),
        own: knobs,
    });
}

/// From now on these, names and values, are what the cluster wants. True if anything is different by that.
pub fn set_overrides(overrides: &[(String, String)]) -> bool {
    KNOBS.with(|set| {
        let mut set = set.borrow_mut();
        let knobs = set.own.overridden(overrides);
        let differs = knobs != *set.in_force;
        if differs {
            set.in_force = Rc::new(knobs);
        }
        differs
    })
}

pub(crate) fn replace(knobs: KnobSet) -> KnobSet {
    KNOBS.with(|k| k.replace(knobs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_knob_is_set_by_name_and_a_wrong_name_or_value_says_so() {
        let mut knobs = Knobs::default();
        knobs.set("peek_bytes_max", "123").unwrap();
        assert_eq!(knobs.peek_bytes_max, 123);
        assert!(
            knobs
                .set("peek_bytes_max", "many")
                .unwrap_err()
                .contains("peek_bytes_max")
        );
        assert!(knobs.set("peek", "1").is_err());
        assert_eq!(Knobs::NAMES.len(), knobs.list().len());
    }

    #[test]
    fn what_the_cluster_wants_holds_until_it_does_not_except_where_the_process_was_told_otherwise()
    {
        let mut own = Knobs::default();
        own.set("moves_max", "3").unwrap();
        set_knobs(own.clone());
        let wanted = [("moves_max", "5"), ("watches_max", "7"), ("gone", "1")];
        let wanted = wanted.map(|(name, value)| (name.to_string(), value.to_string()));
        assert!(set_overrides(&wanted));
        assert!(!set_overrides(&wanted));
        assert_eq!((knobs().moves_max, knobs().watches_max), (3, 7));
        assert!(set_overrides(&[]));
        assert_eq!(*knobs(), own);
        set_knobs(Knobs::default());
    }

    #[test]
    fn every_default_lies_within_what_a_cluster_may_set() {
        for (name, value) in Knobs::default().list() {
            let (low, high) = Knobs::bounds(name).expect("it is one");
            let value: f64 = value.parse().unwrap();
            assert!(low <= value && value <= high, "{name}");
        }
        assert_eq!(Knobs::bounds("moves_max"), Some((1.0, 1600.0)));
        assert_eq!(Knobs::bounds("no_such"), None);
    }

    #[test]
    fn nothing_outside_the_bounds_is_set_by_whatever_door() {
        for (name, value) in [
            ("commit_batch_count_max", "65537"),
            ("commit_batch_count_max", "0"),
            ("version_window", "100000001"),
            ("version_window", "-1"),
            ("log_segment_bytes", "4294967296"),
            ("range_bytes_max", "67108864"),
            ("fetch_rest", "NaN"),
        ] {
            let mut knobs = Knobs::default();
            let refusal = knobs.set(name, value).unwrap_err();
            assert!(refusal.contains(name), "{refusal}");
            assert_eq!(knobs, Knobs::default());
            let of_cluster = [(name.to_string(), value.to_string())];
            assert!(!set_overrides(&of_cluster), "{name} {value}");
        }
        let mut knobs = Knobs::default();
        knobs.set("commit_batch_count_max", "65536").unwrap();
        let illegal = Knobs {
            version_window: 1 << 40,
            ..Knobs::default()
        };
        assert!(std::panic::catch_unwind(|| set_knobs(illegal)).is_err());
    }

    #[test]
    fn what_is_simulated_and_what_is_drawn_within_the_bounds_is_legal() {
        for _ in 0..500 {
            let mut knobs = Knobs::default();
            knobs.randomise(0.5);
            assert_eq!(knobs.check(), Ok(()));
            knobs.randomise_within_bounds(0.5);
            assert_eq!(knobs.check(), Ok(()));
        }
    }

    #[test]
    fn random_knobs_stay_in_their_ranges() {
        for _ in 0..500 {
            let mut knobs = Knobs::default();
            knobs.randomise(1.0);
            assert!((1..=4096).contains(&knobs.commit_batch_count_max));
            assert!((500_000..=5_000_000).contains(&knobs.version_window));
            assert!((64 * KIB..=MIB).contains(&knobs.log_segment_bytes));
            assert_eq!(knobs.recovery_retry_ms, 200);
        }
    }
}
