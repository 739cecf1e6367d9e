//! `plinth farm demo`: TPC-C on three processes of this host, one of which is killed in the middle.
//!
//! 1. Starts a cluster of three machines, with three replicas of everything, and loads TPC-C.
//! 2. Runs the mix on all three, and kills the master's process with SIGKILL.
//! 3. Starts a new process in its place, and waits until its replicas are whole.
//! 4. Checks the consistency conditions (clause 3.3.2), and that every order is there that a client was told of.

use super::drive::{Drive, master};
use super::fleet::{FirstPort, Shape};
use super::keeping::Keeping;
use plinth_runtime::net::Chosen;
use plinth_runtime::{Duration, Instant, now, sleep};
use plinth_terminal::Outcome;
use plinth_terminal::children::stop;
use plinth_terminal::numbers::within;
use plinth_terminal::process::unless_interrupted;

const MACHINES: u16 = 3;
/// Of the first machine.
const PORT: u16 = 4900;
const WHOLE_LIMIT: Duration = Duration::from_secs(120);
/// So long the others run alone before a new process is started.
const ALONE: Duration = Duration::from_secs(2);

#[derive(clap::Args, Debug)]
pub struct Arguments {
    /// Seconds to run before the process is killed, and again when all is whole
    #[arg(
        long,
        alias = "seconds",
        value_name = "SECONDS",
        default_value_t = 5,
        value_parser = within::<u64>(1..=3600)
    )]
    duration: u64,
    #[command(flatten)]
    keeping: Keeping,
    /// Port of the first machine; each takes two
    #[arg(long, value_name = "PORT", default_value_t = PORT, value_parser = within::<u16>(1..))]
    port: u16,
}

fn shape(keeping: Keeping) -> Shape {
    Shape {
        machines: MACHINES,
        replication: 3,
        regions: 6,
        region_mib: 96,
        old_mib: 64,
        keeping,
    }
}

struct Demo {
    drive: Drive,
    begun: Instant,
    seconds: u64,
}

impl Demo {
    fn say(&self, line: &str) {
        println!("{:8.3} s  {line}", self.begun.elapsed().as_secs_f64());
    }

    /// Orders a second in the time from `since`, when there were so many.
    fn rate(&self, since: Instant, told: usize) -> f64 {
        let more = self.drive.heard.told() - told;
        more as f64 / since.elapsed().as_secs_f64().max(1e-9)
    }

    /// Kills the master's process. Returns which it was.
    async fn kill(&mut self) -> Outcome<u16> {
        let seen = self.drive.running.fleet.look().await;
        let master = master(&seen)?;
        let at = master.address.ok_or("the master has no address")?;
        let i = self.drive.running.fleet.index(at);
        let said = master.status.as_ref();
        let leads = said.map_or(0, |said| said.primaries);
        self.drive.running.kill(i)?;
        self.say(&format!(
            "machine {}, the master and the primary of {leads} regions, was killed with signal 9",
            master.seat.machine
        ));
        Ok(i)
    }

    async fn go_on(&mut self, victim: u16) -> Outcome {
        let (killed, told) = (now(), self.drive.heard.told());
        let next = self.drive.wait(WHOLE_LIMIT, "the next order", |heard| {
            // Some that were told before are still on the way.
            heard
                .last
                .get()
                .is_some_and(|at| at.saturating_since(killed) > Duration::from_millis(50))
        });
        next.await?;
        self.say("the others go on: there are new orders");
        sleep(ALONE).await;
        self.drive.start(victim)?;
        self.say("a new process was started in its place");
        let fleet = &self.drive.running.fleet;
        fleet.whole(usize::from(MACHINES), WHOLE_LIMIT).await?;
        let rate = self.rate(killed, told);
        let seconds = killed.elapsed().as_secs_f64();
        self.say(&format!(
            "all replicas are whole again, {seconds:.1} s after the kill"
        ));
        self.say(&format!("during: {rate:.0} new orders a second"));
        self.drive.run(victim)
    }

    async fn measure(&self, when: &str) {
        let (since, told) = (now(), self.drive.heard.told());
        sleep(Duration::from_secs(self.seconds)).await;
        self.say(&format!(
            "{when}: {:.0} new orders a second",
            self.rate(since, told)
        ));
    }

    async fn judge(&mut self) -> Outcome {
        let wrong = self.drive.judge().await?;
        for line in &wrong {
            self.say(&format!("WRONG: {line}"));
        }
        match wrong.first() {
            Some(first) => Err(format!("{} checks failed; the first: {first}", wrong.len())),
            None => {
                self.say(&format!(
                    "the consistency conditions hold, and all {} orders are there that clients were told of",
                    self.drive.heard.told()
                ));
                Ok(())
            }
        }
    }

    async fn run(&mut self) -> Outcome {
        self.drive.begin().await?;
        self.say("three processes are a cluster; each region has three replicas");
        self.drive.load().await?;
        self.say("TPC-C is loaded");
        self.drive.run_all()?;
        self.measure("before").await;
        let victim = self.kill().await?;
        self.go_on(victim).await?;
        self.measure("after").await;
        self.judge().await
    }
}

pub fn run(arguments: &Arguments) -> Outcome {
    plinth_terminal::connect::block_on(async {
        let shape = shape(arguments.keeping);
        let first = FirstPort {
            port: arguments.port,
            by: Chosen::flag("--port", arguments.port == PORT),
        };
        let drive = Drive::prepare("demo", shape, first).await;
        let drive = drive.map_err(|line| format!("farm demo: {line}"))?;
        let mut demo = Demo {
            drive,
            begun: now(),
            seconds: arguments.duration,
        };
        let outcome = unless_interrupted(demo.run()).await;
        let outcome = outcome.and_then(|done| done.unwrap_or(Err("it was interrupted".into())));
        stop(std::mem::take(&mut demo.drive.running.children)).await;
        outcome.map_err(|line| format!("farm demo: {line}"))
    })
}
