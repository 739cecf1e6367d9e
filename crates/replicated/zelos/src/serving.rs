//! How the process of a replica serves ZooKeeper's clients.

use crate::application::Zelos;
use crate::backing::OnStack;
use bytes::Bytes;
use plinth_delos::base::Stopped;
use plinth_delos::replica::Settings;
use plinth_delos::replica::messages::Called;
use plinth_delos::replica::serves::{Serves, ServiceStack};
use plinth_keeper::Keeper;
use std::rc::Rc;

impl Serves for Zelos {
    const KIND: &'static str = "zelos";

    fn create(settings: &Settings) -> Self {
        Zelos::new(settings.get())
    }

    async fn call(stack: &ServiceStack<Self>, _: &str, _: &Bytes) -> Called {
        let at = match stack.application().door() {
            Some(door) => format!("at {}", door.listen),
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
        match Keeper::listen_over(backing, door.listen, door.options.clone()).await {
            Ok(keeper) => {
                // It is large, and whoever runs a replica would move it about on the stack.
                Box::pin(keeper.serve()).await;
                Stopped("it takes no clients any more".into())
            }
            Err(error) => Stopped(format!(
                "cannot listen at {} for ZooKeeper's clients: {error}; choose another address",
                door.listen
            )),
        }
    }
}
