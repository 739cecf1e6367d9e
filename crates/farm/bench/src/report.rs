//! What a run has measured.

use serde_json::{Value, json};

/// A run's figures, for programs and for readers, and what its checks have found.
#[derive(Clone, Debug)]
pub struct Report {
    workload: &'static str,
    settings: Value,
    figures: Vec<Value>,
    lines: Vec<String>,
    broken: Vec<String>,
}

impl Report {
    pub fn new(workload: &'static str, settings: Value) -> Report {
        Report {
            workload,
            settings,
            figures: Vec::new(),
            lines: Vec::new(),
            broken: Vec::new(),
        }
    }

    /// A figure, and the same in a line.
    pub fn add(&mut self, figure: Value, line: String) {
        self.figures.push(figure);
        self.lines.push(line);
    }

    pub fn note(&mut self, line: String) {
        self.lines.push(line);
    }

    pub fn add_broken(&mut self, mode: &str, lines: Vec<String>) {
        let lines = lines.into_iter().map(|line| format!("{mode}: {line}"));
        self.broken.extend(lines);
    }

    /// Figures as the run has added them.
    pub fn figures(&self) -> &[Value] {
        &self.figures
    }

    /// What the checks have found wrong, a line each. A run is good only if there is nothing.
    pub fn broken(&self) -> &[String] {
        &self.broken
    }

    /// One object: `workload`, `settings`, `figures`, `broken`.
    pub fn to_json(&self) -> Value {
        json!({
            "workload": self.workload,
            "settings": self.settings,
            "figures": self.figures,
            "broken": self.broken,
        })
    }

    pub fn text(&self) -> String {
        let broken = self.broken.iter().map(|line| format!("BROKEN {line}"));
        let lines = self.lines.iter().cloned().chain(broken);
        lines.map(|line| line + "\n").collect()
    }
}
