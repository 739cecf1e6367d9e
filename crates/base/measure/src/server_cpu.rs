//! CPU time and memory of the server processes on this machine, from `/proc`.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // it reads the machine's files, not the database's

use plinth_runtime::Duration;
use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;

/// Number of attempts to find a process before giving up.
const LOOKS: usize = 3;

/// A process that uses less than this share of a core is idle. Its timers cost some of it, in a build for tests more.
const IDLE_SHARE: f64 = 0.1;
const BETWEEN_LOOKS: Duration = Duration::from_secs(1);
/// Number of idle looks in a row that are required. A storage server pauses between engine commits for up to 1.5 s,
/// so one idle look is not enough.
const IDLE_LOOKS: usize = 3;
const LOOKS_MAX: usize = 60;

/// [`until_settled`] looks this often, and so often in a row it must find nothing to do: longer than a storage server
/// pauses.
const SETTLE_LOOK: Duration = Duration::from_millis(500);
const SETTLE_LOOKS: usize = 4;

/// CPU time and memory of a set of processes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    /// User and system time, summed over the processes.
    pub cpu_s: f64,
    /// Resident memory, summed over the processes.
    pub memory_bytes: u64,
    /// The most that was ever resident, of each process by itself, summed.
    pub memory_peak_bytes: u64,
}

impl Usage {
    /// CPU time since `before`, and the current memory.
    pub fn since(&self, before: &Usage) -> Usage {
        Usage {
            cpu_s: (self.cpu_s - before.cpu_s).max(0.0),
            ..self.clone()
        }
    }
}

/// `None` if there are no processes, or one of them cannot be read.
pub fn usage(pids: &[u32]) -> Option<Usage> {
    if pids.is_empty() {
        return None;
    }
    let mut sum = Usage::default();
    for pid in pids {
        let ticks = cpu_ticks(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        sum.cpu_s += ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        sum.memory_bytes += bytes_of("VmRSS:", &status).unwrap_or(0);
        sum.memory_peak_bytes += bytes_of("VmHWM:", &status).unwrap_or(0);
    }
    Some(sum)
}

/// Waits until each of the processes has been almost idle for some seconds. Otherwise the rest of their earlier work
/// would be counted as work of the run. The wait has a limit, because they may be busy with something else. Calls
/// `busy` once if the wait takes longer than the minimum.
pub async fn until_idle(pids: &[u32], busy: impl Fn()) {
    let usage_of_each =
        || -> Option<Vec<Usage>> { pids.iter().map(|pid| usage(&[*pid])).collect() };
    let Some(mut before) = usage_of_each() else {
        return;
    };
    let mut idle_looks = 0;
    for look in 0..LOOKS_MAX {
        if look == IDLE_LOOKS {
            busy();
        }
        plinth_runtime::sleep(BETWEEN_LOOKS).await;
        let Some(now) = usage_of_each() else { return };
        let is_idle = are_idle(&before, &now, BETWEEN_LOOKS);
        idle_looks = if is_idle { idle_looks + 1 } else { 0 };
        if idle_looks == IDLE_LOOKS {
            return;
        }
        before = now;
    }
}

/// Waits until the processes have done what a run has left to them, for `most` at most. Returns the CPU time that they
/// took for it: a server that puts work off has not saved it. The time of idle processes does not count.
pub async fn until_settled(pids: &[u32], most: Duration) -> f64 {
    let usage_of_each =
        || -> Option<Vec<Usage>> { pids.iter().map(|pid| usage(&[*pid])).collect() };
    let Some(mut before) = usage_of_each() else {
        return 0.0;
    };
    let mut settling = Settling::default();
    for _ in 0..most.as_millis() / SETTLE_LOOK.as_millis() {
        plinth_runtime::sleep(SETTLE_LOOK).await;
        let Some(now) = usage_of_each() else { break };
        if settling.look(&before, &now) {
            break;
        }
        before = now;
    }
    settling.cpu_s
}

/// What was seen of processes that finish their work.
#[derive(Default)]
struct Settling {
    /// Up to the last look at which they had work.
    cpu_s: f64,
    /// Since that look.
    idle_s: f64,
    idle_looks: usize,
}

impl Settling {
    /// Returns whether there is no more work.
    fn look(&mut self, before: &[Usage], now: &[Usage]) -> bool {
        let both = before.iter().zip(now);
        self.idle_s += both
            .map(|(before, now)| now.since(before).cpu_s)
            .sum::<f64>();
        if are_idle(before, now, SETTLE_LOOK) {
            self.idle_looks += 1;
        } else {
            self.cpu_s += std::mem::take(&mut self.idle_s);
            self.idle_looks = 0;
        }
        self.idle_looks == SETTLE_LOOKS
    }
}

/// Many idle processes together may use more than one that is busy: each is judged by itself.
fn are_idle(before: &[Usage], now: &[Usage], time: Duration) -> bool {
    let most = IDLE_SHARE * time.as_secs_f64();
    let mut both = before.iter().zip(now);
    both.all(|(before, now)| now.since(before).cpu_s < most)
}

/// Sum of fields 14 and 15 (user and system time) of a stat line. The second field is a name in parentheses that may
/// contain any character.
fn cpu_ticks(stat: &str) -> Option<u64> {
    let rest = &stat[stat.rfind(')')? + 1..];
    let mut fields = rest.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// Resident bytes of a process that it shares with no file and no other process.
pub fn own_memory_bytes(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    bytes_of("RssAnon:", &status)
}

fn bytes_of(field: &str, status: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with(field))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kib << 10)
}

/// The processes of this machine that listen at one of `addresses`, as far as this process may inspect them.
pub fn processes_listening_at(addresses: &[SocketAddr]) -> Vec<u32> {
    let ports: BTreeSet<u16> = addresses.iter().map(SocketAddr::port).collect();
    // The kernel's table is read in pieces, so an entry can be missed while connections come and go.
    for _ in 0..LOOKS {
        let pids = processes_listening(&ports);
        if !pids.is_empty() {
            return pids;
        }
    }
    Vec::new()
}

fn processes_listening(ports: &BTreeSet<u16>) -> Vec<u32> {
    let mut sockets = BTreeSet::new();
    for file in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(file).unwrap_or_default();
        sockets.extend(listening(&text, ports));
    }
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let mut pids: Vec<u32> = processes
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|pid| has_socket(*pid, &sockets))
        .collect();
    pids.sort_unstable();
    pids
}

/// Inodes of the listening sockets at `ports` in a `/proc/net/tcp` table.
fn listening(table: &str, ports: &BTreeSet<u16>) -> Vec<u64> {
    const LISTEN: &str = "0A";
    let inode = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let port = u16::from_str_radix(fields.get(1)?.rsplit(':').next()?, 16).ok()?;
        (*fields.get(3)? == LISTEN && ports.contains(&port))
            .then(|| fields.get(9)?.parse().ok())
            .flatten()
    };
    table.lines().skip(1).filter_map(inode).collect()
}

fn has_socket(pid: u32, sockets: &BTreeSet<u64>) -> bool {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return false;
    };
    files
        .flatten()
        .filter_map(|file| fs::read_link(file.path()).ok())
        .any(|target| {
            let name = target.to_string_lossy();
            name.strip_prefix("socket:[")
                .and_then(|rest| rest.strip_suffix(']')?.parse().ok())
                .is_some_and(|inode| sockets.contains(&inode))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_by_where_it_listens_and_has_memory_and_time() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
        let address = listener.local_addr().expect("is bound");
        assert_eq!(processes_listening_at(&[address]), [std::process::id()]);
        let used = usage(&[std::process::id()]).expect("we live");
        assert!(used.memory_bytes > 100_000, "{used:?}");
        assert!(used.memory_peak_bytes >= used.memory_bytes, "{used:?}");
        drop(listener);
        assert_eq!(processes_listening_at(&[address]), Vec::<u32>::new());
        assert_eq!(usage(&[]), None);
    }

    #[test]
    fn five_processes_whose_timers_tick_are_idle_and_one_that_works_is_not() {
        let after = |cpu_s: &[f64]| -> Vec<Usage> {
            let usage = |cpu_s: &f64| Usage {
                cpu_s: *cpu_s,
                ..Usage::default()
            };
            cpu_s.iter().map(usage).collect()
        };
        let second = Duration::from_secs(1);
        let before = after(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        let idle = after(&[1.05, 2.05, 3.05, 4.05, 5.05]);
        assert!(are_idle(&before, &idle, second));
        let busy = after(&[1.0, 2.0, 3.2, 4.0, 5.0]);
        assert!(!are_idle(&before, &busy, second));
    }

    #[test]
    fn work_that_was_put_off_counts_up_to_its_end_and_pauses_belong_to_it() {
        let at = |cpu_s: f64| {
            let of = |cpu_s| Usage {
                cpu_s,
                ..Usage::default()
            };
            vec![of(cpu_s), of(7.0)]
        };
        let looks = [0.0, 0.4, 0.42, 0.44, 0.84, 0.86, 0.88, 0.9, 0.92];
        let mut settling = Settling::default();
        let mut ends = looks
            .windows(2)
            .map(|pair| settling.look(&at(pair[0]), &at(pair[1])));
        assert_eq!(ends.position(|is_end| is_end), Some(7));
        drop(ends);
        assert!((settling.cpu_s - 0.84).abs() < 1e-9);
    }

    #[test]
    fn a_stat_line_is_read_past_a_strange_name() {
        let line = "7 (a b) c) S 1 7 7 0 -1 4194560 100 0 0 0 12 34 0 0 20 0 1 0 5 0 0";
        assert_eq!(cpu_ticks(line), Some(46));
        assert_eq!(cpu_ticks("garbage"), None);
    }
}
