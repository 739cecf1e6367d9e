//! The program of Delos's tutorial is the example that is compiled. Its commands are run by `docs_examples.rs`.

const PAGE: &str = include_str!("../../../../docs/delos-tutorial.md");
const PROGRAM: &str = include_str!("../../../delos/services/examples/flags.rs");

/// The blocks of the page, with their languages.
fn blocks() -> Vec<(&'static str, &'static str)> {
    let mut fences = PAGE.split("```").skip(1);
    let mut all = Vec::new();
    while let (Some(block), Some(_)) = (fences.next(), fences.next()) {
        all.push(block.split_once('\n').expect("a line with the language"));
    }
    all
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
