//! Coordinators: generation registers (disk Paxos) and the election of the cluster controller.

use bytes::Bytes;
use plinth_core::{Uid, codec_for, record};
use plinth_rpc::{Interface, requests};
use std::net::SocketAddr;

/// The role id at which every coordinator serves, whatever its process: a cluster file has addresses only.
pub const COORDINATOR: Uid = Uid(0x636f_6f72_6469_6e61_746f_7200_0000_0001);

pub fn coordinator(address: SocketAddr) -> Interface {
    Interface::new(address, COORDINATOR)
}

/// Orders the attempts to read and write a register; unique through the writer's id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Generation {
    pub number: u64,
    pub writer: Uid,
}

codec_for!(Generation {
    number: u64,
    writer: Uid,
});

record! {
    /// What a register holds.
    pub struct CoordinatedValue {
        /// The cluster file of the coordinators that follow these; empty while these are the coordinators.
        pub successor: String,
        /// The successor has the state: whoever asks here is sent there.
        pub moved: bool,
        /// The controller's; it no longer changes once there is a successor.
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

    /// Somebody who leads or wants to.
    pub struct Candidate {
        pub controller: Interface,
        /// Lower is better: the process class's fitness for the role.
        pub priority: u32,
    }

    /// Asks this coordinator for its vote; repeated while the candidate waits and, as a heartbeat, while it leads.
    pub struct Nominate {
        pub register: String,
        pub candidate: Candidate,
        /// The candidate believes that a majority nominated it.
        pub leading: bool,
    }

    pub struct NominateReply {
        pub nominee: Candidate,
    }

    /// The leader steps down, or saw that its candidate is gone.
    pub struct Withdraw {
        pub register: String,
        pub id: Uid,
    }

    pub struct GetLeader {
        pub register: String,
    }

    pub struct GetLeaderReply {
        pub leader: Option<Candidate>,
        /// It keeps a register of this name: without one it is a server, but none of these coordinators.
        pub is_coordinator: bool,
        /// The cluster file of the coordinators that have followed those asked for, if they have; else empty.
        pub successor: String,
        /// It has lost what it promised, and serves no register: a number of this start of it.
        pub lost: Option<Uid>,
    }

    /// The set of coordinators of this register has just been decided on, and was not before this coordinator said that it
    /// is `lost`: it may serve this register, and later ones.
    pub struct BeginRegister {
        pub register: String,
        pub lost: Uid,
    }
}

requests! {
    ReadRegister = 10 => ReadRegisterReply;
    WriteRegister = 11 => WriteRegisterReply;
    Nominate = 12 => NominateReply;
    Withdraw = 13 => ();
    GetLeader = 14 => GetLeaderReply;
    BeginRegister = 15 => ();
}
