//! Helpers for the tests of several modules.

use plinth_core::Uid;
use plinth_protocol::control::{Locality, ProcessClass, RegisterWorker, SickDisk, WORKER};
use plinth_rpc::Interface;

/// The process at this port of one machine. It is alone in its zone unless other workers name the same zone.
pub fn worker(port: u16, class: ProcessClass, zone: &str) -> RegisterWorker {
    RegisterWorker {
        worker: Interface::new(([10, 0, 0, 1], port).into(), WORKER),
        name: None,
        declared: class,
        given: None,
        locality: Locality {
            process: Uid(u128::from(port)),
            machine: zone.into(),
            zone: zone.into(),
            data_hall: String::new(),
            data_center: String::new(),
        },
        logs: vec![],
        storage: vec![],
        damaged: vec![],
        older: vec![],
        unreachable: vec![],
        disk: None,
        epoch: 0,
        database: Uid(0),
        holds_data: false,
        lost_registers: false,
    }
}

/// A disk that does not work.
pub fn sick() -> SickDisk {
    SickDisk {
        directory: "/d".into(),
        what: "it fails".into(),
        since_ms: 0,
        works: false,
    }
}
