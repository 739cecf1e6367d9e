//! What a cluster of `plinth dev` was made with.
//!
//! It is written before everything else of the cluster, so that one whose making was cut short is made as it was asked
//! for, whatever is said when it is resumed. The directories of the servers follow, and then the cluster file: where
//! that is, they have been there.

use super::cannot_use;
use plinth_core::EngineKind;
use plinth_runtime::disk;
use plinth_terminal::Outcome;
use serde_json::json;
use std::io::ErrorKind;
use std::path::Path;

const FILE: &str = "dev.json";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Made {
    pub processes: u16,
    /// Of the first of them.
    pub port: u16,
    pub replication: u32,
    pub engine: EngineKind,
    /// Of the gateway for ZooKeeper's clients, if it had one the last time.
    pub zookeeper_port: Option<u16>,
    /// Of the first server's page, if it had one the last time.
    pub pages_port: Option<u16>,
}

impl Made {
    /// `None` if the directory has no cluster, or one of an earlier release.
    pub async fn load(directory: &Path) -> Outcome<Option<Made>> {
        let path = directory.join(FILE);
        match disk::read_file(&path).await {
            Ok(bytes) => match Made::parse(&bytes) {
                Some(made) => Ok(Some(made)),
                None => Err(format!(
                    "{}: it does not say what the cluster was made with; remove it, and say --processes and --port as \
                     they were",
                    path.display()
                )),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(cannot_use(directory)(error)),
        }
    }

    pub async fn save(&self, directory: &Path) -> Outcome {
        let text = json!({
            "processes": self.processes, "port": self.port, "replication": self.replication,
            "engine": self.engine.name(), "zookeeper_port": self.zookeeper_port,
            "pages_port": self.pages_port,
        });
        let path = directory.join(FILE);
        let written = disk::write_file_durably(&path, format!("{text}\n").into()).await;
        written.map(drop).map_err(cannot_use(directory))
    }

    fn parse(bytes: &[u8]) -> Option<Made> {
        let json: serde_json::Value = serde_json::from_slice(bytes).ok()?;
        let number = |name: &str| json[name].as_u64().filter(|number| *number > 0);
        // `None` if it is none: else it is one, or there is none.
        let port = |name: &str| number(name).map(u16::try_from).transpose().ok();
        Some(Made {
            processes: number("processes")?.try_into().ok()?,
            port: number("port")?.try_into().ok()?,
            replication: number("replication")?.try_into().ok()?,
            engine: EngineKind::parse(json["engine"].as_str()?)?,
            zookeeper_port: port("zookeeper_port")?,
            pages_port: port("pages_port")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_terminal::connect::block_on;

    #[test]
    fn what_a_cluster_was_made_with_comes_back_and_a_damaged_file_is_named() {
        let name = format!("plinth-dev-made-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).expect("made");
        let made = |zookeeper_port| Made {
            processes: 3,
            port: 4900,
            replication: 2,
            engine: EngineKind::Memory,
            zookeeper_port,
            pages_port: zookeeper_port.map(|port| port + 1),
        };
        block_on(async {
            assert_eq!(Made::load(&directory).await?, None);
            for made in [made(None), made(Some(2181))] {
                made.save(&directory).await?;
                assert_eq!(Made::load(&directory).await?, Some(made));
            }
            let earlier = r#"{"processes": 3, "port": 4900, "replication": 2, "engine": "memory"}"#;
            assert_eq!(Made::parse(earlier.as_bytes()), Some(made(None)));
            for wrong in ["", "{}", r#"{"processes": 70000}"#, "[1]"] {
                std::fs::write(directory.join(FILE), wrong).expect("written");
                let line = Made::load(&directory).await.expect_err(wrong);
                assert!(line.contains(FILE), "{line}");
            }
            Ok(())
        })
        .expect("the directory is there");
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}
