//! Strangers: clients that open a connection and send nothing, random bytes, or well-formed requests with random
//! fields, and stay connected.
//!
//! The requests are not listed here: [`REQUESTS`] has every request of the program, with a function to draw one.
//! Strangers send those of the store, and of the run's application.
//! Requests that do harm by design, because servers trust their sender, are listed below. They are sent in a siege,
//! and to clusters with keys, where they must have no effect. There, [insiders] have a key and ask for more than it
//! gives.

mod insiders;
mod random_fields;

use crate::cluster::{self, Shape};
use bytes::{BufMut, Bytes, BytesMut};
use plinth_client::Database;
use plinth_core::Uid;
use plinth_core::output::Output;
use plinth_protocol::control::{GetWorkers, WORKER};
use plinth_protocol::coordination::COORDINATOR;
use plinth_rpc::{Interface, REQUESTS, RequestKind, frame};
use plinth_runtime::random::{self, below, chance, range};
use plinth_runtime::sim::control;
use plinth_runtime::{Duration, net, trace};
use random_fields::RandomFields;
use std::net::SocketAddr;

/// How long a stranger stays connected: shorter or longer than a server waits for a greeting.
const STAYS_MS: std::ops::Range<u64> = 10..20_000;
const BESIEGERS: usize = 6;
/// Limits of a besieger's stay and of its pause.
const SIEGE_PAUSE_MS: u64 = 500;
const NOISE_BYTES_MAX: u64 = 300;
/// Limit of drawn requests per visit.
const REQUESTS_MAX: u64 = 100;

/// Requests that do harm by design, with their effect.
pub const HARMFUL: &[(&str, &str)] = &[
    ("ReadRegister", "fences the coordinated state off"),
    ("WriteRegister", "writes the coordinated state"),
    ("Nominate", "may be elected"),
    ("Withdraw", "deposes a controller"),
    ("RegisterWorker", "is recruited, and does not exist"),
    ("CreateDatabase", "decides what the database is like"),
    ("ReportDurable", "lets logs be removed"),
    ("ChangeCoordinators", "moves the coordinated state"),
    ("KillRole", "ends a role"),
    ("AdoptKeys", "closes a process to others"),
    ("RecruitDistributor", "makes a role that takes over"),
    ("RecruitRatekeeper", "makes a role"),
    ("RecruitLog", "makes a role"),
    ("RecruitStorage", "makes a role, and files"),
    ("RecruitSequencer", "makes a role"),
    ("RecruitGrvProxy", "makes a role"),
    ("RecruitCommitProxy", "makes a role"),
    ("RecruitResolver", "makes a role"),
    ("Push", "writes to the log"),
    ("Pop", "removes from the log"),
    ("Seal", "ends the epoch"),
    ("NeedDamagedLog", "ends the process of a damaged log server"),
    ("Commit", "writes anything"),
    ("CommitRecovery", "commits the recovery transaction again"),
    ("GetRate", "counts for what a proxy has let in"),
    ("GetReadVersion", "uses up what others may begin"),
    ("GetCommitVersion", "takes a version that nobody fills"),
    ("ReportCommitted", "makes versions visible"),
    ("ResolveBatch", "takes a link of the chain"),
    (
        "GetResolverLoad",
        "takes the sample that the sequencer is to see",
    ),
];

/// Runs one stranger after the other, with pauses of up to `pause_ms`, until it is dropped.
pub async fn run(shape: Shape, pause_ms: u64, do_harm: bool) {
    // Where processes have keys, nobody without one can do harm.
    let do_harm = do_harm || shape.is_keyed;
    loop {
        plinth_runtime::sleep(Duration::from_millis(below(pause_ms))).await;
        if shape.is_keyed && chance(0.5) {
            insiders::visit(&shape).await;
            continue;
        }
        let _ = visit(&shape, do_harm).await; // a stranger may fail to connect
    }
}

/// Several strangers send all kinds of request at the same time, while clients work as far as they can. Afterwards
/// nothing is known about the data, but no process may have ended.
pub async fn besiege(shape: &Shape, database: &Database, seconds: u64) {
    control().expect_lies();
    let end = Duration::from_secs(seconds);
    let besiegers = (0..BESIEGERS).map(|_| {
        let besieging = run(shape.clone(), SIEGE_PAUSE_MS, true);
        plinth_runtime::spawn("besieger", besieging)
    });
    let _besiegers: Vec<_> = besiegers.collect();
    let working = async {
        loop {
            let key = [below(255) as u8];
            let worked = database.run(async |tr| {
                let value = tr.get(&key[..], chance(0.5)).await?;
                tr.set(&key[..], value.unwrap_or_default());
                Ok(())
            });
            let _ = plinth_runtime::timeout(Duration::from_secs(5), worked).await; // any result is allowed
            plinth_runtime::sleep(Duration::from_millis(below(200))).await;
        }
    };
    plinth_runtime::timeout(end, working).await;
}

async fn visit(shape: &Shape, do_harm: bool) -> std::io::Result<()> {
    let machine = below(shape.machines as u64) as usize;
    let process = below(shape.processes_a_machine as u64) as usize;
    let address = Shape::address(machine, process);
    let known = roles(shape).await;
    let (mut reader, mut writer) = net::connect(address).await?;
    trace!("Stranger", "machine" => machine);
    if chance(0.2) {
        let mut noise = vec![0; below(NOISE_BYTES_MAX) as usize];
        if chance(0.7) {
            random::fill(&mut noise);
        }
        writer.write_all(Bytes::from(noise)).await?;
    } else if chance(0.9) {
        writer
            .write_all(questions(shape, address, &known, do_harm))
            .await?;
    }
    let stays = match do_harm {
        true => below(SIEGE_PAUSE_MS),
        false => range(STAYS_MS),
    };
    // Some strangers read the replies.
    let reading = async {
        let mut heard = BytesMut::new();
        while chance(0.99) && reader.read(&mut heard).await.is_ok_and(|read| read > 0) {
            heard.clear();
        }
        std::future::pending::<()>().await;
    };
    plinth_runtime::timeout(Duration::from_millis(stays), reading).await;
    Ok(())
}

/// Roles that any client can learn of.
async fn roles(shape: &Shape) -> Vec<Interface> {
    // They have heard somehow.
    let transport = shape.transport();
    let asking = async {
        let info = cluster::info(shape, &transport).await?;
        let endpoint = info.controller.endpoint::<GetWorkers>();
        let workers = transport.call(&endpoint, GetWorkers {}).await.ok()?.workers;
        let on_disk = workers.iter().flat_map(|worker| {
            let ids = worker.logs.iter().map(|(id, _)| *id);
            let ids = ids.chain(worker.storage.iter().map(|(id, _)| *id));
            ids.map(|id| Interface::new(worker.worker.address, id))
        });
        let logs = info.log_system.generations.into_iter().flat_map(|g| g.logs);
        let proxies = info
            .client
            .commit_proxies
            .into_iter()
            .chain(info.client.grv_proxies);
        let single = [info.ratekeeper, info.distributor, Some(info.controller)];
        let roles = on_disk.chain(logs).chain(proxies);
        Some(roles.chain(single.into_iter().flatten()).collect())
    };
    let asked = plinth_runtime::timeout(Duration::from_secs(2), asking).await;
    asked.flatten().unwrap_or_default()
}

/// A greeting, and requests to all roles of the process.
fn questions(shape: &Shape, address: SocketAddr, known: &[Interface], do_harm: bool) -> Bytes {
    let here = known.iter().filter(|role| role.address == address);
    let mut ids: Vec<Uid> = here.map(|role| role.id).collect();
    ids.extend([WORKER, COORDINATOR]);
    let mut kinds: Vec<&RequestKind> = REQUESTS.iter().collect();
    kinds.retain(|kind| shape.draws_from(kind.module));
    kinds.sort_by_key(|kind| kind.method); // the linker's order is not stable
    let is_harmful = |kind: &RequestKind| HARMFUL.iter().any(|(name, _)| *name == kind.name);
    kinds.retain(|kind| do_harm || !is_harmful(kind));
    let mut fields = RandomFields::new(known);
    let mut out = Output::copying();
    out.buffer().put_slice(&plinth_rpc::hello_of_nobody());
    // Messages that are too large for a frame are not sent.
    for number in 0..range(1..REQUESTS_MAX) {
        let kind = kinds[below(kinds.len() as u64) as usize];
        let body = (kind.draw)(&mut fields);
        // A request is sent to all ids, because most roles handle only a few kinds of request.
        for id in &ids {
            let request_id = if chance(0.9) {
                number * 1000
            } else {
                below(10)
            };
            let _ = frame::encode(&mut out, kind.token(*id), request_id, |out| {
                out.put_shared(&body)
            });
        }
        if chance(0.1) {
            let _ = frame::encode(&mut out, frame::GIVE_UP, below(number + 1) * 1000, |_| ());
        }
    }
    out.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn every_request_has_a_number_of_its_own_and_what_is_called_harmful_exists() {
        let mut by_method = BTreeMap::new();
        for kind in REQUESTS.iter() {
            let other = by_method.insert(kind.method, kind.name);
            assert_eq!(other, None, "{} has the same number", kind.name);
        }
        assert!(by_method.len() > 50, "{by_method:?}");
        for (name, _) in HARMFUL {
            assert!(by_method.values().any(|known| known == name), "{name}");
        }
    }
}
