//! The coordinated state: one value on a majority of coordinators (disk Paxos, FDB §2.3.1, §2.4.4).
//!
//! A recovery reads it with a generation of its own, which fences every writer before it; then it writes once. If
//! another recovery has read in between, the write fails with [`Error::coordinated_state_conflict`] and its owner
//! ends: of two recoveries at once, one wins (pitfall 14).

use crate::ClusterFile;
use bytes::Bytes;
use plinth_core::{Error, Result, Uid};
use plinth_protocol::coordination::{
    Generation, ReadRegister, ReadRegisterReply, WriteRegister, WriteRegisterReply, coordinator,
};
use plinth_rpc::{Request, Transport};
use plinth_runtime::{Duration, probe, sync, trace};

/// A coordinator that has not answered by then is asked again.
const RETRY: Duration = Duration::from_millis(1000);

pub struct CoordinatedState {
    transport: Transport,
    cluster: ClusterFile,
    writer: Uid,
    generation: Generation,
}

impl CoordinatedState {
    pub fn new(transport: &Transport, cluster: &ClusterFile, writer: Uid) -> Self {
        let generation = Generation { number: 0, writer };
        CoordinatedState {
            transport: transport.clone(),
            cluster: cluster.clone(),
            writer,
            generation,
        }
    }

    /// Reads the newest value and fences all earlier readers' writes. Waits until a majority answers.
    pub async fn read(&mut self) -> Option<Bytes> {
        loop {
            self.generation = Generation {
                number: self.generation.number + 1,
                writer: self.writer,
            };
            let request = ReadRegister {
                cluster: self.cluster.key(),
                generation: self.generation,
            };
            let replies: Vec<ReadRegisterReply> = self.ask_majority(request).await;
            let highest = replies
                .iter()
                .map(|r| r.read_generation)
                .max()
                .expect("a majority answered");
            if highest > self.generation {
                probe!("coordinated_state_read_outrun");
                self.generation.number = highest.number;
                plinth_runtime::sleep(Duration::from_millis(plinth_runtime::random::range(5..50)))
                    .await;
                continue;
            }
            let newest = replies
                .into_iter()
                .max_by_key(|reply| reply.write_generation);
            return newest.and_then(|reply| reply.value);
        }
    }

    /// Replaces the value read. Fails if somebody has read since.
    pub async fn write(&mut self, value: Bytes) -> Result<()> {
        let request = WriteRegister {
            cluster: self.cluster.key(),
            generation: self.generation,
            value,
        };
        let replies: Vec<WriteRegisterReply> = self.ask_majority(request).await;
        if replies.iter().all(|reply| reply.accepted) {
            // The same generation must not write twice: the next write needs a read of its own.
            return Ok(());
        }
        probe!("coordinated_state_conflict");
        Err(Error::coordinated_state_conflict)
    }

    /// The first majority of answers. Coordinators that fail are asked again until there is one.
    async fn ask_majority<R: Request + Clone>(&self, request: R) -> Vec<R::Reply> {
        let (sender, mut replies) = sync::queue();
        let tasks = plinth_runtime::TaskGroup::new();
        for address in &self.cluster.coordinators {
            let (transport, request, sender) =
                (self.transport.clone(), request.clone(), sender.clone());
            let endpoint = coordinator(*address).endpoint::<R>();
            tasks.spawn("ask coordinator", async move {
                loop {
                    match plinth_runtime::timeout(RETRY, transport.call(&endpoint, request.clone())).await {
                        Some(Ok(reply)) => {
                            let _ = sender.send(reply); // enough others may have answered
                            return;
                        }
                        Some(Err(error)) => {
                            trace!("CoordinatorUnavailable", "address" => endpoint.address, "error" => error);
                            plinth_runtime::sleep(Duration::from_millis(100)).await;
                        }
                        None => {}
                    }
                }
            });
        }
        let mut answers = Vec::new();
        while answers.len() < self.cluster.majority() {
            answers.push(
                replies
                    .recv()
                    .await
                    .expect("the askers hold the sender until they have answered"),
            );
        }
        answers
    }
}
