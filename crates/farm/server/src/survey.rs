//! What is known of a whole cluster from outside, and what it lacks.

use crate::denial::{other_state, unless_denied};
use crate::messages::{AskStatus, MachineStatus, process};
use crate::plan::service_address;
use plinth_coordination::{ClusterFile, Coordinators, Look, look_at};
use plinth_farm_member::{CoordinatedRegister, Record, Register, Seat, is_lost};
use plinth_rpc::Transport;
use plinth_runtime::{Boxed, Duration, join_all, timeout};
use std::net::SocketAddr;

/// A process that says nothing for so long is passed over.
const GLANCE: Duration = Duration::from_secs(2);

/// A machine of the record, with what its process says.
#[derive(Clone, Debug)]
pub struct Seen {
    pub seat: Seat,
    /// False: it waits to be let in.
    pub is_member: bool,
    /// Where its process listens; `None` for a guest, which is not asked.
    pub address: Option<SocketAddr>,
    /// `None` if it does not answer, or is another process now.
    pub status: Option<MachineStatus>,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Survey {
    pub file: ClusterFile,
    pub coordinators: Vec<(SocketAddr, Look)>,
    /// `None` if the coordinators do not tell.
    pub record: Option<Record>,
    /// Why there is no record.
    pub silence: String,
    pub machines: Vec<Seen>,
    /// Processes at the coordinators' addresses that are in no record.
    pub others: Vec<(SocketAddr, MachineStatus)>,
}

/// What the process at an address says, if it is one of this cluster.
pub(crate) async fn ask(
    transport: &Transport,
    file: &ClusterFile,
    address: SocketAddr,
) -> Option<MachineStatus> {
    let endpoint = process(address).endpoint::<AskStatus>();
    let asked = timeout(GLANCE, transport.call(&endpoint, AskStatus {})).await;
    let status = asked?.ok()?;
    (status.cluster == file.key()).then_some(status)
}

/// Whether the process is the one that the record means. Where all data is in memory, another life of the machine has
/// none of it; where it is on disks, that one goes on with it.
fn is_of(status: &MachineStatus, seat: &Seat, is_durable: bool) -> bool {
    status.machine == Some(seat.machine) && (is_durable || status.life == Some(seat.id))
}

async fn see(
    transport: &Transport,
    file: &ClusterFile,
    seat: &Seat,
    is_member: bool,
    is_durable: bool,
) -> Seen {
    let address = match seat.slots {
        0 => None,
        _ => seat.place.socket.and_then(service_address),
    };
    let status = match address {
        Some(address) => ask(transport, file, address).await,
        None => None,
    };
    let status = status.filter(|status| is_of(status, seat, is_durable));
    Seen {
        seat: seat.clone(),
        is_member,
        address,
        status,
    }
}

/// Asks the coordinators and all processes. Takes at most `limit` and some seconds.
pub fn survey<'a>(
    transport: &'a Transport,
    file: &'a ClusterFile,
    limit: Duration,
) -> Boxed<'a, Survey> {
    Box::pin(async move {
        let looks = file
            .coordinators
            .iter()
            .map(|at| look_at(transport, file, at));
        let looks = join_all(looks).await;
        let coordinators = file.addresses().into_iter().zip(looks).collect();
        let register = CoordinatedRegister::new(transport, &Coordinators::from(file.clone()));
        let read = unless_denied(transport, file, register.read());
        let (record, silence) = match timeout(limit, read).await {
            Some(Ok(Ok(Some(record)))) => (Some(record), String::new()),
            Some(Ok(Ok(None))) => {
                let line = register.not_own().await;
                (None, line.unwrap_or_else(|| "no cluster was made".into()))
            }
            Some(Ok(Err(error))) => (None, other_state(&register, error).await),
            Some(Err(denied)) => (None, denied),
            None => (None, "no majority of the coordinators answers".to_owned()),
        };
        let seats = record.iter().flat_map(|record| {
            let members = record.machines.iter().map(|seat| (seat, true));
            members.chain(record.waiting.iter().map(|seat| (seat, false)))
        });
        let is_durable = record
            .as_ref()
            .is_some_and(|record| record.cluster.is_durable);
        let machines =
            seats.map(|(seat, is_member)| see(transport, file, seat, is_member, is_durable));
        let machines: Vec<Seen> = join_all(machines).await;
        let is_seen = |at: &SocketAddr| machines.iter().any(|seen| seen.address == Some(*at));
        let others = file.addresses().into_iter().filter(|at| !is_seen(at));
        let others = others.map(async |at| Some((at, ask(transport, file, at).await?)));
        let others = join_all(others).await.into_iter().flatten().collect();
        Survey {
            file: file.clone(),
            coordinators,
            record,
            silence,
            machines,
            others,
        }
    })
}

impl Survey {
    fn members(&self) -> impl Iterator<Item = &Seen> {
        self.machines.iter().filter(|seen| seen.is_member)
    }

    /// Transactions can run: there is a configuration, all regions have a primary, and all members with data answer.
    pub fn serves(&self) -> bool {
        let Some(record) = &self.record else {
            return false;
        };
        let is_well = |seen: &Seen| {
            let said = seen.status.as_ref();
            seen.address.is_none() || said.is_some_and(|said| said.uncertainty_ns.is_some())
        };
        record.configuration.is_some()
            && record.lost().next().is_none()
            && self.members().all(is_well)
    }

    /// What is missing, a line each. Empty: nothing.
    pub fn missing(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (at, look) in &self.coordinators {
            if !matches!(look, Look::Answers { .. }) {
                lines.push(format!("coordinator {at}: {look}"));
            }
        }
        match &self.record {
            None => lines.push(self.silence.clone()),
            Some(record) => {
                self.add_missing_machines(record, &mut lines);
                add_missing_replicas(record, &mut lines);
            }
        }
        lines
    }

    /// Members are known, and none of them answers.
    fn is_without_members(&self) -> bool {
        let silent = self.members().filter(|seen| seen.address.is_some());
        let mut silent = silent.peekable();
        silent.peek().is_some() && silent.all(|seen| seen.status.is_none())
    }

    /// Whether nothing is left, if the processes of all members have ended.
    pub fn has_lost_all(&self) -> bool {
        let record = self.record.as_ref();
        let is_in_memory = record.is_some_and(|record| !record.cluster.is_durable);
        is_in_memory && self.is_without_members()
    }

    fn add_missing_machines(&self, record: &Record, lines: &mut Vec<String>) {
        let count = |is_member| {
            let seats = self.machines.iter().filter(|s| s.is_member == is_member);
            seats.filter(|seen| seen.seat.slots > 0).count()
        };
        if record.configuration.is_none() {
            lines.push(format!(
                "the cluster begins when {}; {} so far",
                counted(
                    record.cluster.first_machines.into(),
                    "machine waits",
                    "machines wait"
                ),
                count(false)
            ));
        }
        for seen in &self.machines {
            let number = seen.seat.machine;
            match (&seen.status, seen.address) {
                (None, Some(at)) => {
                    lines.push(format!("machine {number} at {at} does not answer"));
                }
                (Some(status), _) if !status.waits_for.is_empty() => {
                    lines.push(format!("machine {number} waits for {}", status.waits_for));
                }
                (Some(status), _) if status.is_disk_full => {
                    lines.push(format!(
                        "the disk of machine {number} is full: commits wait until there is room"
                    ));
                }
                (Some(status), _) if seen.is_member && status.uncertainty_ns.is_none() => {
                    lines.push(format!("machine {number} does not know the time"));
                }
                _ => (),
            }
        }
        if self.is_without_members() {
            lines.push(match record.cluster.is_durable {
                false => {
                    "no member answers: if all their processes have ended, the data is gone, and a new cluster is \
                     needed"
                }
                true => "no member answers: start their processes; their data is on their disks",
            }
            .to_owned());
        }
    }
}

/// So many things, and what they do.
pub fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}

fn add_missing_replicas(record: &Record, lines: &mut Vec<String>) {
    let replication = usize::from(record.cluster.replication);
    let count = |test: &dyn Fn(&Vec<plinth_farm_member::Replica>) -> bool| {
        record.regions.iter().filter(|region| test(region)).count()
    };
    let lost = count(&|region| is_lost(region));
    if lost > 0 {
        lines.push(format!(
            "{} lost: no whole replica is left, and no transaction runs any more",
            counted(lost as u64, "region is", "regions are")
        ));
    }
    let few = count(&|region| !is_lost(region) && region.len() < replication);
    if few > 0 {
        lines.push(format!(
            "{} fewer than {replication} replicas: start another machine",
            counted(few as u64, "region has", "regions have")
        ));
    }
    let lacking = count(&|region| !is_lost(region) && region.iter().any(|r| !r.is_whole));
    if lacking > 0 {
        lines.push(format!(
            "{} a replica that is not whole yet",
            counted(lacking as u64, "region has", "regions have")
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_core::Uid;
    use plinth_farm_member::{Cluster, Place};

    const MACHINE: u16 = 1;

    fn seat(life: u128) -> Seat {
        Seat {
            machine: MACHINE,
            id: Uid(life),
            place: Place {
                host: 1,
                socket: None,
                zone: String::new(),
            },
            slots: 4,
            disk: None,
        }
    }

    /// Of a member whose process has ended, after another one has begun at its address.
    fn begun_again(is_durable: bool) -> Survey {
        let cluster = Cluster::new(Uid(1), 8, 4, 3);
        let mut record = Record::of_new(Cluster {
            is_durable,
            ..cluster
        });
        record.machines = vec![seat(7)];
        record.waiting = vec![seat(8)];
        let says = MachineStatus {
            machine: Some(MACHINE),
            life: Some(Uid(8)),
            waits_for: "the cluster to let it in".into(),
            ..MachineStatus::default()
        };
        let address = SocketAddr::from(([127, 0, 0, 1], 4900));
        let seen = |seat: &Seat, is_member| Seen {
            seat: seat.clone(),
            is_member,
            address: Some(address),
            status: Some(says.clone()).filter(|says| is_of(says, seat, is_durable)),
        };
        Survey {
            file: ClusterFile::parse("farm:a1@127.0.0.1:4900").expect("it is a file"),
            coordinators: Vec::new(),
            machines: vec![seen(&seat(7), true), seen(&seat(8), false)],
            record: Some(record),
            silence: String::new(),
            others: Vec::new(),
        }
    }

    #[test]
    fn another_life_of_a_member_has_none_of_the_data_that_was_in_memory() {
        let survey = begun_again(false);
        assert!(survey.has_lost_all());
        let lines = survey.missing().join("\n");
        assert!(lines.contains("machine 1 at 127.0.0.1:4900 does not answer"));
        assert!(lines.contains("the data is gone"), "{lines}");
        let waits = lines.matches("machine 1 waits for the cluster to let it in");
        assert_eq!(waits.count(), 1, "{lines}");
    }

    #[test]
    fn another_life_of_a_member_goes_on_with_the_data_on_its_disk() {
        let survey = begun_again(true);
        assert!(!survey.has_lost_all());
        let lines = survey.missing().join("\n");
        assert!(!lines.contains("the data is gone"), "{lines}");
    }
}
