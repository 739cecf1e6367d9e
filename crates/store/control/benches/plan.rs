//! Cost of one look of the data distributor at the largest size that Plinth is made for: 300 storage servers and
//! 100,000 shards. The distributor takes this work off the event loop.

use criterion::{Criterion, criterion_group, criterion_main};
use plinth_control::distributor::plan::{self, Limits, ServerView, ShardView, World};
use plinth_control::distributor::teams::{self, Place};
use plinth_control::replica::Lag;
use plinth_core::Uid;
use plinth_core::key::KeyRange;
use std::collections::{BTreeMap, BTreeSet};

const MACHINES: usize = 75;
const SERVERS_A_MACHINE: usize = 4;
const SHARDS: usize = 100_000;

const LIMITS: Limits = Limits {
    moves: 20,
    moves_a_server: 2,
    shard_bytes_min: 10_000_000,
    shard_bytes_max: 500_000_000,
    shard_writes_max: 10_000_000,
    shards_a_team: 100,
};

fn servers() -> BTreeMap<Uid, ServerView> {
    let view = |i: usize| {
        let machine = i / SERVERS_A_MACHINE;
        let place = Place {
            machine: format!("machine-{machine:03}"),
            zone: format!("rack-{:03}", machine / 3),
        };
        let view = ServerView {
            alive: true,
            present: true,
            place: Some(place),
            lag: Lag::KeepsUp,
            is_damaged: false,
            advances: true,
        };
        (Uid(i as u128), view)
    };
    (0..MACHINES * SERVERS_A_MACHINE).map(view).collect()
}

/// All shards on fit teams, and the bytes balanced.
fn world() -> World {
    let servers = servers();
    let places = servers
        .iter()
        .map(|(id, server)| (*id, server.place.clone().expect("placed")));
    let teams = teams::build(&places.collect(), 3, &BTreeSet::new());
    let begin = |i: usize| match i {
        0 => String::new(),
        i => format!("{i:08}"),
    };
    let shard = |i: usize| ShardView {
        range: KeyRange::new(begin(i), begin(i + 1)),
        team: teams[i % teams.len()].clone(),
        destination: vec![],
        bytes: 100_000_000,
        write_bytes_a_second: 1_000,
        can_split: true,
        stays_empty: false,
    };
    World {
        may_balance: true,
        replication: 3,
        servers,
        shards: (0..SHARDS).map(shard).collect(),
    }
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("plan");
    group.sample_size(10);
    let places: teams::Places = servers()
        .into_iter()
        .map(|(id, s)| (id, s.place.expect("placed")))
        .collect();
    group.bench_function("teams_of_a_new_cluster", |b| {
        b.iter(|| teams::build(&places, 3, &BTreeSet::new()))
    });
    let even = world();
    let mut built = teams::Built::default();
    group.bench_function("nothing_to_do", |b| {
        b.iter(|| plan::next(&even, LIMITS, &mut built))
    });
    let mut rack_gone = world();
    for id in 0..3 * SERVERS_A_MACHINE {
        rack_gone
            .servers
            .insert(Uid(id as u128), ServerView::default());
    }
    group.bench_function("a_rack_is_gone", |b| {
        b.iter(|| plan::next(&rack_gone, LIMITS, &mut teams::Built::default()))
    });
    // No server may take another move: every shard of the rack is looked at, and none finds a place.
    let full = Limits {
        moves_a_server: 0,
        ..LIMITS
    };
    group.bench_function("a_rack_is_gone_and_all_are_busy", |b| {
        b.iter(|| plan::next(&rack_gone, full, &mut teams::Built::default()))
    });
    let mut uneven = world();
    uneven
        .shards
        .iter_mut()
        .step_by(7)
        .for_each(|shard| shard.bytes *= 2);
    uneven
        .shards
        .iter_mut()
        .filter(|shard| shard.team.contains(&Uid(0)))
        .for_each(|shard| shard.bytes *= 3);
    group.bench_function("uneven", |b| {
        b.iter(|| plan::next(&uneven, LIMITS, &mut teams::Built::default()))
    });
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
