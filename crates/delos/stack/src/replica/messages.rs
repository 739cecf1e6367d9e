//! What clients and operators say to the process of a replica, and what it answers.

use crate::engines::roster::Member;
use bytes::Bytes;
use plinth_core::{Uid, record, variants};
use plinth_rpc::{Interface, requests};
use std::net::SocketAddr;

/// Role id at which every process of a replica serves: others know it by its address alone.
pub const PROCESS: Uid = Uid(0x6465_6c6f_7300_7265_706c_6963_6100_0001);

/// The process of a replica at an address.
pub fn process(address: SocketAddr) -> Interface {
    Interface::new(address, PROCESS)
}

variants! {
    /// What a service said to a request.
    #[derive(Eq)]
    pub enum Called {
        /// The answer.
        Done(answer: Bytes) = 0,
        /// The service refused it, and nothing has changed: a word for programs and a line for people.
        Refused { code: String, why: String } = 1,
        /// It was not executed. Only the replica with this address executes requests now.
        Elsewhere(address: SocketAddr) = 2,
        /// There is no answer. If it `may_be_done`, it may be executed, now or later; otherwise it is not.
        Lost { may_be_done: bool, why: String } = 3,
    }
}

record! {
    /// Asks a process who it is.
    pub struct Greet {}

    pub struct Greeting {
        /// The service's file, if the process has a replica; else empty.
        pub service: String,
        pub kind: String,
        pub name: String,
        /// Its log server.
        pub log_server: Interface,
        /// Kinds of services that it can host.
        pub kinds: Vec<String>,
        pub release: String,
    }

    /// Makes a process that has no replica a replica of a service.
    pub struct Adopt {
        /// The service's file.
        pub service: String,
        pub kind: String,
        pub name: String,
    }

    /// A request to the service.
    pub struct CallService {
        pub operation: String,
        pub request: Bytes,
    }

    pub struct AskStatus {}

    #[derive(Default)]
    pub struct ReplicaStatus {
        pub service: String,
        pub kind: String,
        pub name: String,
        pub id: u64,
        pub release: String,
        /// What it waits for; empty if it serves.
        pub waits_for: String,
        /// Its disk has no room: for its rows, or for its part of the log.
        pub disk_full: bool,
        pub applied: u64,
        pub flushed: u64,
        /// Each switchable engine, and whether it is on.
        pub engines: Vec<(String, bool)>,
        pub members: Vec<(u64, Member)>,
        /// Replicas for which the log is kept, as this one saw them last.
        pub in_view: Vec<u64>,
        pub lease_holder: Option<u64>,
        /// First position and description of each loglet.
        pub loglets: Vec<(u64, Bytes)>,
        /// From the bottom of the stack to its top.
        pub measured: Vec<EngineStatus>,
    }

    /// What went through an engine of this replica since it started.
    pub struct EngineStatus {
        pub name: String,
        pub proposals: u64,
        pub syncs: u64,
        /// Of the proposals, with all that is below the engine: in steps of a power of two.
        pub median_us: u64,
        pub p99_us: u64,
    }

    /// What an operator's request led to.
    #[derive(Default)]
    pub struct Told {
        /// Position in the log, if it has one.
        pub pos: u64,
        /// Why it is refused; empty if it is done.
        pub refused: String,
    }

    pub struct SwitchEngine {
        pub engine: String,
        pub on: bool,
    }

    pub struct RemoveReplica {
        pub id: u64,
    }

    /// Marks a position at which all replicas remember their checksums.
    pub struct MarkLog {}

    /// Asks for the checksum at a mark.
    pub struct AskChecksum {
        pub mark: u64,
    }

    pub struct ChecksumAt {
        pub applied: u64,
        pub checksum: Option<u64>,
    }

    /// Lets another loglet take the entries from now on.
    pub struct ReconfigureLog {
        /// The process that gives positions.
        pub sequencer: SocketAddr,
        pub servers: Vec<Interface>,
    }

    /// Asks for a page of the rows that a replica has on disk. Without a `copy` it begins one.
    pub struct CopyStore {
        pub copy: Option<u64>,
        /// The rows behind this key.
        pub after: Option<Bytes>,
    }

    pub struct CopiedPage {
        /// Names the copy, as long as its pages are asked for one after the other.
        pub copy: u64,
        /// The rows are those of this position.
        pub pos: u64,
        pub checksum: u64,
        /// None at the end.
        pub rows: Vec<(Bytes, Bytes)>,
    }

    /// Begins a backup in a place, or goes on with the one that is there.
    pub struct BackUp {
        pub place: String,
    }

    pub struct AskBackup {}

    /// How far the backup is, as far as the replica knows.
    #[derive(Default)]
    pub struct BackupStatus {
        /// Empty if the backup is off, or no place was named.
        pub place: String,
        /// The service can be restored to any position from this one on.
        pub from: Option<u64>,
        /// All entries before this one are in the backup.
        pub next: u64,
        pub applied: u64,
        /// What hinders the replica; empty if nothing does.
        pub problem: String,
    }

    /// Makes a process that has no replica the first one of a service that is restored from a backup.
    pub struct Restore {
        /// The service's file.
        pub service: String,
        pub name: String,
        /// Where the backup is.
        pub place: String,
        /// All that is there, without one.
        pub to: Option<u64>,
        /// How many replicas the service will have.
        pub replicas: u64,
    }

    /// What was restored.
    #[derive(Default)]
    pub struct Restored {
        /// The position in the old service's log.
        pub pos: u64,
        /// The new service's log begins there.
        pub first: u64,
        pub kind: String,
        /// Why it is refused; empty if it is done.
        pub refused: String,
    }

    pub struct AskLoad {}

    /// What a replica has done since it started.
    pub struct Load {
        /// What it waits for; empty if it serves.
        pub waits_for: String,
        pub applied: u64,
        pub flushed: u64,
        /// The last entry of the log that it knows of.
        pub tail: u64,
        /// The entries before this one may go from the log, as far as it is concerned.
        pub trimmed: u64,
        /// The last entry in the backup, if there is one.
        pub backup: Option<u64>,
        /// From the bottom of the stack to its top.
        pub engines: Vec<EngineLoad>,
    }

    pub struct EngineLoad {
        pub name: String,
        pub proposals: u64,
        pub syncs: u64,
        /// How many proposals took up to 1 µs, up to 2 µs, and so on; one in sixteen is measured.
        pub times: Vec<u64>,
    }

    /// Nobody needs the entries before this position any more; replicas may still keep them.
    pub struct TrimLog {
        pub before: u64,
    }
}

requests! {
    Greet = 120 for Servers => Greeting;
    Adopt = 121 for Servers => Told;
    CallService = 122 for Clients => Called;
    AskStatus = 123 for Clients => ReplicaStatus;
    SwitchEngine = 124 for Operators => Told;
    RemoveReplica = 125 for Operators => Told;
    MarkLog = 126 for Operators => Told;
    AskChecksum = 127 for Operators => ChecksumAt;
    ReconfigureLog = 128 for Operators => Told;
    TrimLog = 129 for Operators => Told;
    CopyStore = 130 for Servers => CopiedPage;
    BackUp = 131 for Operators => Told;
    AskBackup = 132 for Operators => BackupStatus;
    Restore = 133 for Servers => Restored;
    AskLoad = 134 for Clients => Load;
}

impl Told {
    pub fn done(pos: u64) -> Told {
        let refused = String::new();
        Told { pos, refused }
    }

    pub fn refused(why: impl Into<String>) -> Told {
        let refused = why.into();
        Told { pos: 0, refused }
    }
}

impl Restored {
    pub fn refused(why: String) -> Restored {
        Restored {
            refused: why,
            ..Restored::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_core::codec::Codec;
    use plinth_core::testing::fuzz;
    use plinth_rpc::Request;

    #[test]
    fn only_servers_say_what_a_process_becomes_a_replica_of_and_take_its_store() {
        let all = [Adopt::AUDIENCE, Restore::AUDIENCE, CopyStore::AUDIENCE];
        assert_eq!(all, [Greet::AUDIENCE; 3]);
        assert_ne!(Greet::AUDIENCE, SwitchEngine::AUDIENCE, "an operator's");
    }

    #[test]
    fn a_damaged_answer_is_refused_or_means_what_it_says() {
        let answers = [
            Called::Done(Bytes::from_static(b"{}")),
            Called::Refused {
                code: "held".into(),
                why: "one has it".into(),
            },
            Called::Elsewhere(([10, 0, 0, 1], 7).into()),
            Called::Lost {
                may_be_done: true,
                why: "it is gone".into(),
            },
        ];
        let good = answers.map(|answer| {
            assert_eq!(Called::from_bytes(answer.to_bytes()), Some(answer.clone()));
            answer.to_bytes().to_vec()
        });
        fuzz("delos called", 1, good, |input| {
            let Some(value) = Called::from_bytes(Bytes::copy_from_slice(input)) else {
                return false;
            };
            assert_eq!(Called::from_bytes(value.to_bytes()), Some(value));
            true
        });
    }
}
