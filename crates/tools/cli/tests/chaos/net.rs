//! A small network of namespaces: each server in its own, behind a router that can lose or drop packets.
//!
//! ```text
//! 10.77.1.2  server 0 ──┐
//! 10.77.2.2  server 1 ──┼── router: the load, and the rules (nftables)
//! 10.77.3.2  server 2 ──┘
//! ```
//!
//! All of it is in namespaces of the test (user, mount, network, process) and ends with it. It has no effect on the
//! machine and needs no special rights there.

use std::net::SocketAddr;
use std::process::{Command, Stdio};

const PORT: u16 = 4500;

/// Environment variable that is set inside of the namespaces.
const INSIDE: &str = "PLINTH_CHAOS_INSIDE";

/// Runs the test `name` of this program again inside of new namespaces. Returns false if this process is already
/// inside.
pub fn enter(name: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return false;
    }
    let program = std::env::current_exe().expect("its own path");
    let status = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "--net", "--pid"])
        .args(["--fork", "--kill-child", "--mount-proc"])
        .arg(program)
        .args([name, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .stdin(Stdio::null())
        .status()
        .expect("unshare, of util-linux, can be run");
    assert!(status.success(), "the test failed inside its namespaces");
    true
}

/// Runs a command that must succeed.
fn must(line: &str) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let output = Command::new(words[0])
        .args(&words[1..])
        .output()
        .unwrap_or_else(|error| panic!("{line}: {error}"));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{line}: {said}");
}

pub struct Net {
    servers: usize,
}

pub fn address(server: usize) -> SocketAddr {
    SocketAddr::from(([10, 77, server as u8 + 1, 2], PORT))
}

impl Net {
    pub fn build(servers: usize) -> Self {
        must("mount -t tmpfs tmpfs /run");
        must("ip link set lo up");
        for server in 0..servers {
            let n = server + 1;
            must(&format!("ip netns add n{n}"));
            must(&format!("ip link add v{n} type veth peer name e{n}"));
            must(&format!("ip link set e{n} netns n{n}"));
            must(&format!("ip addr add 10.77.{n}.1/30 dev v{n}"));
            must(&format!("ip link set v{n} up"));
            must(&format!("ip -n n{n} addr add 10.77.{n}.2/30 dev e{n}"));
            must(&format!("ip -n n{n} link set e{n} up"));
            must(&format!("ip -n n{n} link set lo up"));
            must(&format!("ip -n n{n} route add default via 10.77.{n}.1"));
        }
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("the router may forward");
        must("nft add table ip chaos");
        for chain in ["forward", "output", "input"] {
            must(&format!(
                "nft add chain ip chaos {chain} {{ type filter hook {chain} priority 0 ; }}"
            ));
        }
        Net { servers }
    }

    /// A command that runs in the server's namespace.
    pub fn command(&self, server: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &format!("n{}", server + 1), program]);
        command
    }

    /// Drops all packets from one server to the other; the opposite direction stays open.
    pub fn block(&self, from: usize, to: usize) {
        let (from, to) = (address(from).ip(), address(to).ip());
        must(&format!(
            "nft add rule ip chaos forward ip saddr {from} ip daddr {to} drop"
        ));
    }

    /// Drops all packets from and to a server.
    pub fn isolate(&self, server: usize) {
        for other in (0..self.servers).filter(|other| *other != server) {
            self.block(server, other);
            self.block(other, server);
        }
        let ip = address(server).ip();
        must(&format!("nft add rule ip chaos output ip daddr {ip} drop"));
        must(&format!("nft add rule ip chaos input ip saddr {ip} drop"));
    }

    /// Drops this percentage of all packets, everywhere.
    pub fn lose(&self, percent: u32) {
        for chain in ["forward", "output", "input"] {
            must(&format!(
                "nft add rule ip chaos {chain} ip saddr 10.77.0.0/16 numgen random mod 100 < {percent} drop"
            ));
        }
    }

    pub fn heal(&self) {
        must("nft flush table ip chaos");
    }
}
