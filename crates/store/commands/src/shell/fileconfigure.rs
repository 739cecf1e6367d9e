//! The file of the statement `fileconfigure`: JSON with the members that `configuration` has in the status document.
//!
//! Some members follow from others, or have one value here. They are accepted if they say what is so, so that the
//! configuration of a status document can be given back.

use plinth_control::management::ConfigChange;
use plinth_core::config::FaultDomain;
use plinth_core::similar::question;
use plinth_core::{DatabaseConfig, EngineKind};
use plinth_identity::files::FileKind;
use plinth_terminal::outputs::why_not_read;
use plinth_terminal::text::without_mark;
use serde_json::Value;
use std::io::Read;
use std::path::Path;

/// A longer file is none of these.
const BYTES_MAX: u64 = 1 << 20;

/// Reads the file. The error is one line that names it.
pub fn read(path: &Path) -> Result<ConfigChange, String> {
    let at = |what: String| {
        format!(
            "fileconfigure: {}: {what}; nothing has changed",
            path.display()
        )
    };
    let mut text = String::new();
    let opened = std::fs::OpenOptions::new().read(true).open(path);
    let read = opened.and_then(|file| file.take(BYTES_MAX + 1).read_to_string(&mut text));
    match read {
        Err(error) => return Err(at(why_not_read(&error, ""))),
        Ok(read) if read as u64 > BYTES_MAX => {
            return Err(at("it is longer than a configuration".into()));
        }
        Ok(_) => {}
    }
    parse(without_mark(&text)).map_err(at)
}

fn parse(text: &str) -> Result<ConfigChange, String> {
    let document = serde_json::from_str(text);
    let document: Value = document.map_err(|error| match FileKind::of(text.as_bytes()) {
        Some(other) => other.to_string(),
        None => format!("no JSON: {error}"),
    })?;
    let members = document.as_object().ok_or("the JSON is no object")?;
    let mut change = ConfigChange::default();
    for (name, value) in members {
        set(&mut change, name, value)?;
    }
    for (name, value) in members {
        check(&change, name, value)?;
    }
    Ok(change)
}

/// Members that say something.
const MEMBERS: [&str; 6] = [
    "redundancy_mode",
    "storage_engine",
    "logs",
    "commit_proxies",
    "grv_proxies",
    "resolvers",
];

/// Sets what a member says.
fn set(change: &mut ConfigChange, name: &str, value: &Value) -> Result<(), String> {
    let wrong = || format!("`{name}' cannot be {value}");
    let text = || value.as_str().ok_or_else(wrong);
    let count = || {
        let count = value.as_u64().and_then(|count| u32::try_from(count).ok());
        count.ok_or_else(|| format!("`{name}' is a number of roles, not {value}"))
    };
    match name {
        "redundancy_mode" => {
            change.mode = Some(DatabaseConfig::parse_mode(text()?).ok_or_else(wrong)?);
        }
        "storage_engine" => change.engine = Some(EngineKind::parse(text()?).ok_or_else(wrong)?),
        "logs" => change.logs = Some(count()?),
        "commit_proxies" => change.commit_proxies = Some(count()?),
        "grv_proxies" => change.grv_proxies = Some(count()?),
        "resolvers" => change.resolvers = Some(count()?),
        "excluded_servers" => {
            return Err(
                "`excluded_servers' is set by `exclude' and `include'; leave it out".into(),
            );
        }
        "coordinators_count" => {
            return Err("`coordinators_count' is set by `coordinators'; leave it out".into());
        }
        _ => {}
    }
    Ok(())
}

/// Checks a member that follows from others, or has one value.
fn check(change: &ConfigChange, name: &str, value: &Value) -> Result<(), String> {
    let copies = change.mode.map(|(copies, _)| copies);
    let policy = change.mode.map(|(copies, domain)| match (copies, domain) {
        (1, _) => "1".to_string(),
        (copies, FaultDomain::Zone) => format!("(zoneid^{copies}x1)"),
        (copies, FaultDomain::DataHall) => format!("(data_hall^{copies}x1)"),
    });
    let proxies = change.commit_proxies.zip(change.grv_proxies);
    let (must_be, by): (Option<Value>, &str) = match name {
        "redundancy_mode" | "storage_engine" | "logs" | "commit_proxies" | "grv_proxies"
        | "resolvers" => return Ok(()),
        "storage_replicas" | "log_replicas" => (copies.map(Value::from), "redundancy_mode"),
        "storage_replication_policy" | "log_replication_policy" => {
            (policy.map(Value::from), "redundancy_mode")
        }
        "proxies" => (
            proxies.map(|(commit, grv)| Value::from(commit + grv)),
            "commit_proxies and grv_proxies",
        ),
        "log_anti_quorum" => (Some(0.into()), ""),
        "usable_regions" => (Some(1.into()), ""),
        "tenant_mode" => (Some("optional_experimental".into()), ""),
        _ => {
            let meant = question(name, MEMBERS);
            return Err(format!(
                "there is no member `{name}'; {meant}the status document has those there are"
            ));
        }
    };
    match must_be {
        None => Err(format!("`{name}' follows from {by}; give that")),
        Some(only) if only == *value => Ok(()),
        Some(only) => Err(format!("`{name}' can only be {only}, and not {value}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_those_of_the_status_document_and_may_be_given_back() {
        let whole = r#"{"redundancy_mode": "double", "storage_engine": "memory", "logs": 3, "commit_proxies": 2,
            "grv_proxies": 1, "proxies": 3, "resolvers": 1, "storage_replicas": 2, "log_replicas": 2,
            "storage_replication_policy": "(zoneid^2x1)", "log_replication_policy": "(zoneid^2x1)",
            "log_anti_quorum": 0, "usable_regions": 1, "tenant_mode": "optional_experimental"}"#;
        let change = parse(whole).expect("it is one");
        assert_eq!(change.mode, Some((2, FaultDomain::Zone)));
        assert_eq!(change.engine, Some(EngineKind::Memory));
        let counts = [
            change.logs,
            change.commit_proxies,
            change.grv_proxies,
            change.resolvers,
        ];
        assert_eq!(counts, [Some(3), Some(2), Some(1), Some(1)]);
        let one = parse(r#"{"resolvers": 2}"#).expect("the rest stays");
        let wanted = ConfigChange {
            resolvers: Some(2),
            ..ConfigChange::default()
        };
        assert_eq!(one, wanted);
    }

    #[test]
    fn what_is_unknown_or_cannot_be_is_refused_in_one_line() {
        for (text, word) in [
            ("", "no JSON"),
            ("test:a1@10.0.0.1:4500\n", "it is a cluster file"),
            ("[]", "no object"),
            (r#"{"regions": []}"#, "`regions'"),
            (r#"{"redundancy_mode": "quadruple"}"#, "quadruple"),
            (r#"{"redundancy_mode": 2}"#, "`redundancy_mode'"),
            (r#"{"storage_engine": "ssd-rocks"}"#, "ssd-rocks"),
            (r#"{"logs": -1}"#, "-1"),
            (r#"{"logs": 4294967296}"#, "number of roles"),
            (r#"{"storage_replicas": 2}"#, "follows from redundancy_mode"),
            (
                r#"{"redundancy_mode": "triple", "storage_replicas": 2}"#,
                "can only be 3",
            ),
            (r#"{"usable_regions": 2}"#, "can only be 1"),
            (r#"{"excluded_servers": []}"#, "`exclude'"),
            (r#"{"coordinators_count": 3}"#, "`coordinators'"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(
                error.contains(word) && !error.contains('\n'),
                "{text}: {error}"
            );
        }
    }
}
