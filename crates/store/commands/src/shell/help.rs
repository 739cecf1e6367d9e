//! What `help` says: of every statement, and of the topics `escaping` and `options`.

use super::options;
use plinth_core::similar::meant;
use plinth_terminal::shell::help::{ESCAPING, Help, page};

#[rustfmt::skip]
const HELP: Help = Help {
    groups: &[
        ("Reading", &[
            page("get", "KEY", "show the value of a key", "get hello"),
            page("getrange", "BEGIN [END] [LIMIT]",
                "show the pairs from BEGIN up to, and without, END; without END, those that begin with BEGIN; LIMIT \
                is 25 unless it is said",
                "getrange user/a user/n 100"),
            page("getrangekeys", "BEGIN [END] [LIMIT]", "as getrange, but only the keys", "getrangekeys user/"),
            page("getversion", "", "show the read version of the transaction, or the newest one", "getversion"),
            page("watch", "KEY", "wait until the value of a key changes; interrupt to stop waiting", "watch hello"),
        ]),
        ("Writing", &[
            page("set", "KEY VALUE", "write a pair", "set hello \"big world\""),
            page("clear", "KEY", "remove a key", "clear hello"),
            page("clearrange", "BEGIN END", "remove every key from BEGIN up to, and without, END",
                "clearrange user/a user/n"),
            page("writemode", "on|off", "allow or forbid statements that write", "writemode off"),
        ]),
        ("Transactions", &[
            page("begin", "", "start a transaction, which the statements up to commit or rollback belong to",
                "begin; set a 1; set b 2; commit"),
            page("commit", "", "commit the transaction", "begin; clear a; commit"),
            page("rollback", "", "end the transaction without a commit", "begin; clear a; rollback"),
            page("reset", "", "forget what the transaction has done so far", "begin; clear a; reset; set a 2; commit"),
            page("option", "[on|off OPTION [NUMBER|FILE]]",
                "set an option of all transactions from now on; without arguments, show which are on",
                "option on timeout 5000"),
        ]),
        ("Tenants", &[
            page("createtenant", "NAME", "create a tenant", "createtenant web"),
            page("deletetenant", "NAME", "delete a tenant, which must be empty", "deletetenant web"),
            page("gettenant", "NAME", "show the number and the prefix of a tenant", "gettenant web"),
            page("listtenants", "", "list the tenants", "listtenants"),
            page("renametenant", "OLD NEW", "give a tenant another name; its data stays as it is",
                "renametenant web shop"),
            page("usetenant", "[NAME]", "use a tenant; without NAME, the database itself", "usetenant web"),
            page("defaulttenant", "", "leave the tenant: use the database itself", "defaulttenant"),
            page("tenant", "create|delete|get|list|use [NAME] | rename OLD NEW",
                "the statements about tenants, in another form", "tenant use web"),
        ]),
        ("The cluster", &[
            page("status", "[minimal|details|json]", "show the state of the cluster", "status details"),
            page("getlocation", "KEY", "show the storage servers that hold a key", "getlocation hello"),
            page("consistencycheck", "",
                "compare all replicas, now; the database does so by itself, slowly, all the time",
                "consistencycheck"),
            page("waitconnected", "", "wait until the cluster's controller answers, as long as it takes",
                "waitconnected; status"),
            page("waitopen", "", "wait until the database serves, as long as it takes", "waitopen; get hello"),
        ]),
        ("Configuration", &[
            page("configure", "[new] [single|double|triple|three_data_hall] [ssd|memory] \
                [logs=N] [commit_proxies=N] [grv_proxies=N] [resolvers=N] [clients=all|reads|tokens] [force]",
                "change the configuration; with new, create the database of a new cluster; with force, also if there \
                is one copy then, or while coordinators of a new one do not answer, which may hold the data of a \
                former one; clients says what a client may do without a token: all of it, reads, or nothing (tokens)",
                "configure double logs=3"),
            page("fileconfigure", "[new] [force] FILE",
                "as configure, with a file of JSON that has members of `configuration' in the status document",
                "fileconfigure wanted.json"),
            page("coordinators", "[force] [auto|IP:PORT…|HOST:PORT…]",
                "let these servers be the coordinators, or with auto those that suit best; \
                with force, also if one that is lost stops the database then; \
                without arguments, show who they are",
                "coordinators auto"),
            page("setclass", "[IP:PORT unset|storage|log|stateless|tester|default]",
                "let a process be for something else than its --class says, and with default for that again; \
                takes one recovery; without arguments, list the classes",
                "setclass 10.0.0.4:4500 storage"),
            page("setknob", "NAME VALUE",
                "set a knob for every process that was not given it with --knob, now; `getknob' lists all",
                "setknob moves_max 4"),
            page("getknob", "[NAME]",
                "show the value that the cluster has set for a knob, or its default; without NAME, of all",
                "getknob moves_max"),
            page("clearknob", "NAME", "let a knob have its default value again in every process",
                "clearknob moves_max"),
        ]),
        ("Servers", &[
            page("exclude", "[force] [no_wait] [TARGET…]",
                "let processes have neither data nor roles, and wait until they have none: IP:PORT, IP, \
                or locality_zoneid:NAME (also machineid, processid, data_hall, dcid); \
                with force, also who is not there; without TARGET, list who is excluded",
                "exclude 10.0.0.4:4500 locality_zoneid:rack-2"),
            page("include", "all|TARGET…", "take back what `exclude' did", "include 10.0.0.4:4500"),
            page("kill", "[list|all|IP:PORT…|ID…]",
                "end processes by their addresses, or all, for those who started them to start them again; or a role \
                by the begin of its id, as a crash would; without arguments, list them",
                "kill 10.0.0.4:4500"),
            page("maintenance", "[on ZONE SECONDS|off]",
                "wait for the servers of a zone while they are gone, for so long, instead of copying what they had; \
                ends when a storage server of another zone fails; without arguments, show which zone",
                "maintenance on rack-2 600"),
            page("datadistribution", "on|off|enable|disable [ssfailure|rebalance]",
                "switch data distribution on or off, or the copying of what failed servers had, or the balancing of \
                bytes; while it is off nothing heals",
                "datadistribution disable rebalance"),
            page("throttle", "on tag TAG [RATE [SECONDS [immediate|default|batch [REASON]]]] | off [all|tag TAG] | \
                list | enable|disable auto",
                "limit transactions with a tag to so many a second (10) for so long (3600 s); list limits; \
                allow or forbid the database to find such tags itself",
                "throttle on tag reports 50 600"),
        ]),
        ("Access", &[
            page("lock", "", "let only transactions that know of the lock read and write", "lock"),
            page("unlock", "ID", "take the lock away, with the id that `lock' told",
                "unlock 0123456789abcdef0123456789abcdef"),
            page("trustkey", "NAME PUBLICKEY",
                "let tokens count that this key signs; `plinth token new' makes one; replaces another key of that \
                name",
                "trustkey billing AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"),
            page("listtrusted", "",
                "list the keys whose tokens count, and what clients may do without a token", "listtrusted"),
            page("revoke", "NAME", "let no token count any more that this key has signed", "revoke billing"),
        ]),
        ("The shell", &[
            page("help", "[STATEMENT|escaping|options|OPTION]",
                "explain a statement, escapes in keys, options of transactions, or one of them", "help getrange"),
            page("sleep", "SECONDS", "wait", "sleep 1.5"),
            page("exit", "", "leave; quit does so, too", "exit"),
        ]),
    ],
    topics: &[
        ("escaping", "how keys and values are written and shown"),
        ("options", "the options of transactions that `option' sets"),
    ],
};

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
    HELP.names()
}

/// What may stand behind `help`.
pub fn subjects() -> impl Iterator<Item = &'static str> {
    HELP.subjects().chain(options::names())
}

/// How a statement is written; `None` if there is none of that name.
pub fn usage(name: &str) -> Option<String> {
    HELP.usage(name)
}

fn instead(name: &str) -> Option<String> {
    let (_, instead) = INSTEAD.iter().find(|(known, _)| *known == name)?;
    Some(format!("`{name}' of fdbcli is not here; {instead}"))
}

pub fn unknown(name: &str) -> String {
    instead(name).unwrap_or_else(|| HELP.unknown(name))
}

fn unexplained(subject: &str) -> String {
    match meant(subject, subjects().collect::<Vec<_>>()) {
        Some(meant) => format!("there is no help about `{subject}'; did you mean `{meant}'?"),
        None => HELP.unexplained(subject),
    }
}

/// The text of `help`.
pub fn help(of: Option<&str>) -> Result<String, String> {
    match of {
        None => Ok(HELP.screen()),
        Some("escaping") => Ok(ESCAPING.into()),
        Some("options") => Ok(options::described()),
        Some(wanted) => {
            let page = HELP.page(wanted).or_else(|| options::page(wanted));
            let page =
                page.ok_or_else(|| instead(wanted).unwrap_or_else(|| unexplained(wanted)))?;
            let more = match wanted {
                "option" => "\n  `help options' lists the options",
                _ => "",
            };
            Ok(format!("{page}{more}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::statement::parse_all;
    use super::*;
    use plinth_terminal::shell::help::check;

    #[test]
    fn every_statement_is_in_a_group_on_one_screen_and_every_page_explains_one() {
        check(&HELP, |of| help(Some(of).filter(|of| !of.is_empty())));
        let options = help(Some("options")).expect("a topic");
        for name in options::names() {
            assert!(options.contains(name), "{name}");
            let page = help(Some(name)).expect("it has a page");
            assert!(
                page.starts_with(name) && page.contains("example: option on"),
                "{page}"
            );
            assert!(subjects().any(|subject| subject == name));
        }
        let slip = help(Some("lock_awar")).expect_err("there is none");
        assert!(slip.ends_with("did you mean `lock_aware'?"), "{slip}");
        let unknown = help(Some("getrnage")).expect_err("there is none");
        assert!(unknown.ends_with("did you mean `getrange'?"), "{unknown}");
        assert_eq!(
            help(Some("quota")).expect_err("it is fdbcli's"),
            super::unknown("quota")
        );
    }

    #[test]
    fn every_example_is_one() {
        for page in HELP.pages() {
            // A file is read when its statement is understood.
            let found = parse_all(page.example);
            let is_one = found.is_ok() || page.name == "fileconfigure";
            assert!(is_one, "{}: {found:?}", page.example);
            assert!(page.example.contains(page.name), "{}", page.example);
        }
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
}
