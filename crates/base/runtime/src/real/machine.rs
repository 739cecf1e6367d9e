//! What Linux says about this process and its machine.

use super::{net, offload};
use crate::machine::usage::{DiskUsage, Usage};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub(crate) fn arguments() -> Vec<String> {
    let given = std::env::args_os();
    given
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect()
}

pub(crate) async fn usage(directory: &Path) -> Usage {
    let directory = PathBuf::from(directory);
    offload(move || {
        let mut usage = Usage::default();
        // Each part may be closed to this process; the others are told.
        #[cfg(target_os = "linux")]
        {
            let _ = linux::process(&mut usage);
            let _ = linux::memory(&mut usage);
            let _ = linux::processors(&mut usage);
            let _ = linux::network(&mut usage);
            usage.disk = linux::disk(&directory).unwrap_or_default();
        }
        usage.connections = net::counts();
        usage
    })
    .await
}

#[cfg(target_os = "linux")]
mod linux {
    use super::*;
    use procfs::net::{dev_status, snmp};
    use procfs::process::Process;
    use procfs::{Current, CurrentSI, KernelStats, Meminfo, ProcResult};
    use std::os::unix::fs::MetadataExt;

    /// Milliseconds, as the kernel counts the time in which a device was busy.
    fn milliseconds(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn ticks(ticks: u64) -> Duration {
        Duration::from_secs_f64(ticks as f64 / procfs::ticks_per_second() as f64)
    }

    pub fn process(usage: &mut Usage) -> ProcResult<()> {
        let process = Process::myself()?;
        let stat = process.stat()?;
        usage.process_cpu = ticks(stat.utime + stat.stime);
        usage.resident_bytes = stat.rss * procfs::page_size();
        usage.virtual_bytes = stat.vsize;
        let limit = rustix::process::getrlimit(rustix::process::Resource::As).current;
        usage.limit_bytes = limit.unwrap_or(0);
        Ok(())
    }

    pub fn memory(usage: &mut Usage) -> ProcResult<()> {
        let memory = Meminfo::current()?;
        usage.memory_bytes = memory.mem_total;
        usage.memory_available_bytes = memory.mem_available.unwrap_or(memory.mem_free);
        if usage.limit_bytes == 0 {
            usage.limit_bytes = memory.mem_total; // no limit of its own
        }
        Ok(())
    }

    pub fn processors(usage: &mut Usage) -> ProcResult<()> {
        let all = KernelStats::current()?.total;
        let busy = all.user + all.nice + all.system;
        let busy = busy + all.irq.unwrap_or(0) + all.softirq.unwrap_or(0) + all.steal.unwrap_or(0);
        let idle = all.idle + all.iowait.unwrap_or(0);
        (usage.machine_busy, usage.machine_time) = (ticks(busy), ticks(busy + idle));
        Ok(())
    }

    pub fn network(usage: &mut Usage) -> ProcResult<()> {
        for (name, interface) in dev_status()? {
            if name != "lo" {
                usage.sent_bytes += interface.sent_bytes;
                usage.received_bytes += interface.recv_bytes;
            }
        }
        usage.retransmitted_segments = snmp()?.tcp_retrans_segs;
        Ok(())
    }

    /// The device of the directory. Without one of its own, as in containers, there is none.
    pub fn disk(directory: &Path) -> Option<DiskUsage> {
        let device = std::fs::metadata(directory).ok()?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let all = procfs::diskstats().ok()?;
        let is_it =
            |disk: &procfs::DiskStat| (disk.major as u32, disk.minor as u32) == (major, minor);
        let disk = all.into_iter().find(is_it)?;
        Some(DiskUsage {
            reads: disk.reads as u64,
            sectors_read: disk.sectors_read as u64,
            writes: disk.writes as u64,
            sectors_written: disk.sectors_written as u64,
            busy: milliseconds(disk.time_in_progress as u64),
        })
    }
}
