//! Sessions with time-outs that an operator has allowed to be shorter than ZooKeeper's default ones.

use super::*;

async fn world(delay: Duration) -> Rc<World> {
    let options = Options {
        min_session_timeout_ms: Some(500),
        ..Options::default()
    };
    World::with_options(GATEWAYS, delay, options).await
}

/// Clients fall silent; one gateway dies, or all live on.
async fn silence(is_any_killed: bool) -> Rc<World> {
    let world = world(ms(1)).await;
    let killed = world.any();
    let kill_at = now() + ms(2000);
    let one = async |world: Rc<World>| {
        let gateway = world.any();
        let timeout = ms([500, 800, 1500, 3000][random::below(4) as usize]);
        sleep(ms(random::below(1800))).await;
        let life = Life::begin(&world, gateway, timeout, 2).await;
        let most = match is_any_killed && gateway == killed {
            true => kill_at.max(life.answered) - life.answered + ms(1500),
            false => ms(500),
        };
        life.fall_silent(most).await;
    };
    let clients = join_all((0..40).map(|_| one(world.clone())));
    let beside = world.clone();
    let _killing = spawn("breaks", async move {
        sleep_until(kill_at).await;
        if is_any_killed {
            let process = beside.gateways[usize::from(killed)].process;
            control().kill_process(process, KillKind::Kill);
        }
    });
    clients.await;
    world
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
