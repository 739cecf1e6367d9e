//! How client commands find their cluster, and the error they give if it does not answer.

use crate::numbers::seconds_within;
use crate::tls::TlsArguments;
use crate::wording::pasted;
use crate::{Outcome, commands, denial, interrupts, status, trace_file};
use plinth_client::{Database, DatabaseOption};
use plinth_coordination::cluster_file::{self, ClusterFile, ClusterFileError};
use plinth_coordination::{Coordinators, Family, Look, election, look_at, together};
use plinth_core::Error;
use plinth_identity::Identity;
use plinth_protocol::control::{GetWorkers, RegisterWorker};
use plinth_protocol::coordination::Candidate;
use plinth_protocol::status::GetStatus;
use plinth_rpc::{Credentials, Request, Transport};
use plinth_runtime::{Boxed, Duration, Either, race, sleep};
use std::convert::Infallible;
use std::path::{Path, PathBuf};

/// Whoever waits for so long is told why.
const PATIENCE: Duration = Duration::from_secs(1);
/// Limit of the wait for a controller's status.
const STATUS_LIMIT: Duration = Duration::from_secs(2);
/// Servers have read a key file that has changed within this time.
const KEY_IS_READ: Duration = Duration::from_secs(3);
/// Behind the line of a write whose outcome is not known.
const READ_BACK: &str = "; it may be done, or not: read it back";
/// What one lacks who may not change the cluster.
const NEEDS_OPERATOR: &str = "that needs an operator's key beside the cluster file, or an operator's certificate: see \
     docs/security.md";
/// Pause before the next request, if a controller has ended before it answered.
pub const ASK_AGAIN: Duration = Duration::from_millis(50);

#[derive(clap::Args, Clone, Debug)]
pub struct ClusterArguments {
    /// Cluster file; without it $PLINTH_CLUSTER_FILE, else ./plinth.cluster, else /etc/plinth/plinth.cluster
    #[arg(short = 'C', long, value_name = "FILE")]
    pub cluster_file: Option<PathBuf>,
    /// Seconds to wait for the cluster before giving up
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = seconds_within(1..=86_400))]
    pub timeout: u64,
    #[command(flatten)]
    pub tls: TlsArguments,
}

/// The cluster file of a tool that was given this one with -C.
pub async fn find(given: Option<&Path>) -> PathBuf {
    cluster_file::find(given, variable().as_deref()).await
}

/// The cluster file of a server that was given this one with -C.
pub fn find_for_server(given: Option<&Path>) -> PathBuf {
    cluster_file::of_server(given, variable().as_deref())
}

fn variable() -> Option<String> {
    std::env::var(cluster_file::ENVIRONMENT_VARIABLE).ok()
}

/// Refuses the cluster file of a server, which was given this one with -C, if it is not there or is a directory.
/// Whoever loads it says what else is wrong with it.
pub fn check_for_server(path: &Path, given: Option<&Path>) -> Outcome {
    refuse_directory(path)?;
    match path.try_exists() {
        Ok(false) => Err(missing_of_server(path, given)),
        _ => Ok(()),
    }
}

fn missing_of_server(path: &Path, given: Option<&Path>) -> String {
    let shown = path.display();
    if given.is_some() {
        return format!("cluster file {shown}: there is none; name another with -C");
    }
    if variable().is_some_and(|named| path == Path::new(&named)) {
        let name = cluster_file::ENVIRONMENT_VARIABLE;
        return format!(
            "cluster file {shown}: there is none, and ${name} names it; name another with -C"
        );
    }
    let of_machine = Path::new(cluster_file::SYSTEM_WIDE_PATH);
    let of_machine = match of_machine.exists() {
        true => format!(
            "; a server takes {} only if it is named",
            of_machine.display()
        ),
        false => String::new(),
    };
    format!("cluster file {shown}: there is none in this directory; name one with -C{of_machine}")
}

/// The error of a tool whose cluster file is not there.
fn none_at(path: &Path, is_chosen: bool) -> String {
    let of_variable = variable().filter(|named| is_chosen && path == Path::new(named));
    let (by, one) = match of_variable {
        Some(_) => (
            format!(", and ${} names it", cluster_file::ENVIRONMENT_VARIABLE),
            "another",
        ),
        None => (String::new(), "one"),
    };
    format!(
        "cluster file {}: there is none{by}; name {one} with -C, or start a cluster with `plinth dev --data-dir DIR'",
        path.display()
    )
}

/// Refuses a cluster file, beside which something is missing, if it is no cluster file itself. `is_chosen` if nobody
/// named it with -C.
pub async fn check_cluster_file(path: &Path, is_chosen: bool) -> Outcome {
    if !plinth_runtime::disk::exists(path).await.unwrap_or(true) {
        return Err(none_at(path, is_chosen));
    }
    refuse_directory(path)?;
    let file = ClusterFile::load_with_keys(path).await;
    file.map(drop).map_err(|error| error.to_string())
}

/// A directory is given where somebody means the cluster file in it.
pub fn refuse_directory(path: &Path) -> Outcome {
    if !path.is_dir() {
        return Ok(());
    }
    let inner = path.join(cluster_file::DEFAULT_NAME);
    let remedy = match inner.exists() {
        true => format!("its cluster file is {}", pasted(&inner)),
        false => format!(
            "there is no {} in it; name one with -C",
            cluster_file::DEFAULT_NAME
        ),
    };
    Err(format!(
        "cluster file {}: it is a directory; {remedy}",
        path.display()
    ))
}

/// The error of a command that was started with a cluster file, with a remedy if that file cannot be read. What is
/// wrong in a file has its own.
pub fn with_remedy(error: ClusterFileError) -> String {
    let is_unread =
        [Error::no_cluster_file_found, Error::file_not_readable].contains(&error.code());
    let line = error.0;
    match line.starts_with("cluster file") && is_unread {
        true => format!("{line}; name it with -C"),
        false => line,
    }
}

/// The text of an error of the database, with a hint where one helps.
pub fn explain(error: Error) -> String {
    let hint = match error {
        Error::permission_denied => return denial::denied(),
        Error::not_committed => "; another transaction wrote what this one read: begin anew",
        Error::transaction_too_old => "; a transaction may take five seconds: begin anew",
        Error::commit_unknown_result => READ_BACK,
        Error::transaction_timed_out => "; a change may be done, or not: read it back",
        Error::inverted_range => "; exchange begin and end",
        Error::database_locked => {
            "; `plinth status' shows the lock's ID, and `unlock ID' in plinth cli takes it away"
        }
        Error::key_outside_legal_range => "; keys from \\xff on belong to the system",
        _ => "",
    };
    format!("{error}{hint}")
}

/// The line of an error with the hint of [`explain`], for lines that were made where nobody knows of hints. All lines
/// that end a command come through here.
pub fn with_hint(line: String) -> String {
    let hinted = [
        Error::permission_denied,
        Error::commit_unknown_result,
        Error::transaction_timed_out,
        Error::database_locked,
    ];
    let found = hinted.map(|error| (error.to_string(), explain(error)));
    let mut found = found.into_iter();
    match found.find_map(|(bare, whole)| Some(line.strip_suffix(&bare)?.to_owned() + &whole)) {
        Some(line) => line,
        None => line,
    }
}

/// Does `work`, which may take so many seconds, and says `why` it waits when it has waited for a while, if that is
/// known.
pub async fn telling<T>(
    work: impl Future<Output = T>,
    seconds: u64,
    why: impl Future<Output = Option<String>>,
) -> T {
    let told = async {
        sleep(PATIENCE).await;
        if !commands::is_for_programs()
            && let Some(line) = why.await
        {
            crate::say!("plinth: waiting for up to {seconds} s: {line}");
        }
        std::future::pending::<Infallible>().await
    };
    let _waits = interrupts::Waits::new();
    match race(work, told).await {
        Either::Left(done) => done,
        Either::Right(never) => match never {},
    }
}

/// Why clients wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wait {
    /// The whole line.
    For(String),
    /// The database is locked: the whole line.
    Locked(String),
    /// The phase of a recovery.
    Recovers(String),
    /// What each coordinator does. Nobody tells more.
    Silent(String),
    /// The same, of a cluster that says that it serves.
    Nothing(String),
}

impl Wait {
    /// What a person is told who waits; `None` if the cluster says that it serves.
    pub fn line(&self) -> Option<String> {
        Some(match self {
            Wait::For(line) | Wait::Locked(line) => line.clone(),
            Wait::Recovers(phase) => {
                format!("the database is not available: its recovery is at {phase}")
            }
            Wait::Silent(tried) => {
                format!("the cluster does not answer; coordinators tried: {tried}")
            }
            Wait::Nothing(_) => return None,
        })
    }
}

/// The cluster of a command.
#[derive(Clone)]
pub struct Connection {
    pub path: PathBuf,
    /// Content of the cluster file when it was read.
    file: ClusterFile,
    pub coordinators: Coordinators,
    pub credentials: Credentials,
    pub transport: Transport,
    pub database: Database,
    pub timeout: Duration,
}

impl ClusterArguments {
    /// Of a file that was not named with -C. Its certificates are those of the variables.
    pub fn of(cluster_file: PathBuf, timeout: u64) -> ClusterArguments {
        ClusterArguments {
            cluster_file: Some(cluster_file),
            timeout,
            tls: TlsArguments::default(),
        }
    }

    /// Reads the cluster file, and the keys beside it. Does not check that the cluster answers.
    pub fn open(&self) -> Boxed<'_, Outcome<Connection>> {
        Box::pin(async move {
            self.open_as(|file| file.credentials(Identity::Operator))
                .await
        })
    }

    /// The same, to show the cluster what `credentials` says.
    pub fn open_as<'a>(
        &'a self,
        credentials: impl Fn(&ClusterFile) -> Credentials + 'a,
    ) -> Boxed<'a, Outcome<Connection>> {
        Box::pin(async move {
            let path = find(self.cluster_file.as_deref()).await;
            // One that cannot be read says so when it is loaded.
            if !plinth_runtime::disk::exists(&path).await.unwrap_or(true) {
                return Err(none_at(&path, self.cluster_file.is_none()));
            }
            refuse_directory(&path)?;
            let file = Family::Store
                .load(&path, self.tls.settings())
                .await
                .map_err(|error| error.to_string())?;
            self.tls.tell_if_unused(file.is_tls, path.display());
            trace_file::tell_of_stale_cluster_file();
            let coordinators = Coordinators::from(file.clone());
            let (kept, at, written) = (coordinators.clone(), path.clone(), file.clone());
            let keeping = async move { kept.keep_file(&at, written).await };
            plinth_runtime::spawn("cluster file", keeping).detach();
            let credentials = credentials(&file);
            let timeout = Duration::from_secs(self.timeout);
            Ok(Connection::over(path, coordinators, credentials, timeout))
        })
    }

    /// Opens the cluster and waits until it serves.
    pub fn connect(&self) -> Boxed<'_, Outcome<Connection>> {
        Box::pin(async move {
            let connection = self.open().await?;
            connection.wait_until_it_serves().await?;
            Ok(connection)
        })
    }
}

impl Connection {
    /// To the cluster of a file that was loaded from `path`.
    pub fn over(
        path: PathBuf,
        coordinators: impl Into<Coordinators>,
        credentials: Credentials,
        timeout: Duration,
    ) -> Connection {
        let coordinators = coordinators.into();
        let transport = Transport::client_with(credentials.clone());
        let database = plinth_client::connect_over(transport.clone(), coordinators.clone());
        Connection {
            path,
            file: coordinators.file(),
            coordinators,
            credentials,
            transport,
            database,
            timeout,
        }
    }

    /// Sets the time-out of all transactions from now on.
    pub fn limit_transactions(&self) {
        self.limit(&self.database);
    }

    /// Sets the time-out of all transactions of another database of the cluster.
    pub fn limit(&self, database: &Database) {
        let ms = self.timeout.as_millis() as i64;
        database
            .set_option(DatabaseOption::TransactionTimeout(ms))
            .expect("a day in milliseconds is a valid time-out");
    }

    /// Does `work`, and says why it waits when it has waited for a while.
    pub async fn telling<T>(&self, work: impl Future<Output = T>) -> T {
        self.telling_of(false, work).await
    }

    /// The same of work that may pass the lock of a database.
    pub async fn telling_of<T>(&self, passes_the_lock: bool, work: impl Future<Output = T>) -> T {
        let why = async {
            match self.why_it_waits().await {
                Wait::Locked(_) if passes_the_lock => None,
                wait => wait.line(),
            }
        };
        telling(work, self.timeout.as_secs(), why).await
    }

    pub fn wait_until_it_serves(&self) -> Boxed<'_, Outcome> {
        Box::pin(self.telling(self.until_it_serves()))
    }

    /// The same, without a word.
    pub fn until_it_serves(&self) -> Boxed<'_, Outcome> {
        Box::pin(async move {
            let transaction = self.database.create_transaction();
            let answered = async {
                loop {
                    match transaction.get_read_version().await {
                        Ok(_) => return plinth_core::Result::Ok(()),
                        // Somebody has to open it: to wait would be in vain.
                        Err(error @ Error::database_locked) => return Err(error),
                        Err(error) => transaction.on_error(error).await?,
                    }
                }
            };
            match plinth_runtime::timeout(self.timeout, answered).await {
                Some(Ok(())) => {
                    self.update_cluster_file().await;
                    Ok(())
                }
                Some(Err(error @ Error::permission_denied)) => {
                    let line = self.explain_denial().await;
                    Err(line.unwrap_or(format!(
                        "the cluster of {} refuses: {}",
                        self.path.display(),
                        explain(error)
                    )))
                }
                Some(Err(error @ Error::database_locked)) => {
                    let document = self.status().await.unwrap_or_default();
                    let line = self.what_it_waits_for(&document);
                    Err(line.unwrap_or_else(|| error.to_string()))
                }
                Some(Err(error)) => Err(format!(
                    "the cluster of {} refuses: {error}",
                    self.path.display()
                )),
                None => Err(self.explain_silence().await),
            }
        })
    }

    /// The controller; an error if there is none within the time-out.
    pub fn controller(&self) -> Boxed<'_, Outcome<Candidate>> {
        Box::pin(async move {
            let begun = plinth_runtime::now();
            let found = async {
                loop {
                    if let Some(leader) =
                        election::current_leader(&self.transport, &self.coordinators).await
                    {
                        return Ok(leader);
                    }
                    // To wait would be in vain, but for a key that servers may be about to read.
                    let is_old = begun.elapsed() >= KEY_IS_READ;
                    let refuses = |look: &Look| match look {
                        Look::NeedsKey => true,
                        Look::Ungreeted(_) => is_old,
                        _ => false,
                    };
                    if self.is_denied()
                        && let Some(line) = self.refusal_of(refuses).await
                    {
                        return Err(line);
                    }
                    plinth_runtime::sleep(Duration::from_millis(50)).await;
                }
            };
            match plinth_runtime::timeout(self.timeout, found).await {
                Some(Ok(leader)) => {
                    self.update_cluster_file().await;
                    Ok(leader)
                }
                Some(Err(line)) => Err(line),
                None => Err(self.explain_silence().await),
            }
        })
    }

    /// Most coordinators refuse this process.
    fn is_denied(&self) -> bool {
        let file = self.coordinators.file();
        let denied = file.coordinators.iter();
        let denied = denied.filter(|place| self.transport.is_denied(place));
        denied.count() >= file.majority()
    }

    /// Asks the controller, or its successor if it ends before it answers. `what` completes the line "the controller
    /// does not …".
    pub async fn ask_controller<R: Request + Clone>(
        &self,
        request: R,
        what: &str,
    ) -> Outcome<R::Reply> {
        let asked_until = plinth_runtime::now() + self.timeout;
        loop {
            let leader = self.controller().await?;
            let endpoint = leader.controller.endpoint::<R>();
            let call = self.transport.call(&endpoint, request.clone());
            match plinth_runtime::timeout(self.timeout, call).await {
                Some(Ok(reply)) => return Ok(reply),
                Some(Err(Error::permission_denied)) => {
                    return Err(self.explain_refusal(&leader, what).await);
                }
                Some(Err(_)) if plinth_runtime::now() >= asked_until => {
                    return Err(self.explain_silence().await);
                }
                Some(Err(_)) => plinth_runtime::sleep(ASK_AGAIN).await,
                None => return Err(self.explain_silence().await),
            }
        }
    }

    /// One line for the error if the controller refuses this process. `what` completes the line "the controller does
    /// not …".
    pub async fn explain_refusal(&self, leader: &Candidate, what: &str) -> String {
        self.explain_denial().await.unwrap_or_else(|| {
            format!(
                "the controller at {} does not {what}: {}; {NEEDS_OPERATOR}",
                leader.controller.address,
                Error::permission_denied
            )
        })
    }

    /// The processes of the cluster.
    pub fn workers(&self) -> Boxed<'_, Outcome<Vec<RegisterWorker>>> {
        Box::pin(async move {
            let listed = self.ask_controller(GetWorkers {}, "tell its processes, which this needs");
            Ok(listed.await?.workers)
        })
    }

    /// Writes moved coordinators to the cluster file before the command ends: the former coordinators may be gone
    /// before the next command could ask them.
    pub fn update_cluster_file(&self) -> Boxed<'_, ()> {
        Box::pin(async move {
            let (coordinators, before) = (&self.coordinators, self.file.clone());
            coordinators.write_file(&self.path, before).await;
        })
    }

    /// One line for the error: why the cluster does not serve, or the coordinators that were tried, and the result of
    /// each.
    pub fn explain_silence(&self) -> Boxed<'_, String> {
        Box::pin(async move {
            let (path, seconds) = (self.path.display(), self.timeout.as_secs());
            match self.why_it_waits().await {
                Wait::For(line) | Wait::Locked(line) => line,
                Wait::Recovers(phase) => format!(
                    "the cluster of {path} does not serve within {seconds} s: its recovery is at {phase}"
                ),
                Wait::Silent(tried) | Wait::Nothing(tried) => format!(
                    "the cluster of {path} does not serve within {seconds} s; coordinators tried: {tried}; check that \
                     its servers run and that the file is theirs"
                ),
            }
        })
    }

    /// The same of work that has sent so many commits without an answer.
    pub fn explain_silence_of_writes(&self, unanswered: usize) -> Boxed<'_, String> {
        let hint = match unanswered {
            0 => "",
            _ => READ_BACK,
        };
        Box::pin(async move { self.explain_silence().await + hint })
    }

    /// Why clients of the cluster wait at present.
    pub fn why_it_waits(&self) -> Boxed<'_, Wait> {
        Box::pin(async move {
            let file = self.coordinators.file();
            let looks = file.coordinators.iter();
            let looks = looks.map(|place| look_at(&self.transport, &file, place));
            let looks = plinth_runtime::join_all(looks).await;
            if let Some(line) = self.of_another_system(&file, &looks).await {
                return Wait::For(line);
            }
            let document = self.status().await.unwrap_or_default();
            if let Some(line) = self.what_holds_it_up(&document) {
                return Wait::For(line);
            }
            if let Some(line) = self.lock_of(&document) {
                return Wait::Locked(line);
            }
            if document["cluster"]["recovery_state"]["waits_for"].is_string() {
                return Wait::Recovers(status::recovery(&document["cluster"]));
            }
            let tried = file.coordinators.iter().zip(&looks);
            let tried = together(tried.map(|(place, look)| (place, said_by(look))));
            if !status::is_available(&document) {
                return Wait::Silent(tried);
            }
            match self.is_refused().await {
                true => {
                    let (path, why) = (self.path.display(), explain(Error::permission_denied));
                    Wait::For(format!("the cluster of {path} refuses: {why}"))
                }
                false => Wait::Nothing(tried),
            }
        })
    }

    /// Whether a key cannot be read because nobody may read it who shows what this process does.
    async fn is_refused(&self) -> bool {
        let transaction = self.database.create_transaction();
        let read = transaction.get("\0", true);
        let read = plinth_runtime::timeout(STATUS_LIMIT, read).await;
        read == Some(Err(Error::permission_denied))
    }

    /// The line about a state that somebody has to end.
    fn what_it_waits_for(&self, document: &serde_json::Value) -> Option<String> {
        let held_up = self.what_holds_it_up(document);
        held_up.or_else(|| self.lock_of(document))
    }

    fn lock_of(&self, document: &serde_json::Value) -> Option<String> {
        let id = status::lock(&document["cluster"])?;
        let (with, id) = id.map_or(("an unknown id", "ID"), |id| (id, id));
        let path = self.path.display();
        Some(format!(
            "the database of {path} is locked with {with}; `unlock {id}' in plinth cli opens it"
        ))
    }

    /// What it waits for that is no lock.
    fn what_holds_it_up(&self, document: &serde_json::Value) -> Option<String> {
        let (path, cluster) = (self.path.display(), &document["cluster"]);
        let full = status::full_disks(document);
        if !full.is_empty() {
            return Some(format!(
                "the cluster of {path} waits: the disk is full at {}; make room there, \
                 or stop that server if the others can do without it",
                full.join(", ")
            ));
        }
        let sick = status::sick_disks(document);
        if !sick.is_empty() {
            return Some(format!(
                "the cluster of {path} waits for a sick disk: {}; mend it, \
                 or stop that server if the others can do without it",
                sick.join("; ")
            ));
        }
        if let Some(why) = status::lost_database(cluster) {
            return Some(format!(
                "the cluster of {path} has lost its database: {why}"
            ));
        }
        if let Some(why) = status::unanswered(cluster) {
            return Some(format!("the cluster of {path} has no database: {why}"));
        }
        if status::is_never_created(cluster) {
            return Some(format!(
                "the cluster of {path} has no database yet; \
                 `plinth cli -C {} --exec \"configure new {} ssd\"' creates one",
                pasted(&self.path),
                status::fitting_mode(cluster)
            ));
        }
        if let Some(line) = status::unread_data(document) {
            return Some(format!("the cluster of {path} waits: {line}"));
        }
        None
    }

    /// One line for the error if coordinators refuse this process, with their reasons; `None` if none does.
    pub fn explain_denial(&self) -> Boxed<'_, Option<String>> {
        self.refusal_of(|look| matches!(look, Look::NeedsKey | Look::Ungreeted(_)))
    }

    fn refusal_of<'a>(&'a self, refuses: impl Fn(&Look) -> bool + 'a) -> Boxed<'a, Option<String>> {
        Box::pin(async move {
            let file = &self.coordinators.file();
            let looks = file
                .coordinators
                .iter()
                .map(|place| async move { (place, look_at(&self.transport, file, place).await) });
            let looks = plinth_runtime::join_all(looks).await;
            let refusing = looks.iter().filter(|(_, look)| refuses(look));
            let reasons = together(refusing.map(|(place, look)| (*place, look.to_string())));
            let path = self.path.display();
            (!reasons.is_empty()).then(|| format!("the cluster of {path} refuses: {reasons}"))
        })
    }

    /// The status document, as the controller sends it, if one does in time.
    pub async fn status(&self) -> Option<serde_json::Value> {
        let asking = async {
            let (transport, coordinators) = (&self.transport, &self.coordinators);
            let status = election::ask_controller(transport, coordinators, GetStatus {});
            serde_json::from_str(&status.await?.json).ok()
        };
        plinth_runtime::timeout(STATUS_LIMIT, asking)
            .await
            .flatten()
    }

    /// One line for the error if the coordinators answer, and keep the state of another system.
    async fn of_another_system(&self, file: &ClusterFile, looks: &[Look]) -> Option<String> {
        let answer = |look: &&Look| matches!(look, Look::Answers { .. });
        if looks.iter().filter(answer).count() < file.majority() {
            return None;
        }
        // Its own transport: only servers may look there, and who is refused once gives up elsewhere, too.
        let transport = Transport::client_with(file.credentials(Identity::Server));
        let found = Family::Store.other_behind(&transport, file).await?;
        Some(format!(
            "cluster file {}: {}",
            self.path.display(),
            Family::Store.not_own(found)
        ))
    }
}

fn said_by(look: &Look) -> String {
    match look {
        Look::Answers { has_leader: false } => "answers; no controller is elected".into(),
        look => look.to_string(),
    }
}

/// Runs the client side of a command on this thread.
pub fn block_on<T>(future: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    plinth_runtime::real::block_on(future)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_gets_its_hint_wherever_its_line_was_made_and_only_once() {
        let denied = Error::permission_denied;
        let timed_out = Error::transaction_timed_out;
        for error in [
            denied,
            Error::commit_unknown_result,
            timed_out,
            Error::database_locked,
        ] {
            let line = with_hint(format!("--from: {error}"));
            assert_eq!(line, format!("--from: {}", explain(error)));
            assert_eq!(with_hint(line.clone()), line);
        }
        assert_eq!(with_hint("another".into()), "another");
    }

    #[test]
    fn a_server_is_told_which_cluster_file_is_missing_and_which_lies_in_a_directory() {
        let directory = std::env::temp_dir().join(format!("plinth-found-{}", std::process::id()));
        std::fs::create_dir(&directory).expect("it can be made");
        let file = directory.join(cluster_file::DEFAULT_NAME);
        let refused = |path: &Path| check_for_server(path, Some(path)).expect_err("it is refused");
        assert!(refused(&file).ends_with("there is none; name another with -C"));
        assert!(refused(&directory).contains("there is no plinth.cluster in it"));
        std::fs::write(&file, "a:b@10.0.0.1:1\n").expect("it can be written");
        assert!(refused(&directory).contains("its cluster file is"));
        assert_eq!(check_for_server(&file, None), Ok(()));
        std::fs::remove_dir_all(&directory).expect("it is there");
    }
}
