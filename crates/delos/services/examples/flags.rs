//! A replicated service of feature flags: which users see a feature.

use plinth_core::EngineKind;
use plinth_delos::backup::directories;
use plinth_delos::replica::{Config, Kind, Settings, serve};
use plinth_delos::store::{RoTx, RwTx};
use plinth_runtime::real::block_on;
use plinth_services::{Hosted, Outcome, Rows, Service, name, refuse, unknown, whole_number};
use serde_json::{Value, json};

const OPERATIONS: [&str; 4] = ["set", "remove", "asks", "list"];

#[derive(Default)]
struct Flags;

/// The row of a flag.
fn key(flag: &str) -> Vec<u8> {
    [b"flag/", flag.as_bytes()].concat()
}

impl Service for Flags {
    const NAME: &'static str = "flags";

    fn reads(operation: &str) -> bool {
        matches!(operation, "asks" | "list")
    }

    // Runs once for each request, on every replica, in the same order. It may look at the rows and the request only.
    fn change(&self, tx: &mut RwTx, operation: &str, request: &Value) -> Outcome {
        match operation {
            "set" => {
                let flag = name(request, "flag")?;
                let percent = whole_number(request, "percent", 0..=100)?;
                tx.set(&key(flag), vec![percent as u8]);
                Ok(json!({ "flag": flag, "percent": percent }))
            }
            "remove" => {
                let flag = name(request, "flag")?;
                if tx.row(&key(flag))?.is_none() {
                    return refuse("not_found", format!("there is no flag {flag:?}"));
                }
                tx.clear(&key(flag));
                Ok(Value::Null)
            }
            _ => unknown(operation, &OPERATIONS),
        }
    }

    // Runs on one replica, on rows that have everything that was answered before.
    fn read(&self, rows: &RoTx, operation: &str, request: &Value) -> Outcome {
        match operation {
            "asks" => {
                let (flag, user) = (name(request, "flag")?, name(request, "user")?);
                let percent = rows.row(&key(flag))?.map_or(0, |row| row[0]);
                // The same user always gets the same answer, and keeps the feature when it goes to more users.
                let hash = plinth_core::hash::hash_bytes(format!("{flag} {user}").as_bytes());
                Ok(json!({ "on": hash % 100 < u64::from(percent) }))
            }
            "list" => {
                let mut flags = json!({});
                for (key, row) in rows.rows(b"flag/", b"flag0", 1000)? {
                    let flag = String::from_utf8_lossy(&key[b"flag/".len()..]).into_owned();
                    flags[flag] = row[0].into();
                }
                Ok(flags)
            }
            _ => unknown(operation, &OPERATIONS),
        }
    }
}

static KINDS: [&Kind; 1] = [&FLAGS];
static FLAGS: Kind = Kind::of::<Hosted<Flags>>();

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, listen, directory] = &arguments[..] else {
        eprintln!("flags IP:PORT DIRECTORY");
        std::process::exit(2);
    };
    let listen = listen.parse().expect("an address, such as 127.0.0.1:4701");
    let config = Config {
        directory: directory.into(),
        listen,
        kinds: &KINDS,
        engine: EngineKind::Ssd,
        public: None,
        cache_bytes: 64 << 20,
        service: None,
        settings: Settings::default(),
        places: directories,
    };
    let Err(line) = block_on(serve(config));
    eprintln!("flags: {line}");
    std::process::exit(1);
}
