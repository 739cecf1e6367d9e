//! A tour of FoundationDB's API through the unmodified Rust crate, on the cluster of the given cluster file.
//!
//! Between the marks `ready` and `go on` (on standard output and input) the test kills a server process.

use foundationdb::directory::{Directory, DirectoryLayer};
use foundationdb::options::{
    ConflictRangeType, DatabaseOption, MutationType, StreamingMode, TransactionOption,
};
use foundationdb::tuple::{Subspace, Versionstamp, pack_with_versionstamp, unpack};
use foundationdb::{Database, FdbBindingError, FdbError, KeySelector, RangeOption, Transaction};
use futures::TryStreamExt;
use std::io::BufRead;

fn row(i: usize) -> Vec<u8> {
    format!("row/{i:05}").into_bytes()
}

fn rows<'a>() -> RangeOption<'a> {
    RangeOption::from((&b"row/"[..], &b"row0"[..]))
}

fn create(db: &Database) -> Transaction {
    db.create_trx().expect("a transaction")
}

fn code<T>(result: Result<T, impl Into<FdbError>>) -> i32 {
    result.err().map_or(0, |error| error.into().code())
}

async fn transact(db: &Database, body: impl Fn(&Transaction)) {
    let body = &body;
    let done = db.run(|trx, _| async move {
        body(&trx);
        Ok::<_, FdbBindingError>(())
    });
    done.await.expect("commits");
}

async fn keys_and_ranges(db: &Database) {
    transact(db, |trx| {
        trx.clear_range(b"", b"\xff");
        trx.set(b"hello", b"world");
        (0..2000).for_each(|i| trx.set(&row(i), format!("value {i}").as_bytes()));
    })
    .await;
    let trx = create(db);
    let hello = trx.get(b"hello", false).await.expect("reads");
    assert_eq!(hello.as_deref(), Some(&b"world"[..]));
    assert!(trx.get(b"nothing", false).await.expect("reads").is_none());
    for mode in [
        StreamingMode::WantAll,
        StreamingMode::Iterator,
        StreamingMode::Small,
        StreamingMode::Medium,
        StreamingMode::Large,
        StreamingMode::Serial,
    ] {
        let found: Vec<_> = trx
            .get_ranges_keyvalues(RangeOption { mode, ..rows() }, false)
            .try_collect()
            .await
            .expect("reads");
        assert_eq!((found.len(), found[7].key()), (2000, &row(7)[..]));
    }
    let exact = RangeOption {
        mode: StreamingMode::Exact,
        ..rows()
    };
    assert_eq!(code(trx.get_range(&exact, 1, false).await), 2210);
    let last = RangeOption {
        limit: Some(3),
        reverse: true,
        ..rows()
    };
    let last = trx.get_range(&last, 1, false).await.expect("reads");
    assert_eq!((last.len(), last[0].key()), (3, &row(1999)[..]));
    let after = trx
        .get_key(&KeySelector::first_greater_than(row(10)), false)
        .await;
    assert_eq!(after.expect("reads")[..], row(11)[..]);
    assert!(
        !trx.get_addresses_for_key(b"row/")
            .await
            .expect("tells")
            .is_empty()
    );
    let bytes = trx.get_estimated_range_size_bytes(b"row/", b"row0").await;
    assert!(bytes.expect("tells") > 2000 * 15);
    let points = trx
        .get_range_split_points(b"row/", b"row0", 10_000)
        .await
        .expect("tells");
    assert!((4..10).contains(&points.len()));
}

async fn writes_and_conflicts(db: &Database) {
    let trx = create(db);
    trx.set(&row(0), b"mine");
    trx.clear_range(&row(1), &row(3));
    let two = RangeOption {
        limit: Some(2),
        ..rows()
    };
    let found = trx.get_range(&two, 1, false).await.expect("reads");
    assert_eq!((found[0].key(), found[1].key()), (&row(0)[..], &row(3)[..]));
    assert!(trx.get_approximate_size().await.expect("tells") > 0);
    let cancelled = trx.cancel();
    drop(cancelled.reset());

    let (first, second) = (create(db), create(db));
    first.get(b"hello", false).await.expect("reads");
    second.get(b"hello", false).await.expect("reads");
    let write = ConflictRangeType::Write;
    first
        .add_conflict_range(b"hello", b"hello\0", write)
        .expect("a range");
    second
        .set_option(TransactionOption::ReportConflictingKeys)
        .expect("an option");
    second.set(b"b", b"");
    assert!(
        first
            .commit()
            .await
            .expect("commits")
            .committed_version()
            .expect("wrote")
            > 0
    );
    let refused = second.commit().await.err().expect("a conflict");
    assert_eq!(refused.code(), 1020);
    let retried = refused.on_error().await.expect("worth another attempt");
    assert_eq!(
        code(retried.on_error(FdbError::from_code(2000)).await),
        2000
    );

    let add = |_| {
        transact(db, |trx| {
            trx.atomic_op(b"count", &1u64.to_le_bytes(), MutationType::Add);
            trx.atomic_op(b"most", &[7], MutationType::Max);
        })
    };
    futures::future::join_all((0..400).map(add)).await;
    let count = create(db).get(b"count", false).await.expect("reads");
    assert_eq!(count.as_deref(), Some(&400u64.to_le_bytes()[..]));
}

async fn stamps_and_watches(db: &Database) {
    let trx = create(db);
    let key = pack_with_versionstamp(&("log", Versionstamp::incomplete(3)));
    trx.atomic_op(&key, b"entry", MutationType::SetVersionstampedKey);
    let stamp = trx.get_versionstamp();
    trx.commit().await.expect("commits");
    let log = RangeOption::from(&Subspace::all().subspace(&"log"));
    let entries = create(db).get_range(&log, 1, false).await.expect("reads");
    let (_, found): (String, Versionstamp) = unpack(entries[0].key()).expect("a tuple");
    let stamp = stamp.await.expect("it has committed");
    assert_eq!(found.transaction_version()[..], stamp[..]);

    let trx = create(db);
    let changed = trx.watch(b"hello");
    trx.commit().await.expect("commits");
    transact(db, |trx| trx.set(b"hello", b"again")).await;
    changed.await.expect("it has changed");
}

async fn layers(db: &Database) {
    let path = |name: &str| vec!["tour".to_owned(), name.to_owned()];
    let layer = DirectoryLayer::default();
    let trx = create(db);
    let made = layer
        .create_or_open(&trx, &path("a"), None, None)
        .await
        .expect("makes");
    let key = made.pack(&(1, "x", -5.5)).expect("packs");
    trx.set(&key, b"in a directory");
    let back = made.unpack::<(i64, String, f64)>(&key).expect("its own");
    assert_eq!(back.expect("unpacks"), (1, "x".to_owned(), -5.5));
    layer
        .move_to(&trx, &path("a"), &path("b"))
        .await
        .expect("moves");
    let names = layer.list(&trx, &["tour".to_owned()]).await.expect("lists");
    assert_eq!(names, ["b"]);
    layer
        .remove(&trx, &["tour".to_owned()])
        .await
        .expect("removes");
    trx.commit().await.expect("commits");
}

async fn limits(db: &Database) {
    let refused = async |write: &dyn Fn(&Transaction)| {
        let trx = create(db);
        write(&trx);
        trx.commit().await.err().map_or(0, |error| error.code())
    };
    assert_eq!(refused(&|trx| trx.set(&[b'k'; 10_001], b"")).await, 2102);
    assert_eq!(refused(&|trx| trx.set(b"k", &[0; 100_001])).await, 2103);
    assert_eq!(refused(&|trx| trx.set(b"\xff/not ours", b"")).await, 2004);
    assert_eq!(
        refused(&|trx| (0..120).for_each(|i| trx.set(&row(i), &[0; 100_000]))).await,
        2101
    );
    let hurried = create(db);
    hurried
        .set_option(TransactionOption::Timeout(1))
        .expect("an option");
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    assert_eq!(code(hurried.get(b"hello", false).await), 1031);
}

async fn in_flight_while_a_server_dies(db: &Database) {
    println!("ready");
    std::io::stdin()
        .lock()
        .lines()
        .next()
        .expect("told to go on")
        .expect("text");
    let keys: Vec<String> = (0..1000).map(|i| format!("flight/{i:04}")).collect();
    let flying = keys
        .iter()
        .map(|key| transact(db, |trx| trx.set(key.as_bytes(), b"")));
    futures::future::join_all(flying).await;
    let all = RangeOption::from((&b"flight/"[..], &b"flight0"[..]));
    let found: Vec<_> = create(db)
        .get_ranges_keyvalues(all, false)
        .try_collect()
        .await
        .expect("reads");
    assert_eq!(found.len(), 1000);
}

async fn tour(cluster_file: &str) {
    let db = Database::from_path(cluster_file).expect("a cluster file");
    db.set_option(DatabaseOption::TransactionTimeout(60_000))
        .expect("an option");
    keys_and_ranges(&db).await;
    writes_and_conflicts(&db).await;
    stamps_and_watches(&db).await;
    layers(&db).await;
    limits(&db).await;
    in_flight_while_a_server_dies(&db).await;
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let version = arguments[2].parse().expect("a number");
    let builder = foundationdb::api::FdbApiBuilder::default();
    let network = builder
        .set_runtime_version(version)
        .build()
        .expect("a version");
    // SAFETY: it is dropped before the program ends.
    let running = unsafe { network.boot() }.expect("the network starts");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(tour(&arguments[1]));
    drop(running);
    println!("done");
}
