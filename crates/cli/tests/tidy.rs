//! The house rules that a machine can check: files that fit a head, and crates that import only from lower floors
//! (ARCHITECTURE.md draws them).

#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // it reads the source, not the database's files

use std::path::{Path, PathBuf};

const LINES_MAX: usize = 800;
const FLOORS: [&[&str]; 9] = [
    &["core"],
    &["runtime"],
    &["rpc", "engine", "foreign"],
    &["protocol"],
    &["coordination", "log"],
    &["transaction", "storage", "client"],
    &["control"],
    &["server"],
    &["sim", "bench", "capi", "stack", "cli"],
];

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn rust_files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn no_file_is_longer_than_a_head_can_hold() {
    let mut files = Vec::new();
    rust_files(&crates(), &mut files);
    assert!(files.len() > 100, "the source was found");
    for file in files {
        let lines = std::fs::read_to_string(&file)
            .expect("text")
            .lines()
            .count();
        assert!(lines <= LINES_MAX, "{} has {lines} lines", file.display());
    }
}

#[test]
fn a_crate_imports_only_crates_on_lower_floors() {
    let floor_of = |name: &str| FLOORS.iter().position(|floor| floor.contains(&name));
    for entry in std::fs::read_dir(crates()).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path
            .file_name()
            .expect("a name")
            .to_string_lossy()
            .into_owned();
        let own = floor_of(&name).unwrap_or_else(|| panic!("{name} is on no floor"));
        let manifest = std::fs::read_to_string(path.join("Cargo.toml")).expect("a manifest");
        // What tests import is another matter.
        let imports = manifest
            .split("[dev-dependencies]")
            .next()
            .expect("a first part");
        for line in imports.lines() {
            let Some(import) = line.strip_prefix("plinth-") else {
                continue;
            };
            let import = import.split(['.', ' ']).next().expect("a name");
            let floor = floor_of(import).unwrap_or_else(|| panic!("{import} is on no floor"));
            // The rooms of the top floor are built on each other: the binary holds the others.
            let allowed = floor < own || (own == FLOORS.len() - 1 && name == "cli");
            assert!(
                allowed,
                "{name} on floor {own} imports {import} on floor {floor}"
            );
        }
    }
}
