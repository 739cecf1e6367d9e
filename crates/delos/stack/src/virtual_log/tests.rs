use super::*;
use crate::file_log::FileLog;
use plinth_core::Uid;
use plinth_runtime::sim::{Locality, SimConfig, Simulation};
use plinth_runtime::{disk, race, random};
use std::path::Path;

struct Memory(Rc<RefCell<(u64, Bytes)>>);

impl Register for Memory {
    async fn read(&self) -> Result<(u64, Bytes), Error> {
        sleep(Duration::from_millis(random::below(3))).await;
        Ok(self.0.borrow().clone())
    }

    async fn swap(&self, version: u64, value: Bytes) -> Result<bool, Error> {
        sleep(Duration::from_millis(random::below(3))).await;
        let mut now = self.0.borrow_mut();
        if now.0 != version {
            return Ok(false);
        }
        *now = (version + 1, value);
        Ok(true)
    }
}

/// Logs in files, shared by the replicas of the test.
#[derive(Clone)]
struct Files(Rc<RefCell<BTreeMap<Bytes, Rc<FileLog>>>>, Permits);

impl Loglets for Files {
    type Log = Rc<FileLog>;

    async fn open(&self, description: &Bytes) -> Result<Rc<FileLog>, LogError> {
        let _opening = self.1.take().await;
        if let Some(open) = self.0.borrow().get(description) {
            return Ok(open.clone());
        }
        let name = String::from_utf8_lossy(description).into_owned();
        let path = Path::new("/data").join(&name);
        let number = name.bytes().fold(7, |n, b| n * 31 + u128::from(b));
        let opened = FileLog::open(&path, Uid(number)).await;
        let opened = Rc::new(opened.map_err(LogError::Failed)?);
        let mut all = self.0.borrow_mut();
        assert!(!all.contains_key(description), "it is opened twice");
        all.insert(description.clone(), opened.clone());
        Ok(opened)
    }
}

fn on_a_machine<T: 'static>(seed: u64, work: impl Future<Output = T> + 'static) -> T {
    let sim = Simulation::new(seed, SimConfig::default());
    let machine = sim.add_machine(Locality::default());
    let done = sim.run_on(machine, async {
        disk::create_dir_all(Path::new("/data"))
            .await
            .expect("made");
        work.await
    });
    done.expect("nothing kills it")
}

async fn use_and_reconfigure() {
    let register = Rc::new(RefCell::new((0, Bytes::new())));
    let files = Files(Rc::default(), Permits::new(1));
    let first = Bytes::from_static(b"loglet-0");
    let mut logs = Vec::new();
    for _ in 0..2 {
        let register = Memory(register.clone());
        let log = VirtualLog::open(register, files.clone(), first.clone()).await;
        logs.push(log.expect("a log"));
    }
    let given: RefCell<BTreeMap<LogPos, Bytes>> = RefCell::default();
    let (logs, given) = (&logs, &given);
    let append = |n: usize| async move {
        for i in 0..100 {
            let entry = Bytes::from(format!("{n}-{i}"));
            let pos = logs[n % 2]
                .append(entry.clone())
                .await
                .expect("no append fails");
            let before = given.borrow_mut().insert(pos, entry);
            assert_eq!(before, None, "position {pos} is given out twice");
            sleep(Duration::from_millis(random::below(5))).await;
        }
    };
    let exchange = async {
        for i in 1.. {
            sleep(Duration::from_millis(random::below(60))).await;
            let description = Bytes::from(format!("loglet-{i}"));
            logs[i % 2]
                .reconfigure(description)
                .await
                .expect("exchanged");
        }
    };
    race(join_all((0..8).map(append)), exchange).await;
    assert!(logs[0].parts().len() > 3, "it was hardly ever exchanged");
    // The exchange that was under way may have sealed the last loglet.
    let last = logs[0].reconfigure(Bytes::from_static(b"loglet-last"));
    last.await.expect("exchanged");
    for log in logs {
        let tail = log.check_tail().await.expect("a tail");
        assert_eq!(tail.next, 801);
        let mut next = 1;
        while next < tail.next {
            let read = log.read_next(next, 1 + random::below(500) as usize).await;
            for (pos, entry) in read.expect("it is there") {
                assert_eq!((pos, Some(&entry)), (next, given.borrow().get(&pos)));
                next += 1;
            }
        }
    }
}

#[test]
fn loglets_are_exchanged_under_load_and_no_append_fails() {
    for seed in 0..20 {
        on_a_machine(seed, use_and_reconfigure());
    }
}

#[test]
fn all_who_find_a_loglet_sealed_go_on_in_the_next_one() {
    for seed in 0..20 {
        on_a_machine(seed, async {
            let register = Memory(Rc::default());
            let files = Files(Rc::default(), Permits::new(1));
            let first = Bytes::from_static(b"loglet-0");
            let log = VirtualLog::open(register, files, first).await;
            let log = log.expect("a log");
            log.seal().await.expect("it is sealed");
            let appends = (0..8).map(|n| log.append(Bytes::from(format!("{n}"))));
            let added = log.reconfigure(Bytes::from_static(b"loglet-1"));
            let added = async {
                added.await.expect("exchanged");
                std::future::pending::<()>().await;
            };
            let appended = race(join_all(appends), added);
            let within = timeout(Duration::from_secs(10), appended).await;
            assert!(within.is_some(), "an append waits for another loglet still");
        });
    }
}

#[test]
fn a_map_that_is_full_takes_no_other_part_and_the_log_goes_on() {
    on_a_machine(7, async {
        let part = |n: usize| Part {
            first: 1,
            description: format!("loglet-{n}").into(),
        };
        let full = Map((0..LOGLETS_MAX).map(part).collect());
        let register = Memory(Rc::new(RefCell::new((1, full.encode()))));
        let files = Files(Rc::default(), Permits::new(1));
        let log = VirtualLog::find(register, files).await.expect("a map");
        let log = log.expect("a log");
        let other = || Bytes::from_static(b"another one");
        let refused = log.reconfigure(other()).await;
        assert_eq!(refused, Err(LogError::ManyParts(LOGLETS_MAX)));
        assert_eq!(log.append(Bytes::from_static(b"1")).await, Ok(1));
        // All parts but the last are empty. Those that are trimmed make room.
        log.prefix_trim(1).await.expect("trimmed");
        assert_eq!(log.reconfigure(other()).await, Ok(()));
        assert_eq!(log.parts().len(), PARTS_KEPT);
    });
}

#[test]
fn parts_that_are_trimmed_go_from_the_map_but_for_the_newest() {
    on_a_machine(7, async {
        let register = Memory(Rc::default());
        let files = Files(Rc::default(), Permits::new(1));
        let log = VirtualLog::open(register, files, Bytes::from_static(b"loglet-0")).await;
        let log = log.expect("a log");
        for i in 1..40u64 {
            log.append(Bytes::from(format!("{i}")))
                .await
                .expect("added");
            if i == 30 {
                log.prefix_trim(20).await.expect("trimmed");
            }
            let next = Bytes::from(format!("loglet-{i}"));
            log.reconfigure(next).await.expect("exchanged");
        }
        // Those with the entries from 20 on, and the one that takes entries.
        assert_eq!(log.parts().first().map(|(first, _)| *first), Some(20));
        assert_eq!(log.parts().len(), 21);
        let gone = log.read_next(19, 1).await;
        assert_eq!(gone, Err(LogError::Trimmed(20)));
        let read = log.read_next(20, 1).await.expect("it is there");
        assert_eq!(read, [(20, Bytes::from_static(b"20"))]);
        log.prefix_trim(40).await.expect("trimmed");
        log.reconfigure(Bytes::from_static(b"loglet-40"))
            .await
            .expect("exchanged");
        assert_eq!(log.parts().len(), PARTS_KEPT);
    });
}

#[test]
fn a_map_that_is_damaged_is_refused() {
    let part = |first| Part {
        first,
        description: Bytes::from_static(b"x"),
    };
    let map = Map(vec![part(1), part(4), part(4), part(9)]);
    assert_eq!(Map::decode(map.encode()), Some(map.clone()));
    assert_eq!(
        map.part_of(4).map(|(part, end)| (part.first, end)),
        Some((4, Some(9)))
    );
    for len in 1..map.encode().len() {
        let cut = Map::decode(map.encode().slice(..len));
        assert!(cut.is_none_or(|cut| cut.0.len() < 4));
    }
    assert_eq!(Map::decode(Map(vec![part(4), part(1)]).encode()), None);
    assert_eq!(Map::decode(Map(Vec::new()).encode()), None);
}

#[test]
fn a_part_that_is_trimmed_behind_one_that_is_not_is_found() {
    on_a_machine(7, async {
        let register = Memory(Rc::default());
        let files = Files(Rc::default(), Permits::new(1));
        let names =
            ["loglet-0", "loglet-1", "loglet-2"].map(|name| Bytes::from_static(name.as_bytes()));
        let log = VirtualLog::open(register, files.clone(), names[0].clone()).await;
        let log = log.expect("a log");
        for (i, name) in names.iter().enumerate() {
            if i > 0 {
                log.reconfigure(name.clone()).await.expect("exchanged");
            }
            for entry in 0..10 {
                let added = log.append(Bytes::from(format!("{i}-{entry}"))).await;
                added.expect("added");
            }
        }
        assert_eq!(log.gone().await, None);
        // In the middle of the log, and then also in the part that takes the entries: the first one has all of its.
        for (name, first) in [(&names[1], 15), (&names[2], 25)] {
            let part = files.open(name).await.expect("it is there");
            part.prefix_trim(5).await.expect("trimmed");
            let gone = Gone {
                first,
                unreadable: None,
            };
            assert_eq!(log.gone().await, Some(gone));
        }
    });
}
