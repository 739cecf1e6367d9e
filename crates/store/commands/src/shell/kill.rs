//! The statement `kill`: ends processes, which their supervisors start again, and roles.

use crate::registered::registered;
use plinth_core::Uid;
use plinth_core::similar::question;
use plinth_protocol::control::{ClusterInfo, GetClusterInfo, KillRole, RegisterWorker, WORKER};
use plinth_protocol::role::Role;
use plinth_rpc::Interface;
use plinth_terminal::Outcome;
use plinth_terminal::connect::Connection;
use plinth_terminal::shell::answer::Answer;
use std::net::SocketAddr;

#[derive(Clone, PartialEq, Debug)]
pub enum Kill {
    List,
    /// All processes.
    All,
    /// Addresses of processes, and begins of ids of roles.
    These(Vec<String>),
}

impl Kill {
    pub fn parse(words: Vec<String>) -> Kill {
        let texts: Vec<&str> = words.iter().map(String::as_str).collect();
        match texts[..] {
            [] | ["list"] => Kill::List,
            ["all"] => Kill::All,
            _ => Kill::These(words),
        }
    }
}

/// What can be ended.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Victim {
    /// `None`: the process.
    role: Option<Role>,
    address: SocketAddr,
    id: Uid,
}

impl Victim {
    fn name(&self) -> &'static str {
        self.role.map_or("process", Role::name)
    }
}

fn processes(workers: &[RegisterWorker]) -> Vec<Victim> {
    let process = |worker: &RegisterWorker| Victim {
        role: None,
        address: worker.worker.address,
        id: WORKER,
    };
    let mut processes: Vec<Victim> = workers.iter().map(process).collect();
    processes.sort_by_key(|process| process.address);
    processes
}

/// The roles whose ids the controller lists.
fn roles(info: &ClusterInfo) -> Vec<Victim> {
    let of = |role: Role| {
        move |interface: &Interface| Victim {
            role: Some(role),
            address: interface.address,
            id: interface.id,
        }
    };
    let logs = info.log_system.current().into_iter().flat_map(|g| &g.logs);
    let commit_proxies = info.client.commit_proxies.iter();
    let grv_proxies = info.client.grv_proxies.iter();
    commit_proxies
        .map(of(Role::CommitProxy))
        .chain(grv_proxies.map(of(Role::GrvProxy)))
        .chain(logs.map(of(Role::Log)))
        .collect()
}

/// What a word of the statement means.
fn named(word: &str, processes: &[Victim], roles: &[Victim]) -> Outcome<Victim> {
    if let Ok(address) = word.parse::<SocketAddr>() {
        let found = processes.iter().find(|process| process.address == address);
        return found.copied().ok_or(format!(
            "no process of this cluster is at {address}; `kill list' lists them; nothing has been ended"
        ));
    }
    let mut begun = roles
        .iter()
        .filter(|role| role.id.to_string().starts_with(word));
    match (begun.next(), begun.next()) {
        (Some(one), None) => Ok(*one),
        (None, _) => Err(format!(
            "{}`{word}' is neither the address of a process, as IP:PORT, nor the begin of a role's id; `kill list' \
             lists them; nothing has been ended",
            question(word, ["list", "all"])
        )),
        _ => Err(format!(
            "several roles have ids that begin with `{word}'; give more of it; nothing has been ended"
        )),
    }
}

async fn roles_of(connection: &Connection) -> Outcome<Vec<Victim>> {
    let asked = connection.ask_controller(GetClusterInfo { known: 0 }, "list its roles");
    Ok(roles(&asked.await?))
}

impl Kill {
    /// Of the processes that the statement names.
    fn addresses(&self) -> Vec<SocketAddr> {
        match self {
            Kill::These(words) => words.iter().flat_map(|word| word.parse()).collect(),
            Kill::List | Kill::All => Vec::new(),
        }
    }

    pub async fn execute(self, connection: &Connection) -> Outcome<Answer> {
        let known = registered(connection, &self.addresses()).await?;
        let (processes, incomplete) = (processes(&known.workers), known.incomplete());
        let victims = match self {
            Kill::List => {
                let roles = roles_of(connection).await?;
                if let Some(line) = incomplete {
                    plinth_terminal::say!("this is not all: {line}");
                }
                let row = |victim: &Victim| {
                    let id = victim.role.map_or(String::new(), |_| victim.id.to_string());
                    (victim.name(), victim.address.to_string(), id)
                };
                let all = processes.iter().chain(&roles);
                return Ok(Answer::Roles(all.map(row).collect()));
            }
            Kill::All => match incomplete {
                Some(line) => return Err(format!("{line}; nothing has been ended")),
                None => processes,
            },
            Kill::These(words) => {
                // Processes can be ended while the cluster has no roles.
                let is_role = |word: &String| word.parse::<SocketAddr>().is_err();
                let roles = match words.iter().any(is_role) {
                    true => roles_of(connection).await?,
                    false => Vec::new(),
                };
                let named = words.iter().map(|word| named(word, &processes, &roles));
                named.collect::<Outcome<Vec<Victim>>>()?
            }
        };
        let ends = victims.iter().map(|victim| end(connection, victim));
        let ended = plinth_runtime::join_all(ends).await;
        let (done, failed): (Vec<_>, Vec<_>) = ended.into_iter().partition(Result::is_ok);
        let done: Vec<String> = done.into_iter().flatten().collect();
        let failed: Vec<String> = failed.into_iter().filter_map(Result::err).collect();
        match failed.is_empty() {
            true => Ok(done.join("\n").into()),
            false => Err([failed, done].concat().join("; ")),
        }
    }
}

async fn end(connection: &Connection, victim: &Victim) -> Outcome<String> {
    let (name, address) = (victim.name(), victim.address);
    let endpoint = Interface::new(address, WORKER).endpoint::<KillRole>();
    let request = KillRole { id: victim.id };
    let call = connection.transport.call(&endpoint, request);
    match plinth_runtime::timeout(connection.timeout, call).await {
        Some(Ok(())) if victim.role.is_none() => Ok(format!(
            "The process at {address} ends; who started it (systemd, plinth dev) starts it again"
        )),
        Some(Ok(())) => Ok(format!("Killed the {name} at {address}")),
        Some(Err(error)) => Err(format!("cannot kill the {name} at {address}: {error}")),
        None => Err(format!("the worker at {address} does not answer")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_processes_by_address_and_roles_by_the_begin_of_their_id() {
        let at = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let victim = |role, port, id| Victim {
            role,
            address: at(port),
            id: Uid(id),
        };
        let processes = [victim(None, 1, 7), victim(None, 2, 7)];
        let roles = [
            victim(Some(Role::Log), 1, 0xab << 120),
            victim(Some(Role::GrvProxy), 2, 0xac << 120),
        ];
        let named = |word| named(word, &processes, &roles);
        assert_eq!(named("10.0.0.1:2"), Ok(processes[1]));
        assert_eq!(named("ab"), Ok(roles[0]));
        for (word, why) in [
            ("10.0.0.1:3", "no process"),
            ("a", "several"),
            ("b", "neither"),
        ] {
            assert!(named(word).is_err_and(|line| line.contains(why)), "{word}");
        }
        let parsed = |text: &str| Kill::parse(text.split_whitespace().map(String::from).collect());
        assert_eq!((parsed(""), parsed("list")), (Kill::List, Kill::List));
        assert_eq!(parsed("all"), Kill::All);
        let these = Kill::These(vec!["ab".into(), "10.0.0.1:2".into()]);
        assert_eq!(parsed("ab 10.0.0.1:2"), these);
    }
}
