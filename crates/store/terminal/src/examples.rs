//! Examples at the end of a command's page: calls, each with a few words about what it does. A command states them in
//! one line, `#[command(after_help = plinth_terminal::examples(&[("plinth status", "The state of a cluster")]))]`.

use clap::Command;

/// The title of the section, as a page shows it.
pub const HEADING: &str = "Examples:";
/// The library prints its own headings so.
const BOLD: &str = "\u{1b}[1m\u{1b}[4m";
const PLAIN: &str = "\u{1b}[0m";
/// Calls begin where flags do, and their words where those of flags do.
const CALL: &str = "  ";
const WORDS: &str = "          ";

/// The section, of calls and words about them.
pub fn examples(examples: &[(&str, &str)]) -> String {
    let mut section = format!("{BOLD}{HEADING}{PLAIN}");
    for (call, words) in examples {
        section += &format!("\n{CALL}{call}\n{WORDS}{words}");
    }
    section
}

/// The calls of a command's section, with their words.
pub fn of(command: &Command) -> Vec<(String, String)> {
    let text = command.get_after_help().map(ToString::to_string);
    let text = text.unwrap_or_default();
    let mut lines = text.lines();
    if lines.next() != Some(HEADING) {
        return Vec::new();
    }
    let said = |line: &str| line.trim_start().to_owned();
    let mut all = Vec::new();
    while let (Some(call), Some(words)) = (lines.next(), lines.next()) {
        all.push((said(call), said(words)));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_ends_with_the_examples_that_its_command_states() {
        let stated = [("plinth a -x", "Does x"), ("plinth a", "Does all")];
        let mut command = Command::new("a").after_help(examples(&stated));
        let page = command.render_help().to_string();
        let end =
            "\n\nExamples:\n  plinth a -x\n          Does x\n  plinth a\n          Does all\n";
        assert!(page.ends_with(end), "{page}");
        let owned = stated.map(|(call, words)| (call.to_owned(), words.to_owned()));
        assert_eq!(of(&command), owned);
        for other in [Command::new("b"), Command::new("b").after_help("Begin")] {
            assert_eq!(of(&other), Vec::new());
        }
    }
}
