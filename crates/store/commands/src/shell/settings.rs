//! The statements `setclass', `setknob', `getknob', `clearknob', `trustkey', `listtrusted' and `revoke': classes of
//! processes, knobs, and keys whose tokens count.

use plinth_access::{Access, Clients};
use plinth_client::Database;
use plinth_control::configured::give_classes;
use plinth_control::{access, management};
use plinth_core::key::printable;
use plinth_identity::tokens::PublicKey;
use plinth_protocol::control::{ProcessClass, RegisterWorker};
use plinth_runtime::knobs::{self, Knobs};
use plinth_terminal::Outcome;
use plinth_terminal::choices::unknown;
use plinth_terminal::shell::answer::Answer;
use std::net::SocketAddr;

#[derive(Clone, PartialEq, Debug)]
pub enum Setting {
    Classes,
    /// `None`: the class given at the start of the process.
    Class(SocketAddr, Option<ProcessClass>),
    /// `None`: all knobs.
    Knobs(Option<String>),
    /// `None`: the default value.
    Knob(String, Option<String>),
    Trusted,
    Trust(String, PublicKey),
    Revoke(String),
}

/// Returns `None` if the statement is not one of these or has a wrong form.
pub fn parse(name: &str, arguments: &[Vec<u8>]) -> Result<Option<Setting>, String> {
    let words: Vec<_> = arguments
        .iter()
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    Ok(Some(match (name, &words[..]) {
        ("setclass", []) => Setting::Classes,
        ("setclass", [address, class]) => {
            let address = address
                .parse()
                .map_err(|_| format!("setclass: `{address}' is not an IP:PORT"))?;
            Setting::Class(address, parse_class(class)?)
        }
        ("getknob", []) => Setting::Knobs(None),
        ("getknob", [name]) => Setting::Knobs(Some(name.clone())),
        ("setknob", [name, value]) => Setting::Knob(name.clone(), Some(value.clone())),
        ("listtrusted", []) => Setting::Trusted,
        ("trustkey", [name, key]) => {
            let key = PublicKey::parse(key).ok_or_else(|| {
                "trustkey: a public key has 43 letters, as `plinth token public' prints it"
                    .to_owned()
            })?;
            Setting::Trust(name.clone(), key)
        }
        ("revoke", [name]) => Setting::Revoke(name.clone()),
        ("clearknob", [name]) => Setting::Knob(name.clone(), None),
        _ => return Ok(None),
    }))
}

fn parse_class(name: &str) -> Result<Option<ProcessClass>, String> {
    if name == "default" {
        return Ok(None);
    }
    const ALL: [&str; 6] = ["unset", "storage", "log", "stateless", "tester", "default"];
    let class = ProcessClass::parse(name).ok_or_else(|| unknown("setclass", name, ALL))?;
    Ok(Some(class))
}

impl Setting {
    /// Applies the statement; returns what has changed, or the setting.
    pub async fn apply(self, database: &Database, workers: &[RegisterWorker]) -> Outcome<Answer> {
        match self {
            Setting::Classes => {
                // The controller applies new classes with a delay, so the list uses the configured ones.
                let mut workers = workers.to_vec();
                let classes = management::configured(database).await?.classes;
                give_classes(&mut workers, &classes);
                Ok(list_classes(&workers))
            }
            Setting::Class(address, class) => {
                management::set_class(database, workers, address, class).await?;
                let name = class.map_or("what it says itself", ProcessClass::name);
                Ok(format!("The class of {address} is {name}").into())
            }
            Setting::Knobs(wanted) => {
                let set = management::configured(database).await?.knobs;
                list_knobs(wanted.as_deref(), &set)
            }
            Setting::Trusted => Ok(list_trusted(&access::read(database).await?)),
            Setting::Trust(name, key) => {
                access::trust(database, &name, key).await?;
                let name = printable(name.as_bytes());
                Ok(format!("Tokens that key {name} signs count from now on").into())
            }
            Setting::Revoke(name) => {
                access::revoke(database, &name).await?;
                let name = printable(name.as_bytes());
                Ok(
                    format!(
                        "Tokens of key {name} are over everywhere in ten seconds at the latest"
                    )
                    .into(),
                )
            }
            Setting::Knob(name, value) => {
                management::set_knob(database, &name, value.as_deref()).await?;
                let text = match value {
                    Some(value) => format!(
                        "{name} is {value} in every process that was not given it with --knob"
                    ),
                    None => format!("{name} has its default value again"),
                };
                Ok(text.into())
            }
        }
    }
}

fn list_classes(workers: &[RegisterWorker]) -> Answer {
    let mut sorted: Vec<&RegisterWorker> = workers.iter().collect();
    sorted.sort_by_key(|worker| worker.worker.address);
    let fields = |worker: &&RegisterWorker| {
        let source = match worker.given {
            Some(_) => "set by setclass",
            None => "as the process says",
        };
        let (address, class) = (worker.worker.address, worker.class().name());
        vec![address.to_string(), class.to_string(), source.to_string()]
    };
    let rows: Vec<Vec<String>> = sorted.iter().map(fields).collect();
    let lines = rows
        .iter()
        .map(|row| format!("\n  {}: {} ({})", row[0], row[1], row[2]));
    Answer::Table(format!("Processes:{}", lines.collect::<String>()), rows)
}

fn list_trusted(access: &Access) -> Answer {
    let without = match access.clients {
        Clients::All => "read and write everything",
        Clients::Reads => "read everything",
        Clients::Tokens => "do nothing",
    };
    let mut lines = vec![format!(
        "Clients without a token may {without} (clients={})",
        access.clients.name()
    )];
    let row = |(name, key): (&str, &PublicKey)| vec![printable(name.as_bytes()), key.to_string()];
    let rows: Vec<Vec<String>> = access.keys.iter().map(row).collect();
    lines.extend(rows.iter().map(|row| format!("  {}: {}", row[0], row[1])));
    if rows.is_empty() {
        lines.push("No key is trusted".into());
    }
    Answer::Table(lines.join("\n"), rows)
}

fn list_knobs(wanted: Option<&str>, set: &[(String, String)]) -> Outcome<Answer> {
    let (mut lines, mut rows) = (Vec::new(), Vec::new());
    for (name, default) in Knobs::default().list() {
        if wanted.is_some_and(|wanted| wanted != name) {
            continue;
        }
        let set = set.iter().find(|(known, _)| known == name);
        lines.push(match set {
            Some((_, value)) => format!("{name}: {value} (the default is {default})"),
            None => format!("{name}: {default} (default)"),
        });
        let value = set.map_or(&default, |(_, value)| value);
        rows.push(vec![name.to_string(), value.clone(), default.clone()]);
    }
    match (lines.is_empty(), wanted) {
        (true, Some(name)) => Err(knobs::unknown(name, "`getknob' lists")),
        _ => Ok(Answer::Table(lines.join("\n"), rows)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_terminal::shell::answer::Form;

    fn parsed(text: &str) -> Result<Option<Setting>, String> {
        let mut words = text.split(' ').map(|word| word.as_bytes().to_vec());
        let name = String::from_utf8(words.next().expect("a name")).expect("text");
        parse(&name, &words.collect::<Vec<_>>())
    }

    #[test]
    fn settings_are_read_and_what_is_wrong_with_them_is_said() {
        let address = "10.0.0.1:4500".parse().expect("an address");
        let class = |class| Ok(Some(Setting::Class(address, class)));
        assert_eq!(
            parsed("setclass 10.0.0.1:4500 log"),
            class(Some(ProcessClass::Log))
        );
        assert_eq!(parsed("setclass 10.0.0.1:4500 default"), class(None));
        assert!(parsed("setclass 10.0.0.1:4500 king").is_err_and(|e| e.contains("`king'")));
        assert!(parsed("setclass here log").is_err_and(|e| e.contains("`here'")));
        assert_eq!(parsed("setclass 10.0.0.1:4500"), Ok(None));
        let knob = Setting::Knob("moves_max".into(), Some("3".into()));
        assert_eq!(parsed("setknob moves_max 3"), Ok(Some(knob)));
        assert_eq!(parsed("setknob moves_max"), Ok(None));
        let key = PublicKey::new([7; 32]);
        let trust = Setting::Trust("Web".into(), key);
        assert_eq!(parsed(&format!("trustkey Web {key}")), Ok(Some(trust)));
        assert!(parsed("trustkey Web short").is_err_and(|e| e.contains("43")));
        assert_eq!(
            parsed("revoke Web"),
            Ok(Some(Setting::Revoke("Web".into())))
        );
    }

    #[test]
    fn trusted_keys_are_listed_with_what_clients_may_do_without() {
        let mut access = Access {
            clients: Clients::Reads,
            ..Access::default()
        };
        let text = |answer: Answer| answer.render(Form::Text);
        assert!(text(list_trusted(&access)).contains("clients=reads"));
        assert!(text(list_trusted(&access)).ends_with("No key is trusted"));
        access.keys.trust("web", PublicKey::new([7; 32]));
        let listed = text(list_trusted(&access));
        assert_eq!(
            listed.lines().nth(1),
            Some("  web: BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc")
        );
    }

    #[test]
    fn knobs_are_listed_with_what_the_cluster_has_set() {
        let set = [("moves_max".to_string(), "3".to_string())];
        let text = |answer: Outcome<Answer>| answer.expect("knobs").render(Form::Text);
        let all = text(list_knobs(None, &set));
        assert_eq!(all.lines().count(), Knobs::default().list().len());
        let one = list_knobs(Some("moves_max"), &set);
        assert_eq!(text(one.clone()), "moves_max: 3 (the default is 16)");
        assert_eq!(one.expect("one").render(Form::Tsv), "moves_max\t3\t16");
        assert!(list_knobs(Some("nothing"), &set).is_err());
    }

    /// The bounds that code relies on, of all knobs that a server has.
    #[test]
    fn nothing_outside_its_bounds_can_be_set_or_drawn() {
        for (name, value) in [
            ("commit_batch_count_max", "65537"),
            ("commit_batch_count_max", "0"),
            ("version_window", "100000001"),
            ("version_window", "-1"),
            ("log_segment_bytes", "4294967296"),
            ("range_bytes_max", "67108864"),
            ("fetch_rest", "NaN"),
        ] {
            let refusal = Knobs::default()
                .set(name, value)
                .expect_err("it is illegal");
            assert!(refusal.contains(name), "{refusal}");
        }
        let is_legal = |knobs: &Knobs| {
            for (name, value) in knobs.list() {
                let (low, high) = Knobs::bounds(name).expect("it is one");
                let value: f64 = value.parse().expect("a number");
                assert!(low <= value && value <= high, "{name} {value}");
            }
        };
        is_legal(&Knobs::default());
        for seed in 0..300 {
            let mut knobs = Knobs::default();
            knobs.randomise(seed, 0.5);
            is_legal(&knobs);
            knobs.randomise_within_bounds(seed, 0.5);
            is_legal(&knobs);
        }
        assert!(Knobs::default().list().len() > 50, "all crates are linked");
    }
}
