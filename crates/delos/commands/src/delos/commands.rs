//! What clients and operators do with a service.

use super::create::{COORDINATORS_MAX, adopt, greet, seats};
use super::service::{GLANCE, RETRY_PAUSE, Seen, Service, Unanswered, answers, ask, at};
use super::{AddReplica, At, Call, Common, Engine, ReconfigureLog, RemoveReplica, Trim, Upgrade};
use super::{engines, parting};
use plinth_coordination::{Coordinators, places};
use plinth_core::similar::question;
use plinth_delos::coordinated_register::CoordinatedRegister;
use plinth_delos::quorum::messages::{Config, SERVERS_MAX};
use plinth_delos::replica::messages::{
    AskChecksum, AskStatus, CallService, MarkLog, ReconfigureLog as Reconfigure,
    RemoveReplica as Remove, SwitchEngine, TrimLog,
};
use plinth_rpc::Interface;
use plinth_runtime::{Duration, join_all, sleep, timeout};
use plinth_terminal::Outcome;
use plinth_terminal::connect::telling;
use plinth_terminal::wording::counted;
use serde_json::{Value, json};
use std::net::SocketAddr;

/// Prints a line, or the same as JSON.
pub fn say(common: &Common, line: &str, value: &Value) {
    match common.json {
        true => println!("{value}"),
        false => println!("{line}"),
    }
}

pub async fn call(arguments: &Call) -> Outcome {
    let service = Service::open(&arguments.common).await?;
    let called = CallService {
        operation: arguments.operation.clone(),
        request: arguments.request.to_string().into(),
    };
    match service.call(called, false).await {
        Ok(answer) => {
            println!("{}", String::from_utf8_lossy(&answer));
            Ok(())
        }
        Err(Unanswered::Refused { code, why }) => {
            if arguments.common.json {
                println!("{}", json!({ "refused": code, "why": why }));
            }
            Err(format!(
                "service {}: refused ({code}): {why}",
                service.name()
            ))
        }
        Err(Unanswered::Unsure(line) | Unanswered::Silent(line)) => Err(line),
    }
}

pub async fn switch(arguments: &Engine, on: bool) -> Outcome {
    let service = Service::open(&arguments.common).await?;
    switch_engine(&service, &arguments.common, &arguments.engine, on).await
}

async fn switch_engine(service: &Service, common: &Common, engine: &str, on: bool) -> Outcome {
    let asked = SwitchEngine {
        engine: engine.into(),
        on,
    };
    let pos = service.operate(asked).await?;
    let how = if on { "on" } else { "off" };
    say(
        common,
        &format!("engine {engine} is {how} from position {pos} on"),
        &json!({ "engine": engine, "on": on, "position": pos }),
    );
    Ok(())
}

/// §3.4: first all replicas get the engine, switched off, then it is switched on.
pub async fn upgrade(arguments: &Upgrade) -> Outcome {
    let service = Service::open(&arguments.common).await?;
    loop {
        let seen = service.look().await?;
        engines::check(&arguments.engine, &seen)?;
        let has = |seen: &&Seen| seen.member.engines.contains(&arguments.engine);
        let lacking: Vec<&str> = seen
            .iter()
            .filter(|seen| !has(seen))
            .map(|seen| seen.member.name.as_str())
            .collect();
        if lacking.is_empty() {
            let engine = &arguments.engine;
            return switch_engine(&service, &arguments.common, engine, true).await;
        }
        if !service.has_time() {
            return Err(format!(
                "engine {} is not in the release of replica {}: start these with the new release, one after the \
                 other, and try again",
                arguments.engine,
                lacking.join(", ")
            ));
        }
        sleep(RETRY_PAUSE).await;
    }
}

/// The configuration of the part of the log that takes the entries.
fn last_config(seen: &[Seen]) -> Option<Config> {
    let statuses = seen.iter().filter_map(|seen| seen.status.as_ref());
    let newest = statuses.max_by_key(|status| status.loglets.len())?;
    let (_, description) = newest.loglets.last()?;
    Config::from_description(description)
}

fn find<'a>(seen: &'a [Seen], name: &str, service: &Service) -> Outcome<&'a Seen> {
    seen.iter()
        .find(|seen| seen.member.name == name)
        .ok_or_else(|| {
            let names: Vec<&str> = seen.iter().map(|seen| seen.member.name.as_str()).collect();
            format!(
                "service {} has no replica {name:?}; {}there are {}",
                service.name(),
                question(name, names.iter().copied()),
                names.join(", ")
            )
        })
}

/// Goes on in a part of the log with these log servers. Prefers `sequencer` to the present one.
async fn reconfigure(
    service: &Service,
    seen: &[Seen],
    sequencer: Option<SocketAddr>,
    servers: Vec<Interface>,
) -> Outcome<u64> {
    let present = last_config(seen).map(|config| config.sequencer);
    let serves = |address: &SocketAddr| {
        let mut serving = seen.iter().filter(|seen| seen.serves());
        serving.any(|seen| seen.member.address == *address)
    };
    let first = seen.iter().find(|seen| seen.serves());
    let sequencer = sequencer
        .or(present.filter(serves))
        .or(first.map(|seen| seen.member.address))
        .ok_or_else(|| service.silent(""))?;
    service.operate(Reconfigure { sequencer, servers }).await
}

/// Refuses what would leave too few of these processes that answer. `how` begins the line.
fn check_majority(
    service: &Service,
    seen: &[Seen],
    how: &str,
    what: &str,
    addresses: &[SocketAddr],
) -> Outcome {
    let there = addresses.iter().filter(|address| answers(seen, address));
    let (there, needed) = (there.count(), addresses.len() / 2 + 1);
    if there >= needed {
        return Ok(());
    }
    let away = addresses.iter().filter(|address| !answers(seen, address));
    let away: Vec<String> = away.map(|address| at(seen, *address)).collect();
    Err(format!(
        "service {}: {how}{there} of {} {what} answer, and it does nothing without {needed}; start {}{}",
        service.name(),
        addresses.len(),
        away.join(", "),
        instead(what)
    ))
}

/// What helps, too, where these processes do not answer: also a removal is agreed upon by coordinators.
fn instead(what: &str) -> &'static str {
    match what {
        "coordinators" => ": it needs them to remove one, too",
        _ => ", or remove that first",
    }
}

/// What may fail from now on, if any of these processes is needed.
fn note(seen: &[Seen], what: &str, addresses: &[SocketAddr]) -> String {
    let names: Vec<String> = addresses.iter().map(|of| at(seen, *of)).collect();
    match &names[..] {
        [one] => {
            format!("\nthe only {what} is {one}: while that is down, the service stands still")
        }
        [one, other] => format!(
            "\nthe {what}s are {one} and {other}: while either is down, the service stands still"
        ),
        _ => String::new(),
    }
}

fn log_server(seen: &Seen) -> Interface {
    Interface::new(seen.member.address, seen.member.log_server)
}

pub async fn reconfigure_log(arguments: &ReconfigureLog) -> Outcome {
    let service = Service::open(&arguments.common).await?;
    let seen = service.look().await?;
    let sequencer = match &arguments.sequencer {
        Some(name) => Some(find(&seen, name, &service)?.member.address),
        None => None,
    };
    let mut servers: Vec<Interface> = seen.iter().map(log_server).collect();
    if !arguments.servers.is_empty() {
        let named = arguments.servers.iter();
        let named = named.map(|name| find(&seen, name, &service).map(log_server));
        servers = named.collect::<Outcome<_>>()?;
    }
    let at: Vec<SocketAddr> = servers.iter().map(|server| server.address).collect();
    check_majority(&service, &seen, "", "log servers", &at)?;
    let pos = reconfigure(&service, &seen, sequencer, servers).await?;
    let line = format!(
        "the log goes on in a new part from position {pos} on{}",
        note(&seen, "log server", &at)
    );
    say(&arguments.common, &line, &json!({ "position": pos }));
    Ok(())
}

/// Which of these replicas, with whether they serve, are coordinators: those that serve first, then those that are.
/// One that is silent for a moment has a seat, too, as long as a majority serves.
fn chosen(mut among: Vec<(SocketAddr, bool)>, present: &[SocketAddr]) -> Vec<SocketAddr> {
    among.sort_by_key(|(address, serves)| (!serves, !present.contains(address)));
    let serving = among.iter().filter(|(_, serves)| *serves).count();
    let all = seats(among.len(), COORDINATORS_MAX);
    let count = match serving > all / 2 {
        true => all,
        false => seats(serving, COORDINATORS_MAX),
    };
    let addresses = among.into_iter().map(|(address, _)| address);
    addresses.take(count).collect()
}

/// Moves the map of the log to coordinators among these replicas, those that serve and the present ones first, and
/// updates the service's file.
async fn choose_coordinators(
    service: &Service,
    common: &Common,
    among: &[Seen],
) -> Outcome<Vec<SocketAddr>> {
    let present = service.file.addresses();
    let all = among
        .iter()
        .map(|seen| (seen.member.address, seen.serves()));
    let wanted = chosen(all.collect(), &present);
    if wanted.is_empty() {
        return Err(format!(
            "service {} has no other replica that serves",
            service.name()
        ));
    }
    let coordinators = Coordinators::from(service.file.clone());
    let register = CoordinatedRegister::new(&service.transport, &coordinators);
    let limit = service.left().max(Duration::from_secs(5));
    let moved = timeout(limit, register.move_to(places(wanted.clone()))).await;
    let moved = moved.ok_or_else(|| {
        format!(
            "the coordinators of {} do not answer: a majority of the present ones and of the next ones must live",
            service.name()
        )
    })?;
    moved.map_err(|error| format!("the coordinators of {}: {error}", service.name()))?;
    coordinators
        .write_file(&common.which.service, service.file.clone())
        .await;
    Ok(wanted)
}

/// Waits until the new replica serves.
async fn serving(service: &Service, at: &At) -> Outcome<Vec<Seen>> {
    loop {
        let seen = service.look().await?;
        let is_there = |seen: &&Seen| seen.member.name == at.name && seen.serves();
        if seen.iter().any(|seen| is_there(&seen)) {
            return Ok(seen);
        }
        if !service.has_time() {
            let status = ask(&service.transport, at.address, AskStatus {}, GLANCE).await;
            let waits = status.ok().filter(|status| !status.waits_for.is_empty());
            let waits = waits.map(|status| format!(": it waits for {}", status.waits_for));
            return Err(format!(
                "replica {:?} does not serve yet{}; `plinth delos status' shows when it does. Then \
                 `plinth delos reconfigure-log' lets its log server take part",
                at.name,
                waits.unwrap_or_default()
            ));
        }
        sleep(RETRY_PAUSE).await;
    }
}

pub async fn add_replica(arguments: &AddReplica) -> Outcome {
    let service = Service::open(&arguments.common).await?;
    let (at, common) = (&arguments.replica, &arguments.common);
    if at.is_tls && !service.file.is_tls {
        return Err(format!(
            "{}={}:tls: the service's file does not ask for TLS; see Certificates in docs/security.md",
            at.name, at.address
        ));
    }
    let seen = service.look().await?;
    if seen.len() >= SERVERS_MAX {
        return Err(format!(
            "service {} has {SERVERS_MAX} replicas already",
            service.name()
        ));
    }
    if let Some(other) = seen.iter().find(|seen| seen.member.name == at.name)
        && other.member.address != at.address
    {
        return Err(format!(
            "replica {:?} of {} is at {}: choose another name, or remove that one first",
            at.name,
            service.name(),
            other.member.address
        ));
    }
    let known = seen.iter().find_map(|seen| seen.status.as_ref());
    let kind = known.map(|status| status.kind.clone());
    let kind = kind.ok_or_else(|| service.silent(""))?;
    let greeting = timeout(service.left(), greet(service.transport.clone(), at.clone()));
    let why = async { Some(format!("no process answers at {} yet", at.address)) };
    let greeted = telling(greeting, common.timeout, why).await;
    greeted.ok_or_else(|| {
        format!(
            "no process answers at {}: start `plinth delos server' there",
            at.address
        )
    })??;
    adopt(&service.transport, at, &service.file, &kind).await?;
    let seen = serving(&service, at).await?;
    let servers = seen.iter().map(log_server).collect();
    reconfigure(&service, &seen, None, servers).await?;
    if seats(seen.len(), COORDINATORS_MAX) > service.file.coordinators.len() {
        choose_coordinators(&service, common, &seen).await?;
    }
    let line = format!(
        "replica {} serves, and its log server keeps the log",
        at.name
    );
    say(
        common,
        &line,
        &json!({ "replica": at.name, "address": at.address.to_string() }),
    );
    Ok(())
}

pub async fn remove_replica(arguments: &RemoveReplica) -> Outcome {
    let service = Service::open(&arguments.common).await?;
    let (name, common) = (&arguments.replica, &arguments.common);
    let seen = service.look().await?;
    let removed = find(&seen, name, &service)?;
    let (id, address) = (removed.id, removed.member.address);
    let without = format!("without {name}, ");
    let mut coordinators = service.file.addresses();
    if coordinators.contains(&address) {
        check_majority(&service, &seen, "", "coordinators", &coordinators)?;
    }
    let left: Vec<Seen> = seen.into_iter().filter(|seen| seen.id != id).collect();
    if left.is_empty() {
        return Err(format!(
            "service {}: {name} is its last replica, and nobody would keep what it has: to end the service, end the \
             process and remove its data directory; to move it, add another replica first",
            service.name()
        ));
    }
    let is_in_log = last_config(&left).is_none_or(|config| {
        let mut servers = config.servers.iter();
        config.sequencer == address || servers.any(|server| server.address == address)
    });
    let all: Vec<SocketAddr> = left.iter().map(|seen| seen.member.address).collect();
    if is_in_log {
        check_majority(&service, &left, &without, "log servers", &all)?;
    }
    // First the log: it must not lose a log server that it counts on. What takes long, and may be given up, comes
    // before the coordinators: fewer of them would stay.
    if is_in_log {
        let servers = left.iter().map(log_server).collect();
        let own = left.iter().find(|seen| seen.serves());
        let present = last_config(&left).map(|config| config.sequencer);
        let sequencer = present.filter(|present| *present != address);
        let sequencer = sequencer.or(own.map(|seen| seen.member.address));
        reconfigure(&service, &left, sequencer, servers).await?;
    }
    parting::await_others(&service, id, name).await?;
    if coordinators.contains(&address) {
        coordinators = choose_coordinators(&service, common, &left).await?;
    }
    let pos = service.operate(Remove { id }).await?;
    let line = format!(
        "replica {name} is removed; its process ends{}",
        note(&left, "coordinator", &coordinators)
    );
    let names: Vec<String> = coordinators.iter().map(|of| at(&left, *of)).collect();
    say(
        common,
        &line,
        &json!({ "removed": name, "position": pos, "coordinators": names }),
    );
    Ok(())
}

pub async fn trim(arguments: &Trim) -> Outcome {
    let service = Service::open(&arguments.common).await?;
    let before = arguments.before.unwrap_or(u64::MAX);
    service.operate(TrimLog { before }).await?;
    let line = "the log will forget what all replicas have on disk, as far as no engine needs it";
    say(
        &arguments.common,
        line,
        &json!({ "before": arguments.before }),
    );
    Ok(())
}

/// Compares the checksums of all replicas at one position.
pub async fn check(common: &Common) -> Outcome {
    let service = Service::open(common).await?;
    let mark = service.operate(MarkLog {}).await?;
    let seen = service.look().await?;
    let limit = service.left().max(Duration::from_secs(2));
    let asked = seen.iter().map(|seen| async {
        let asked = AskChecksum { mark };
        let at = ask(&service.transport, seen.member.address, asked, limit).await;
        (seen.member.name.clone(), at.ok().and_then(|at| at.checksum))
    });
    let found = join_all(asked.collect::<Vec<_>>()).await;
    let known: Vec<u64> = found.iter().filter_map(|(_, sum)| *sum).collect();
    let is_equal = known.windows(2).all(|pair| pair[0] == pair[1]);
    let hex = |sum: &Option<u64>| sum.map(|sum| format!("{sum:016x}"));
    if common.json {
        let replicas: Vec<Value> = found
            .iter()
            .map(|(name, sum)| json!({ "name": name, "checksum": hex(sum) }))
            .collect();
        println!(
            "{}",
            json!({ "position": mark, "equal": is_equal, "replicas": replicas })
        );
    } else {
        println!("position {mark}");
        for (name, sum) in &found {
            println!(
                "  {name}  {}",
                hex(sum).unwrap_or_else(|| "no answer".into())
            );
        }
    }
    if !is_equal {
        return Err(format!(
            "replicas of {} differ at position {mark}: compare their rows, and replace those that are wrong",
            service.name()
        ));
    }
    let silent: Vec<&str> = found
        .iter()
        .filter(|(_, sum)| sum.is_none())
        .map(|(name, _)| name.as_str())
        .collect();
    if !silent.is_empty() {
        return Err(format!(
            "replica {} could not be compared",
            silent.join(", ")
        ));
    }
    if !common.json {
        println!(
            "{} the same",
            counted(found.len(), "replica is", "replicas are")
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_replica_keeps_its_seat_among_the_coordinators_as_long_as_a_majority_serves() {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let of = |serve: &[bool], present: &[u16]| -> Vec<u16> {
            let among = (1..).zip(serve).map(|(port, serves)| (at(port), *serves));
            let present: Vec<SocketAddr> = present.iter().map(|port| at(*port)).collect();
            let chosen = chosen(among.collect(), &present);
            chosen.iter().map(SocketAddr::port).collect()
        };
        assert_eq!(of(&[true, false, true], &[1, 2]), [1, 3, 2]);
        assert_eq!(of(&[true, true, true, true], &[3, 4]), [3, 4, 1]);
        assert_eq!(of(&[false, false, true], &[1, 2, 3]), [3]);
        assert_eq!(of(&[true, false], &[2]), [1]);
        assert_eq!(of(&[false, false, false], &[1]), [0_u16; 0]);
    }
}
