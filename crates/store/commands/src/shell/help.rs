//! What `help` says: of every statement, and of the topics `escaping` and `options`.

use super::options;
use plinth_terminal::wrap::wrapped;

/// Columns of a terminal that is not wide.
const COLUMNS: usize = 80;
const NAME_COLUMNS: usize = 16;

/// Name, arguments, description.
#[rustfmt::skip]
const HELP: &[(&str, &str, &str)] = &[
    ("begin", "", "start a transaction, which the statements up to commit or rollback belong to"),
    ("clear", "KEY", "remove a key"),
    ("clearknob", "NAME", "let a knob have its default value again in every process"),
    ("clearrange", "BEGIN END", "remove every key from BEGIN up to, and without, END"),
    ("commit", "", "commit the transaction"),
    ("configure", "[new] [single|double|triple|three_data_hall] [ssd|memory] \
        [logs=N] [commit_proxies=N] [grv_proxies=N] [resolvers=N] [clients=all|reads|tokens]",
        "change the configuration; with new, create the database of a new cluster; \
        clients says what a client may do without a token: all, read, or nothing"),
    ("consistencycheck", "", "compare all replicas, now; the database does so by itself, slowly, all the time"),
    ("coordinators", "[auto|IP:PORT…|HOST:PORT…]",
        "let these servers be the coordinators, or with auto those that suit best; \
        without arguments, show who they are"),
    ("createtenant", "NAME", "create a tenant"),
    ("datadistribution", "on|off|enable|disable [ssfailure|rebalance]",
        "switch data distribution on or off, or the copying of what failed servers had, or the balancing of bytes; \
        while it is off nothing heals"),
    ("defaulttenant", "", "leave the tenant: use the database itself"),
    ("deletetenant", "NAME", "delete a tenant, which must be empty"),
    ("exclude", "[force] [no_wait] [TARGET…]",
        "let processes have neither data nor roles, and wait until they have none: IP:PORT, IP, \
        or locality_zoneid:NAME (also machineid, processid, data_hall, dcid); \
        with force, also who is not there; without TARGET, list who is excluded"),
    ("exit", "", "leave"),
    ("fileconfigure", "[new] FILE",
        "as configure, with a file of JSON that has members of `configuration' in the status document"),
    ("get", "KEY", "show the value of a key"),
    ("getknob", "[NAME]", "show the value that the cluster has set for a knob, or its default; without NAME, of all"),
    ("getlocation", "KEY", "show the storage servers that hold a key"),
    ("getrange", "BEGIN [END] [LIMIT]",
        "show the pairs from BEGIN up to, and without, END; without END, those that begin with BEGIN"),
    ("getrangekeys", "BEGIN [END] [LIMIT]", "as getrange, but only the keys"),
    ("gettenant", "NAME", "show the number and the prefix of a tenant"),
    ("getversion", "", "show the read version of the transaction, or the newest one"),
    ("help", "[STATEMENT|escaping|options]", "explain a statement, escapes in keys, or options of transactions"),
    ("include", "all|TARGET…", "take back what `exclude' did"),
    ("kill", "[list|all|IP:PORT…|ID…]",
        "end processes by their addresses, or all, for those who started them to start them again; or a role by the \
        begin of its id, as a crash would; without arguments, list them"),
    ("listtenants", "", "list the tenants"),
    ("listtrusted", "", "list the keys whose tokens count, and what clients may do without a token"),
    ("lock", "", "let only transactions that know of the lock read and write"),
    ("maintenance", "[on ZONE SECONDS|off]",
        "wait for the servers of a zone while they are gone, for so long, instead of copying what they had; ends \
        when a storage server of another zone fails; without arguments, show which zone"),
    ("option", "[on|off OPTION [NUMBER]]",
        "set an option of all transactions from now on; without arguments, show which are on"),
    ("renametenant", "OLD NEW", "give a tenant another name; its data stays as it is"),
    ("reset", "", "forget what the transaction has done so far"),
    ("revoke", "NAME", "let no token count any more that this key has signed"),
    ("rollback", "", "end the transaction without a commit"),
    ("set", "KEY VALUE", "write a pair"),
    ("setclass", "[IP:PORT unset|storage|log|stateless|tester|default]",
        "let a process be for something else than its --class says, and with default for that again; \
        takes one recovery; without arguments, list the classes"),
    ("setknob", "NAME VALUE",
        "set a knob for every process that was not given it with --knob, now; `getknob' lists all"),
    ("sleep", "SECONDS", "wait"),
    ("status", "[minimal|details|json]", "show the state of the cluster"),
    ("tenant", "create|delete|get|list|use [NAME] | rename OLD NEW",
        "the statements about tenants, in another form"),
    ("throttle", "on tag TAG [RATE [SECONDS [immediate|default|batch [REASON]]]] | off [all|tag TAG] | list \
        | enable|disable auto",
        "limit transactions with a tag to so many a second (10) for so long (3600 s); list limits; \
        allow or forbid the database to find such tags itself"),
    ("trustkey", "NAME PUBLICKEY",
        "let tokens count that this key signs; `plinth token new' makes one; replaces another key of that name"),
    ("unlock", "ID", "take the lock away, with the id that `lock' told"),
    ("usetenant", "[NAME]", "use a tenant; without NAME, the database itself"),
    ("waitconnected", "", "wait until the cluster's controller answers, as long as it takes"),
    ("waitopen", "", "wait until the database serves, as long as it takes"),
    ("watch", "KEY", "wait until the value of a key changes; interrupt to stop waiting"),
    ("writemode", "on|off", "allow or forbid statements that write"),
];

/// Topics of `help` that are no statements: name, description.
pub const TOPICS: [(&str, &str); 2] = [
    ("escaping", "how keys and values are written and shown"),
    ("options", "the options of transactions that `option' sets"),
];

const ESCAPING: &str = r#"A statement is words with blanks between them, and `;' stands between statements. In keys and
values:

  \xNN              the byte with this hexadecimal number: \x00, \xff
  \\ \" \; \        a backslash, a quote, a semicolon, a blank (a backslash before each)
  \t \n \r \0       a tab, a line feed, a carriage return, a zero byte
  "hello world"     what is in double quotes is one word, with its blanks and semicolons; escapes count there too
  hello\x20world    the same word
  ""                the empty word

Any other text stands for its bytes in UTF-8. Keys and values are shown with \xNN for each byte that is not printable
ASCII, and \\ for a backslash. With --tsv and --json they are shown so, too."#;

/// Statements of `fdbcli` that are not here, and what to do instead. `docs/migrating-from-foundationdb.md` says more.
const INSTEAD: [(&str, &str); 16] = [
    ("advanceversion", NOTHING),
    ("blobkey", DUMP),
    ("blobrange", DUMP),
    ("blobrestore", DUMP),
    ("cache_range", TOP),
    (
        "changefeed",
        "`plinth stream' makes streams and follows them",
    ),
    (
        "expensive_data_check",
        "`consistencycheck' compares all replicas",
    ),
    ("hotrange", TOP),
    ("profile", TOP),
    ("quota", "`throttle' limits transactions with a tag"),
    ("snapshot", DUMP),
    ("suspend", "send the process SIGSTOP, and SIGCONT"),
    ("tenantgroup", "tenants have no groups"),
    ("triggerddteaminfolog", TOP),
    ("tssq", TOP),
    ("versionepoch", NOTHING),
];
const NOTHING: &str = "there is no need for it";
const DUMP: &str = "`plinth dump' and `plinth load' save and restore";
const TOP: &str = "`plinth top' shows which processes are busy, `getlocation' who holds a key";

pub fn names() -> impl Iterator<Item = &'static str> {
    HELP.iter().map(|(name, ..)| *name)
}

/// How a statement is written; `None` if there is none of that name.
pub fn usage(name: &str) -> Option<String> {
    let (name, arguments, _) = HELP.iter().find(|(known, ..)| *known == name)?;
    Some(format!("usage: {name} {arguments}"))
}

pub fn unknown(name: &str) -> String {
    match INSTEAD.iter().find(|(known, _)| *known == name) {
        Some((_, instead)) => format!("`{name}' of fdbcli is not here; {instead}"),
        None => format!("there is no statement `{name}'; `help' lists them"),
    }
}

/// The text of `help`.
pub fn help(of: Option<&str>) -> Result<String, String> {
    match of {
        None => Ok(all()),
        Some("escaping") => Ok(ESCAPING.into()),
        Some("options") => Ok(options::described()),
        Some(wanted) => match HELP.iter().find(|(name, ..)| *name == wanted) {
            Some((name, arguments, what)) => {
                let more = match *name {
                    "option" => "\n  `help options' lists the options",
                    _ => "",
                };
                let usage = [&[*name], &words(arguments)[..]].concat();
                let usage = wrapped(usage, COLUMNS - 4).join("\n    ");
                let what = wrapped(words(what), COLUMNS - 2).join("\n  ");
                Ok(format!("{usage}\n  {what}{more}"))
            }
            None => Err(unknown(wanted)),
        },
    }
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

fn all() -> String {
    let described = |(name, _, what): &(&str, &str, &str)| {
        let indent = NAME_COLUMNS + 3;
        let what = wrapped(words(what), COLUMNS - indent).join(&format!("\n{:indent$}", ""));
        format!("  {name:<NAME_COLUMNS$} {what}")
    };
    let mut lines: Vec<String> = HELP.iter().map(described).collect();
    lines.push(String::new());
    lines.push("`help STATEMENT' says more, and there are:".into());
    let topic = |(name, what): &(&str, &str)| format!("  help {name:<11} {what}");
    lines.extend(TOPICS.iter().map(topic));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_statement_and_every_topic_is_explained() {
        let all = help(None).expect("there is help");
        let topics = TOPICS.iter().map(|(name, _)| *name);
        assert!(
            names()
                .chain(topics)
                .all(|name| all.contains(name) && help(Some(name)).is_ok())
        );
        assert!(help(Some("nothing")).is_err());
        let texts = names().map(|name| help(Some(name)));
        for text in texts.chain([Ok(all)]) {
            let text = text.expect("there is help");
            let longest = text.lines().map(str::len).max();
            assert!(longest.is_some_and(|length| length <= COLUMNS), "{text}");
        }
        let options = help(Some("options")).expect("a topic");
        assert!(options::names().all(|name| options.contains(name)));
    }

    #[test]
    fn who_misses_a_statement_of_fdbcli_is_told_what_to_do_as_in_the_page_on_migrating() {
        let page = include_str!("../../../../../docs/migrating-from-foundationdb.md");
        for (name, _) in INSTEAD {
            assert!(names().all(|known| known != name), "{name}");
            assert!(page.contains(&format!("`{name}`")), "{name}");
        }
        let told = "`quota' of fdbcli is not here; `throttle' limits transactions with a tag";
        assert_eq!(unknown("quota"), told);
    }

    #[test]
    fn what_the_help_says_of_escapes_is_so() {
        let words = plinth_terminal::shell::words::split(
            r#"\x00\xff \\\"\;\  \t\n\r\0 "hello world" hello\x20world "" "a;b""#,
        );
        let words = words.expect("they are escapes").remove(0);
        let wanted: [&[u8]; 7] = [
            b"\0\xff",
            b"\\\"; ",
            b"\t\n\r\0",
            b"hello world",
            b"hello world",
            b"",
            b"a;b",
        ];
        assert_eq!(words, wanted);
    }
}
