//! `help` of a shell: its statements in groups on one screen, and a page about each.

use crate::wrap::wrapped;
use plinth_core::similar::meant;

/// Columns of a terminal that is not wide.
pub const COLUMNS: usize = 80;
const GROUP_COLUMNS: usize = 14;
const TOPIC_COLUMNS: usize = 14;

/// What there is to say about a statement.
pub struct Page {
    pub name: &'static str,
    pub arguments: &'static str,
    pub what: &'static str,
    pub example: &'static str,
}

/// As [`Page`], in a line.
pub const fn page(
    name: &'static str,
    arguments: &'static str,
    what: &'static str,
    example: &'static str,
) -> Page {
    Page {
        name,
        arguments,
        what,
        example,
    }
}

/// What a shell explains.
pub struct Help {
    /// The statements, below what they are about.
    pub groups: &'static [(&'static str, &'static [Page])],
    /// Pages that are about no statement: name, description.
    pub topics: &'static [(&'static str, &'static str)],
}

/// How keys and values are written, for shells whose words are those of [`words`](super::words).
pub const ESCAPING: &str = r#"A statement is words with blanks between them, and `;' stands between
statements. In keys and values:

  \xNN              the byte with this hexadecimal number: \x00, \xff
  \\ \" \; \        a backslash, a quote, a semicolon, a blank (a backslash
                    before each)
  \t \n \r \0       a tab, a line feed, a carriage return, a zero byte
  "hello world"     what is in double quotes is one word, with its blanks and
                    semicolons; escapes count there too
  hello\x20world    the same word
  ""                the empty word
  'hello'           is refused: single quotes are no quotes, as in fdbcli, and
                    would be a part of the word; "'hello'" is that word

Any other text stands for its bytes in UTF-8. Keys and values are shown with
\xNN for each byte that is not printable ASCII, and \\ for a backslash. With
--tsv and --json they are shown so, too."#;

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// The names of a group behind its title, in lines of a screen.
pub fn grouped<'a>(title: &str, names: impl Iterator<Item = &'a str>) -> String {
    let indent = GROUP_COLUMNS + 3;
    let mut names: Vec<String> = names.map(|name| format!("{name},")).collect();
    if let Some(last) = names.last_mut() {
        last.pop();
    }
    // A name of several words stays in one line.
    let names = wrapped(names.iter().map(String::as_str), COLUMNS - indent);
    let names = names.join(&format!("\n{:indent$}", ""));
    format!("  {title:<GROUP_COLUMNS$} {names}")
}

/// How something is written, what it does, and an example.
pub fn explained(usage: &[&str], what: &str, example: &str) -> String {
    let usage: Vec<&str> = usage.iter().flat_map(|part| words(part)).collect();
    let usage = wrapped(usage, COLUMNS - 4).join("\n    ");
    let what = wrapped(words(what), COLUMNS - 2).join("\n  ");
    let example = [words("example:"), words(example)].concat();
    let example = wrapped(example, COLUMNS - 4).join("\n    ");
    format!("{usage}\n  {what}\n  {example}")
}

impl Help {
    pub fn pages(&self) -> impl Iterator<Item = &'static Page> + use<> {
        self.groups.iter().flat_map(|(_, pages)| pages.iter())
    }

    /// The names of the statements, in the order of the alphabet.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        let mut names: Vec<&str> = self.pages().map(|page| page.name).collect();
        names.sort_unstable();
        names.into_iter()
    }

    /// What may stand behind `help`.
    pub fn subjects(&self) -> impl Iterator<Item = &'static str> + use<> {
        let topics = self.topics.iter().map(|(name, _)| *name);
        self.names().chain(topics)
    }

    fn find(&self, name: &str) -> Option<&'static Page> {
        let name = if name == "quit" { "exit" } else { name };
        self.pages().find(|page| page.name == name)
    }

    /// How a statement is written; `None` if there is none of that name.
    pub fn usage(&self, name: &str) -> Option<String> {
        let Page {
            name, arguments, ..
        } = self.find(name)?;
        Some(format!("usage: {name} {arguments}").trim_end().to_owned())
    }

    /// The line about a statement that does not exist.
    pub fn unknown(&self, name: &str) -> String {
        let names: Vec<&str> = self.names().collect();
        match meant(name, names) {
            Some(meant) => format!("there is no statement `{name}'; did you mean `{meant}'?"),
            None => format!("there is no statement `{name}'; `help' lists them"),
        }
    }

    /// The line about a page that does not exist.
    pub fn unexplained(&self, subject: &str) -> String {
        let subjects: Vec<&str> = self.subjects().collect();
        match meant(subject, subjects) {
            Some(meant) => format!("there is no help about `{subject}'; did you mean `{meant}'?"),
            None => format!("there is no help about `{subject}'; `help' lists all pages"),
        }
    }

    /// All statements, on one screen.
    pub fn screen(&self) -> String {
        let groups = self.groups.iter();
        let named = groups.map(|(title, pages)| grouped(title, pages.iter().map(|page| page.name)));
        let mut lines: Vec<String> = named.collect();
        lines.push(String::new());
        let more = match self.topics.is_empty() {
            true => "`help STATEMENT' explains one, with an example.",
            false => "`help STATEMENT' explains one, with an example. There is more to read:",
        };
        lines.push(more.into());
        let topic = |(name, what): &(&str, &str)| format!("  help {name:<TOPIC_COLUMNS$} {what}");
        lines.extend(self.topics.iter().map(topic));
        lines.join("\n")
    }

    /// How a statement is written, what it does, and an example. `None` if there is none of that name.
    pub fn page(&self, name: &str) -> Option<String> {
        let Page {
            name,
            arguments,
            what,
            example,
        } = self.find(name)?;
        Some(explained(&[name, arguments], what, example))
    }
}

/// What every [`Help`] keeps to, for tests of shells: each subject is explained, and on a screen of 24 lines, with a
/// line of its own for the prompt; each statement has a page. `explain` gives what the shell says of a subject, and of
/// all if it is empty.
pub fn check(help: &Help, explain: impl Fn(&str) -> Result<String, String>) {
    const LINES: usize = 24;
    let screen = explain("").expect("it is about all");
    let subjects = help.subjects().chain([""]);
    let texts = subjects.map(|subject| explain(subject).expect("it is explained"));
    for text in texts {
        assert!(text.lines().count() < LINES, "{text}");
        let longest = text.lines().map(|line| line.chars().count()).max();
        assert!(longest.is_some_and(|longest| longest <= COLUMNS), "{text}");
    }
    let mut subjects: Vec<&str> = help.subjects().collect();
    for subject in &subjects {
        assert!(screen.contains(subject), "{subject}");
    }
    let count = subjects.len();
    subjects.sort_unstable();
    subjects.dedup();
    assert_eq!(subjects.len(), count, "a name is there twice");
    let is_whole = |page: &Page| !page.what.is_empty() && !page.example.is_empty();
    assert!(help.pages().all(is_whole), "each has a text and an example");
}

#[cfg(test)]
mod tests {
    use super::*;

    const HELP: Help = Help {
        groups: &[
            (
                "Reading",
                &[
                    page("get", "KEY", "show the value of a key", "get hello"),
                    page("watch", "KEY", "wait until it changes", "watch hello"),
                ],
            ),
            (
                "Writing",
                &[page("set", "KEY VALUE", "write a pair", "set hello world")],
            ),
        ],
        topics: &[("escaping", "how keys are written")],
    };

    const BARE: Help = Help {
        groups: &[("Locks", &[page("lock", "", "lock the database", "lock")])],
        topics: &[],
    };

    #[test]
    fn statements_are_in_groups_and_each_has_a_page_with_an_example() {
        check(&HELP, |of| match of {
            "" => Ok(HELP.screen()),
            "escaping" => Ok(ESCAPING.into()),
            name => HELP.page(name).ok_or(HELP.unexplained(name)),
        });
        assert_eq!(
            HELP.screen(),
            "  Reading        get, watch\n  Writing        set\n\n`help STATEMENT' explains one, with an example. \
             There is more to read:\n  help escaping       how keys are written"
        );
        let page = HELP.page("set").expect("a statement");
        assert_eq!(
            page,
            "set KEY VALUE\n  write a pair\n  example: set hello world"
        );
        assert_eq!(HELP.usage("get").as_deref(), Some("usage: get KEY"));
        assert_eq!(BARE.usage("lock").as_deref(), Some("usage: lock"));
        assert_eq!(HELP.page("escaping"), None);
    }

    #[test]
    fn who_writes_a_word_that_does_not_exist_is_told_what_is_most_like_it() {
        for (line, said) in [
            (
                HELP.unknown("gte"),
                "there is no statement `gte'; did you mean `get'?",
            ),
            (
                HELP.unknown("put"),
                "there is no statement `put'; did you mean `set'?",
            ),
            (
                HELP.unknown("fly"),
                "there is no statement `fly'; `help' lists them",
            ),
            (
                HELP.unexplained("escpaing"),
                "there is no help about `escpaing'; did you mean `escaping'?",
            ),
            (
                HELP.unexplained("fly"),
                "there is no help about `fly'; `help' lists all pages",
            ),
        ] {
            assert_eq!(line, said);
        }
    }

    #[test]
    fn what_the_help_says_of_escapes_is_so() {
        assert!(ESCAPING.lines().all(|line| line.len() <= COLUMNS));
        let words = super::super::words::split(
            r#"\x00\xff \\\"\;\  \t\n\r\0 "hello world" hello\x20world "" "'hello'" "a;b""#,
        );
        let words = words.expect("they are escapes").remove(0);
        let wanted: [&[u8]; 8] = [
            b"\0\xff",
            b"\\\"; ",
            b"\t\n\r\0",
            b"hello world",
            b"hello world",
            b"",
            b"'hello'",
            b"a;b",
        ];
        assert_eq!(words, wanted);
        assert!(super::super::words::split("'hello'").is_err());
    }
}
