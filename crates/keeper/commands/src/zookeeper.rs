//! What an operator may choose for ZooKeeper's clients, wherever they come in.

use plinth_keeper::{Options, Words};
use plinth_terminal::Outcome;
use plinth_terminal::numbers::within;
use std::path::{Path, PathBuf};

/// Two beats of a gateway: nobody would live for less.
const SESSION_TIMEOUT_MS_MIN: i64 = 500;
const SESSION_TIMEOUT_MS_MAX: i64 = 24 * 3_600_000;
/// Nobody has a time-out below 4 s who does not ask for it.
const TICK_MS_MIN: i64 = 2000;
const TICK_MS: u32 = 2000;
const CONNECTIONS: usize = 60;
const SUPER_DIGEST: &str = "PLINTH_KEEPER_SUPER_DIGEST";

#[derive(clap::Args, Clone, Debug)]
pub struct ForClients {
    /// ZooKeeper's tickTime, in milliseconds: time-outs of sessions are from 2 to 20 ticks, unless others are given
    #[arg(long, value_name = "MS", default_value_t = TICK_MS, value_parser = within::<u32>(TICK_MS_MIN..=600_000))]
    tick_ms: u32,
    /// Shortest time-out of a session, as ZooKeeper's minSessionTimeout [default: 2 ticks]
    #[arg(long, value_name = "MS", value_parser = within::<u32>(SESSION_TIMEOUT_MS_MIN..=SESSION_TIMEOUT_MS_MAX))]
    min_session_timeout_ms: Option<u32>,
    /// Longest time-out of a session, as ZooKeeper's maxSessionTimeout [default: 20 ticks]
    #[arg(long, value_name = "MS", value_parser = within::<u32>(SESSION_TIMEOUT_MS_MIN..=SESSION_TIMEOUT_MS_MAX))]
    max_session_timeout_ms: Option<u32>,
    /// Most connections that one address may have, as ZooKeeper's maxClientCnxns; 0 is no limit
    #[arg(long, value_name = "N", default_value_t = CONNECTIONS as u32, value_parser = within::<u32>(..))]
    max_connections_per_address: u32,
    /// Four-letter words that are answered, with commas between them, or `*` for all, as ZooKeeper's
    /// 4lw.commands.whitelist; srvr and isro are answered whatever it says
    #[arg(long, value_name = "LIST", default_value_t = Words::default())]
    commands: Words,
    /// Refuse what hard limits of quotas do not allow, and trace what passes soft ones, as ZooKeeper's enforceQuota
    #[arg(long)]
    enforce_quota: bool,
    /// Answer as ZooKeeper and no more: without what ClickHouse asks its own keeper for, and without /keeper
    #[arg(long)]
    no_clickhouse: bool,
    /// Where this process is, as /keeper/availability_zone tells ClickHouse's clients, who choose a near one
    #[arg(long, value_name = "NAME")]
    zone: Option<String>,
    /// File for who changes which nodes, in the form of ZooKeeper's audit log (its audit.enable); up to ten older ones
    /// of 10 MiB stand beside it
    #[arg(long, value_name = "FILE")]
    operations_log: Option<PathBuf>,
    /// Id of the super user, as ZooKeeper's superDigest: `super:` and the hash of the password
    #[arg(long, value_name = "DIGEST", env = SUPER_DIGEST, value_parser = parse_digest)]
    super_digest: Option<String>,
}

/// The base64 of a SHA-1, with the one sign that fills it up.
const HASH_CHARS: usize = 28;

/// A digest that no password has would shut out the super user without a word.
fn parse_digest(digest: &str) -> Result<String, String> {
    let is_hash = |hash: &str| {
        let digits = hash.strip_suffix('=').unwrap_or_default();
        let is_digit = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
        hash.len() == HASH_CHARS && digits.bytes().all(is_digit)
    };
    match digest.split_once(':') {
        Some((user, hash)) if !user.is_empty() && is_hash(hash) => Ok(digest.into()),
        _ => Err(
            "expected `super:' and the hash of the password, 28 characters of base64 that end in =: \
            what `printf super:PASSWORD | openssl sha1 -binary | base64' prints"
                .into(),
        ),
    }
}

/// A gateway makes no directory for it.
fn refuse_missing_directory(log: &Path) -> Outcome {
    match log.parent() {
        Some(above) if !above.as_os_str().is_empty() && !above.is_dir() => Err(format!(
            "operations log {}: there is no directory {}; make it, or choose another with --operations-log",
            log.display(),
            above.display()
        )),
        _ => Ok(()),
    }
}

impl ForClients {
    /// # Errors
    /// They contradict each other: one line, which begins with `at`.
    pub fn options(&self, tree: String) -> Outcome<Options> {
        let options = Options {
            tree,
            tick_ms: self.tick_ms,
            min_session_timeout_ms: self.min_session_timeout_ms,
            max_session_timeout_ms: self.max_session_timeout_ms,
            max_connections_per_address: self.max_connections_per_address(),
            super_digest: self.super_digest.clone(),
            x509_super_user: None, // of those that have a secure port
            enforce_quota: self.enforce_quota,
            clickhouse: !self.no_clickhouse,
            zone: self.zone.clone(),
            words: self.commands.clone(),
            operations_log: self.operations_log.clone(),
        };
        self.operations_log
            .as_deref()
            .map_or(Ok(()), refuse_missing_directory)?;
        let shortest = self.min_session_timeout_ms.unwrap_or(2 * self.tick_ms);
        let longest = self.max_session_timeout_ms.unwrap_or(20 * self.tick_ms);
        match shortest > longest {
            true => Err(format!(
                "the shortest time-out of a session, {shortest} ms, is longer than the longest, {longest} ms: \
                give others with --min-session-timeout-ms and --max-session-timeout-ms"
            )),
            false => Ok(options),
        }
    }

    /// The first of these flags that says something else than is so without it. The digest may be a variable's.
    pub fn first_said(&self) -> Option<&'static str> {
        let said = [
            ("--tick-ms", self.tick_ms != TICK_MS),
            (
                "--min-session-timeout-ms",
                self.min_session_timeout_ms.is_some(),
            ),
            (
                "--max-session-timeout-ms",
                self.max_session_timeout_ms.is_some(),
            ),
            (
                "--max-connections-per-address",
                self.max_connections_per_address() != CONNECTIONS,
            ),
            (
                "--commands",
                self.commands.to_string() != Words::default().to_string(),
            ),
            ("--enforce-quota", self.enforce_quota),
            ("--no-clickhouse", self.no_clickhouse),
            ("--zone", self.zone.is_some()),
            ("--operations-log", self.operations_log.is_some()),
        ];
        let first = said.into_iter().find(|(_, is_said)| *is_said);
        first.map(|(flag, _)| flag)
    }

    pub fn max_connections_per_address(&self) -> usize {
        self.max_connections_per_address as usize
    }

    /// Chooses the same in a process that is started under this name. A secret is not for its arguments, which others
    /// see.
    pub fn hand_on(&self, command: &mut std::process::Command, name: &str) {
        command.args(["--tick-ms", &self.tick_ms.to_string()]);
        let most = self.max_connections_per_address.to_string();
        command.args(["--max-connections-per-address", &most]);
        command.args(["--commands", &self.commands.to_string()]);
        for (name, chosen) in [
            ("--min-session-timeout-ms", self.min_session_timeout_ms),
            ("--max-session-timeout-ms", self.max_session_timeout_ms),
        ] {
            if let Some(ms) = chosen {
                command.args([name, &ms.to_string()]);
            }
        }
        if self.enforce_quota {
            command.arg("--enforce-quota");
        }
        if self.no_clickhouse {
            command.arg("--no-clickhouse");
        }
        if let Some(file) = &self.operations_log {
            let mut file = file.clone().into_os_string();
            file.push(format!(".{name}"));
            command.arg("--operations-log").arg(file);
        }
        if let Some(zone) = &self.zone {
            command.args(["--zone", zone]);
        }
        if let Some(digest) = &self.super_digest {
            command.env(SUPER_DIGEST, digest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operations_log_has_a_directory() {
        assert_eq!(
            refuse_missing_directory(Path::new("operations.log")),
            Ok(())
        );
        assert_eq!(
            refuse_missing_directory(&std::env::temp_dir().join("log")),
            Ok(())
        );
        let refused = refuse_missing_directory(Path::new("none/log")).expect_err("it is not there");
        for words in ["no directory none", "--operations-log"] {
            assert!(refused.contains(words), "{refused}");
        }
    }

    #[test]
    fn a_super_digest_is_a_name_and_a_hash() {
        let good = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=";
        assert_eq!(parse_digest(good).as_deref(), Ok(good));
        for bad in [
            "foo",
            "super:",
            "super:test",
            ":D/InIHSb7yEEbrWz8b9l71RjZJU=",
            "D/InIHSb7yEEbrWz8b9l71RjZJU=",
            "super:D/InIHSb7yEEbrWz8b9l71RjZJU",
            "super:D/InIHSb7yEEbrWz8b9l71RjZJ==",
            "super:D/InIHSb7yEEbrWz8b9l71RjZ:U=",
        ] {
            let refused = parse_digest(bad).expect_err(bad);
            assert!(refused.contains("28 characters"), "{refused}");
        }
    }
}
