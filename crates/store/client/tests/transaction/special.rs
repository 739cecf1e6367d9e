//! Special keys and tenants.

use plinth_client::testing::MemoryCluster;
use plinth_client::{Database, RangeOptions, Transaction, TransactionOption};
use plinth_core::tuple::{self, Element};
use plinth_core::{Error, KeySelector, MutationKind, Result};
use plinth_runtime::real::block_on;

fn special(suffix: &str) -> Vec<u8> {
    [b"\xff\xff/", suffix.as_bytes()].concat()
}

async fn rows(transaction: &Transaction, begin: &str, end: &str) -> Result<Vec<(String, String)>> {
    let at = |suffix| KeySelector::first_greater_or_equal(special(suffix));
    let read = transaction.get_range_all(at(begin), at(end), RangeOptions::default(), false);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let found = read.await?;
    Ok(found
        .iter()
        .map(|(key, value)| (text(&key[3..]), text(value)))
        .collect())
}

fn writable(database: &Database) -> Transaction {
    let transaction = database.create_transaction();
    let option = TransactionOption::SpecialKeySpaceEnableWrites;
    transaction.set_option(option).expect("an option");
    transaction
}

#[test]
fn a_failed_commit_names_the_keys_that_it_failed_over_if_asked() {
    block_on(async {
        let database = MemoryCluster::new().database();
        let losing = database.create_transaction();
        let option = TransactionOption::ReportConflictingKeys;
        losing.set_option(option).expect("an option");
        for key in ["a", "b", "c"] {
            losing.get(key, false).await.expect("reads");
        }
        losing.set("z", "1");
        let winning = database.create_transaction();
        winning.set("b", "2");
        winning.commit().await.expect("commits");
        assert_eq!(losing.commit().await, Err(Error::not_committed));
        let prefix = "transaction/conflicting_keys/";
        let found = rows(&losing, prefix, "transaction/conflicting_keys0").await;
        let expected = [("b", "1"), ("b\0", "0")];
        let expected = expected.map(|(key, value)| (format!("{prefix}{key}"), value.to_owned()));
        assert_eq!(found.expect("special"), expected);
        let again = losing.on_error(Error::not_committed).await;
        again.expect("worth another attempt");
        assert_eq!(
            rows(&losing, prefix, "transaction/conflicting_keys0").await,
            Ok(vec![])
        );
    });
}

#[test]
fn a_transaction_shows_its_conflict_ranges_while_it_goes_on() {
    block_on(async {
        let database = MemoryCluster::new().database();
        let transaction = database.create_transaction();
        transaction.add_read_conflict_range("a", "c");
        transaction.add_read_conflict_range("b", "d");
        transaction.set("x", "1");
        let reads = rows(
            &transaction,
            "transaction/read_conflict_range/",
            "transaction/read_conflict_range0",
        );
        let keys: Vec<_> = reads
            .await
            .expect("special")
            .into_iter()
            .map(|(key, _)| key)
            .collect();
        let prefix = "transaction/read_conflict_range/";
        assert_eq!(keys, [format!("{prefix}a"), format!("{prefix}d")]);
        let at = special("transaction/write_conflict_range/x");
        assert_eq!(
            transaction
                .get(at, false)
                .await
                .expect("special")
                .as_deref(),
            Some(&b"1"[..])
        );
        transaction.set("y", "2");
        transaction
            .commit()
            .await
            .expect("the look has changed nothing");
        let after = database.create_transaction();
        assert_eq!(
            after.get("x", false).await.expect("reads").as_deref(),
            Some(&b"1"[..])
        );
        assert_eq!(
            after.get("y", false).await.expect("reads").as_deref(),
            Some(&b"2"[..])
        );
    });
}

#[test]
fn what_is_no_module_and_what_crosses_one_is_refused() {
    block_on(async {
        let database = MemoryCluster::new().database();
        let transaction = database.create_transaction();
        let nothing = transaction.get(special("nonsense"), false).await;
        assert_eq!(nothing, Err(Error::special_keys_no_module_found));
        let crossing = rows(&transaction, "management/", "transaction/").await;
        assert_eq!(crossing, Err(Error::special_keys_cross_module_read));
        let relaxed = database.create_transaction();
        relaxed
            .set_option(TransactionOption::SpecialKeySpaceRelaxed)
            .expect("an option");
        // Of the management module and those behind it up to `transaction', one has a row.
        let mode = ("management/data_distribution/mode".into(), "-1".into());
        assert_eq!(
            rows(&relaxed, "management/", "transaction/").await,
            Ok(vec![mode])
        );
        for (key, enabled, error) in [
            (
                "management/tenant/map/t",
                false,
                Error::special_keys_write_disabled,
            ),
            (
                "status/json",
                true,
                Error::special_keys_no_write_module_found,
            ),
        ] {
            let transaction = if enabled {
                writable(&database)
            } else {
                database.create_transaction()
            };
            transaction.set(special(key), "");
            assert_eq!(transaction.commit().await, Err(error));
        }
    });
}

#[test]
fn global_configuration_is_written_as_a_tuple_and_read_as_text() {
    block_on(async {
        let database = MemoryCluster::new().database();
        let transaction = writable(&database);
        let packed = tuple::pack(&[Element::Int(17)]).expect("packs");
        transaction.set(special("global_config/rate"), packed);
        transaction.commit().await.expect("commits");
        let found = rows(
            &database.create_transaction(),
            "global_config/",
            "global_config0",
        )
        .await;
        assert_eq!(found, Ok(vec![("global_config/rate".into(), "17".into())]));
        let wrong = writable(&database);
        wrong.set(special("global_config/rate"), "no tuple");
        assert_eq!(wrong.commit().await, Err(Error::special_keys_api_failure));
        assert!(
            wrong
                .get(special("error_message"), false)
                .await
                .expect("special")
                .is_some()
        );
    });
}

#[test]
fn anyone_may_stamp_the_metadata_version_and_nothing_else_there() {
    block_on(async {
        let database = MemoryCluster::new().database();
        let key = b"\xff/metadataVersion";
        let stamp = database.create_transaction();
        stamp.atomic_op(MutationKind::SetVersionstampedValue, key, [0; 14]);
        stamp.commit().await.expect("commits");
        let read = database.create_transaction().get(key, false).await;
        assert_eq!(read.expect("reads").expect("a stamp").len(), 10);
        let plain = database.create_transaction();
        plain.set(key, "1");
        assert_eq!(plain.commit().await, Err(Error::client_invalid_operation));
    });
}

#[test]
fn tenants_see_their_own_keys_only() {
    block_on(async {
        let database = MemoryCluster::with_rows([("a", "outside"), ("z", "outside")]).database();
        for name in ["one", "two"] {
            database.create_tenant(name).await.expect("creates");
        }
        assert_eq!(
            database.create_tenant("one").await,
            Err(Error::tenant_already_exists)
        );
        let one = database.open_tenant("one");
        let writing = one.create_transaction();
        writing.set("a", "1");
        writing.set("b", "2");
        let stamped = [&b"k"[..], &[0; 10], &1u32.to_le_bytes()].concat();
        writing.atomic_op(MutationKind::SetVersionstampedKey, stamped, "s");
        writing.clear_range("b", "c");
        writing.commit().await.expect("commits");
        let read = async |database: &Database| {
            let transaction = database.create_transaction();
            let (begin, end) = (
                KeySelector::first_greater_or_equal(""),
                KeySelector::first_greater_or_equal("\u{7f}"),
            );
            let all = transaction.get_range_all(begin, end, RangeOptions::default(), false);
            let keys = all.await?.into_iter().map(|(key, _)| (key.len(), key[0]));
            Result::Ok(keys.collect::<Vec<_>>())
        };
        assert_eq!(read(&one).await, Ok(vec![(1, b'a'), (11, b'k')]));
        assert_eq!(read(&database.open_tenant("two")).await, Ok(vec![]));
        assert_eq!(
            read(&database.open_tenant("none")).await,
            Err(Error::tenant_not_found)
        );
        let reading = one.create_transaction();
        let last = KeySelector::new("x", false, 0);
        assert_eq!(reading.get_key(last, false).await.expect("reads")[0], b'k');
        for (selector, edge) in [
            (KeySelector::new("a", false, 0), &b""[..]),
            (KeySelector::first_greater_or_equal("x"), &b"\xff"[..]),
        ] {
            assert_eq!(reading.get_key(selector, false).await.expect("reads"), edge);
        }
        assert_eq!(
            database.delete_tenant("one").await,
            Err(Error::tenant_not_empty)
        );
        assert_eq!(
            database.delete_tenant("none").await,
            Err(Error::tenant_not_found)
        );
        database.delete_tenant("two").await.expect("deletes");
        let names: Vec<_> = database.list_tenants().await.expect("lists");
        assert_eq!(names.len(), 1);
    });
}

#[test]
fn a_tenant_conflicts_over_its_own_keys_and_over_its_end() {
    block_on(async {
        let database = MemoryCluster::new().database();
        database.create_tenant("t").await.expect("creates");
        let tenant = database.open_tenant("t");
        let (losing, winning) = (tenant.create_transaction(), tenant.create_transaction());
        losing
            .set_option(TransactionOption::ReportConflictingKeys)
            .expect("an option");
        losing.get("k", false).await.expect("reads");
        losing.set("l", "1");
        winning.set("k", "1");
        winning.commit().await.expect("commits");
        assert_eq!(losing.commit().await, Err(Error::not_committed));
        let found = rows(
            &losing,
            "transaction/conflicting_keys/",
            "transaction/conflicting_keys0",
        )
        .await;
        assert_eq!(
            found.expect("special")[0].0,
            "transaction/conflicting_keys/k"
        );

        let clearing = tenant.create_transaction();
        clearing.clear_range("", "\u{7f}");
        clearing.commit().await.expect("commits");
        let late = tenant.create_transaction();
        late.get_read_version().await.expect("a version");
        late.set("k", "late");
        database.delete_tenant("t").await.expect("deletes");
        assert_eq!(late.commit().await, Err(Error::not_committed));
    });
}

/// Sets and clears keys of the management module, in one transaction.
async fn manage(database: &Database, pairs: &[(&str, Option<&str>)]) -> Result<()> {
    let transaction = writable(database);
    for (key, value) in pairs {
        let key = special(&format!("management/{key}"));
        match value {
            Some(value) => transaction.set(key, *value),
            None => transaction.clear(key),
        }
    }
    transaction.commit().await
}

/// The keys of the management module about distribution, and their values.
async fn managed(database: &Database) -> Vec<(String, String)> {
    let transaction = database.create_transaction();
    let found = rows(&transaction, "management/data", "management/tenant").await;
    let short = |(key, value): (String, String)| (key["management/".len()..].to_string(), value);
    found.expect("special").into_iter().map(short).collect()
}

fn pair(key: &str, value: &str) -> (String, String) {
    (key.into(), value.into())
}

const MODE: &str = "data_distribution/mode";
const IGNORED: &str = "data_distribution/rebalance_ignored";
const FAILURES: &str = "maintenance/IgnoreSSFailures";

#[test]
fn operators_say_by_keys_whether_data_is_distributed() {
    block_on(async {
        let database = MemoryCluster::new().database();
        assert_eq!(managed(&database).await, [pair(MODE, "-1")]);
        let off = [(MODE, Some("0")), (IGNORED, Some(""))];
        assert_eq!(manage(&database, &off).await, Ok(()));
        assert_eq!(
            managed(&database).await,
            [pair(MODE, "0"), pair(IGNORED, "")]
        );
        let on = [(MODE, Some("1")), (IGNORED, None)];
        assert_eq!(manage(&database, &on).await, Ok(()));
        assert_eq!(managed(&database).await, [pair(MODE, "1")]);
        for (key, value) in [
            (MODE, "3"),
            (IGNORED, "rather"),
            ("data_distribution/else", "1"),
        ] {
            let refused = manage(&database, &[(key, Some(value))]).await;
            assert_eq!(refused, Err(Error::special_keys_api_failure), "{key}");
        }
    });
}

#[test]
fn one_zone_at_a_time_is_under_maintenance_by_keys_unless_failures_are_ignored() {
    block_on(async {
        let database = MemoryCluster::new().database();
        let left = async || {
            let rows = managed(&database).await;
            let (key, seconds) = rows.get(1).expect("a zone");
            (key.clone(), seconds.parse::<f64>().expect("seconds"))
        };
        let (first, second) = ("maintenance/rack", "maintenance/rack 2");
        assert_eq!(manage(&database, &[(first, Some("60"))]).await, Ok(()));
        assert_eq!(manage(&database, &[(second, Some("100"))]).await, Ok(()));
        let (zone, seconds) = left().await;
        assert_eq!(zone, second);
        assert!((90.0..=100.0).contains(&seconds), "{seconds}");
        assert_eq!(manage(&database, &[(first, None)]).await, Ok(()));
        assert_eq!(left().await.0, second, "another zone is not meant");
        assert_eq!(manage(&database, &[(second, None)]).await, Ok(()));
        assert_eq!(managed(&database).await.len(), 1);

        assert_eq!(manage(&database, &[(FAILURES, Some("0"))]).await, Ok(()));
        assert_eq!(managed(&database).await[1], pair(FAILURES, "0"));
        let refused = manage(&database, &[(first, Some("60"))]).await;
        assert_eq!(refused, Err(Error::special_keys_api_failure));
        assert_eq!(manage(&database, &[(FAILURES, None)]).await, Ok(()));
        for (key, seconds) in [
            (first, "-1"),
            (first, "NaN"),
            (first, "soon"),
            (first, "1e9"),
            ("maintenance/", "60"),
        ] {
            let refused = manage(&database, &[(key, Some(seconds))]).await;
            assert_eq!(refused, Err(Error::special_keys_api_failure), "{seconds}");
        }
        assert_eq!(managed(&database).await.len(), 1);
    });
}

#[test]
fn a_tenant_is_renamed_with_its_data_unless_the_name_is_taken() {
    block_on(async {
        let database = MemoryCluster::new().database();
        for name in ["one", "two"] {
            database.create_tenant(name).await.expect("creates");
        }
        let one = database.open_tenant("one");
        let writing = one.create_transaction();
        writing.set("k", "v");
        writing.commit().await.expect("commits");
        let id = database.tenant_id("one").await.expect("there");
        for (from, to, error) in [
            ("one", "two", Error::tenant_already_exists),
            ("one", "one", Error::tenant_already_exists),
            ("none", "three", Error::tenant_not_found),
            ("one", "", Error::invalid_tenant_name),
        ] {
            assert_eq!(database.rename_tenant(from, to).await, Err(error));
        }
        let late = one.create_transaction();
        late.get_read_version().await.expect("a version");
        late.set("k", "late");
        database
            .rename_tenant("one", "three")
            .await
            .expect("renames");
        assert_eq!(late.commit().await, Err(Error::not_committed));
        assert_eq!(
            database.tenant_id("one").await,
            Err(Error::tenant_not_found)
        );
        assert_eq!(database.tenant_id("three").await, Ok(id));

        // As FoundationDB's clients do it.
        let transaction = writable(&database);
        transaction.set(special("management/tenant/rename/three"), "four");
        transaction.commit().await.expect("renames");
        let taken = writable(&database);
        taken.set(special("management/tenant/rename/four"), "two");
        assert_eq!(taken.commit().await, Err(Error::tenant_already_exists));
        let four = database.open_tenant("four");
        let kept = four.run(async |t| t.get("k", false).await).await;
        assert_eq!(kept.expect("reads").as_deref(), Some(&b"v"[..]));
        let listed = database.list_tenants().await.expect("lists");
        let names: Vec<&[u8]> = listed.iter().map(|(name, _)| &name[..]).collect();
        assert_eq!(names, [&b"four"[..], b"two"]);
    });
}

#[test]
fn a_tenant_has_the_options_that_its_database_had() {
    block_on(async {
        let database = MemoryCluster::new().database();
        database.create_tenant("t").await.expect("creates");
        let size = plinth_client::DatabaseOption::TransactionSizeLimit(100);
        database.set_option(size).expect("an option");
        let transaction = database.open_tenant("t").create_transaction();
        transaction.set("k", [0; 200]);
        assert_eq!(
            transaction.commit().await,
            Err(Error::transaction_too_large)
        );
    });
}

#[test]
fn tenants_are_managed_through_special_keys() {
    block_on(async {
        let database = MemoryCluster::new().database();
        let creating = writable(&database);
        for name in ["a", "b", "c"] {
            creating.set(special(&format!("management/tenant/map/{name}")), "");
        }
        creating.commit().await.expect("commits");
        let names = async || {
            let transaction = database.create_transaction();
            let found = rows(
                &transaction,
                "management/tenant/map/",
                "management/tenant/map0",
            )
            .await;
            let found = found.expect("special");
            assert!(
                found.iter().all(|(_, json)| json.contains("\"base64\"")),
                "{found:?}"
            );
            found
                .into_iter()
                .map(|(key, _)| key[22..].to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names().await, ["a", "b", "c"]);
        let deleting = writable(&database);
        deleting.clear(special("management/tenant/map/b"));
        deleting.commit().await.expect("commits");
        assert_eq!(names().await, ["a", "c"]);
        let wrong = writable(&database);
        wrong.set(
            [&special("management/tenant/map/")[..], b"\xff"].concat(),
            "",
        );
        assert_eq!(wrong.commit().await, Err(Error::invalid_tenant_name));
    });
}
