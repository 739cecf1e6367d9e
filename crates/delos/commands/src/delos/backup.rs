//! `plinth delos backup` and `restore`.

use super::commands::say;
use super::create::{self, adopt_others, check, greet_all, make_log};
use super::names::{At, file_name, parse_at, parse_service_name};
use super::service::{RETRY_PAUSE, Service, ask};
use super::{Common, places};
use plinth_coordination::ClusterFile;
use plinth_core::Error;
use plinth_delos::engines::log_backup;
use plinth_delos::replica::messages::{
    AskBackup, BackUp, BackupStatus, Greeting, Restore, Restored, SwitchEngine,
};
use plinth_identity::Identity;
use plinth_rpc::Transport;
use plinth_runtime::{Duration, now, sleep, timeout};
use plinth_terminal::Outcome;
use plinth_terminal::numbers::{seconds_within, within};
use plinth_terminal::tls::TlsArguments;
use plinth_terminal::wording::counted;
use serde_json::{Value, json};
use std::path::PathBuf;

#[derive(clap::Args, Debug)]
#[command(group(clap::ArgGroup::new("what").required(true)))]
pub struct Backup {
    #[command(flatten)]
    common: Common,
    /// Keep a backup there from now on: a directory that all replicas reach, or s3://BUCKET/PREFIX
    #[arg(long, value_name = "PLACE", group = "what", value_parser = places::parse)]
    to: Option<String>,
    /// End the backup; what is there stays
    #[arg(long, group = "what")]
    off: bool,
}

#[derive(clap::Args, Debug)]
pub struct RestoreArguments {
    /// Name of the new service
    #[arg(value_name = "NAME", value_parser = parse_service_name)]
    name: String,
    /// Where the backup is: a directory, or s3://BUCKET/PREFIX
    #[arg(long, value_name = "PLACE", value_parser = places::parse)]
    from: String,
    /// Restore what the service was after this position of its log; without it all that is in the backup
    #[arg(long, value_name = "POSITION", value_parser = within::<u64>(..))]
    to_position: Option<u64>,
    /// A replica: its name, and where its process listens; once for each. The first one reads the backup. With :tls
    /// behind every address, all that use the service speak TLS with it
    #[arg(long = "replica", value_name = "NAME=IP:PORT", required = true, value_parser = parse_at)]
    replicas: Vec<At>,
    /// File of the service, for all other commands; without it NAME.delos in the current directory
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Seconds to wait for the processes, and for the backup to be read, before giving up
    #[arg(long, value_name = "SECONDS", default_value_t = 3600, value_parser = seconds_within(1..=86_400))]
    timeout: u64,
    #[command(flatten)]
    tls: TlsArguments,
}

/// What any replica knows of the backup.
pub async fn status(service: &Service) -> Option<BackupStatus> {
    let mut best: Option<BackupStatus> = None;
    for seen in service.look().await.ok()? {
        let limit = Duration::from_secs(2);
        let asked = ask(&service.transport, seen.member.address, AskBackup {}, limit).await;
        let Ok(status) = asked else {
            continue;
        };
        let is_newer = best
            .as_ref()
            .is_none_or(|best| status.applied > best.applied);
        let problem = match &best {
            Some(best) if status.problem.is_empty() => best.problem.clone(),
            _ => status.problem.clone(),
        };
        if is_newer {
            best = Some(status);
        }
        if let Some(best) = &mut best {
            best.problem = problem;
        }
    }
    best
}

/// What helps a backup whose entries have gone with log servers that were removed.
const BEGIN_ANEW: &str =
    "if that stays so, begin anew: `plinth delos backup --off', and then `--to' another place";

/// How far the backup is, for people.
pub fn line(status: &BackupStatus) -> String {
    let problem = match &status.problem[..] {
        "" => String::new(),
        problem if problem.contains("the log failed") => format!("; {problem}; {BEGIN_ANEW}"),
        problem => format!("; {problem}"),
    };
    if status.place.is_empty() {
        return "no place is named: name one with `plinth delos backup --to'".into();
    }
    let Some(from) = status.from else {
        return format!("the rows are being copied to {}{problem}", status.place);
    };
    let last = last_of(status, from);
    format!(
        "in {}: positions {from} to {last}, {} behind{problem}",
        status.place,
        status.applied.saturating_sub(last)
    )
}

fn last_of(status: &BackupStatus, from: u64) -> u64 {
    from.max(status.next.saturating_sub(1))
}

pub fn as_json(status: &BackupStatus) -> Value {
    let last = status.from.map(|from| last_of(status, from));
    json!({
        "place": status.place,
        "from": status.from,
        "to": last,
        "behind": last.map(|last| status.applied.saturating_sub(last)),
        "problem": status.problem,
    })
}

pub async fn backup(arguments: &Backup) -> Outcome {
    let common = &arguments.common;
    let service = Service::open(common).await?;
    let Some(place) = &arguments.to else {
        let was_on = is_on(&service).await?;
        let pos = end(&service).await?;
        let line = match was_on {
            true => format!("the backup ends; from position {pos} on the log does not wait for it"),
            false => "no backup is on; nothing has changed".into(),
        };
        say(
            common,
            &line,
            &json!({ "on": false, "position": pos, "was_on": was_on }),
        );
        return Ok(());
    };
    let place = place.clone();
    let asked = BackUp {
        place: place.clone(),
    };
    let session = service.operate(asked).await?;
    let status = loop {
        let found = status(&service).await;
        let is_there = |found: &BackupStatus| found.place == place && found.from.is_some();
        if let Some(found) = found.filter(is_there) {
            break found;
        }
        if !service.has_time() {
            let line = format!(
                "the backup to {place} has begun at position {session}; `plinth delos status' shows how far it is"
            );
            let so_far = json!({ "place": place, "from": null, "position": session });
            say(common, &line, &so_far);
            return Ok(());
        }
        sleep(RETRY_PAUSE).await;
    };
    say(
        common,
        &format!("the backup is on: {}", line(&status)),
        &as_json(&status),
    );
    Ok(())
}

/// Whether a replica knows of a backup that is kept.
async fn is_on(service: &Service) -> Outcome<bool> {
    let seen = service.look().await?;
    let statuses = seen.iter().filter_map(|seen| seen.status.as_ref());
    let mut engines = statuses.flat_map(|status| &status.engines);
    Ok(engines.any(|(name, on)| *on && name == log_backup::GUARD.name))
}

/// The position from which on the log waits for no backup.
async fn end(service: &Service) -> Outcome<u64> {
    let (engine, on) = (log_backup::GUARD.name.to_string(), false);
    service.operate(SwitchEngine { engine, on }).await
}

pub async fn restore(arguments: &RestoreArguments) -> Outcome {
    let path = arguments.file.clone();
    let path = path.unwrap_or_else(|| file_name(&arguments.name).into());
    create::check_file(&path).await?;
    check(&arguments.replicas)?;
    let replicas = &arguments.replicas;
    let (begun, limit) = (now(), Duration::from_secs(arguments.timeout));
    let new = create::new_file(&arguments.name, replicas, &path, &arguments.tls).await?;
    let transport = Transport::client_with(new.credentials(Identity::Server));
    let greetings = greet_all(&transport, replicas, arguments.timeout).await?;
    let left = limit.saturating_sub(begun.elapsed());
    let made = timeout(left, make(&transport, arguments, new, &greetings)).await;
    let (file, restored) = made.unwrap_or_else(|| {
        Err(format!(
            "service {} is not restored after {} s; start again with empty data directories",
            arguments.name, arguments.timeout
        ))
    })?;
    create::save(&file, &path).await?;
    let (pos, first) = (restored.pos, restored.first);
    if arguments.json {
        println!(
            "{}",
            json!({ "service": file.to_string(), "file": path.display().to_string(), "position": pos, "first": first })
        );
        return Ok(());
    }
    println!(
        "service {} of kind {}, with {}, as it was at position {pos}; its log begins at {first}",
        arguments.name,
        restored.kind,
        counted(arguments.replicas.len(), "replica", "replicas")
    );
    println!("its file: {}", path.display());
    create::tell_alone(replicas);
    Ok(())
}

async fn make(
    transport: &Transport,
    arguments: &RestoreArguments,
    file: ClusterFile,
    greetings: &[Greeting],
) -> Outcome<(ClusterFile, Restored)> {
    let replicas = &arguments.replicas;
    let busy = |greeting: &&Greeting| !greeting.service.is_empty();
    if let Some((at, of)) = replicas
        .iter()
        .zip(greetings)
        .find(|(_, greeting)| busy(greeting))
    {
        return Err(format!(
            "the process at {} is replica {:?} of a service already: restore into processes with empty directories",
            at.address, of.name
        ));
    }
    let asked = Restore {
        service: file.to_string(),
        name: replicas[0].name.clone(),
        place: arguments.from.clone(),
        to: arguments.to_position,
        replicas: replicas.len() as u64,
    };
    let address = replicas[0].address;
    let limit = Duration::from_secs(arguments.timeout);
    let restored = match ask(transport, address, asked, limit).await {
        Ok(restored) if restored.refused.is_empty() => restored,
        Ok(restored) => {
            return Err(format!(
                "the process at {address}: {}; nothing is made",
                restored.refused
            ));
        }
        Err(error) => return Err(unsure(address, error)),
    };
    let lacking = replicas
        .iter()
        .zip(greetings)
        .find(|(_, greeting)| !greeting.kinds.contains(&restored.kind));
    if let Some((at, _)) = lacking {
        return Err(format!(
            "the process at {} has no kind {:?}: start again with empty data directories",
            at.address, restored.kind
        ));
    }
    adopt_others(transport, &replicas[1..], &file, &restored.kind).await?;
    make_log(transport, &file, greetings, replicas, restored.first).await?;
    let service = Service::of(file.clone(), arguments.timeout);
    create::await_all(&service, replicas.len()).await?;
    // The engines are the old service's, of which one is on that lets the log wait for the old one's backup.
    if is_on(&service).await? {
        end(&service).await?;
    }
    Ok((file, restored))
}

fn unsure(address: std::net::SocketAddr, error: Error) -> String {
    format!(
        "the process at {address} gave no answer ({error}): start it again with an empty data directory, and try the \
         same again"
    )
}
