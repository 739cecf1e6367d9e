//! Answers as text for people, as JSON for programs, and as rows for `cut` and `awk`.

use plinth_core::key::printable;
use plinth_table::language::time;
use plinth_table::proto;
use plinth_table::value::{Value, kind_name};
use plinth_terminal::shell::answer::Answer as Shown;
use plinth_terminal::wording::counted;
use serde_json::{Map, Value as Json, json};
use std::fmt::Write;

pub enum Answer {
    Done,
    /// Part of a transaction that is open.
    Queued,
    /// So many rows.
    Changed(u64),
    /// Rows; and whether there are more that were not asked for.
    Rows(proto::Page, bool),
    Tables(Vec<proto::Table>),
    Page(String),
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // into memory
        text
    })
}

fn shown(value: &proto::Value) -> String {
    match Value::from(value.clone()) {
        Value::Null => "null".into(),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Float(value) => format!("{value:?}"),
        // A line stays a line, and a terminal unharmed.
        Value::Text(text) if text.chars().any(char::is_control) => format!("{text:?}"),
        Value::Text(text) => text,
        Value::Bytes(bytes) => hex(&bytes),
        Value::Timestamp(micros) => time::format(micros),
    }
}

/// Floats that JSON does not have are texts, as bytes and timestamps are.
fn json_of(value: &proto::Value) -> Json {
    match Value::from(value.clone()) {
        Value::Null => Json::Null,
        Value::Bool(value) => value.into(),
        Value::Int(value) => value.into(),
        Value::Float(float) if float.is_finite() => float.into(),
        Value::Text(text) => text.into(),
        _ => shown(value).into(),
    }
}

/// A field of a line. Null is what no text looks like.
fn field(value: &proto::Value) -> String {
    match Value::from(value.clone()) {
        Value::Null => "\\N".into(),
        Value::Text(text) => printable(text.as_bytes()),
        _ => shown(value),
    }
}

/// Formats have narrower limits than texts.
fn padded(cell: &str, width: usize) -> String {
    let missing = width.saturating_sub(cell.chars().count());
    [cell, &" ".repeat(missing)].concat()
}

fn table_of(page: &proto::Page, is_cut: bool) -> String {
    let mut lines = vec![page.columns.clone()];
    let rows = page.rows.iter();
    lines.extend(rows.map(|row| row.values.iter().map(shown).collect::<Vec<String>>()));
    let width = |column: usize| {
        let widths = lines.iter().map(|line| line[column].chars().count());
        widths.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..page.columns.len()).map(width).collect();
    let mut text = String::new();
    for (number, line) in lines.iter().enumerate() {
        let cells = line.iter().zip(&widths);
        let cells: Vec<String> = cells.map(|(cell, width)| padded(cell, *width)).collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
        if number == 0 {
            let rules: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            text += &rules.join("  ");
            text.push('\n');
        }
    }
    let more = if is_cut {
        ", and there are more: add a limit"
    } else {
        ""
    };
    let sorted = if page.sorted { " and a sort" } else { "" };
    let _ = write!(
        text,
        "({} by {}{sorted}, {} looked at{more})",
        counted(page.rows.len(), "row", "rows"),
        page.index,
        page.scanned
    );
    text
}

fn rows_json(page: &proto::Page, is_cut: bool) -> Json {
    let row = |row: &proto::Row| {
        let cells = page
            .columns
            .iter()
            .cloned()
            .zip(row.values.iter().map(json_of));
        Json::Object(Map::from_iter(cells))
    };
    json!({
        "rows": page.rows.iter().map(row).collect::<Vec<Json>>(),
        "index": page.index,
        "sorted": page.sorted,
        "scanned": page.scanned,
        "position": page.position,
        "more": is_cut,
    })
}

fn index_text(index: &proto::Index) -> String {
    let state = match (index.building, &index.failed[..]) {
        (true, _) => " -- it is being built".to_owned(),
        (false, "") => String::new(),
        (false, why) => format!(" -- it cannot be used: {why}"),
    };
    let unique = if index.unique { "unique " } else { "" };
    format!(
        "  {unique}index {} ({}){state}",
        index.name,
        index.columns.join(", ")
    )
}

fn table_text(table: &proto::Table) -> String {
    let column = |column: &proto::Column| {
        let null = if column.nullable { " null" } else { "" };
        let default = column.default.as_ref().map(shown);
        let default = default.map_or(String::new(), |default| format!(" default {default}"));
        format!(
            "  {} {}{null}{default}",
            column.name,
            kind_name(column.kind())
        )
    };
    let mut lines = vec![format!("table {}", table.name)];
    lines.extend(table.columns.iter().map(column));
    lines.push(format!("  primary key ({})", table.key.join(", ")));
    lines.extend(table.indexes.iter().map(index_text));
    lines.join("\n")
}

fn table_json(table: &proto::Table) -> Json {
    let column = |column: &proto::Column| {
        json!({
            "name": column.name,
            "kind": kind_name(column.kind()),
            "nullable": column.nullable,
            "default": column.default.as_ref().map(json_of),
        })
    };
    let index = |index: &proto::Index| {
        json!({
            "name": index.name,
            "columns": index.columns,
            "unique": index.unique,
            "building": index.building,
            "failed": index.failed,
        })
    };
    json!({
        "name": table.name,
        "columns": table.columns.iter().map(column).collect::<Vec<Json>>(),
        "key": table.key,
        "indexes": table.indexes.iter().map(index).collect::<Vec<Json>>(),
    })
}

/// The tables, their columns and what the columns are.
fn column_rows(tables: &[proto::Table]) -> Vec<Vec<String>> {
    let rows = |table: &proto::Table| {
        let name = table.name.clone();
        let row = move |column: &proto::Column| {
            let (name, kind) = (name.clone(), kind_name(column.kind()).to_string());
            vec![name, column.name.clone(), kind]
        };
        table.columns.iter().map(row).collect::<Vec<_>>()
    };
    tables.iter().flat_map(rows).collect()
}

impl Answer {
    /// As shells show it.
    pub fn shown(self) -> Shown {
        let (text, document, rows) = match self {
            Answer::Page(text) => return Shown::Page(text),
            Answer::Done => ("done".into(), json!({}), None),
            Answer::Queued => ("noted for `commit'".into(), json!({}), None),
            Answer::Changed(rows) => (
                format!("{} changed", counted(rows, "row", "rows")),
                json!({ "changed": rows }),
                None,
            ),
            Answer::Rows(page, is_cut) => {
                let row = |row: &proto::Row| row.values.iter().map(field).collect();
                let rows = page.rows.iter().map(row).collect();
                (
                    table_of(&page, is_cut),
                    rows_json(&page, is_cut),
                    Some(rows),
                )
            }
            Answer::Tables(tables) => {
                let texts: Vec<String> = tables.iter().map(table_text).collect();
                let all = tables.iter().map(table_json).collect::<Vec<Json>>();
                let rows = column_rows(&tables);
                (texts.join("\n"), json!({ "tables": all }), Some(rows))
            }
        };
        Shown::Whole {
            text,
            document,
            rows,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_terminal::shell::answer::Form;

    #[test]
    fn rows_for_other_programs_tell_null_from_any_text() {
        let values = [
            Value::Text("a\tb".into()),
            Value::Null,
            Value::Text("\\N".into()),
            Value::Int(-1),
        ];
        let values = values.map(proto::Value::from).to_vec();
        let page = proto::Page {
            columns: ["a", "b", "c", "d"].map(String::from).to_vec(),
            rows: vec![proto::Row { values }],
            ..proto::Page::default()
        };
        let shown = Answer::Rows(page, false).shown();
        assert_eq!(shown.render(Form::Tsv), "a\\x09b\t\\N\t\\\\N\t-1");
        assert_eq!(shown.aside(Form::Tsv), None);
        let changed = Answer::Changed(2).shown();
        assert_eq!(changed.render(Form::Json), r#"{"changed":2,"ok":true}"#);
        assert_eq!(changed.aside(Form::Tsv), Some("2 rows changed"));
    }
}
