//! `--config FILE`: flags of a command as lines of a TOML file, each by its long name. The command line wins.
//!
//! ```toml
//! listen = "10.0.0.1:4500"
//! cache-mib = 2048
//! knob = ["moves_max=64"]
//! ```
//!
//! Entries become flags before those of the command line, so they are checked as flags are. Each is first tried alone,
//! so that an error names its line.

use crate::given::other_kind;
use crate::knobs::parse_knobs;
use crate::{Outcome, sources};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command};
use plinth_identity::files::FileKind;
use std::error::Error as _;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// Flags that would do harm if they were given again with every start.
pub const ONCE: [&str; 1] = ["accept-lost-coordination"];
/// The flag that names the file, in any command that has one.
pub const CONFIG: &str = "config";
/// Values of this flag have names: a table of them may stand for the list.
const KNOB: &str = "knob";
/// A larger file is no configuration.
const FILE_BYTES_MAX: u64 = 1 << 20;

#[derive(clap::Args, Clone, Debug)]
pub struct ConfigArgument {
    /// File with flags, one a line, by their long names: cache-mib = 2048. Flags of the command line win; those of the
    /// file win over variables. docs/samples has one for each server
    #[arg(long, value_name = "FILE")]
    #[allow(
        dead_code,
        reason = "`with_file` reads it before the other flags are known"
    )]
    config: Option<PathBuf>,
}

/// The arguments of this process, after those of the file that `--config` names.
///
/// # Errors
/// One line, with the file and the line in it.
pub fn with_file(program: Command, arguments: Vec<OsString>) -> Outcome<Vec<OsString>> {
    let mut program = program;
    if value_of(&arguments, CONFIG).is_some() {
        program.build(); // then commands know their whole names
    }
    let mut command = &program;
    let mut depth = 1;
    while let Some(below) = arguments
        .get(depth)
        .and_then(|name| command.find_subcommand(name))
    {
        command = below;
        depth += 1;
    }
    if of_name(command, CONFIG).is_none() {
        return Ok(arguments);
    }
    let said = &arguments[depth..];
    let Some(path) = value_of(said, CONFIG) else {
        return Ok(arguments);
    };
    let text = read(&path)?;
    let at = |(line, what): (usize, String)| match line {
        0 => format!("{}: {what}", path.display()),
        line => format!("{}, line {line}: {what}", path.display()),
    };
    let entries =
        parse(command, &text).map_err(|wrong| match other_kind(FileKind::Flags, &path) {
            Some(other) => at((
                0,
                format!("{other}; name the file of its flags with --config"),
            )),
            None => at(wrong),
        })?;
    let mut all = arguments[..depth].to_vec();
    for entry in entries {
        let is_said = names(entry.flag).any(|name| is_said(said, &name));
        // Each knob has a name: what the command line says later of the same one counts.
        if !is_said || entry.flag.get_long() == Some(KNOB) {
            let place = format!("{}, line {}", path.display(), entry.line);
            if let Some(now) = entry.flag.get_long().filter(|now| *now != entry.name) {
                crate::say!(
                    "{place}: `{}' is `{now}' now; the former words work for one release more",
                    entry.name
                );
            }
            for flag in names(entry.flag).filter(|flag| flag.starts_with("--")) {
                sources::note_entry(flag, &entry.name, place.clone());
            }
            all.extend(entry.arguments.into_iter().map(OsString::from));
        }
    }
    all.extend_from_slice(said);
    match missing(command, &all[depth - 1..]) {
        Some(what) => Err(format!("{}: {what}", path.display())),
        None => Ok(all),
    }
}

/// What neither the file nor the command line says, although the command needs it.
fn missing(command: &Command, arguments: &[OsString]) -> Option<String> {
    let error = command.clone().try_get_matches_from(arguments).err()?;
    let Some(ContextValue::Strings(flags)) = error.get(ContextKind::InvalidArg) else {
        return None;
    };
    if error.kind() != ErrorKind::MissingRequiredArgument {
        return None;
    }
    let name = |flag: &String| Some(flag.strip_prefix("--")?.split(' ').next()?.to_owned());
    let names: Vec<String> = flags.iter().filter_map(name).collect();
    let first = names.first()?;
    Some(format!(
        "there is no entry for {}; add it, for example a line {first} = \"…\", or give --{first}",
        names.join(" and ")
    ))
}

/// A line of the file.
pub struct Entry<'a> {
    pub flag: &'a Arg,
    /// What the file calls it, and in which line, from 1.
    pub name: String,
    pub line: usize,
    /// The same on the command line.
    pub arguments: Vec<String>,
}

impl<'a> Entry<'a> {
    fn new(flag: &'a Arg, name: &str, arguments: Vec<String>) -> Entry<'a> {
        Entry {
            flag,
            name: name.to_owned(),
            line: 0,
            arguments,
        }
    }
}

/// What is wrong, and in which line, from 1; 0 if it is in none.
pub type Wrong = (usize, String);

fn read(path: &Path) -> Outcome<String> {
    let at = |what: String| format!("--config {}: {what}", path.display());
    let found = std::fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => at("there is none; name the file of its flags".into()),
        _ => at(error.to_string()),
    })?;
    if found.is_dir() {
        return Err(at("it is a directory; name the file of its flags".into()));
    }
    if found.len() > FILE_BYTES_MAX {
        return Err(at("it is too large".into()));
    }
    let bytes = std::fs::read(path).map_err(|error| at(error.to_string()))?;
    String::from_utf8(bytes).map_err(|_| at("it is not text".into()))
}

/// The entries of a file for a command, in the order of its lines.
///
/// # Errors
/// The first mistake, with its line.
pub fn parse<'a>(command: &'a Command, text: &str) -> Result<Vec<Entry<'a>>, Wrong> {
    let line = |at: usize| text[..at.min(text.len())].matches('\n').count() + 1;
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| line(span.start));
        let written = text.lines().nth(at.wrapping_sub(1)).unwrap_or_default();
        let what = unquoted(command, written);
        (at, what.unwrap_or_else(|| error.message().to_owned()))
    })?;
    let mut rows: Vec<_> = table.get_ref().iter().collect();
    rows.sort_by_key(|(name, _)| name.span().start);
    let mut entries = Vec::new();
    for (name, value) in rows {
        if let (KNOB, DeValue::Table(knobs)) = (&name.get_ref()[..], value.get_ref()) {
            entries.extend(knobs_of(command, knobs, line)?);
            continue;
        }
        let at = line(name.span().start);
        let entry = entry(command, name.get_ref(), value.get_ref());
        let entry = entry.map_err(|what| (at, what))?;
        entries.extend(entry.map(|entry| Entry { line: at, ..entry }));
    }
    Ok(entries)
}

/// The line about a text that stands without quotes behind the name of a flag: what the flag takes, if that is none,
/// and that a text stands in quotes.
fn unquoted(command: &Command, written: &str) -> Option<String> {
    let (name, value) = written.split_once('=')?;
    let (name, value) = (name.trim(), value.split('#').next()?.trim());
    let is_known = value.parse::<f64>().is_ok() || value.parse::<bool>().is_ok();
    let is_text = !is_known && !value.is_empty() && !value.starts_with(['"', '\'', '{']);
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if name.is_empty() || !name.chars().all(is_name) || !is_text {
        return None;
    }
    let Some(flag) = of_name(command, name) else {
        return Some(unknown(command, name));
    };
    let is_list = matches!(flag.get_action(), ArgAction::Append);
    Some(match value.strip_prefix('[') {
        Some(_) if is_list => {
            format!("the texts of a list stand in quotes: {name} = [\"…\", \"…\"]")
        }
        Some(_) => format!("{name} takes one value, and no list"),
        None => match (
            refusal(command, flag, name, value),
            wanted(command, flag, name),
        ) {
            (None, _) => format!("a text stands in quotes: {name} = \"{value}\""),
            (Some(line), Wanted::Text) => format!("{line}; and a text stands in quotes"),
            (Some(line), _) => line,
        },
    })
}

/// What is wrong with the value of a flag, as the command line would have it.
fn refusal(command: &Command, flag: &Arg, name: &str, value: &str) -> Option<String> {
    if matches!(flag.get_action(), ArgAction::SetTrue) {
        return Some(format!("{name} is true or false, not {value}"));
    }
    let long = flag.get_long().expect("it was found by a long name");
    if long == KNOB {
        return parse_knobs(&[value.to_owned()]).err();
    }
    check(command, name, &format!("--{long}={value}")).err()
}

/// What the value of a flag is.
#[derive(PartialEq, Eq, Debug)]
enum Wanted {
    Switch,
    /// With what its parser says of another value.
    Number(String),
    Text,
}

/// Parsers tell it by what they refuse.
fn wanted(command: &Command, flag: &Arg, name: &str) -> Wanted {
    const NONE: &str = "?";
    if matches!(flag.get_action(), ArgAction::SetTrue) {
        return Wanted::Switch;
    }
    let takes_numbers = ["1", "100"]
        .iter()
        .any(|number| refusal(command, flag, name, number).is_none());
    let refused = refusal(command, flag, name, NONE).filter(|_| takes_numbers);
    match refused.as_deref().and_then(|line| line.split_once(": ")) {
        Some((_, why)) => Wanted::Number(why.to_owned()),
        None => Wanted::Text,
    }
}

/// The entries of a table of knobs, each with its own line.
fn knobs_of<'a>(
    command: &'a Command,
    knobs: &DeTable<'_>,
    line: impl Fn(usize) -> usize,
) -> Result<Vec<Entry<'a>>, Wrong> {
    let mut knobs: Vec<_> = knobs.iter().collect();
    knobs.sort_by_key(|(knob, _)| knob.span().start);
    let mut entries = Vec::new();
    for (knob, value) in knobs {
        let value = scalar(knob.get_ref(), value.get_ref());
        let value = value.map(|value| format!("{}={value}", knob.get_ref()));
        let entry = value.and_then(|value| entry(command, KNOB, &DeValue::String(value.into())));
        let at = line(knob.span().start);
        let entry = entry.map_err(|what| (at, what))?;
        entries.extend(entry.map(|entry| Entry { line: at, ..entry }));
    }
    Ok(entries)
}

/// The entry of a line, which the caller knows; none if it leaves a switch off.
fn entry<'a>(command: &'a Command, name: &str, value: &DeValue<'_>) -> Outcome<Option<Entry<'a>>> {
    if ONCE.contains(&name) {
        return Err(format!(
            "{name} is for one start: leave it out, and give --{name} when it is meant"
        ));
    }
    let Some(flag) = of_name(command, name).filter(|_| name != CONFIG) else {
        return Err(match value {
            DeValue::Table(_) => format!("{}; entries stand in no section", unknown(command, name)),
            _ => unknown(command, name),
        });
    };
    let long = flag.get_long().expect("it was found by a long name");
    if matches!(flag.get_action(), ArgAction::SetTrue) {
        let on = value.as_bool();
        let on = on.ok_or_else(|| format!("{name} is true or false, not {}", shown(value)))?;
        let arguments = vec![format!("--{long}")];
        return Ok(on.then_some(Entry::new(flag, name, arguments)));
    }
    let is_list = matches!(flag.get_action(), ArgAction::Append);
    let values = match value {
        DeValue::Array(list) if is_list => {
            let values = list.iter().map(|value| scalar(name, value.get_ref()));
            values.collect::<Outcome<Vec<_>>>()?
        }
        one => vec![
            scalar(name, one).map_err(|line| match wanted(command, flag, name) {
                Wanted::Number(why) => format!("{name}: {why}, not {}", shown(one)),
                _ => line,
            })?,
        ],
    };
    if long == KNOB {
        parse_knobs(&values)?;
    }
    let as_argument = |value: String| format!("--{long}={value}");
    let arguments: Vec<String> = values.into_iter().map(as_argument).collect();
    for argument in &arguments {
        check(command, name, argument)?;
    }
    Ok(Some(Entry::new(flag, name, arguments)))
}

/// A text or a number, as the command line would have it.
fn scalar(name: &str, value: &DeValue<'_>) -> Outcome<String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Integer(number) => {
            let digits = number.as_str().replace('_', "");
            let number = i64::from_str_radix(&digits, number.radix());
            let number = number.map_err(|error| format!("{name}: {error}"))?;
            Ok(number.to_string())
        }
        DeValue::Float(number) => Ok(number.as_str().replace('_', "")),
        other => Err(format!(
            "{name} is a text in quotes or a number, not {}",
            shown(other)
        )),
    }
}

fn shown(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a time",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// Refuses a value that the flag does not take.
fn check(command: &Command, name: &str, argument: &str) -> Outcome {
    let arguments = [command.get_name(), argument];
    let Err(error) = command.clone().try_get_matches_from(arguments) else {
        return Ok(());
    };
    match error.kind() {
        // Others are about flags that are missing beside it, which may be elsewhere.
        ErrorKind::InvalidValue | ErrorKind::ValueValidation => {
            let (_, value) = argument.split_once('=').expect("it was made so");
            let why = match error.source() {
                Some(source) => source.to_string(),
                None => error.to_string().lines().next().unwrap_or_default().into(),
            };
            Err(format!("{name} = '{value}': {why}"))
        }
        _ => Ok(()),
    }
}

/// Says that there is no such flag, with the nearest one.
fn unknown(command: &Command, name: &str) -> String {
    let lower = name.replace('_', "-").to_ascii_lowercase();
    let arguments = [command.get_name().to_owned(), format!("--{lower}")];
    let refused = command.clone().try_get_matches_from(arguments).err();
    let nearest =
        refused
            .as_ref()
            .and_then(|error| match error.get(ContextKind::SuggestedArg)? {
                ContextValue::String(nearest) => present(command, nearest.trim_start_matches('-')),
                _ => None,
            });
    // A name that differs by `_` and `-` or by its capitals alone is the one that is meant.
    let dashed = Some(lower).filter(|name| of_name(command, name).is_some());
    match dashed.or(nearest).filter(|nearest| nearest != CONFIG) {
        Some(nearest) => format!("there is no entry `{name}'; did you mean `{nearest}'?"),
        None => format!(
            "there is no entry `{name}'; `{} --help' shows the flags, and each is one",
            command.get_bin_name().unwrap_or(command.get_name())
        ),
    }
}

/// The name that a flag has now. It may be found by a former one.
fn present(command: &Command, name: &str) -> Option<String> {
    Some(of_name(command, name)?.get_long()?.to_owned())
}

/// The flag of this long name. Hidden ones are for programs that start the process, and no entries.
fn of_name<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    let mut flags = command.get_arguments().filter(|flag| !flag.is_hide_set());
    flags.find(|flag| {
        let aliases = flag.get_all_aliases().unwrap_or_default();
        flag.get_long() == Some(name) || aliases.contains(&name)
    })
}

/// How the command line may begin an argument of this flag.
fn names(flag: &Arg) -> impl Iterator<Item = String> {
    let long = flag.get_long().into_iter();
    let aliases = flag.get_all_aliases().unwrap_or_default();
    let short = flag.get_short().map(|short| format!("-{short}"));
    let long = long.chain(aliases).map(|name| format!("--{name}"));
    long.chain(short).collect::<Vec<_>>().into_iter()
}

fn is_said(said: &[OsString], name: &str) -> bool {
    let mut texts = said.iter().filter_map(|argument| argument.to_str());
    texts.any(|text| match text.strip_prefix(name) {
        Some("") => true,
        Some(rest) => rest.starts_with('=') || !name.starts_with("--"),
        None => false,
    })
}

/// The value of a flag on the command line.
fn value_of(said: &[OsString], flag: &str) -> Option<PathBuf> {
    let (alone, joined) = (format!("--{flag}"), format!("--{flag}="));
    said.iter().enumerate().find_map(|(i, argument)| {
        if *argument == *alone {
            return said.get(i + 1).map(PathBuf::from);
        }
        let value = argument.as_bytes().strip_prefix(joined.as_bytes())?;
        Some(PathBuf::from(OsStr::from_bytes(value)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numbers::within;
    use crate::tls::{Listen, TlsArguments};
    use clap::{Args, Subcommand};

    /// As `plinth server` has them.
    #[derive(Args, Clone, Debug)]
    #[allow(dead_code, reason = "only what clap knows of them counts")]
    struct Server {
        #[arg(long)]
        listen: Listen,
        #[arg(long)]
        data_dir: PathBuf,
        #[arg(short = 'C', long, default_value = "plinth.cluster")]
        cluster_file: PathBuf,
        #[arg(long, default_value = "unset", value_parser = ["unset", "storage"])]
        class: String,
        #[arg(long, default_value = "")]
        machine: String,
        #[arg(long, default_value_t = 64, value_parser = within::<u64>(1..=1 << 20))]
        cache_mib: u64,
        #[arg(long, default_value_t = 1)]
        workers: u16,
        #[arg(long)]
        accept_lost_coordination: bool,
        #[arg(long)]
        once: bool,
        #[arg(long, value_parser = crate::seconds::parse_seconds)]
        wait: Option<f64>,
        #[arg(long = "knob")]
        knobs: Vec<String>,
        #[command(flatten)]
        tls: TlsArguments,
        #[command(flatten)]
        config: ConfigArgument,
        #[arg(long, hide = true)]
        parent: Option<u32>,
    }

    #[derive(Args, Clone, Debug)]
    struct Shell {
        #[arg(long)]
        _exec: Option<String>,
    }

    #[derive(Subcommand)]
    #[allow(dead_code, reason = "only what clap knows of them counts")]
    enum Commands {
        Server(Box<Server>),
        Cli(Shell),
    }

    fn program() -> Command {
        Commands::augment_subcommands(Command::new("plinth"))
    }

    fn command(name: &str) -> Command {
        let mut program = program();
        program.build();
        program.find_subcommand(name).expect("there is one").clone()
    }

    /// The arguments that a file means for `plinth server`.
    fn arguments(text: &str) -> Result<Vec<String>, Wrong> {
        let command = command("server");
        let entries = parse(&command, text)?;
        Ok(entries
            .into_iter()
            .flat_map(|entry| entry.arguments)
            .collect())
    }

    #[test]
    fn each_line_is_a_flag() {
        let text = "\u{feff}# a server\r\nlisten = \"10.0.0.1:4500\"\r\n\
            cache-mib = 2_048\nclass = 'storage' # of this machine\ntls_key_file = 'key.pem'\n\
            tls-verify-peers = ['S.CN=a', \"S.CN=b\"]\n[knob]\nclient_locations_max = 64\n";
        assert_eq!(
            arguments(text).expect("valid"),
            [
                "--listen=10.0.0.1:4500",
                "--cache-mib=2048",
                "--class=storage",
                "--tls-key-file=key.pem",
                "--tls-verify-peers=S.CN=a",
                "--tls-verify-peers=S.CN=b",
                "--knob=client_locations_max=64",
            ]
        );
    }

    #[test]
    fn each_mistake_is_named_with_its_line() {
        for (text, line, words) in [
            ("# x\nlisen = '10.0.0.1:4500'", 2, "did you mean `listen'?"),
            ("\ncache_mib = 5", 2, "did you mean `cache-mib'?"),
            ("Cache_MiB = 5", 1, "did you mean `cache-mib'?"),
            ("LISEN = 5", 1, "did you mean `listen'?"),
            ("\nlisen = 10.0.0.1:4500", 2, "did you mean `listen'?"),
            ("listen = 10.0.0.1:4500", 1, "a text stands in quotes"),
            ("[server]\nlisten = 'a'", 1, "entries stand in no section"),
            ("frobnicate = 1", 1, "`plinth server --help'"),
            ("parent = 1", 1, "no entry `parent'"),
            ("config = 'other.toml'", 1, "no entry `config'"),
            ("accept-lost-coordination = true", 1, "for one start"),
            ("cache-mib = 'many'", 1, "cache-mib = 'many'"),
            ("cache-mib = 0", 1, "not in 1..="),
            ("cache-mib = true", 1, "not true or false"),
            ("cache-mib = [1]", 1, "not a list"),
            ("listen = '10.0.0.1'", 1, "IP:PORT"),
            ("class = 'fast'", 1, "class = 'fast'"),
            ("machine = 1979-05-27", 1, "not a time"),
            ("[tls]\nkey = 'a'", 1, "no entry `tls'"),
            ("knob = ['moves=3']", 1, "moves=3"),
            ("knob = 'client_locations_max'", 1, "NAME=VALUE"),
            (
                "workers = 1\n[knob]\nclient_locations_max = 3\nmoves = 3",
                4,
                "moves",
            ),
            (
                "[knob]\n\nclient_locations_max = true",
                3,
                "not true or false",
            ),
            ("workers = 1\nworkers = 2", 2, "duplicate"),
            ("workers 1", 1, "="),
            ("workers = 1\nlisten = 'a\n", 2, "string"),
        ] {
            let (at, what) = arguments(text).expect_err(text);
            assert!(
                at == line && what.contains(words),
                "{text:?} gave {at}: {what}"
            );
        }
    }

    #[test]
    fn what_an_entry_takes_is_said_at_once_in_quotes_or_without() {
        for (text, words) in [
            (
                "cache-mib = lots",
                "cache-mib = 'lots': expected a whole number",
            ),
            ("cache-mib = 64MiB", "expected a whole number"),
            (
                "cache-mib = true",
                "cache-mib: expected a whole number, not true or false",
            ),
            (
                "cache-mib = [lots]",
                "cache-mib takes one value, and no list",
            ),
            ("listen = 10.0.0.1", "IP:PORT"),
            ("listen = 10.0.0.1", "; and a text stands in quotes"),
            ("class = fast", "class = 'fast'"),
            (
                "class = storage",
                "a text stands in quotes: class = \"storage\"",
            ),
            ("once = yes", "once is true or false, not yes"),
            ("once = 'yes'", "once is true or false, not a text"),
            (
                "tls-verify-peers = [S.CN=a]",
                "the texts of a list stand in quotes",
            ),
            ("tls-verify-peers = S.CN=a", "a text stands in quotes"),
            ("knob = moves", "NAME=VALUE"),
            ("wait = soon", "such as 90s"),
            ("wait = 90s", "a text stands in quotes: wait = \"90s\""),
        ] {
            let (_, what) = arguments(text).expect_err(text);
            assert!(what.contains(words), "{text:?} gave {what}");
        }
    }

    #[test]
    fn a_mistake_in_the_file_of_another_system_names_that_one_s_command() {
        let server = Server::augment_args(Command::new("server"));
        let keeper = Command::new("keeper").subcommand(server);
        let name = format!("plinth-config-{}-keeper", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, "frobnicate = 1").expect("writes");
        let named = path.to_str().expect("a text");
        let all = ["plinth", "keeper", "server", "--config", named].map(OsString::from);
        let done = with_file(Command::new("plinth").subcommand(keeper), all.into());
        std::fs::remove_file(&path).expect("removes");
        let line = done.expect_err("there is no such entry");
        assert!(line.contains("`plinth keeper server --help'"), "{line}");
    }

    fn with(text: &str, said: &[&str]) -> Outcome<Vec<String>> {
        let name = format!("plinth-config-{}-{:x}", std::process::id(), text.len());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).expect("writes");
        let named = path.to_str().expect("a text");
        let all = [&["plinth", "server", "--config", named], said].concat();
        let done = with_file(program(), all.iter().map(OsString::from).collect());
        std::fs::remove_file(&path).expect("removes");
        let texts = |all: Vec<OsString>| {
            all.iter()
                .map(|a| a.to_str().expect("a text").into())
                .collect()
        };
        done.map(texts)
    }

    #[test]
    fn flags_of_the_command_line_win() {
        let text = "listen = '10.0.0.1:4500'\ndata-dir = 'd'\nmachine = 'm1'\ncluster-file = 'a'\n\
            knob = ['client_locations_max=3']";
        let all = with(
            text,
            &[
                "--machine=m2",
                "-C",
                "b",
                "--knob",
                "client_locations_max=4",
            ],
        );
        let all = all.expect("valid");
        assert_eq!(
            all[2..5],
            [
                "--listen=10.0.0.1:4500",
                "--data-dir=d",
                "--knob=client_locations_max=3"
            ]
        );
        assert_eq!(
            all[7..],
            [
                "--machine=m2",
                "-C",
                "b",
                "--knob",
                "client_locations_max=4"
            ]
        );
        let line = with("\nlisen = 1", &[]).expect_err("there is no such flag");
        assert!(line.contains(", line 2: there is no entry"), "{line}");
    }

    #[test]
    fn what_neither_the_file_nor_the_command_line_says_is_named_in_one_line() {
        for (text, said, words) in [
            (
                "machine = 'm'",
                &[][..],
                "no entry for listen and data-dir;",
            ),
            ("", &["--data-dir=d"], "no entry for listen;"),
            ("listen = '10.0.0.1:4500'", &[], "no entry for data-dir;"),
        ] {
            let line = with(text, said).expect_err(text);
            assert!(line.contains(words) && !line.contains('\n'), "{line}");
        }
        let said = ["--data-dir=d", "--listen", "10.0.0.1:4500"];
        assert_eq!(with("", &said).expect("complete")[4..], said);
    }

    #[test]
    fn commands_without_such_a_file_are_left_alone() {
        for said in [
            &["plinth"][..],
            &["plinth", "cli", "--config", "/none"],
            &["plinth", "server"],
        ] {
            let said: Vec<OsString> = said.iter().map(OsString::from).collect();
            assert_eq!(with_file(program(), said.clone()), Ok(said));
        }
        let said = ["plinth", "server", "--config=/none"]
            .map(OsString::from)
            .to_vec();
        let line = with_file(program(), said).expect_err("there is no such file");
        assert!(line.contains("/none"), "{line}");
    }
}
