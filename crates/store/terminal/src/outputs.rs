//! Files that commands make out of others.

use crate::Outcome;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Writes a file that was made of `inputs`, and over none of them. `flag` chooses it.
///
/// # Errors
/// A line for the user.
pub fn write_page(output: &Path, flag: &str, inputs: &[PathBuf], page: &str) -> Outcome {
    let cannot = |what: String| format!("{}: {what}; choose another with {flag}", output.display());
    let is_output = |input: &PathBuf| {
        let (one, other) = (input.canonicalize(), output.canonicalize());
        one.is_ok_and(|one| other.is_ok_and(|other| one == other))
    };
    if inputs.iter().any(is_output) {
        return Err(cannot("it would be written over what it is made of".into()));
    }
    std::fs::write(output, page).map_err(|error| cannot(error.to_string()))
}

/// Refuses a file that cannot be written, before what it is to say is measured. `flag` chooses it.
///
/// # Errors
/// A line for the user.
pub fn check_writable(output: &Path, flag: &str) -> Outcome {
    let is_new = !output.exists();
    let opened = OpenOptions::new().append(true).create(true).open(output);
    opened.map_err(|error| format!("{flag} {}: {}", output.display(), why_not_made(&error)))?;
    if is_new {
        let _ = std::fs::remove_file(output); // it is made at the end
    }
    Ok(())
}

/// Why a file cannot be made, and what to do: the end of a line that names it.
pub fn why_not_made(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::NotFound => "its directory is not there: make it, or choose another name".into(),
        ErrorKind::PermissionDenied => {
            "this user may not write there: change its owner or mode, or choose another name".into()
        }
        _ => format!("{error}; choose another name"),
    }
}

/// Why a file cannot be read, and what to do: the end of a line that names it. `flag` has named it; empty if no flag
/// has.
pub fn why_not_read(error: &std::io::Error, flag: &str) -> String {
    let what = match error.kind() {
        ErrorKind::NotFound => "there is none".into(),
        ErrorKind::PermissionDenied => "this user may not read it".into(),
        ErrorKind::IsADirectory => "it is a directory".into(),
        ErrorKind::NotADirectory => "it is no directory".into(),
        _ => error.to_string(),
    };
    match flag {
        "" => format!("{what}; name another"),
        flag => format!("{what}; name another with {flag}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_made_is_answered_with_a_remedy() {
        for kind in [
            ErrorKind::NotFound,
            ErrorKind::PermissionDenied,
            ErrorKind::IsADirectory,
        ] {
            let line = why_not_made(&kind.into());
            assert!(line.ends_with("choose another name"), "{line}");
        }
    }

    #[test]
    fn a_file_that_cannot_be_read_is_answered_with_the_flag_that_names_it() {
        for (kind, line) in [
            (
                ErrorKind::NotFound,
                "there is none; name another with --key",
            ),
            (
                ErrorKind::IsADirectory,
                "it is a directory; name another with --key",
            ),
        ] {
            assert_eq!(why_not_read(&kind.into(), "--key"), line);
        }
        let bare = why_not_read(&ErrorKind::NotFound.into(), "");
        assert_eq!(bare, "there is none; name another");
    }

    #[test]
    fn a_file_is_tried_before_and_none_is_left() {
        let path = std::env::temp_dir().join(format!("plinth-tried-{}", std::process::id()));
        assert_eq!(check_writable(&path, "--html"), Ok(()));
        assert!(!path.exists());
        std::fs::write(&path, "kept").expect("written");
        assert_eq!(check_writable(&path, "--html"), Ok(()));
        assert_eq!(std::fs::read_to_string(&path).expect("there"), "kept");
        std::fs::remove_file(&path).expect("removed");
        for wrong in [std::env::temp_dir(), path.join("page")] {
            let line = check_writable(&wrong, "--html").expect_err("it is no file");
            assert!(line.starts_with("--html "), "{line}");
        }
    }

    #[test]
    fn a_page_is_not_written_over_what_it_is_made_of() {
        let name = format!("plinth-write-page-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).expect("made");
        let (input, page) = (directory.join("runs"), directory.join("page"));
        std::fs::write(&input, "runs").expect("written");
        let inputs = [input.clone()];
        write_page(&page, "-o", &inputs, "page").expect("another file");
        write_page(&page, "-o", &inputs, "page").expect("made anew");
        let other_name = directory
            .join("..")
            .join(directory.file_name().expect("it has one"));
        let other_name = other_name.join("runs");
        let refused = write_page(&other_name, "-o", &inputs, "page").expect_err("an input");
        assert!(refused.ends_with("; choose another with -o"), "{refused}");
        assert_eq!(std::fs::read_to_string(&input).expect("there"), "runs");
        std::fs::remove_dir_all(&directory).expect("removed");
    }
}
