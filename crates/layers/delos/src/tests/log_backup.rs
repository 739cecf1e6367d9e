//! The log in a backup: copied by two replicas, restored to a position, cut short, damaged.

use super::*;
use crate::backup::{Destination, Directory, restore};
use crate::engines::log_backup::{GUARD, LogBackupAbove, LogBackupBelow, TAKE_AFTER};
use plinth_runtime::race;
use std::cell::Cell;

type Up = LogBackupAbove<Top<Notes>>;
type Bottom = Rc<Base<FileLog, Up>>;

/// A directory that can be out of reach.
struct Shelf {
    directory: Directory,
    is_away: Rc<Cell<bool>>,
}

impl Destination for Shelf {
    async fn put(&self, name: &str, content: Bytes) -> Result<(), String> {
        match self.is_away.get() {
            true => Err("it is away".into()),
            false => self.directory.put(name, content).await,
        }
    }
    async fn get(&self, name: &str) -> Result<Option<Bytes>, String> {
        self.directory.get(name).await
    }
    async fn list(&self) -> Result<Vec<String>, String> {
        self.directory.list().await
    }
    async fn remove(&self, name: &str) -> Result<(), String> {
        self.directory.remove(name).await
    }
    fn place(&self) -> String {
        self.directory.place()
    }
}

struct Copying {
    base: Bottom,
    top: Rc<LogBackupBelow<Bottom, FileLog, Shelf>>,
    is_away: Rc<Cell<bool>>,
    _running: Task<()>,
}

async fn fresh_store(name: &str) -> Rc<LocalStore> {
    let path = Path::new("/data").join(name);
    let engine = plinth_engine::open(EngineKind::Memory, &path, true, 1 << 20).await;
    LocalStore::open(engine.expect("an engine")).expect("a store")
}

async fn copying(log: &Rc<FileLog>, id: u64) -> Copying {
    let store = fresh_store(&format!("copying-{id}")).await;
    let above = LogBackupAbove::new(Top(Notes));
    let base = Base::new(log.clone(), store.clone(), above);
    let is_away = Rc::new(Cell::new(false));
    let shelf = Shelf {
        directory: shelf(),
        is_away: is_away.clone(),
    };
    let top = LogBackupBelow::new(base.clone(), log.clone(), LOG, shelf, store, id);
    let top = Rc::new(top);
    let (b, t) = (base.clone(), top.clone());
    let running = spawn("replica", async move {
        race(b.run(), t.run()).await;
    });
    Copying {
        base,
        top,
        is_away,
        _running: running,
    }
}

fn shelf() -> Directory {
    Directory("/backup".into())
}

async fn notes(top: &impl Engine, numbers: std::ops::Range<u64>) {
    for begin in numbers.clone().step_by(500) {
        let part = begin..numbers.end.min(begin + 500);
        for answer in join_all(part.map(|number| top.propose(note(number)))).await {
            answer.expect("it runs");
        }
    }
}

/// Numbers with the positions of their notes, up to a position.
fn noted(store: &Rc<LocalStore>, last: LogPos) -> Vec<(Bytes, Bytes)> {
    let rows = store.snapshot();
    let mut all = rows
        .range(b"number/", b"number0", usize::MAX)
        .expect("read");
    all.retain(|(_, pos)| u64::from_le_bytes(pos[..].try_into().expect("a position")) <= last);
    all
}

async fn restored(name: &str, to: Option<LogPos>) -> Result<(LogPos, Rc<LocalStore>), String> {
    let store = fresh_store(name).await;
    let upper = Upper::new(LogBackupAbove::new(Top(Notes)));
    let pos = restore(&shelf(), LOG, to, &store, &upper).await?;
    Ok((pos, store))
}

async fn files() -> Vec<String> {
    let mut all = shelf().list().await.unwrap_or_default();
    all.sort();
    all
}

#[test]
fn the_log_is_copied_by_all_and_restored_to_any_position() {
    on_a_machine(async {
        let log = open_log().await;
        let (one, two) = (copying(&log, 1).await, copying(&log, 2).await);
        notes(&one.top, 0..1500).await;
        sleep(Duration::from_secs(60)).await;
        let start = [&[0][..], &1u64.to_le_bytes()].concat();
        one.base.propose(GUARD.own(&start)).await.expect("it runs");
        assert_eq!(files().await, [""; 0], "the engine is off");
        let all = one
            .base
            .store()
            .snapshot()
            .range(b"log_backup", b"log_backuq", 10);
        assert_eq!(all, Ok(Vec::new()), "and changes nothing");
        GUARD.switch(&one.base, true).await.expect("it runs");
        notes(&two.top, 1500..6000).await;
        one.top.set_trim_prefix(LogPos::MAX);
        two.top.set_trim_prefix(LogPos::MAX);
        for _ in 0..100 {
            one.top.sync().await.expect("it runs");
            two.top.sync().await.expect("it runs");
            sleep(Duration::from_secs(1)).await;
        }
        let segments = files().await.len() - 1;
        assert!(segments >= 3, "{segments} segments and a manifest");
        let (end, store) = restored("whole", None).await.expect("restored");
        assert!(end > 6000, "{end}");
        let both = (noted(&store, end), noted(one.base.store(), end));
        assert_eq!(both.0, both.1);
        assert_eq!(both.0.len(), 5400, "all but those that end with 7");
        for to in [1, 999, 1000, 1001, 3777] {
            let (pos, store) = restored(&format!("to-{to}"), Some(to))
                .await
                .expect("restored");
            assert_eq!((pos, store.applied()), (to, to));
            assert_eq!(noted(&store, LogPos::MAX), noted(one.base.store(), to));
        }
        let beyond = restored("beyond", Some(end + 1000))
            .await
            .err()
            .expect("too far");
        assert!(beyond.contains("it ends at position"), "{beyond}");
        // What is in the backup may be trimmed, and is; nothing else is.
        let first = match log.read_next(1, 1).await {
            Err(LogError::Trimmed(first)) => first,
            other => panic!("{other:?}"),
        };
        assert!(first <= end + 1, "{first} and {end}");
        // A store that has all of it gets nothing twice.
        let upper = Upper::new(LogBackupAbove::new(Top(Notes)));
        let again = restore(&shelf(), LOG, Some(end), &store, &upper).await;
        assert_eq!(again, Ok(end));
    });
}

/// Damages the second segment in every way, and brings it back.
async fn damage(first: &str, second: &str) {
    let place = shelf();
    let read = async |name| place.get(name).await.expect("read").expect("it is there");
    let (first, good) = (read(first).await, read(second).await);
    let mut flipped = good.to_vec();
    flipped[good.len() / 2] ^= 1;
    for (number, (bytes, says)) in [
        (None, "it is cut short: segment-"),
        (
            Some(Bytes::from(flipped)),
            "is damaged, or cut short: its checksum is wrong",
        ),
        (
            Some(good.slice(..good.len() - 1)),
            "is damaged, or cut short",
        ),
        (
            Some(Bytes::new()),
            "is not a file of a backup, or is cut short",
        ),
        (Some(first), "has entries of other positions"),
    ]
    .into_iter()
    .enumerate()
    {
        match bytes {
            Some(bytes) => place.put(second, bytes).await.expect("written"),
            None => place.remove(second).await.expect("removed"),
        }
        let name = format!("damaged-{number}");
        let error = restored(&name, None).await.err().expect(says);
        assert!(
            error.starts_with("backup /backup: ") && error.contains(says),
            "{error}"
        );
        assert_eq!(error.lines().count(), 1);
    }
    place.put(second, good).await.expect("written");
}

#[test]
fn a_backup_that_is_cut_short_or_damaged_says_so_in_one_line() {
    on_a_machine(async {
        let log = open_log().await;
        let one = copying(&log, 1).await;
        assert!(restored("empty", None).await.is_err());
        GUARD.switch(&one.base, true).await.expect("it runs");
        notes(&one.top, 0..5000).await;
        sleep(Duration::from_secs(60)).await;
        let all = files().await;
        let segments: Vec<&String> = all
            .iter()
            .filter(|name| name.starts_with("segment"))
            .collect();
        assert!(segments.len() >= 3, "{all:?}");
        damage(segments[0], segments[1]).await;
        restored("good again", None).await.expect("restored");
        let manifest = all
            .iter()
            .find(|name| name.starts_with("manifest"))
            .expect("one");
        shelf().remove(manifest).await.expect("removed");
        let error = restored("no manifest", None)
            .await
            .err()
            .expect("there is none");
        assert!(error.contains("there is no manifest"), "{error}");
    });
}

#[test]
fn a_segment_whose_bidder_is_gone_is_copied_by_another() {
    on_a_machine(async {
        let log = open_log().await;
        let one = copying(&log, 1).await;
        one.is_away.set(true);
        GUARD.switch(&one.base, true).await.expect("it runs");
        notes(&one.top, 0..1200).await;
        sleep(Duration::from_secs(10)).await;
        assert_eq!(files().await, [""; 0], "it has bid, and cannot copy");
        let two = copying(&log, 2).await;
        two.top.set_trim_prefix(LogPos::MAX);
        two.top.sync().await.expect("it runs");
        sleep(TAKE_AFTER / 2).await;
        assert_eq!(files().await, [""; 0], "its time is not over");
        assert!(log.read_next(1, 1).await.is_ok(), "nothing is trimmed");
        sleep(TAKE_AFTER * 2).await;
        let (end, store) = restored("taken", None).await.expect("restored");
        assert!(end >= 1000, "{end}");
        assert_eq!(noted(&store, end), noted(two.base.store(), end));
    });
}

#[test]
fn a_backup_begins_anew_after_entries_that_went_while_it_was_off() {
    on_a_machine(async {
        let log = open_log().await;
        let one = copying(&log, 1).await;
        one.is_away.set(true);
        GUARD.switch(&one.base, true).await.expect("it runs");
        notes(&one.top, 0..1200).await;
        sleep(Duration::from_secs(30)).await;
        one.is_away.set(false);
        sleep(Duration::from_secs(30)).await;
        let (end, _) = restored("first", None)
            .await
            .expect("its own bid is copied");
        assert!(end >= 1000, "{end}");
        GUARD.switch(&one.base, false).await.expect("it runs");
        notes(&one.top, 1200..3000).await;
        one.top.set_trim_prefix(LogPos::MAX);
        sleep(Duration::from_secs(30)).await;
        let gone = log.read_next(end + 1, 1).await;
        assert!(matches!(gone, Err(LogError::Trimmed(_))), "{gone:?}");
        GUARD.switch(&one.base, true).await.expect("it runs");
        notes(&one.top, 3000..5000).await;
        sleep(Duration::from_secs(60)).await;
        let error = restored("second", None)
            .await
            .err()
            .expect("it begins later");
        assert!(error.contains("it begins at position 3"), "{error}");
        assert!(error.contains("the store needs position 1"), "{error}");
    });
}
