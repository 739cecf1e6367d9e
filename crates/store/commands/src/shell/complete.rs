//! What Tab completes: names of statements, and the words that may come next in each. Pure; the names that only the
//! cluster knows are in [`Known`].

use super::{distribution, help, options, throttle};
use plinth_core::key::printable;
use plinth_protocol::control::ProcessClass;
use plinth_runtime::knobs::Knobs;

/// What the cluster has told so far. Empty if it has not answered.
#[derive(Clone, Default, Debug)]
pub struct Known {
    /// Addresses of processes.
    pub addresses: Vec<String>,
    /// Zones of processes.
    pub zones: Vec<String>,
    /// What is excluded.
    pub excluded: Vec<String>,
    /// Names of tenants, as one writes them.
    pub tenants: Vec<String>,
}

/// How a name is written in a statement.
pub fn written(name: &[u8]) -> String {
    let mut written = printable(name);
    for (plain, escaped) in [(" ", "\\x20"), ("\"", "\\\""), (";", "\\;")] {
        written = written.replace(plain, escaped);
    }
    written
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| word.to_string()).collect()
}

const MODES: [&str; 4] = ["single", "double", "triple", "three_data_hall"];
const CONFIGURE: [&str; 9] = [
    "ssd",
    "memory",
    "logs=",
    "commit_proxies=",
    "grv_proxies=",
    "resolvers=",
    "clients=all",
    "clients=reads",
    "clients=tokens",
];

/// The words that may follow these of a statement.
pub fn next(words: &[String], known: &Known) -> Vec<String> {
    let words: Vec<String> = words.iter().map(|word| word.to_ascii_lowercase()).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (addresses, tenants) = (&known.addresses, &known.tenants);
    let knobs = || Knobs::default().list().into_iter();
    match words[..] {
        [] => help::names().chain(["quit"]).map(String::from).collect(),
        ["help"] => help::subjects().map(String::from).collect(),
        ["status"] => owned(&["minimal", "details", "json"]),
        ["writemode"] | ["option"] => owned(&["on", "off"]),
        ["option", "on" | "off"] => options::names().map(String::from).collect(),
        ["configure", ref given @ ..] => configuration(given),
        ["maintenance", "on"] => known.zones.clone(),
        [name @ ("datadistribution" | "maintenance"), ref given @ ..] => {
            owned(distribution::next(name, given))
        }
        ["throttle", ref given @ ..] => owned(throttle::next(given)),
        ["tenant"] => owned(&["create", "delete", "get", "list", "rename", "use"]),
        ["tenant", "delete" | "get" | "rename" | "use"]
        | ["usetenant" | "deletetenant" | "gettenant" | "renametenant"] => tenants.clone(),
        ["coordinators"] => [owned(&["auto", "force"]), addresses.clone()].concat(),
        ["coordinators", "auto", ..] => Vec::new(),
        ["exclude", ref given @ ..] => exclusion(given, addresses),
        ["include"] => [owned(&["all"]), known.excluded.clone()].concat(),
        ["include", "all", ..] => Vec::new(),
        ["coordinators", ref given @ ..] => others(addresses, given),
        ["include", ref given @ ..] => others(&known.excluded, given),
        ["setclass"] => addresses.clone(),
        ["setclass", _] => [owned(&ProcessClass::NAMES), owned(&["default"])].concat(),
        ["kill"] => [owned(&["all", "list"]), addresses.clone()].concat(),
        ["kill", "all" | "list", ..] => Vec::new(),
        ["kill", ref given @ ..] => others(addresses, given),
        ["fileconfigure"] => owned(&["new"]),
        ["getknob" | "setknob" | "clearknob"] => knobs().map(|(name, _)| name.into()).collect(),
        _ => Vec::new(),
    }
}

/// Those that are not given yet.
fn others(all: &[String], given: &[&str]) -> Vec<String> {
    let is_new = |word: &&String| !given.contains(&word.as_str());
    all.iter().filter(is_new).cloned().collect()
}

fn exclusion(given: &[&str], addresses: &[String]) -> Vec<String> {
    let are_options = given
        .iter()
        .all(|word| matches!(*word, "force" | "no_wait"));
    let options = match are_options {
        true => others(&owned(&["force", "no_wait"]), given),
        false => Vec::new(),
    };
    [options, others(addresses, given)].concat()
}

fn configuration(given: &[&str]) -> Vec<String> {
    let new: &[&str] = match given {
        [] => &["new", "force"],
        ["new", rest @ ..] if !rest.contains(&"force") => &["force"],
        _ => &[],
    };
    let is_new = |word: &&&str| {
        let (name, _) = word.split_once('=').unwrap_or((word, ""));
        let is_same = |other: &&str| other.split_once('=').map_or(*other, |(n, _)| n) == name;
        let has_mode = given.iter().any(|word| MODES.contains(word));
        !(given.iter().any(is_same) || has_mode && MODES.contains(&name))
    };
    let words = [new, &MODES, &CONFIGURE].concat();
    words
        .iter()
        .filter(is_new)
        .map(|word| word.to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_terminal::shell::complete::{Completions, complete};

    fn known() -> Known {
        Known {
            addresses: owned(&["10.0.0.1:4500", "10.0.0.2:4500"]),
            zones: owned(&["rack-1"]),
            excluded: owned(&["10.0.0.9"]),
            tenants: vec![written(b"web"), written(b"we; \"b\xff")],
        }
    }

    fn completed(line: &str) -> (String, Vec<String>) {
        let known = known();
        let Completions { from, words } = complete(line, |words| next(words, &known));
        (line[..from].to_string(), words)
    }

    #[test]
    fn the_last_word_of_the_last_statement_is_completed() {
        for (line, before, words) in [
            ("getv", "", &["getversion"][..]),
            ("get a; getv", "get a; ", &["getversion"]),
            ("set \"a; b\" ", "set \"a; b\" ", &[]),
            ("status ", "status ", &["minimal", "details", "json"]),
            ("status m", "status ", &["minimal"]),
            ("HELP esc", "HELP ", &["escaping"]),
            ("writemode o", "writemode ", &["on", "off"]),
            ("option on time", "option on ", &["timeout"]),
            ("configure ne", "configure ", &["new"]),
            (
                "configure new double lo",
                "configure new double ",
                &["logs="],
            ),
            (
                "configure clients=",
                "configure ",
                &["clients=all", "clients=reads", "clients=tokens"],
            ),
            ("throttle on ", "throttle on ", &["tag"]),
            ("maintenance on ", "maintenance on ", &["rack-1"]),
            (
                "datadistribution disable ss",
                "datadistribution disable ",
                &["ssfailure"],
            ),
            (
                "throttle on tag web 1 2 ba",
                "throttle on tag web 1 2 ",
                &["batch"],
            ),
            ("exclude f", "exclude ", &["force"]),
            (
                "exclude force 10.0.0.1:4500 10",
                "exclude force 10.0.0.1:4500 ",
                &["10.0.0.2:4500"],
            ),
            ("include ", "include ", &["all", "10.0.0.9"]),
            (
                "usetenant w",
                "usetenant ",
                &["web", "we\\;\\x20\\\"b\\xff"],
            ),
            ("tenant get web", "tenant get ", &["web"]),
            (
                "setclass 10.0.0.1:4500 st",
                "setclass 10.0.0.1:4500 ",
                &["storage", "stateless"],
            ),
            (
                "kill 10.0.0.1:4500 ",
                "kill 10.0.0.1:4500 ",
                &["10.0.0.2:4500"],
            ),
            ("kill a", "kill ", &["all"]),
            ("clearknob moves_m", "clearknob ", &["moves_max"]),
            ("nonsense ", "nonsense ", &[]),
            ("get a b c ", "get a b c ", &[]),
        ] {
            assert_eq!(completed(line), (before.into(), owned(words)), "{line}");
        }
    }

    #[test]
    fn a_configuration_takes_each_of_its_words_once() {
        let (_, all) = completed("configure ");
        for word in MODES.iter().chain(&CONFIGURE).chain(&["new"]) {
            assert!(all.contains(&word.to_string()), "{word}");
        }
        let (_, rest) = completed("configure double logs=3 ");
        for word in ["new", "single", "double", "logs=", "force"] {
            assert!(!rest.contains(&word.to_string()), "{word}");
        }
        let (_, rest) = completed("configure new double ");
        assert!(rest.contains(&"force".to_string()), "{rest:?}");
    }

    #[test]
    fn what_is_completed_is_what_the_statement_takes() {
        for name in [&b"we; \"b\xff"[..], b"\\", b"plain"] {
            let line = format!("usetenant {}", written(name));
            let words = plinth_terminal::shell::words::split(&line).expect("it is understood");
            assert_eq!(words, [vec![b"usetenant".to_vec(), name.to_vec()]]);
        }
    }

    #[test]
    fn no_line_is_too_strange_to_be_completed() {
        for line in [
            "",
            ";",
            "\\",
            "\"",
            "a\\",
            "ä ö\"",
            " ;; \"\\\"",
            "get \\;x",
        ] {
            let Completions { from, .. } = complete(line, |words| next(words, &known()));
            assert!(line.is_char_boundary(from), "{line}");
        }
    }
}
