//! Executes statements. Outside of a transaction, each statement is a transaction of its own, retried until it
//! succeeds. Between `begin` and `commit`, statements share one transaction, and its errors are shown to the user.

use super::help;
use super::known::Looker;
use super::options::{Chosen, Set};
use super::statement::{Statement, StatusKind};
use crate::registered::registered;
use crate::{keys, status};
use plinth_client::{Database, RangeOptions, Transaction, TransactionOption};
use plinth_control::management;
use plinth_coordination::election;
use plinth_core::key::{SYSTEM_BEGIN, prefix_end, printable};
use plinth_core::{DatabaseConfig, Error, Key, KeyRange, Result, Uid, Value};
use plinth_protocol::control::CreateDatabase;
use plinth_runtime::real::interrupted;
use plinth_runtime::{Duration, Either};
use plinth_server::{NotCreated, create_database_as};
use plinth_terminal::connect::{Connection, explain};
use plinth_terminal::shell::answer::Answer;
use plinth_terminal::{Outcome, interrupts};

/// Limit of the check whether the database is locked. If it takes longer, the cluster counts as silent.
const LOCK_LOOK: Duration = Duration::from_secs(1);
/// A statement that takes longer may wait for a lock.
const LOCK_LOOK_INTERVAL: Duration = Duration::from_millis(300);
/// A controller that is there is found in less.
const LEADER_LIMIT: Duration = Duration::from_secs(1);
/// Number of reads for the new value after a watch has fired.
const CHANGE_LOOKS: u32 = 50;
/// Pause between two of these reads.
const CHANGE_LOOK_INTERVAL: Duration = Duration::from_millis(20);

pub struct Session {
    pub(super) connection: Connection,
    pub(super) transaction: Option<Transaction>,
    /// Writes of the open transaction: the first statement, and the number of further ones.
    written: Option<(String, u64)>,
    /// The tenant in use.
    pub(super) tenant: Option<Database>,
    /// Options set in every transaction.
    pub(super) options: Vec<Chosen>,
    writes_allowed: bool,
    /// Commits without an answer before the statement that runs.
    unanswered: usize,
    pub(super) looker: Looker,
}

impl Session {
    pub fn new(connection: Connection) -> Self {
        Session {
            connection,
            transaction: None,
            written: None,
            tenant: None,
            options: Vec::new(),
            writes_allowed: true,
            unanswered: 0,
            looker: Looker::new(),
        }
    }

    /// The database, or the tenant in use.
    fn database(&self) -> Database {
        self.tenant
            .as_ref()
            .unwrap_or(&self.connection.database)
            .clone()
    }

    /// Sets the options that are on.
    fn prepared<'a>(&self, transaction: &'a Transaction) -> Result<&'a Transaction> {
        for (_, option) in &self.options {
            option.to(transaction)?;
        }
        Ok(transaction)
    }

    /// True if transactions pass the lock of a database.
    pub fn passes_the_lock(&self) -> bool {
        let mut options = self.options.iter();
        options.any(|(_, option)| *option == Set::Option(TransactionOption::LockAware))
    }

    pub fn is_open(&self) -> bool {
        self.transaction.is_some()
    }

    /// Final outcome of the session. Uncommitted writes are lost, which is an error.
    pub fn end(&mut self, outcome: Outcome) -> Outcome {
        let Some((first, more)) = self.written.take() else {
            return outcome;
        };
        let more = match more {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let lost = format!("the transaction was not committed: `{first}'{more} came to nothing");
        Err(match outcome {
            Ok(()) => format!("{lost}; end it with `commit'"),
            Err(line) if line.is_empty() => lost, // it was printed
            Err(line) => format!("{line}; {lost}"),
        })
    }

    fn note_write(&mut self, name: &str, key: &Key) {
        match &mut self.written {
            Some((_, more)) => *more += 1,
            None => self.written = Some((format!("{name} {}", printable(key)), 0)),
        }
    }

    pub async fn execute(&mut self, statement: Statement) -> Outcome<Answer> {
        self.unanswered = self.unanswered();
        match statement {
            Statement::Get(key) => self.get(key).await,
            Statement::GetRange(begin, end, limit, keys_only) => {
                self.get_range(begin, end, limit, keys_only).await
            }
            Statement::Set(key, value) => self.write("set", &key, |t| t.set(&key, &value)).await,
            Statement::Clear(key) => self.write("clear", &key, |t| t.clear(&key)).await,
            Statement::ClearRange(begin, end) => {
                let clear = |t: &Transaction| t.clear_range(&begin, &end);
                self.write("clearrange", &begin, clear).await
            }
            Statement::GetVersion => self.get_version().await,
            Statement::Watch(key) => self.watch(key).await,
            Statement::Begin => self.begin(),
            Statement::Commit => self.commit().await,
            Statement::Rollback => {
                self.transaction.take().ok_or_else(no_transaction)?;
                self.written = None;
                Ok(Answer::Text("Transaction rolled back".into()))
            }
            Statement::Reset => {
                self.transaction
                    .as_ref()
                    .ok_or_else(no_transaction)?
                    .reset();
                self.written = None;
                Ok(Answer::Text("Transaction reset".into()))
            }
            Statement::WriteMode(on) => {
                self.writes_allowed = on;
                Ok(Answer::Nothing)
            }
            Statement::Option(change) => self.option(change),
            Statement::Tenant(statement) => self.tenant(statement).await,
            Statement::Coordinators => Ok(self.coordinators()),
            Statement::ConsistencyCheck => self.check_consistency().await,
            Statement::GetLocation(key) => self.get_location(key).await,
            Statement::Wait { connected } => self.wait(connected).await,
            Statement::Sleep(duration) => {
                plinth_runtime::sleep(duration).await;
                Ok(Answer::Nothing)
            }
            Statement::Status(StatusKind::Minimal) => self.status_minimal().await,
            Statement::Status(kind) => {
                let json = kind == StatusKind::Json;
                let document = match json {
                    true => status::fetch_or_known(&self.connection).await,
                    false => status::fetch(&self.connection).await?,
                };
                let path = self.connection.path.display().to_string();
                let summary =
                    (!json).then(|| status::summary(&document, &path).trim_end().to_string());
                Ok(Answer::Status { document, summary })
            }
            Statement::ConfigureNew(config, force) => self.configure_new(config, force).await,
            Statement::Manage(management) => self.manage(management).await,
            Statement::Kill(kill) => kill.execute(&self.connection).await,
            Statement::Help(of) => help::help(of.as_deref()).map(Answer::Page),
            Statement::Exit => Ok(Answer::Nothing),
        }
    }

    fn unanswered(&self) -> usize {
        let tenant = self.tenant.iter().map(Database::unanswered_commits);
        self.connection.database.unanswered_commits() + tenant.sum::<usize>()
    }

    /// One line for a statement that has run into the time-out.
    pub(super) async fn explain_silence(&self) -> String {
        let unanswered = self.unanswered().saturating_sub(self.unanswered);
        let silence = self.connection.explain_silence_of_writes(unanswered);
        silence.await
    }

    /// One line for an error of the database. After a time-out it names the processes that were asked.
    pub(super) async fn fail<T>(&self, error: Error) -> Outcome<T> {
        if matches!(error, Error::transaction_timed_out | Error::database_locked) {
            let asked = management::locked_with(&self.connection.database);
            let locked = plinth_runtime::timeout(LOCK_LOOK, asked).await;
            if let Some(Ok(Some(id))) = locked {
                return Err(locked_with(id));
            }
        }
        if error == Error::transaction_timed_out {
            return Err(self.explain_silence().await);
        }
        if error == Error::permission_denied
            && let Some(line) = self.connection.explain_denial().await
        {
            return Err(line);
        }
        Err(explain(error))
    }

    /// The result, or one line for its error.
    pub(super) async fn told<T>(&self, result: Result<T>) -> Outcome<T> {
        match result {
            Ok(value) => Ok(value),
            Err(error) => self.fail(error).await,
        }
    }

    /// Reads in the open transaction, or else in one of its own.
    async fn read<T>(&self, read: impl AsyncFn(&Transaction) -> Result<T>) -> Outcome<T> {
        let read = match &self.transaction {
            Some(open) => self.within(read(open)).await,
            None => {
                let database = self.database();
                database.run(async |t| read(self.prepared(&t)?).await).await
            }
        };
        self.told(read).await
    }

    /// Runs a statement of the open transaction within the time-out.
    async fn within<T>(&self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let done = plinth_runtime::timeout(self.connection.timeout, work).await;
        done.unwrap_or(Err(Error::transaction_timed_out))
    }

    async fn get(&self, key: Key) -> Outcome<Answer> {
        let value = self.read(async |t| t.get(&key, false).await).await?;
        Ok(Answer::Value(key, value))
    }

    async fn get_range(
        &self,
        begin: Key,
        end: Option<Key>,
        limit: i32,
        keys_only: bool,
    ) -> Outcome<Answer> {
        let end = end.unwrap_or_else(|| match prefix_end(&begin) {
            Some(end) if !begin.is_empty() => end,
            _ => Key::from_static(SYSTEM_BEGIN),
        });
        if begin > end {
            return self.fail(Error::inverted_range).await;
        }
        let range = KeyRange::new(begin, end);
        let options = RangeOptions::limit(limit.saturating_add(1)); // whether there are more
        let read = self.read(async |t| t.get_rows(range.clone(), options, false).await);
        Ok(Answer::Rows(read.await?, limit, keys_only))
    }

    async fn write(
        &mut self,
        name: &str,
        key: &Key,
        write: impl Fn(&Transaction),
    ) -> Outcome<Answer> {
        if !self.writes_allowed {
            return Err("writing is off; `writemode on' allows it".into());
        }
        if let Some(open) = &self.transaction {
            // An invalid write is reported by the next read, so request a read version, which costs little.
            write(open);
            let asked = self.within(open.get_read_version()).await;
            self.note_write(name, key);
            self.told(asked).await?;
            return Ok(Answer::Nothing);
        }
        let transaction = self.database().create_transaction();
        loop {
            self.prepared(&transaction).map_err(explain)?;
            write(&transaction);
            match transaction.commit().await {
                Ok(()) => return Ok(Answer::Committed(committed_version(&transaction))),
                Err(error) => self.told(transaction.on_error(error).await).await?,
            }
        }
    }

    async fn get_version(&self) -> Outcome<Answer> {
        let read = self.read(async |t| t.get_read_version().await);
        Ok(Answer::Version(read.await?))
    }

    fn begin(&mut self) -> Outcome<Answer> {
        if self.is_open() {
            return Err("a transaction is open already; `commit' or `rollback' ends it".into());
        }
        let transaction = self.database().create_transaction();
        self.prepared(&transaction).map_err(explain)?;
        // The user may pause between statements, so the time-out applies to each statement.
        let without = transaction.set_option(TransactionOption::Timeout(0));
        without.map_err(explain)?;
        self.transaction = Some(transaction);
        Ok(Answer::Text("Transaction started".into()))
    }

    /// Commits the open transaction. It is over even if the commit fails, because its reads are stale.
    async fn commit(&mut self) -> Outcome<Answer> {
        let transaction = self.transaction.take().ok_or_else(no_transaction)?;
        self.written = None;
        let committed = self.within(transaction.commit()).await;
        self.told(committed).await?;
        Ok(Answer::Committed(committed_version(&transaction)))
    }

    async fn watch(&self, key: Key) -> Outcome<Answer> {
        if self.is_open() {
            return Err(
                "a watch starts with the commit of its transaction; watch outside of one".into(),
            );
        }
        // The time-out applies to setting the watch; the watch itself has no limit.
        let database = self.database();
        let set = async {
            let set = database.run(async |t| {
                let before = self.prepared(&t)?.get(&key, false).await?;
                Ok((before, t.watch(&key)))
            });
            self.told(set.await).await
        };
        let set = unless_locked(&self.connection, self.passes_the_lock(), set);
        let (before, change) = self.connection.telling(set).await?;
        match plinth_runtime::race(change, interrupted()).await {
            Either::Left(Ok(())) => self.changed(key, before).await,
            Either::Left(Err(error)) => self.fail(error).await,
            Either::Right(_) => {
                interrupts::note();
                Err("interrupted; the value has not changed".into())
            }
        }
    }

    /// Reads the new value. A storage server may notice a change shortly before a new read version covers it.
    async fn changed(&self, key: Key, before: Option<Value>) -> Outcome<Answer> {
        for _ in 0..CHANGE_LOOKS {
            let database = self.database();
            let read = database.run(async |t| self.prepared(&t)?.get(&key, false).await);
            let value = self.told(read.await).await?;
            if value != before {
                return Ok(Answer::Changed(key, value));
            }
            plinth_runtime::sleep(CHANGE_LOOK_INTERVAL).await;
        }
        Ok(Answer::Text(format!(
            "changed, and changed back: `{}'",
            printable(&key)
        )))
    }

    async fn configure_new(&self, config: DatabaseConfig, force: bool) -> Outcome<Answer> {
        let Connection {
            transport,
            coordinators,
            timeout,
            ..
        } = &self.connection;
        let request = CreateDatabase { config, force };
        let creating = create_database_as(transport, coordinators, request);
        match plinth_runtime::timeout(*timeout, creating).await {
            Some(Ok(())) => {
                let keys = keys::close_new(&self.connection).await?;
                let workers = registered(&self.connection, &[]).await?.workers;
                let fewer = management::fewer_logs(&config, &workers);
                let single = management::single_of_several(&config, &workers);
                let still = management::stands_still_without_one(&config, &workers);
                let lines = [keys, fewer, single, still].into_iter().flatten();
                let lines: String = lines.map(|line| format!("; {line}")).collect();
                Ok(Answer::Text(format!("Database created{lines}")))
            }
            Some(Err(NotCreated::Exists)) => {
                Err("the cluster has a database already; it is left as it is".into())
            }
            Some(Err(NotCreated::Because(line))) => {
                Err(format!("cannot create the database: {line}"))
            }
            None => {
                let leader = election::current_leader(transport, coordinators);
                let leader = plinth_runtime::timeout(LEADER_LIMIT, leader).await;
                let then = match leader.flatten() {
                    Some(_) => {
                        "it is created as soon as that is there, unless another `configure new' asks for less"
                    }
                    None => "nothing is created: say it again when its servers run",
                };
                let why = self.connection.explain_silence().await;
                Err(format!("{why}; {then}"))
            }
        }
    }
}

/// What a statement gives, unless the database is locked and it does not pass the lock: then it would wait until
/// somebody opens it.
pub async fn unless_locked<T>(
    connection: &Connection,
    passes: bool,
    statement: impl Future<Output = Outcome<T>>,
) -> Outcome<T> {
    let locked = async {
        if passes {
            std::future::pending::<()>().await;
        }
        loop {
            plinth_runtime::sleep(LOCK_LOOK_INTERVAL).await;
            if let Ok(Some(id)) = management::locked_with(&connection.database).await {
                return id;
            }
        }
    };
    match plinth_runtime::race(statement, locked).await {
        Either::Left(answer) => answer,
        Either::Right(id) => Err(locked_with(id)),
    }
}

fn locked_with(id: Uid) -> String {
    format!(
        "the database is locked; `unlock {id}' unlocks it, `option on lock_aware' passes the lock"
    )
}

fn no_transaction() -> String {
    "no transaction is open; `begin' starts one".into()
}

fn committed_version(transaction: &Transaction) -> Option<i64> {
    Some(transaction.get_committed_version()).filter(|version| *version >= 0)
}
