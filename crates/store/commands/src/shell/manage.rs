//! Statements about the database instead of its data: tenants, transaction options, locations of keys, waiting.

use super::options::Chosen;
use super::session::Session;
use super::statement::TenantStatement;
use crate::status;
use plinth_client::{RangeOptions, clearing};
use plinth_core::key::printable;
use plinth_core::{Error, Key, KeyRange, Result};
use plinth_runtime::Duration;
use plinth_terminal::Outcome;
use plinth_terminal::choices::missing;
use plinth_terminal::shell::answer::Answer;
use plinth_terminal::status::is_available;

/// Interval between checks whether the database serves.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

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
                if let (true, Some(open)) = (on, &self.transaction) {
                    chosen.1.to(open).map_err(|error| error.to_string())?;
                }
                let before = self.options.len();
                self.options.retain(|(_, option)| !option.is_as(&chosen.1));
                if on {
                    self.options.push(chosen);
                } else if self.options.len() == before {
                    return Err(format!("the option {} is not on", chosen.0));
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
            TenantStatement::Create(name) => {
                self.of_tenant(&name, database.create_tenant(&name).await)
                    .await?;
                said(format!(
                    "The tenant `{}' has been created",
                    printable(&name)
                ))
            }
            TenantStatement::Delete(name) => {
                self.of_tenant(&name, database.delete_tenant(&name).await)
                    .await?;
                said(format!(
                    "The tenant `{}' has been deleted",
                    printable(&name)
                ))
            }
            TenantStatement::Rename(from, to) => {
                let renamed = database.rename_tenant(&from, &to).await;
                let about = match renamed {
                    Err(Error::tenant_already_exists) => &to,
                    _ => &from,
                };
                self.of_tenant(about, renamed).await?;
                let (from, to) = (printable(&from), printable(&to));
                said(format!("The tenant `{from}' has been renamed to `{to}'"))
            }
            TenantStatement::Get(name) => {
                let id = self
                    .of_tenant(&name, database.tenant_id(&name).await)
                    .await?;
                let prefix = printable(&id.to_be_bytes());
                let text = format!("  id: {id}\n  prefix: {prefix}");
                let row = vec![printable(&name), id.to_string(), prefix];
                Ok(Answer::Table(text, vec![row]))
            }
            TenantStatement::List => {
                let tenants = self.told(database.list_tenants().await).await?;
                let numbered = tenants.iter().zip(1..);
                let line =
                    |((name, _), at): (&(Key, i64), i32)| format!("  {at}. {}", printable(name));
                let text = match tenants.is_empty() {
                    true => "The cluster has no tenants".into(),
                    false => numbered.map(line).collect::<Vec<_>>().join("\n"),
                };
                let row = |(name, id): &(Key, i64)| vec![printable(name), id.to_string()];
                Ok(Answer::Table(text, tenants.iter().map(row).collect()))
            }
            TenantStatement::Use(Some(name)) => {
                self.no_transaction_is_open()?;
                self.of_tenant(&name, database.tenant_id(&name).await)
                    .await?;
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

    /// The result, or one line for its error, with the name of the tenant that it is about.
    async fn of_tenant<T>(&self, name: &Key, result: Result<T>) -> Outcome<T> {
        let shown = printable(name);
        Err(match result {
            Err(Error::tenant_not_found) => {
                let tenants = self.connection.database.list_tenants().await;
                let tenants = tenants.unwrap_or_default();
                let names = tenants.iter().map(|(name, _)| printable(name));
                missing(
                    "tenant",
                    &shown,
                    names,
                    "`listtenants' shows those there are",
                )
            }
            Err(Error::tenant_not_empty) => format!(
                "the tenant `{shown}' still holds data; `usetenant {shown}; clearrange \"\" \\xff; defaulttenant' \
                 removes it"
            ),
            Err(Error::tenant_prefix_allocator_conflict) => self.what_is_in_the_way(&shown).await,
            Err(Error::tenant_already_exists) => format!(
                "there is a tenant `{shown}' already; choose another name, or delete it first"
            ),
            result => return self.told(result).await,
        })
    }

    /// Which keys keep a new tenant out, and what can be done.
    async fn what_is_in_the_way(&self, shown: &str) -> String {
        let looking = self.connection.database.run(async |transaction| {
            let id = transaction.tenants().await?.last + 1;
            let (begin, end) = (id.to_be_bytes(), (id + 1).to_be_bytes());
            let range = KeyRange::new(begin.to_vec(), end.to_vec());
            let found = transaction.get_rows(range, RangeOptions::limit(1), true);
            Ok((id, found.await?.into_iter().next()))
        });
        let error = Error::tenant_prefix_allocator_conflict;
        match looking.await {
            Ok((id, Some((first, _)))) => format!(
                "tenant `{shown}' would get number {id}, and there are keys where its own would be, which are no \
                 tenant's, the first is {} ({}); if they were copied or loaded without their tenants, do that again \
                 with them into another database; `{}' removes these keys",
                printable(&first),
                error.code(),
                clearing(id)
            ),
            _ => error.to_string(),
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
        let text = format!(
            "Cluster description: {}\nCluster coordinators ({}): {}",
            file.description,
            addresses.len(),
            addresses.join(",")
        );
        let rows = addresses.into_iter().map(|address| vec![address]);
        Answer::Table(text, rows.collect())
    }

    /// Lists the storage servers of a key.
    pub(super) async fn get_location(&self, key: Key) -> Outcome<Answer> {
        let transaction = self.connection.database.create_transaction();
        let found = transaction.get_addresses_for_key(&key).await;
        let addresses = self.told(found).await?;
        let lines = addresses.iter().map(|address| format!("  {address}"));
        let text = lines.collect::<Vec<_>>().join("\n");
        let rows = addresses.iter().map(|address| vec![address.to_string()]);
        Ok(Answer::Table(text, rows.collect()))
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
        let line = match is_available(&document) {
            true => "The database is available.",
            false => "The database is unavailable; type `status' for more information.",
        };
        let summary = Some(line.to_owned());
        Ok(Answer::Status { document, summary })
    }
}
