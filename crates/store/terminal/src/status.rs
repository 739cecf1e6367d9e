//! What a status document says in one line.

use crate::Outcome;
use serde_json::Value;

pub fn is_available(document: &Value) -> bool {
    document["cluster"]["database_available"].as_bool() == Some(true)
}

/// Outcome of a command that has printed the status: an error if the database is not available, for scripts.
pub fn available(document: &Value) -> Outcome {
    match is_available(document) {
        true => Ok(()),
        false => Err(format!(
            "the database is unavailable; its recovery is at: {}",
            recovery(&document["cluster"])
        )),
    }
}

/// Addresses of the servers that wait for free space on their disks.
pub fn full_disks(document: &Value) -> Vec<&str> {
    let cluster = &document["cluster"];
    let lists = [&cluster["log_servers"], &cluster["storage_servers"]].map(Value::as_array);
    let servers = lists.into_iter().flatten().flatten();
    let mut full: Vec<&str> = servers
        .filter(|server| server["disk_full"].as_bool() == Some(true))
        .filter_map(|server| server["address"].as_str())
        .collect();
    full.sort_unstable();
    full.dedup();
    full
}

/// One line per process with a sick disk: address, directory, problem, duration.
pub fn sick_disks(document: &Value) -> Vec<String> {
    let now = document["cluster"]["cluster_controller_timestamp"].as_u64();
    let processes = document["cluster"]["processes"].as_object();
    let all = processes.into_iter().flat_map(|all| all.values());
    let sick = all.filter_map(|process| {
        let (address, disk) = (process["address"].as_str()?, &process["sick_disk"]);
        let (directory, what) = (disk["directory"].as_str()?, disk["what"].as_str()?);
        let since = now?.saturating_sub(disk["since"].as_u64()?);
        let works = match disk["works_again"].as_bool() {
            Some(true) => "; it works again, and is watched",
            _ => "",
        };
        Some(format!(
            "{address}, {directory}: {what}, for {since} s{works}"
        ))
    });
    sick.collect()
}

/// Whether nobody has made a database yet, so that one may be made.
pub fn is_never_created(cluster: &Value) -> bool {
    is_without(cluster) && lost_database(cluster).is_none()
}

/// Why it is not known whether there is a database, of a cluster that seems to have none.
pub fn unanswered(cluster: &Value) -> Option<&str> {
    let state = &cluster["recovery_state"];
    let is_it = is_without(cluster) && state["description"] == "waiting_for_coordinators";
    state["waits_for"].as_str().filter(|_| is_it)
}

/// Why no database may be made although the coordinators have none: there was one.
pub fn lost_database(cluster: &Value) -> Option<&str> {
    let why = cluster["recovery_state"]["waits_for"].as_str()?;
    let is_lost = is_without(cluster) && !why.is_empty() && unanswered(cluster).is_none();
    is_lost.then_some(why)
}

fn is_without(cluster: &Value) -> bool {
    cluster["recovery_state"]["name"] == "configuration_never_created"
}

/// Phase of the recovery, and the condition that it waits for.
pub fn recovery(cluster: &Value) -> String {
    let state = &cluster["recovery_state"];
    let phase = state["description"].as_str().unwrap_or("unknown");
    match state["waits_for"].as_str() {
        Some(why) if phase == "standing_still" => format!("standing still: {why}"),
        Some(what) => format!("{phase}, waits for {what}"),
        None => phase.to_string(),
    }
}
