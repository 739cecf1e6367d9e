use super::*;
use plinth_runtime::Duration;
use plinth_runtime::sim::{Locality, SimConfig, Simulation, control};

const ID: Uid = Uid(7);

/// Removes a storage server's files, and loses power meanwhile.
async fn remove_and_lose_power(at_us: u64) -> Vec<String> {
    let machine = control().add_machine(Locality::default());
    let address = ([10, 0, 0, 1], 1).into();
    control().start_process(machine, address, || {
        Box::pin(async {
            let path = Path::new("/data");
            let opened = DataDirectory::open(path, "a:b").await.expect("opens");
            if control().processes()[0].starts == 1 {
                let meta = StorageMeta {
                    tag: Tag(1),
                    engine: EngineKind::Memory,
                    after: 0,
                };
                let engine = opened.storage_prefix(ID);
                let written = disk::write_file_durably(&engine, Bytes::from("rows")).await;
                written.expect("writes");
                opened.write_storage_meta(ID, &meta).await.expect("writes");
                opened.remove_role(ID).await.expect("removes");
            }
            std::future::pending::<()>().await;
        })
    });
    plinth_runtime::sleep(Duration::from_micros(at_us)).await;
    control().power_cut(machine);
    let mut paths = control().files(machine);
    paths.retain(|path| path.to_string_lossy().contains("storage-"));
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    paths.into_iter().map(text).collect()
}

/// Opens a directory into which `fill` has put files, as the process of a coordinator that `is_named`. Returns
/// whether it must have registers, whether it has them, and its epoch.
fn opened(fill: impl AsyncFn(&Path) + 'static, is_named: bool) -> (bool, bool, Epoch) {
    let simulation = Simulation::new(1, SimConfig::default());
    simulation
        .run(async move {
            let path = Path::new("/data");
            disk::create_dir_all(path).await.expect("makes it");
            fill(path).await;
            let opened = DataDirectory::open(path, "a:b").await.expect("opens");
            let must = opened.must_have_registers(is_named).await;
            let is_there = disk::exists(&coordinator::file_in(path)).await;
            let is_there = is_there.expect("it can be read");
            (must, is_there, opened.epoch())
        })
        .result
}

async fn put(path: &Path, name: &str, bytes: Bytes) {
    let written = disk::write_file_durably(&path.join(name), bytes).await;
    written.expect("writes");
}

async fn former_owner(path: &Path) {
    let (cluster, process) = ("a:b".into(), Uid(1));
    put(
        path,
        "process",
        encode(FORMAT, &FormerOwner { cluster, process }),
    )
    .await;
}

#[test]
fn a_directory_that_was_used_must_have_the_registers_of_a_coordinator() {
    // A new directory gets registers.
    assert_eq!(opened(async |_| {}, true), (true, true, 0));
    // The directory was used, and its registers are gone.
    let used = async |path: &Path| {
        drop(DataDirectory::open(path, "a:b").await.expect("opens"));
        disk::remove(&coordinator::file_in(path))
            .await
            .expect("removes");
    };
    assert_eq!(opened(used, false), (true, false, 0));
    // Only the data is left.
    let data = async |path: &Path| put(path, &format!("log-{ID}.0"), Bytes::new()).await;
    assert_eq!(opened(data, false), (true, false, 1));
}

#[test]
fn a_first_start_that_was_cut_short_between_the_files_is_begun_anew_in_any_cluster() {
    let cut_short = async |path: &Path| {
        drop(DataDirectory::open(path, "a:never").await.expect("opens"));
        let removed = disk::remove(&path.join("process")).await;
        removed.expect("it was cut short before this file");
    };
    assert_eq!(opened(cut_short, true), (true, true, 0));
    let registers = Simulation::new(1, SimConfig::default()).run(async move {
        let path = Path::new("/data");
        disk::create_dir_all(path).await.expect("makes it");
        cut_short(path).await;
        drop(DataDirectory::open(path, "a:b").await.expect("opens"));
        accept_lost_registers(path, "a:b").await
    });
    assert_eq!(registers.result, Ok(false), "they are the new cluster's");
    let damaged = async |path: &Path| put(path, "coordination", Bytes::from("?")).await;
    assert_eq!(opened(damaged, true), (true, true, 0));
}

#[test]
fn a_directory_of_the_version_before_lacks_registers_only_if_it_serves_as_a_coordinator() {
    let plain = async |path: &Path| former_owner(path).await;
    assert_eq!(opened(plain, false), (false, true, 0));
    assert_eq!(opened(plain, true), (true, false, 0));
    let with_data = async |path: &Path| {
        former_owner(path).await;
        put(path, &format!("storage-{ID}.meta"), Bytes::new()).await;
        coordinator::begin(path, "a:b").await.expect("writes");
    };
    assert_eq!(opened(with_data, true), (true, true, 1));
}

#[test]
fn the_newest_epoch_that_was_served_in_is_kept() {
    let served = async |path: &Path| {
        let opened = DataDirectory::open(path, "a:b").await.expect("opens");
        for epoch in [3, 7, 5] {
            opened.serves_in(epoch).await;
        }
    };
    assert_eq!(opened(served, false), (true, true, 7));
}

/// Opens a directory that `owner` has left, with data or without, and claims it for a database.
fn claimed(
    format: u32,
    epoch: Epoch,
    kept: u128,
    with_data: bool,
    served: DatabaseId,
) -> (Result<(), String>, Epoch, Uid) {
    let simulation = Simulation::new(1, SimConfig::default());
    let claiming = async move {
        let path = Path::new("/data");
        disk::create_dir_all(path).await.expect("makes it");
        let (cluster, process) = (String::from("a:b"), Uid(1));
        let database = Uid(kept);
        let owner = match format {
            OWNER_FORMAT => encode(
                OWNER_FORMAT,
                &Owner {
                    cluster,
                    process,
                    epoch,
                    database,
                },
            ),
            _ => encode(
                OWNER_WITHOUT_DATABASE,
                &OwnerWithoutDatabase {
                    cluster,
                    process,
                    epoch,
                },
            ),
        };
        put(path, "process", owner).await;
        if with_data {
            put(path, &format!("storage-{ID}.meta"), Bytes::new()).await;
        }
        let opened = DataDirectory::open(path, "a:b").await.expect("opens");
        let claimed = opened.claim(&served, 5);
        opened.serves_in(1).await;
        drop(opened);
        let again = DataDirectory::open(path, "a:b").await.expect("opens");
        (claimed, again.epoch(), again.database())
    };
    simulation.run(claiming).result
}

#[test]
fn a_directory_with_data_of_another_database_is_not_claimed_and_says_so() {
    let served = DatabaseId {
        id: Uid(7),
        is_former: false,
    };
    let (refused, epoch, database) = claimed(OWNER_FORMAT, 5, 8, true, served);
    let line = refused.expect_err("it has another's data");
    let [ours, theirs] = [Uid(8), Uid(7)];
    let words =
        format!("belongs to database {ours}, and this cluster file leads to database {theirs}");
    assert!(line.contains(&words) && line.contains("/data"), "{line}");
    assert_eq!((epoch, database), (5, Uid(8)));
    // Its own, none yet, and another's without data.
    assert_eq!(
        claimed(OWNER_FORMAT, 5, 7, true, served),
        (Ok(()), 5, Uid(7))
    );
    assert_eq!(
        claimed(OWNER_FORMAT, 0, 0, true, served),
        (Ok(()), 1, Uid(7))
    );
    assert_eq!(
        claimed(OWNER_FORMAT, 5, 8, false, served),
        (Ok(()), 1, Uid(7))
    );
}

#[test]
fn a_directory_without_an_id_is_claimed_by_a_database_that_is_older_than_ids_only() {
    let served = |is_former| DatabaseId {
        id: Uid(7),
        is_former,
    };
    let format = OWNER_WITHOUT_DATABASE;
    assert_eq!(
        claimed(format, 5, 0, true, served(true)),
        (Ok(()), 5, Uid(7))
    );
    let (refused, epoch, database) = claimed(format, 5, 0, true, served(false));
    let line = refused.expect_err("it has another's data");
    assert!(line.contains("a database that has no id yet"), "{line}");
    assert_eq!((epoch, database), (5, WITHOUT_ID));
    let ahead = claimed(format, 6, 0, true, served(true));
    assert_eq!(ahead, (Ok(()), 6, WITHOUT_ID), "of a later epoch");
}

#[test]
fn a_meta_file_never_comes_back_without_what_it_speaks_of() {
    let mut seen = 0;
    for seed in 0..400 {
        let sim = Simulation::new(seed, SimConfig::default());
        let left = sim.run(remove_and_lose_power(seed * 100)).result;
        let meta = left.iter().any(|name| name.ends_with(".meta"));
        let engine = left
            .iter()
            .any(|name| name.ends_with(&format!("storage-{ID}")));
        seen += usize::from(engine && !meta);
        assert!(!meta || engine, "seed {seed}: {left:?}");
    }
    assert!(seen > 0, "no power cut came in the middle");
}

/// What a damaged file may look like.
fn damaged(bytes: &Bytes, kind: usize) -> Bytes {
    let mut changed = bytes.to_vec();
    match kind {
        0 => changed.clear(),
        1 => changed.truncate(changed.len() / 2),
        _ => changed[kind % bytes.len()] ^= 1 << (kind % 8),
    }
    changed.into()
}

const META: StorageMeta = StorageMeta {
    tag: Tag(5),
    engine: EngineKind::Ssd,
    after: 77,
};

async fn with_meta(path: &Path) -> (DataDirectory, PathBuf, Bytes) {
    let opened = DataDirectory::open(path, "a:b").await.expect("opens");
    opened.write_storage_meta(ID, &META).await.expect("writes");
    let file = opened.storage_meta(ID);
    let bytes = disk::read_file(&file).await.expect("it is there");
    (opened, file, bytes)
}

#[test]
fn a_storage_server_is_known_from_the_copy_of_a_damaged_meta_file_which_is_put_back() {
    Simulation::new(1, SimConfig::default()).run(async {
        let path = Path::new("/data");
        let (opened, file, bytes) = with_meta(path).await;
        for kind in 0..40 {
            put(path, &format!("storage-{ID}.meta"), damaged(&bytes, kind)).await;
            let read = opened.read_storage_meta(ID).await;
            assert_eq!(read, Ok(META), "{kind}");
            assert_eq!(disk::read_file(&file).await.expect("there"), bytes);
            put(
                path,
                &format!("storage-{ID}.meta.copy"),
                damaged(&bytes, kind),
            )
            .await;
            assert_eq!(opened.read_storage_meta(ID).await, Ok(META), "{kind}");
            let copy = disk::read_file(&copy_of(&file)).await.expect("there");
            assert_eq!(copy, bytes, "{kind}");
        }
        // A former version made none.
        disk::remove(&copy_of(&file)).await.expect("removes");
        assert_eq!(opened.read_storage_meta(ID).await, Ok(META));
        assert!(disk::exists(&copy_of(&file)).await.expect("looks"));
        // Both are damaged.
        for name in ["meta", "meta.copy"] {
            put(path, &format!("storage-{ID}.{name}"), damaged(&bytes, 1)).await;
        }
        let read = opened.read_storage_meta(ID).await;
        assert_eq!(read, Err(Error::file_corrupt));
        // One of a newer version is not replaced by an older copy.
        let newer = encode(FORMAT + 1, &META);
        put(path, &format!("storage-{ID}.meta"), newer.clone()).await;
        put(path, &format!("storage-{ID}.meta.copy"), bytes).await;
        let read = opened.read_storage_meta(ID).await;
        assert_eq!(read, Err(Error::file_corrupt));
        assert_eq!(disk::read_file(&file).await.expect("there"), newer);
    });
}

#[test]
fn a_damaged_owner_is_known_from_its_copy_with_the_newest_epoch() {
    Simulation::new(1, SimConfig::default()).run(async {
        let path = Path::new("/data");
        disk::create_dir_all(path).await.expect("makes it");
        let opened = DataDirectory::open(path, "a:b").await.expect("opens");
        let process = opened.process;
        opened.serves_in(7).await;
        drop(opened);
        let file = path.join("process");
        let bytes = disk::read_file(&file).await.expect("it is there");
        for kind in 0..40 {
            put(path, "process", damaged(&bytes, kind)).await;
            let opened = DataDirectory::open(path, "a:b").await.expect("opens");
            assert_eq!((opened.process, opened.epoch()), (process, 7), "{kind}");
            assert_eq!(disk::read_file(&file).await.expect("there"), bytes);
        }
        for name in ["process", "process.copy"] {
            put(path, name, damaged(&bytes, 1)).await;
        }
        let refused = DataDirectory::open(path, "a:b").await.err();
        let line = refused.expect("nobody knows whose it is");
        assert!(line.contains("/data/process is corrupt"), "{line}");
    });
}
