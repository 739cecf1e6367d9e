//! The processes, and the faults that strike them: servers, and after them gateways of the keeper.

use super::net::{Net, address};
use crate::common::{self, BINARY, Directory};
use plinth_runtime::{Duration, Instant, now};
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::process::{Child, Command};

/// Size of the last server's disk; small enough to be filled.
const SMALL_DISK_MB: u64 = 400;

pub struct Servers {
    pub net: Net,
    pub directory: Directory,
    /// The children after so many are gateways.
    servers: usize,
    children: Vec<Option<Child>>,
    /// Time at which a server that has ended is started again.
    starts: Vec<Option<Instant>>,
}

impl Servers {
    /// Starts the servers, the first three as coordinators, and the gateways, and creates the database.
    pub fn start(servers: usize, gateways: usize) -> Self {
        let count = servers + gateways;
        let net = Net::build(count);
        let directory = Directory::new("chaos");
        let coordinators: Vec<String> = (0..3).map(|i| address(i).to_string()).collect();
        let file = format!("chaos:chaos@{}\n", coordinators.join(","));
        std::fs::write(directory.file("plinth.cluster"), file).expect("can be written");
        let mut servers = Servers {
            net,
            directory,
            servers,
            children: (0..count).map(|_| None).collect(),
            starts: vec![None; count],
        };
        servers.mount_small_disk();
        for i in 0..count {
            servers.launch(i);
        }
        let created = servers.plinth(&["cli", "--exec", "configure new triple ssd"]);
        assert!(
            created.status.success(),
            "{}",
            common::text(&created.stderr)
        );
        servers
    }

    fn mount_small_disk(&self) {
        let disk = self.data(self.servers - 1);
        std::fs::create_dir_all(&disk).expect("can be made");
        let size = format!("size={SMALL_DISK_MB}m");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(&disk)
            .status();
        assert!(mounted.is_ok_and(|status| status.success()), "no tmpfs");
    }

    fn data(&self, i: usize) -> PathBuf {
        self.directory.file(&format!("server-{i}"))
    }

    pub fn cluster_file(&self) -> PathBuf {
        self.directory.file("plinth.cluster")
    }

    pub fn plinth(&self, arguments: &[&str]) -> std::process::Output {
        common::plinth(&self.cluster_file(), arguments)
    }

    fn launch(&mut self, i: usize) {
        let said = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.directory.file(&format!("said-{i}")))
            .expect("can be made");
        let mut command = self.net.command(i, BINARY);
        let role = match i < self.servers {
            true => "server",
            false => "keeper",
        };
        command.args([role, "--listen", &address(i).to_string()]);
        if i < self.servers {
            command.arg("--data-dir").arg(self.data(i));
            command.args(["--machine", &format!("m{i}"), "--zone", &format!("z{i}")]);
        } else {
            // The workload holds the gateways to hard limits, as in the simulator.
            command.args(["--enforce-quota", "--max-connections-per-address", "0"]);
        }
        let child = command
            .arg("-C")
            .arg(self.cluster_file())
            .args(["--cache-mib", "32"])
            .arg("--trace")
            .arg(self.directory.file(&format!("trace-{i}.jsonl")))
            .stderr(said)
            .spawn()
            .expect("ip, of iproute2, can be run");
        self.children[i] = Some(child);
        self.starts[i] = None;
    }

    /// Starts processes that have ended, at the time that was set for each.
    pub fn supervise(&mut self) {
        for i in 0..self.children.len() {
            if let Some(child) = &mut self.children[i]
                && child.try_wait().is_ok_and(|status| status.is_some())
            {
                self.children[i] = None;
            }
            if self.children[i].is_none() && self.starts[i].is_none_or(|at| now() >= at) {
                self.launch(i);
            }
        }
    }

    /// `ip netns exec` replaces itself by the program, so the child is its process.
    fn signal(&self, i: usize, signal: Signal) {
        if let Some(child) = &self.children[i] {
            let _ = kill_process(Pid::from_child(child), signal); // it may just have ended
        }
    }

    pub fn kill(&mut self, i: usize, again_after: Duration) {
        self.starts[i] = Some(now() + again_after);
        self.signal(i, Signal::KILL);
    }

    pub fn pause(&self, i: usize) {
        self.signal(i, Signal::STOP);
    }

    pub fn go_on(&self, i: usize) {
        self.signal(i, Signal::CONT);
    }

    /// Asks all processes to end at once, as for an upgrade.
    pub fn restart_all(&self) {
        (0..self.children.len()).for_each(|i| self.signal(i, Signal::TERM));
    }

    fn filler(&self) -> PathBuf {
        self.data(self.servers - 1).join("filler")
    }

    /// Fills the small disk completely.
    pub fn fill_disk(&self) {
        let _ = Command::new("dd")
            .args(["if=/dev/zero", "bs=64k", "status=none"])
            .arg(format!("of={}", self.filler().display()))
            .stderr(std::process::Stdio::null())
            .status(); // it fails when the disk is full, as intended
    }

    pub fn clear_disk(&self) {
        let _ = std::fs::remove_file(self.filler());
    }

    /// Slows the disk down for `seconds` with large synced writes of other processes.
    pub fn slow_disk(&self, seconds: u64) -> Vec<Child> {
        let hog = |i| {
            let file = self.directory.file(&format!("hog-{i}"));
            let script = format!(
                "end=$(($(date +%s)+{seconds})); while [ $(date +%s) -lt $end ]; \
                do dd if=/dev/zero of={} bs=8M count=8 oflag=dsync status=none; done; rm -f {}",
                file.display(),
                file.display()
            );
            Command::new("sh")
                .args(["-c", &script])
                .spawn()
                .expect("sh")
        };
        (0..4).map(hog).collect()
    }
}

impl Drop for Servers {
    fn drop(&mut self) {
        for child in self.children.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
