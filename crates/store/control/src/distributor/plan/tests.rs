use super::*;

const LIMITS: Limits = Limits {
    moves: 100,
    moves_a_server: 100,
    shard_bytes_min: 100,
    shard_bytes_max: 1_000_000,
    shard_writes_max: 1_000,
    shards_a_team: 1,
};

fn world(replication: usize, servers: u128, shards: &[(&'static str, &[u128], u64)]) -> World {
    let server = |i| {
        let place = teams::Place {
            machine: format!("m{i}"),
            zone: format!("z{i}"),
        };
        let view = ServerView {
            alive: true,
            present: true,
            place: Some(place),
            lag: Lag::KeepsUp,
            is_damaged: false,
            advances: true,
        };
        (Uid(i), view)
    };
    let ends = shards
        .iter()
        .skip(1)
        .map(|(begin, _, _)| *begin)
        .chain(["\u{7f}"]);
    let shard =
        |((begin, team, bytes), end): (&(&'static str, &[u128], u64), &'static str)| ShardView {
            range: KeyRange::new(*begin, end),
            team: team.iter().map(|id| Uid(*id)).collect(),
            destination: vec![],
            bytes: *bytes,
            write_bytes_a_second: 0,
            can_split: true,
            stays_empty: false,
        };
    World {
        replication,
        servers: (0..servers).map(server).collect(),
        shards: shards.iter().zip(ends).map(shard).collect(),
        may_balance: true,
    }
}

/// Lets no shard be split, so that it may move.
fn keep_whole(world: &mut World) {
    for shard in &mut world.shards {
        shard.can_split = false;
    }
}

fn next(world: &World, limits: Limits) -> Vec<Step> {
    super::next(world, limits, &mut teams::Built::default())
}

fn lose(world: &mut World, id: u128) {
    world.servers.insert(Uid(id), ServerView::default());
}

fn moves(steps: &[Step]) -> Vec<(&Team, &Team, &Why)> {
    let moves = steps.iter().filter_map(|step| match step {
        Step::Move { team, to, why, .. } => Some((team, to, why)),
        _ => None,
    });
    moves.collect()
}

#[test]
fn copies_count_on_servers_that_answer_only() {
    let mut world = world(2, 4, &[("", &[0, 1], 500), ("m", &[2, 3], 500)]);
    assert_eq!(least_copies(&world), 2);
    lose(&mut world, 3);
    assert_eq!(least_copies(&world), 1);
    world.servers.remove(&Uid(2));
    assert_eq!(least_copies(&world), 0);
}

#[test]
fn a_world_in_order_is_left_alone() {
    let world = world(2, 4, &[("", &[0, 1], 500), ("m", &[2, 3], 500)]);
    assert_eq!(next(&world, LIMITS), []);
}

#[test]
fn shards_with_the_fewest_replicas_left_are_healed_first_and_keep_the_members_that_live() {
    let mut world = world(
        3,
        8,
        &[
            ("", &[0, 1, 2], 0),
            ("m", &[1, 2, 3], 0),
            ("s", &[3, 4, 5], 0),
        ],
    );
    lose(&mut world, 1);
    lose(&mut world, 0);
    let steps = next(&world, LIMITS);
    let moves = moves(&steps);
    assert_eq!(moves.len(), 2, "{moves:?}");
    assert_eq!((moves[0].0[0], moves[0].2), (Uid(0), &Why::Heal(1)));
    assert_eq!(moves[1].2, &Why::Heal(2));
    assert!(moves[0].1.contains(&Uid(2)) && moves[1].1.contains(&Uid(2)));
    assert!(!moves[0].1.contains(&Uid(0)) && !moves[0].1.contains(&Uid(1)));
}

#[test]
fn a_server_that_is_only_late_keeps_what_it_has_and_gets_nothing() {
    let shards: [(&str, &[u128], u64); 5] = [
        ("", &[0], 900),
        ("m", &[1], 10),
        ("s", &[3], 300),
        ("t", &[3], 300),
        ("u", &[3], 300),
    ];
    let mut world = world(1, 4, &shards);
    for late in [0, 2] {
        world.servers.get_mut(&Uid(late)).expect("there").present = false;
    }
    keep_whole(&mut world);
    let steps = next(&world, LIMITS);
    let one = (&vec![Uid(3)], &vec![Uid(1)], &Why::Balance);
    assert_eq!(moves(&steps), [one]);
}

fn lags(world: &mut World, id: u128, lag: Lag) {
    world.servers.get_mut(&Uid(id)).expect("there").lag = lag;
}

/// What the distributor does before it plans.
fn replace(world: &mut World) -> Vec<u128> {
    let replaced = to_replace(world);
    for id in &replaced {
        world.servers.get_mut(id).expect("there").place = None;
    }
    replaced.into_iter().map(|id| id.0).collect()
}

#[test]
fn a_server_that_is_far_behind_keeps_what_it_has_and_gets_nothing_if_others_can() {
    let shards: [(&str, &[u128], u64); 3] = [("", &[3], 300), ("m", &[3], 300), ("s", &[3], 300)];
    let mut world = world(1, 4, &shards);
    [0, 2]
        .into_iter()
        .for_each(|id| lags(&mut world, id, Lag::Suspect));
    keep_whole(&mut world);
    let one = (&vec![Uid(3)], &vec![Uid(1)], &Why::Balance);
    assert_eq!(moves(&next(&world, LIMITS)), [one]);
    assert_eq!(replace(&mut world), []);
    // Or it is new, and does not advance.
    lags(&mut world, 0, Lag::KeepsUp);
    world.servers.get_mut(&Uid(0)).expect("there").advances = false;
    assert_eq!(moves(&next(&world, LIMITS)), [one]);
    // Nobody else is left.
    lags(&mut world, 0, Lag::Suspect);
    lags(&mut world, 1, Lag::Suspect);
    lags(&mut world, 3, Lag::Suspect);
    assert_eq!(moves(&next(&world, LIMITS)), [], "all wait for the same");
}

#[test]
fn a_late_server_is_replaced_if_a_copy_of_each_of_its_shards_keeps_up() {
    let shards: [(&str, &[u128], u64); 2] = [("", &[0, 1], 10), ("m", &[0, 2], 10)];
    let mut world = world(2, 5, &shards);
    lags(&mut world, 0, Lag::Late);
    lags(&mut world, 4, Lag::Suspect);
    assert_eq!(replace(&mut world), [0]);
    let steps = next(&world, LIMITS);
    for (team, to, why) in moves(&steps) {
        assert!(!to.contains(&Uid(0)) && !to.contains(&Uid(4)), "{to:?}");
        assert_eq!((to.contains(&team[1]), why), (true, &Why::Drain));
    }
    assert_eq!(moves(&steps).len(), 2);
}

#[test]
fn while_all_copies_of_a_shard_are_far_behind_it_stays_and_nobody_who_has_it_is_replaced() {
    let shards: [(&str, &[u128], u64); 3] =
        [("", &[0, 1], 10), ("m", &[0, 2], 10), ("s", &[4, 5], 10)];
    let mut world = world(2, 8, &shards);
    [0, 1, 4]
        .into_iter()
        .for_each(|id| lags(&mut world, id, Lag::Late));
    assert_eq!(replace(&mut world), [4]);
    // Even if somebody has to go, or is gone.
    for id in [0, 2] {
        world.servers.get_mut(&Uid(id)).expect("there").place = None;
    }
    let moved = |world: &World| -> Vec<Team> {
        let steps = next(world, LIMITS);
        let moved = moves(&steps).into_iter().map(|(team, ..)| team.clone());
        moved.collect()
    };
    let (second, third) = (vec![Uid(0), Uid(2)], vec![Uid(4), Uid(5)]);
    assert_eq!(moved(&world), [second, third.clone()]);
    lose(&mut world, 2);
    assert_eq!(moved(&world), [third]);
}

#[test]
fn who_holds_nothing_is_not_replaced_while_everybody_is_late() {
    let mut world = world(1, 3, &[("", &[0], 10)]);
    (0..3).for_each(|id| lags(&mut world, id, Lag::Late));
    assert_eq!(replace(&mut world), []);
    lags(&mut world, 2, Lag::KeepsUp);
    assert_eq!(replace(&mut world), [1]);
}

#[test]
fn bytes_are_not_balanced_while_an_operator_has_said_so_and_other_steps_go_on() {
    let shards: [(&str, &[u128], u64); 3] = [("", &[0], 400), ("m", &[0], 400), ("s", &[2], 0)];
    let mut world = world(1, 3, &shards);
    world.servers.get_mut(&Uid(2)).expect("there").place = None;
    keep_whole(&mut world);
    // No shard is joined.
    let limits = Limits {
        shards_a_team: 100,
        ..LIMITS
    };
    assert!(
        moves(&next(&world, limits))
            .iter()
            .any(|(_, _, why)| **why == Why::Balance)
    );
    world.may_balance = false;
    assert_eq!(
        moves(&next(&world, limits)),
        [(&vec![Uid(2)], &vec![Uid(1)], &Why::Drain)]
    );
}

#[test]
fn what_nobody_has_any_more_is_waited_for() {
    let mut world = world(1, 2, &[("", &[0], 10)]);
    lose(&mut world, 0);
    assert_eq!(next(&world, LIMITS), []);
}

#[test]
fn a_server_that_is_to_go_is_drained_by_those_who_may_stay() {
    let mut world = world(1, 3, &[("", &[0], 10), ("m", &[1], 10)]);
    world.servers.get_mut(&Uid(0)).expect("there").place = None;
    let steps = next(&world, LIMITS);
    assert_eq!(moves(&steps), [(&vec![Uid(0)], &vec![Uid(2)], &Why::Drain)]);
}

#[test]
fn moves_are_bounded_in_all_and_for_each_server() {
    let shards: Vec<(&str, &[u128], u64)> = ["", "b", "c", "d", "e"]
        .map(|begin| (begin, &[0][..], 0))
        .to_vec();
    let mut world = world(1, 2, &shards);
    world.servers.get_mut(&Uid(0)).expect("there").place = None;
    let count = |in_all, moves_a_server| {
        let limits = Limits {
            moves: in_all,
            moves_a_server,
            ..LIMITS
        };
        moves(&next(&world, limits)).len()
    };
    assert_eq!((count(100, 2), count(3, 100), count(100, 100)), (2, 3, 5));
}

#[test]
fn bytes_become_even_and_then_nothing_moves() {
    let begins: Vec<&'static str> = (0..26)
        .map(|i| &"abcdefghijklmnopqrstuvwxyz"[i..=i])
        .collect();
    let shards: Vec<(&str, &[u128], u64)> = begins
        .iter()
        .map(|begin| (*begin, &[0, 1][..], 300))
        .collect();
    let mut world = world(2, 8, &shards);
    let limits = Limits {
        moves: 2,
        shards_a_team: 100,
        ..LIMITS
    };
    for _ in 0..200 {
        let steps = next(&world, limits);
        if steps.is_empty() {
            break;
        }
        for step in steps {
            let Step::Move { range, to, why, .. } = step else {
                continue;
            };
            assert_eq!(why, Why::Balance);
            let shard = world.shards.iter_mut().find(|shard| shard.range == range);
            shard.expect("it was there").team = to;
        }
    }
    let load = |id: u128| {
        let held = world
            .shards
            .iter()
            .filter(|shard| shard.team.contains(&Uid(id)));
        held.map(|shard| shard.bytes).sum::<u64>()
    };
    let loads: Vec<u64> = (0..8).map(load).collect();
    assert!(
        loads.iter().all(|load| (1500..=2400).contains(load)),
        "{loads:?}"
    );
    assert_eq!(next(&world, limits), []);
}

#[test]
fn while_enough_is_on_its_way_nothing_more_is_moved() {
    let begins: Vec<&'static str> = (0..26)
        .map(|i| &"abcdefghijklmnopqrstuvwxyz"[i..=i])
        .collect();
    let limits = Limits {
        shards_a_team: 100,
        ..LIMITS
    };
    for (replication, team) in [(1, &[0][..]), (2, &[0, 1])] {
        let shards: Vec<_> = begins.iter().map(|begin| (*begin, team, 300)).collect();
        let mut world = world(replication, 4, &shards);
        let mut sent = 0;
        for step in next(&world, limits) {
            let Step::Move { range, to, .. } = step else {
                continue;
            };
            let shard = world.shards.iter_mut().find(|shard| shard.range == range);
            shard.expect("it was there").destination = to;
            sent += 1;
        }
        assert!(sent >= 13, "{sent} are sent to others");
        assert_eq!(moves(&next(&world, limits)), []);
    }
}

#[test]
fn large_and_busy_shards_are_split_and_small_neighbours_joined() {
    let mut world = world(
        1,
        2,
        &[
            ("", &[0], 50_000),
            ("b", &[1], 0),
            ("c", &[1], 1),
            ("d", &[1], 50_000),
        ],
    );
    world.shards[3].write_bytes_a_second = 2_000;
    world.shards[3].bytes = 100;
    let steps = next(&world, Limits { moves: 0, ..LIMITS });
    let shape = |step: &Step| match step {
        Step::Split {
            bytes,
            write_bytes_a_second,
            ..
        } => ("split", *bytes > 0, *write_bytes_a_second > 0),
        Step::Merge { .. } => ("merge", false, false),
        Step::Move { .. } => ("move", false, false),
    };
    let shapes: Vec<_> = steps.iter().map(shape).collect();
    assert_eq!(
        shapes,
        [
            ("split", true, false),
            ("split", false, true),
            ("merge", false, false)
        ]
    );
}

#[test]
fn what_stays_empty_is_brought_to_a_neighbour_and_joined_however_few_shards_there_are() {
    let mut world = world(
        1,
        3,
        &[
            // So few bytes that balancing is not worth a move.
            ("", &[0], 4),
            ("b", &[1], 0),
            ("c", &[2], 0),
            ("d", &[0], 4),
        ],
    );
    let limits = Limits {
        shards_a_team: 100,
        ..LIMITS
    };
    assert_eq!(next(&world, limits), [], "they have only just become empty");
    for _ in 0..4 {
        for shard in &mut world.shards {
            shard.stays_empty = shard.bytes == 0;
        }
        for step in next(&world, limits) {
            match step {
                Step::Move { range, to, why, .. } => {
                    assert_eq!(why, Why::Join);
                    let shard = world.shards.iter_mut().find(|shard| shard.range == range);
                    shard.expect("it was there").team = to;
                }
                Step::Merge { left, right } => {
                    world.shards.retain(|shard| shard.range != right);
                    let shard = world.shards.iter_mut().find(|shard| shard.range == left);
                    let shard = shard.expect("it was there");
                    shard.range.end = right.end;
                    shard.bytes = 4;
                }
                Step::Split { .. } => panic!("nothing is large"),
            }
        }
    }
    let begins: Vec<&[u8]> = world.shards.iter().map(|s| &s.range.begin[..]).collect();
    assert_eq!(begins, [&b""[..], b"c"]);
}
