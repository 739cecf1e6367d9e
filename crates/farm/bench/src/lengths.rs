//! Scans of several lengths beside updates (Figure 15), as many keys scanned as updated. An update moves an amount
//! from a row to its neighbour, and scans begin and end between two such pairs: the sum of what they read is known.

use crate::cluster::Machines;
use crate::kv::failed;
use crate::measure::{Aborts, Latencies, Spent, Watch};
use crate::report::Report;
use crate::scans::{self, Side};
use plinth_farm_engine::Policy;
use plinth_farm_structures::Error;
use plinth_runtime::random::Generator;
use plinth_runtime::{Boxed, Instant, join_all, now, yield_now};
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// Who is ahead of the others by more keys, beside those that are being scanned, waits for them.
const AHEAD: u64 = 1000;

/// What is run: each length in each of the modes.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its number of rows is even.
    pub scans: scans::Plan,
    /// Keys of a scan: 1, or even numbers up to that of the rows.
    pub lengths: Vec<u64>,
}

/// What scans and updates of one length have done.
#[derive(Default)]
struct Done {
    scanned: Cell<u64>,
    updated: Cell<u64>,
    scans: RefCell<Latencies>,
    scan_aborts: RefCell<Aborts>,
    update_aborts: RefCell<Aborts>,
    broken: RefCell<Vec<String>>,
}

fn add(counter: &Cell<u64>, more: u64) {
    counter.set(counter.get() + more);
}

struct Run<'a> {
    side: &'a Side,
    plan: &'a scans::Plan,
    length: u64,
    until: Instant,
    done: Done,
}

impl Run<'_> {
    /// The keys of the others catch up.
    async fn wait_for(&self, own: &Cell<u64>, others: &Cell<u64>) {
        let ahead = AHEAD + self.length * u64::from(self.plan.scanners);
        while own.get() > others.get() + ahead && now() < self.until {
            yield_now().await;
        }
    }

    fn rows(&self, random: &mut Generator) -> Range<u64> {
        if self.length == 1 {
            let row = random.below(self.plan.rows);
            return row..row + 1;
        }
        let starts = (self.plan.rows - self.length) / 2 + 1;
        let start = 2 * random.below(starts);
        start..start + self.length
    }

    async fn scan(&self, mut random: Generator) -> Result<(), String> {
        let done = &self.done;
        while now() < self.until {
            self.wait_for(&done.scanned, &done.updated).await;
            let (rows, begun) = (self.rows(&mut random), now());
            while now() < self.until {
                match self.side.scan_once(rows.clone(), Some(self.until)).await {
                    Ok(None) => return Ok(()),
                    Ok(Some(broken)) => {
                        add(&done.scanned, self.length);
                        done.scans.borrow_mut().add(begun.elapsed());
                        // A single row has no sum that is known.
                        if self.length > 1 {
                            done.broken.borrow_mut().extend(broken);
                        }
                        break;
                    }
                    Err(Error::Abort(abort)) if abort.is_retryable() => {
                        done.scan_aborts.borrow_mut().add(format!("{abort:?}"));
                    }
                    Err(error) => return Err(failed("a scan", error)),
                }
                yield_now().await;
            }
            yield_now().await;
        }
        Ok(())
    }

    async fn update(&self, mut random: Generator) -> Result<(), String> {
        let done = &self.done;
        while now() < self.until {
            self.wait_for(&done.updated, &done.scanned).await;
            let from = random.below(self.plan.rows);
            let mut aborts = Aborts::default();
            let transfer =
                (self.side).transfer_until(self.plan, from, from ^ 1, self.until, &mut aborts);
            if transfer.await? {
                add(&done.updated, 2);
            }
            done.update_aborts.borrow_mut().merge(aborts);
            yield_now().await;
        }
        Ok(())
    }

    async fn client(&self, number: u32) -> Result<(), String> {
        let seed = self.plan.seed ^ (self.length << 32) ^ u64::from(number);
        let random = Generator::new(seed);
        match number < self.plan.updaters {
            true => self.update(random).await,
            false => self.scan(random).await,
        }
    }
}

async fn measure(side: &Side, plan: &scans::Plan, length: u64) -> Result<(Done, Spent), String> {
    let watch = Watch::start();
    let run = Run {
        side,
        plan,
        length,
        until: now() + plan.duration,
        done: Done::default(),
    };
    let clients = (0..plan.updaters + plan.scanners).map(|number| run.client(number));
    let outcomes = join_all(clients).await;
    outcomes.into_iter().collect::<Result<(), String>>()?;
    Ok((run.done, watch.stop()))
}

fn note(report: &mut Report, side: &Side, length: u64, (done, spent): (Done, Spent)) {
    let mode = side.cluster.mode;
    let (scanned, updated) = (done.scanned.get(), done.updated.get());
    let (scans, scan_aborts) = (done.scans.take(), done.scan_aborts.take());
    let figure = json!({
        "mode": mode.name(),
        "keys_of_a_scan": length,
        "keys_scanned_a_second": spent.a_second(scanned),
        "keys_updated_a_second": spent.a_second(updated),
        "scans": scans.to_json(),
        "scan_aborts": scan_aborts.to_json(),
        "update_aborts": done.update_aborts.take().to_json(),
    });
    let line = format!(
        "{:<9} scans of {length:>8} keys  {:>9.0} keys scanned/s  {:>9.0} updated/s  scan p50 {:>9.0} us  {} scans, \
         aborted {}  updates aborted {}",
        mode.name(),
        spent.a_second(scanned),
        spent.a_second(updated),
        scans.quantile_us(0.5),
        scans.count(),
        figure["scan_aborts"],
        figure["update_aborts"],
    );
    report.add(figure, line);
    report.add_broken(mode.name(), done.broken.take());
    let keeps = matches!(mode.policy(), Policy::MvBlock | Policy::MvAbort);
    if keeps && scan_aborts.count() > 0 {
        let line = format!(
            "{} scans of {length} keys have aborted, which only read",
            scan_aborts.count()
        );
        report.add_broken(mode.name(), vec![line]);
    }
}

/// Loads the rows for each mode, runs each length on all of them by turns, and checks the scans, and the rows in the
/// end. Errors are a line for the user.
pub fn run<'a>(plan: &'a Plan, tell: &'a dyn Fn(&str)) -> Boxed<'a, Result<Report, String>> {
    Box::pin(async move {
        let scans = &plan.scans;
        let may_be = |length: &u64| {
            (*length == 1 || length.is_multiple_of(2)) && (1..=scans.rows).contains(length)
        };
        if !scans.rows.is_multiple_of(2) || !plan.lengths.iter().all(may_be) {
            return Err(
            "rows come in pairs: a scan has 1 key or an even number, at most all of an even number"
                .into(),
        );
        }
        Machines::one(scans.region_mib, scans.old_mib)
            .check_at(&scans.place)
            .await?;
        let mut report = Report::new("lengths", scans.settings());
        let mut sides = Vec::new();
        for mode in &scans.modes {
            tell(&format!("loading {} rows: {}", scans.rows, mode.name()));
            sides.push(Side::load(scans, *mode).await?);
        }
        for length in &plan.lengths {
            tell(&format!("scans of {length} keys"));
            for side in &sides {
                let measured = measure(side, scans, *length).await?;
                note(&mut report, side, *length, measured);
            }
        }
        tell("checking the rows");
        for side in &sides {
            report.add_broken(side.cluster.mode.name(), side.verify(scans).await);
        }
        Ok(report)
    })
}
