//! A member without data: it runs transactions, and others hold nothing of it.

use crate::access::Access;
use crate::denial::{caller, other_state, silent_coordinators, unless_denied};
use crate::join::{Joined, Joining};
use crate::machine::{self, Held, Number};
use crate::{plan, root};
use plinth_coordination::{ClusterFile, Coordinators};
use plinth_farm_member::{CoordinatedRegister, Left, Register, View};
use plinth_farm_memory::Sizes;
use plinth_farm_structures::btree::Cache;
use plinth_farm_structures::kv::Database;
use plinth_identity::Identity;
use plinth_rpc::Credentials;
use plinth_runtime::net::{Chosen, listen};
use plinth_runtime::{Boxed, Duration, race, timeout};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Of inner nodes.
const CACHE_BYTES: usize = 16 << 20;
/// How an operator chooses the address.
const ADDRESS: Chosen = Chosen::By("--address");

/// How a guest comes.
pub struct GuestConfig {
    pub cluster: ClusterFile,
    pub memory_directory: Option<PathBuf>,
    /// Where other hosts reach it, at any port.
    pub address: IpAddr,
    /// How long it waits to be let in.
    pub limit: Duration,
}

/// See the module.
pub struct Guest {
    pub joined: Joined,
    sizes: Sizes,
}

/// What it proves to machines, and wants them to prove: where they speak TLS, nobody enters its memory without a
/// certificate or a key.
fn credentials(cluster: &ClusterFile) -> Credentials {
    let credentials = cluster.credentials(Identity::Server);
    match cluster.is_tls {
        true => credentials.closed_without_certificate(),
        false => credentials,
    }
}

/// The end of a line about machines that do not answer a guest, which may be with the first one that does.
pub fn while_moving(cluster: &ClusterFile) -> &'static str {
    match cluster.is_tls {
        true => "; machines whose file has no :tls yet cannot reach it",
        false => "",
    }
}

/// Why nobody has let it in: a line for the user.
async fn not_let_in(config: &GuestConfig) -> String {
    let (file, seconds) = (&config.cluster, config.limit.as_secs());
    match silent_coordinators(&caller(file), file).await {
        Err(line) => return line,
        Ok(silent) if !silent.is_empty() => {
            return format!(
                "it is not let in within {seconds} s; coordinators that do not answer: {silent}; check that their \
                 processes run and that the file is theirs"
            );
        }
        Ok(_) => {}
    }
    format!(
        "it is not let in within {seconds} s; `plinth farm status' tells what the cluster lacks{}",
        while_moving(file)
    )
}

impl Guest {
    /// Waits until it is a member. Errors: a line for the user.
    pub fn enter(config: GuestConfig) -> Boxed<'static, Result<Guest, String>> {
        Box::pin(async move {
            let (limit, held) = (config.limit, Held::default());
            let mut entering = Box::pin(async {
                loop {
                    if let Some(guest) = Guest::try_enter(&config, &held).await? {
                        return Ok(guest);
                    }
                }
            });
            if let Some(entered) = timeout(limit, &mut entering).await {
                return entered;
            }
            // While it lives still: afterwards the memory may be another process's.
            held.remove().await;
            drop(entering);
            Err(not_let_in(&config).await)
        })
    }

    /// `None`: another host has its number, or the cluster went on without it before it could do anything (a busy host
    /// loses its lease within half a second).
    async fn try_enter(config: &GuestConfig, held: &Held) -> Result<Option<Guest>, String> {
        let transport = caller(&config.cluster);
        let coordinators = Coordinators::from(config.cluster.clone());
        let register = CoordinatedRegister::new(&transport, &coordinators);
        let record = unless_denied(&transport, &config.cluster, register.read()).await?;
        let record = match record {
            Ok(record) => record,
            Err(error) => return Err(other_state(&register, error).await),
        };
        let Some(record) = record else {
            let none = || "no cluster was made: `plinth farm create' makes one".into();
            return Err(register.not_own().await.unwrap_or_else(none));
        };
        let directory = config.memory_directory.clone();
        let directory = directory.unwrap_or_else(|| machine::memory_directory(&config.cluster));
        let sizes = plan::sizes(&record.cluster, 0);
        let layout = plan::layout(&record.cluster, &sizes, false);
        let local = machine::start(&directory, &record, Number::Highest, &layout, 0).await?;
        held.set(&local);
        let at = SocketAddr::new(config.address, 0);
        let listener = listen(at).await;
        let listener = listener.map_err(|error| ADDRESS.refused(at, &error))?;
        let joined = Joined::start(Joining {
            local,
            listener,
            public: None,
            register,
            credentials: credentials(&config.cluster),
            record,
            zone: String::new(),
            sizes,
            has_data: false,
            disk: PathBuf::new(),
            may_renumber: true,
        });
        let joined = joined.await?;
        let (view, left) = (joined.view().clone(), joined.node.left().clone());
        let is_in = |view: &Option<View>| view.as_ref().is_some_and(|view| view.is_committed);
        race(view.wait_until(is_in), left.wait_until(Option::is_some)).await;
        let guest = Guest { joined, sizes };
        match left.get() {
            None => Ok(Some(guest)),
            Some(Left::Taken | Left::Removed) => {
                guest.leave().await;
                Ok(None)
            }
            Some(left) => {
                guest.leave().await;
                Err(left.to_string())
            }
        }
    }

    /// The keys and values of the cluster.
    ///
    /// # Errors
    /// A line for the user.
    pub fn database(&self) -> Boxed<'_, Result<Database<Access>, String>> {
        Box::pin(async move {
            let (access, cache) = (&self.joined.access, Cache::new(CACHE_BYTES));
            let opened = async {
                let catalog = root::open(access, &self.sizes, &cache).await?;
                root::pairs(access, &catalog, &cache).await
            };
            let tree = opened.await;
            let tree = tree.map_err(|error| format!("the keys and values: {error}"))?;
            Ok(Database::new(access.clone(), tree))
        })
    }

    /// Leaves the cluster, and gives its memory back.
    pub fn leave(self) -> Boxed<'static, ()> {
        Box::pin(async move {
            let _ = self.joined.local().remove().await; // what is left is found by the next one
        })
    }
}
