//! The tutorial of Delos works as it is written: its program is the example that is compiled, and its commands print
//! what the page says.

#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // it runs what a reader types

mod common;

use common::{BINARY, Directory, free_ports};
use std::path::Path;
use std::process::Command;

const PAGE: &str = include_str!("../../../../docs/delos-tutorial.md");
const PROGRAM: &str = include_str!("../../../replicated/services/examples/flags.rs");
/// Printed behind each block of commands.
const BLOCK_ENDS: &str = "---- end of a block";

/// The blocks of the page, with their languages.
fn blocks() -> Vec<(&'static str, &'static str)> {
    let mut fences = PAGE.split("```").skip(1);
    let mut all = Vec::new();
    while let (Some(block), Some(_)) = (fences.next(), fences.next()) {
        all.push(block.split_once('\n').expect("a line with the language"));
    }
    all
}

/// The commands, each with what the page says that they print. Those that build are left out: it is built.
fn steps() -> Vec<(&'static str, Option<&'static str>)> {
    let blocks = blocks();
    let mut steps = Vec::new();
    for (at, (language, text)) in blocks.iter().enumerate() {
        if *language == "sh" && !text.contains("cargo build") {
            let said = blocks.get(at + 1).filter(|(next, _)| *next == "text");
            steps.push((*text, said.map(|(_, said)| *said)));
        }
    }
    steps
}

#[test]
fn the_program_of_the_tutorial_is_the_example() {
    let programs: Vec<&str> = blocks()
        .into_iter()
        .filter_map(|(language, text)| (language == "rust").then_some(text))
        .collect();
    assert_eq!(programs, [PROGRAM]);
    assert!(PROGRAM.lines().count() <= 100, "it stays short");
}

#[test]
fn the_commands_of_the_tutorial_print_what_it_says() {
    let directory = Directory::new("delos-tutorial");
    let first_port = free_ports(3);
    let mut script = "set -eu\ntrap 'kill -9 $(jobs -p) 2>/dev/null' EXIT\n".to_string();
    for (commands, _) in steps() {
        script.push_str(&format!("{commands}echo '{BLOCK_ENDS}'\n"));
    }
    for i in 0..3 {
        let (written, free) = (format!(":{}", 4701 + i), format!(":{}", first_port + i));
        script = script.replace(&written, &free);
    }
    let file = directory.file("commands.sh");
    std::fs::write(&file, script).expect("written");
    let programs = Path::new(BINARY).parent().expect("a directory");
    let search = format!(
        "{}:{}:{}",
        programs.join("examples").display(),
        programs.display(),
        std::env::var("PATH").expect("a path")
    );
    let ran = Command::new("bash")
        .arg(&file)
        .current_dir(&directory.0)
        .env("PATH", search)
        .output()
        .expect("bash runs");
    let (said, errors) = (
        String::from_utf8_lossy(&ran.stdout),
        String::from_utf8_lossy(&ran.stderr),
    );
    assert!(ran.status.success(), "{said}\n{errors}");
    let end = format!("{BLOCK_ENDS}\n");
    let mut said = said.split(&end);
    for (commands, expected) in steps() {
        let said = said.next().expect("as many blocks");
        if let Some(expected) = expected {
            assert_eq!(said, expected, "{commands}\n{errors}");
        }
    }
}
