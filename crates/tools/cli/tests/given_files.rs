//! A file that is given where one of another kind is wanted is told what it is; and what the system says of files is
//! told in words, with a remedy.

use crate::common::certificates::Files;
use crate::common::{BINARY, Directory, error_line, text};
use std::process::{Command, Output};

fn plinth(directory: &Directory, arguments: &[&str]) -> Output {
    let mut command = Command::new(BINARY);
    let command = command.args(arguments).current_dir(&directory.0);
    command.output().expect("the binary was built")
}

/// The kinds, each with a file of it and the words that name it.
const KINDS: [(&str, &str, &str); 9] = [
    ("cluster", "a.cluster", "it is a cluster file"),
    ("keys", "ours.keys", "it is a key file"),
    ("signing key", "web.sign", "it is a key that signs tokens"),
    ("token", "web.token", "it is a token"),
    ("certificate", "node.crt", "it is a certificate"),
    (
        "private key",
        "node.key",
        "it is the private key of a certificate",
    ),
    ("flags", "server.toml", "it is a file of flags"),
    ("pairs", "pairs.tsv", "it is a file of pairs"),
    (
        "backup",
        "manifest",
        "it is a part of the backup of a service",
    ),
];

/// Commands, with the kinds of files that they take where FILE stands.
const COMMANDS: [(&[&str], &str); 20] = [
    (&["cluster"], "status -C FILE"),
    (&["cluster"], "cli --exec status -C FILE"),
    (&["cluster"], "top --once -C FILE"),
    (&["cluster"], "dump out.tsv -C FILE"),
    (&["cluster"], "load pairs.tsv -C FILE"),
    (&["cluster"], "copy --from FILE --to a.cluster"),
    (&["cluster"], "keeper status -C FILE"),
    (&["cluster"], "farm status -C FILE"),
    (&["cluster"], "delos status -C FILE"),
    (&["cluster"], "table server -C FILE"),
    (&["keys"], "keys list FILE"),
    (&["signing key"], "token public --key FILE"),
    (&["signing key"], "token sign --read a --for 1h --key FILE"),
    (&["token", "signing key", "keys"], "token show FILE"),
    (&["token"], "cli --exec status -C a.cluster --token FILE"),
    (&["token"], "dump out.tsv -C a.cluster --token FILE"),
    (&["flags"], "server --config FILE"),
    (&["flags"], "farm server --config FILE"),
    (&["flags"], "keeper server --config FILE"),
    (&["flags"], "delos server --config FILE"),
];

/// The same, of the files of certificates.
const OF_TLS: [(&str, &str); 3] = [
    ("certificate", "--tls-certificate-file"),
    ("private key", "--tls-key-file"),
    ("certificate", "--tls-ca-file"),
];

fn made() -> Directory {
    let directory = Directory::new("given-files");
    let write = |name: &str, content: &str| {
        std::fs::write(directory.file(name), content).expect("it can be written");
    };
    write("a.cluster", "# ours\ntest:a1@127.0.0.1:1\n");
    write("tls.cluster", "test:a1@127.0.0.1:1:tls\n");
    write(
        "server.toml",
        "# flags\nlisten = '127.0.0.1:1'\nknob = [\n  'moves_max=3',\n]\n",
    );
    write("pairs.tsv", "app/a\t1\napp/b\t2\n");
    write("manifest", "PlDlMan2\0\0\0");
    Files::new(&directory.0);
    let made = |arguments: &[&str]| {
        let output = plinth(&directory, arguments);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    // In a directory of their own: keys beside a cluster file are read with it.
    std::fs::create_dir(directory.file("of-keys")).expect("made");
    made(&["keys", "new", "-C", "of-keys/a.cluster"]);
    let (from, to) = (
        directory.file("of-keys/a.keys"),
        directory.file("ours.keys"),
    );
    std::fs::rename(from, to).expect("moved");
    made(&["token", "new", "--name", "web", "--out", "web.sign"]);
    let token = made(&[
        "token", "sign", "--key", "web.sign", "--read", "app/", "--for", "1h",
    ]);
    write("web.token", &token);
    directory
}

#[test]
fn each_kind_of_file_that_is_given_in_the_place_of_another_is_named() {
    let directory = made();
    for (taken, command) in COMMANDS {
        for (kind, file, words) in KINDS {
            if taken.contains(&kind) {
                continue;
            }
            let command = command.replace("FILE", file);
            let arguments: Vec<&str> = command.split(' ').collect();
            let line = error_line(&plinth(&directory, &arguments));
            assert!(
                line.contains(words) && line.contains(file),
                "{command}: {line}"
            );
        }
    }
}

#[test]
fn each_kind_of_file_that_is_given_in_the_place_of_a_certificate_is_named() {
    let directory = made();
    for (taken, flag) in OF_TLS {
        for (kind, file, words) in KINDS {
            if kind == taken {
                continue;
            }
            let mut arguments = vec!["status", "-C", "tls.cluster"];
            for (_, other) in OF_TLS {
                let own = match other {
                    "--tls-certificate-file" => "node.crt",
                    "--tls-key-file" => "node.key",
                    _ => "ca.crt",
                };
                arguments.extend([other, if other == flag { file } else { own }]);
            }
            let line = error_line(&plinth(&directory, &arguments));
            assert!(
                line.contains(words) && line.contains(file),
                "{flag} {file}: {line}"
            );
        }
    }
}

#[test]
fn what_the_system_says_of_a_file_is_told_with_its_place_and_a_remedy() {
    let directory = made();
    let long = "x".repeat(300);
    let (long_file, in_file) = (format!("{long}.cluster"), "pairs.tsv/plinth.cluster");
    for (arguments, words) in [
        (
            &["token", "new", "--name", "a", "--out", "none/x"][..],
            "key file none/x: its directory is not there: make it",
        ),
        (
            &["token", "new", "--name", "a", "--out", &long],
            "the name is too long; choose",
        ),
        (
            &["keys", "new", "-C", "none/plinth.cluster"],
            "key file none/plinth.keys: its directory is not there",
        ),
        (
            &["status", "-C", &long_file],
            "the name is too long; choose a shorter one",
        ),
        (&["status", "-C", in_file], "pairs.tsv/plinth.cluster: "),
        (
            &["load", &long, "-C", "a.cluster"],
            "the name is too long; name another",
        ),
        (
            &["cli", "-C", "a.cluster", "--token", "of-keys"],
            "it is a directory; name another with --token",
        ),
        (&["server", "--config", &long], "the name is too long"),
        (&["token", "show", &long], "the name is too long"),
    ] {
        let line = error_line(&plinth(&directory, arguments));
        assert!(line.contains(words), "{arguments:?}: {line}");
        assert!(!line.contains("os error"), "{arguments:?}: {line}");
    }
}

#[test]
fn a_file_or_a_directory_in_the_place_of_an_address_is_named() {
    let directory = made();
    for (given, words) in [
        (
            "of-keys",
            "it is a directory: say the address of a server of tables",
        ),
        ("./of-keys", "it is a directory"),
        (
            "none/plinth.cluster",
            "no file is there either: say the address",
        ),
        ("web.token", "it is a token"),
        ("tables", "expected IP:PORT"),
    ] {
        let output = plinth(&directory, &["table", "cli", "-C", given]);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{given}: {said}");
        assert!(said.contains(words), "{given}: {said}");
    }
}
