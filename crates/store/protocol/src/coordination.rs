//! Coordinators: generation registers (disk Paxos) and the election of the cluster controller.

use bytes::Bytes;
use plinth_core::hash::hash_bytes;
use plinth_core::{Uid, record};
use plinth_rpc::{Call, Interface, Place, Request, Transport, requests};
use plinth_runtime::planted;
use std::net::SocketAddr;

/// Role id at which every coordinator serves that is called by its address. It is the same in every process, because a
/// cluster file has no ids.
pub const COORDINATOR: Uid = Uid(0x636f_6f72_6469_6e61_746f_7200_0000_0001);

pub fn coordinator(address: SocketAddr) -> Interface {
    Interface::new(address, COORDINATOR)
}

/// Role id of the coordinator at this place. The id of a name is served only by the process that has the name: any
/// process may be found at its former address, perhaps another coordinator, and must not vote in its place.
pub fn coordinator_id(place: &Place) -> Uid {
    if !place.is_named()
        || planted!(
            "whoever_answers_is_believed",
            "a coordinator is whoever is found at the address of its name"
        )
    {
        return COORDINATOR;
    }
    let half = |part: &str| hash_bytes(format!("coordinator {part} {place}").as_bytes());
    Uid::from_parts(half("first"), half("second"))
}

/// Asks the coordinator at `place`.
pub fn ask<R: Request>(transport: &Transport, place: &Place, request: R) -> Call<R> {
    transport.call_at(place, coordinator_id(place), request)
}

record! {
    /// Orders the attempts to read and write a register; unique through the writer's id.
    #[derive(Copy, Eq, PartialOrd, Ord, Default, Hash)]
    pub struct Generation {
        pub number: u64,
        pub writer: Uid,
    }

    /// The content of a register.
    pub struct CoordinatedValue {
        /// The cluster file of the coordinators that follow these; empty while these are the coordinators.
        pub successor: String,
        /// The successor has the state: clients of these coordinators are redirected to it.
        pub moved: bool,
        /// The state of the cluster controller. It no longer changes once there is a successor.
        pub state: Bytes,
    }

    /// Reads the register and fences every write below `generation`.
    pub struct ReadRegister {
        /// Names the set of coordinators, and so the register; a coordinator of another cluster refuses.
        pub register: String,
        pub generation: Generation,
    }

    pub struct ReadRegisterReply {
        /// The highest generation that ever read here, this read included.
        pub read_generation: Generation,
        /// Generation of the write that left `value`.
        pub write_generation: Generation,
        pub value: Option<CoordinatedValue>,
    }

    /// Writes unless a higher generation has read or written.
    pub struct WriteRegister {
        pub register: String,
        pub generation: Generation,
        pub value: CoordinatedValue,
    }

    pub struct WriteRegisterReply {
        pub accepted: bool,
        /// The highest generation seen here.
        pub highest: Generation,
    }

    /// A cluster controller, or a candidate for that role.
    pub struct Candidate {
        pub controller: Interface,
        /// Lower is better: the process class's fitness for the role.
        pub priority: u32,
    }

    /// Asks this coordinator for its vote; repeated while the candidate waits and, as a heartbeat, while it leads.
    pub struct Nominate {
        pub register: String,
        pub candidate: Candidate,
        /// True if the candidate has been nominated by a majority, as far as it knows.
        pub leading: bool,
    }

    pub struct NominateReply {
        pub nominee: Candidate,
    }

    /// The candidate with this id withdraws: the leader steps down, or a candidate gives up.
    pub struct Withdraw {
        pub register: String,
        pub id: Uid,
    }

    pub struct GetLeader {
        pub register: String,
    }

    pub struct GetLeaderReply {
        pub leader: Option<Candidate>,
        /// The server keeps a register of this name. Without one it is not among the coordinators that were asked for.
        pub is_coordinator: bool,
        /// The cluster file of the coordinators that succeeded those asked for; empty if none did.
        pub successor: String,
        /// Set if the coordinator has lost its promises and so serves no register: an id of this start of the
        /// coordinator.
        pub lost: Option<Uid>,
        /// The database that the register holds; zero for one of a version that knew no ids. `None`: it holds none, or
        /// none that was served, or the state of another system.
        pub database: Option<Uid>,
    }

    /// Allows a coordinator that is `lost` to serve this register and later ones. The set of coordinators of this
    /// register was decided on only after the coordinator had reported that it is `lost`, so it made no promises for
    /// it before.
    pub struct BeginRegister {
        pub register: String,
        pub lost: Uid,
    }
}

requests! {
    ReadRegister = 10 for Servers => ReadRegisterReply;
    WriteRegister = 11 for Servers => WriteRegisterReply;
    Nominate = 12 for Servers => NominateReply;
    Withdraw = 13 for Servers => ();
    GetLeader = 14 for Readers => GetLeaderReply;
    BeginRegister = 15 for Servers => ();
}
