//! A service on a store of its own, without a log.

use crate::{Hosted, Refused, Service, TICK_MS, request, tick};
use bytes::Bytes;
use plinth_core::EngineKind;
use plinth_delos::stack::{Application, Failure};
use plinth_delos::store::LocalStore;
use plinth_runtime::sim::{Locality, SimConfig, Simulation};
use serde_json::Value;
use std::path::Path;
use std::rc::Rc;

pub struct Alone<S> {
    store: Rc<LocalStore>,
    service: Hosted<S>,
}

impl<S: Service> Alone<S> {
    pub fn run(service: S, test: impl FnOnce(&Alone<S>) + 'static) {
        let sim = Simulation::new(1, SimConfig::default());
        let machine = sim.add_machine(Locality::default());
        let ran = sim.run_on(machine, async move {
            let engine = plinth_engine::open(EngineKind::Memory, Path::new("/a"), true, 1 << 20);
            let store = LocalStore::open(engine.await.expect("an engine"));
            test(&Alone {
                store: store.expect("a store"),
                service: Hosted(service),
            });
        });
        ran.expect("nothing kills it");
    }

    fn execute(&self, payload: &Bytes) -> Result<Value, Refused> {
        let pos = self.store.applied() + 1;
        let mut tx = self.store.begin(pos);
        let answer = tx.nested(|tx| self.service.execute(tx, payload, pos));
        tx.commit().expect("it is in order");
        answer.map_err(|failure| match failure {
            Failure::Refused(refused) => refused,
            Failure::Stop(error) => panic!("{error}"),
        })
    }

    pub fn change(&self, operation: &str, asked: Value) -> Result<Value, Refused> {
        self.execute(&request(operation, &asked))
    }

    pub fn read(&self, operation: &str, asked: Value) -> Result<Value, Refused> {
        let read = self
            .service
            .0
            .read(&self.store.snapshot(), operation, &asked);
        read.map_err(|failure| match failure {
            Failure::Refused(refused) => refused,
            Failure::Stop(error) => panic!("{error}"),
        })
    }

    /// Lets the service's clock go on. What is said twice counts once.
    pub fn pass(&self, ms: u64) {
        for _ in 0..ms / TICK_MS {
            let now_ms = crate::Rows::now_ms(&self.store.snapshot()).expect("it is read");
            for _ in 0..2 {
                self.execute(&tick(now_ms)).expect("it passes");
            }
        }
    }
}
