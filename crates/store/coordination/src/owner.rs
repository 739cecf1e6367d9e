//! Whose state coordinators hold: registers of two databases are never mixed.
//!
//! A register tells by its state of which database it is. A coordinator keeps the state of a database that was perhaps
//! served, and refuses writes of another one (`coordinator/registers.rs`). A reader that finds states of two databases
//! goes by the one that a majority has, and otherwise by none: their generations have nothing to do with each other
//! (`register.rs`). Of a database that is older than ids, the state with its id counts, and not one without, unless a
//! majority has none.

use plinth_core::Uid;
use plinth_protocol::coordination::{CoordinatedValue, ReadRegisterReply};
use plinth_protocol::database::{Owner, WITHOUT_ID, named};
use plinth_rpc::Place;

/// `None`: it is not the state of a database.
pub(crate) fn owner(value: &CoordinatedValue) -> Option<Owner> {
    Owner::of_state(value.state.clone())
}

pub(crate) fn owner_in(reply: &ReadRegisterReply) -> Option<Owner> {
    reply.value.as_ref().and_then(owner)
}

/// The database whose states count, among those that `majority` or more coordinators have told.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Whose {
    /// All that was told is of one database, or of none.
    One,
    /// Only what is of this one counts. The others are of a database that was never served, or of one that a majority
    /// has given up.
    Mostly(Owner),
    /// Nothing can be told before more answer.
    Divided,
}

pub(crate) fn whose(replies: &[ReadRegisterReply], majority: usize) -> Whose {
    let owners: Vec<Owner> = replies.iter().filter_map(owner_in).collect();
    let have = |wanted: &Owner| owners.iter().filter(|owner| owner.is_same(wanted)).count();
    let served: Vec<&Owner> = owners.iter().filter(|owner| owner.was_served()).collect();
    // The database that has an id stands for the same one without.
    let Some(first) = served.iter().max_by_key(|owner| owner.database.id) else {
        return Whose::One;
    };
    if let Some(former) = served.iter().find(|owner| owner.excludes(first))
        && former.is_same(first)
    {
        // One of both is a remainder: of the same database before it got its id, or of another one.
        let is_former =
            count(&owners, WITHOUT_ID) >= majority && count(&owners, first.database.id) < majority;
        return Whose::Mostly(if is_former { **former } else { **first });
    }
    if have(first) == owners.len() {
        return Whose::One;
    }
    if served.iter().all(|owner| owner.is_same(first)) {
        return Whose::Mostly(**first);
    }
    let most = served.iter().filter(|owner| have(owner) >= majority);
    match most.max_by_key(|owner| owner.database.id) {
        Some(owner) => Whose::Mostly(**owner),
        None => Whose::Divided,
    }
}

/// True if what these have told is of one database for certain, or of none. If a minority has told of one, and others
/// have nothing, those who are left may have told of another one.
pub(crate) fn is_sure(replies: &[ReadRegisterReply], majority: usize) -> bool {
    let owners: Vec<Owner> = replies.iter().filter_map(owner_in).collect();
    let is_held = |owner: &Owner| count(&owners, owner.database.id) >= majority;
    owners.is_empty() || owners.iter().any(is_held)
}

/// How many have the state of the database with this id.
fn count(owners: &[Owner], id: Uid) -> usize {
    let has_it = |owner: &&Owner| owner.database.id == id;
    owners.iter().filter(has_it).count()
}

/// Leaves out what is not of `owner`, as if the coordinator had nothing.
pub(crate) fn only(owner: &Owner, replies: &mut [ReadRegisterReply]) {
    for reply in replies {
        if owner_in(reply).is_some_and(|found| found.excludes(owner)) {
            (reply.value, reply.write_generation) = (None, Default::default());
        }
    }
}

/// True if a majority has the state of another database than this answer, and has it now.
pub(crate) fn is_outvoted(
    reply: &ReadRegisterReply,
    replies: &[ReadRegisterReply],
    majority: usize,
) -> bool {
    let Some(owner) = owner_in(reply) else {
        return false;
    };
    let is_against = |other: &&ReadRegisterReply| {
        owner_in(other).is_some_and(|held| held.was_served() && held.excludes(&owner))
    };
    replies.iter().filter(is_against).count() >= majority
}

/// Who holds what, for people.
pub(crate) fn divided(places: &[Place], told: &[(usize, &ReadRegisterReply)]) -> String {
    let said = places.iter().enumerate().map(|(i, place)| {
        let told = told.iter().find(|(from, _)| *from == i);
        let holds = told.map(|(_, reply)| owner_in(reply));
        match holds {
            Some(Some(owner)) => format!("{place} holds {}", named(owner.database.id)),
            Some(None) => format!("{place} holds none"),
            None => format!("{place} does not answer"),
        }
    });
    let said: Vec<String> = said.collect();
    format!(
        "the coordinators hold two databases of this cluster, and no majority of them holds the same: {}. Stop \
         those of the one that you do not want, and start each over an empty --data-dir; keep the files. See Two \
         databases of one cluster in docs/operating.md",
        said.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use plinth_core::DatabaseConfig;
    use plinth_core::codec::Codec;
    use plinth_protocol::control::{DatabaseState, FormerDatabaseState};
    use plinth_protocol::coordination::Generation;
    use plinth_protocol::database::{DatabaseId, FORMER_STATE_FORMAT, STATE_FORMAT};
    use plinth_protocol::log::LogSystem;

    const LOGS: LogSystem = LogSystem {
        generations: vec![],
    };

    fn reply(state: Option<Bytes>, number: u64) -> ReadRegisterReply {
        let writer = Uid(1);
        ReadRegisterReply {
            read_generation: Generation { number, writer },
            write_generation: Generation { number, writer },
            value: state.map(|state| CoordinatedValue {
                successor: String::new(),
                moved: false,
                state,
            }),
        }
    }

    fn of(id: u128, is_former: bool, is_confirmed: bool) -> ReadRegisterReply {
        let state = DatabaseState {
            format: STATE_FORMAT,
            epoch: 1,
            database: DatabaseId {
                id: Uid(id),
                is_former,
            },
            is_confirmed,
            config: DatabaseConfig::default(),
            log_system: LOGS,
        };
        reply(Some(state.to_bytes()), id as u64)
    }

    fn without_id() -> ReadRegisterReply {
        let state = FormerDatabaseState {
            format: FORMER_STATE_FORMAT,
            epoch: 5,
            config: DatabaseConfig::default(),
            log_system: LOGS,
        };
        reply(Some(state.to_bytes()), 50)
    }

    /// The id of the database that counts.
    fn counts(replies: &[ReadRegisterReply]) -> Option<u128> {
        match whose(replies, 2) {
            Whose::Mostly(owner) => Some(owner.database.id.0),
            _ => None,
        }
    }

    #[test]
    fn of_two_databases_the_one_counts_that_a_majority_has_and_otherwise_none() {
        let (former, new) = (|| of(9, false, true), || of(2, false, true));
        let nothing = || reply(None, 0);
        assert_eq!(whose(&[former(), former()], 2), Whose::One);
        assert_eq!(whose(&[former(), nothing(), nothing()], 2), Whose::One);
        assert_eq!(whose(&[former(), new()], 2), Whose::Divided);
        assert_eq!(whose(&[former(), new(), nothing()], 2), Whose::Divided);
        assert_eq!(counts(&[former(), new(), new()]), Some(2));
        assert_eq!(counts(&[former(), new(), former()]), Some(9));
        // What counts is left, whatever generations the others have.
        let mut replies = [former(), new(), new()];
        let Whose::Mostly(owner) = whose(&replies, 2) else {
            panic!("a majority has one");
        };
        only(&owner, &mut replies);
        assert_eq!(
            replies.map(|reply| reply.write_generation.number),
            [0, 2, 2]
        );
    }

    #[test]
    fn a_database_that_was_never_served_gives_way() {
        // One of the two attempts to create a database has failed.
        assert_eq!(counts(&[of(3, false, false), of(4, false, true)]), Some(4));
        // While both may, the generations decide, as for every value.
        let both = [of(3, false, false), of(4, false, false)];
        assert_eq!(whose(&both, 2), Whose::One);
        // One that is older than ids was served, though its id is not certain yet.
        let about_to = || of(4, true, false);
        assert_eq!(
            counts(&[about_to(), of(9, false, true), about_to()]),
            Some(4)
        );
        assert_eq!(whose(&[about_to(), of(9, false, true)], 2), Whose::Divided);
        // The next state of one that is about to be confirmed is of the same one.
        let next = [of(4, false, false), of(4, false, true)];
        assert_eq!(whose(&next, 2), Whose::One);
    }

    #[test]
    fn a_state_without_an_id_is_of_a_database_that_got_one_later_and_of_no_new_one() {
        let later = || of(4, true, true);
        assert_eq!(counts(&[without_id(), later(), later()]), Some(4));
        assert_eq!(counts(&[without_id(), later()]), Some(4), "one is late");
        // A majority had the id first, or this is another database.
        assert_eq!(counts(&[without_id(), later(), without_id()]), Some(0));
        let mut replies = [without_id(), later()];
        let Whose::Mostly(owner) = whose(&replies, 2) else {
            panic!("the one with the id");
        };
        only(&owner, &mut replies);
        assert_eq!(replies.map(|reply| reply.write_generation.number), [0, 4]);
        let about_to = [without_id(), of(4, true, false)];
        assert_eq!(whose(&about_to, 2), Whose::One);
        assert_eq!(
            whose(&[without_id(), of(4, false, true)], 2),
            Whose::Divided
        );
        let new = || of(4, false, true);
        assert_eq!(counts(&[without_id(), new(), new()]), Some(4));
    }

    #[test]
    fn what_a_minority_has_told_is_not_sure_while_the_others_have_nothing() {
        let (one, nothing) = (|| of(2, false, true), || reply(None, 0));
        assert!(is_sure(&[nothing(), nothing()], 2));
        assert!(is_sure(&[one(), one()], 2) && is_sure(&[one(), nothing(), one()], 2));
        assert!(!is_sure(&[one(), nothing()], 2) && !is_sure(&[one(), of(3, false, true)], 2));
    }

    #[test]
    fn a_mark_that_most_contradict_is_outvoted() {
        let (stray, new) = (of(9, false, true), || of(2, false, true));
        assert!(is_outvoted(&stray, &[stray.clone(), new(), new()], 2));
        assert!(!is_outvoted(&stray, &[stray.clone(), new()], 2));
        assert!(!is_outvoted(&new(), &[new(), new(), stray.clone()], 2));
        let (former, later) = (without_id(), || of(4, true, true));
        assert!(is_outvoted(&former, &[former.clone(), later(), later()], 2));
    }

    #[test]
    fn who_holds_what_is_told_by_name() {
        let places: Vec<Place> = [1, 2, 3]
            .map(|i| Place::At(([10, 0, 0, i], 1).into()))
            .into();
        let (former, new) = (without_id(), of(4, false, true));
        let line = divided(&places, &[(2, &former), (0, &new)]);
        assert!(line.contains("10.0.0.1:1 holds database 0000"), "{line}");
        assert!(line.contains("10.0.0.2:1 does not answer"), "{line}");
        assert!(
            line.contains("10.0.0.3:1 holds a database that has no id"),
            "{line}"
        );
    }
}
