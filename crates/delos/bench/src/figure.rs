//! What a part has found: tables, and goals that are met or not.

use plinth_measure::plots::open_page;
use plinth_measure::text::{escape, grouped};
use serde_json::{Value, json};
use std::fmt::Write;

const INFALLIBLE: &str = "writing to a string";

/// See the module.
#[derive(Clone, Debug)]
pub struct Figure {
    pub name: &'static str,
    pub title: String,
    pub tables: Vec<Table>,
    pub goals: Vec<Goal>,
    /// Lines that a reader has to know.
    pub remarks: Vec<String>,
    /// The numbers, for programs.
    pub data: Value,
}

#[derive(Clone, Debug)]
pub struct Table {
    pub title: String,
    pub columns: Vec<&'static str>,
    pub rows: Vec<Vec<String>>,
}

/// Something that was promised.
#[derive(Clone, Debug)]
pub struct Goal {
    /// What is wanted, and what was measured.
    pub line: String,
    pub is_met: bool,
}

impl Goal {
    pub fn new(line: String, is_met: bool) -> Goal {
        Goal { line, is_met }
    }
}

/// A number with as many digits as its size deserves.
pub fn short(number: f64) -> String {
    match number.abs() {
        n if n >= 1000.0 => grouped(number),
        n if n >= 100.0 => format!("{number:.0}"),
        n if n >= 10.0 => format!("{number:.1}"),
        n if n >= 1.0 => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}

impl Figure {
    pub fn text(&self) -> String {
        let mut out = format!("{}: {}\n", self.name, self.title);
        for table in &self.tables {
            table.write(&mut out);
        }
        for remark in &self.remarks {
            writeln!(out, "  {remark}").expect(INFALLIBLE);
        }
        for goal in &self.goals {
            let holds = if goal.is_met { "met" } else { "NOT met" };
            writeln!(out, "  goal {holds}: {}", goal.line).expect(INFALLIBLE);
        }
        out
    }

    pub fn to_json(&self) -> Value {
        let goals = self.goals.iter();
        let goals = goals.map(|goal| json!({ "goal": goal.line, "is_met": goal.is_met }));
        json!({
            "figure": self.name,
            "title": self.title,
            "data": self.data,
            "goals": goals.collect::<Vec<_>>(),
        })
    }
}

impl Table {
    fn write(&self, out: &mut String) {
        writeln!(out, "  {}", self.title).expect(INFALLIBLE);
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.chain([self.columns[column].chars().count()]).max()
        };
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| width(column).unwrap_or(0))
            .collect();
        let mut line = |cells: &mut dyn Iterator<Item = &str>| {
            for (column, (cell, width)) in cells.zip(&widths).enumerate() {
                match column {
                    0 => write!(out, "    {cell:<width$}"),
                    _ => write!(out, "  {cell:>width$}"),
                }
                .expect(INFALLIBLE);
            }
            out.push('\n');
        };
        line(&mut self.columns.iter().copied());
        for row in &self.rows {
            line(&mut row.iter().map(String::as_str));
        }
    }
}

/// A page with all figures.
pub fn page(figures: &[Figure]) -> String {
    let mut out = open_page("Log-structured protocols: measured");
    for figure in figures {
        let title = escape(&format!("{}: {}", figure.name, figure.title));
        write!(out, "<h2>{title}</h2>").expect(INFALLIBLE);
        for table in &figure.tables {
            write!(out, "<h3>{}</h3><table><tr>", escape(&table.title)).expect(INFALLIBLE);
            let cells = table.columns.iter();
            cells.for_each(|cell| write!(out, "<th>{}</th>", escape(cell)).expect(INFALLIBLE));
            out.push_str("</tr>");
            for row in &table.rows {
                out.push_str("<tr>");
                let cells = row.iter();
                cells.for_each(|cell| write!(out, "<td>{}</td>", escape(cell)).expect(INFALLIBLE));
                out.push_str("</tr>");
            }
            out.push_str("</table>");
        }
        for remark in &figure.remarks {
            write!(out, "<p>{}</p>", escape(remark)).expect(INFALLIBLE);
        }
        for goal in &figure.goals {
            let holds = if goal.is_met { "met" } else { "not met" };
            write!(out, "<p>Goal {holds}: {}</p>", escape(&goal.line)).expect(INFALLIBLE);
        }
    }
    out.push_str("</html>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_says_whether_its_goals_are_met_and_lets_no_markup_in() {
        let figure = Figure {
            name: "figure-0",
            title: "<b>".into(),
            tables: vec![Table {
                title: "what".into(),
                columns: vec!["name", "n"],
                rows: vec![vec!["a longer one".into(), "1".into()]],
            }],
            goals: vec![Goal::new("2 > 3".into(), false)],
            remarks: vec!["noise".into()],
            data: json!({ "n": 1 }),
        };
        let text = figure.text();
        assert!(text.contains("  goal NOT met: 2 > 3\n"), "{text}");
        assert!(
            text.contains("    name          n\n    a longer one  1\n"),
            "{text}"
        );
        assert_eq!(figure.to_json()["goals"][0]["is_met"], false);
        let page = page(&[figure]);
        assert!(
            page.contains("&lt;b&gt;") && !page.contains("<b>"),
            "{page}"
        );
    }
}
