//! One of the two databases: a Plinth cluster, or a cluster opened through a library.

use super::pieces::Sum;
use plinth_client::{InTheWay, RangeOptions, StreamingMode, Tenants, TransactionOption};
use plinth_core::key::key_after;
use plinth_core::{Error, Key, KeyRange, Value};
use plinth_foreign::{Database as Foreign, Library};
use plinth_terminal::Outcome;
use plinth_terminal::connect::{self, ClusterArguments, Connection};
use plinth_terminal::outputs::why_not_read;
use plinth_terminal::served;
use plinth_terminal::tls::TlsArguments;
use plinth_terminal::token::Token;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Bytes read or written per transaction.
const CHUNK_BYTES: i32 = 1_000_000;
const OPTION_TIMEOUT: u32 = 500;
const TENANT_MAP: &[u8] = b"\xff\xff/management/tenant/map/";
const TENANT_MAP_END: &[u8] = b"\xff\xff/management/tenant/map0";

type Rows = Vec<(Key, Value)>;

/// Libraries that are loaded; each is loaded once.
pub struct Libraries {
    /// Of both sides, if they are Plinth's.
    tls: TlsArguments,
    api_version: i32,
    /// Seconds after which a cluster that does not answer counts as silent.
    timeout: u64,
    loaded: Vec<(PathBuf, Library)>,
}

/// One of the two databases, as the user names it.
pub struct Given<'a> {
    pub flag: &'static str,
    pub file: &'a Path,
    /// It is opened through this library.
    pub library: Option<&'a Path>,
    /// It is shown what is in this file.
    pub token: Option<&'a Path>,
}

impl Libraries {
    pub fn new(tls: TlsArguments, api_version: i32, timeout: u64) -> Self {
        Libraries {
            tls,
            api_version,
            timeout,
            loaded: Vec::new(),
        }
    }

    /// Opens the database.
    pub async fn open(&mut self, given: &Given<'_>) -> Outcome<Side> {
        let Given {
            flag,
            file,
            library,
            token,
        } = *given;
        connect::refuse_directory(file).map_err(|line| format!("{flag}: {line}"))?;
        let text = std::fs::read_to_string(file).map_err(|error| {
            format!("{flag} {}: {}", file.display(), why_not_read(&error, flag))
        })?;
        let lines = text.lines().map(str::trim);
        let connection = lines
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
            .collect();
        let database = match library {
            None => {
                let arguments = ClusterArguments {
                    tls: self.tls.clone(),
                    ..ClusterArguments::of(file.to_owned(), self.timeout)
                };
                let mut connection = arguments.open().await?;
                if let Some(token) = token {
                    let token = Token::read(&format!("{flag}-token"), token)?;
                    connection.database = token.of(&connection.database)?;
                }
                Database::Plinth(Rc::new(connection))
            }
            Some(library) => {
                let library = self.load(flag, library)?;
                let opened = library.open(file);
                let opened = opened.map_err(|e| format!("{flag} {}: {e}", file.display()))?;
                Database::Foreign(opened)
            }
        };
        Ok(Side {
            flag: flag.to_owned(),
            connection,
            database,
            timeout_ms: self.timeout as i64 * 1000,
        })
    }

    fn load(&mut self, flag: &str, path: &Path) -> Outcome<Library> {
        if let Some((_, library)) = self.loaded.iter().find(|(loaded, _)| loaded == path) {
            return Ok(library.clone());
        }
        let library = Library::load(path, self.api_version, 1);
        let library = library.map_err(|error| {
            format!(
                "{flag}-library {}: it cannot be used: {error}",
                path.display()
            )
        })?;
        self.loaded.push((path.to_owned(), library.clone()));
        Ok(library)
    }
}

#[derive(Clone)]
enum Database {
    Plinth(Rc<Connection>),
    Foreign(Foreign),
}

/// Handle to one of the two databases; clones refer to the same one.
#[derive(Clone)]
pub struct Side {
    flag: String,
    connection: String,
    database: Database,
    /// Of all transactions.
    timeout_ms: i64,
}

impl Side {
    /// The connection string.
    pub fn connection(&self) -> &str {
        &self.connection
    }

    /// The result, or one line for its error.
    async fn told<T>(&self, result: plinth_core::Result<T>) -> Outcome<T> {
        let what = match (result, &self.database) {
            (Ok(value), _) => return Ok(value),
            (Err(Error::transaction_timed_out), Database::Plinth(connection)) => {
                let unanswered = connection.database.unanswered_commits();
                connection.explain_silence_of_writes(unanswered).await
            }
            (Err(error @ Error::permission_denied), Database::Plinth(connection)) => {
                let denial = connection.explain_denial().await;
                denial.unwrap_or_else(|| connect::explain(error))
            }
            (Err(error), _) => error.to_string(),
        };
        Err(format!("{}: {what}", self.flag))
    }

    /// Fails if the cluster does not answer, and says why it waits meanwhile.
    pub async fn check(&self, whole: &KeyRange) -> Outcome {
        let seconds = self.timeout_ms as u64 / 1000;
        let why = async {
            Some(match &self.database {
                Database::Plinth(connection) => connection.why_it_waits().await.line()?,
                Database::Foreign(_) => "the cluster does not answer".into(),
            })
        };
        let why = async { why.await.map(|line| format!("{}: {line}", self.flag)) };
        let asked = async {
            if let Database::Plinth(connection) = &self.database {
                let serves = connection.until_it_serves().await;
                serves.map_err(|line| format!("{}: {line}", self.flag))?;
            }
            self.is_empty(whole).await.map(drop)
        };
        connect::telling(asked, seconds, why).await
    }

    pub async fn is_empty(&self, piece: &KeyRange) -> Outcome<bool> {
        let (rows, _) = self.read_at_most(piece, 1).await?;
        Ok(rows.is_empty())
    }

    /// The first rows of the piece, and whether there may be more.
    pub async fn read(&self, piece: &KeyRange) -> Outcome<(Rows, bool)> {
        self.read_at_most(piece, CHUNK_BYTES).await
    }

    async fn read_at_most(&self, piece: &KeyRange, bytes: i32) -> Outcome<(Rows, bool)> {
        let timeout = self.timeout_ms;
        let read = match &self.database {
            Database::Plinth(connection) => {
                let read = connection.database.run(async |transaction| {
                    transaction.set_option(TransactionOption::Timeout(timeout))?;
                    let options = RangeOptions {
                        mode: StreamingMode::WantAll,
                        target_bytes: bytes,
                        ..RangeOptions::default()
                    };
                    let (begin, end) = piece.clone().selectors();
                    let read = transaction.get_range(begin, end, options, true).await?;
                    Ok((read.rows, read.more))
                });
                read.await
            }
            Database::Foreign(database) => {
                let read = database.run(async |transaction| {
                    transaction.set_option(OPTION_TIMEOUT, Some(timeout))?;
                    transaction.get_range(&piece.begin, &piece.end, bytes).await
                });
                read.await.map(|read| (read.rows, read.more))
            }
        };
        self.told(read).await
    }

    /// Replaces the content of the piece by `rows`.
    pub async fn replace(&self, piece: &KeyRange, rows: &Rows) -> Outcome {
        let timeout = self.timeout_ms;
        let written = match &self.database {
            Database::Plinth(connection) => {
                let written = connection.database.run(async |transaction| {
                    transaction.set_option(TransactionOption::Timeout(timeout))?;
                    transaction.clear_range(&piece.begin, &piece.end);
                    rows.iter()
                        .for_each(|(key, value)| transaction.set(key, value));
                    Ok(())
                });
                written.await
            }
            Database::Foreign(database) => {
                let written = database.run(async |transaction| {
                    transaction.set_option(OPTION_TIMEOUT, Some(timeout))?;
                    transaction.clear_range(&piece.begin, &piece.end);
                    rows.iter()
                        .for_each(|(key, value)| transaction.set(key, value));
                    Ok(())
                });
                written.await
            }
        };
        self.told(written).await
    }

    pub async fn sum(&self, piece: &KeyRange) -> Outcome<Sum> {
        let (mut sum, mut rest) = (Sum::default(), piece.clone());
        loop {
            let (rows, more) = self.read(&rest).await?;
            rows.iter().for_each(|(key, value)| sum.add(key, value));
            match rows.last() {
                Some((last, _)) if more => rest.begin = key_after(last),
                _ => return Ok(sum),
            }
        }
    }

    /// The tenants with keys in the range.
    pub async fn tenants(&self, within: &KeyRange) -> Outcome<Tenants> {
        let timeout = self.timeout_ms;
        let read = match &self.database {
            Database::Plinth(connection) => {
                let read = connection.database.run(async |transaction| {
                    transaction.set_option(TransactionOption::Timeout(timeout))?;
                    transaction.tenants().await
                });
                match read.await {
                    // Who may not know the tenants copies what its rights allow.
                    Err(Error::permission_denied) => Ok(Tenants::default()),
                    read => read,
                }
            }
            Database::Foreign(database) => {
                let read = database.run(async |transaction| {
                    transaction.set_option(OPTION_TIMEOUT, Some(timeout))?;
                    foreign_tenants(transaction).await
                });
                read.await
            }
        };
        Ok(self.told(read).await?.within(within))
    }

    /// What keeps the tenants out of this database, whose range `replaced` is to be that of theirs. Makes those that
    /// are missing, unless it only `looks`.
    pub async fn carry_tenants(
        &self,
        tenants: &Tenants,
        replaced: &KeyRange,
        looks: bool,
    ) -> Outcome<Option<InTheWay>> {
        let timeout = self.timeout_ms;
        let Database::Plinth(connection) = &self.database else {
            let there = self.tenants(&KeyRange::new("", "\u{7f}")).await?;
            return match there.named == tenants.named {
                true => Ok(None),
                false => Err(format!(
                    "{}: the tenants of the source are not there, and a library cannot make them with their numbers; \
                     nothing is changed: open the target without --to-library, or copy the keys behind \
                     those of the tenants, with --begin",
                    self.flag
                )),
            };
        };
        let carried = connection.database.run(async |transaction| {
            transaction.set_option(TransactionOption::Timeout(timeout))?;
            let found = match transaction.carry_tenants(tenants, Some(replaced)).await {
                // Who may not know the tenants writes what its rights allow.
                Err(Error::permission_denied) if tenants.named.is_empty() => None,
                found => found?,
            };
            if looks {
                transaction.reset();
            }
            Ok(found)
        });
        self.told(carried.await).await
    }

    /// Fails if somebody serves keys of the range to clients of his own.
    pub async fn refuse_served(&self, range: &KeyRange) -> Outcome {
        let Database::Plinth(connection) = &self.database else {
            return Ok(());
        };
        let all = self.told(served::all(&connection.database).await).await?;
        match all.iter().find(|served| served.range.intersects(range)) {
            None => Ok(()),
            Some(served) => Err(format!(
                "{}: nothing is changed: {}",
                self.flag,
                served.line()
            )),
        }
    }

    /// What is in the range and cannot be used as it is: lines for the user.
    pub async fn unusable(&self, range: &KeyRange) -> Vec<String> {
        match &self.database {
            Database::Plinth(connection) => {
                served::unusable(&connection.database, range.clone()).await
            }
            Database::Foreign(_) => Vec::new(),
        }
    }

    pub async fn split_points(&self, piece: &KeyRange, bytes: i64) -> Outcome<Vec<Key>> {
        let split = match &self.database {
            Database::Plinth(connection) => {
                let transaction = connection.database.create_transaction();
                let (begin, end) = (piece.begin.clone(), piece.end.clone());
                transaction.get_range_split_points(begin, end, bytes).await
            }
            Database::Foreign(database) => {
                let split = database.run(async |transaction| {
                    transaction
                        .get_range_split_points(&piece.begin, &piece.end, bytes)
                        .await
                });
                split.await
            }
        };
        self.told(split).await
    }
}

/// The tenants, by the special keys that tell of them.
async fn foreign_tenants(
    transaction: &plinth_foreign::Transaction,
) -> plinth_core::Result<Tenants> {
    let (mut begin, mut tenants) = (TENANT_MAP.to_vec(), Tenants::default());
    loop {
        let read = transaction.get_range(&begin, TENANT_MAP_END, CHUNK_BYTES);
        let read = match read.await {
            Ok(read) => read,
            // A cluster without tenants, of a release that knows none.
            Err(Error::special_keys_no_module_found) => return Ok(tenants),
            Err(error) => return Err(error),
        };
        for (key, value) in &read.rows {
            let described: serde_json::Value =
                serde_json::from_slice(value).map_err(|_| Error::internal_error)?;
            let id = described["id"].as_i64().ok_or(Error::internal_error)?;
            tenants.named.insert(key.slice(TENANT_MAP.len()..), id);
            tenants.last = tenants.last.max(id);
        }
        match read.rows.last() {
            Some((last, _)) if read.more => begin = key_after(last).to_vec(),
            _ => return Ok(tenants),
        }
    }
}
