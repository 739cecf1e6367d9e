//! The register of one set of coordinators, read and written on a majority of them (disk Paxos, FDB §2.3.1).

use crate::ClusterFile;
use plinth_core::{Error, Result, Uid};
use plinth_protocol::coordination::{
    CoordinatedValue, Generation, ReadRegister, ReadRegisterReply, WriteRegister,
    WriteRegisterReply, coordinator,
};
use plinth_rpc::{Request, Transport};
use plinth_runtime::{Duration, probe, sync, trace};

/// A coordinator that has not answered by then is asked again.
const RETRY: Duration = Duration::from_millis(1000);
/// How long those that were not needed for a majority are told of a successor, too.
const TELL_ALL: Duration = Duration::from_secs(5);

pub(crate) struct Register {
    transport: Transport,
    pub file: ClusterFile,
    generation: Generation,
}

impl Register {
    /// `writer` tells attempts of the same number apart: no two registers that live may have the same.
    pub fn new(transport: &Transport, file: ClusterFile, writer: Uid) -> Self {
        Register {
            transport: transport.clone(),
            file,
            generation: Generation { number: 0, writer },
        }
    }

    /// Reads the newest value and fences all earlier readers' writes. Waits until a majority answers.
    pub async fn read(&mut self) -> Option<CoordinatedValue> {
        loop {
            self.generation.number += 1;
            let request = ReadRegister {
                register: self.file.register(),
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

    /// Replaces the value read. Fails if somebody has read since. A second write needs a read of its own.
    pub async fn write(&mut self, value: CoordinatedValue) -> Result<()> {
        let request = WriteRegister {
            register: self.file.register(),
            generation: self.generation,
            value,
        };
        let replies: Vec<WriteRegisterReply> = self.ask_majority(request).await;
        if replies.iter().all(|reply| reply.accepted) {
            return Ok(());
        }
        probe!("coordinated_state_conflict");
        Err(Error::coordinated_state_conflict)
    }

    /// Repeats the last write to those that a majority was reached without.
    pub fn tell_all(&self, value: CoordinatedValue) {
        let calls = self.file.coordinators.iter().map(|address| {
            let request = WriteRegister {
                register: self.file.register(),
                generation: self.generation,
                value: value.clone(),
            };
            let endpoint = coordinator(*address).endpoint::<WriteRegister>();
            self.transport.call(&endpoint, request)
        });
        let all = plinth_runtime::join_all(calls.collect::<Vec<_>>());
        plinth_runtime::spawn("tell coordinators", async move {
            plinth_runtime::timeout(TELL_ALL, all).await; // those that stay away hear it from a controller
        })
        .detach();
    }

    /// The first majority of answers. Coordinators that fail are asked again until there is one.
    async fn ask_majority<R: Request + Clone>(&self, request: R) -> Vec<R::Reply> {
        let (sender, mut replies) = sync::queue();
        let tasks = plinth_runtime::TaskGroup::new();
        for address in &self.file.coordinators {
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
        while answers.len() < self.file.majority() {
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
