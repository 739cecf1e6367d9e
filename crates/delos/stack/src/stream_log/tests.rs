use super::*;
use crate::store_register::StoreRegister;
use crate::virtual_log::{Loglets, VirtualLog};
use plinth_client::testing::{CommitFault, MemoryCluster};
use plinth_runtime::sim::{Locality, SimConfig, Simulation};
use plinth_runtime::{fault, race, timeout};

fn simulated<T: 'static>(seed: u64, work: impl Future<Output = T> + 'static) -> T {
    let sim = Simulation::new(seed, SimConfig::default());
    let machine = sim.add_machine(Locality::default());
    sim.run_on(machine, work).expect("nothing kills it")
}

async fn open(cluster: &MemoryCluster, name: &str) -> Rc<StreamLog> {
    let log = StreamLog::open(&cluster.database(), name).await;
    Rc::new(log.expect("a log"))
}

fn entry(number: u64) -> Bytes {
    let mut bytes = number.to_le_bytes().to_vec();
    if number.is_multiple_of(17) {
        // Three parts.
        bytes.resize(250_000, number as u8);
    }
    bytes.into()
}

/// Everything from `from` on.
async fn read_all(log: &StreamLog, from: LogPos) -> Vec<(LogPos, Bytes)> {
    let tail = log.check_tail().await.expect("a tail").next;
    let mut all = Vec::new();
    while from + (all.len() as u64) < tail {
        let next = from + all.len() as u64;
        let read = log.read_next(next, 100_000).await.expect("read");
        assert!(!read.is_empty(), "{next} is below the tail {tail}");
        assert_eq!(read[0].0, next);
        all.extend(read);
    }
    assert!(all.iter().zip(from..).all(|((at, _), pos)| *at == pos));
    all
}

fn some_fault() -> CommitFault {
    match random::below(4) {
        0 => CommitFault::AnswerLost,
        1 => CommitFault::RequestLost,
        2 => CommitFault::Refused(Error::not_committed),
        _ => CommitFault::Refused(Error::transaction_too_old),
    }
}

/// Several replicas append at the same time while commits fail; one of them trims. Returns what went wrong.
async fn storm(seed: u64) -> Result<(), String> {
    let cluster = MemoryCluster::new();
    cluster.set_delay_turns((seed % 4) as u32);
    let logs = join_all((0..3).map(|_| open(&cluster, "storm"))).await;
    let acknowledged = Rc::new(RefCell::new(BTreeMap::new()));
    let append = |(which, log): (u64, Rc<StreamLog>)| {
        let (cluster, acknowledged) = (cluster.clone(), acknowledged.clone());
        async move {
            for round in 0..30 {
                if random::chance(0.3) {
                    cluster.inject(some_fault());
                }
                let numbers = (0..random::below(5)).map(|i| which * 1000 + round * 10 + i);
                let appends = numbers.map(|number| {
                    let appending = log.append(entry(number));
                    async move { (number, appending.await) }
                });
                for (number, pos) in join_all(appends).await {
                    acknowledged
                        .borrow_mut()
                        .insert(number, pos.expect("appended"));
                }
                sleep(Duration::from_millis(random::below(20))).await;
            }
        }
    };
    join_all((0..).zip(logs.clone()).map(append)).await;
    let acknowledged = acknowledged.take();
    check(&logs, &acknowledged).await
}

async fn check(logs: &[Rc<StreamLog>], acknowledged: &BTreeMap<u64, LogPos>) -> Result<(), String> {
    let all = read_all(&logs[0], 1).await;
    if all.len() != acknowledged.len() {
        return Err(format!("{} entries of {}", all.len(), acknowledged.len()));
    }
    for (number, pos) in acknowledged {
        if all[*pos as usize - 1].1 != entry(*number) {
            return Err(format!("{number} is not at {pos}"));
        }
    }
    for other in &logs[1..] {
        if read_all(other, 1).await != all {
            return Err("replicas read different logs".into());
        }
    }
    Ok(())
}

#[test]
fn all_replicas_count_alike_and_each_entry_is_there_once() {
    for seed in 0..20 {
        simulated(seed, storm(seed)).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
    }
}

#[test]
fn a_replica_that_miscounts_is_found() {
    fault::plant(Some("delos_stream_miscount"));
    let found = (0..20).any(|seed| simulated(seed, storm(seed)).is_err());
    fault::plant(None);
    assert!(found);
    fault::found("delos_stream_miscount");
}

#[test]
fn a_sealed_log_keeps_its_tail() {
    for seed in 0..20 {
        simulated(seed, async {
            let cluster = MemoryCluster::new();
            let (one, two) = (open(&cluster, "a").await, open(&cluster, "a").await);
            let last = Rc::new(Cell::new(0));
            let (appending, told) = (one.clone(), last.clone());
            let append = spawn("appender", async move {
                for number in 0.. {
                    match appending.append(entry(number)).await {
                        Ok(pos) => told.set(pos),
                        Err(error) => return error,
                    }
                    sleep(Duration::from_micros(random::below(200))).await;
                }
                unreachable!("it goes on for ever")
            });
            sleep(Duration::from_millis(random::below(3))).await;
            cluster.inject(some_fault());
            let tail = two.seal().await.expect("it is sealed");
            assert_eq!(append.await, LogError::Sealed);
            assert!(tail.is_sealed && tail.next == last.get() + 1);
            assert_eq!(two.append(entry(1)).await, Err(LogError::Sealed));
            assert_eq!(open(&cluster, "a").await.seal().await, Ok(tail));
            assert_eq!(one.check_tail().await, Ok(tail));
        });
    }
}

#[test]
fn what_is_trimmed_is_gone_for_all_and_positions_stay() {
    simulated(1, async {
        let cluster = MemoryCluster::new();
        let (one, two) = (open(&cluster, "a").await, open(&cluster, "a").await);
        for number in 0..1000 {
            assert_eq!(one.append(entry(number)).await, Ok(number + 1));
        }
        let before = read_all(&two, 1).await;
        one.prefix_trim(700).await.expect("trimmed");
        // To the place of an entry that it remembers.
        assert_eq!(one.read_next(1, 100).await, Err(LogError::Trimmed(512)));
        assert_eq!(read_all(&one, 600).await, before[599..]);
        assert_eq!(two.append(entry(5000)).await, Ok(1001));
        assert_eq!(two.read_next(511, 100).await, Err(LogError::Trimmed(512)));
        assert_eq!(read_all(&two, 512).await[..489], before[511..]);
        // Who comes later finds the same.
        let late = open(&cluster, "a").await;
        assert_eq!(late.check_tail().await.expect("a tail").next, 1002);
        assert_eq!(read_all(&late, 700).await[..301], before[699..]);
        // All of it.
        let _ = late.read_next(1001, 1).await;
        late.prefix_trim(u64::MAX).await.expect("trimmed");
        assert_eq!(one.append(entry(6000)).await, Ok(1002));
        assert_eq!(open(&cluster, "a").await.append(entry(1)).await, Ok(1003));
    });
}

#[test]
fn a_replica_that_was_away_for_a_trim_says_so() {
    simulated(1, async {
        let cluster = MemoryCluster::new();
        let (one, two) = (open(&cluster, "a").await, open(&cluster, "a").await);
        assert_eq!(two.append(entry(1)).await, Ok(1));
        for number in 1..600 {
            one.append(entry(number)).await.expect("appended");
        }
        one.prefix_trim(512).await.expect("trimmed");
        assert_eq!(two.read_next(2, 100).await, Err(LogError::Trimmed(512)));
        assert_eq!(two.check_tail().await.expect("a tail").next, 601);
        let (pos, last) = two.read_next(600, 100).await.expect("read").remove(0);
        assert_eq!((pos, last), (600, entry(599)));
    });
}

#[test]
fn an_entry_that_is_too_long_is_refused_and_a_dropped_stream_is_told() {
    simulated(1, async {
        let cluster = MemoryCluster::new();
        let log = open(&cluster, "a").await;
        let long = Bytes::from(vec![1; STREAM_ENTRY_BYTES_MAX + 1]);
        let len = long.len();
        assert_eq!(log.append(long.clone()).await, Err(LogError::TooLong(len)));
        assert_eq!(log.append(long.slice(1..)).await, Ok(1));
        assert_eq!(log.read_next(1, 1).await, Ok(vec![(1, long.slice(1..))]));
        let database = cluster.database();
        let dropped = database.run(async |tr| tr.drop_stream("delos/a").await);
        dropped.await.expect("dropped");
        let failed = LogError::Failed(Error::stream_not_found);
        assert_eq!(log.append(entry(1)).await, Err(failed));
        let away = race(log.check_tail(), sleep(Duration::from_secs(5))).await;
        assert!(matches!(away, plinth_runtime::Either::Left(Err(error)) if error == failed));
    });
}

/// What applications do that take the database for theirs alone.
async fn clear_everything(cluster: &MemoryCluster) {
    let database = cluster.database();
    let clearing = database.run(async |transaction| {
        transaction.clear_range("", b"\xff");
        Ok(())
    });
    clearing.await.expect("cleared");
}

#[test]
fn a_log_whose_rows_somebody_has_cleared_does_nothing_any_more_and_is_not_opened() {
    for is_sealed in [false, true] {
        simulated(1, async move {
            let cluster = MemoryCluster::new();
            let logs = [open(&cluster, "a").await, open(&cluster, "a").await];
            for (number, log) in (0..).zip(&logs) {
                log.append(entry(number)).await.expect("appended");
            }
            if is_sealed {
                logs[0].seal().await.expect("sealed");
            }
            clear_everything(&cluster).await;
            let gone = Err(LogError::Cleared);
            assert_eq!(logs[1].append(entry(5)).await, gone);
            assert_eq!(logs[0].check_tail().await.map(|_| 0), gone);
            for log in &logs {
                assert_eq!(log.read_next(1, 100).await.map(|_| 0), gone);
                assert_eq!(log.prefix_trim(1).await.map(|()| 0), gone);
                assert_eq!(log.seal().await.map(|_| 0), gone);
            }
            let again = StreamLog::open(&cluster.database(), "a").await;
            assert_eq!(again.map(|_| 0), gone);
            // Nothing was written where nothing was.
            assert!(!cluster.rows().keys().any(|key| key.starts_with(b"delos/")));
        });
    }
}

/// Clears one row.
async fn clear(cluster: &MemoryCluster, row: &'static str) {
    let clearing = cluster.database();
    let clearing = clearing.run(async |transaction| {
        transaction.clear(row);
        Ok(())
    });
    clearing.await.expect("cleared");
}

#[test]
fn a_log_of_which_one_row_was_cleared_does_nothing_any_more_and_is_not_opened() {
    for row in ["delos/a/record", "delos/a/floor", "delos/a/sealed"] {
        for is_sealed in [false, true] {
            simulated(1, async move {
                let cluster = MemoryCluster::new();
                let logs = [open(&cluster, "a").await, open(&cluster, "a").await];
                for number in 0..600 {
                    logs[0].append(entry(number)).await.expect("appended");
                }
                logs[0].prefix_trim(512).await.expect("trimmed");
                if is_sealed {
                    logs[0].seal().await.expect("sealed");
                }
                clear(&cluster, row).await;
                let gone = Err(LogError::Cleared);
                let again = StreamLog::open(&cluster.database(), "a").await;
                assert_eq!(again.map(|_| 0), gone, "{row}");
                assert_eq!(logs[1].check_tail().await.map(|_| 0), gone, "{row}");
                let appended = logs[0].append(entry(5)).await;
                assert!(appended.is_err(), "{row}: {appended:?}");
                assert_eq!(logs[0].seal().await.map(|_| 0), gone, "{row}");
                assert_eq!(logs[0].append(entry(5)).await, gone, "{row}");
            });
        }
    }
}

/// Parts of a log, each in a stream.
struct Streams(Database);

impl Loglets for Streams {
    type Log = StreamLog;

    async fn open(&self, description: &Bytes) -> LogResult<StreamLog> {
        let name = std::str::from_utf8(description).expect("a name");
        StreamLog::open(&self.0, name).await
    }
}

#[test]
fn who_waits_behind_a_sealed_log_hears_that_its_rows_were_cleared() {
    simulated(1, async {
        let cluster = MemoryCluster::new();
        let database = cluster.database();
        let register = StoreRegister::new(&database, "service");
        let log = VirtualLog::open(register, Streams(database), "a".into()).await;
        let log = Rc::new(log.expect("it is made"));
        log.append(entry(1)).await.expect("appended");
        log.seal().await.expect("sealed");
        let waiting = log.clone();
        let waiting = spawn("waits", async move { waiting.append(entry(2)).await });
        sleep(Duration::from_secs(2)).await;
        assert!(!waiting.is_finished(), "nobody has added another one yet");
        clear(&cluster, "delos/a/record").await;
        let told = timeout(Duration::from_secs(5), waiting).await;
        assert_eq!(told, Some(Err(LogError::Cleared)));
    });
}

#[test]
fn no_append_that_begins_behind_a_clear_is_acknowledged() {
    for seed in 0..20 {
        simulated(seed, async move {
            let cluster = MemoryCluster::new();
            cluster.set_delay_turns((seed % 4) as u32);
            let logs = [open(&cluster, "a").await, open(&cluster, "a").await];
            let is_cleared = Rc::new(Cell::new(false));
            let append = |log: Rc<StreamLog>| {
                let is_cleared = is_cleared.clone();
                spawn("appends", async move {
                    for number in 0.. {
                        let begins_behind = is_cleared.get();
                        match log.append(entry(number)).await {
                            Ok(_) => assert!(!begins_behind, "an append behind the clear"),
                            Err(LogError::Unknown) => {}
                            Err(error) => return error,
                        }
                        sleep(Duration::from_micros(random::below(200))).await;
                    }
                    unreachable!("it goes on for ever")
                })
            };
            let appending = logs.map(append);
            sleep(Duration::from_millis(random::below(20))).await;
            clear_everything(&cluster).await;
            is_cleared.set(true);
            assert_eq!(join_all(appending).await, [LogError::Cleared; 2]);
        });
    }
}
