//! Frames on their way through the fabric. What cannot be sent is lost, and the parts that speak repeat themselves.

use bytes::Bytes;
use plinth_farm_fabric::{Error, Fabric, Machine};
use plinth_runtime::sync::{
    Notify, OneshotSender, QueueReceiver, QueueSender, Watch, oneshot, queue,
};
use plinth_runtime::{Duration, TaskGroup, now};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Frames that wait for one machine. More are lost.
const WAITING_MAX: usize = 64;
/// After a machine could not be reached, frames to it are lost for so long.
const SILENCE: Duration = Duration::from_millis(5);

enum Job {
    /// It is not sent before this machine's fabric has the configuration that it is of.
    Send {
        number: u64,
        bytes: Bytes,
    },
    Open(OneshotSender<()>),
}

pub(crate) struct Post<F> {
    fabric: Rc<F>,
    group: TaskGroup,
    ways: RefCell<BTreeMap<u16, QueueSender<Job>>>,
    /// The configuration of the fabric.
    pub configured: Watch<u64>,
    /// Somebody has refused a frame: there may be a newer configuration.
    pub is_refused: Rc<Cell<bool>>,
    refused: Notify,
}

impl<F: Fabric + 'static> Post<F> {
    /// `refused` is called when somebody has refused a frame.
    pub fn new(fabric: Rc<F>, refused: Notify) -> Post<F> {
        Post {
            fabric,
            group: TaskGroup::new(),
            ways: RefCell::default(),
            configured: Watch::new(0),
            is_refused: Rc::default(),
            refused,
        }
    }

    fn put(&self, to: u16, job: Job) {
        let mut ways = self.ways.borrow_mut();
        let way = ways.entry(to).or_insert_with(|| {
            let (sender, receiver) = queue();
            let way = Way {
                fabric: self.fabric.clone(),
                to: Machine(to),
                configured: self.configured.clone(),
                is_refused: self.is_refused.clone(),
                refused: self.refused.clone(),
            };
            self.group.spawn("member way", way.carry(receiver));
            sender
        });
        if way.len() < WAITING_MAX {
            let _ = way.send(job);
        }
    }

    pub fn send(&self, to: u16, number: u64, bytes: Bytes) {
        self.put(to, Job::Send { number, bytes });
    }

    /// Opens the machine. One at a time does, so that no connection ends another. Returns when it is open, or cannot
    /// be opened now.
    pub async fn open(&self, to: u16) {
        let (sender, opened) = oneshot();
        self.put(to, Job::Open(sender));
        let _ = opened.await;
    }
}

struct Way<F> {
    fabric: Rc<F>,
    to: Machine,
    configured: Watch<u64>,
    is_refused: Rc<Cell<bool>>,
    refused: Notify,
}

impl<F: Fabric> Way<F> {
    async fn carry(self, mut jobs: QueueReceiver<Job>) {
        let mut silent_until = now();
        while let Some(job) = jobs.recv().await {
            let (number, bytes) = match job {
                Job::Send { number, bytes } => (number, bytes),
                Job::Open(opened) => {
                    let _ = self.fabric.open(self.to).await;
                    let _ = opened.send(());
                    continue;
                }
            };
            self.configured.wait_until(|have| *have >= number).await;
            if now() < silent_until {
                continue;
            }
            match self.send(&bytes).await {
                Ok(()) | Err(Error::Full) => (),
                Err(error) => {
                    silent_until = now() + SILENCE;
                    // The other has closed this configuration, or has never been in it.
                    if error == Error::Closed {
                        self.is_refused.set(true);
                        self.refused.notify_all();
                    }
                }
            }
        }
    }

    /// Sends, over a new connection if the former one has ended.
    async fn send(&self, bytes: &[u8]) -> Result<(), Error> {
        match self.fabric.send(self.to, bytes).await {
            Err(Error::Unreachable | Error::Closed) => {
                self.fabric.open(self.to).await?;
                self.fabric.send(self.to, bytes).await
            }
            sent => sent,
        }
    }
}
