//! Parser of the shell's language, whose words are those of [`plinth_terminal::shell::words`].

use super::complete::{self, Known};
use super::distribution::{self, Distributing};
use super::fileconfigure;
use super::help::{self, unknown};
use super::kill::Kill;
use super::options::{self, Chosen};
use super::settings::{self, Setting};
use super::throttle::{self, Throttling};
use plinth_access::Clients;
use plinth_control::exclusion::Target;
use plinth_control::management::ConfigChange;
use plinth_coordination::cluster_file::parse_place;
use plinth_core::similar::{most_similar, question};
use plinth_core::{DatabaseConfig, EngineKind, Key, Uid, Value};
use plinth_rpc::Place;
use plinth_runtime::Duration;
use plinth_terminal::choices::expected;
use plinth_terminal::seconds::in_bounds;
use plinth_terminal::shell::words::split;
use std::os::unix::ffi::OsStrExt;

/// Limit of rows of a range if the user names none.
const ROWS_DEFAULT: i32 = 25;

#[derive(Clone, PartialEq, Debug)]
pub enum Statement {
    Get(Key),
    Set(Key, Value),
    Clear(Key),
    ClearRange(Key, Key),
    /// Begin, end if given, limit, keys only.
    GetRange(Key, Option<Key>, i32, bool),
    Begin,
    Commit,
    Rollback,
    Reset,
    GetVersion,
    WriteMode(bool),
    Status(StatusKind),
    /// `None`: list the options that are on.
    Option(Option<(bool, Chosen)>),
    Tenant(TenantStatement),
    Coordinators,
    ConsistencyCheck,
    GetLocation(Key),
    Wait {
        connected: bool,
    },
    Sleep(Duration),
    /// With whether coordinators need not answer.
    ConfigureNew(DatabaseConfig, bool),
    Watch(Key),
    Manage(Management),
    Kill(Kill),
    Help(Option<String>),
    Exit,
}

impl Statement {
    /// Whether it waits for the database, within the time-out, and says nothing meanwhile. Others are there to wait,
    /// or tell the state themselves.
    pub fn waits_unseen(&self) -> bool {
        match self {
            Statement::Get(_)
            | Statement::GetRange(..)
            | Statement::Set(..)
            | Statement::Clear(_)
            | Statement::ClearRange(..)
            | Statement::GetVersion
            | Statement::Commit
            | Statement::Tenant(_)
            | Statement::GetLocation(_)
            | Statement::Kill(_)
            | Statement::Status(_) => true,
            Statement::Manage(management) => {
                !matches!(management, Management::Exclude { wait: true, .. })
            }
            _ => false,
        }
    }

    /// True if a locked database carries it out only for transactions that pass the lock.
    pub fn needs_no_lock(&self) -> bool {
        let of_tools = matches!(
            self,
            Statement::Kill(_) | Statement::Status(_) | Statement::Manage(_)
        );
        self.waits_unseen() && !of_tools
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StatusKind {
    /// Availability in one line.
    Minimal,
    Summary,
    Json,
}

/// Before the words of a change that is refused without it.
const FORCE: &[u8] = b"force";

/// Changes of the database by an operator.
#[derive(Clone, PartialEq, Debug)]
pub enum Management {
    Configure {
        change: ConfigChange,
        /// The statement that was said: `configure` or `fileconfigure`.
        by: &'static str,
        /// Also if then one loss stops everything.
        force: bool,
    },
    Excluded,
    Exclude {
        targets: Vec<Target>,
        /// Also addresses at which no process of the cluster is.
        force: bool,
        /// Wait until the processes hold nothing.
        wait: bool,
    },
    /// Empty: include all.
    Include(Vec<Target>),
    Lock,
    Unlock(Uid),
    Setting(Setting),
    Throttle(Throttling),
    Distribute(Distributing),
    Coordinators {
        /// `None`: the cluster chooses the best.
        /// With whether `:tls` was said behind each.
        wanted: Option<Vec<(Place, bool)>>,
        /// Also if then one loss stops everything.
        force: bool,
    },
}

#[derive(Clone, PartialEq, Debug)]
pub enum TenantStatement {
    Create(Key),
    Delete(Key),
    Get(Key),
    List,
    Rename(Key, Key),
    /// `None`: the database without a tenant.
    Use(Option<Key>),
}

/// Parses all statements of a text. After an error none of them runs.
pub fn parse_all(text: &str) -> Result<Vec<Statement>, String> {
    split(text)?
        .iter()
        .filter(|words| !words.is_empty())
        .map(|words| parse(words))
        .collect()
}

/// A statement's words, the first of which is its name.
struct Words<'a> {
    name: String,
    arguments: &'a [Vec<u8>],
}

impl<'a> Words<'a> {
    fn new(words: &'a [Vec<u8>]) -> Self {
        Words {
            name: String::from_utf8_lossy(&words[0]).to_ascii_lowercase(),
            arguments: &words[1..],
        }
    }

    fn bytes(&self, i: usize) -> Key {
        Key::copy_from_slice(&self.arguments[i])
    }

    fn text(&self, i: usize) -> String {
        String::from_utf8_lossy(&self.arguments[i]).to_ascii_lowercase()
    }

    /// How it is written, behind the word that was meant where one is misspelt.
    fn usage(&self) -> String {
        match help::usage(&self.name) {
            Some(usage) => self.meant() + &usage,
            None => unknown(&self.name),
        }
    }

    /// The question after the first word that may not stand where it does, if another one was meant.
    fn meant(&self) -> String {
        let words = std::iter::once(self.name.clone());
        let words: Vec<String> = words
            .chain((0..self.arguments.len()).map(|i| self.text(i)))
            .collect();
        let questions = (1..words.len()).map(|at| {
            let mut known = complete::next(&words[..at], &Known::default());
            known.sort_by_key(|word| !word.starts_with(&words[at])); // of those that are as near
            match known.contains(&words[at]) {
                true => String::new(),
                false => question(&words[at], known.iter().map(String::as_str)),
            }
        });
        let mut questions = questions.filter(|question| !question.is_empty());
        questions.next().unwrap_or_default()
    }
}

fn parse(words: &[Vec<u8>]) -> Result<Statement, String> {
    let words = Words::new(words);
    let bytes = |i: usize| words.bytes(i);
    let text = |i: usize| words.text(i);
    Ok(match (words.name.as_str(), words.arguments.len()) {
        ("get", 1) => Statement::Get(bytes(0)),
        ("set", 2) => Statement::Set(bytes(0), bytes(1)),
        ("clear", 1) => Statement::Clear(bytes(0)),
        ("clearrange", 2) => Statement::ClearRange(bytes(0), bytes(1)),
        ("getrange", 1..=3) => parse_range(words.arguments, false)?,
        ("getrangekeys", 1..=3) => parse_range(words.arguments, true)?,
        ("begin", 0) => Statement::Begin,
        ("commit", 0) => Statement::Commit,
        ("rollback", 0) => Statement::Rollback,
        ("reset", 0) => Statement::Reset,
        ("getversion", 0) => Statement::GetVersion,
        ("writemode", 1) if text(0) == "on" => Statement::WriteMode(true),
        ("writemode", 1) if text(0) == "off" => Statement::WriteMode(false),
        ("status", 0) => Statement::Status(StatusKind::Summary),
        ("status", 1) if text(0) == "details" => Statement::Status(StatusKind::Summary),
        ("status", 1) if text(0) == "minimal" => Statement::Status(StatusKind::Minimal),
        ("status", 1) if text(0) == "json" => Statement::Status(StatusKind::Json),
        ("option", 0) => Statement::Option(None),
        ("option", 2 | 3) if matches!(text(0).as_str(), "on" | "off") => parse_option(&words)?,
        ("consistencycheck", 0) => Statement::ConsistencyCheck,
        ("coordinators", 0) => Statement::Coordinators,
        ("getlocation", 1) => Statement::GetLocation(bytes(0)),
        ("waitconnected", 0) => Statement::Wait { connected: true },
        ("waitopen", 0) => Statement::Wait { connected: false },
        ("sleep", 1) => {
            let seconds = in_bounds(&text(0), 0.0, 1e6).map_err(|why| format!("sleep: {why}"))?;
            Statement::Sleep(Duration::from_secs_f64(seconds))
        }
        ("configure", 1..) if text(0) == "new" => {
            let (wanted, force) = without_force(&words.arguments[1..]);
            Statement::ConfigureNew(parse_configuration(&wanted)?, force)
        }
        ("fileconfigure", 1..) => parse_file_configuration(&words)?,
        ("watch", 1) => Statement::Watch(bytes(0)),
        ("kill", count) => Statement::Kill(Kill::parse((0..count).map(text).collect())),
        ("help", 0) => Statement::Help(None),
        ("help", 1) => Statement::Help(Some(text(0))),
        ("exit" | "quit", 0) => Statement::Exit,
        _ => match parse_tenant(&words) {
            Some(tenant) => Statement::Tenant(tenant),
            None => Statement::Manage(parse_management(&words)?),
        },
    })
}

fn parse_option(words: &Words) -> Result<Statement, String> {
    let (on, name) = (words.text(0) == "on", words.text(1));
    // The name of a file is as it is written.
    let argument = words
        .arguments
        .get(2)
        .map(|word| String::from_utf8_lossy(word));
    let chosen = match on {
        true => options::parse(&name, argument.as_deref())?,
        false => options::parse_off(&name)?,
    };
    Ok(Statement::Option(Some((on, chosen))))
}

/// The statements about tenants; `None`: the words are none of them.
fn parse_tenant(words: &Words) -> Option<TenantStatement> {
    let bytes = |i: usize| words.bytes(i);
    Some(match (words.name.as_str(), words.arguments.len()) {
        ("createtenant", 1) => TenantStatement::Create(bytes(0)),
        ("deletetenant", 1) => TenantStatement::Delete(bytes(0)),
        ("gettenant", 1) => TenantStatement::Get(bytes(0)),
        ("listtenants", 0) => TenantStatement::List,
        ("renametenant", 2) => TenantStatement::Rename(bytes(0), bytes(1)),
        ("tenant", 3) if words.text(0) == "rename" => TenantStatement::Rename(bytes(1), bytes(2)),
        ("usetenant", 0) | ("defaulttenant", 0) => TenantStatement::Use(None),
        ("usetenant", 1) => TenantStatement::Use(Some(bytes(0))),
        ("tenant", count @ (1 | 2)) => {
            let name = (count == 2).then(|| bytes(1));
            match (words.text(0).as_str(), name) {
                ("create", Some(name)) => TenantStatement::Create(name),
                ("delete", Some(name)) => TenantStatement::Delete(name),
                ("get", Some(name)) => TenantStatement::Get(name),
                ("list", None) => TenantStatement::List,
                ("use", name) => TenantStatement::Use(name),
                _ => return None,
            }
        }
        _ => return None,
    })
}

/// The statements with which an operator changes the database.
fn parse_management(words: &Words) -> Result<Management, String> {
    let usage = || words.usage();
    let text = |i: usize| words.text(i);
    let arguments = words.arguments;
    Ok(match (words.name.as_str(), arguments.len()) {
        ("configure" | "coordinators", 1..) if !matches!(arguments, [word] if is_force(word)) => {
            let (wanted, force) = without_force(arguments);
            match words.name.as_str() {
                "configure" => Management::Configure {
                    change: parse_change(&wanted)?,
                    by: "configure",
                    force,
                },
                _ => Management::Coordinators {
                    wanted: parse_coordinators(&wanted)?,
                    force,
                },
            }
        }
        ("exclude", 0) => Management::Excluded,
        ("exclude", _) => parse_exclusion(words)?,
        ("include", 1) if text(0) == "all" => Management::Include(vec![]),
        ("include", 1..) => Management::Include(parse_targets(arguments)?),
        ("lock", 0) => Management::Lock,
        ("unlock", 1) => {
            let id = Uid::parse(&text(0)).ok_or("unlock: an id has 32 hexadecimal digits")?;
            Management::Unlock(id)
        }
        ("datadistribution" | "maintenance", _) => {
            let distributing = distribution::parse(&words.name, arguments)?;
            Management::Distribute(distributing.ok_or_else(usage)?)
        }
        ("throttle", 1..) => Management::Throttle(throttle::parse(arguments)?.ok_or_else(usage)?),
        (
            "setclass" | "setknob" | "getknob" | "clearknob" | "trustkey" | "listtrusted"
            | "revoke",
            _,
        ) => {
            let setting = settings::parse(&words.name, arguments)?;
            Management::Setting(setting.ok_or_else(usage)?)
        }
        _ => return Err(usage()),
    })
}

/// `None` if the cluster is to choose them.
fn parse_coordinators(words: &[Vec<u8>]) -> Result<Option<Vec<(Place, bool)>>, String> {
    if matches!(words, [word] if word.eq_ignore_ascii_case(b"auto")) {
        return Ok(None);
    }
    let places = words.iter().map(|word| {
        let text = String::from_utf8_lossy(word);
        if text.starts_with("description=") {
            return Err("coordinators: the description is part of the cluster's name, and stays".into());
        }
        parse_place(&text).ok_or_else(|| {
            format!(
                "coordinators: {}`{text}' is neither ip:port nor host:port, perhaps with :tls behind it",
                question(&text, ["auto", "force"])
            )
        })
    });
    places.collect::<Result<_, _>>().map(Some)
}

fn is_force(word: &[u8]) -> bool {
    word.eq_ignore_ascii_case(FORCE)
}

/// The other words, and whether that one is among them.
fn without_force(arguments: &[Vec<u8>]) -> (Vec<Vec<u8>>, bool) {
    let mut others = arguments.to_vec();
    others.retain(|word| !is_force(word));
    let force = others.len() < arguments.len();
    (others, force)
}

fn parse_exclusion(words: &Words) -> Result<Management, String> {
    if words.text(0) == "failed" {
        return Err(
            "exclude: there is no `failed': `exclude' alone does not wait for a server that is gone; its data is \
             copied from other replicas"
                .into(),
        );
    }
    let options = (0..words.arguments.len()).map(|i| words.text(i));
    let options: Vec<String> = options
        .take_while(|word| matches!(word.as_str(), "force" | "no_wait"))
        .collect();
    let has = |wanted: &str| options.iter().any(|word| word == wanted);
    let targets = parse_targets(&words.arguments[options.len()..])?;
    if targets.is_empty() {
        return Err(words.usage());
    }
    Ok(Management::Exclude {
        targets,
        force: has("force"),
        wait: !has("no_wait"),
    })
}

fn parse_range(arguments: &[Vec<u8>], keys_only: bool) -> Result<Statement, String> {
    let key = |i: usize| arguments.get(i).map(|word| Key::copy_from_slice(word));
    let limit = match arguments.get(2) {
        None => ROWS_DEFAULT,
        Some(word) => {
            let limit = std::str::from_utf8(word)
                .ok()
                .and_then(|text| text.parse().ok());
            limit
                .filter(|limit| *limit > 0)
                .ok_or("the limit is a number of rows, at least 1")?
        }
    };
    Ok(Statement::GetRange(
        key(0).expect("there is one argument"),
        key(1),
        limit,
        keys_only,
    ))
}

fn parse_configuration(words: &[Vec<u8>]) -> Result<DatabaseConfig, String> {
    let change = parse_change(words)?;
    if change.clients.is_some() {
        return Err("configure: clients=… is for a database that exists; create it first".into());
    }
    Ok(new_configuration(change))
}

/// The configuration of a new database.
fn new_configuration(change: ConfigChange) -> DatabaseConfig {
    let config = change.apply(DatabaseConfig::default());
    let logs = change.logs.unwrap_or(config.replication);
    DatabaseConfig { logs, ..config }
}

/// The file is read when the statement is parsed, so that no statement runs if there is a mistake in it.
fn parse_file_configuration(words: &Words) -> Result<Statement, String> {
    let (wanted, force) = without_force(words.arguments);
    let (is_new, name) = match &wanted[..] {
        [name] => (false, name),
        [new, name] if new.eq_ignore_ascii_case(b"new") => (true, name),
        _ => return Err(words.usage()),
    };
    let change = fileconfigure::read(std::path::Path::new(std::ffi::OsStr::from_bytes(name)))?;
    match is_new {
        true => Ok(Statement::ConfigureNew(new_configuration(change), force)),
        false => Ok(Statement::Manage(Management::Configure {
            change,
            by: "fileconfigure",
            force,
        })),
    }
}

fn parse_targets(words: &[Vec<u8>]) -> Result<Vec<Target>, String> {
    let parse = |word: &Vec<u8>| {
        let word = String::from_utf8_lossy(word);
        Target::parse(&word).ok_or_else(|| {
            format!(
                "{}`{word}' is neither IP:PORT nor IP nor locality_zoneid:NAME",
                question(&word, ["no_wait", "force", "all"])
            )
        })
    };
    words.iter().map(parse).collect()
}

/// The line about a word of FoundationDB's.
const TENANTS_ARE_THERE: &str = "configure: `tenant_mode=' is not known: a database has tenants, and keys without \
     one, as in FoundationDB's mode optional_experimental; nothing switches them on or off";

/// The line about a word of `configure` that is none.
fn no_configuration(word: &str) -> String {
    const WORDS: [&str; 13] = [
        "new",
        "force",
        "single",
        "double",
        "triple",
        "three_data_hall",
        "ssd",
        "memory",
        "logs",
        "commit_proxies",
        "grv_proxies",
        "resolvers",
        "clients",
    ];
    let (name, count) = word
        .split_once('=')
        .map_or((word, ""), |(name, count)| (name, count));
    if name == "clients" {
        let known = Clients::ALL.map(Clients::name);
        return format!(
            "configure: `{word}' is not known: {}",
            expected(count, known)
        );
    }
    let small = name.to_ascii_lowercase();
    match most_similar(&small, WORDS).filter(|meant| *meant != small) {
        Some(meant) if count.is_empty() => {
            format!("configure: `{word}' is not known; did you mean `{meant}'?")
        }
        Some(meant) => format!("configure: `{word}' is not known; did you mean `{meant}={count}'?"),
        None => format!("configure: `{word}' is not known; `help configure' lists what is"),
    }
}

fn parse_change(words: &[Vec<u8>]) -> Result<ConfigChange, String> {
    let mut change = ConfigChange::default();
    let again = |word: &str, what: &str| Err(format!("configure: `{word}' is a second {what}"));
    for word in words {
        let said = String::from_utf8_lossy(word);
        let word = said.to_ascii_lowercase();
        if let Some(mode) = DatabaseConfig::parse_mode(&word) {
            if change.mode.replace(mode).is_some() {
                return again(&word, "number of copies");
            }
        } else if let Some(engine) = EngineKind::parse(&word) {
            if change.engine.replace(engine).is_some() {
                return again(&word, "engine");
            }
        } else {
            let bad = || no_configuration(&said);
            let (name, count) = word.split_once('=').ok_or_else(bad)?;
            if name == "clients" {
                change.clients = Some(Clients::from_name(count).ok_or_else(bad)?);
                continue;
            }
            let roles = match name {
                "logs" => &mut change.logs,
                "commit_proxies" | "proxies" => &mut change.commit_proxies,
                "grv_proxies" => &mut change.grv_proxies,
                "resolvers" => &mut change.resolvers,
                "tenant_mode" => return Err(TENANTS_ARE_THERE.into()),
                "storage_engine" | "engine" => {
                    return Err(format!(
                        "configure: `{word}': the engine is a word of its own, `ssd' or `memory', as in `configure \
                         ssd'"
                    ));
                }
                _ => return Err(bad()),
            };
            let count = count.parse().map_err(|_| {
                format!(
                    "configure: `{word}': after {name}= comes a number of roles, as in {name}=3"
                )
            })?;
            *roles = Some(count);
        }
    }
    Ok(change)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_are_separated_and_quotes_and_escapes_hold_words_together() {
        let parsed = parse_all("set \"a b;\" \\x00\\\\c ; get a\\;b;; ").expect("parses");
        assert_eq!(
            parsed,
            [
                Statement::Set("a b;".into(), Key::from_static(b"\0\\c")),
                Statement::Get("a;b".into())
            ]
        );
        assert_eq!(
            parse_all("set k \"\""),
            Ok(vec![Statement::Set("k".into(), Value::new())])
        );
    }

    #[test]
    fn a_range_has_an_end_and_a_limit_if_they_are_given() {
        let range = |text: &str| parse_all(text).expect("parses").remove(0);
        assert_eq!(
            range("getrange a"),
            Statement::GetRange("a".into(), None, 25, false)
        );
        assert_eq!(
            range("getrangekeys a b 3"),
            Statement::GetRange("a".into(), Some("b".into()), 3, true)
        );
    }

    #[test]
    fn times_have_units_if_they_are_said() {
        for (text, same) in [
            ("sleep 2s", "sleep 2"),
            ("maintenance on rack-1 30m", "maintenance on rack-1 1800"),
            ("throttle on tag web 5 2h", "throttle on tag web 5 7200"),
        ] {
            assert_eq!(parse_all(text), parse_all(same));
            assert!(parse_all(same).is_ok(), "{same}");
        }
    }

    #[test]
    fn a_configuration_names_copies_engine_and_roles() {
        let parsed = |text: &str| match parse_all(text).expect("parses").remove(0) {
            Statement::ConfigureNew(config, force) => (config, force),
            other => panic!("{other:?}"),
        };
        let (config, force) = parsed("configure new triple memory resolvers=2");
        assert!(!force);
        for forced in ["force memory", "memory FORCE"] {
            let forced = parsed(&format!("configure new triple {forced} resolvers=2"));
            assert_eq!(forced, (config, true));
        }
        assert_eq!(
            (
                config.replication,
                config.engine,
                config.logs,
                config.resolvers
            ),
            (3, EngineKind::Memory, 3, 2)
        );
    }

    #[test]
    fn each_mistake_is_named_and_nothing_runs() {
        for (text, word) in [
            ("get", "usage: get KEY"),
            ("frobnicate", "frobnicate"),
            ("get \"a", "quote"),
            ("get \\q", "escape"),
            ("get a; set b", "usage: set"),
            ("getrange a b 0", "limit"),
            ("configure new quadruple", "`help configure' lists"),
            (
                "configure DUBLE",
                "`DUBLE' is not known; did you mean `double'?",
            ),
            ("configure FORCE", "usage: configure"),
            (
                "configure double triple",
                "`triple' is a second number of copies",
            ),
            ("configure ssd memory", "`memory' is a second engine"),
            ("fileconfigure a b", "usage: fileconfigure [new] [force]"),
            ("datadistribution of", "did you mean `off'? usage: data"),
            ("datadistribution enable ssfailur", "`ssfailure'?"),
            ("writemode of", "did you mean `off'?"),
            ("status minimum", "did you mean `minimal'?"),
            ("throttle lst", "did you mean `list'?"),
            ("throttle disable aut", "did you mean `auto'?"),
            ("tenant creat x", "did you mean `create'?"),
            ("maintenance of", "did you mean `off'?"),
            ("maintenance onn rack-1 5", "did you mean `on'?"),
            ("exclude nowait 10.0.0.1:4500", "did you mean `no_wait'?"),
            ("configure storage_engine=ssd", "as in `configure ssd'"),
            ("sleep x", "sleep: expected seconds, or a time such as 90s"),
            ("maintenance on rack-1 8d", "maintenance: "),
            ("throttle on tag web 5 x", "throttle: "),
            ("quit now", "usage: exit"),
            ("put a b", "did you mean `set'?"),
            ("del a", "did you mean `clear'?"),
            ("configure doble", "did you mean `double'?"),
            ("configure new triple log=3", "did you mean `logs=3'?"),
            ("configure clients=nobody", "expected all, reads or tokens"),
            (
                "configure clients=token",
                "did you mean `tokens'? expected all",
            ),
            (
                "configure tenant_mode=disabled",
                "`tenant_mode=' is not known: a database has tenants",
            ),
            ("configure log=x", "did you mean `logs=x'?"),
            ("configure logs=x", "a number of roles"),
            ("renametenant a", "usage: renametenant OLD NEW"),
            ("tenant rename a", "usage: tenant create"),
        ] {
            let error = parse_all(text).expect_err(text);
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
