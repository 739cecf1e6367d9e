//! Words as statements.

use super::statement::Statement;
use super::words::{Word, Words, is_quoted_at_end, shortened, split};
use crate::filter::Filter;
use crate::proto::request::What;
use crate::proto::{self, Comparison, Kind};
use crate::request::{Assignment, Cells, Condition, Expect, Operation, To};
use crate::value::Value;
use plinth_core::similar;
use std::cell::Cell;

/// Deepest nesting of a filter.
const DEPTH_MAX: usize = 50;

/// With which statements begin.
const FIRST_WORDS: [&str; 16] = [
    "create", "drop", "alter", "insert", "upsert", "update", "delete", "select", "begin",
    "require", "commit", "rollback", "tables", "describe", "help", "exit",
];

/// What may follow a statement that seems to be whole.
const LATER_WORDS: [&str; 8] = [
    "where", "and", "or", "order", "limit", "using", "values", "set",
];

const KINDS: [(&str, Kind); 6] = [
    ("bool", Kind::Bool),
    ("int", Kind::Int),
    ("float", Kind::Float),
    ("text", Kind::Text),
    ("bytes", Kind::Bytes),
    ("timestamp", Kind::Timestamp),
];

/// What other databases call them, in the same order.
const FOREIGN_KINDS: [&str; 6] = [
    "boolean bit",
    "integer bigint smallint tinyint int4 int8 long serial",
    "double real decimal numeric number float4 float8",
    "string varchar char character str",
    "blob bytea binary varbinary",
    "datetime date time timestamptz",
];

type Parsed<T> = Result<T, String>;

struct Parser<'a> {
    text: &'a str,
    words: Words,
    at: usize,
    /// Something was expected at the end.
    is_cut_off: Cell<bool>,
}

pub fn all(text: &str) -> Parsed<Vec<Statement>> {
    all_of(&mut Parser::new(text)?)
}

/// Whether more words could make statements of a text that is none.
pub fn is_cut_off(text: &str) -> bool {
    match Parser::new(text) {
        Ok(mut parser) => all_of(&mut parser).is_err() && parser.is_cut_off.get(),
        Err(_) => is_quoted_at_end(text),
    }
}

fn all_of(parser: &mut Parser<'_>) -> Parsed<Vec<Statement>> {
    let mut statements = Vec::new();
    loop {
        while parser.take_sign(";") {}
        if parser.is_over() {
            return Ok(statements);
        }
        statements.push(parser.statement()?);
        if !parser.is_over() && !parser.take_sign(";") {
            return parser.expected_of("`;' or the end", &LATER_WORDS);
        }
    }
}

pub fn filter_alone(text: &str) -> Parsed<Filter> {
    let mut parser = Parser::new(text)?;
    let filter = parser.filter(0)?;
    match parser.is_over() {
        true => Ok(filter),
        false => parser.expected("the end"),
    }
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Parsed<Parser<'a>> {
        Ok(Parser {
            text,
            words: split(text)?,
            at: 0,
            is_cut_off: Cell::new(false),
        })
    }

    fn is_over(&self) -> bool {
        self.at == self.words.len()
    }

    fn peek(&self) -> Option<&Word> {
        self.words.get(self.at).map(|(_, word)| word)
    }

    fn expected<T>(&self, what: &str) -> Parsed<T> {
        Err(match self.words.get(self.at) {
            Some((at, _)) => {
                format!("{what} is expected at {:?}", shortened(&self.text[*at..]))
            }
            None => {
                self.is_cut_off.set(true);
                format!("{what} is expected at the end")
            }
        })
    }

    /// As [`expected`](Self::expected), and names one of these words that was perhaps meant.
    fn expected_of<T>(&self, what: &str, words: &[&str]) -> Parsed<T> {
        let meant = match self.peek() {
            Some(Word::Bare(word)) => {
                similar::most_similar(&word.to_lowercase(), words.iter().copied())
            }
            _ => None,
        };
        asked(self.expected(what), meant)
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(self.peek(), Some(Word::Bare(bare)) if bare.eq_ignore_ascii_case(word))
    }

    /// Takes these words, if they are next.
    fn take(&mut self, words: &str) -> bool {
        let before = self.at;
        for word in words.split(' ') {
            if !self.is_word(word) {
                self.at = before;
                return false;
            }
            self.at += 1;
        }
        true
    }

    fn need(&mut self, words: &str) -> Parsed<()> {
        match self.take(words) {
            true => Ok(()),
            false => self.expected_of(&format!("`{words}'"), &[words]),
        }
    }

    fn take_sign(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.peek(), Some(Word::Sign(next)) if *next == sign);
        self.at += usize::from(is_next);
        is_next
    }

    fn need_sign(&mut self, sign: &str) -> Parsed<()> {
        match self.take_sign(sign) {
            true => Ok(()),
            false => self.expected(&format!("`{sign}'")),
        }
    }

    fn name(&mut self, what: &str) -> Parsed<String> {
        match self.peek() {
            Some(Word::Bare(name) | Word::Name(name)) => {
                let name = name.clone();
                self.at += 1;
                Ok(name)
            }
            _ => self.expected(what),
        }
    }

    /// `(…, …)`.
    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        self.need_sign("(")?;
        let mut items = vec![item(self)?];
        while self.take_sign(",") {
            items.push(item(self)?);
        }
        self.need_sign(")")?;
        Ok(items)
    }

    fn names(&mut self) -> Parsed<Vec<String>> {
        self.list(|parser| parser.name("the name of a column"))
    }

    fn value(&mut self) -> Parsed<Value> {
        if self.take_sign("-") {
            let value = match self.peek() {
                Some(Word::Value(Value::Int(int))) => int.checked_neg().map(Value::Int),
                Some(Word::Value(Value::Float(float))) => Some(Value::float(-float)),
                _ if self.is_word("infinity") => Some(Value::Float(f64::NEG_INFINITY)),
                _ => None,
            };
            let Some(value) = value else {
                return self.expected("a number");
            };
            self.at += 1;
            return Ok(value);
        }
        for (word, value) in [
            ("null", Value::Null),
            ("true", Value::Bool(true)),
            ("false", Value::Bool(false)),
            ("nan", Value::Float(f64::NAN)),
            ("infinity", Value::Float(f64::INFINITY)),
        ] {
            if self.take(word) {
                return Ok(value);
            }
        }
        let Some(Word::Value(value)) = self.peek() else {
            let hint = self.how_it_is_quoted();
            return self.expected("a value").map_err(|line| line + &hint);
        };
        let value = value.clone();
        self.at += 1;
        Ok(value)
    }

    /// The end of the line about a word that stands where a value does.
    fn how_it_is_quoted(&self) -> String {
        let in_quotes = |text: &str| format!("'{}'", shortened(text).replace('\'', "''"));
        match self.peek() {
            Some(Word::Bare(word)) if word.eq_ignore_ascii_case("timestamp") => {
                "; a time stands in single quotes: timestamp '2026-01-31 12:00:00'".into()
            }
            Some(Word::Bare(word)) => {
                format!("; a text stands in single quotes: {}", in_quotes(word))
            }
            Some(Word::Name(name)) => format!(
                "; a text stands in single quotes: {}; in double quotes stand names of columns and tables",
                in_quotes(name)
            ),
            _ => String::new(),
        }
    }

    // ---- statements ----

    fn statement(&mut self) -> Parsed<Statement> {
        let word = match self.peek() {
            Some(Word::Bare(word)) => word.to_lowercase(),
            _ => return self.expected("a statement (`help' lists them)"),
        };
        self.at += 1;
        Ok(match &word[..] {
            "create" => alter(self.create()?),
            "drop" => alter(self.drop()?),
            "alter" => alter(self.alter()?),
            "insert" | "upsert" => self.insert(word == "upsert")?,
            "update" => Statement::Operations(vec![self.update()?]),
            "delete" => {
                self.need("from")?;
                let table = self.name("the name of a table")?;
                let filter = self.rows_meant()?;
                Statement::Operations(vec![Operation::DeleteWhere { table, filter }])
            }
            "select" => self.select()?,
            "begin" => Statement::Begin,
            "require" => Statement::Require(self.require()?),
            "commit" => Statement::Commit,
            "rollback" => Statement::Rollback,
            "tables" => Statement::Tables,
            "describe" => Statement::Describe(self.name("the name of a table")?),
            "help" => Statement::Help(self.rest_of_help()),
            "exit" | "quit" => Statement::Exit,
            other => {
                self.at -= 1;
                let expected = self.expected("a statement (`help' lists them)");
                return asked(expected, similar::meant(other, FIRST_WORDS));
            }
        })
    }

    /// What help is wanted about: the words up to the end of the statement.
    fn rest_of_help(&mut self) -> String {
        let mut words = Vec::new();
        while let Some(Word::Bare(word)) = self.peek() {
            words.push(word.to_lowercase());
            self.at += 1;
        }
        words.join(" ")
    }

    fn create(&mut self) -> Parsed<What> {
        if self.take("table") {
            return Ok(What::CreateTable(self.table()?));
        }
        let unique = self.take("unique");
        if !self.take("index") {
            let (what, words): (&str, &[&str]) = match unique {
                true => ("`index'", &["index"]),
                false => (
                    "`table', `index' or `unique index'",
                    &["table", "index", "unique"],
                ),
            };
            return self.expected_of(what, words);
        }
        let name = self.name("the name of an index")?;
        self.need("on")?;
        let table = self.name("the name of a table")?;
        let index = Some(index(name, self.names()?, unique));
        Ok(What::CreateIndex(proto::CreateIndex { table, index }))
    }

    fn table(&mut self) -> Parsed<proto::Table> {
        let mut table = proto::Table {
            name: self.name("the name of a table")?,
            ..proto::Table::default()
        };
        self.list(|parser| {
            if parser.take("primary key") {
                table.key = parser.names()?;
                return Ok(());
            }
            let unique = parser.take("unique index");
            // A column may be called `index`.
            let is_index = unique || {
                let after = parser.words.get(parser.at + 2).map(|(_, word)| word);
                parser.is_word("index") && matches!(after, Some(Word::Sign("(")))
            };
            if is_index {
                parser.at += usize::from(!unique);
                let name = parser.name("the name of an index")?;
                table.indexes.push(index(name, parser.names()?, unique));
            } else {
                table.columns.push(parser.column()?);
            }
            Ok(())
        })?;
        Ok(table)
    }

    fn column(&mut self) -> Parsed<proto::Column> {
        let name = self.name("the name of a column")?;
        let kind = KINDS.iter().find(|(word, _)| self.take(word));
        let Some((_, kind)) = kind else {
            let expected = self.expected("bool, int, float, text, bytes or timestamp");
            return asked(expected, self.kind_meant(&name));
        };
        let mut column = proto::Column {
            name,
            kind: (*kind).into(),
            ..proto::Column::default()
        };
        loop {
            if self.take("not null") {
                column.nullable = false;
            } else if self.take("null") {
                column.nullable = true;
            } else if self.take("default") {
                column.default = Some(self.value()?.into());
            } else {
                return Ok(column);
            }
        }
    }

    /// What stands where the kind of the column `name` is expected.
    fn kind_meant(&self, name: &str) -> Option<&'static str> {
        let Some(Word::Bare(word)) = self.peek() else {
            return None;
        };
        let (name, word) = (name.to_lowercase(), word.to_lowercase());
        let near = |word: &str, own| similar::most_similar(word, [own]).is_some();
        if near(&name, "primary") && near(&word, "key") {
            return Some("primary key");
        }
        if near(&name, "unique") && near(&word, "index") {
            return Some("unique index");
        }
        let mut all = KINDS.iter().zip(FOREIGN_KINDS);
        let foreign = all.find(|(_, foreign)| foreign.split(' ').any(|kind| kind == word));
        let foreign = foreign.map(|((own, _), _)| *own);
        foreign.or_else(|| similar::most_similar(&word, KINDS.map(|(own, _)| own)))
    }

    fn drop(&mut self) -> Parsed<What> {
        if self.take("table") {
            let table = self.name("the name of a table")?;
            return Ok(What::DropTable(proto::DropTable { table }));
        }
        if !self.take("index") {
            return self.expected_of("`table' or `index'", &["table", "index"]);
        }
        let index = self.name("the name of an index")?;
        self.need("on")?;
        let table = self.name("the name of a table")?;
        Ok(What::DropIndex(proto::DropIndex { table, index }))
    }

    fn alter(&mut self) -> Parsed<What> {
        self.need("table")?;
        let table = self.name("the name of a table")?;
        let adds = self.take("add");
        if !adds && !self.take("drop") {
            return self.expected_of("`add column' or `drop column'", &["add", "drop"]);
        }
        self.need("column")?;
        if adds {
            let column = Some(self.column()?);
            return Ok(What::AddColumn(proto::AddColumn { table, column }));
        }
        let column = self.name("the name of a column")?;
        Ok(What::DropColumn(proto::DropColumn { table, column }))
    }

    fn insert(&mut self, is_upsert: bool) -> Parsed<Statement> {
        self.need("into")?;
        let table = self.name("the name of a table")?;
        let names = self.names()?;
        self.need("values")?;
        let mut operations = Vec::new();
        loop {
            let values = self.list(Self::value)?;
            if values.len() != names.len() {
                return Err(format!(
                    "there are {} columns and {} values",
                    names.len(),
                    values.len()
                ));
            }
            let (table, row) = (table.clone(), names.iter().cloned().zip(values).collect());
            operations.push(match is_upsert {
                false => Operation::Insert { table, row },
                true => Operation::Upsert { table, row },
            });
            if !self.take_sign(",") {
                return Ok(Statement::Operations(operations));
            }
        }
    }

    fn update(&mut self) -> Parsed<Operation> {
        let table = self.name("the name of a table")?;
        self.need("set")?;
        let mut set = Vec::new();
        loop {
            let column = self.name("the name of a column")?;
            self.need_sign("=")?;
            let is_sum = matches!(
                self.words.get(self.at + 1),
                Some((_, Word::Sign("+" | "-")))
            );
            let to = match self.peek() {
                Some(Word::Bare(name) | Word::Name(name)) if is_sum && *name == column => {
                    self.at += 1;
                    // A `-` is the sign of what is added.
                    self.take_sign("+");
                    To::Add(self.value()?)
                }
                _ => To::Value(self.value()?),
            };
            set.push(Assignment { column, to });
            if !self.take_sign(",") {
                break;
            }
        }
        let filter = self.rows_meant()?;
        Ok(Operation::UpdateWhere { table, filter, set })
    }

    fn select(&mut self) -> Parsed<Statement> {
        let mut query = proto::Query::default();
        if !self.take_sign("*") {
            query
                .columns
                .push(self.name("`*', or the name of a column")?);
            while self.take_sign(",") {
                query.columns.push(self.name("the name of a column")?);
            }
        }
        self.need("from")?;
        query.table = self.name("the name of a table")?;
        query.filter = Some(self.where_()?.into());
        if self.take("order by") {
            loop {
                let column = self.name("the name of a column")?;
                let descending = self.take("desc");
                if !descending {
                    self.take("asc");
                }
                query.order.push(proto::Order { column, descending });
                if !self.take_sign(",") {
                    break;
                }
            }
        }
        let mut limit = None;
        if self.take("limit") {
            if !matches!(self.peek(), Some(Word::Value(_) | Word::Sign("-"))) {
                return self.expected("a number of rows");
            }
            limit = match self.value()? {
                Value::Int(rows) if rows > 0 => Some(rows as u64),
                _ => return Err("a limit is a number of rows above 0".into()),
            };
        }
        if self.take("using") {
            query.index = self.name("the name of an index")?;
        }
        let query = Box::new(query);
        Ok(Statement::Select { query, limit })
    }

    fn require(&mut self) -> Parsed<Condition> {
        let is_missing = self.take("missing");
        let table = self.name("the name of a table")?;
        let key: Cells = self.list(|parser| {
            let column = parser.name("the name of a column")?;
            parser.need_sign("=")?;
            Ok((column, parser.value()?))
        })?;
        let expect = match is_missing {
            true => Expect::Missing,
            false if self.is_word("where") => Expect::Matches(self.where_()?),
            false => Expect::Exists,
        };
        Ok(Condition { table, key, expect })
    }

    // ---- filters ----

    fn where_(&mut self) -> Parsed<Filter> {
        match self.take("where") {
            true => self.filter(0),
            false => Ok(Filter::everything()),
        }
    }

    /// The rows that a statement changes. Every row has to be meant: who pastes a statement of two lines would lose
    /// them by the first.
    fn rows_meant(&mut self) -> Parsed<Filter> {
        if self.take("all") {
            return Ok(Filter::everything());
        }
        match self.is_word("where") {
            true => self.where_(),
            false => self.expected_of("`where', or `all' for every row,", &["where", "all"]),
        }
    }

    fn filter(&mut self, depth: usize) -> Parsed<Filter> {
        self.parts("or", Filter::Any, |parser| {
            parser.parts("and", Filter::All, |parser| parser.part(depth))
        })
    }

    fn parts(
        &mut self,
        between: &str,
        join: impl Fn(Vec<Filter>) -> Filter,
        part: impl Fn(&mut Self) -> Parsed<Filter>,
    ) -> Parsed<Filter> {
        let mut parts = vec![part(self)?];
        while self.take(between) {
            parts.push(part(self)?);
        }
        Ok(match parts.len() {
            1 => parts.remove(0),
            _ => join(parts),
        })
    }

    fn part(&mut self, depth: usize) -> Parsed<Filter> {
        if depth > DEPTH_MAX {
            return Err(format!("a filter is nested at most {DEPTH_MAX} deep"));
        }
        if self.take("not") {
            let inner = self.part(depth + 1)?;
            return Ok(Filter::Not(Box::new(inner)));
        }
        if self.take_sign("(") {
            let inner = self.filter(depth + 1)?;
            self.need_sign(")")?;
            return Ok(inner);
        }
        let column = self.name("the name of a column")?;
        let compare = |comparison, value| Filter::Compare(column.clone(), comparison, value);
        if self.take("is not null") {
            return Ok(compare(Comparison::NotEqual, Value::Null));
        }
        if self.take("is null") {
            return Ok(compare(Comparison::Equal, Value::Null));
        }
        if self.take("starts with") {
            return Ok(compare(Comparison::Prefix, self.value()?));
        }
        if self.take("in") {
            let values = self.list(Self::value)?.into_iter();
            let equal = values.map(|value| compare(Comparison::Equal, value));
            return Ok(Filter::Any(equal.collect()));
        }
        for (sign, comparison) in [
            ("=", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<>", Comparison::NotEqual),
            ("<", Comparison::Less),
            ("<=", Comparison::LessOrEqual),
            (">", Comparison::Greater),
            (">=", Comparison::GreaterOrEqual),
        ] {
            if self.take_sign(sign) {
                return Ok(compare(comparison, self.value()?));
            }
        }
        self.expected_of(
            "=, !=, <, <=, >, >=, `is', `in' or `starts with'",
            &["is", "in", "starts with"],
        )
    }
}

/// The error, with what was perhaps meant.
fn asked<T>(expected: Parsed<T>, meant: Option<&str>) -> Parsed<T> {
    match meant {
        Some(meant) => expected.map_err(|line| format!("{line}; did you mean `{meant}'?")),
        None => expected,
    }
}

fn index(name: String, columns: Vec<String>, unique: bool) -> proto::Index {
    proto::Index {
        name,
        columns,
        unique,
        ..proto::Index::default()
    }
}

fn alter(what: What) -> Statement {
    Statement::Alter(Box::new(proto::Request { what: Some(what) }))
}
