//! Files that commands make out of others.

use crate::Outcome;
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

#[cfg(test)]
mod tests {
    use super::*;

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
