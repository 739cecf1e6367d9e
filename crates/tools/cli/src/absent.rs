//! What this build leaves out, and what it says to those who ask for it.

use std::ffi::OsString;

const KEEPER: bool = cfg!(feature = "keeper");
const BENCH: bool = cfg!(feature = "bench");

/// Words of a command line, and whether this build knows them.
const PARTS: [(&[&str], bool); 11] = [
    (&["keeper"], KEEPER),
    (&["keeper", "bench"], BENCH),
    (&["dev", "--zookeeper-port"], KEEPER),
    (&["dev", "--keeper-port"], KEEPER),
    (&["table"], cfg!(feature = "tables")),
    (&["delos"], cfg!(feature = "delos")),
    (&["delos", "bench"], BENCH),
    (&["farm"], cfg!(feature = "farm")),
    (&["farm", "bench"], BENCH),
    (&["bench"], BENCH),
    (&["tools", "sim"], cfg!(feature = "sim")),
];

/// The line for a command line with a part that this build does not have.
pub fn line(arguments: &[OsString]) -> Option<String> {
    let part = first(arguments, &PARTS)?;
    Some(format!(
        "this build has no `{}'; build it with everything: cargo build --release --package plinth-cli",
        part.join(" ")
    ))
}

fn first<'a>(arguments: &[OsString], parts: &[(&'a [&'a str], bool)]) -> Option<&'a [&'a str]> {
    let words: Vec<&str> = arguments
        .iter()
        .skip(1)
        .map(|word| word.to_str().unwrap_or_default())
        .collect();
    let words = match words[..] {
        ["help", ref of @ ..] => of,
        ref all => all,
    };
    let (command, rest) = words.split_first()?;
    let names = |flag: &str| rest.iter().any(|word| word.split('=').next() == Some(flag));
    let is_asked = |part: &[&str]| match *part {
        [name] => name == *command,
        [name, flag] if flag.starts_with('-') => name == *command && names(flag),
        [name, below] => name == *command && rest.first() == Some(&below),
        _ => false,
    };
    let mut asked = parts.iter().filter(|(part, _)| is_asked(part));
    asked.find(|(_, is_built)| !is_built).map(|(part, _)| *part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_or_flag_that_is_left_out_is_known_wherever_it_is_asked_for() {
        let parts: [(&[&str], bool); 4] = [
            (&["keeper"], false),
            (&["dev", "--keeper-port"], false),
            (&["farm"], true),
            (&["farm", "bench"], false),
        ];
        for (line, part) in [
            ("keeper server --listen 127.0.0.1:2181", Some("keeper")),
            ("help keeper", Some("keeper")),
            (
                "dev --data-dir d --keeper-port 2181",
                Some("dev --keeper-port"),
            ),
            ("dev --keeper-port=2181", Some("dev --keeper-port")),
            ("farm bench ycsb", Some("farm bench")),
            ("help farm bench", Some("farm bench")),
            ("bench run --workload keeper", None),
            ("dev --data-dir keeper", None),
            ("cli --exec keeper", None),
            ("", None),
        ] {
            let words = format!("plinth {line}");
            let words: Vec<OsString> = words.split_whitespace().map(OsString::from).collect();
            let found = first(&words, &parts).map(|part| part.join(" "));
            assert_eq!(found.as_deref(), part, "{line}");
        }
    }
}
