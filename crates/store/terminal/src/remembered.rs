//! The ports that `dev` of a system was told the last time in its directory: the next one need not be told again.

use crate::Outcome;
use plinth_coordination::why;
use plinth_runtime::disk;
use plinth_runtime::net::Chosen;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::PathBuf;

/// Ports by their flags, and the file that keeps them.
#[derive(PartialEq, Eq, Debug)]
pub struct Remembered {
    path: PathBuf,
    ports: BTreeMap<String, u16>,
    /// As the file has them.
    kept: BTreeMap<String, u16>,
}

impl Remembered {
    /// Nothing, if nothing is resumed.
    pub fn none(path: PathBuf) -> Remembered {
        Remembered {
            path,
            ports: BTreeMap::new(),
            kept: BTreeMap::new(),
        }
    }

    /// What the file has; nothing, if it is not there.
    ///
    /// # Errors
    /// It cannot be read, or says something else: a line for the user.
    pub async fn load(path: PathBuf) -> Outcome<Remembered> {
        let ports = match disk::read_file(&path).await {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|_| {
                let path = path.display();
                format!("{path}: it does not say which ports were chosen; remove it, and say them")
            })?,
            Err(error) if error.kind() == ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(format!("{}: {}", path.display(), why(&error))),
        };
        Ok(Remembered {
            kept: BTreeMap::clone(&ports),
            path,
            ports,
        })
    }

    /// The port that this flag says, or the last one; `None` if there is none, or none any more: that is 0.
    pub fn port(&mut self, flag: &'static str, said: Option<u16>) -> Option<u16> {
        match said {
            Some(0) => drop(self.ports.remove(flag)),
            Some(port) => drop(self.ports.insert(flag.to_owned(), port)),
            None => {}
        }
        self.ports.get(flag).copied()
    }

    /// Keeps what was said.
    ///
    /// # Errors
    /// It cannot be written: a line for the user.
    pub async fn save(&self) -> Outcome {
        if self.ports == self.kept {
            return Ok(());
        }
        let text = serde_json::json!(self.ports);
        let written = disk::write_file_durably(&self.path, format!("{text}\n").into()).await;
        let failed = |error| format!("{}: {}", self.path.display(), why(&error));
        written.map(drop).map_err(failed)
    }
}

/// How the port of a flag was chosen that was remembered, if nobody has said it now.
pub fn chosen(flag: &'static str, said: Option<u16>) -> Chosen {
    match said {
        Some(_) => Chosen::By(flag),
        None => Chosen::Remembered(flag),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::real::block_on;

    #[test]
    fn a_port_is_remembered_until_another_or_none_is_said_and_a_damaged_file_is_named() {
        let name = format!("plinth-remembered-{}.json", std::process::id());
        let path = std::env::temp_dir().join(name);
        const FLAG: &str = "--pages-port";
        block_on(async {
            for (said, port) in [
                (None, None),
                (Some(8080), Some(8080)),
                (None, Some(8080)),
                (Some(8090), Some(8090)),
                (None, Some(8090)),
                (Some(0), None),
                (None, None),
            ] {
                let mut ports = Remembered::load(path.clone()).await.expect("it is good");
                assert_eq!(ports.port(FLAG, said), port, "{said:?}");
                assert_eq!(ports.port("--zookeeper-port", None), None);
                ports.save().await.expect("it is written");
            }
            for wrong in ["", "[]", "{\"--pages-port\": 70000}"] {
                std::fs::write(&path, wrong).expect("it is written");
                let line = Remembered::load(path.clone()).await.expect_err(wrong);
                assert!(line.contains("remove it"), "{line}");
            }
        });
        std::fs::remove_file(&path).expect("it is there");
    }
}
