//! The runbooks of a page: their headings, and the commands in them.

use std::path::PathBuf;

fn read(page: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..");
    std::fs::read_to_string(path.join(page)).expect("the page is there")
}

/// The headings of the runbooks of `docs/operating.md`.
pub fn headings() -> Vec<String> {
    let text = read("docs/operating.md");
    let (_, runbooks) = text.split_once("\n## Runbooks\n").expect("they are there");
    let (runbooks, _) = runbooks.split_once("\n## ").expect("others follow");
    let headings = runbooks
        .lines()
        .filter_map(|line| line.strip_prefix("### "));
    headings.map(str::to_string).collect()
}

/// One section of a page.
pub struct Section {
    name: String,
    text: String,
}

impl Section {
    pub fn of(page: &str, heading: &str) -> Section {
        let text = read(page);
        let name = format!("{page}, {heading}");
        let begin = format!("# {heading}\n");
        let (_, rest) = text
            .split_once(&begin)
            .unwrap_or_else(|| panic!("there is no {name}"));
        let end = ["\n## ", "\n### "].iter().filter_map(|end| rest.find(end));
        let end = end.min().unwrap_or(rest.len());
        let words: Vec<&str> = rest[..end].split_whitespace().collect();
        let text = words.join(" ");
        Section { name, text }
    }

    /// A runbook of `docs/operating.md`.
    pub fn runbook(heading: &str) -> Section {
        Section::of("docs/operating.md", heading)
    }

    /// The first command of the section that begins so: a code span, or a statement in one.
    pub fn command(&self, begin: &str) -> String {
        let spans = self.text.split('`').skip(1).step_by(2);
        let statements = spans.map(|span| match span.split_once("--exec '") {
            Some((_, statement)) => statement.trim_end_matches('\''),
            None => span,
        });
        let mut found = statements.filter(|statement| statement.starts_with(begin));
        found
            .next()
            .unwrap_or_else(|| panic!("{} has no `{begin}'", self.name))
            .to_string()
    }

    /// Asserts that the section promises this, in these words.
    pub fn says(&self, words: &str) {
        assert!(self.text.contains(words), "{}: {words}", self.name);
    }
}
