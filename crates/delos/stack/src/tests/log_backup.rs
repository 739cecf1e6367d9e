//! The log in a backup: copied by two replicas, restored to a position, cut short, damaged.

use super::*;
use crate::backup::objects::Origin;
use crate::backup::restore::{copy_rows, plan, play};
use crate::backup::{Backups, Directory, Doing, OpenPlace, Place, claim};
use crate::engines::log_backup::{BackupState, GUARD, LogBackupAbove, LogBackupBelow, TAKE_AFTER};
use plinth_engine::KeyValueStore;
use plinth_runtime::race;
use std::cell::Cell;

type Up = LogBackupAbove<Top<Notes>>;
type Bottom = Rc<Base<FileLog, Up>>;
const PLACE: &str = "/backup";

thread_local! {
    static IS_AWAY: Cell<bool> = const { Cell::new(false) };
    static HANGS: Cell<bool> = const { Cell::new(false) };
}

/// A directory that can be out of reach for a writer, the first replica, or gives it no answer.
struct Shelf(Directory);

impl Place for Shelf {
    fn put<'a>(&'a self, name: &'a str, content: Bytes) -> Doing<'a> {
        match (IS_AWAY.get(), HANGS.get()) {
            (true, _) => Box::pin(async { Err("it is away".into()) }),
            (_, true) => Box::pin(std::future::pending()),
            _ => self.0.put(name, content),
        }
    }
    fn get<'a>(&'a self, name: &'a str) -> Doing<'a, Option<Bytes>> {
        self.0.get(name)
    }
    fn list<'a>(&'a self, prefix: &'a str) -> Doing<'a, Vec<String>> {
        self.0.list(prefix)
    }
    fn remove<'a>(&'a self, name: &'a str) -> Doing<'a> {
        self.0.remove(name)
    }
    fn name(&self) -> String {
        self.0.name()
    }
}

fn origin() -> Origin {
    Origin::new("notes:1", "notes", "notes")
}

struct Copying {
    base: Bottom,
    top: Rc<LogBackupBelow<Bottom, FileLog>>,
    _running: Task<()>,
}

async fn fresh_engine(name: &str) -> Rc<dyn KeyValueStore> {
    let path = Path::new("/data").join(name);
    let engine = plinth_engine::open(EngineKind::Memory, &path, true, 1 << 20).await;
    engine.expect("an engine")
}

async fn copying(log: &Rc<FileLog>, id: u64) -> Copying {
    let engine = fresh_engine(&format!("copying-{id}")).await;
    let store = LocalStore::open(engine).expect("a store");
    let above = LogBackupAbove::new(Top(Notes));
    let base = Base::new(log.clone(), store.clone(), above);
    let open: OpenPlace = match id {
        1 => |place| Ok(Rc::new(Shelf(Directory(place.into())))),
        _ => |place| Ok(Rc::new(Directory(place.into()))),
    };
    let backups = Backups {
        origin: origin(),
        open,
    };
    let top = LogBackupBelow::new(base.clone(), log.clone(), backups, store, id);
    let top = Rc::new(top);
    let (b, t) = (base.clone(), top.clone());
    let running = spawn("replica", async move {
        race(b.run(), t.run()).await;
    });
    Copying {
        base,
        top,
        _running: running,
    }
}

impl Copying {
    /// Switches the engine on and names the place.
    async fn back_up(&self) {
        GUARD.switch(&self.base, true).await.expect("it runs");
        let is_empty = self.top.claim(PLACE).await.expect("the place is good");
        let started = self.top.start(PLACE, is_empty).await.expect("it runs");
        started.expect("the place is good");
    }

    fn state(&self) -> BackupState {
        let state = self.top.backup().expect("read");
        state.expect("it is on")
    }
}

fn shelf() -> Directory {
    Directory(PLACE.into())
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
    let from = shelf();
    let plan = plan(&from, to).await?;
    let engine = fresh_engine(name).await;
    copy_rows(&from, &plan, &engine, "me").await?;
    let store = LocalStore::open(engine).expect("a store");
    let upper = Upper::new(LogBackupAbove::new(Top(Notes)));
    play(&from, &plan, &store, &upper).await?;
    Ok((store.applied(), store))
}

async fn files(prefix: &str) -> Vec<String> {
    let mut all = shelf().list(prefix).await.expect("listed");
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
        let early = one.top.start(PLACE, true).await.expect("it runs");
        assert!(early.is_err(), "the engine is off");
        let all = one
            .base
            .store()
            .snapshot()
            .range(b"log_backup", b"log_backuq", 10);
        assert_eq!(all, Ok(Vec::new()), "and changes nothing");
        one.back_up().await;
        sleep(Duration::from_secs(5)).await;
        let begin = one.state().from.expect("the rows are copied");
        notes(&two.top, 1500..6000).await;
        one.top.set_trim_prefix(LogPos::MAX);
        two.top.set_trim_prefix(LogPos::MAX);
        for _ in 0..100 {
            one.top.sync().await.expect("it runs");
            two.top.sync().await.expect("it runs");
            sleep(Duration::from_secs(1)).await;
        }
        let segments = files("segment-").await.len();
        assert!(segments >= 3, "{segments} segments");
        assert_eq!(files("manifest-").await.len(), 1);
        let (end, store) = restored("whole", None).await.expect("restored");
        assert!(end > 6000, "{end}");
        let both = (noted(&store, end), noted(one.base.store(), end));
        assert_eq!(both.0, both.1);
        assert_eq!(both.0.len(), 5400, "all but those that end with 7");
        for to in [begin, begin + 1, begin + 1001, end - 1] {
            let (pos, store) = restored(&format!("to-{to}"), Some(to))
                .await
                .expect("restored");
            assert_eq!((pos, store.applied()), (to, to));
            assert_eq!(noted(&store, LogPos::MAX), noted(one.base.store(), to));
        }
        for to in [begin - 1, end + 1000] {
            let error = restored("beyond", Some(to)).await.err().expect("too far");
            assert!(
                error.contains(&format!("it has positions {begin} to {end}, ")),
                "{error}"
            );
        }
        // What is in the backup may be trimmed, and is; nothing else is.
        let first = match log.read_next(1, 1).await {
            Err(LogError::Trimmed(first)) => first,
            other => panic!("{other:?}"),
        };
        assert!(first <= end + 1, "{first} and {end}");
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
        let error = restored("empty", None).await.err().expect("nothing there");
        assert!(error.contains("it is no backup of a service"), "{error}");
        notes(&one.top, 0..100).await;
        one.back_up().await;
        let error = restored("begun", None).await.err().expect("nothing yet");
        assert!(error.contains("there is no manifest"), "{error}");
        notes(&one.top, 100..5000).await;
        sleep(Duration::from_secs(60)).await;
        let segments = files("segment-").await;
        assert!(segments.len() >= 3, "{segments:?}");
        damage(&segments[0], &segments[1]).await;
        restored("good again", None).await.expect("restored");
        let page = &files("rows-").await[0];
        let good = shelf().get(page).await.expect("read").expect("it is there");
        let mut flipped = good.to_vec();
        flipped[good.len() / 2] ^= 1;
        for (name, content) in [("flipped", flipped), ("short", good[..40].to_vec())] {
            shelf().put(page, content.into()).await.expect("written");
            let error = restored(name, None).await.err().expect("damaged");
            assert!(error.contains("its checksum is wrong"), "{error}");
        }
        shelf().remove(page).await.expect("removed");
        let error = restored("without rows", None).await.err().expect("damaged");
        assert!(
            error.contains("is missing: the backup is cut short"),
            "{error}"
        );
        shelf().put(page, good).await.expect("written");
        let manifest = &files("manifest-").await[0];
        shelf().remove(manifest).await.expect("removed");
        let error = restored("no manifest", None).await.err().expect("none");
        assert!(error.contains("there is no manifest"), "{error}");
    });
}

#[test]
fn a_backup_is_restored_beside_a_file_that_is_being_written() {
    on_a_machine(async {
        let log = open_log().await;
        let one = copying(&log, 1).await;
        notes(&one.top, 0..100).await;
        one.back_up().await;
        notes(&one.top, 100..5000).await;
        sleep(Duration::from_secs(60)).await;
        let newest = files("manifest-").await.pop().expect("there is one");
        let bytes = shelf().get(&newest).await.expect("read");
        // Its writer has died before it gave the file its name, or is about to.
        let unfinished = format!("{newest}.tmp");
        let bytes = bytes.expect("it is there");
        shelf().put(&unfinished, bytes).await.expect("written");
        assert_eq!(files("manifest-").await.pop(), Some(newest));
        restored("beside", None).await.expect("nothing is wrong");
    });
}

#[test]
fn a_place_with_the_backup_of_another_service_is_refused() {
    on_a_machine(async {
        let other = Origin::new("other:1", "notes", "other");
        let claimed = claim(&shelf(), &other).await;
        assert_eq!(claimed, Ok(true));
        assert_eq!(claim(&shelf(), &other).await, Ok(false), "it goes on");
        let log = open_log().await;
        let one = copying(&log, 1).await;
        GUARD.switch(&one.base, true).await.expect("it runs");
        let started = one.top.claim(PLACE).await;
        let error = started.expect_err("it is another's");
        assert!(
            error.contains("the backup of another service, \"other\""),
            "{error}"
        );
        one.top.set_trim_prefix(LogPos::MAX);
        notes(&one.top, 0..100).await;
        sleep(Duration::from_secs(30)).await;
        assert!(
            log.read_next(1, 1).await.is_ok(),
            "nothing is trimmed without a backup"
        );
    });
}

#[test]
fn what_a_replica_that_is_gone_has_bid_for_is_copied_by_another() {
    on_a_machine(async {
        let log = open_log().await;
        let one = copying(&log, 1).await;
        one.back_up().await;
        IS_AWAY.set(true);
        notes(&one.top, 0..1200).await;
        sleep(Duration::from_secs(10)).await;
        assert_eq!(files("").await, ["service"], "it has bid, and cannot copy");
        let two = copying(&log, 2).await;
        two.top.set_trim_prefix(LogPos::MAX);
        two.top.sync().await.expect("it runs");
        sleep(TAKE_AFTER / 2).await;
        let state = two.state();
        assert_eq!(state.next, state.session + 1, "its time is not over");
        assert!(log.read_next(3, 1).await.is_ok(), "nothing is trimmed");
        sleep(TAKE_AFTER * 2).await;
        let (end, store) = restored("taken", None).await.expect("restored");
        assert!(end >= 1000, "{end}");
        assert_eq!(noted(&store, end), noted(two.base.store(), end));
    });
}

#[test]
fn a_place_that_gives_no_answer_is_told_and_the_backup_goes_on_when_it_does() {
    on_a_machine(async {
        let log = open_log().await;
        let one = copying(&log, 1).await;
        one.back_up().await;
        HANGS.set(true);
        notes(&one.top, 0..1200).await;
        sleep(TAKE_AFTER * 3 / 2).await;
        let problem = one.state().problem;
        assert_eq!(problem, format!("backup {PLACE}: no answer within 60 s"));
        HANGS.set(false);
        sleep(TAKE_AFTER * 3).await;
        assert_eq!(one.state().problem, "");
        let (end, store) = restored("answered", None).await.expect("restored");
        assert_eq!(noted(&store, end), noted(one.base.store(), end));
    });
}

#[test]
fn a_backup_begins_anew_after_entries_that_went_while_it_was_off() {
    on_a_machine(async {
        let log = open_log().await;
        let one = copying(&log, 1).await;
        one.back_up().await;
        IS_AWAY.set(true);
        notes(&one.top, 0..1200).await;
        sleep(Duration::from_secs(30)).await;
        assert!(one.state().problem.contains("it is away"));
        IS_AWAY.set(false);
        sleep(Duration::from_secs(30)).await;
        assert_eq!(one.state().problem, "");
        let first = one.state();
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
        let second = one.state();
        assert!(second.session > first.session, "{second:?}");
        let (last, store) = restored("second", None).await.expect("restored");
        assert_eq!(noted(&store, last), noted(one.base.store(), last));
        let (pos, _) = restored("the first", Some(end)).await.expect("it is there");
        assert_eq!(pos, end);
        let between = restored("between", Some(end + 1)).await.err();
        let between = between.expect("nobody has it");
        assert!(between.contains("was asked for"), "{between}");
        // Where nothing is any more, it begins anew.
        for name in files("").await {
            shelf().remove(&name).await.expect("removed");
        }
        one.back_up().await;
        sleep(Duration::from_secs(60)).await;
        assert!(one.state().session > second.session);
        restored("third", None).await.expect("restored");
    });
}
