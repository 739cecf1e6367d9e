//! ZooKeeper's service on top of the store.

pub mod acl;
mod addresses;
mod admin;
mod ahead;
mod alarm;
mod arrivals;
pub mod backing;
pub mod cache;
pub mod client;
mod clients;
mod commands;
mod commit;
mod connection;
mod contact;
mod counters;
mod doors;
mod dump;
mod frames;
mod gateway;
pub mod gone;
mod greeting;
mod held;
mod leases;
pub mod left;
mod life;
mod monitor;
mod operations;
pub mod paths;
mod pinned;
mod pipeline;
pub mod queue;
pub mod quotas;
mod read_only;
mod reads;
pub mod replica;
mod requests;
mod room;
pub mod sessions;
pub mod setup;
pub mod store;
mod stored;
mod talk;
pub mod trace;
pub mod tree;
mod watches;
pub mod wire;
mod words;
pub mod workload;
pub mod writes;
pub mod zxid;

pub use doors::Doors;
pub use gateway::Keeper;
pub use life::Options;
pub use words::Words;

use plinth_runtime::{knob, metric};

knob! {
    /// Most operations that share a transaction. A transaction has no more places.
    pub BATCH_OPERATIONS_MAX: usize = "keeper_batch_operations_max", 500, sim 1, 500, legal 1, 1024;
    /// Most transactions of a gateway that are under way at the same time.
    pub BATCHES_AT_ONCE: usize = "keeper_batches_at_once", 2, sim 1, 3, legal 1, 8;
    /// A batch with so many bytes takes no more operations.
    pub BATCH_BYTES_MAX: usize = "keeper_batch_bytes_max", 2 << 20, sim 1000, 2 << 20, legal 1000, 4 << 20;
    /// Longest data of a node that the stream of changes carries. Other gateways read longer data when they need it.
    pub NEWS_DATA_BYTES_MAX: usize = "keeper_news_data_bytes_max", 64, sim 0, 1024, legal 0, 1024;
    /// Longest request: ZooKeeper's `jute.maxbuffer`.
    pub FRAME_BYTES_MAX: usize = "keeper_frame_bytes_max", 0xfffff, legal 10_000, 8 << 20;
    /// Memory for requests of more than 64 KiB that are being read, of all clients; others wait for theirs.
    pub FRAMES_BYTES_MAX: usize = "keeper_frames_bytes_max", 64 << 20, sim 1000, 8 << 20, legal 1000, usize::MAX;
    /// Longest answer. Clients have limits of their own, which their users can change; ZooKeeper's server has none.
    pub ANSWER_BYTES_MAX: usize = "keeper_answer_bytes_max", 64 << 20, legal 10_000, 256 << 20;
    /// Memory for the names of the longest list of children that is read.
    pub LIST_BYTES_MAX: usize = "keeper_list_bytes_max", 64 << 20, legal 10_000, 256 << 20;
    /// Bytes of rows that are read of a list at a time.
    pub LIST_PAGE_BYTES: usize = "keeper_list_page_bytes", 4 << 20, sim 100, 4 << 20, legal 100, 64 << 20;
    /// Memory for nodes.
    pub CACHE_BYTES_MAX: usize = "keeper_cache_bytes_max", 64 << 20, sim 10_000, 64 << 20, legal 10_000, usize::MAX;
    /// How often a gateway shows that it lives.
    pub BEAT_MS: u64 = "keeper_beat_ms", 250, legal 50, 300;
    /// A gateway answers no request that was heard so long after its last beat that has landed. Three beats.
    pub HOLD_MS: u64 = "keeper_hold_ms", 900, legal 900, 3000;
    /// A gateway that has tried for so long, and for a third of a client's time-out, disconnects the client.
    pub ISOLATION_MS: u64 = "keeper_isolation_ms", 2500, legal 1000, 10_000;
    /// Bytes of requests that may wait for a transaction; clients' further writes are not read until there is room.
    pub QUEUE_BYTES_MAX: usize = "keeper_queue_bytes_max", 64 << 20, sim 2000, 64 << 20, legal 1000, usize::MAX;
    /// Bytes of answers that are made and may not go out, of all clients; then their further writes wait.
    pub HELD_BYTES_MAX: usize = "keeper_held_bytes_max", 16 << 20, sim 1, 16 << 20, legal 1, usize::MAX;
    /// Ephemeral nodes that one transaction deletes. The end of a session with more takes several.
    pub END_NODES_MAX: usize = "keeper_end_nodes_max", 1000, sim 1, 3, legal 1, 1000;
    /// How often containers and nodes with a time to live are looked at.
    pub REAP_MS: u64 = "keeper_reap_ms", 10_000, sim 1000, 10_000, legal 100, 3_600_000;
    /// Rows that are counted for a new quota with one transaction.
    pub QUOTA_PIECE_ROWS: usize = "keeper_quota_piece_rows", 5000, sim 1, 5000, legal 1, 100_000;
    /// Changes that are remembered, so that a read of an older version can tell whether it is still right.
    pub REMEMBERED_CHANGES: usize = "keeper_remembered_changes", 20_000, sim 1, 20, legal 1, 1_000_000;
    /// How often what a read needs is loaded while others change it, before all writes wait for it.
    pub READ_TRIES: usize = "keeper_read_tries", 3, sim 0, 3, legal 0, 100;
    /// An entry of the stream of changes that has reached this size takes no more of them.
    pub ENTRY_BYTES: usize = "keeper_entry_bytes", 60_000, sim 100, 500, legal 100, 60_000;
    /// Entries of the stream of changes that are read at a time.
    pub READ_ENTRIES: usize = "keeper_read_entries", 10_000, sim 1, 100, legal 1, 100_000;
    /// A file of the log of operations that has reached this size is renamed, and the next one begun.
    pub OPERATIONS_LOG_BYTES: u64 = "keeper_operations_log_bytes", 10 << 20, legal 1000, 1 << 30;
    /// Files of the log of operations that are kept beside the one that is written.
    pub OPERATIONS_LOG_FILES: usize = "keeper_operations_log_files", 10, legal 1, 1000;
    /// A gateway that has seen no change of another one for so long counts on being alone.
    pub ALONE_AFTER_MS: u64 = "keeper_alone_after_ms", 1000, sim 1, 5000;
    /// Between two looks of a gateway that only follows while others commit all the time. Each look costs the store
    /// and this process as much as a small commit: one for each commit would double what a commit costs.
    pub FOLLOW_MS: u64 = "keeper_follow_ms", 2, sim 0, 50, legal 0, 1000;
}

metric! {
    pub BATCHES: Counter = "plinth_keeper_batches_total", "transactions of gateways";
    pub CONFLICTS: Counter = "plinth_keeper_conflicts_total", "transactions of gateways that others were ahead of";
    pub EVENTS: Counter = "plinth_keeper_events_total", "watch events that were sent";
    pub REFRESHES: Counter = "plinth_keeper_refreshes_total", "reads of the stream of changes";
}

plinth_workload::application! {
    plinth_workload::Application {
        name: "keeper",
        module: module_path!(),
        serve: |place| Box::pin(gateway::run(place)),
        keeps_data: false,
        workloads: &[plinth_workload::Kind {
            name: "keeper",
            make: |site| std::rc::Rc::new(workload::Keeping::new(site)),
        }],
    }
}
