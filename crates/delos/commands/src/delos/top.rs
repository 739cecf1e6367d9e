//! `plinth delos top`: the replicas of a service, and how long proposals take through each engine.

use super::Which;
use super::service::{Seen, Service, ask, load};
use super::state::{Lack, lease_holder, parts, short_state, state};
use plinth_delos::replica::messages::{AskLoad, EngineLoad, Load, ReplicaStatus};
use plinth_measure::grouped;
use plinth_runtime::metric::latency::bucket_of;
use plinth_runtime::{Duration, Instant, join_all, now, sleep};
use plinth_terminal::Outcome;
use plinth_terminal::connect::block_on;
use plinth_terminal::numbers::seconds_within;
use plinth_terminal::watching::table::{Cell, Column, Table};
use plinth_terminal::watching::{How, Seen as Looked, Shown, Watched, watch};
use plinth_terminal::wrap::wrapped;
use serde_json::{Value, json};
use std::cell::RefCell;
use std::pin::Pin;

const ANSWER_LIMIT: Duration = Duration::from_secs(1);

/// What the replicas said at one moment, by their ids.
struct Look {
    at: Instant,
    loads: Vec<(u64, Load)>,
}

#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    which: Which,
    #[command(flatten)]
    how: How,
    /// Seconds to wait for the service before giving up
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = seconds_within(1..=86_400))]
    timeout: u64,
}

pub fn run(arguments: &Arguments) -> Outcome {
    block_on(async {
        let file = load(&arguments.which.service, &arguments.which.tls).await?;
        let screen = Screen {
            service: Service::of(file, arguments.timeout),
            before: RefCell::new(None),
            how: &arguments.how,
        };
        if arguments.how.is_once() {
            // Rates are of the time between two looks.
            let _ = screen.frame().await?; // the second look judges
            sleep(arguments.how.interval()).await;
        }
        watch(&arguments.how, &screen).await
    })
}

struct Screen<'a> {
    service: Service,
    before: RefCell<Option<Look>>,
    how: &'a How,
}

impl Watched for Screen<'_> {
    fn look(&self) -> Pin<Box<dyn Future<Output = Outcome<Looked>> + '_>> {
        Box::pin(async {
            let (lines, document, verdict) = self.frame().await?;
            let shown = Shown {
                lines,
                ..Shown::default()
            };
            Ok((shown, document, verdict))
        })
    }

    fn why(&self) -> Pin<Box<dyn Future<Output = Option<String>> + '_>> {
        Box::pin(async { Some(self.service.not_yet()) })
    }
}

impl Screen<'_> {
    /// The lines of the screen, and what the replicas have said. Rates and times are those since the call before; of
    /// the first call, since the start.
    async fn frame(&self) -> Outcome<(Vec<String>, Value, Outcome)> {
        self.service.renew();
        let seen = self.service.look().await?;
        let asked = seen.iter().map(|of| async {
            let asked = ask(
                &self.service.transport,
                of.member.address,
                AskLoad {},
                ANSWER_LIMIT,
            );
            Some((of.id, asked.await.ok()?))
        });
        let loads = join_all(asked.collect::<Vec<_>>()).await;
        let look = Look {
            at: now(),
            loads: loads.into_iter().flatten().collect(),
        };
        let (name, width) = (self.service.name(), self.how.width());
        let before = self.before.take();
        let statuses = seen.iter().filter_map(|seen| seen.status.as_ref());
        let best = statuses.max_by_key(|status| status.applied);
        let lack = best.and_then(|best| Lack::of_service(&self.service, &seen, best));
        let (lack, before) = (lack.as_ref(), before.as_ref());
        let verdict = match lack {
            None => Ok(()),
            Some(lack) => Err(lack.line("delos top", &self.service)),
        };
        let mut lines = lack.map_or_else(Vec::new, |lack| {
            let advice = lack.advice();
            wrapped(advice.split(' '), width)
        });
        lines.extend(frame(name, &seen, &look, (before, lack), width));
        let document = document(name, &seen, &look, lack);
        self.before.replace(Some(look));
        Ok((lines, document, verdict))
    }
}

fn of(look: &Look, id: u64) -> Option<&Load> {
    let found = look.loads.iter().find(|(other, _)| *other == id);
    found.map(|(_, load)| load)
}

/// The lines of a screen of so many columns.
fn frame(
    name: &str,
    seen: &[Seen],
    look: &Look,
    (before, lack): (Option<&Look>, Option<&Lack>),
    width: usize,
) -> Vec<String> {
    let statuses = seen.iter().filter_map(|seen| seen.status.as_ref());
    let Some(best) = statuses.max_by_key(|status| status.applied) else {
        return vec![format!("plinth  service {name}: no replica answers")];
    };
    let loads = || look.loads.iter().map(|(_, load)| load);
    let tail = loads().map(|load| load.tail).max().unwrap_or(best.applied);
    let trimmed = loads().map(|load| load.trimmed).max().unwrap_or(0).max(1);
    let lease = lease_holder(seen, best).map_or(String::new(), |of| format!("; lease {of}"));
    let backup = loads().filter_map(|load| load.backup).max();
    let backup = backup.map_or(String::new(), |last| {
        let behind = tail.saturating_sub(last) as f64;
        format!("; backup to {last}, {} behind", grouped(behind))
    });
    let mut lines = vec![
        format!(
            "plinth  service {name}, kind {}; position {tail}{lease}",
            best.kind
        ),
        format!(
            "log     parts {}, entries {trimmed} to {tail}{backup}",
            parts(best).count()
        ),
        String::new(),
    ];
    let rows = seen
        .iter()
        .map(|of| replica_cells(of, tail, look, (before, lack)))
        .collect();
    let columns = replica_columns(seen);
    lines.extend(Table { columns, rows }.in_order(width));
    lines.push(String::new());
    let titles = ["ENGINE", "", "PROPOSALS/S", "SYNCS/S", "MEDIAN", "P99"];
    lines.push(engine_row(titles.map(String::from)));
    lines.extend(engine_lines(best, look, before));
    lines
}

/// Counters are those since the start of each process.
fn document(name: &str, seen: &[Seen], look: &Look, lack: Option<&Lack>) -> Value {
    let engine =
        |of: &EngineLoad| json!({ "name": of.name, "proposals": of.proposals, "syncs": of.syncs });
    let replica = |seen: &Seen| {
        let load = of(look, seen.id);
        json!({
            "name": seen.member.name,
            "address": seen.member.address.to_string(),
            "state": state(seen, lack),
            "applied": load.map(|load| load.applied),
            "flushed": load.map(|load| load.flushed),
            "tail": load.map(|load| load.tail),
            "trimmed": load.map(|load| load.trimmed),
            "engines": load.map(|load| load.engines.iter().map(engine).collect::<Vec<_>>()),
        })
    };
    let advice: Vec<String> = lack.iter().map(|lack| lack.advice()).collect();
    let replicas: Vec<Value> = seen.iter().map(replica).collect();
    json!({ "service": name, "replicas": replicas, "advice": advice })
}

/// On a screen of 80 columns the address goes first.
fn replica_columns(seen: &[Seen]) -> Vec<Column> {
    let names = seen.iter().map(|of| of.member.name.chars().count());
    let name = names.max().unwrap_or_default().max("REPLICA".len());
    let column = |(title, width, weight)| Column {
        title,
        width,
        weight,
    };
    let columns = [
        ("REPLICA", name, 9),
        ("ADDRESS", 21, 1),
        ("BEHIND", 6, 8),
        ("NOT ON DISK", 11, 3),
        ("ENTRIES/S", 9, 7),
        ("PROPOSALS/S", 11, 4),
        ("SYNCS/S", 7, 2),
        ("STATE", 0, 9),
    ];
    columns.map(column).into()
}

fn engine_row([name, on, proposals, syncs, median, p99]: [String; 6]) -> String {
    format!("{name:<16}{on:<5}{proposals:>11}{syncs:>11}{median:>12}{p99:>12}")
}

/// Seconds between two looks.
fn seconds(look: &Look, before: Option<&Look>) -> Option<f64> {
    let took = look.at.saturating_since(before?.at).as_secs_f64();
    Some(took).filter(|took| *took > 0.0)
}

/// How many a second; a counter that has gone back is of a process that has started again.
fn rate(now: u64, before: Option<u64>, seconds: Option<f64>) -> String {
    match (before, seconds) {
        (Some(before), Some(seconds)) if now >= before => grouped((now - before) as f64 / seconds),
        _ => "-".into(),
    }
}

fn replica_cells(
    seen: &Seen,
    tail: u64,
    look: &Look,
    (before, lack): (Option<&Look>, Option<&Lack>),
) -> Vec<Cell> {
    let (name, address) = (seen.member.name.clone(), seen.member.address.to_string());
    let counts = match of(look, seen.id) {
        None => ["-"; 5].map(String::from),
        Some(load) => {
            let earlier = before.and_then(|before| of(before, seen.id));
            let took = seconds(look, before);
            let top = |load: &Load| load.engines.last().map(|top| (top.proposals, top.syncs));
            let (proposals, syncs) = top(load).unwrap_or_default();
            let of_top = earlier.and_then(top);
            [
                grouped(tail.saturating_sub(load.applied) as f64),
                grouped(load.applied.saturating_sub(load.flushed) as f64),
                rate(load.applied, earlier.map(|load| load.applied), took),
                rate(proposals, of_top.map(|(proposals, _)| proposals), took),
                rate(syncs, of_top.map(|(_, syncs)| syncs), took),
            ]
        }
    };
    let texts = [name, address]
        .into_iter()
        .chain(counts)
        .chain([short_state(seen, lack)]);
    texts.map(Cell::text).collect()
}

/// The engines from the top of the stack to its bottom, all replicas together.
fn engine_lines(best: &ReplicaStatus, look: &Look, before: Option<&Look>) -> Vec<String> {
    let Some((_, one)) = look.loads.first() else {
        return Vec::new();
    };
    let took = seconds(look, before);
    let lines = one.engines.iter().rev().map(|engine| {
        let now = sum(look, &engine.name, |_| true);
        // A replica that was not there, or has started again, has no difference.
        let earlier = before.map(|before| sum(before, &engine.name, |id| of(look, id).is_some()));
        let switch = best.engines.iter().find(|(name, _)| *name == engine.name);
        let on = switch.map_or("", |(_, on)| if *on { "on" } else { "off" });
        let times = times_since(&now.times, earlier.as_ref().map(|of| &of.times[..]));
        let earlier = earlier.as_ref();
        engine_row([
            engine.name.clone(),
            on.into(),
            rate(now.proposals, earlier.map(|of| of.proposals), took),
            rate(now.syncs, earlier.map(|of| of.syncs), took),
            time(quantile(&times, 0.5)),
            time(quantile(&times, 0.99)),
        ])
    });
    lines.collect()
}

/// An engine, of all replicas that are wanted.
fn sum(look: &Look, engine: &str, is_wanted: impl Fn(u64) -> bool) -> EngineLoad {
    let mut all = EngineLoad {
        name: engine.into(),
        proposals: 0,
        syncs: 0,
        times: Vec::new(),
    };
    for (_, load) in look.loads.iter().filter(|(id, _)| is_wanted(*id)) {
        for of in load.engines.iter().filter(|of| of.name == engine) {
            all.proposals += of.proposals;
            all.syncs += of.syncs;
            all.times.resize(all.times.len().max(of.times.len()), 0);
            for (sum, count) in all.times.iter_mut().zip(&of.times) {
                *sum += count;
            }
        }
    }
    all
}

fn times_since(now: &[u64], before: Option<&[u64]>) -> Vec<u64> {
    let before = before.unwrap_or_default().iter().copied();
    let before = before.chain(std::iter::repeat(0));
    let each = now.iter().zip(before);
    each.map(|(now, before)| now.saturating_sub(before))
        .collect()
}

/// The time in which this part was answered, in microseconds, in steps of a power of two.
fn quantile(times: &[u64], part: f64) -> Option<u64> {
    bucket_of(times, part).map(|bucket| 1 << bucket.min(63))
}

fn time(us: Option<u64>) -> String {
    match us {
        None => "-".into(),
        Some(us) if us < 1000 => format!("{us} µs"),
        Some(us) if us < 1_000_000 => format!("{:.1} ms", us as f64 / 1000.0),
        Some(us) => format!("{:.1} s", us as f64 / 1_000_000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_delos::engines::roster::Member;

    fn member(name: &str) -> Member {
        Member {
            name: name.into(),
            address: ([10, 0, 0, 1], 4700).into(),
            log_server: plinth_core::Uid(1),
            engines: Vec::new(),
            release: "1".into(),
        }
    }

    fn status() -> ReplicaStatus {
        ReplicaStatus {
            service: "locks:x@10.0.0.1:1".into(),
            kind: "lock".into(),
            name: "a".into(),
            id: 1,
            release: "1".into(),
            waits_for: String::new(),
            disk_full: false,
            applied: 100,
            flushed: 90,
            engines: vec![("batching".into(), true)],
            members: Vec::new(),
            in_view: Vec::new(),
            lease_holder: Some(1),
            loglets: Vec::new(),
            measured: Vec::new(),
        }
    }

    fn look(applied: u64, proposals: u64, fast: u64) -> Look {
        let engine = |name: &str| EngineLoad {
            name: name.into(),
            proposals,
            syncs: 0,
            times: vec![0, 0, fast, 0, 0, 0, 0, 0, 0, 0, 0, 1],
        };
        let load = Load {
            waits_for: String::new(),
            applied,
            flushed: applied - 10,
            tail: 110,
            trimmed: 5,
            backup: Some(80),
            engines: vec![engine("base"), engine("batching")],
        };
        Look {
            at: now(),
            loads: vec![(1, load)],
        }
    }

    #[test]
    fn a_screen_has_a_line_for_every_replica_and_engine() {
        plinth_runtime::real::block_on(async {
            let one = |id, name: &str, status| Seen {
                id,
                member: member(name),
                status,
            };
            let seen = [one(1, "a", Some(status())), one(2, "b", None)];
            let before = look(50, 1000, 10);
            let mut later = look(100, 1600, 110);
            later.at = before.at + Duration::from_secs(2);
            let lines = frame("locks", &seen, &later, (Some(&before), None), 160);
            assert!(
                lines[0].ends_with("kind lock; position 110; lease a"),
                "{}",
                lines[0]
            );
            assert!(
                lines[1].contains("entries 5 to 110; backup to 80, 30 behind"),
                "{}",
                lines[1]
            );
            for part in ["a  ", "10.0.0.1:4700", " 10 ", " 25 ", " 300 ", "serves"] {
                assert!(lines[4].contains(part), "{part} in {}", lines[4]);
            }
            assert!(lines[5].contains("does not answer"));
            assert!(lines[8].starts_with("batching        on"), "{}", lines[8]);
            assert!(lines[8].ends_with("4 µs"), "{}", lines[8]);
            assert!(lines[9].starts_with("base"));
            let first = frame("locks", &seen, &later, (None, None), 160);
            assert!(first[4].contains(" - "), "no rate yet: {}", first[4]);
            let narrow = frame("locks", &seen, &later, (Some(&before), None), 80);
            for line in &narrow {
                assert!(line.chars().count() <= 80, "{line}");
            }
            for part in ["a  ", " 10 ", " 25 ", " 300 ", "serves"] {
                assert!(narrow[4].contains(part), "{part} in {}", narrow[4]);
            }
            assert!(narrow[5].contains("does not answer"), "{}", narrow[5]);
        });
    }

    #[test]
    fn a_quantile_is_the_end_of_its_bucket() {
        assert_eq!(quantile(&[0, 0], 0.99), None);
        assert_eq!(quantile(&[99, 0, 1], 0.99), Some(1));
        assert_eq!(quantile(&[98, 0, 2], 0.99), Some(4));
        assert_eq!(times_since(&[5, 7], Some(&[2])), [3, 7]);
        assert_eq!(
            [None, Some(8), Some(2048), Some(1 << 21)].map(time),
            ["-", "8 µs", "2.0 ms", "2.1 s"]
        );
    }
}
