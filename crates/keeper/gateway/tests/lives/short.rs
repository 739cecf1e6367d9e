//! Sessions with time-outs that an operator has allowed to be shorter than ZooKeeper's default ones.

use super::*;

async fn world(delay: Duration) -> Rc<World> {
    let options = Options {
        min_session_timeout_ms: Some(500),
        ..Options::default()
    };
    World::with_options(GATEWAYS, delay, options).await
}

async fn silence(is_any_killed: bool) -> Rc<World> {
    let short = Silence {
        timeouts_ms: [500, 800, 1500, 3000],
        begin_ms: 1800,
        kill_ms: 2000,
    };
    silence_in(world(ms(1)).await, short, is_any_killed).await
}

#[test]
fn a_short_session_ends_when_it_is_due_and_not_before() {
    holds(5, || silence(false));
}

#[test]
fn a_short_session_of_a_dead_gateway_ends_soon_after_it_is_due() {
    holds(5, || silence(true));
}

async fn storm_of_short_ones(timeout_ms: u64) -> Rc<World> {
    let delay = ms(random::below(5));
    storm_over(world(delay).await, 8, ms(timeout_ms)).await
}

#[test]
fn no_short_session_ends_early_in_a_storm() {
    holds(5, || storm_of_short_ones(500));
    holds(5, || storm_of_short_ones(1000));
}
