//! What the coordinators keep of the database, as epochs write it.

use bytes::Bytes;
use plinth_core::Uid;
use plinth_core::codec::Codec;
use plinth_core::hash::hash_bytes;
use plinth_protocol::control::{DatabaseState, FormerDatabaseState};
use plinth_protocol::database::{DatabaseId, STATE_FORMAT};
use plinth_protocol::log::LogGeneration;

/// Decodes a state. One that a former version has left has no id: its database gets one of `writer`, whose own is
/// random, unless another recovery gives it its own before. Two such databases never get the same.
pub(super) fn decoded(bytes: Bytes, writer: Uid) -> Option<DatabaseState> {
    if u32::take(&mut bytes.clone())? == STATE_FORMAT {
        return DatabaseState::from_bytes(bytes);
    }
    let id = Uid(writer.0 ^ u128::from(hash_bytes(&bytes)));
    let former = FormerDatabaseState::from_bytes(bytes)?;
    Some(DatabaseState {
        format: STATE_FORMAT,
        epoch: former.epoch,
        database: DatabaseId {
            id,
            is_former: true,
        },
        is_confirmed: false,
        config: former.config,
        log_system: former.log_system,
    })
}

/// What is wrong with a state; `None` if an epoch can have written it. Whoever writes one makes sure of that. Whoever
/// reads one cannot rely on it: the files of coordinators can be changed by others.
pub(super) fn contradiction(state: &DatabaseState) -> Option<String> {
    let generations = &state.log_system.generations;
    let Some(current) = generations.last() else {
        return Some("it has no log".into());
    };
    if current.epoch != state.epoch {
        return Some(format!(
            "epoch {} has the log of epoch {}",
            state.epoch, current.epoch
        ));
    }
    // Where disks have lied, an epoch may end before the one before it. It never begins before it.
    let follows =
        |pair: &[LogGeneration]| pair[0].epoch < pair[1].epoch && pair[0].start <= pair[1].start;
    if let Some(pair) = generations.windows(2).find(|pair| !follows(pair)) {
        let [before, next] = [&pair[0], &pair[1]];
        return Some(format!(
            "the log of epoch {} begins at {}, and that of epoch {} before it at {}",
            next.epoch, next.start, before.epoch, before.start
        ));
    }
    let is_whole = |log: &LogGeneration| {
        let copies = 1..=log.logs.len();
        copies.contains(&(log.replication as usize))
            && (1..=log.recovered_to.saturating_add(1)).contains(&log.start)
    };
    let broken = generations.iter().find(|log| !is_whole(log))?;
    Some(format!(
        "epoch {} keeps {} copies on {} log servers, from {} on, and the epoch before it ends at {}",
        broken.epoch,
        broken.replication,
        broken.logs.len(),
        broken.start,
        broken.recovered_to
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_core::DatabaseConfig;
    use plinth_protocol::database::FORMER_STATE_FORMAT;
    use plinth_protocol::log::LogSystem;
    use plinth_rpc::Interface;

    #[test]
    fn a_state_that_no_epoch_can_have_written_says_what_is_wrong() {
        let log = |epoch, start, recovered_to| LogGeneration {
            epoch,
            logs: vec![Interface::new(([10, 0, 0, 1], 1).into(), Uid(1)); 2],
            replication: 2,
            tags_a_set: 2,
            start,
            recovered_to,
        };
        let state = |epoch, generations: Vec<LogGeneration>| DatabaseState {
            format: STATE_FORMAT,
            epoch,
            database: DatabaseId {
                id: Uid(1),
                is_former: false,
            },
            is_confirmed: true,
            config: DatabaseConfig::default(),
            log_system: LogSystem { generations },
        };
        let said = |epoch, generations| contradiction(&state(epoch, generations));
        assert_eq!(said(1, vec![log(1, 1, 0)]), None);
        assert_eq!(said(3, vec![log(1, 1, 0), log(3, 90, 100)]), None);
        let wrong = [
            said(1, vec![]),
            said(2, vec![log(1, 1, 0)]),
            said(2, vec![log(2, 1, 0), log(2, 90, 100)]),
            said(3, vec![log(1, 91, 100), log(3, 90, 100)]),
            said(1, vec![log(1, 5, 3)]),
            said(
                1,
                vec![LogGeneration {
                    replication: 3,
                    ..log(1, 1, 0)
                }],
            ),
            said(
                1,
                vec![LogGeneration {
                    replication: 0,
                    ..log(1, 1, 0)
                }],
            ),
        ];
        assert!(wrong.iter().all(Option::is_some), "{wrong:?}");
    }
    #[test]
    fn a_state_of_a_former_version_gets_an_id_that_must_be_confirmed() {
        let former = FormerDatabaseState {
            format: FORMER_STATE_FORMAT,
            epoch: 7,
            config: DatabaseConfig::default(),
            log_system: LogSystem {
                generations: vec![],
            },
        };
        let state = decoded(former.to_bytes(), Uid(5)).expect("readable");
        assert_eq!((state.format, state.epoch), (STATE_FORMAT, 7));
        assert!(state.database.is_former && !state.is_confirmed);
        let other = FormerDatabaseState { epoch: 8, ..former };
        let other = decoded(other.to_bytes(), Uid(5)).expect("readable");
        assert_ne!(state.database.id, other.database.id, "of one controller");
        // The next recovery does not give it another one.
        let next = decoded(state.to_bytes(), Uid(6));
        assert_eq!(next, Some(state));
    }
}
