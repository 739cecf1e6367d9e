//! Repeated reads of a transaction do not ask a server again.

use plinth_client::testing::MemoryCluster;
use plinth_client::{RangeOptions, StreamingMode, Transaction, TransactionOption};
use plinth_core::conflict_ranges::ConflictRanges;
use plinth_core::key::printable;
use plinth_core::{Error, Key, KeySelector, MutationKind, Value};
use plinth_runtime::join_all;
use plinth_runtime::real::block_on;

fn letters() -> MemoryCluster {
    MemoryCluster::with_rows(('a'..='j').map(|c| (c.to_string(), c.to_uppercase().to_string())))
}

fn from(key: &'static str) -> KeySelector {
    KeySelector::first_greater_or_equal(key)
}

async fn keys(tr: &Transaction, begin: &'static str, end: &'static str) -> String {
    let rows = tr.get_range_all(from(begin), from(end), RangeOptions::default(), false);
    let rows = rows.await.expect("readable");
    rows.iter().map(|(key, _)| printable(key)).collect()
}

async fn get(tr: &Transaction, key: &'static str) -> Option<Value> {
    tr.get(key, false).await.expect("readable")
}

/// Makes every later read that reaches a server fail.
fn let_five_seconds_pass(cluster: &MemoryCluster) {
    cluster.set_oldest(cluster.version() + 1);
}

#[test]
fn a_key_read_before_is_answered_without_a_server_for_as_long_as_the_transaction_lives() {
    block_on(async {
        let cluster = letters();
        let tr = cluster.database().create_transaction();
        for key in ["a", "nothing", "c"] {
            get(&tr, key).await;
        }
        assert_eq!(cluster.reads(), 3);
        let_five_seconds_pass(&cluster);
        assert_eq!(get(&tr, "a").await.as_deref(), Some(&b"A"[..]));
        assert_eq!(get(&tr, "nothing").await, None, "absent is known as well");
        assert_eq!(
            tr.get("c", true).await.expect("known").as_deref(),
            Some(&b"C"[..])
        );
        let at_a = tr.get_key(from("a"), false).await;
        assert_eq!(at_a.as_deref(), Ok(&b"a"[..]));
        let at_c = tr
            .get_key(KeySelector::last_less_or_equal("c"), false)
            .await;
        assert_eq!(at_c.as_deref(), Ok(&b"c"[..]));
        assert_eq!(cluster.reads(), 3);
        assert_eq!(tr.get("d", false).await, Err(Error::transaction_too_old));
    });
}

#[test]
fn many_keys_are_remembered_as_well_as_few() {
    block_on(async {
        let key = |i: u32| format!("{:08x}", i.wrapping_mul(0x9e37_79b9));
        let rows = (0..1000).filter(|i| i % 3 > 0).map(|i| (key(i), key(i)));
        let cluster = MemoryCluster::with_rows(rows);
        let tr = cluster.database().create_transaction();
        for _ in 0..2 {
            for i in 0..1000 {
                let value = tr.get(key(i), false).await.expect("readable");
                assert_eq!(value, (i % 3 > 0).then(|| Value::from(key(i))));
            }
        }
        assert_eq!(cluster.reads(), 1000);
    });
}

#[test]
fn what_a_range_read_has_proven_is_known_and_no_more() {
    block_on(async {
        let cluster = letters();
        let tr = cluster.database().create_transaction();
        let limited = RangeOptions::limit(3);
        let read = tr.get_range(from("b"), from("j"), limited, false).await;
        assert_eq!(read.expect("readable").rows.len(), 3, "b, c and d");
        let read = tr.get_range(
            from("b"),
            from("i"),
            RangeOptions::limit(2).reversed(),
            false,
        );
        assert_eq!(read.await.expect("readable").rows.len(), 2, "h and g");
        let asked = cluster.reads();
        let_five_seconds_pass(&cluster);
        assert_eq!(get(&tr, "c").await.as_deref(), Some(&b"C"[..]));
        assert_eq!(get(&tr, "cc").await, None, "between two rows");
        assert_eq!(
            get(&tr, "hh").await,
            None,
            "behind the first row of a reverse read"
        );
        assert_eq!(keys(&tr, "bb", "d").await, "c");
        assert_eq!(keys(&tr, "g", "i").await, "gh");
        let again = tr.get_range(from("b"), from("j"), limited, true).await;
        assert!(again.expect("known").more);
        for (selector, found) in [
            (KeySelector::first_greater_than("b"), "c"),
            (KeySelector::last_less_than("d"), "c"),
            (KeySelector::new("b", false, 3), "d"),
            (KeySelector::new("i", false, -1), "g"),
        ] {
            let key = tr.get_key(selector, false).await;
            assert_eq!(key.as_deref(), Ok(found.as_bytes()));
        }
        assert_eq!(cluster.reads(), asked);
        for unknown in ["dd", "f", "a", "i"] {
            assert_eq!(tr.get(unknown, true).await, Err(Error::transaction_too_old));
        }
    });
}

#[test]
fn a_selector_resolved_before_is_known_wherever_it_led() {
    block_on(async {
        let cluster = letters();
        let tr = cluster.database().create_transaction();
        let selectors = [
            KeySelector::first_greater_or_equal("c"),
            KeySelector::first_greater_than("j"),
            KeySelector::last_less_than("a"),
            KeySelector::last_less_than("bb"),
            KeySelector::new("b", false, 4),
            KeySelector::new("h", true, -3),
            KeySelector::new("b", false, 400),
            KeySelector::new("h", true, -300),
        ];
        let mut found = Vec::new();
        for selector in &selectors {
            found.push(tr.get_key(selector.clone(), false).await.expect("readable"));
        }
        let asked = cluster.reads();
        // Results that are added meanwhile remove none of the known ones.
        keys(&tr, "b", "d").await;
        let_five_seconds_pass(&cluster);
        for (selector, found) in selectors.iter().zip(&found) {
            let again = tr.get_key(selector.clone(), true).await;
            assert_eq!(again.as_ref(), Ok(found), "{selector:?}");
        }
        assert!(cluster.reads() <= asked + 2);
        let behind = tr.get_range(
            selectors[4].clone(),
            selectors[0].clone(),
            RangeOptions::default(),
            false,
        );
        assert_eq!(
            behind.await.expect("known").rows,
            [],
            "ranges ask for selectors, too"
        );
    });
}

#[test]
fn what_is_known_conflicts_like_what_is_asked() {
    block_on(async {
        let cluster = letters();
        let tr = cluster.database().create_transaction();
        tr.get("a", true).await.expect("readable");
        let all = RangeOptions::default();
        tr.get_range_all(from("c"), from("f"), all, true)
            .await
            .expect("readable");
        let asked = cluster.reads();
        get(&tr, "a").await;
        tr.get_range(from("c"), from("e"), RangeOptions::limit(1), false)
            .await
            .expect("known");
        tr.get_key(KeySelector::last_less_than("f"), false)
            .await
            .expect("known");
        assert_eq!(cluster.reads(), asked);
        tr.set("z", "written");
        tr.commit().await.expect("nobody else is there");
        let sent = cluster.commits().pop().expect("sent");
        let ranges = ConflictRanges::parse(sent.reads).expect("well formed");
        let real = ranges
            .iter()
            .filter(|range| !range.begin.starts_with(b"\xff/SC/"));
        let texts = real.map(|r| (printable(r.begin), printable(&r.end.to_key())));
        let want = [("a", "a\\x00"), ("c", "c\\x00"), ("e", "f")];
        assert_eq!(
            texts.collect::<Vec<_>>(),
            want.map(|(b, e)| (b.to_owned(), e.to_owned()))
        );
    });
}

#[test]
fn own_writes_lie_over_what_is_known() {
    block_on(async {
        let cluster = letters();
        let tr = cluster.database().create_transaction();
        assert_eq!(keys(&tr, "a", "z").await, "abcdefghij");
        let asked = cluster.reads();
        tr.set("bb", "new");
        tr.clear("c");
        tr.clear_range("e", "h");
        tr.atomic_op(MutationKind::AppendIfFits, "d", "+");
        tr.atomic_op(MutationKind::AppendIfFits, "k", "+");
        assert_eq!(keys(&tr, "a", "z").await, "abbbdhijk");
        assert_eq!(get(&tr, "d").await.as_deref(), Some(&b"D+"[..]));
        assert_eq!(get(&tr, "k").await.as_deref(), Some(&b"+"[..]));
        assert_eq!(get(&tr, "f").await, None);
        let reversed = RangeOptions::limit(4).reversed();
        let last = tr
            .get_range(from("a"), from("j"), reversed, true)
            .await
            .expect("known");
        let last: String = last.rows.iter().map(|(key, _)| printable(key)).collect();
        assert_eq!(last, "ihdbb");
        assert_eq!(cluster.reads(), asked);
    });
}

#[test]
fn without_read_your_writes_every_read_asks_a_server() {
    block_on(async {
        let cluster = letters();
        let tr = cluster.database().create_transaction();
        tr.set_option(TransactionOption::ReadYourWritesDisable)
            .expect("nothing was read yet");
        for _ in 0..2 {
            get(&tr, "a").await;
            keys(&tr, "a", "c").await;
            tr.get_key(from("d"), false).await.expect("readable");
        }
        assert_eq!(cluster.reads(), 6);
    });
}

#[test]
fn a_snapshot_read_that_does_not_see_own_writes_is_answered_from_what_lies_below_them() {
    block_on(async {
        let cluster = letters();
        let tr = cluster.database().create_transaction();
        tr.set_option(TransactionOption::SnapshotRywDisable)
            .expect("valid");
        keys(&tr, "a", "d").await;
        let asked = cluster.reads();
        tr.set("b", "own");
        tr.clear("c");
        assert_eq!(
            tr.get("b", true).await.expect("known").as_deref(),
            Some(&b"B"[..])
        );
        assert_eq!(get(&tr, "b").await.as_deref(), Some(&b"own"[..]));
        let rows = tr.get_range(from("a"), from("d"), RangeOptions::default(), true);
        assert_eq!(rows.await.expect("known").rows.len(), 3);
        assert_eq!(cluster.reads(), asked);
    });
}

#[test]
fn another_attempt_knows_nothing_of_the_one_before() {
    block_on(async {
        let cluster = letters();
        let database = cluster.database();
        let tr = database.create_transaction();
        for again in 0..3 {
            let value = get(&tr, "a").await.expect("there");
            assert_eq!(
                value,
                if again == 0 {
                    "A".into()
                } else {
                    format!("{}", again - 1)
                }
            );
            keys(&tr, "b", "d").await;
            assert_eq!(cluster.reads(), 2 * (again + 1));
            let other = database.create_transaction();
            other.set("a", again.to_string());
            other.commit().await.expect("nobody else writes");
            if again == 0 {
                tr.reset();
            } else {
                tr.on_error(Error::not_committed)
                    .await
                    .expect("it may be tried again");
            }
        }
    });
}

#[test]
fn no_more_is_remembered_than_the_transaction_may_be_large() {
    block_on(async {
        let cluster = MemoryCluster::with_rows((0..100u8).map(|i| (vec![i], vec![i; 100])));
        let tr = cluster.database().create_transaction();
        tr.set_option(TransactionOption::SizeLimit(2000))
            .expect("valid");
        let read_all = async || {
            for i in 0..100u8 {
                let value = tr.get(vec![i], true).await.expect("readable");
                assert_eq!(value, Some(vec![i; 100].into()));
            }
            cluster.reads()
        };
        let first = read_all().await;
        assert_eq!(first, 100);
        let known = 100 - (read_all().await - first);
        assert!((5..20).contains(&known), "{known} keys are known");
        let all = || tr.get_range_all(from(""), from("\u{7f}"), RangeOptions::default(), true);
        for _ in 0..2 {
            let before = cluster.reads();
            assert_eq!(all().await.expect("readable").len(), 100);
            assert!(cluster.reads() > before, "too much to be kept");
        }
    });
}

#[test]
fn reads_of_one_key_that_are_under_way_together_are_all_answered() {
    block_on(async {
        let cluster = letters();
        cluster.set_delay_turns(3);
        let tr = cluster.database().create_transaction();
        let reads = (0..5).map(|_| tr.get("a", false));
        for value in join_all(reads.collect::<Vec<_>>()).await {
            assert_eq!(value.expect("readable").as_deref(), Some(&b"A"[..]));
        }
        let scans = (0..5).map(|_| Box::pin(keys(&tr, "b", "e")));
        assert_eq!(join_all(scans.collect::<Vec<_>>()).await, ["bcd"; 5]);
        let asked = cluster.reads();
        get(&tr, "a").await;
        keys(&tr, "b", "e").await;
        assert_eq!(cluster.reads(), asked);
    });
}

#[test]
fn a_read_that_a_reset_cut_short_tells_the_next_attempt_nothing() {
    block_on(async {
        let cluster = letters();
        cluster.set_delay_turns(2);
        let tr = cluster.database().create_transaction();
        let read = tr.get_range(from("a"), from("c"), RangeOptions::default(), false);
        tr.reset();
        assert_eq!(read.await.err(), Some(Error::transaction_cancelled));
        let asked = cluster.reads();
        keys(&tr, "a", "c").await;
        assert!(cluster.reads() > asked);
    });
}

#[test]
fn the_end_of_the_keys_that_may_be_read_is_not_remembered_past_an_option_that_moves_it() {
    block_on(async {
        let cluster = letters();
        let writer = cluster.database().create_transaction();
        writer
            .set_option(TransactionOption::AccessSystemKeys)
            .expect("valid");
        writer.set(b"\xff/a", "system");
        writer.commit().await.expect("allowed");
        let tr = cluster.database().create_transaction();
        for (offset, at_end) in [(1, true), (4, true)] {
            let selector = || KeySelector::new("i", true, offset);
            let key = tr.get_key(selector(), true).await.expect("readable");
            assert_eq!(key[..] == *b"\xff", at_end && offset == 4, "{key:?}");
        }
        let past = || KeySelector::first_greater_than("j");
        assert_eq!(tr.get_key(past(), true).await.as_deref(), Ok(&b"\xff"[..]));
        tr.set_option(TransactionOption::ReadSystemKeys)
            .expect("valid");
        assert_eq!(
            tr.get_key(past(), true).await.as_deref(),
            Ok(&b"\xff/a"[..])
        );
        let far = tr.get_key(KeySelector::new("i", true, 4), true).await;
        assert_eq!(far.as_deref(), Ok(&b"\xff\xff"[..]));
    });
}

#[test]
fn a_limited_range_over_cleared_keys_does_not_ask_for_them_one_by_one() {
    block_on(async {
        let rows = |i: u32| (format!("k{i:05}"), "v");
        let cluster = MemoryCluster::with_rows((0..3000).map(rows));
        for reverse in [false, true] {
            let tr = cluster.database().create_transaction();
            let cleared = if reverse { 1000..3000 } else { 0..2000 };
            cleared.for_each(|i| tr.clear(rows(i).0));
            let options = RangeOptions {
                limit: 1,
                mode: StreamingMode::Exact,
                reverse,
                ..RangeOptions::default()
            };
            let before = cluster.reads();
            let read = tr.get_range(from("k"), from("l"), options, false).await;
            let first = read.expect("readable").rows.remove(0).0;
            assert_eq!(first, Key::from(rows(if reverse { 999 } else { 2000 }).0));
            let asked = cluster.reads() - before;
            assert!(asked < 20, "asked {asked} times for one row");
        }
    });
}

#[test]
fn a_tenant_remembers_its_own_keys() {
    block_on(async {
        let cluster = MemoryCluster::new();
        let database = cluster.database();
        database.create_tenant("one").await.expect("new");
        let tenant = database.open_tenant("one");
        let tr = tenant.create_transaction();
        ["a", "b", "c"].iter().for_each(|key| tr.set(key, key));
        tr.commit().await.expect("nobody else is there");
        let tr = tenant.create_transaction();
        assert_eq!(keys(&tr, "a", "z").await, "abc");
        let_five_seconds_pass(&cluster);
        assert_eq!(keys(&tr, "b", "z").await, "bc");
        assert_eq!(get(&tr, "a").await.as_deref(), Some(&b"a"[..]));
    });
}
