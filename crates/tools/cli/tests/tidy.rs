//! House rules that a machine can check: limits of length, crates that import only from folders below (see
//! ARCHITECTURE.md), no circles of imports, citations that lead somewhere, pages that say what they are about and name
//! files that there are, roles that say what they promise.

mod circles;
mod folders;
mod marks;
mod packages;
mod pages;
mod roles;

use std::path::{Path, PathBuf};

const LINES_MAX: usize = 800;
const FUNCTION_LINES_MAX: usize = 70;
const COLUMNS_MAX: usize = 119;

fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn docs() -> PathBuf {
    crates().join("../docs")
}

fn names_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = names
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn folders_in(directory: &Path) -> Vec<String> {
    let mut names = names_in(directory);
    names.retain(|name| directory.join(name).is_dir());
    names
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

/// Every Rust file of the project, with its text.
fn sources() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    rust_files(&crates(), &mut files);
    assert!(files.len() > 100, "the source was found");
    let read = |file: PathBuf| {
        let text = std::fs::read_to_string(&file).expect("text");
        (file, text)
    };
    files.into_iter().map(read).collect()
}

#[test]
fn no_file_is_longer_than_a_head_can_hold() {
    for (file, text) in sources() {
        let lines = text.lines().count();
        assert!(lines <= LINES_MAX, "{} has {lines} lines", file.display());
    }
}

#[test]
fn no_line_is_wider_than_a_screen() {
    for (file, text) in sources() {
        for (number, line) in (1..).zip(text.lines()) {
            let columns = line.chars().count();
            let place = format!("{}:{number}", file.display());
            assert!(columns <= COLUMNS_MAX, "{place} has {columns} columns");
        }
    }
}

/// The indentation of a function's first line; `None` if the line begins no function.
fn begins_function(line: &str) -> Option<&str> {
    let code = line.trim_start();
    let indentation = &line[..line.len() - code.len()];
    let is_word = |word: &str| {
        ["const", "async", "unsafe", "extern", "\"C\""].contains(&word) || word.starts_with("pub")
    };
    let mut words = code.split(' ').skip_while(|word| is_word(word));
    (words.next() == Some("fn") && !code.ends_with([';', '}'])).then_some(indentation)
}

#[test]
fn no_function_is_longer_than_a_screen() {
    for (file, text) in sources() {
        let lines: Vec<&str> = text.lines().collect();
        for (first, line) in lines.iter().enumerate() {
            let Some(indentation) = begins_function(line) else {
                continue;
            };
            // rustfmt puts the brace that ends the function under its beginning.
            let is_end = |line: &str| line.strip_prefix(indentation) == Some("}");
            let Some(length) = lines[first..].iter().position(|line| is_end(line)) else {
                continue;
            };
            assert!(
                length < FUNCTION_LINES_MAX,
                "{}:{} begins a function of {} lines",
                file.display(),
                first + 1,
                length + 1
            );
        }
    }
}

#[test]
fn files_do_not_import_each_other_in_circles() {
    for folder in folders_in(&crates()) {
        for name in folders_in(&crates().join(&folder)) {
            let found = circles::of_crate(&crates().join(&folder).join(&name));
            assert!(found.is_empty(), "{folder}/{name}: {found:#?}");
        }
    }
}

/// Otherwise nobody would run its tests.
#[test]
fn a_suite_is_a_module_of_the_one_test_binary_of_its_crate() {
    let mut suites = 0;
    for (file, text) in sources() {
        if !file.ends_with("tests/all.rs") {
            continue;
        }
        let tests = file.parent().expect("a folder");
        let manifest = tests.join("../Cargo.toml");
        let manifest = std::fs::read_to_string(manifest).expect("a manifest");
        for name in names_in(tests) {
            let Some(suite) = name.strip_suffix(".rs") else {
                continue;
            };
            let is_run = text.contains(&format!("\nmod {suite};\n"))
                || manifest.contains(&format!("name = \"{suite}\"\n"));
            assert!(is_run, "{} does not have {suite}", file.display());
            suites += 1;
        }
    }
    assert!(suites > 50, "the suites were found");
}

#[test]
fn a_cited_pitfall_is_listed() {
    let page = std::fs::read_to_string(docs().join("pitfalls.md")).expect("a page");
    let mut cited = 0;
    for (file, text) in sources() {
        // A citation may name several: "pitfalls 3 and 17".
        for part in text.split("(pitfall").skip(1) {
            let inside = part.split(')').next().unwrap_or_default();
            for number in inside
                .split(|c: char| !c.is_ascii_digit())
                .filter(|n| !n.is_empty())
            {
                cited += 1;
                let heading = format!("\n### {number}. ");
                assert!(
                    page.contains(&heading),
                    "{}: pitfall {number}",
                    file.display()
                );
            }
        }
    }
    assert!(cited > 20, "the citations were found");
}

#[test]
fn a_page_begins_with_its_title_and_says_what_it_is_about() {
    let mut pages = vec![
        docs().join("../ARCHITECTURE.md"),
        docs().join("../CONTRIBUTING.md"),
    ];
    for folder in ["", "subsystems", "walks", "decisions"] {
        let names = names_in(&docs().join(folder)).into_iter();
        let names = names.filter(|name| name.ends_with(".md"));
        pages.extend(names.map(|name| docs().join(folder).join(name)));
    }
    assert!(pages.len() > 20, "the pages were found");
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("text");
        let mut lines = text.lines();
        let title = lines.next().unwrap_or_default();
        let about = lines.find(|line| !line.is_empty()).unwrap_or_default();
        let says = title.starts_with("# ") && !about.starts_with('#');
        assert!(says, "{}: a title, then what it is about", page.display());
    }
}

#[test]
fn the_crate_for_applications_and_those_below_it_can_be_published() {
    let missing = packages::missing(&crates().join(".."));
    assert!(missing.is_empty(), "manifests lack these: {missing:#?}");
}
