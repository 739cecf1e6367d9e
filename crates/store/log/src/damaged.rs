//! Answers in the place of a log server that cannot be brought back, because its files are damaged. So a recovery does
//! not wait for it, and says whether an epoch can begin without it.

use plinth_core::{Error, Uid};
use plinth_protocol::log::{NeedDamagedLog, Seal};
use plinth_rpc::{Registration, Transport};
use plinth_runtime::sync::Watch;

pub struct DamagedLog {
    is_needed: Watch<bool>,
    _serving: Vec<Registration>,
}

impl DamagedLog {
    pub fn answer_for(transport: &Transport, id: Uid) -> Self {
        let mut answering = Self::beside(transport, id);
        let sealing =
            transport.serve::<Seal>(id, |_, responder| responder.fail(Error::file_corrupt));
        answering._serving.push(sealing);
        answering
    }

    /// Beside a log server that serves what can be read of its files.
    pub fn beside(transport: &Transport, id: Uid) -> Self {
        let is_needed = Watch::new(false);
        let needed = is_needed.clone();
        let need = transport.serve::<NeedDamagedLog>(id, move |_, responder| {
            needed.set(true);
            responder.ok(());
        });
        DamagedLog {
            is_needed,
            _serving: vec![need],
        }
    }

    /// Returns when a recovery has said that no epoch can begin without this log server.
    pub async fn needed(&self) {
        self.is_needed.wait_until(|needed| *needed).await;
    }
}
