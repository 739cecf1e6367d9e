//! A whole durable cluster inside the caller: every role in one worker, no socket, the data in one directory.

use crate::data_directory::DataDirectory;
use crate::worker::{WorkerConfig, run_worker_on};
use plinth_client::Database;
use plinth_coordination::{ClusterFile, Coordinators, election};
use plinth_core::{DatabaseConfig, EngineKind, Error};
use plinth_engine::SSD_CACHE_BYTES;
use plinth_protocol::control::{
    CreateDatabase, CreateDatabaseReply, GetClientInfo, KillRole, WORKER,
};
use plinth_rpc::{Interface, Transport};
use plinth_runtime::sync::Watch;
use plinth_runtime::{Boxed, Duration, Either, Task};
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;

/// Nothing listens at this address: roles in one worker never use the network.
const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 1);
/// A cluster that does not serve within this time has a problem. Its trace names the problem.
const START_LIMIT: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug)]
pub struct EmbeddedOptions {
    pub engine: EngineKind,
    pub cache_bytes: usize,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        EmbeddedOptions {
            engine: EngineKind::Ssd,
            cache_bytes: SSD_CACHE_BYTES,
        }
    }
}

/// A living embedded cluster. Dropping it ends it; all acknowledged commits are on disk.
pub struct Embedded {
    transport: Transport,
    coordinators: Coordinators,
    database: Database,
    worker: Task<()>,
    failure: Watch<Option<String>>,
}

impl Embedded {
    /// Opens the cluster in `directory`, creating it if there is none. The error is one line.
    pub fn open(directory: &Path, options: EmbeddedOptions) -> Boxed<'_, Result<Self, String>> {
        Box::pin(async move {
            let cluster = ClusterFile::new("embedded", "embedded", vec![ADDRESS.into()]);
            let owned = DataDirectory::open(directory, &cluster.key()).await?;
            let transport = Transport::local(ADDRESS);
            let config = WorkerConfig {
                cache_bytes: options.cache_bytes,
                ..WorkerConfig::new(ADDRESS, directory, cluster.clone())
            };
            let failure: Watch<Option<String>> = Watch::new(None);
            let worker = {
                let (transport, failure) = (transport.clone(), failure.clone());
                plinth_runtime::spawn("embedded worker", async move {
                    let Err(error) = run_worker_on(transport, owned, config).await;
                    failure.set(Some(error));
                })
            };
            let coordinators = Coordinators::from(cluster);
            let database = plinth_client::connect_over(transport.clone(), coordinators.clone());
            let embedded = Embedded {
                transport,
                coordinators,
                database,
                worker,
                failure,
            };
            embedded.create(options.engine).await?;
            Ok(embedded)
        })
    }

    async fn create(&self, engine: EngineKind) -> Result<(), String> {
        let config = DatabaseConfig {
            engine,
            ..DatabaseConfig::default()
        };
        let created = plinth_runtime::timeout(
            START_LIMIT,
            create_database(&self.transport, &self.coordinators, config),
        );
        match plinth_runtime::race(self.failure.wait_until(Option::is_some), created).await {
            Either::Left(()) => Err(self.failure.get().expect("waited for")),
            Either::Right(Some(Ok(()) | Err(NotCreated::Exists))) => Ok(()),
            Either::Right(Some(Err(NotCreated::Because(reason)))) => {
                Err(format!("cannot create the database: {reason}"))
            }
            Either::Right(None) => Err(format!(
                "the database does not serve after {} s",
                START_LIMIT.as_secs()
            )),
        }
    }

    pub fn database(&self) -> Database {
        self.database.clone()
    }

    /// Kills a commit proxy, as a crash would; the transaction system recovers by itself.
    pub fn kill_transaction_system(&self) -> Boxed<'_, plinth_core::Result<()>> {
        Box::pin(async move {
            let leader = election::current_leader(&self.transport, &self.coordinators)
                .await
                .ok_or(Error::no_more_servers)?;
            let endpoint = leader.controller.endpoint::<GetClientInfo>();
            let info = self
                .transport
                .call(&endpoint, GetClientInfo { known: 0 })
                .await?;
            let victim = info.commit_proxies.first().ok_or(Error::no_more_servers)?;
            let worker = Interface::new(victim.address, WORKER);
            self.transport
                .call(&worker.endpoint::<KillRole>(), KillRole { id: victim.id })
                .await
        })
    }

    /// Ends the cluster and releases the directory.
    pub fn close(self) -> Boxed<'static, ()> {
        Box::pin(async move {
            drop(self.worker);
            // Blocking work that was under way holds files until it is done; it ends within the time of a commit.
            plinth_runtime::yield_now().await;
        })
    }
}

/// Why no database was created.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotCreated {
    /// There is a database already.
    Exists,
    /// Another reason, in one line.
    Because(String),
}

/// Asks the controller to create a database; waits for a controller, and until the database serves. It is refused
/// while coordinators do not answer.
pub fn create_database<'a>(
    transport: &'a Transport,
    coordinators: &'a Coordinators,
    config: DatabaseConfig,
) -> Boxed<'a, Result<(), NotCreated>> {
    let force = false;
    create_database_as(transport, coordinators, CreateDatabase { config, force })
}

/// Like [`create_database`], also with `force`: although coordinators do not answer.
pub fn create_database_as<'a>(
    transport: &'a Transport,
    coordinators: &'a Coordinators,
    request: CreateDatabase,
) -> Boxed<'a, Result<(), NotCreated>> {
    Box::pin(async move {
        loop {
            if let Some(leader) = election::current_leader(transport, coordinators).await {
                let endpoint = leader.controller.endpoint::<CreateDatabase>();
                match transport.call(&endpoint, request.clone()).await {
                    Ok(CreateDatabaseReply { refusal }) if refusal.is_empty() => return Ok(()),
                    Ok(CreateDatabaseReply { refusal }) => {
                        return Err(NotCreated::Because(refusal));
                    }
                    Err(Error::invalid_option) => return Err(NotCreated::Exists),
                    Err(error @ Error::invalid_option_value) => {
                        return Err(NotCreated::Because(error.to_string()));
                    }
                    Err(_) => {} // the controller changed
                }
            }
            plinth_runtime::sleep(Duration::from_millis(50)).await;
        }
    })
}

/// `Database::open_embedded(directory)`: the cluster lives as long as the returned [`Embedded`].
pub trait OpenEmbedded {
    fn open_embedded(directory: &Path) -> impl Future<Output = Result<Embedded, String>>;
}

impl OpenEmbedded for Database {
    async fn open_embedded(directory: &Path) -> Result<Embedded, String> {
        Embedded::open(directory, EmbeddedOptions::default()).await
    }
}
