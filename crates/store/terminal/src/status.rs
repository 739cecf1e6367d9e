//! What a status document says in one line.

use crate::Outcome;
use crate::pages::view::Head;
use crate::wording::counted;
use serde_json::Value;
use std::collections::BTreeSet;

/// Field of a document for programs: why the database is not available, or why no controller has told the document.
pub const ERROR: &str = "error";

pub fn is_available(document: &Value) -> bool {
    document["cluster"]["database_available"].as_bool() == Some(true)
        && unread_data(document).is_none()
}

/// The line about data that cannot be read now, though transactions begin.
pub fn unread_data(document: &Value) -> Option<String> {
    silent_storage(document).or_else(|| damaged_everywhere(document))
}

/// The line about keys that every copy lacks.
fn damaged_everywhere(document: &Value) -> Option<String> {
    let unreadable = &document["cluster"]["data"]["unreadable"];
    let first = unreadable["ranges"].get(0)?;
    let (begin, end) = (first["begin"].as_str()?, first["end"].as_str()?);
    let others = unreadable["ranges"].as_array()?.len() as u64 - 1;
    let more = match others + unreadable["more_ranges"].as_u64().unwrap_or(0) {
        0 => String::new(),
        more => format!(
            " and in {}",
            counted(more as usize, "other range", "other ranges")
        ),
    };
    Some(format!(
        "keys from `{begin}' to before `{end}'{more} cannot be read, because each copy is damaged there or away: \
         see Damaged files in docs/operating.md"
    ))
}

/// The line about storage servers that do not answer, so that some of the data, or all of it, is not read, though
/// transactions begin.
fn silent_storage(document: &Value) -> Option<String> {
    let cluster = &document["cluster"];
    let all = cluster["storage_servers"].as_array()?;
    let silent: Vec<&Value> = all
        .iter()
        .filter(|server| server["unreachable"] == true)
        .collect();
    let is_lacking = cluster["data"]["state"]["name"] == "missing_data";
    if silent.is_empty() || (silent.len() < all.len() && !is_lacking) {
        return None;
    }
    let name = |server: &&Value| server["address"].as_str().map(str::to_owned);
    let names: BTreeSet<String> = silent.iter().filter_map(name).collect();
    let names: Vec<String> = names.into_iter().collect();
    let at = match names.is_empty() {
        true => String::new(),
        false => format!(" ({})", names.join(", ")),
    };
    let count = counted(all.len(), "storage server", "storage servers");
    let what = match silent.len() == all.len() {
        true => format!("of its {count} none answers{at}"),
        false => format!("some of its data is on storage servers alone that do not answer{at}"),
    };
    Some(format!(
        "{what}: start the servers that have their data directories"
    ))
}

/// What the database is to its clients.
pub fn database(document: &Value) -> String {
    let cluster = &document["cluster"];
    if let Some(why) = unanswered(cluster) {
        return format!("not created; {why}");
    }
    if let Some(line) = unread_data(document) {
        return format!("unavailable; {line}");
    }
    match lock(cluster) {
        _ if is_never_created(cluster) => format!(
            "not created: `configure new {} ssd' in plinth cli does that",
            fitting_mode(cluster)
        ),
        _ if lost_database(cluster).is_some() => {
            "lost by the coordinators; see Lost coordinators in docs/operating.md".into()
        }
        Some(id) if is_available(document) => format!(
            "{}: `unlock {}' in plinth cli opens it",
            availability(document),
            id.unwrap_or("ID")
        ),
        _ => availability(document),
    }
}

/// Zones that may fail, whichever they are, without a loss of data, and without one of availability.
pub fn may_fail(cluster: &Value) -> [Option<u64>; 2] {
    let zones = |of| {
        let name = format!("max_zone_failures_without_losing_{of}");
        cluster["fault_tolerance"][name].as_u64()
    };
    ["data", "availability"].map(zones)
}

/// What the database can do now, what may fail, and what it waits for.
pub fn headline(document: &Value) -> Head {
    let cluster = &document["cluster"];
    let mut line = format!("The database is {}.", database(document));
    match may_fail(cluster).into_iter().flatten().min() {
        None => {}
        Some(0) => line.push_str(" No zone may fail."),
        Some(1) => line.push_str(" One zone may fail."),
        Some(zones) => line += &format!(" {zones} zones may fail."),
    }
    if let Some(what) = cluster["recovery_state"]["waits_for"].as_str() {
        line += &format!(" It waits for {what}.");
    }
    Head {
        is_good: available(document).is_ok(),
        line,
    }
}

/// The document for programs, with the line of [`available`], if that is one.
pub fn with_verdict(mut document: Value) -> Value {
    if let Err(line) = available(&document) {
        document[ERROR] = line.into();
    }
    document
}

/// Outcome of a command that has printed the status, for scripts: an error if the database is not available, or soon
/// may not be.
pub fn available(document: &Value) -> Outcome {
    if let Some(line) = document[ERROR].as_str() {
        return Err(line.to_owned());
    }
    let full = full_disks(document);
    match (is_available(document), unread_data(document)) {
        (true, _) if !full.is_empty() => Err(format!(
            "the database is available, and the disk is full at {}: commits may wait for room; make some there",
            full.join(", ")
        )),
        (true, _) => Ok(()),
        (_, Some(line)) => Err(format!("the database is unavailable; {line}")),
        (false, None) => Err(format!(
            "the database is unavailable; its recovery is at: {}",
            recovery(&document["cluster"])
        )),
    }
}

/// Addresses of the servers that wait for free space on their disks: log servers, storage servers and coordinators.
pub fn full_disks(document: &Value) -> Vec<&str> {
    let cluster = &document["cluster"];
    let lists = [&cluster["log_servers"], &cluster["storage_servers"]].map(Value::as_array);
    let processes = cluster["processes"].as_object();
    let processes = processes.into_iter().flat_map(|all| all.values());
    let coordinators = processes.filter(|process| {
        let roles = process["roles"].as_array();
        let mut roles = roles.into_iter().flatten();
        roles.any(|role| role["role"] == "coordinator")
    });
    let servers = lists.into_iter().flatten().flatten().chain(coordinators);
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
    const ASKED: &str =
        "its coordinators are being asked whether there is one; look again in some seconds";
    let state = &cluster["recovery_state"];
    let is_it = is_without(cluster) && state["description"] == "waiting_for_coordinators";
    is_it.then(|| state["waits_for"].as_str().unwrap_or(ASKED))
}

/// The mode that suits a new database: with two copies or three as there are zones that may fail.
pub fn fitting_mode(cluster: &Value) -> &'static str {
    let processes = cluster["processes"].as_object();
    let processes = processes.into_iter().flat_map(|all| all.values());
    let zones = processes.filter_map(|process| process["locality"]["zoneid"].as_str());
    match zones.collect::<BTreeSet<_>>().len() {
        0..=2 => "single",
        3..=4 => "double",
        _ => "triple",
    }
}

/// The id of the lock if the database is locked, as far as it is known.
pub fn lock(cluster: &Value) -> Option<Option<&str>> {
    let lock = &cluster["database_lock_state"];
    (lock["locked"] == true).then(|| lock["lock_uid"].as_str())
}

/// What the database is to its clients, in a few words.
pub fn availability(document: &Value) -> String {
    if !is_available(document) {
        return "unavailable".into();
    }
    let locked = lock(&document["cluster"]);
    let locked = locked.map(|id| format!("locked with {}", id.unwrap_or("an unknown id")));
    let full = full_disks(document);
    let full = (!full.is_empty()).then(|| format!("with a full disk at {}", full.join(", ")));
    let more = [locked, full].into_iter().flatten();
    more.fold("available".into(), |said, more| {
        format!("{said}, and {more}")
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_database_of_which_a_part_cannot_be_read_is_not_available() {
        let document = |state: &str, silent: bool| {
            let server = |i: u8, unreachable| {
                let address = format!("10.0.0.{i}:4500");
                json!({"address": address, "unreachable": unreachable})
            };
            json!({"cluster": {
                "database_available": true,
                "data": {"state": {"name": state}},
                "storage_servers": [server(1, silent), server(2, silent), server(3, false)],
            }})
        };
        for (state, silent) in [
            ("healing", true),
            ("missing_data", false),
            ("healthy", false),
        ] {
            assert!(is_available(&document(state, silent)), "{state}");
        }
        let line = available(&document("missing_data", true)).expect_err("nobody reads it");
        let said =
            "on storage servers alone that do not answer (10.0.0.1:4500, 10.0.0.2:4500): start";
        assert!(line.contains(said), "{line}");
    }

    #[test]
    fn a_database_with_keys_that_no_copy_can_read_is_not_available() {
        let document = |ranges: Value, more: u64| {
            json!({"cluster": {
                "database_available": true,
                "data": {"unreadable": {"ranges": ranges, "more_ranges": more}},
            }})
        };
        assert!(is_available(&document(json!([]), 0)));
        let lost = document(
            json!([{"begin": "a", "end": "b"}, {"begin": "x", "end": "y"}]),
            3,
        );
        let line = available(&lost).expect_err("they are not read");
        let said = "unavailable; keys from `a' to before `b' and in 4 other ranges cannot be read";
        assert!(line.contains(said), "{line}");
    }

    #[test]
    fn a_full_disk_is_in_the_headline_and_in_the_exit_code() {
        let document = |full: bool| {
            json!({"cluster": {
                "database_available": true,
                "log_servers": [{"address": "10.0.0.1:4500", "disk_full": full}],
            }})
        };
        assert_eq!(availability(&document(false)), "available");
        assert_eq!(available(&document(false)), Ok(()));
        let said = availability(&document(true));
        assert_eq!(said, "available, and with a full disk at 10.0.0.1:4500");
        let line = available(&document(true)).expect_err("a disk is full");
        assert!(line.contains("the disk is full at 10.0.0.1:4500"), "{line}");
        let process = |role: &str| {
            let process =
                json!({"address": "10.0.0.2:4500", "disk_full": true, "roles": [{"role": role}]});
            json!({"cluster": {"database_available": true, "processes": {"a": process}}})
        };
        assert_eq!(full_disks(&process("coordinator")), ["10.0.0.2:4500"]);
        assert!(
            full_disks(&process("resolver")).is_empty(),
            "it writes nothing"
        );
    }

    #[test]
    fn a_database_none_of_whose_storage_servers_answers_is_not_available() {
        let one = |unreachable| json!({"address": "10.0.0.1:4500", "unreachable": unreachable});
        let document = |servers: Value| json!({"cluster": {"database_available": true, "storage_servers": servers}});
        assert!(is_available(&document(json!([one(true), one(false)]))));
        assert!(is_available(&document(json!([]))));
        let lost = document(json!([one(true), one(true)]));
        let line = available(&lost).expect_err("nobody can read");
        assert!(
            line.contains("2 storage servers none answers (10.0.0.1:4500)"),
            "{line}"
        );
    }

    #[test]
    fn a_new_database_has_as_many_copies_as_zones_can_bear_and_nobody_advises_one_before_all_have_answered()
     {
        let in_zones = |zones: &[&str]| {
            let processes = zones.iter().enumerate();
            let processes = processes.map(|(i, zone)| {
                let process = json!({"locality": {"zoneid": zone}});
                (i.to_string(), process)
            });
            let all: serde_json::Map<_, _> = processes.collect();
            json!({"processes": all})
        };
        for (zones, mode) in [
            (&[][..], "single"),
            (&["a", "a", "a"], "single"),
            (&["a", "b", "c"], "double"),
            (&["a", "b", "c", "d", "e"], "triple"),
        ] {
            assert_eq!(fitting_mode(&in_zones(zones)), mode, "{zones:?}");
        }
        let mut cluster = json!({"recovery_state": {
            "name": "configuration_never_created", "description": "waiting_for_coordinators",
        }});
        assert!(unanswered(&cluster).is_some_and(|line| line.contains("being asked")));
        cluster["recovery_state"]["description"] = "waiting_for_configure_new".into();
        assert_eq!(unanswered(&cluster), None);
        assert!(is_never_created(&cluster));
    }

    #[test]
    fn a_locked_and_a_new_database_are_told_apart() {
        let mut document = json!({"cluster": {
            "database_available": true, "database_lock_state": {"locked": true, "lock_uid": "ab"},
        }});
        assert!(database(&document).starts_with("available, and locked with ab"));
        document["cluster"]["database_available"] = false.into();
        document["cluster"]["recovery_state"] = json!({"name": "configuration_never_created"});
        assert!(database(&document).starts_with("not created"));
        document["cluster"]["recovery_state"]["waits_for"] = "127.0.0.1:4500 holds data".into();
        assert!(database(&document).starts_with("lost by the coordinators"));
        document["cluster"]["recovery_state"]["description"] = "waiting_for_coordinators".into();
        document["cluster"]["recovery_state"]["waits_for"] = "a cannot be reached".into();
        assert_eq!(database(&document), "not created; a cannot be reached");
        document["cluster"]["recovery_state"] = Value::Null;
        assert_eq!(database(&document), "unavailable");
    }

    #[test]
    fn the_headline_says_what_is_what_may_fail_and_what_is_waited_for() {
        let mut document = json!({"cluster": {
            "database_available": true,
            "fault_tolerance": {
                "max_zone_failures_without_losing_availability": 1, "max_zone_failures_without_losing_data": 1,
            },
        }});
        let said = |document: &Value| {
            let head = headline(document);
            (head.is_good, head.line)
        };
        let good = "The database is available. One zone may fail.";
        assert_eq!(said(&document), (true, good.into()));
        // What would lose data is not what may fail, though the rest would serve.
        document["cluster"]["fault_tolerance"]["max_zone_failures_without_losing_data"] = 0.into();
        assert!(said(&document).1.ends_with(" No zone may fail."));
        let waits = json!({"cluster": {"recovery_state": {
            "name": "recruiting_transaction_servers", "waits_for": "two log servers",
        }}});
        let bad = "The database is unavailable. It waits for two log servers.";
        assert_eq!(said(&waits), (false, bad.into()));
    }
}
