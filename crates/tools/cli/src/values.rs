//! What the values of flags are, by the names that pages give them, so that a shell completes files where files are
//! taken and offers nothing where none are.

use clap::{Arg, ArgAction, Command, ValueHint};

/// Names of values, and what a shell completes there. A list (`NAME,…`) is completed as one of it, as is what stands
/// behind `NAME=`.
#[rustfmt::skip]
const KINDS: [(ValueHint, &str); 4] = [
    // A service of `delos` is named by its file.
    (ValueHint::FilePath, "FILE KEYFILE LIBRARY SERVICE"),
    (ValueHint::DirPath, "DIR DIRECTORY NAME=DIR"),
    // A directory, or the address of a bucket.
    (ValueHint::AnyPath, "PLACE"),
    (ValueHint::Other,
        "A..B BEGIN BYTES CLASS COMMAND CONSUMER DESCRIPTION:ID DIGEST DN ENGINE ENTRY FORMAT HOST:PORT ID IP \
        IP:PORT IP:PORT[:tls] IP:PORT|HOST:PORT JSON KEY KIND LIST MIB MIX MODE MS N NAME \
        NAME=HOST:PORT[,HOST:PORT…] NAME=IP:PORT NAME=VALUE NAMES NAME[:PART]=PID,PID… NUMBER OPERATION PARENT \
        PART PATH PID POLICY PORT POSITION PREFIX RULES SCHEME:ID SECONDS SHELL STATEMENTS TEXT THETA TIME \
        VERSION WHERE WHETHER WHO WHO:RULES on,off"),
];

/// The kind of the values of this name; `None` if the table has none.
fn kind(name: &str) -> Option<ValueHint> {
    let name = name.strip_suffix(",…").unwrap_or(name);
    let has_it = |(_, names): &&(ValueHint, &str)| names.split(' ').any(|known| known == name);
    KINDS.iter().find(has_it).map(|(kind, _)| *kind)
}

/// Whether it takes a value.
pub fn takes_one(flag: &Arg) -> bool {
    matches!(flag.get_action(), ArgAction::Set | ArgAction::Append)
}

/// The name of what it takes.
fn name(flag: &Arg) -> String {
    let names = flag.get_value_names().and_then(|names| names.first());
    names.map_or_else(
        || flag.get_id().as_str().to_ascii_uppercase(),
        |name| name.to_string(),
    )
}

/// The command, each of whose values has its kind.
pub fn with_kinds(command: Command) -> Command {
    let command = command.mut_args(|flag| match kind(&name(&flag)) {
        Some(kind) if takes_one(&flag) => flag.value_hint(kind),
        _ => flag,
    });
    command.mut_subcommands(with_kinds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_has_a_kind_and_every_name_of_the_table_is_one() {
        let mut known: Vec<&str> = KINDS
            .iter()
            .flat_map(|(_, names)| names.split(' '))
            .collect();
        let (mut left, mut unknown) = (vec![crate::program()], Vec::new());
        while let Some(command) = left.pop() {
            for flag in command.get_arguments().filter(|flag| takes_one(flag)) {
                let name = name(flag);
                known.retain(|known| *known != name.strip_suffix(",…").unwrap_or(&name));
                if kind(&name).is_none() {
                    unknown.push(format!("{} {}: {name}", command.get_name(), flag.get_id()));
                }
                // The library knows a path by its type: a path that is none for a shell is a wrong name.
                let is_path = format!("{:?}", flag.get_value_parser()).contains("PathBuf");
                let is_completed = flag.get_value_hint() != ValueHint::Other;
                assert!(is_completed || !is_path, "{} {name}", command.get_name());
            }
            left.extend(command.get_subcommands().cloned());
        }
        assert_eq!(unknown, Vec::<String>::new());
        assert_eq!(known, Vec::<&str>::new(), "nothing takes these");
    }
}
