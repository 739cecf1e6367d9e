//! The first state of a new database.

use bytes::Bytes;
use plinth_core::codec::Codec;
use plinth_core::system_keys::{self as keys, ShardRecord, StorageServerRecord};
use plinth_core::{DatabaseConfig, Uid};

/// Rows of the system keyspace: the configuration, the storage servers, and which team holds which shard.
/// `teams` are indexes into `servers`.
pub fn initial_state(
    config: &DatabaseConfig,
    servers: &[(Uid, StorageServerRecord)],
    teams: &[Vec<usize>],
    user_shards: usize,
) -> Vec<(Bytes, Bytes)> {
    assert!(!teams.is_empty(), "a database needs a team");
    let next_tag = servers.iter().map(|(_, record)| record.tag.0 + 1).max();
    let mut rows = vec![
        (Bytes::from_static(keys::CONFIG), config.to_bytes()),
        (
            Bytes::from_static(keys::NEXT_TAG),
            next_tag.unwrap_or(0).to_bytes(),
        ),
    ];
    for (id, record) in servers {
        rows.push((keys::server_list_key(*id), record.to_bytes()));
    }
    for (i, begin) in boundaries(teams.len(), user_shards).into_iter().enumerate() {
        let team = teams[i % teams.len()]
            .iter()
            .map(|server| servers[*server].0)
            .collect();
        rows.push((
            keys::key_servers_key(&begin),
            ShardRecord {
                team,
                destination: vec![],
            }
            .to_bytes(),
        ));
    }
    rows.sort();
    rows
}

/// Where shards begin, ascending, the first at the empty key; the system keyspace is a shard of its own as soon as there is
/// more than one team. Nobody knows yet where data will be: the distributor cuts shards as it comes.
fn boundaries(teams: usize, user_shards: usize) -> Vec<Vec<u8>> {
    if teams == 1 {
        return vec![vec![]];
    }
    let user_shards = user_shards.clamp(1, 255);
    let mut begins = vec![vec![]];
    begins.extend((1..user_shards).map(|i| vec![(i * 255 / user_shards) as u8]));
    begins.push(vec![0xff]);
    begins
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_begins_with_one_shard_and_one_for_the_system_unless_more_are_asked_for() {
        assert_eq!(boundaries(3, 1), [vec![], vec![0xff]]);
        assert_eq!(boundaries(1, 4).len(), 1);
        let begins = boundaries(3, 12);
        assert_eq!((begins.len(), &begins[0][..]), (13, &[][..]));
        assert_eq!(begins.last(), Some(&vec![0xff]));
        assert!(
            begins.windows(2).all(|pair| pair[0] < pair[1]),
            "{begins:?}"
        );
        assert_eq!(boundaries(200, 3_200).len(), 256);
    }
}
