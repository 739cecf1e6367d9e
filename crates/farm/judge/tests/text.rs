//! Histories as text.

use crate::written::*;
use plinth_farm_judge::*;
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

#[test]
fn a_line_is_as_it_is_described() {
    let t = tx(17, 100, 250).on(2).reads_at(120).commits_at(140);
    let t = t.initial(0x10).absent(0x20).of(0x30, 5);
    let t = t.sets(0x10).allocates(0x20).frees(0x30);
    assert_eq!(
        t.to_string(),
        "17 2 100 250 st-- 120 c140 r10=i r20=- r30=5 w10 a20 f30"
    );
    let open = tx(18, 100, NEVER)
        .on(2)
        .with(Options::DEFAULT.snapshot_isolation().not_strict().stale());
    assert_eq!(open.to_string(), "18 2 100 - i-ro - u");
    let history = history([t, open]);
    assert_eq!(History::parse(history.to_text().as_bytes()), Ok(history));
}

fn parsed(lines: &str) -> Result<History, String> {
    let parsed = History::parse(format!("{HEADER}\n{lines}").as_bytes());
    parsed.map_err(|wrong| wrong.to_string())
}

#[test]
fn what_is_wrong_with_a_text_is_told() {
    for (lines, why) in [
        ("x\n", "line 2: `x' is no number"),
        ("\n", "line 2: `' is no number"),
        ("1 2 3 4 st-- 5\n", "line 2: it ends before the outcome"),
        (
            "1 2 3 4 st-- 5 a\n1 4294967296 3 4 st-- 5 a\n",
            "line 3: 4294967296 is no machine",
        ),
        ("1 2 3 04 st-- 5 a\n", "line 2: `04' is no number"),
        ("1 2 3 +4 st-- 5 a\n", "line 2: `+4' is no number"),
        ("1 2 3 4 sx-- 5 a\n", "line 2: `sx--' is no set of options"),
        ("1 2 3 4 st-- 5 b\n", "line 2: `b' is no outcome"),
        ("1 2 3 4 st-- 5 a rX=i\n", "line 2: `X' is no object"),
        ("1 2 3 4 st-- 5 a q1\n", "line 2: `q1' is no operation"),
        ("1 2 3 4 st-- 5 a  \n", "line 2: `' is no operation"),
        (
            "1 2 3 4 st-- 5 a r1=18446744073709551616\n",
            "line 2: `18446744073709551616' is no number",
        ),
        (
            "1 2 3 4 st-- 5 a\n1 2 3 4 st-- 5 a\n",
            "line 3: transaction 1 was told before, and is another one",
        ),
        (
            "1 2 3 - st-- 5 u\n1 2 4 4 st-- 5 a\n",
            "line 3: transaction 1 was told before, and is another one",
        ),
    ] {
        assert_eq!(parsed(lines), Err(why.to_string()));
    }
    let not_text = [HEADER.as_bytes(), b"\n1 \xff\n"].concat();
    assert_eq!(
        History::parse(&not_text).expect_err("no text").to_string(),
        "line 2: it is not text"
    );
    let other = History::parse(b"plinth farm history 2\n").expect_err("another version");
    assert_eq!(
        other.to_string(),
        format!("line 1: it does not say `{HEADER}'")
    );
    assert!(History::parse(b"").is_err());
}

#[test]
fn the_last_line_of_a_transaction_counts_if_it_is_whole() {
    let before = "1 2 3 - st-- 5 u w10\n";
    let whole = parsed(&format!("{before}1 2 3 9 st-- 5 c7 w10\n")).expect("a history");
    assert_eq!(
        whole,
        history([tx(1, 3, 9).on(2).reads_at(5).sets(0x10).commits_at(7)])
    );
    let torn = parsed(&format!("{before}1 2 3 9 st-- 5 c7 w1")).expect("a history");
    assert_eq!(
        torn,
        history([tx(1, 3, NEVER).on(2).reads_at(5).sets(0x10)])
    );
}

#[test]
fn a_recorder_writes_what_it_does_not_keep() {
    let (file, now) = (Rc::new(RefCell::new(String::new())), Rc::new(Cell::new(0)));
    let (lines, clock) = (file.clone(), now.clone());
    let recorder = Recorder::writing(
        3,
        move || clock.get(),
        move |line| *lines.borrow_mut() += line,
    );
    let killed_at = |file: &str| History::parse(file.as_bytes()).expect("a history");
    let first = recorder.begin(7, Options::DEFAULT);
    now.set(10);
    first.started(100);
    first.read(X, Seen::Initial);
    first.write(X, Change::Set);
    assert_eq!(killed_at(&file.borrow()), History::default());
    first.commits();
    let id = (3 << 32) + 1;
    let wanted = tx(id, 0, NEVER).on(7).reads_at(100).initial(X).sets(X);
    assert_eq!(killed_at(&file.borrow()), history([wanted.clone()]));
    assert_eq!(first.end(Outcome::Committed(120)), id);
    drop(recorder.begin(8, Options::DEFAULT));
    let mut ended = wanted.commits_at(120);
    ended.end = 10;
    assert_eq!(
        killed_at(&file.borrow()),
        history([ended, tx(id + 1, 10, NEVER).on(8)])
    );
    assert_eq!(recorder.history(), History::default());
}

fn transactions() -> impl Strategy<Value = Transaction> {
    let seen = prop_oneof![
        Just(Seen::Initial),
        Just(Seen::Absent),
        any::<u64>().prop_map(Seen::Of)
    ];
    let reads = prop::collection::vec((any::<u64>(), seen), 0..5);
    let change = prop_oneof![
        Just(Change::Set),
        Just(Change::Allocate),
        Just(Change::Free)
    ];
    let writes = prop::collection::vec((any::<u64>(), change), 0..5);
    let outcome = prop_oneof![
        any::<u64>().prop_map(Outcome::Committed),
        Just(Outcome::ReadOnly),
        Just(Outcome::Aborted),
        any::<Option<u64>>().prop_map(Outcome::Unknown),
    ];
    let times = (any::<u64>(), any::<u64>(), any::<Option<u64>>());
    let options = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    (any::<u32>(), times, options, reads, writes, outcome).prop_map(
        |(machine, (begin, end, read_timestamp), flags, reads, writes, outcome)| {
            let isolation = if flags.0 {
                Isolation::Serializable
            } else {
                Isolation::Snapshot
            };
            Transaction {
                id: 0,
                machine,
                begin,
                end,
                options: Options {
                    isolation,
                    strict: flags.1,
                    read_only: flags.2,
                    stale: flags.3,
                },
                read_timestamp,
                reads: reads
                    .into_iter()
                    .map(|(object, seen)| Read { object, seen })
                    .collect(),
                writes: writes
                    .into_iter()
                    .map(|(object, change)| Write { object, change })
                    .collect(),
                outcome,
            }
        },
    )
}

proptest! {
    #[test]
    fn a_history_comes_back_from_its_text(mut transactions in prop::collection::vec(transactions(), 0..6)) {
        for (t, id) in transactions.iter_mut().zip(1..) {
            t.id = id;
        }
        let history = History { transactions };
        let text = history.to_text();
        let back = History::parse(text.as_bytes()).expect("a history");
        prop_assert_eq!(&back, &history);
        // Nothing that was recorded makes a judge fail otherwise than by its verdict.
        let _ = judge(&history);
    }

    #[test]
    fn no_text_breaks_the_parser(
        transactions in prop::collection::vec(transactions(), 1..4),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        noise in prop::collection::vec("[0-9a-f \\n=w-]{0,12}", 0..4),
    ) {
        let mut text = History { transactions }.to_text().into_bytes();
        let from = HEADER.len() + 1;
        for (at, byte) in changes {
            let at = from + at.index(text.len() - from);
            text[at] = byte;
        }
        text.extend(noise.concat().bytes());
        if let Ok(history) = History::parse(&text) {
            let again = History::parse(history.to_text().as_bytes());
            prop_assert_eq!(again, Ok(history.clone()));
            let _ = judge(&history);
        }
    }

    #[test]
    fn any_history_has_a_verdict(small in any::<u64>(), count in 1usize..8) {
        // Numbers that are small meet one another.
        let mut random = crate::written::generate::Random(small);
        let mut small = |limit: u64| random.next() % limit;
        let mut transactions = Vec::new();
        for id in 0..count as u64 {
            let begin = small(10);
            let mut t = tx(id, begin, begin + small(5)).reads_at(small(10));
            for _ in 0..small(4) {
                let seen = [Seen::Initial, Seen::Absent, Seen::Of(small(count as u64))][small(3) as usize];
                t = t.sees(small(3), seen);
            }
            for object in 0..3 {
                let change = [Change::Set, Change::Allocate, Change::Free][small(3) as usize];
                if small(2) == 0 {
                    t = t.writes(object, change);
                }
            }
            t.outcome = match small(4) {
                0 if t.writes.is_empty() => Outcome::ReadOnly,
                1 => Outcome::Unknown(None),
                2 => Outcome::Aborted,
                _ => Outcome::Unknown(Some(small(15))),
            };
            if small(2) == 0 && !t.writes.is_empty() {
                t.outcome = Outcome::Committed(small(15));
            }
            transactions.push(t);
        }
        let history = History { transactions };
        prop_assert!(judge_by_timestamps(&history).is_err() || judge_by_order(&history).is_ok());
        if judge_by_order(&history).is_ok() {
            prop_assert!(crate::written::search::is_explained(&history), "{history:#?}");
        }
    }
}
