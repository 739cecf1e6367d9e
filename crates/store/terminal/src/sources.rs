//! Where flags come from that nobody has typed: a file or a variable. What goes wrong with one is told with its own
//! name there, since that is where it is changed.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Flags with their dashes, and where each is said.
type Sources = BTreeMap<String, Source>;

#[derive(Clone, Debug)]
struct Source {
    /// What it is called there.
    name: String,
    /// Where that is; none of a variable.
    place: Option<String>,
}

static NOTED: Mutex<Sources> = Mutex::new(BTreeMap::new());

/// A line about these no flag of this process caused, or it speaks of the variables itself.
const OTHERS: [&str; 3] = [
    "the other side",
    "the peer",
    "or the variable of one of them",
];

fn note(flag: String, source: Source) {
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    noted.insert(flag, source);
}

/// The flag, with its dashes, is an entry of a file.
pub fn note_entry(flag: String, name: &str, place: String) {
    let (name, place) = (format!("`{name}'"), Some(place));
    note(flag, Source { name, place });
}

/// The flag, with its dashes, is what a variable says.
pub fn note_variable(flag: &str, variable: &str) {
    let (name, place) = (format!("${variable}"), None);
    note(flag.to_owned(), Source { name, place });
}

/// The line about what has failed, in which flags that nobody has typed have the names of where they are.
pub fn told(line: &str) -> String {
    let noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    with(&noted, line)
}

fn with(sources: &Sources, line: &str) -> String {
    if OTHERS.iter().any(|other| line.contains(other)) {
        return line.to_owned();
    }
    let (mut told, mut rest, mut is_quoted) = (String::new(), line, false);
    let mut are_placed = Vec::new();
    while let Some(first) = rest.chars().next() {
        match first {
            // A command that is to be typed stays as it is.
            '`' => is_quoted = !is_quoted,
            '\'' => is_quoted = false,
            _ => {}
        }
        let is_word = first == '-' && !told.ends_with(|c: char| c.is_alphanumeric() || c == '-');
        let flag = flag_at(rest).filter(|_| is_word && !is_quoted);
        match flag.and_then(|flag| Some((flag, sources.get(flag)?))) {
            Some((flag, source)) => {
                told.push_str(&source.name);
                if let Some(place) = source
                    .place
                    .as_ref()
                    .filter(|_| !are_placed.contains(&flag))
                {
                    told.push_str(&format!(" in {place}"));
                }
                are_placed.push(flag);
                rest = &rest[flag.len()..];
            }
            None => {
                told.push(first);
                rest = &rest[first.len_utf8()..];
            }
        }
    }
    told
}

/// The long flag with which the text begins.
fn flag_at(text: &str) -> Option<&str> {
    let name = text.strip_prefix("--")?;
    let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_';
    let length = name.find(is_end).unwrap_or(name.len());
    (length > 0).then(|| &text[..2 + length])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources() -> Sources {
        let entry = |name: &str, line: u32| Source {
            name: format!("`{name}'"),
            place: Some(format!("a.toml, line {line}")),
        };
        let key = Source {
            name: "$FDB_TLS_KEY_FILE".into(),
            place: None,
        };
        let all = [
            ("--listen", entry("listen", 1)),
            ("--data-dir", entry("data-dir", 2)),
            ("--pages", entry("metrics", 3)),
            ("--tls-key-file", key),
        ];
        all.map(|(flag, source)| (flag.to_owned(), source)).into()
    }

    #[test]
    fn a_flag_that_nobody_has_typed_is_told_by_the_name_it_has_where_it_is() {
        for (line, said) in [
            (
                "cannot listen at 127.0.0.1:1 (--listen): stop it, or choose another --listen",
                "cannot listen at 127.0.0.1:1 (`listen' in a.toml, line 1): stop it, or choose another `listen'",
            ),
            (
                "at X (--pages): this command listens there already (--listen); choose another --pages",
                "at X (`metrics' in a.toml, line 3): this command listens there already (`listen' in a.toml, line 1); \
                 choose another `metrics'",
            ),
            (
                "data directory d: choose another with --data-dir",
                "data directory d: choose another with `data-dir' in a.toml, line 2",
            ),
            ("see --tls-key-file", "see $FDB_TLS_KEY_FILE"),
        ] {
            assert_eq!(with(&sources(), line), said);
        }
    }

    #[test]
    fn what_was_typed_or_is_to_be_typed_stays_as_it_is() {
        for line in [
            "run `plinth server --listen 127.0.0.1:1' or `plinth table server --data-dir d'",
            "--listener, --no--listen, x--listen, -- and --",
            "the other side has shown no certificate; give it one with --tls-key-file",
            "--class",
            "",
            "é --",
        ] {
            assert_eq!(with(&sources(), line), line);
        }
        let mixed = "say `a --listen' and --listen";
        let told = "say `a --listen' and `listen' in a.toml, line 1";
        assert_eq!(with(&sources(), mixed), told);
        assert_eq!(with(&Sources::new(), mixed), mixed);
    }
}
