//! The configuration of a database, chosen by an operator.

use crate::{record, variants};

variants! {
    /// Which engine keeps a storage server's data on disk.
    #[derive(Copy, Eq, Hash, PartialOrd, Ord)]
    pub enum EngineKind {
        /// B-tree on disk.
        Ssd = 0,
        /// Ordered map in memory, with its log and snapshots on disk.
        Memory = 1,
    }
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

variants! {
    /// A unit that fails as a whole: no two copies share one.
    #[derive(Copy, Eq, Hash, PartialOrd, Ord)]
    pub enum FaultDomain {
        Zone = 0,
        DataHall = 1,
    }
}

impl FaultDomain {
    /// The plural, as text.
    pub fn plural(self) -> &'static str {
        match self {
            FaultDomain::Zone => "zones",
            FaultDomain::DataHall => "data halls",
        }
    }
}

/// Name, number of copies, and the fault domain that no two copies share.
const MODES: [(&str, u32, FaultDomain); 4] = [
    ("single", 1, FaultDomain::Zone),
    ("double", 2, FaultDomain::Zone),
    ("triple", 3, FaultDomain::Zone),
    ("three_data_hall", 3, FaultDomain::DataHall),
];

record! {
    /// Chosen at creation with `configure new`; kept in the system keyspace and in the coordinated state.
    #[derive(Copy, Eq)]
    pub struct DatabaseConfig {
        /// Copies of every shard and of every log record: 1 `single`, 2 `double`, 3 `triple` and `three_data_hall`.
        pub replication: u32,
        pub domain: FaultDomain,
        pub engine: EngineKind,
        /// Wanted numbers of roles. Fewer are recruited if there are fewer processes.
        pub commit_proxies: u32,
        pub grv_proxies: u32,
        pub resolvers: u32,
        pub logs: u32,
    }
}

impl Default for DatabaseConfig {
    fn default() -> Self {
        DatabaseConfig {
            replication: 1,
            domain: FaultDomain::Zone,
            engine: EngineKind::Ssd,
            commit_proxies: 1,
            grv_proxies: 1,
            resolvers: 1,
            logs: 1,
        }
    }
}

impl DatabaseConfig {
    /// Name of the replication mode, as an operator writes it; `unknown` if there is none.
    pub fn mode(&self) -> &'static str {
        let is_this = |(_, copies, domain): &&(_, u32, _)| {
            (*copies, *domain) == (self.replication, self.domain)
        };
        MODES.iter().find(is_this).map_or("unknown", |mode| mode.0)
    }

    pub fn parse_mode(name: &str) -> Option<(u32, FaultDomain)> {
        let mode = MODES.iter().find(|mode| mode.0 == name)?;
        Some((mode.1, mode.2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_has_the_name_that_it_was_chosen_by() {
        for (name, ..) in MODES {
            let (replication, domain) = DatabaseConfig::parse_mode(name).expect("it is one");
            let config = DatabaseConfig {
                replication,
                domain,
                ..DatabaseConfig::default()
            };
            assert_eq!(config.mode(), name);
        }
        assert_eq!(DatabaseConfig::parse_mode("quadruple"), None);
    }
}
