//! A region that its primary loads from its disk.

use super::cluster::{MS, Shape};
use crate::testing::clocks::new_clock;
use crate::testing::fabrics::Any;
use crate::wire::{Change, Write};
use crate::{Disk, Engine, Keeps, Links, Place, Replicas, View};
use bytes::Bytes;
use plinth_farm_disk::Version;
use plinth_farm_fabric::{Fabric, Layout, Local, Machine};
use plinth_farm_memory::{Class, Pointer};
use plinth_runtime::sim::{SimConfig, Simulation};
use plinth_runtime::sleep;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;

struct Nobody;

impl Links for Nobody {
    fn reopen(&self, _: Machine) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(std::future::ready(()))
    }

    fn trouble(&self, _: u64) {}

    fn whole(&self, _: u64, _: u16) {}

    fn disk_failed(&self, why: String) {
        panic!("{why}");
    }

    fn lost(&self, regions: &[u16]) {
        panic!("{regions:?} are lost");
    }
}

const OWN: Machine = Machine(0);
const REGION: u16 = 0;
const NUMBER: u64 = 7;

/// The only machine of a cluster whose one region has these versions on its disk, and nothing in memory.
async fn started(shape: &Shape, versions: &[Version]) -> Engine<Any> {
    let layout = Layout {
        machines: 1,
        ring_words: 1000,
        region_words: shape.sizes.region_words(),
    };
    let local = Local::start(Path::new("/farm"), OWN, &layout).await;
    let fabric = Rc::new(Any::shared(local.expect("a memory")));
    let disk = Disk::open(Path::new("/disk"), 1, &shape.sizes, true).await;
    let mut disk = disk.expect("a disk");
    let applied = disk.durable.backup().apply(versions).await;
    applied.expect("room");
    let host = fabric.local().host();
    let loaded = disk.load(host, &[(REGION, 0)]).await;
    loaded.expect("what was written");
    fabric.configure(NUMBER, &[OWN]).await.expect("a later one");
    let (clock, keeps) = (new_clock(OWN), Keeps::Disk(Box::new(disk)));
    let (sizes, policy, settings) = (shape.sizes, shape.policy, shape.settings);
    let engine = Engine::join(
        fabric,
        clock,
        sizes,
        policy,
        settings,
        Rc::new(Nobody),
        keeps,
    );
    let engine = engine.expect("memory that fits");
    let view = View {
        number: NUMBER,
        machines: vec![OWN],
        master: OWN,
        regions: vec![Replicas {
            primary: Place {
                machine: OWN,
                slot: 0,
            },
            backups: Vec::new(),
        }],
    };
    let changed = engine.site.core.change_to(&view.first_configuration());
    changed.expect("the replica of the disk");
    engine
}

#[test]
fn what_a_recovery_brings_replaces_what_is_away_only_if_it_is_newer() {
    Simulation::new(1, SimConfig::default()).run(async {
        let shape = Shape::default();
        let class = Class::of(8).expect("small");
        let regions = shape.sizes.shape().expect("sizes");
        let at = |index| regions.pointer(REGION, class, 0, index);
        let version = |at: Pointer| Version {
            pointer: at,
            timestamp: 50,
            is_allocated: true,
            payload: Bytes::from_static(b"on disk "),
        };
        let engine = started(&shape, &[version(at(0)), version(at(1))]).await;
        let (site, core) = (&engine.site, &engine.site.core);
        assert!(site.make(REGION).await);
        let bring = |index, written_at| {
            let (at, payload) = (at(index), Bytes::from_static(b"redone  "));
            let change = Change::Update;
            core.apply_one(
                REGION,
                written_at,
                &Write {
                    at,
                    change,
                    payload,
                },
            )
        };
        let seen = |index| {
            let header = |region: &plinth_farm_memory::Region| {
                region.cell(at(index)).expect("a cell").header().timestamp()
            };
            core.store.with(REGION, header).expect("in memory")
        };
        assert!(core.store.is_away(at(0)) && core.store.is_away(at(1)));
        assert_eq!(bring(0, 40), Some(false));
        assert!(core.store.is_away(at(0)));
        assert_eq!(bring(1, 60), Some(true));
        assert!(!core.store.is_away(at(1)));
        while engine.is_loading() {
            sleep(MS).await;
        }
        assert_eq!((seen(0), seen(1)), (50, 60));
    });
}
