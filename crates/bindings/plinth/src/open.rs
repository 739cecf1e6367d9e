//! Opening a database: by a cluster file, or inside the process.

use crate::database::Database;
use crate::open_error::OpenError;
use crate::outages::Outages;
use crate::threads::{Home, Open, Served};
use plinth_coordination::Coordinators;
use plinth_coordination::cluster_file::{self, ClusterFile};
use plinth_tls::{Settings, Source};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where clients of FoundationDB look for their cluster file.
const FOUNDATIONDB_VARIABLE: &str = "FDB_CLUSTER_FILE";
const THREADS_MAX: usize = 64;

/// How to open a database.
///
/// ```no_run
/// # async fn example() -> plinth::Result<()> {
/// let db = plinth::OpenOptions::new()
///     .cluster_file("/etc/plinth/plinth.cluster")
///     .threads(2)
///     .open()
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use = "options open nothing by themselves"]
pub struct OpenOptions {
    cluster_file: Option<PathBuf>,
    threads: usize,
    tls: Settings,
}

impl OpenOptions {
    /// The options of [`Database::open_default`].
    pub fn new() -> Self {
        Self::default()
    }

    /// The cluster file. Without one it is looked for as [`Database::open_default`] says.
    pub fn cluster_file(mut self, path: impl AsRef<Path>) -> Self {
        self.cluster_file = Some(path.as_ref().to_owned());
        self
    }

    /// The number of threads on which the client runs, from 1, the default, to 64. Each transaction lives on one of
    /// them. One thread serves some hundred thousand reads a second; more are worth it if that thread is busy.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// The file of the client's certificate, for a cluster file that asks for TLS. Without this and the two below, the
    /// variables `FDB_TLS_CERTIFICATE_FILE`, `FDB_TLS_KEY_FILE` and `FDB_TLS_CA_FILE` name the files.
    pub fn tls_certificate_file(mut self, path: impl AsRef<Path>) -> Self {
        self.tls.certificate = Some(Source::File(path.as_ref().to_owned()));
        self
    }

    /// The file of the key of that certificate.
    pub fn tls_key_file(mut self, path: impl AsRef<Path>) -> Self {
        self.tls.key = Some(Source::File(path.as_ref().to_owned()));
        self
    }

    /// The file of the authorities whose certificates servers must show.
    pub fn tls_ca_file(mut self, path: impl AsRef<Path>) -> Self {
        self.tls.ca = Some(Source::File(path.as_ref().to_owned()));
        self
    }

    /// Opens the database. Reads files, and does not wait for the cluster.
    ///
    /// # Errors
    ///
    /// A cluster file, key file or certificate that is not there or cannot be used.
    pub async fn open(self) -> Result<Database, OpenError> {
        let threads = self.threads.clamp(1, THREADS_MAX);
        let variable = |name: &str| std::env::var(name).ok();
        let environment = [cluster_file::ENVIRONMENT_VARIABLE, FOUNDATIONDB_VARIABLE]
            .into_iter()
            .filter_map(variable)
            .find(|path| !path.is_empty());
        let settings = self.tls.or_variables(variable);
        let given = self.cluster_file;
        let outages = Arc::<Outages>::default();
        let open = move || -> Open {
            let (given, environment) = (given.clone(), environment.clone());
            let (settings, outages) = (settings.clone(), outages.clone());
            Box::new(move || Box::pin(open_file(given, environment, settings, outages)))
        };
        let opens = (0..threads).map(|_| open()).collect();
        Home::start(opens).await.map(Database::new)
    }
}

/// Opens what a cluster file names, on this thread, with the keys beside it and with these certificates.
async fn open_file(
    given: Option<PathBuf>,
    environment: Option<String>,
    settings: Settings,
    outages: Arc<Outages>,
) -> Result<Served, OpenError> {
    let path = cluster_file::find(given.as_deref(), environment.as_deref()).await;
    let file = ClusterFile::load_with(&path, settings)
        .await
        .map_err(|error| OpenError::new(error.code(), error.0))?;
    let coordinators = Coordinators::from(file.clone());
    let database = plinth_client::connect(coordinators.clone());
    let absolute = std::path::absolute(&path).unwrap_or_else(|_| path.clone());
    database.set_cluster_file_path(&absolute.to_string_lossy());
    let telling = {
        let (database, path) = (database.clone(), path.clone());
        async move { match outages.tell(database, &path).await {} }
    };
    let telling = plinth_runtime::spawn("outages", telling);
    let keeping = async move { match coordinators.keep_file(&path, file).await {} };
    let keeping = plinth_runtime::spawn("cluster file", keeping);
    let close = Box::pin(async move { drop((telling, keeping)) });
    Ok(Served { database, close })
}

impl Database {
    /// Opens the database that a cluster file names, with the keys beside the file. Reads files, and does not wait for
    /// the cluster.
    ///
    /// ```no_run
    /// # async fn example() -> plinth::Result<()> {
    /// let db = plinth::Database::open("data/plinth.cluster").await?;
    /// db.run(async |tr| {
    ///     tr.set("hello", "world");
    ///     Ok(())
    /// })
    /// .await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// A cluster file, key file or certificate that is not there or cannot be used.
    pub async fn open(cluster_file: impl AsRef<Path>) -> Result<Database, OpenError> {
        OpenOptions::new().cluster_file(cluster_file).open().await
    }

    /// Opens the database of the environment: the cluster file that `PLINTH_CLUSTER_FILE` names, else
    /// `FDB_CLUSTER_FILE`, else `plinth.cluster` in the working directory, else `/etc/plinth/plinth.cluster`.
    ///
    /// # Errors
    ///
    /// As [`open`](Database::open).
    pub async fn open_default() -> Result<Database, OpenError> {
        OpenOptions::new().open().await
    }

    /// Opens a durable cluster inside this process, with all its data in one directory, which is created if there is
    /// none. It is the same database as one of many servers, for tests, tools and small services. The cluster ends
    /// with the last handle; [`close`](Database::close) waits for that.
    ///
    /// # Errors
    ///
    /// A directory that cannot be used, for example because another process has it open.
    #[cfg(feature = "embedded")]
    pub async fn open_embedded(directory: impl AsRef<Path>) -> Result<Database, OpenError> {
        use plinth_core::Error;
        use plinth_server::{Embedded, EmbeddedOptions};
        let directory = directory.as_ref().to_owned();
        let open: Open = Box::new(move || {
            Box::pin(async move {
                let embedded = Embedded::open(&directory, EmbeddedOptions::default())
                    .await
                    .map_err(|line| OpenError::new(Error::operation_failed, line))?;
                Ok(Served {
                    database: embedded.database(),
                    close: Box::pin(embedded.close()),
                })
            })
        });
        Home::start(vec![open]).await.map(Database::new)
    }
}
