//! Scripts that complete the words of the command line in a shell. For zsh and fish the library writes them. Its one
//! for bash completes a directory as a word that is finished, and offers files where a name is expected: here bash
//! itself completes files, by its own rules for blanks and directories.

use crate::values;
use clap::{Arg, Command, ValueHint};
use clap_complete::Shell;
use std::fmt::Write;

/// The script for a program whose commands are all shown.
pub fn script(program: &mut Command, shell: Shell) -> Vec<u8> {
    let name = program.get_name().to_owned();
    if shell == Shell::Bash {
        return bash(program).into_bytes();
    }
    if shell == Shell::Zsh {
        *program = with_escaped_names(program.clone());
    }
    let mut script = Vec::new();
    clap_complete::generate(shell, program, name, &mut script);
    script
}

/// The command, whose values have names that zsh can read: a colon ends one there, and the library writes it as it is.
fn with_escaped_names(command: Command) -> Command {
    let command = command.mut_args(|flag| {
        let names = flag.get_value_names().unwrap_or_default();
        let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
        match names.iter().any(|name| name.contains(':')) {
            false => flag,
            true => {
                let names = names.iter().map(|name| name.replace(':', "\\:"));
                // The library wants names for ever. The process ends when the script is printed.
                let names: Vec<&'static str> = names.map(|name| &*name.leak()).collect();
                flag.value_names(names)
            }
        }
    });
    command.mut_subcommands(with_escaped_names)
}

/// What bash does at a place: the cases of the script below.
fn kind(flag: &Arg) -> &'static str {
    match flag.get_value_hint() {
        _ if !words(flag).is_empty() => "words",
        ValueHint::FilePath | ValueHint::AnyPath | ValueHint::Unknown => "file",
        ValueHint::DirPath => "directory",
        _ => "other",
    }
}

/// The words of which it takes one.
fn words(flag: &Arg) -> String {
    let all = flag.get_possible_values();
    let words = all.iter().filter(|word| !word.is_hide_set());
    let words: Vec<&str> = words.map(|word| word.get_name()).collect();
    words.join(" ")
}

/// `--flag -f `
fn names(flag: &Arg) -> String {
    let long = flag.get_long().map(|name| format!("--{name}"));
    let short = flag.get_short().map(|name| format!("-{name}"));
    let names: Vec<String> = long.into_iter().chain(short).collect();
    names.join(" ")
}

fn bash(program: &mut Command) -> String {
    program.build(); // so that each has its flag for help
    let (mut commands, mut values) = (String::new(), String::new());
    let mut left = vec![(program.get_name().to_owned(), &*program)];
    while let Some((path, command)) = left.pop() {
        let below = command
            .get_subcommands()
            .filter(|below| !below.is_hide_set() && below.get_name() != "help");
        let below: Vec<&Command> = below.collect();
        write_command(&path, command, &below, &mut commands);
        write_values(&path, command, &mut values);
        let below = below.into_iter().rev();
        left.extend(below.map(|below| (format!("{path} {}", below.get_name()), below)));
    }
    BASH.replace("PROGRAM", program.get_name())
        .replace("        COMMANDS\n", &commands)
        .replace("        VALUES\n", &values)
}

/// The case that says what stands behind these commands.
fn write_command(path: &str, command: &Command, below: &[&Command], all: &mut String) {
    let shown = command.get_arguments().filter(|flag| !flag.is_hide_set());
    let (flags, places): (Vec<&Arg>, Vec<&Arg>) = shown.partition(|flag| !flag.is_positional());
    let of_kind = |wanted: &str| {
        let flags = flags.iter().filter(|flag| values::takes_one(flag));
        let flags = flags.filter(|flag| kind(flag) == wanted);
        flags.map(|flag| names(flag)).collect::<Vec<_>>().join(" ")
    };
    let below: Vec<&str> = below.iter().map(|below| below.get_name()).collect();
    let place = places.first().map_or("none", |place| kind(place));
    let all_names = flags.iter().map(|flag| names(flag));
    write!(all, "        '{path}') place={place}").expect("a text");
    for (name, words) in [
        ("below", below.join(" ")),
        ("flags", all_names.collect::<Vec<_>>().join(" ")),
        ("files", of_kind("file")),
        ("directories", of_kind("directory")),
        ("chosen", of_kind("words")),
        ("others", of_kind("other")),
    ] {
        if !words.is_empty() {
            write!(all, " {name}='{words}'").expect("a text");
        }
    }
    all.push_str(" ;;\n");
}

/// The cases that list the words of flags, and of what stands without one.
fn write_values(path: &str, command: &Command, all: &mut String) {
    let shown = command.get_arguments().filter(|flag| !flag.is_hide_set());
    for flag in shown.filter(|flag| values::takes_one(flag)) {
        let words = words(flag);
        let names = names(flag);
        let names = names
            .split(' ')
            .map(|name| format!("'{}'", format!("{path} {name}").trim_end()));
        if !words.is_empty() {
            let names: Vec<String> = names.collect();
            writeln!(all, "        {}) words='{words}' ;;", names.join(" | ")).expect("a text");
        }
    }
}

const BASH: &str = r##"# Words of `PROGRAM', by Tab, in bash.

# What stands behind the commands $path.
_PROGRAM_command() {
    below= flags= files= directories= chosen= others= place=none
    case "$path" in
        COMMANDS
    esac
}

# The words of which the flag $1 of $path takes one, or its place without a flag.
_PROGRAM_words() {
    words=
    case "$path${1:+ $1}" in
        VALUES
    esac
}

# What the flag $1 takes: nothing if it is none, or none that takes something.
_PROGRAM_kind() {
    kind=
    case " $files " in *" $1 "*) kind=file ;; esac
    case " $directories " in *" $1 "*) kind=directory ;; esac
    case " $chosen " in *" $1 "*) kind=words ;; esac
    case " $others " in *" $1 "*) kind=other ;; esac
}

_PROGRAM() {
    local cur=$2 path=PROGRAM kind= flag= before= words= word i
    local below flags files directories chosen others place
    COMPREPLY=()
    _PROGRAM_command
    for (( i = 1; i < COMP_CWORD; i++ )); do
        word=${COMP_WORDS[i]}
        case "$word" in
            # --flag=value, NAME=DIR and IP:PORT are three words here.
            = | :) kind=${kind:-$before}; continue ;;
        esac
        before=$kind
        if [[ -n $kind ]]; then
            kind=
        elif [[ $word == -* ]]; then
            flag=$word
            _PROGRAM_kind "$word"
        elif [[ " $below " == *" $word "* ]]; then
            path+=" $word"
            _PROGRAM_command
        fi
    done
    [[ ${COMP_WORDS[COMP_CWORD]} == [=:] ]] && kind=${kind:-$before}
    if [[ -z $kind ]]; then
        flag=
        if [[ $cur == -* || ( -z $below && $place == none ) ]]; then
            kind=words words=$flags
        elif [[ -n $below ]]; then
            kind=words words=$below
            [[ $path == PROGRAM ]] && words+=" help"
        else
            kind=$place
        fi
    fi
    if [[ $kind == words && -z $words ]]; then
        _PROGRAM_words "$flag"
    fi
    # Bash completes files, and directories, if there is no word: with a slash behind a directory.
    case "$kind" in
        file) ;;
        directory) compopt +o bashdefault +o default -o dirnames ;;
        words)
            compopt +o bashdefault +o default
            COMPREPLY=( $(compgen -W "$words" -- "$cur") )
            ;;
        *) compopt +o bashdefault +o default ;;
    esac 2> /dev/null
}

complete -F _PROGRAM -o bashdefault -o default PROGRAM
"##;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::path::{Path, PathBuf};
    use std::process::{Command as Process, Stdio};

    /// A directory with the script and some files, which is removed at the end.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Place {
            let name = format!("plinth-completions-{name}-{}", std::process::id());
            let place = std::env::temp_dir().join(name);
            let _ = std::fs::remove_dir_all(&place);
            for directory in ["tour", "my dir"] {
                std::fs::create_dir_all(place.join(directory)).expect("it is made");
            }
            let script = bash(&mut crate::manual::without_hidden(crate::program()));
            for (file, text) in [
                ("plinth.bash", &script[..]),
                ("tour/plinth.cluster", ""),
                ("tour/config.toml", ""),
                ("my dir/input", ""),
                ("single", ""),
            ] {
                std::fs::write(place.join(file), text).expect("it is written");
            }
            Place(place)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0); // a rest hurts nobody
        }
    }

    /// Lines that are typed to a bash in a terminal, and the words that the program gets then.
    #[rustfmt::skip]
    const TYPED: [(&str, &str); 17] = [
        ("plinth cli -C to\tpl\t--json", "cli|-C|tour/plinth.cluster|--json"),
        ("plinth cli -C to\t", "cli|-C|tour/"),
        ("plinth cli -C to\t\t", "cli|-C|tour/"),
        ("plinth cli --cluster-file=to\tpl\t--json", "cli|--cluster-file=tour/plinth.cluster|--json"),
        ("plinth load my\tin\t--json", "load|my dir/input|--json"),
        ("plinth delos status -C to\tpl\t", "delos|status|-C|tour/plinth.cluster"),
        ("plinth farm server --config to\tco\t", "farm|server|--config|tour/config.toml"),
        ("plinth keeper bench run --data a=to\t", "keeper|bench|run|--data|a=tour/"),
        ("plinth server --data-dir to\t", "server|--data-dir|tour/"),
        ("plinth server --data-dir sin\t", "server|--data-dir|sin"),
        ("plinth keeper status --tree sin\t", "keeper|status|--tree|sin"),
        ("plinth keeper status --tree=sin\t", "keeper|status|--tree=sin"),
        ("plinth server --listen sin\t", "server|--listen|sin"),
        ("plinth server --listen 127.0.0.1:45\t --data-d\tto\t", "server|--listen|127.0.0.1:45|--data-dir|tour/"),
        ("plinth serv\t--clas\tstor\t", "server|--class|storage"),
        ("plinth tools compl\tba\t", "tools|completions|bash"),
        ("plinth help serv\t", "help|server"),
    ];

    fn typed(place: &Path, lines: &[&str]) -> Vec<String> {
        let mut terminal = Process::new("script");
        terminal.args(["-qec", "bash --norc --noprofile -i", "/dev/null"]);
        terminal.current_dir(place).env("INPUTRC", "/dev/null");
        terminal.env("TERM", "dumb").stdin(Stdio::piped());
        let terminal = terminal.stdout(Stdio::null()).stderr(Stdio::null());
        let mut shell = terminal.spawn().expect("it is a Debian machine");
        let begin = "source ./plinth.bash; plinth() { local IFS='|'; echo \"$*\" >> got; }";
        let all = format!("{begin}\n{}\nexit\n", lines.join("\n"));
        assert!(all.len() < 4096, "a terminal keeps no more");
        let mut input = shell.stdin.take().expect("piped");
        input.write_all(all.as_bytes()).expect("it reads");
        assert!(shell.wait().expect("it ends").success());
        let got = std::fs::read_to_string(place.join("got")).expect("lines");
        got.lines().map(str::to_owned).collect()
    }

    #[test]
    fn bash_goes_on_below_directories_and_offers_files_only_where_they_are_taken() {
        let place = Place::new("typed");
        let lines = TYPED.map(|(line, _)| line);
        let got = typed(&place.0, &lines);
        let wanted = TYPED.map(|(_, words)| words);
        assert_eq!(got, wanted);
    }

    /// All flags that take a value, behind their commands, and what a shell does there.
    fn all_flags() -> Vec<(String, String, &'static str)> {
        let mut program = crate::manual::without_hidden(crate::program());
        program.build();
        let (mut left, mut all) = (vec![("plinth".to_owned(), program)], Vec::new());
        while let Some((path, command)) = left.pop() {
            let shown = command.get_arguments().filter(|flag| !flag.is_hide_set());
            for flag in shown.filter(|flag| values::takes_one(flag) && !flag.is_positional()) {
                for name in names(flag).split(' ') {
                    all.push((format!("{path} {name}"), words(flag), kind(flag)));
                }
            }
            let below = command.get_subcommands();
            left.extend(below.map(|below| (format!("{path} {}", below.get_name()), below.clone())));
        }
        all
    }

    #[test]
    fn bash_does_behind_each_flag_what_the_kind_of_its_value_wants() {
        let place = Place::new("flags");
        let flags = all_flags();
        assert!(flags.len() > 500, "{}", flags.len());
        let mut calls = String::from("source ./plinth.bash\ncompopt() { options=\" $*\"; }\n");
        for (line, _, _) in &flags {
            calls += &format!(
                "options=; COMP_WORDS=({line} ''); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _plinth plinth '' ''\n\
                echo \"${{COMPREPLY[*]}}$options\"\n"
            );
        }
        std::fs::write(place.0.join("calls"), calls).expect("it is written");
        let mut bash = Process::new("bash");
        let bash = bash.arg("calls").current_dir(&place.0).output();
        let said = String::from_utf8(bash.expect("it runs").stdout).expect("a text");
        let said: Vec<&str> = said.lines().collect();
        let wanted = flags.iter().map(|(_, words, kind)| match *kind {
            "file" => String::new(),
            "directory" => " +o bashdefault +o default -o dirnames".into(),
            _ => format!("{words} +o bashdefault +o default"),
        });
        assert_eq!(said.len(), flags.len());
        for ((line, _, _), (said, wanted)) in flags.iter().zip(said.iter().zip(wanted)) {
            assert_eq!(**said, wanted, "{line}");
        }
    }

    #[test]
    fn the_other_shells_complete_files_where_they_are_taken_and_nowhere_else() {
        let mut program = crate::manual::without_hidden(crate::program());
        let zsh = String::from_utf8(script(&mut program.clone(), Shell::Zsh)).expect("a text");
        let fish = String::from_utf8(script(&mut program, Shell::Fish)).expect("a text");
        for (flag, zsh_has, fish_has) in [
            ("cluster-file", ":_files'", " -r -F"),
            (
                "data-dir",
                ":DIR:_files -/'",
                "(__fish_complete_directories)",
            ),
            ("tree", ":NAME:'", " -r -f"),
            ("listen", ":IP\\:PORT:'", " -r -f"),
            ("timeout", ":SECONDS:'", " -r -f"),
        ] {
            let (mut in_zsh, mut in_fish) = (0, 0);
            let of_zsh = zsh
                .lines()
                .filter(|line| line.contains(&format!("'*--{flag}=[")));
            let of_zsh = of_zsh.chain(
                zsh.lines()
                    .filter(|line| line.contains(&format!("'--{flag}=["))),
            );
            for line in of_zsh.chain(
                zsh.lines()
                    .filter(|line| line.contains(&format!(")--{flag}=["))),
            ) {
                in_zsh += 1;
                assert!(line.contains(zsh_has), "{line}");
            }
            for line in fish
                .lines()
                .filter(|line| line.contains(&format!(" -l {flag} ")))
            {
                in_fish += 1;
                assert!(line.contains(fish_has), "{line}");
            }
            assert!(in_zsh > 0 && in_fish > 0, "{flag}: {in_zsh}, {in_fish}");
        }
    }
}
