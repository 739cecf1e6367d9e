//! A replica whose log is a stream of the store, answering what a process of a service answers.

use super::registers::{self, Registers};
use super::shelf;
use super::{CACHE_BYTES, RETRY_PAUSE, engine_at};
use crate::backup::Backups;
use crate::backup::objects::Origin;
use crate::engines::roster::Member;
use crate::log::LogError;
use crate::replica::RELEASE;
use crate::replica::messages::{
    AskChecksum, AskStatus, CallService, ChecksumAt, MarkLog, PROCESS, ReconfigureLog,
    ReplicaStatus, SwitchEngine, Told, TrimLog,
};
use crate::stack::{Engine, Lost, ReplicaId};
use crate::stacks::{ENGINES, Standard, engine};
use crate::store::LocalStore;
use crate::store_register::StoreRegister;
use crate::stream_log::StreamLog;
use crate::virtual_log::{Loglets, VirtualLog};
use bytes::Bytes;
use plinth_client::{Database, connect};
use plinth_core::{Error, Uid};
use plinth_rpc::{Registration, Request, Responder, Transport};
use plinth_runtime::{Boxed, Either, TaskGroup, disk, race, random, sleep};
use plinth_workload::Place;
use std::convert::Infallible;
use std::future::pending;
use std::net::SocketAddr;
use std::rc::Rc;

const NAME: &str = "simulated";

/// The name of a stream that nobody has used.
fn fresh() -> Bytes {
    format!("{NAME}/{:016x}", random::u64()).into()
}

struct Streams {
    database: Database,
}

impl Loglets for Streams {
    type Log = StreamLog;

    async fn open(&self, description: &Bytes) -> Result<StreamLog, LogError> {
        let name = std::str::from_utf8(description);
        let name = name.map_err(|_| LogError::Failed(Error::file_corrupt))?;
        StreamLog::open(&self.database, name).await
    }
}

type Log = VirtualLog<StoreRegister, Streams>;

struct Replica {
    log: Rc<Log>,
    stack: Rc<Standard<Rc<Log>, Registers>>,
}

/// One life of a process; why it ends.
pub fn serve(place: Place) -> Boxed<'static, String> {
    Box::pin(async move {
        match live(place).await {
            Ok(stopped) => stopped,
            Err(error) => error.to_string(),
        }
    })
}

async fn live(place: Place) -> Result<String, Error> {
    let address = place.listen;
    let broken = |_| Error::io_error;
    let transport = Transport::listen(address).await.map_err(broken)?;
    let directory = place.data_directory;
    let made = disk::create_dir_all(&directory).await;
    made.map_err(broken)?;
    if let Some(above) = directory.parent() {
        disk::sync_dir(above).await.map_err(broken)?;
    }
    let (path, kind) = (directory.join("store"), engine_at(address));
    let opened = match plinth_engine::open(kind, &path, false, CACHE_BYTES).await {
        Err(Error::file_not_found) => plinth_engine::open(kind, &path, true, CACHE_BYTES).await?,
        opened => opened?,
    };
    let store = LocalStore::open(opened)?;
    let database = connect(place.cluster);
    let register = StoreRegister::new(&database, NAME);
    let first = Bytes::from_static(b"simulated/first");
    let log = Rc::new(VirtualLog::open(register, Streams { database }, first).await?);
    let backups = Backups {
        origin: Origin::new(NAME, "registers", NAME),
        open: shelf::open,
    };
    let (of_stack, id) = (Rc::new(log.clone()), id_of(address));
    let stack = Standard::new(of_stack, store, id, Registers, backups);
    stack.lease.want(true);
    let replica = Rc::new(Replica { log, stack });
    let serving = async {
        replica.join(address).await;
        let _serving = answer_all(&transport, &replica);
        pending::<Infallible>().await
    };
    // Nobody joins behind a sealed stream: if all replicas begin a new life there, each of them cares at once.
    match race(replica.stack.run(), race(replica.care(), serving)).await {
        Either::Left(stopped) => Ok(stopped.to_string()),
        Either::Right(Either::Left(never) | Either::Right(never)) => match never {},
    }
}

/// The store stays with its machine, and so does the identity.
fn id_of(address: SocketAddr) -> ReplicaId {
    match address.ip().to_canonical() {
        std::net::IpAddr::V4(ip) => u32::from(ip).into(),
        std::net::IpAddr::V6(ip) => u128::from(ip) as u64,
    }
}

fn told(done: Result<Result<u64, String>, Lost>) -> Told {
    match done {
        Ok(Ok(pos)) => Told::done(pos),
        Ok(Err(why)) => Told::refused(why),
        Err(lost) => Told::refused(lost.to_string()),
    }
}

impl Replica {
    async fn join(&self, address: SocketAddr) {
        let member = Member {
            name: address.to_string(),
            address,
            log_server: Uid(0),
            engines: ENGINES.iter().map(|engine| engine.name.into()).collect(),
            release: RELEASE.into(),
        };
        while self.stack.join(id_of(address), &member).await.is_err() {
            sleep(RETRY_PAUSE).await;
        }
    }

    fn status(&self) -> ReplicaStatus {
        let store = self.stack.store();
        ReplicaStatus {
            service: NAME.into(),
            release: RELEASE.into(),
            applied: store.applied(),
            flushed: store.flushed(),
            in_view: self.stack.views.replicas(),
            ..ReplicaStatus::default()
        }
    }

    async fn switch(&self, asked: SwitchEngine) -> Told {
        match engine(&asked.engine) {
            Some(guard) => told(self.stack.switch(guard, asked.on).await),
            None => Told::refused("there is no such engine"),
        }
    }

    /// Goes on behind a stream that was sealed by somebody who has gone.
    async fn care(&self) -> Infallible {
        loop {
            let last = self.log.last_description();
            self.log.stays_sealed().await;
            let _ = self.log.replace(&last, fresh()).await; // the next look does the same
        }
    }

    async fn reconfigure(&self) -> Told {
        let done = self.log.reconfigure(fresh()).await;
        told(done.map(|()| Ok(0)).map_err(Lost::Log))
    }

    async fn checksum_at(&self, mark: u64) -> Result<ChecksumAt, Lost> {
        if self.stack.store().applied() < mark {
            drop(self.stack.base.sync().await?);
        }
        Ok(ChecksumAt {
            applied: self.stack.store().applied(),
            checksum: self.stack.checksum_at(mark),
        })
    }
}

/// Answers requests of one kind, each in a task of its own.
fn answer<R: Request, W>(
    transport: &Transport,
    replica: &Rc<Replica>,
    work: impl Fn(Rc<Replica>, R) -> W + Copy + 'static,
) -> (Registration, Rc<TaskGroup>)
where
    W: Future<Output = Result<R::Reply, Lost>> + 'static,
{
    let (replica, tasks) = (replica.clone(), Rc::new(TaskGroup::new()));
    let group = Rc::downgrade(&tasks);
    let serving = transport.serve::<R>(PROCESS, move |request, to: Responder<R>| {
        let work = work(replica.clone(), request);
        if let Some(group) = group.upgrade() {
            group.spawn("delos request", async move {
                to.send(work.await.map_err(|lost| match lost {
                    Lost::Log(LogError::Failed(error)) => error,
                    _ => Error::operation_cancelled,
                }));
            });
        }
    });
    (serving, tasks)
}

/// Answers until the result is dropped.
fn answer_all(transport: &Transport, replica: &Rc<Replica>) -> [(Registration, Rc<TaskGroup>); 7] {
    [
        answer(transport, replica, |of, asked: CallService| async move {
            Ok(registers::call(&of.stack, &asked.operation, &asked.request).await)
        }),
        answer(transport, replica, |of, _: AskStatus| async move {
            Ok(of.status())
        }),
        answer(transport, replica, |of, asked: SwitchEngine| async move {
            Ok(of.switch(asked).await)
        }),
        answer(transport, replica, |of, _: MarkLog| async move {
            Ok(told(of.stack.mark().await))
        }),
        answer(transport, replica, |of, asked: AskChecksum| async move {
            of.checksum_at(asked.mark).await
        }),
        answer(transport, replica, |of, _: ReconfigureLog| async move {
            Ok(of.reconfigure().await)
        }),
        answer(transport, replica, |of, asked: TrimLog| async move {
            of.stack.set_trim_prefix(asked.before);
            Ok(told(Ok(Ok(asked.before))))
        }),
    ]
}
