//! A record of the register, as the engine sees it.

use plinth_farm_engine::recovery::Author;
use plinth_farm_engine::{Configuration, Place, Seat};
use plinth_farm_fabric::Machine;
use plinth_farm_member::{Record, Replica};

/// `None` if there is no configuration yet.
pub fn of(record: &Record) -> Option<Configuration> {
    let configuration = record.configuration.as_ref()?;
    let author = |seat: &plinth_farm_member::Seat| {
        let since = configuration.member(seat.id)?.since;
        let machine = Machine(seat.machine);
        Some(Author { machine, since })
    };
    let seat = |replica: &Replica| Seat {
        place: Place {
            machine: Machine(replica.machine),
            slot: replica.slot,
        },
        is_whole: replica.is_whole,
    };
    let regions = record.regions.iter();
    let authors: Vec<Author> = record.machines.iter().filter_map(author).collect();
    assert_eq!(
        authors.len(),
        record.machines.len(),
        "configuration {} lacks machines of the record",
        configuration.number
    );
    Some(Configuration {
        number: configuration.number,
        authors,
        master: Machine(record.master()?.machine),
        regions: regions.map(|all| all.iter().map(seat).collect()).collect(),
    })
}
