//! The configuration of a database: what an operator chooses.

/// Which engine keeps a storage server's data on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, PartialOrd, Ord)]
pub enum EngineKind {
    /// B-tree on disk.
    Ssd,
    /// Ordered map in memory, with its log and snapshots on disk.
    Memory,
}

impl EngineKind {
    pub fn name(self) -> &'static str {
        match self {
            EngineKind::Ssd => "ssd",
            EngineKind::Memory => "memory",
        }
    }
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "ssd" => Some(EngineKind::Ssd),
            "memory" => Some(EngineKind::Memory),
            _ => None,
        }
    }
}

/// Chosen at creation with `configure new`; kept in the system keyspace and in the coordinated state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DatabaseConfig {
    /// Copies of every shard and of every log record: 1 `single`, 2 `double`, 3 `triple`.
    pub replication: u32,
    pub engine: EngineKind,
    /// Wanted numbers of roles; fewer are recruited where there are fewer processes.
    pub commit_proxies: u32,
    pub grv_proxies: u32,
    pub resolvers: u32,
    pub logs: u32,
}

impl Default for DatabaseConfig {
    fn default() -> Self {
        DatabaseConfig {
            replication: 1,
            engine: EngineKind::Ssd,
            commit_proxies: 1,
            grv_proxies: 1,
            resolvers: 1,
            logs: 1,
        }
    }
}

impl DatabaseConfig {
    pub fn replication_name(&self) -> &'static str {
        match self.replication {
            1 => "single",
            2 => "double",
            _ => "triple",
        }
    }
    pub fn parse_replication(name: &str) -> Option<u32> {
        match name {
            "single" => Some(1),
            "double" => Some(2),
            "triple" => Some(3),
            _ => None,
        }
    }
}
