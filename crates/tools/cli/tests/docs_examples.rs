//! The examples of the pages work as they are written: each command is run from an empty directory, in the order of
//! its page, and prints what the page says.

mod blocks;
mod page;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Pages that run side by side. They wait more than they compute.
const LANES: usize = 3;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

/// All pages for readers, by their names.
fn pages() -> BTreeMap<String, String> {
    let mut names = vec!["README.md".to_string(), "CONTRIBUTING.md".to_string()];
    for folder in ["docs", "docs/subsystems", "docs/walks", "docs/decisions"] {
        let entries = std::fs::read_dir(root().join(folder)).expect("a folder");
        let files = entries.map(|entry| entry.expect("an entry").file_name());
        let files = files.map(|file| file.into_string().expect("a name"));
        let pages = files.filter(|file| file.ends_with(".md"));
        names.extend(pages.map(|file| format!("{folder}/{file}")));
    }
    let text = |name: &String| std::fs::read_to_string(root().join(name)).expect("a page");
    names
        .into_iter()
        .map(|name| (name.clone(), text(&name)))
        .collect()
}

#[test]
fn every_command_of_the_pages_runs_from_an_empty_directory_or_says_why_not() {
    let only = std::env::var("PLINTH_DOCS_PAGE").ok();
    let pages = pages();
    let wanted = |name: &str| {
        only.as_ref()
            .is_none_or(|only| name.contains(only.as_str()))
    };
    let left = Mutex::new(pages.into_iter().filter(|(name, _)| wanted(name)));
    let reports = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| {
                loop {
                    let next = left.lock().expect("nobody panics").next();
                    let Some((name, text)) = next else { return };
                    let report = page::run(&name, &text);
                    reports.lock().expect("nobody panics").insert(name, report);
                }
            });
        }
    });
    let reports = reports.into_inner().expect("nobody panics");
    let mut failures = Vec::new();
    for (name, report) in &reports {
        if report.commands > 0 {
            let (commands, compared, took) = (report.commands, report.compared, report.took);
            eprintln!("{name}: {commands} commands, {compared} with what they print, {took:.1?}");
        }
        report
            .left
            .iter()
            .for_each(|left| eprintln!("not run: {left}"));
        failures.extend(&report.failures);
    }
    let sum = |number: fn(&page::Report) -> usize| reports.values().map(number).sum::<usize>();
    let (commands, left) = (
        sum(|report| report.commands),
        sum(|report| report.left.len()),
    );
    eprintln!("{commands} commands run; {left} blocks not run");
    let failures: Vec<&str> = failures.iter().map(|line| line.as_str()).collect();
    assert!(failures.is_empty(), "\n{}", failures.join("\n\n"));
}
