//! Statements about the database instead of its data: tenants, transaction options, locations of keys, waiting.

use super::answer::Answer;
use super::session::Session;
use super::statement::TenantStatement;
use crate::{Outcome, status};
use plinth_client::TransactionOption;
use plinth_core::key::printable;
use plinth_core::{Error, Key};
use plinth_runtime::Duration;

/// Interval between checks whether the database serves.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// Transaction options that are useful in a shell: name, code, whether they take a number.
const OPTIONS: [(&str, u32, bool); 20] = [
    ("access_system_keys", 301, false),
    ("bypass_unreadable", 1100, false),
    ("causal_read_risky", 20, false),
    ("causal_write_risky", 10, false),
    ("lock_aware", 700, false),
    ("max_retry_delay", 502, true),
    ("next_write_no_write_conflict_range", 30, false),
    ("priority_batch", 201, false),
    ("priority_system_immediate", 200, false),
    ("read_lock_aware", 702, false),
    ("read_system_keys", 302, false),
    ("read_your_writes_disable", 51, false),
    ("report_conflicting_keys", 712, false),
    ("retry_limit", 501, true),
    ("size_limit", 503, true),
    ("snapshot_ryw_disable", 601, false),
    ("snapshot_ryw_enable", 600, false),
    ("special_key_space_enable_writes", 714, false),
    ("special_key_space_relaxed", 713, false),
    ("timeout", 500, true),
];

pub fn option_names() -> impl Iterator<Item = &'static str> {
    OPTIONS.iter().map(|(name, ..)| *name)
}

/// An option that is on: its name as shown to the user, and the option.
pub type Chosen = (String, TransactionOption);

/// A valid number for the option, or `None` if it takes none.
pub fn some_number(name: &str) -> Option<String> {
    let (_, _, takes_number) = OPTIONS.iter().find(|(known, ..)| *known == name)?;
    takes_number.then(|| "1000".to_owned())
}

/// Parses the option with this name, and with this number if it takes one.
pub fn parse_option(name: &str, number: Option<&str>) -> Result<Chosen, String> {
    let name = name.to_ascii_lowercase();
    let Some((name, code, takes_number)) = OPTIONS.iter().find(|(known, ..)| *known == name) else {
        return Err(format!(
            "there is no option `{name}'; `help option' lists them"
        ));
    };
    let value = match (takes_number, number) {
        (false, None) => None,
        (false, Some(_)) => return Err(format!("the option {name} takes no number")),
        (true, text) => {
            let number: Option<i64> = text.and_then(|text| text.parse().ok());
            let number = number.ok_or(format!("the option {name} takes a number"))?;
            Some(number.to_le_bytes())
        }
    };
    let option = TransactionOption::from_code(*code, value.as_ref().map(|value| &value[..]));
    let option = option.map_err(|error| format!("{name}: {error}"))?;
    let shown = match number {
        Some(number) => format!("{name} {number}"),
        None => (*name).to_owned(),
    };
    Ok((shown, option))
}

impl Session {
    /// Switches an option on or off; without a change, lists the options that are on.
    pub(super) fn option(&mut self, change: Option<(bool, Chosen)>) -> Outcome<Answer> {
        match change {
            None if self.options.is_empty() => Ok(Answer::Text("No options are on".into())),
            None => {
                let on = self.options.iter().map(|(shown, _)| format!("  {shown}"));
                Ok(Answer::Text(on.collect::<Vec<_>>().join("\n")))
            }
            Some((on, chosen)) => {
                let same = std::mem::discriminant(&chosen.1);
                if on {
                    if let Some(open) = &self.transaction {
                        open.set_option(chosen.1)
                            .map_err(|error| error.to_string())?;
                    }
                    self.options
                        .retain(|(_, option)| std::mem::discriminant(option) != same);
                    self.options.push(chosen);
                } else {
                    let before = self.options.len();
                    self.options
                        .retain(|(_, option)| std::mem::discriminant(option) != same);
                    if self.options.len() == before {
                        return Err(format!("the option {} is not on", chosen.0));
                    }
                }
                Ok(Answer::Text(
                    "Option changed; transactions from now on have it so".into(),
                ))
            }
        }
    }

    pub(super) async fn tenant(&mut self, statement: TenantStatement) -> Outcome<Answer> {
        let database = self.connection.database.clone();
        let said = |what: String| Ok(Answer::Text(what));
        match statement {
            TenantStatement::Create(name) => match database.create_tenant(&name).await {
                Ok(()) => said(format!(
                    "The tenant `{}' has been created",
                    printable(&name)
                )),
                Err(error) => self.fail(error).await,
            },
            TenantStatement::Delete(name) => match database.delete_tenant(&name).await {
                Ok(()) => said(format!(
                    "The tenant `{}' has been deleted",
                    printable(&name)
                )),
                Err(error) => self.fail(error).await,
            },
            TenantStatement::Get(name) => match database.tenant_id(&name).await {
                Ok(id) => said(format!(
                    "  id: {id}\n  prefix: {}",
                    printable(&id.to_be_bytes())
                )),
                Err(error) => self.fail(error).await,
            },
            TenantStatement::List => match database.list_tenants().await {
                Ok(tenants) if tenants.is_empty() => said("The cluster has no tenants".into()),
                Ok(tenants) => {
                    let numbered = tenants.iter().zip(1..);
                    let line = |((name, _), at): (&(Key, i64), i32)| {
                        format!("  {at}. {}", printable(name))
                    };
                    said(numbered.map(line).collect::<Vec<_>>().join("\n"))
                }
                Err(error) => self.fail(error).await,
            },
            TenantStatement::Use(Some(name)) => {
                self.no_transaction_is_open()?;
                if let Err(error) = database.tenant_id(&name).await {
                    return self.fail(error).await;
                }
                let tenant = database.open_tenant(&name);
                self.connection.limit(&tenant);
                self.tenant = Some(tenant);
                said(format!("Using tenant `{}'", printable(&name)))
            }
            TenantStatement::Use(None) => {
                self.no_transaction_is_open()?;
                self.tenant = None;
                said("Using the default tenant".into())
            }
        }
    }

    fn no_transaction_is_open(&self) -> Outcome {
        match self.is_open() {
            true => Err("a transaction is open; `commit' or `rollback' ends it".into()),
            false => Ok(()),
        }
    }

    pub(super) fn coordinators(&self) -> Answer {
        let file = self.connection.coordinators.file();
        let addresses: Vec<String> = file.coordinators.iter().map(ToString::to_string).collect();
        Answer::Text(format!(
            "Cluster description: {}\nCluster coordinators ({}): {}",
            file.description,
            addresses.len(),
            addresses.join(",")
        ))
    }

    /// Lists the storage servers of a key.
    pub(super) async fn get_location(&self, key: Key) -> Outcome<Answer> {
        let transaction = self.connection.database.create_transaction();
        match transaction.get_addresses_for_key(&key).await {
            Ok(addresses) => {
                let lines = addresses.iter().map(|address| format!("  {address}"));
                Ok(Answer::Text(lines.collect::<Vec<_>>().join("\n")))
            }
            Err(error) => self.fail(error).await,
        }
    }

    /// Waits without a time limit until the cluster serves or, if `connected`, until its controller answers.
    pub(super) async fn wait(&self, connected: bool) -> Outcome<Answer> {
        loop {
            let ready = if connected {
                self.connection.controller().await.is_ok()
            } else {
                let transaction = self.connection.database.create_transaction();
                match transaction.get_read_version().await {
                    Err(Error::transaction_timed_out) => false,
                    Err(error) => {
                        let _ = transaction.on_error(error).await; // retried after any error
                        false
                    }
                    Ok(_) => true,
                }
            };
            if ready {
                return Ok(Answer::Nothing);
            }
            plinth_runtime::sleep(LOOK_INTERVAL).await;
        }
    }

    /// The availability in one line.
    pub(super) async fn status_minimal(&self) -> Outcome<Answer> {
        let document = status::fetch(&self.connection).await?;
        let line = match status::is_available(&document) {
            true => "The database is available.",
            false => "The database is unavailable; type `status' for more information.",
        };
        let summary = Some(line.to_owned());
        Ok(Answer::Status { document, summary })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_takes_a_number_exactly_if_it_wants_one() {
        assert_eq!(
            parse_option("TIMEOUT", Some("500")),
            Ok(("timeout 500".into(), TransactionOption::Timeout(500)))
        );
        for (name, number) in [
            ("timeout", None),
            ("timeout", Some("x")),
            ("lock_aware", Some("1")),
            ("none", None),
        ] {
            assert!(parse_option(name, number).is_err(), "{name} {number:?}");
        }
        assert!(option_names().all(|name| {
            parse_option(name, None).is_ok() || parse_option(name, Some("100")).is_ok()
        }));
    }
}
