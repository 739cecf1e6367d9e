//! The cluster as its controller describes it to others, and what else the controller shares with the tasks that keep
//! the singletons and with the status document.

use crate::configured::Configured;
use crate::context::Context;
use crate::polls::{POLL_LIMIT, Polls};
use crate::recovery::NamedRole;
use crate::streams::Sizes;
use plinth_client::Database;
use plinth_core::{Uid, Version};
use plinth_protocol::control::{ClientInfo, ClusterInfo, GetClientInfo, GetClusterInfo};
use plinth_protocol::database::DatabaseId;
use plinth_protocol::log::LogSystem;
use plinth_protocol::role::Role;
use plinth_rpc::{Interface, Responder};
use plinth_runtime::never;
use plinth_runtime::sync::{Notify, Watch};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

pub(crate) struct Cluster {
    pub context: Rc<Context>,
    /// The controller's own.
    pub interface: Interface,
    /// The description that workers and clients get.
    pub info: Watch<ClusterInfo>,
    pub database: Database,
    pub stream_sizes: Rc<Sizes>,
    /// Requests that wait for the next description.
    polls: Polls,
    /// Durable version of each storage server.
    pub durable: RefCell<BTreeMap<Uid, Version>>,
    /// Notified when the list of storage servers may have changed.
    pub servers_changed: Notify,
    /// Roles of the current epoch.
    pub roles: RefCell<Vec<NamedRole>>,
    /// Roles that start and end independently of the epoch, by name.
    pub singletons: RefCell<BTreeMap<Role, Interface>>,
}

impl Cluster {
    pub fn new(context: Rc<Context>, interface: Interface) -> Self {
        let (transport, coordinators) = (context.transport.clone(), context.coordinators.clone());
        Cluster {
            context,
            interface,
            info: Watch::new(before_recovery(interface)),
            database: plinth_client::connect_over(transport, coordinators),
            stream_sizes: Rc::default(),
            polls: Polls::new(),
            durable: RefCell::default(),
            servers_changed: Notify::new(),
            roles: RefCell::default(),
            singletons: RefCell::default(),
        }
    }

    /// Answers with the description, at once or when there is a new one.
    pub fn poll(&self, request: GetClusterInfo, responder: Responder<GetClusterInfo>) {
        self.info
            .with(|info| self.polls.cluster(info, request, responder));
    }

    pub fn poll_as_client(&self, request: GetClientInfo, responder: Responder<GetClientInfo>) {
        self.info
            .with(|info| self.polls.client(info, request, responder));
    }

    /// The clients that are connected, for the status document.
    pub fn clients(&self) -> serde_json::Value {
        self.polls.clients(self.context.workers.with(BTreeMap::len))
    }

    /// Answers polls that have waited long, even if nothing has changed.
    pub async fn answer_old_polls(self: Rc<Self>) {
        loop {
            plinth_runtime::sleep(POLL_LIMIT / 4).await;
            self.info.with(|info| self.polls.answer_old(info));
        }
    }

    /// Changes the description, and answers the polls with it.
    pub fn publish(&self, change: impl FnOnce(&mut ClusterInfo)) {
        let client = self.info.update(|info| {
            let (client, next_tag) = (info.client.id, info.next_tag);
            info.id += 1;
            change(info);
            // Servers and log servers remove what has a tag below the next one and is not listed.
            let newest = info.servers.iter().map(|(_, tag)| tag.0).max();
            never!(
                info.next_tag < next_tag || newest >= Some(info.next_tag),
                "NextTagIsTaken",
                "next" => info.next_tag,
                "before" => next_tag,
                "servers" => info.servers.len()
            );
            client
        });
        self.info.with(|info| {
            let mut durable = self.durable.borrow_mut();
            durable.retain(|server, _| info.servers.iter().any(|(id, _)| id == server));
            self.polls.answer(info, client != info.client.id);
        });
    }
}

/// The description of a cluster whose controller has not recovered it yet.
fn before_recovery(controller: Interface) -> ClusterInfo {
    let nobody = ClientInfo {
        id: 0,
        grv_proxies: vec![],
        commit_proxies: vec![],
    };
    ClusterInfo {
        id: plinth_runtime::random::u64() | 1,
        controller,
        epoch: 0,
        accepting: false,
        database: DatabaseId::FORMER,
        log_system: LogSystem {
            generations: vec![],
        },
        servers: vec![],
        next_tag: 0,
        ratekeeper: None,
        distributor: None,
        classes: vec![],
        knobs: vec![],
        client: nobody,
    }
}

/// Copies the configuration that processes need into the description of the cluster.
pub(crate) fn tell(info: &mut ClusterInfo, configured: &Configured) {
    let classes = configured.classes.iter();
    info.classes = classes.map(|(process, class)| (*process, *class)).collect();
    info.knobs.clone_from(&configured.knobs);
}
