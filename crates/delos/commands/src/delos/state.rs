//! `plinth delos status`.

use super::create::{COORDINATORS_MAX, alone, seats};
use super::service::{Seen, Service, answers, at};
use super::{Common, backup};
use bytes::Bytes;
use plinth_delos::engines::log_backup;
use plinth_delos::quorum::messages::Config;
use plinth_delos::replica::messages::{BackupStatus, ReplicaStatus};
use plinth_terminal::{Outcome, wrap};
use serde_json::{Value, json};
use std::net::SocketAddr;

pub async fn status(common: &Common) -> Outcome {
    let service = Service::open(common).await?;
    let seen = service.look().await?;
    let statuses = seen.iter().filter_map(|seen| seen.status.as_ref());
    let Some(best) = statuses.max_by_key(|status| status.applied) else {
        return Err(service.silent(""));
    };
    let backup = backup_of(&service, best).await;
    match common.json {
        true => println!("{}", as_json(&service, &seen, best, backup.as_ref())),
        false => wrap::print(&text(&service, &seen, best, backup.as_ref())),
    }
    match Lack::of_service(&service, &seen, best) {
        // All is shown that there is, and it is no service.
        Some(lack) => Err(lack.line("delos status", &service)),
        None => Ok(()),
    }
}

async fn backup_of(service: &Service, best: &ReplicaStatus) -> Option<BackupStatus> {
    let is_on = |(name, on): &(String, bool)| *on && name == log_backup::GUARD.name;
    match best.engines.iter().any(is_on) {
        true => backup::status(service).await,
        false => None,
    }
}

/// What the page of a process of the service shows: all of the status, or the line that says why there is none.
pub async fn for_page(service: &Service) -> Value {
    let seen = match service.look().await {
        Ok(seen) => seen,
        Err(line) => return json!({"service": service.name(), "silent": line}),
    };
    let statuses = seen.iter().filter_map(|seen| seen.status.as_ref());
    let Some(best) = statuses.max_by_key(|status| status.applied) else {
        return json!({"service": service.name(), "silent": service.silent("")});
    };
    let backup = backup_of(service, best).await;
    let mut document = as_json(service, &seen, best, backup.as_ref());
    document["text"] = text(service, &seen, best, backup.as_ref()).into();
    let lack = Lack::of_service(service, &seen, best);
    document["silent"] = json!(lack.map(|lack| lack.line("delos status", service)));
    document["may_fail"] = may_fail(&seen, service.file.addresses(), log_servers(best)).into();
    document
}

/// Processes that may fail, whichever they are: majorities of the coordinators and of the log servers are left.
fn may_fail(seen: &[Seen], coordinators: Vec<SocketAddr>, logs: Vec<SocketAddr>) -> usize {
    let groups = [coordinators, logs].into_iter();
    let groups = groups.filter(|group| !group.is_empty());
    let left = groups.map(|group| {
        let there = group.iter().filter(|address| answers(seen, address));
        there.count().saturating_sub(group.len() / 2 + 1)
    });
    left.min().unwrap_or(0)
}

const CANNOT_SERVE: &str = "cannot serve";

/// What is missing if so few answer that the service cannot do anything.
pub struct Lack {
    what: &'static str,
    there: usize,
    all: usize,
    /// Names of the replicas that do not answer.
    away: Vec<String>,
}

impl Lack {
    fn of(coordinators: Vec<SocketAddr>, seen: &[Seen], best: &ReplicaStatus) -> Option<Lack> {
        let groups = [
            ("coordinators", coordinators),
            ("log servers", log_servers(best)),
        ];
        let lack = |(what, addresses): (&'static str, Vec<SocketAddr>)| {
            let (all, is_there) = (addresses.len(), |at: &SocketAddr| answers(seen, at));
            let (there, away): (Vec<_>, Vec<_>) = addresses.into_iter().partition(is_there);
            (all > 0 && there.len() < all / 2 + 1).then(|| Lack {
                what,
                there: there.len(),
                all,
                away: away.into_iter().map(|of| at(seen, of)).collect(),
            })
        };
        groups.into_iter().find_map(lack)
    }

    pub fn of_service(service: &Service, seen: &[Seen], best: &ReplicaStatus) -> Option<Lack> {
        Lack::of(service.file.addresses(), seen, best)
    }

    /// The state of a replica that would serve.
    fn state(&self) -> String {
        let Lack {
            what, there, all, ..
        } = self;
        format!("{CANNOT_SERVE}: {there} of {all} {what} answer")
    }

    /// What an operator should do.
    pub fn advice(&self) -> String {
        format!(
            "{} of {} {} answer, and it does nothing without {}; start {}",
            self.there,
            self.all,
            self.what,
            self.all / 2 + 1,
            self.away.join(", ")
        )
    }

    /// The line of a command.
    pub fn line(&self, command: &str, service: &Service) -> String {
        format!("{command}: service {}: {}", service.name(), self.advice())
    }
}

/// Of the part of the log that takes the entries.
fn log_servers(best: &ReplicaStatus) -> Vec<SocketAddr> {
    let log = best.loglets.last();
    let log = log.and_then(|(_, description)| Config::from_description(description));
    let servers = log.iter().flat_map(|log| &log.servers);
    servers.map(|server| server.address).collect()
}

/// What an operator should do: about processes that must stay up, and about full disks.
fn advice(seen: &[Seen], best: &ReplicaStatus, coordinators: &[SocketAddr]) -> Vec<String> {
    let names: Vec<String> = log_servers(best).iter().map(|of| at(seen, *of)).collect();
    let names: Vec<&str> = names.iter().map(|name| &name[..]).collect();
    let is_full = |seen: &&Seen| seen.status.as_ref().is_some_and(|status| status.disk_full);
    let full: Vec<&str> = seen
        .iter()
        .filter(is_full)
        .map(|seen| &seen.member.name[..])
        .collect();
    let full = (!full.is_empty()).then(|| {
        format!(
            "the disk is full at {}: make room there; requests wait if too few log servers have some",
            full.join(", ")
        )
    });
    let few = (coordinators.len() < seats(seen.len(), COORDINATORS_MAX)).then(|| {
        let names: Vec<String> = coordinators.iter().map(|of| at(seen, *of)).collect();
        format!(
            "the coordinators are {} alone, as if there were fewer replicas: an exchange was given up half-way; say \
             it again, or add a replica",
            names.join(", ")
        )
    });
    let alone = alone(&names, seen.len());
    full.into_iter().chain(alone).chain(few).collect()
}

/// What a replica does, of a service that lacks this.
pub fn state(seen: &Seen, lack: Option<&Lack>) -> String {
    let Some(status) = &seen.status else {
        return "does not answer".into();
    };
    let state = match (status.waits_for.is_empty(), lack) {
        (true, None) => "serves".into(),
        (true, Some(lack)) => lack.state(),
        (false, _) => format!("waits for {}", status.waits_for),
    };
    match status.disk_full {
        true => format!("{state}; its disk is full"),
        false => state,
    }
}

/// The same in a narrow column, beside which the reason stands.
pub fn short_state(seen: &Seen, lack: Option<&Lack>) -> String {
    match lack {
        Some(_) if seen.serves() => CANNOT_SERVE.into(),
        _ => state(seen, lack),
    }
}

pub fn lease_holder(seen: &[Seen], best: &ReplicaStatus) -> Option<String> {
    let holder = best.lease_holder?;
    let found = seen.iter().find(|seen| seen.id == holder);
    Some(found.map_or_else(|| format!("{holder:016x}"), |seen| seen.member.name.clone()))
}

fn text(
    service: &Service,
    seen: &[Seen],
    best: &ReplicaStatus,
    backup: Option<&BackupStatus>,
) -> String {
    let mut lines = vec![
        format!(
            "service {}, kind {}, at position {}",
            service.name(),
            best.kind,
            best.applied
        ),
        "replicas".into(),
    ];
    let lack = Lack::of_service(service, seen, best);
    lines.extend(seen.iter().map(|one| {
        let applied = one.status.as_ref();
        let applied = applied.map_or_else(|| "-".into(), |of| of.applied.to_string());
        let (name, address, release) = (&one.member.name, one.member.address, &one.member.release);
        let state = state(one, lack.as_ref());
        format!("  {name:<12} {address:<21} release {release}, position {applied}, {state}")
    }));
    let coordinators = service.file.addresses().into_iter();
    let coordinators: Vec<String> = coordinators.map(|of| at(seen, of)).collect();
    lines.extend([
        "coordinators".into(),
        format!("  {}", coordinators.join(" ")),
    ]);
    lines.push("engines".into());
    lines.extend(best.engines.iter().map(|(name, on)| {
        let how = if *on { "on" } else { "off" };
        let held = lease_holder(seen, best).filter(|_| name == "lease");
        let held = held.map(|holder| format!(", held by {holder}"));
        format!("  {name:<14} {how}{}", held.unwrap_or_default())
    }));
    if let Some(backup) = backup {
        lines.extend(["backup".into(), format!("  {}", backup::line(backup))]);
    }
    lines.push("log".into());
    let parts = parts(best)
        .map(|(first, description)| format!("  from {first:<10} {}", loglet(seen, description)));
    lines.extend(parts);
    lines.extend(advice(seen, best, &service.file.addresses()));
    lines.join("\n")
}

/// The parts of the log that have entries, or take them: one that was exchanged before it had any has none.
pub fn parts(best: &ReplicaStatus) -> impl Iterator<Item = &(u64, Bytes)> {
    let next = best.loglets.iter().skip(1).map(|(first, _)| Some(*first));
    let all = best.loglets.iter().zip(next.chain([None]));
    all.filter(|((first, _), next)| *next != Some(*first))
        .map(|(part, _)| part)
}

fn loglet(seen: &[Seen], description: &[u8]) -> String {
    let Some(config) = Config::from_description(description) else {
        return String::from_utf8_lossy(description).into_owned();
    };
    let servers = config.servers.iter();
    let servers: Vec<String> = servers.map(|server| at(seen, server.address)).collect();
    format!(
        "sequencer {}, log servers {}",
        at(seen, config.sequencer),
        servers.join(" ")
    )
}

fn loglet_json(seen: &[Seen], first: u64, description: &[u8]) -> Value {
    let config = Config::from_description(description);
    let servers = config.iter().flat_map(|config| config.servers.iter());
    let servers: Vec<String> = servers.map(|server| at(seen, server.address)).collect();
    json!({
        "first": first,
        "sequencer": config.as_ref().map(|config| at(seen, config.sequencer)),
        "log_servers": servers,
    })
}

fn as_json(
    service: &Service,
    seen: &[Seen],
    best: &ReplicaStatus,
    backup: Option<&BackupStatus>,
) -> Value {
    let lack = Lack::of_service(service, seen, best);
    let replicas = seen.iter().map(|one| {
        let status = one.status.as_ref();
        let measured = status.map(|status| {
            let engines = status.measured.iter().map(|of| {
                json!({
                    "name": of.name,
                    "proposals": of.proposals,
                    "syncs": of.syncs,
                    "median_us": of.median_us,
                    "p99_us": of.p99_us,
                })
            });
            engines.collect::<Vec<_>>()
        });
        json!({
            "name": one.member.name,
            "address": one.member.address.to_string(),
            "release": one.member.release,
            "has_engines": one.member.engines,
            "state": state(one, lack.as_ref()),
            "serves": one.serves() && lack.is_none(),
            "disk_full": status.map(|status| status.disk_full),
            "applied": status.map(|status| status.applied),
            "flushed": status.map(|status| status.flushed),
            "in_view": best.in_view.contains(&one.id),
            "through_engines": measured,
        })
    });
    let engines = best.engines.iter();
    let engines = engines.map(|(name, on)| json!({ "name": name, "on": on }));
    let loglets = parts(best).map(|(first, description)| loglet_json(seen, *first, description));
    let coordinators = service.file.addresses().into_iter();
    let advice = advice(seen, best, &service.file.addresses()).into_iter();
    let advice = lack.iter().map(Lack::advice).chain(advice);
    json!({
        "service": service.name(),
        "key": service.file.key(),
        "kind": best.kind,
        "position": best.applied,
        "coordinators": coordinators.map(|address| at(seen, address)).collect::<Vec<_>>(),
        "lease_holder": lease_holder(seen, best),
        "replicas": replicas.collect::<Vec<_>>(),
        "backup": backup.map(backup::as_json),
        "engines": engines.collect::<Vec<_>>(),
        "log": loglets.collect::<Vec<_>>(),
        "advice": advice.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_core::Uid;
    use plinth_delos::engines::roster::Member;
    use plinth_rpc::Interface;

    fn seen(id: u8, status: Option<ReplicaStatus>) -> Seen {
        Seen {
            id: id.into(),
            member: Member {
                name: format!("r{id}"),
                address: ([10, 0, 0, id], 4700).into(),
                log_server: Uid(id.into()),
                engines: Vec::new(),
                release: "1".into(),
            },
            status,
        }
    }

    #[test]
    fn a_replica_without_a_majority_of_the_coordinators_or_log_servers_cannot_serve() {
        let addresses = |ids: std::ops::RangeInclusive<u8>| -> Vec<SocketAddr> {
            ids.map(|id| ([10, 0, 0, id], 4700).into()).collect()
        };
        let servers = addresses(1..=3)
            .into_iter()
            .zip(1..)
            .map(|(at, id)| Interface::new(at, Uid(id)));
        let config = Config {
            loglet: Uid(1),
            sequencer: ([10, 0, 0, 1], 4700).into(),
            servers: servers.collect(),
        };
        let status = ReplicaStatus {
            loglets: vec![(1, config.to_description())],
            ..ReplicaStatus::default()
        };
        let up = |id| seen(id, Some(status.clone()));
        let two = [up(1), up(2), seen(3, None)];
        assert!(Lack::of(addresses(1..=3), &two, &status).is_none());
        let one = [up(1), seen(2, None), seen(3, None)];
        for (coordinators, what) in [(1..=3, "coordinators"), (1..=1, "log servers")] {
            let lack = Lack::of(addresses(coordinators), &one, &status).expect(what);
            let said = format!("cannot serve: 1 of 3 {what} answer");
            assert_eq!(state(&one[0], Some(&lack)), said);
            assert_eq!(state(&one[1], Some(&lack)), "does not answer");
            let advice =
                format!("1 of 3 {what} answer, and it does nothing without 2; start r2, r3");
            assert_eq!(lack.advice(), advice);
        }
    }

    #[test]
    fn a_part_of_the_log_that_was_exchanged_before_it_had_an_entry_is_not_shown() {
        let status = |firsts: &[u64]| ReplicaStatus {
            loglets: firsts.iter().map(|first| (*first, Bytes::new())).collect(),
            ..ReplicaStatus::default()
        };
        for (all, shown) in [
            (&[1][..], &[1][..]),
            (&[1, 1, 40], &[1, 40]),
            (&[1, 40, 40, 40], &[1, 40]),
            (&[], &[]),
        ] {
            let status = status(all);
            let found: Vec<u64> = parts(&status).map(|(first, _)| *first).collect();
            assert_eq!(found, shown);
        }
    }

    #[test]
    fn a_full_disk_and_a_log_on_one_server_are_told() {
        let config = Config {
            loglet: Uid(1),
            sequencer: ([10, 0, 0, 1], 4700).into(),
            servers: vec![Interface::new(([10, 0, 0, 1], 4700).into(), Uid(1))],
        };
        let status = ReplicaStatus {
            disk_full: true,
            loglets: vec![(1, config.to_description())],
            ..ReplicaStatus::default()
        };
        let both = [
            seen(1, Some(status.clone())),
            seen(2, Some(ReplicaStatus::default())),
        ];
        assert_eq!(state(&both[0], None), "serves; its disk is full");
        assert_eq!(state(&both[1], None), "serves");
        let one = [([10, 0, 0, 1], 4700).into()];
        let said = advice(&both, &status, &one);
        assert!(said[0].starts_with("the disk is full at r1: "), "{said:?}");
        assert_eq!(
            said[1..],
            ["all entries are on r1 alone: add a third replica"]
        );
        let addresses = |ids: &[u8]| -> Vec<SocketAddr> {
            ids.iter()
                .map(|id| ([10, 0, 0, *id], 4700).into())
                .collect()
        };
        let silent = [seen(1, Some(status.clone())), seen(2, None)];
        assert_eq!(may_fail(&both, addresses(&[1, 2]), addresses(&[1])), 0);
        let of_five = |seen: &[Seen]| may_fail(seen, addresses(&[1, 2, 3, 4, 5]), Vec::new());
        assert_eq!(of_five(&silent), 0);
        let five = [1, 2, 3, 4, 5].map(|id| seen(id, Some(status.clone())));
        assert_eq!((of_five(&five), of_five(&five[..4])), (2, 1));
        let alone = [seen(1, Some(ReplicaStatus::default()))];
        assert_eq!(
            advice(&alone, &ReplicaStatus::default(), &one),
            Vec::<String>::new()
        );
        let three = [1, 2, 3].map(|i| seen(i, Some(ReplicaStatus::default())));
        let said = advice(&three, &ReplicaStatus::default(), &one);
        assert!(
            matches!(&said[..], [line] if line.starts_with("the coordinators are r1 alone")),
            "{said:?}"
        );
    }
}
