//! A gateway: clients on one side, the store on the other, and between them one life after the other.

use crate::backing::{Backing, NoLife};
use crate::counters::Counters;
use crate::doors::{Doors, Origin, Secure};
use crate::life::{Gateway, Life, Options};
use crate::operations::Operations;
use crate::stored::Stored;
use crate::{commands, leases, monitor, requests};
use plinth_client::Database;
use plinth_runtime::metric::page::Sample;
use plinth_runtime::net::{Chosen, Listener, listen};
use plinth_runtime::readiness::{Readiness, Verdict};
use plinth_runtime::serve::{Connection, accept};
use plinth_runtime::sync::Watch;
use plinth_runtime::{Boxed, Duration, TaskGroup, now, race, sleep, timeout, trace, trace_warn};
use std::cell::{Cell, RefCell};
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::rc::Rc;

/// Pause between two lives, and between attempts to begin one.
const NEXT_LIFE_PAUSE: Duration = Duration::from_millis(100);
/// A gateway that ends waits so long for its log of operations.
const LOG_STOP_LIMIT: Duration = Duration::from_secs(3);

/// One life of a process in the simulator. Ends only if the port cannot be had.
pub fn run(place: plinth_workload::Place) -> Boxed<'static, ()> {
    Box::pin(async move {
        let database = plinth_client::connect(place.cluster);
        let options = Options {
            enforce_quota: true,
            // All that a workload has come from few machines.
            max_connections_per_address: 0,
            ..Options::default()
        };
        match Keeper::listen(database, place.listen, options).await {
            Ok(keeper) => keeper.serve().await,
            Err(error) => {
                trace_warn!("KeeperNotListening", "address" => place.listen, "error" => error);
            }
        }
    })
}

/// Listens at an address; also at which, if any port does.
async fn open(address: SocketAddr, by: Chosen) -> Result<(Listener, SocketAddr), String> {
    let refused = |error| by.refused(address, &error);
    let listener = listen(address).await.map_err(refused)?;
    let at = listener.local_addr().map_err(refused)?;
    Ok((listener, at))
}

/// A gateway that serves ZooKeeper's clients, from a database or something else.
pub struct Keeper {
    gateway: Rc<Gateway>,
    /// The plain one, and the one by TLS.
    listeners: RefCell<Option<[Option<Listener>; 2]>>,
}

impl Keeper {
    /// A gateway of a database. It listens at `doors` (port 0: any free one), and serves as long as
    /// [`serve`](Self::serve) runs.
    ///
    /// # Errors
    /// An address cannot be listened at, or there is none: one line for the user.
    pub fn listen(
        database: Database,
        doors: impl Into<Doors>,
        options: Options,
    ) -> Boxed<'static, Result<Keeper, String>> {
        Self::listen_over(Rc::new(Stored::new(database)), doors, options)
    }

    /// As [`listen`](Self::listen), a gateway that stands on `backing`.
    ///
    /// # Errors
    /// An address cannot be listened at, or there is none.
    pub fn listen_over(
        backing: Rc<dyn Backing>,
        doors: impl Into<Doors>,
        options: Options,
    ) -> Boxed<'static, Result<Keeper, String>> {
        let doors = doors.into();
        Box::pin(async move {
            let (mut listeners, mut plain, mut secure) = ([None, None], None, None);
            if let Some(address) = doors.plain {
                let (listener, at) = open(address, doors.plain_by).await?;
                plain = Some(at);
                listeners[0] = Some(listener);
            }
            if let Some((address, guests)) = doors.secure {
                let (listener, at) = open(address, doors.secure_by).await?;
                secure = Some(Rc::new(Secure::new(at, guests)));
                listeners[1] = Some(listener);
            }
            let address = plain.or(secure.as_ref().map(|secure| secure.address));
            let address = address.ok_or("there is no address to listen at")?;
            let operations = match options.operations_log.clone() {
                Some(path) => Some(Rc::new(Operations::open(path).await?)),
                None => None,
            };
            let gateway = Rc::new(Gateway {
                options,
                backing,
                address,
                plain,
                secure,
                life: Watch::new(None),
                stopped: Watch::new(None),
                next_client: Cell::new(1),
                started: now(),
                readiness: Rc::new(RefCell::new(Readiness::new(now()))),
                counters: Rc::new(Counters::default()),
                alarm: Rc::default(),
                operations,
                addresses: Rc::default(),
                frames: Rc::default(),
            });
            Ok(Keeper {
                gateway,
                listeners: RefCell::new(Some(listeners)),
            })
        })
    }

    /// Where clients reach it: the plain port, if it has one.
    pub fn address(&self) -> SocketAddr {
        self.gateway.address
    }

    /// Where clients reach it by TLS.
    pub fn secure_address(&self) -> Option<SocketAddr> {
        self.gateway.secure.as_ref().map(|secure| secure.address)
    }

    /// Serves until the future is dropped. May be called once. Ends by itself if the gateway never had a tree, and
    /// what is left of one is in the way ([`stopped`](Self::stopped)).
    pub fn serve(&self) -> Boxed<'_, ()> {
        Box::pin(async move {
            let [plain, secure] = self.listeners.take().expect("it serves once");
            let connections = TaskGroup::new();
            let start = |connection: Connection, secure: Option<Rc<Secure>>| {
                let gateway = self.gateway.clone();
                let most = gateway.options.max_connections_per_address;
                let Some(place) = gateway.addresses.take(connection.peer.ip(), most) else {
                    return ControlFlow::Continue(());
                };
                let client = gateway.next_client.get();
                gateway.next_client.set(client + 1);
                connections.spawn("keeper client", async move {
                    // Boxed: a future that is handed on takes its room in each frame that it passes.
                    let serving = Box::pin(async {
                        let entered = match secure {
                            Some(secure) => secure.enter(connection).await,
                            None => Some((connection, Origin::default())),
                        };
                        if let Some(entered) = entered {
                            requests::serve(gateway, client, entered, &place).await;
                        }
                    });
                    race(serving, place.given_up()).await;
                });
                ControlFlow::Continue(())
            };
            let plain = taking(plain, |connection| start(connection, None));
            let secure = taking(secure, |connection| {
                start(connection, self.gateway.secure.clone())
            });
            race(race(plain, secure), live(&self.gateway)).await;
        })
    }

    /// How many connections found no place because their address has too many, and the address of the last.
    pub fn refused(&self) -> (u64, Option<IpAddr>) {
        let addresses = &self.gateway.addresses;
        (addresses.refused(), addresses.last_refused())
    }

    /// Notes in the log of operations that the gateway ends, and waits until all of that is written, or for as long
    /// as a disk may take that is well.
    pub async fn log_stop(&self) {
        if let Some(operations) = &self.gateway.operations {
            operations.of_server("serverStop", "invoked");
            if timeout(LOG_STOP_LIMIT, operations.flushed())
                .await
                .is_none()
            {
                trace_warn!("KeeperOperationsGivenUp", "lost" => operations.lost());
            }
        }
    }

    /// True while what it stands on answers it.
    pub fn is_in_touch(&self) -> bool {
        let life = &self.gateway.life;
        life.with(|life| life.as_ref().is_some_and(|life| life.contact.is_in_touch()))
    }

    /// Why it serves nobody any more, and begins no other life: one line for the operator.
    pub fn stopped(&self) -> Option<String> {
        self.gateway
            .stopped
            .with(|why| Some(why.as_deref()?.into()))
    }

    /// Ends when it serves nobody any more; the line is that of [`stopped`](Self::stopped).
    pub fn until_stopped(&self) -> Boxed<'_, String> {
        Box::pin(async move {
            self.gateway.stopped.wait_until(Option::is_some).await;
            self.stopped().unwrap_or_default()
        })
    }

    /// The names of the commands of ZooKeeper's AdminServer that it has.
    pub fn commands() -> impl Iterator<Item = &'static str> {
        commands::names()
    }

    /// The answer to a command of ZooKeeper's AdminServer.
    pub fn command<'a>(&'a self, name: &'a str) -> Boxed<'a, serde_json::Value> {
        Box::pin(async move { commands::run(&self.gateway, name).await })
    }

    /// True if it serves clients now.
    pub fn serves(&self) -> bool {
        monitor::serves(&self.gateway)
    }

    /// Whether a client could work here just now, and why not.
    pub fn verdict(&self) -> Verdict {
        monitor::verdict(&self.gateway)
    }

    /// Its numbers for monitoring.
    pub fn samples(&self) -> Vec<Sample> {
        monitor::samples(&self.gateway)
    }
}

/// Takes connections for ever, if there is a listener.
async fn taking(listener: Option<Listener>, start: impl Fn(Connection) -> ControlFlow<()>) {
    match listener {
        Some(listener) => accept(listener, start).await,
        None => std::future::pending().await,
    }
}

/// Ends if there can be no life at all. A gateway that has lived stays: its pages say why it has stopped.
async fn live(gateway: &Gateway) {
    let mut has_lived = false;
    loop {
        match Life::begin(gateway).await {
            Ok(life) => {
                has_lived = true;
                trace!("KeeperGatewayBegins", "gateway" => life.id, "address" => gateway.address);
                let shown = async {
                    // Sessions of a gateway that others do not know would never end.
                    life.contact.begins().await;
                    gateway.life.set(Some(life.clone()));
                    std::future::pending::<()>().await
                };
                race(run_life(&life), shown).await;
                gateway.life.set(None);
                life.end();
            }
            Err(NoLife::Failed(error)) => trace_warn!("KeeperGatewayCannotBegin", "error" => error),
            Err(NoLife::Gone(why)) => {
                trace_warn!("KeeperTreeGone", "tree" => gateway.options.tree, "why" => why);
                gateway.stopped.set(Some(why.into()));
                match has_lived {
                    true => std::future::pending().await,
                    false => return,
                }
            }
        }
        sleep(NEXT_LIFE_PAUSE).await;
    }
}

async fn run_life(life: &Rc<Life>) {
    let serving = life.pipeline.clone().serve();
    let sessions = race(life.beat(), life.expire_sessions());
    let others = race(leases::watch_others(life), leases::reap(life));
    let others = race(others, leases::count_quotas(life));
    race(race(serving, sessions), others).await;
}
