//! Append streams, consumers and the special keys of streams. What proxies capture is tested in whole clusters.

use plinth_client::testing::MemoryCluster;
use plinth_client::{
    Database, Position, RangeOptions, Stream, StreamContent, StreamLimit, StreamOptions,
    Transaction, TransactionOption,
};
use plinth_core::key::KeyRange;
use plinth_core::{Error, Key, KeySelector, Result, Value, Versionstamp};
use plinth_runtime::real::block_on;

async fn with_stream() -> (Database, Stream) {
    let database = MemoryCluster::new().database();
    let made = database.run(async |tr| tr.create_stream("log", &StreamOptions::append()).await);
    made.await.expect("makes it");
    let stream = database.run(async |tr| tr.open_stream("log").await).await;
    (database, stream.expect("it is there"))
}

/// One transaction a list; the entries are numbered through.
async fn append(database: &Database, stream: &Stream, counts: &[usize]) {
    let mut number = 0;
    for count in counts {
        let transaction = database.create_transaction();
        for _ in 0..*count {
            let entry = format!("entry {number:03}");
            stream.append(&transaction, entry).await.expect("appends");
            number += 1;
        }
        transaction.commit().await.expect("commits");
    }
}

fn texts(entries: &[plinth_client::StreamEntry]) -> Vec<String> {
    let text = |entry: &plinth_client::StreamEntry| match &entry.content {
        StreamContent::Appended(value) => String::from_utf8_lossy(value).into_owned(),
        StreamContent::Changed(_) => panic!("nothing has changed"),
    };
    entries.iter().map(text).collect()
}

fn numbered(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("entry {number:03}")).collect()
}

#[test]
fn an_entry_stands_at_the_versionstamp_of_its_transaction() {
    block_on(async {
        let (database, stream) = with_stream().await;
        let transaction = database.create_transaction();
        for number in 0..3 {
            let given = stream.append(&transaction, [number as u8]).await;
            assert_eq!(given, Ok(number));
        }
        let stamp = transaction.get_versionstamp();
        transaction.commit().await.expect("commits");
        let stamp: Versionstamp = stamp.await.expect("it has written");
        let reader = database.create_transaction();
        let limit = StreamLimit::default();
        let batch = stream
            .read(&reader, Position::START, limit)
            .await
            .expect("reads");
        let at: Vec<_> = batch.entries.iter().map(|entry| entry.position).collect();
        let expected = [0u16, 1, 2].map(|piece| Position {
            version: stamp.version(),
            order: stamp.order(),
            piece,
        });
        assert_eq!(at, expected);
        assert_eq!(at[2].to_bytes()[..10], stamp.0);
        let version = reader.get_read_version().await.expect("known");
        assert_eq!(
            (batch.through, batch.next),
            (version, Position::of_version(version + 1))
        );
        assert!(!batch.more);
    });
}

#[test]
fn any_limits_give_the_same_entries_one_batch_after_the_other() {
    block_on(async {
        let (database, stream) = with_stream().await;
        append(&database, &stream, &[1, 5, 2, 9, 3]).await;
        for (entries, bytes) in [
            (1, 1 << 20),
            (3, 1 << 20),
            (100, 1),
            (100, 120),
            (100, 1 << 20),
        ] {
            let (mut at, mut came) = (Position::START, Vec::new());
            loop {
                let reader = database.create_transaction();
                let limit = StreamLimit { entries, bytes };
                let batch = stream.read(&reader, at, limit).await.expect("reads");
                assert!(batch.entries.len() <= entries);
                assert!(batch.next > at && batch.through < batch.next.version);
                came.extend(texts(&batch.entries));
                at = batch.next;
                if !batch.more {
                    break;
                }
            }
            assert_eq!(came, numbered(0..20), "limits {entries}, {bytes}");
        }
    });
}

#[test]
fn a_read_from_before_a_cut_is_told_and_one_from_the_oldest_is_not() {
    block_on(async {
        let (database, stream) = with_stream().await;
        append(&database, &stream, &[2, 2, 2]).await;
        let read = async |from| {
            let reader = database.create_transaction();
            let batch = stream.read(&reader, from, StreamLimit::default()).await?;
            Result::Ok(batch.entries)
        };
        let all = read(Position::START).await.expect("reads");
        let trimmed = database.run(async |tr| stream.trim(&tr, all[3].position).await);
        trimmed.await.expect("trims");
        assert_eq!(
            texts(&read(Position::START).await.expect("reads")),
            numbered(3..6)
        );
        assert_eq!(
            texts(&read(all[3].position).await.expect("reads")),
            numbered(3..6)
        );
        assert_eq!(read(all[2].position).await, Err(Error::stream_too_old));
        // Trimming less than before changes nothing.
        let again = database.run(async |tr| stream.trim(&tr, all[1].position).await);
        again.await.expect("trims");
        assert_eq!(read(all[2].position).await, Err(Error::stream_too_old));
    });
}

#[test]
fn what_is_no_legal_stream_is_refused() {
    block_on(async {
        let (database, stream) = with_stream().await;
        let create = async |name: &str, options: StreamOptions| {
            let transaction = database.create_transaction();
            let made = transaction.create_stream(name, &options).await;
            made.and(transaction.commit().await)
        };
        let append = StreamOptions::append;
        let long = "x".repeat(256);
        for name in ["", "a\0b", &long] {
            assert_eq!(
                create(name, append()).await,
                Err(Error::invalid_stream),
                "{name}"
            );
        }
        assert_eq!(
            create("log", append()).await,
            Err(Error::stream_already_exists)
        );
        let changes = |begin: &'static str, end: &'static [u8]| {
            StreamOptions::changes(vec![KeyRange::new(begin, end)])
        };
        for bad in [
            changes("b", b"a"),
            changes("", b"\xff\x01"),
            StreamOptions::changes(vec![]),
        ] {
            assert_eq!(create("bad", bad).await, Err(Error::invalid_stream));
        }
        for name in ["one", "two", "three"] {
            assert_eq!(create(name, changes("a", b"c")).await, Ok(()));
        }
        assert_eq!(
            create("four", changes("b", b"d")).await,
            Err(Error::too_many_streams)
        );
        assert_eq!(create("beside", changes("c", b"d")).await, Ok(()));
        let transaction = database.create_transaction();
        let large = vec![0; 100_001];
        assert_eq!(
            stream.append(&transaction, large).await,
            Err(Error::value_too_large)
        );
        let changes = transaction.open_stream("one").await.expect("it is there");
        assert_eq!(
            changes.append(&transaction, "x").await,
            Err(Error::invalid_stream)
        );
        let tenant = database.open_tenant("tenant");
        let inside = tenant.create_transaction();
        assert_eq!(
            inside.list_streams().await.err(),
            Some(Error::illegal_tenant_access)
        );
    });
}

#[test]
fn a_dropped_stream_takes_no_append_even_under_its_name() {
    block_on(async {
        let (database, stream) = with_stream().await;
        append(&database, &stream, &[3]).await;
        let late = database.create_transaction();
        stream
            .append(&late, "late")
            .await
            .expect("it is there still");
        let dropped = database.run(async |tr| tr.drop_stream("log").await);
        dropped.await.expect("drops");
        assert_eq!(late.commit().await, Err(Error::not_committed));
        let made = database.run(async |tr| tr.create_stream("log", &StreamOptions::append()).await);
        made.await.expect("makes it anew");
        let transaction = database.create_transaction();
        let appended = stream.append(&transaction, "late").await;
        assert_eq!(
            appended,
            Err(Error::stream_not_found),
            "it is another stream"
        );
        let read = stream
            .read(&transaction, Position::START, StreamLimit::default())
            .await;
        assert_eq!(read.err(), Some(Error::stream_not_found));
        let new = transaction.open_stream("log").await.expect("it is there");
        let batch = new
            .read(&transaction, Position::START, StreamLimit::default())
            .await;
        assert_eq!(batch.expect("reads").entries, []);
    });
}

#[test]
fn two_that_consume_for_one_name_do_not_both_commit() {
    block_on(async {
        let (database, stream) = with_stream().await;
        append(&database, &stream, &[4]).await;
        let consume = async || {
            let tr = database.create_transaction();
            let from = stream.position(&tr, "reader").await.expect("reads");
            let from = from.unwrap_or(Position::START);
            let batch = stream
                .read(&tr, from, StreamLimit::default())
                .await
                .expect("reads");
            let noted = stream.set_position(&tr, "reader", batch.next).await;
            noted.expect("a legal name");
            (tr, batch.entries.len())
        };
        let (one, other) = (consume().await, consume().await);
        assert_eq!((one.1, other.1), (4, 4));
        assert_eq!(one.0.commit().await, Ok(()));
        assert_eq!(other.0.commit().await, Err(Error::not_committed));
        assert_eq!(consume().await.1, 0);
        let tr = database.create_transaction();
        let consumers = stream.consumers(&tr).await.expect("reads");
        assert_eq!(consumers.len(), 1);
        // An append of somebody else is no conflict for a consumer.
        let (consuming, _) = consume().await;
        append(&database, &stream, &[1]).await;
        assert_eq!(consuming.commit().await, Ok(()));
    });
}

#[test]
fn a_consumer_that_has_handled_all_is_not_behind() {
    block_on(async {
        let (database, stream) = with_stream().await;
        append(&database, &stream, &[4]).await;
        let behind = async || {
            let tr = database.create_transaction();
            let version = tr.get_read_version().await.expect("known");
            let lags = stream.lags(&tr).await.expect("reads");
            let [(name, at, behind)] = &lags[..] else {
                panic!("{lags:?}");
            };
            assert_eq!(name, "reader");
            (*at, *behind, version)
        };
        let note = async |at: Position| {
            let tr = database.create_transaction();
            stream.set_position(&tr, "reader", at).await.expect("noted");
            tr.commit().await.expect("commits");
        };
        let batch = {
            let tr = database.create_transaction();
            let read = stream.read(&tr, Position::START, StreamLimit::default());
            read.await.expect("reads")
        };
        note(Position::START).await;
        let (_, all, version) = behind().await;
        let oldest = batch.entries[0].position.version;
        assert_eq!(all, version - oldest);
        note(batch.entries[3].position.next()).await;
        assert_eq!(behind().await.1, 0, "right behind its last entry");
        note(batch.next).await;
        // Versions pass while nothing is appended.
        database
            .run(async |tr| {
                tr.set("elsewhere", "1");
                Ok(())
            })
            .await
            .expect("commits");
        assert_eq!(behind().await.1, 0);
        append(&database, &stream, &[1]).await;
        let (at, new, version) = behind().await;
        assert!(
            new < version - at.version,
            "the age of the entry, not of the position"
        );
    });
}

#[test]
fn a_wait_ends_with_the_next_entry_or_with_the_stream() {
    block_on(async {
        let (database, stream) = with_stream().await;
        append(&database, &stream, &[1]).await;
        let waited = database.wait_for_stream(&stream, Position::START);
        waited.await.expect("an entry is there");
        let version = database
            .create_transaction()
            .get_read_version()
            .await
            .expect("known");
        for end in ["append", "drop"] {
            let after = Position::of_version(version + 1_000);
            let from = if end == "append" {
                Position::of_version(version + 1)
            } else {
                after
            };
            let changing = async {
                plinth_runtime::yield_now().await;
                match end {
                    "append" => append(&database, &stream, &[1]).await,
                    _ => database
                        .run(async |tr| tr.drop_stream("log").await)
                        .await
                        .expect("drops"),
                }
            };
            let waiting = async {
                database
                    .wait_for_stream(&stream, from)
                    .await
                    .expect("it ends");
            };
            type Both<'a> = std::pin::Pin<Box<dyn Future<Output = ()> + 'a>>;
            let both: [Both<'_>; 2] = [Box::pin(waiting), Box::pin(changing)];
            plinth_runtime::join_all(both).await;
        }
    });
}

// ---- special keys ----

fn writable(database: &Database) -> Transaction {
    let transaction = database.create_transaction();
    let option = TransactionOption::SpecialKeySpaceEnableWrites;
    transaction.set_option(option).expect("an option");
    transaction
}

async fn rows(
    tr: &Transaction,
    begin: &[u8],
    end: &[u8],
    options: RangeOptions,
) -> Vec<(Key, Value)> {
    let at = |key: &[u8]| KeySelector::first_greater_or_equal(key.to_vec());
    let found = tr.get_range_all(at(begin), at(end), options, false).await;
    found.expect("special rows")
}

const BEGIN: &[u8] = b"\xff\xff/streams/log/";
const END: &[u8] = b"\xff\xff/streams/log0";

#[test]
fn every_binding_can_append_and_read_through_special_keys() {
    block_on(async {
        let (database, stream) = with_stream().await;
        let transaction = writable(&database);
        for text in ["a", "b"] {
            transaction.set(b"\xff\xff/stream_append/log", text);
        }
        transaction.commit().await.expect("commits");
        append(&database, &stream, &[5, 50]).await;
        let tr = database.create_transaction();
        let all = rows(&tr, BEGIN, END, RangeOptions::default()).await;
        assert_eq!(all.len(), 57);
        assert_eq!(
            (&all[0].1[..], &all[1].1[..], &all[2].1[..]),
            (&b"a"[..], &b"b"[..], &b"entry 000"[..])
        );
        assert!(all.is_sorted());
        // Any limit, either direction, and any part of it give the same rows.
        for (limit, reverse) in [(1, false), (7, false), (7, true), (0, true)] {
            let options = RangeOptions {
                limit,
                reverse,
                ..RangeOptions::default()
            };
            let mut found = rows(&tr, BEGIN, END, options).await;
            let wanted = if limit == 0 {
                all.len()
            } else {
                limit as usize
            };
            let expected = if reverse {
                &all[all.len() - wanted..]
            } else {
                &all[..wanted]
            };
            if reverse {
                found.reverse();
            }
            assert_eq!(found, expected, "limit {limit}, reverse {reverse}");
        }
        let part = rows(&tr, &all[3].0, &all[9].0, RangeOptions::default()).await;
        assert_eq!(part, all[3..9]);
        let one = tr.get(&all[4].0, false).await.expect("a special key");
        assert_eq!(one.as_ref(), Some(&all[4].1));
    });
}

#[test]
fn consumers_are_special_keys_and_a_cut_is_told_there() {
    block_on(async {
        let (database, stream) = with_stream().await;
        append(&database, &stream, &[6]).await;
        let all = rows(
            &database.create_transaction(),
            BEGIN,
            END,
            RangeOptions::default(),
        )
        .await;
        let position = |at: usize| all[at].0[all[at].0.len() - 12..].to_vec();
        let key: &[u8] = b"\xff\xff/stream_consumers/log/printer";
        let transaction = writable(&database);
        transaction.set(key, position(3));
        transaction.commit().await.expect("commits");
        let tr = database.create_transaction();
        assert_eq!(tr.get(key, false).await, Ok(Some(position(3).into())));
        let at = stream
            .position(&tr, "printer")
            .await
            .expect("reads")
            .expect("noted");
        assert_eq!(at.to_bytes()[..], position(3));
        let transaction = writable(&database);
        transaction.set(key, "not a position");
        assert_eq!(transaction.commit().await, Err(Error::invalid_stream));
        let transaction = writable(&database);
        transaction.clear(key);
        transaction.commit().await.expect("commits");
        assert_eq!(
            database.create_transaction().get(key, false).await,
            Ok(None)
        );

        let trimmed = database.run(async |tr| stream.trim(&tr, at).await);
        trimmed.await.expect("trims");
        let tr = database.create_transaction();
        let left = rows(&tr, BEGIN, END, RangeOptions::default()).await;
        assert_eq!(left, all[3..]);
        let from = KeySelector::first_greater_or_equal(all[1].0.clone());
        let to = KeySelector::first_greater_or_equal(END);
        let read = tr
            .get_range_all(from, to, RangeOptions::default(), false)
            .await;
        assert_eq!(read, Err(Error::stream_too_old));
    });
}
