//! How the process of a replica serves ZooKeeper's clients.

use crate::application::Zelos;
use crate::backing::OnStack;
use bytes::Bytes;
use plinth_delos::base::Stopped;
use plinth_delos::engines::{brain_doctor, lease, session_order};
use plinth_delos::replica::messages::Called;
use plinth_delos::replica::serves::{Serves, ServiceStack};
use plinth_delos::replica::{Kind, Settings};
use plinth_keeper::Keeper;
use plinth_runtime::race;
use std::rc::Rc;

/// ZooKeeper's service, for a process that hosts it.
pub static KIND: Kind = Kind::of::<Zelos>();

impl Serves for Zelos {
    const KIND: &'static str = "zelos";

    fn create(settings: &Settings) -> Self {
        Zelos::new(settings.get())
    }

    fn refuses(engine: &str) -> Option<&'static str> {
        if engine == lease::GUARD.name {
            return Some("only clients of the replica with the lease could write");
        }
        (engine == brain_doctor::GUARD.name)
            .then_some("replicas keep nodes in memory, and would not see rows that it changes")
    }

    fn needs(engine: &str) -> Option<&'static str> {
        (engine == session_order::GUARD.name).then_some(
            "a replica that meets trouble in the log would have to disconnect its clients",
        )
    }

    async fn call(stack: &ServiceStack<Self>, _: &str, _: &Bytes) -> Called {
        let at = match stack.application().door() {
            Some(door) => format!("at {}", door.listen.shown()),
            None => "of a process that was given an address for them".into(),
        };
        Called::Refused {
            code: "unknown_operation".into(),
            why: format!("it serves ZooKeeper's clients, {at}"),
        }
    }

    async fn attend(stack: &Rc<ServiceStack<Self>>) -> Stopped {
        let Some(door) = stack.application().door() else {
            return std::future::pending().await;
        };
        let backing = Rc::new(OnStack::new(stack));
        match Keeper::listen_over(backing, door.listen.clone(), door.options.clone()).await {
            Ok(keeper) => {
                let keeper = Rc::new(keeper);
                let beside = door.beside.as_ref();
                let beside = beside.map(|beside| beside(keeper.clone()));
                // It is large, and whoever runs a replica would move it about on the stack.
                let serving = Box::pin(keeper.serve());
                match beside {
                    Some(beside) => drop(race(serving, beside).await),
                    None => serving.await,
                }
                Stopped("it takes no clients any more".into())
            }
            Err(line) => Stopped(format!("for ZooKeeper's clients, it {line}")),
        }
    }
}
