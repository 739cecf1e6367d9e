//! How messages say so many things, and files in calls that a reader pastes into a shell.

use std::fmt::{Arguments, Display};
use std::io::Write;
use std::path::Path;

/// Prints a line to standard error in one write: lines of several processes stand one below the other. What cannot be
/// printed there is told nowhere.
#[macro_export]
macro_rules! say {
    ($($part:tt)*) => { $crate::wording::say(format_args!($($part)*)) };
}

/// See the macro.
pub fn say(line: Arguments<'_>) {
    let _ = std::io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// `1 pair`, `2 pairs`, `1 200 pairs`.
pub fn counted(number: impl Display, one: &str, many: &str) -> String {
    let number = number.to_string();
    let noun = if number == "1" { one } else { many };
    format!("{number} {noun}")
}

/// The path as a word of a shell.
pub fn pasted(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+,:@%".contains(c);
    match !path.is_empty() && path.chars().all(is_plain) {
        true => path,
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_not_several() {
        for (number, said) in [("0", "0 rows"), ("1", "1 row"), ("1 001", "1 001 rows")] {
            assert_eq!(counted(number, "row", "rows"), said);
        }
        assert_eq!(counted(1_u64, "copy", "copies"), "1 copy");
    }

    #[test]
    fn a_shell_reads_the_path_as_one_word() {
        for (path, said) in [
            ("data/plinth.cluster", "data/plinth.cluster"),
            ("/a b/plinth.cluster", "'/a b/plinth.cluster'"),
            ("it's", r"'it'\''s'"),
            ("~/a", "'~/a'"),
            ("", "''"),
        ] {
            assert_eq!(pasted(Path::new(path)), said);
        }
    }
}
