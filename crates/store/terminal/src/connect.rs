//! How client commands find their cluster, and the error they give if it does not answer.

use crate::numbers::within;
use crate::tls::TlsArguments;
use crate::{Outcome, status, trace_file};
use plinth_client::{Database, DatabaseOption};
use plinth_coordination::cluster_file::{self, ClusterFile, ClusterFileError};
use plinth_coordination::{Coordinators, Family, Look, election, look_at};
use plinth_core::Error;
use plinth_identity::Identity;
use plinth_protocol::control::{GetWorkers, RegisterWorker};
use plinth_protocol::coordination::Candidate;
use plinth_protocol::status::GetStatus;
use plinth_rpc::{Credentials, Place, Request, Transport};
use plinth_runtime::Boxed;
use plinth_runtime::Duration;
use std::path::PathBuf;

/// Limit of the wait for a controller's status.
const STATUS_LIMIT: Duration = Duration::from_secs(2);
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
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = within::<u64>(1..=86_400))]
    pub timeout: u64,
    #[command(flatten)]
    pub tls: TlsArguments,
}

/// The error of a command that was started with a cluster file, with a remedy if it is about that file.
pub fn with_remedy(error: ClusterFileError) -> String {
    let line = error.0;
    match line.starts_with("cluster file") && !line.contains("--tls") {
        true => format!("{line}; name it with -C"),
        false => line,
    }
}

/// The cluster of a command.
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
            let environment = std::env::var(cluster_file::ENVIRONMENT_VARIABLE).ok();
            let path =
                cluster_file::find(self.cluster_file.as_deref(), environment.as_deref()).await;
            // One that cannot be read says so when it is loaded.
            if !plinth_runtime::disk::exists(&path).await.unwrap_or(true) {
                return Err(format!(
                    "cluster file {}: there is none; name one with -C, \
                or start a cluster with `plinth dev --data-dir DIR`",
                    path.display()
                ));
            }
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

    pub fn wait_until_it_serves(&self) -> Boxed<'_, Outcome> {
        Box::pin(async move {
            let transaction = self.database.create_transaction();
            let answered = async {
                loop {
                    match transaction.get_read_version().await {
                        Ok(_) => return plinth_core::Result::Ok(()),
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
                        "the cluster of {} refuses: {error}",
                        self.path.display()
                    )))
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
            let found = async {
                loop {
                    if let Some(leader) =
                        election::current_leader(&self.transport, &self.coordinators).await
                    {
                        return leader;
                    }
                    plinth_runtime::sleep(Duration::from_millis(50)).await;
                }
            };
            match plinth_runtime::timeout(self.timeout, found).await {
                Some(leader) => {
                    self.update_cluster_file().await;
                    Ok(leader)
                }
                None => Err(self.explain_silence().await),
            }
        })
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
                Some(Err(error @ Error::permission_denied)) => {
                    let may_not = self.explain_denial().await;
                    return Err(may_not.unwrap_or_else(|| {
                        format!(
                            "the controller at {} does not {what}: {error}; {NEEDS_OPERATOR}",
                            leader.controller.address
                        )
                    }));
                }
                Some(Err(_)) if plinth_runtime::now() >= asked_until => {
                    return Err(self.explain_silence().await);
                }
                Some(Err(_)) => plinth_runtime::sleep(ASK_AGAIN).await,
                None => return Err(self.explain_silence().await),
            }
        }
    }

    /// The processes of the cluster.
    pub fn workers(&self) -> Boxed<'_, Outcome<Vec<RegisterWorker>>> {
        Box::pin(async move {
            let listed = self.ask_controller(GetWorkers {}, "list the processes");
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

    /// One line for the error: the coordinators that were tried, and the result of each.
    pub fn explain_silence(&self) -> Boxed<'_, String> {
        Box::pin(async move {
            let file = self.coordinators.file();
            let tried = file.coordinators.iter().map(|place| async move {
                format!("{place} {}", self.try_coordinator(place).await)
            });
            let tried = plinth_runtime::join_all(tried).await.join(", ");
            let document = self.status_of_a_cluster_that_waits().await;
            let full = status::full_disks(&document);
            if !full.is_empty() {
                return format!(
                    "the cluster of {} waits: the disk is full at {}; make room there, \
                or stop that server if the others can do without it",
                    self.path.display(),
                    full.join(", ")
                );
            }
            let sick = status::sick_disks(&document);
            if !sick.is_empty() {
                return format!(
                    "the cluster of {} waits for a sick disk: {}; mend it, \
                or stop that server if the others can do without it",
                    self.path.display(),
                    sick.join("; ")
                );
            }
            let cluster = &document["cluster"];
            if cluster["recovery_state"]["name"] == "configuration_never_created" {
                return format!(
                    "the cluster of {0} has no database yet; `plinth cli -C {0} --exec \"configure new single ssd\"' \
                creates one",
                    self.path.display()
                );
            }
            if cluster["database_lock_state"]["locked"] == true {
                return format!(
                    "the database of {} is locked with {}; `unlock' in plinth cli opens it",
                    self.path.display(),
                    cluster["database_lock_state"]["lock_uid"]
                        .as_str()
                        .unwrap_or("an unknown id")
                );
            }
            if document["cluster"]["recovery_state"]["waits_for"].is_string() {
                return format!(
                    "the cluster of {} does not serve within {} s: its recovery is at {}",
                    self.path.display(),
                    self.timeout.as_secs(),
                    status::recovery(&document["cluster"])
                );
            }
            format!(
                "the cluster of {} does not serve within {} s; coordinators tried: {tried}; \
            check that its servers run and that the file is theirs",
                self.path.display(),
                self.timeout.as_secs()
            )
        })
    }

    /// One line for the error if coordinators refuse this process, with their reasons; `None` if none does.
    pub fn explain_denial(&self) -> Boxed<'_, Option<String>> {
        Box::pin(async move {
            let file = &self.coordinators.file();
            let looks = file
                .coordinators
                .iter()
                .map(|place| async move { (place, look_at(&self.transport, file, place).await) });
            let looks = plinth_runtime::join_all(looks).await;
            let refuses =
                |(_, look): &&(_, Look)| matches!(look, Look::NeedsKey | Look::Ungreeted(_));
            let reasons: Vec<String> = looks
                .iter()
                .filter(refuses)
                .map(|(place, look)| format!("{place} ({look})"))
                .collect();
            let path = self.path.display();
            let line = || format!("the cluster of {path} refuses: {}", reasons.join(", "));
            (!reasons.is_empty()).then(line)
        })
    }

    /// The status document, or `null` if no controller sends one in time.
    async fn status_of_a_cluster_that_waits(&self) -> serde_json::Value {
        let asking = async {
            let (transport, coordinators) = (&self.transport, &self.coordinators);
            let status = election::ask_controller(transport, coordinators, GetStatus {});
            serde_json::from_str(&status.await?.json).ok()
        };
        let answered = plinth_runtime::timeout(STATUS_LIMIT, asking).await;
        answered.flatten().unwrap_or_default()
    }

    async fn try_coordinator(&self, place: &Place) -> String {
        match look_at(&self.transport, &self.coordinators.file(), place).await {
            Look::Answers { has_leader: false } => "(answers; no controller is elected)".into(),
            look => format!("({look})"),
        }
    }
}

/// Runs the client side of a command on this thread.
pub fn block_on<T>(future: impl Future<Output = Outcome<T>>) -> Outcome<T> {
    plinth_runtime::real::block_on(future)
}
