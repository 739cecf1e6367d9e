//! The simulated workload: clients of the service add to shared counters while faults strike.

use crate::server::number;
use bytes::{Bytes, BytesMut};
use plinth_client::{Database, Transaction};
use plinth_runtime::net::{self, Reader, Writer};
use plinth_runtime::{Duration, random, timeout};
use plinth_workload::{Boxed, Complaints, Day, Site, Verdict, Workload, until_done};
use std::cell::RefCell;
use std::rc::Rc;

const COUNTERS: usize = 3;
/// A request that has no answer by then may or may not have been executed.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// What clients know about one counter.
#[derive(Clone, Copy, Default)]
struct Known {
    /// Sum of the additions that were acknowledged.
    acknowledged: i64,
    /// Sum of the additions without an answer.
    unknown: i64,
}

/// Promise: a counter is never below the sum of its acknowledged additions, and never above that sum plus the
/// additions without an answer. A later answer never shows a smaller value than an earlier one.
pub struct Counting {
    site: Rc<Site>,
    known: RefCell<[Known; COUNTERS]>,
    complaints: Complaints,
}

impl Counting {
    pub fn new(site: Rc<Site>) -> Self {
        Counting {
            site,
            known: RefCell::default(),
            complaints: Complaints::default(),
        }
    }

    /// Connects to some server and adds until the connection breaks.
    async fn visit(&self, day: Day) -> Option<()> {
        let servers = &self.site.servers;
        let server = servers[random::below(servers.len() as u64) as usize];
        let connecting = timeout(ANSWER_LIMIT, net::connect(server));
        let (mut reader, mut writer) = connecting.await?.ok()?;
        while !day.is_over() {
            day.think().await;
            let counter = random::below(COUNTERS as u64) as usize;
            let amount = random::range(1..100) as i64;
            let request = format!("add {} {amount}\n", name_of(counter));
            let least = self.known.borrow()[counter].acknowledged + amount;
            self.known.borrow_mut()[counter].unknown += amount;
            let value = ask(&mut reader, &mut writer, request).await?;
            let known = &mut self.known.borrow_mut()[counter];
            known.unknown -= amount;
            known.acknowledged += amount;
            if value < least {
                let seen = format!("an answer shows {value}, but {least} were acknowledged before");
                self.complaints.add(seen);
            }
        }
        Some(())
    }
}

fn name_of(counter: usize) -> String {
    format!("simulated-{counter}")
}

/// Sends one request and reads its answer. `None` if it may or may not have been executed.
async fn ask(reader: &mut Reader, writer: &mut Writer, request: String) -> Option<i64> {
    let talking = async {
        writer.write_all(Bytes::from(request)).await.ok()?;
        let mut answer = BytesMut::new();
        while !answer.ends_with(b"\n") {
            let read = reader.read(&mut answer).await;
            read.ok().filter(|bytes| *bytes > 0)?;
        }
        let answer = std::str::from_utf8(&answer).ok()?;
        answer.strip_prefix("ok ")?.trim_end().parse().ok()
    };
    timeout(ANSWER_LIMIT, talking).await?
}

impl Workload for Counting {
    fn name(&self) -> &'static str {
        "counter"
    }

    fn work(&self, _: Database, _: u64, day: Day) -> Boxed<'_, ()> {
        Box::pin(async move {
            while !day.is_over() {
                if self.visit(day).await.is_none() {
                    day.think().await;
                }
            }
        })
    }

    fn check(&self, database: Database) -> Boxed<'_, Verdict> {
        Box::pin(async move {
            for counter in 0..COUNTERS {
                let name = name_of(counter);
                let key = format!("counter/{name}");
                let special = [b"\xff\xff/counters/", name.as_bytes()].concat();
                let read = async |tr: Transaction| {
                    let value = tr.get(&key[..], false).await?;
                    Ok((value, tr.get(&special[..], false).await?))
                };
                let (value, text) = until_done(&database, read).await;
                let shown = value
                    .as_deref()
                    .map(|bytes| number(Some(bytes)).to_string());
                if text.as_deref() != shown.as_deref().map(str::as_bytes) {
                    return Err(format!(
                        "counter {counter} is {shown:?}, its special key {text:?}"
                    ));
                }
                let value = number(value.as_deref());
                let known = self.known.borrow()[counter];
                let most = known.acknowledged + known.unknown;
                if value < known.acknowledged || value > most {
                    return Err(format!(
                        "counter {counter} is {value}, and must be from {} to {most}",
                        known.acknowledged
                    ));
                }
            }
            self.complaints.verdict()
        })
    }
}
