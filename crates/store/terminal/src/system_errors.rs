//! What the operating system says of a file, in words with a remedy. Lines are made in many places, and some where
//! nobody knows of users: all that a command ends with come through here.

use crate::sources;
use std::io::Error;

/// What it means, and what to do where the line says nothing of that.
struct Meaning {
    code: i32,
    what: &'static str,
    remedy: &'static str,
}

const fn meaning(code: i32, what: &'static str, remedy: &'static str) -> Meaning {
    Meaning { code, what, remedy }
}

const NAME_ANOTHER: &str = "name another";
const MAY_NOT: &str =
    "this user may not: its owner or mode forbids it, or that of a directory above it";
const RUN_AS: &str = "run as a user who may, or change the owner or the mode (`ls -l' shows both)";
const LESS: &str = "remove files there, or choose a place on another disk";
const LIMIT: &str = "raise the limit (`ulimit -n', or LimitNOFILE of systemd)";

const MEANINGS: [Meaning; 14] = [
    meaning(libc::EPERM, MAY_NOT, RUN_AS),
    meaning(libc::EACCES, MAY_NOT, RUN_AS),
    meaning(
        libc::ENOENT,
        "it is not there, or a directory of its path is not",
        "make that directory, or name another",
    ),
    meaning(
        libc::ENOTDIR,
        "a part of its path is a file, and no directory",
        NAME_ANOTHER,
    ),
    meaning(libc::EISDIR, "it is a directory", "name a file"),
    meaning(libc::EEXIST, "it is there already", NAME_ANOTHER),
    meaning(
        libc::EROFS,
        "its file system is mounted for reading only",
        "have it mounted for writing, or choose a place elsewhere",
    ),
    meaning(libc::ENOSPC, "no space is left on its disk", LESS),
    meaning(
        libc::EDQUOT,
        "this user's share of its disk is used up",
        LESS,
    ),
    meaning(libc::EMFILE, "this process may open no more files", LIMIT),
    meaning(
        libc::ENFILE,
        "this machine may open no more files",
        "raise fs.file-max by sysctl",
    ),
    meaning(
        libc::ENAMETOOLONG,
        "the name is too long",
        "choose a shorter one",
    ),
    meaning(
        libc::ELOOP,
        "the links in its path lead round in a circle",
        NAME_ANOTHER,
    ),
    meaning(
        libc::EIO,
        "its disk fails",
        "see what the system's log says of it (`dmesg'), and choose another disk",
    ),
];

/// The line, in which what the system has said is in words, with a remedy unless it has one.
pub fn explained(line: &str) -> String {
    let mut explained = line.to_owned();
    for Meaning { code, what, remedy } in MEANINGS {
        let said = Error::from_raw_os_error(code).to_string();
        let Some((before, behind)) = explained.split_once(&said) else {
            continue;
        };
        let remedy = match behind.contains(';') {
            true => String::new(),
            false => format!("; {remedy}"),
        };
        explained = format!("{before}{what}{behind}{remedy}");
    }
    explained
}

/// The same, with the names that flags have where they were said.
pub fn told(line: &str) -> String {
    sources::told(&explained(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_is_told_in_words_with_a_remedy_and_only_one() {
        for Meaning { code, what, remedy } in &MEANINGS {
            let said = Error::from_raw_os_error(*code);
            let line = explained(&format!("trace file a/b: {said}"));
            assert_eq!(line, format!("trace file a/b: {what}; {remedy}"));
            assert_eq!(explained(&line), line);
            let line = explained(&format!(
                "trace file a/b: {said}; choose another with --trace"
            ));
            assert_eq!(
                line,
                format!("trace file a/b: {what}; choose another with --trace")
            );
        }
    }

    #[test]
    fn each_error_is_there_once_and_others_stay_as_they_are() {
        let mut codes = MEANINGS.map(|meaning| meaning.code).to_vec();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), MEANINGS.len());
        let refused = Error::from_raw_os_error(libc::ECONNREFUSED);
        for line in [
            format!("a: {refused}"),
            "Permission denied".into(),
            String::new(),
        ] {
            assert_eq!(explained(&line), line);
        }
    }
}
