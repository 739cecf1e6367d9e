//! Executes statements; holds a transaction that is open between them.

use super::answer::Answer;
use super::door::CODE;
use super::help::{HELP, help};
use super::secure::Connector;
use plinth_runtime::{Duration, timeout};
use plinth_table::language::{Statement, is_cut_off, parse};
use plinth_table::limits;
use plinth_table::proto::{self, request::What};
use plinth_table::request::{Operation, Request, Transaction};
use plinth_table::service::TablesClient;
use plinth_terminal::Outcome;
use plinth_terminal::connect::telling;
use plinth_terminal::shell::answer::Answer as Shown;
use plinth_terminal::shell::complete::{Completer, complete};
use plinth_terminal::shell::runner;
use plinth_terminal::tls::{Listen, TlsArguments};
use std::error::Error;
use tonic::Status;
use tonic::transport::Endpoint;

/// Rows of a `select` without a limit.
const ROWS_DEFAULT: u64 = 1000;

/// The answer of the server at `address`, which may take so many seconds.
async fn answered<T>(
    address: Listen,
    seconds: u64,
    asked: impl Future<Output = Result<T, Status>>,
) -> Outcome<T> {
    let why = async {
        Some(format!(
            "the server of tables at {address} has not answered yet"
        ))
    };
    let answer = telling(timeout(Duration::from_secs(seconds), asked), seconds, why).await;
    match answer {
        Some(answer) => answer.map_err(|status| explain(address, &status)),
        None => Err(format!(
            "{address}: no answer within {seconds} s; what a statement changes may still be done"
        )),
    }
}

fn explain(address: Listen, status: &Status) -> String {
    let word = status
        .metadata()
        .get(CODE)
        .and_then(|word| word.to_str().ok());
    match word {
        Some(word) => format!("{word}: {}", status.message()),
        // It was made here: what a server says has no source.
        None if status.source().is_some() => {
            format!(
                "{address}: {}{}; is a server of tables there (`plinth table server')?",
                status.message(),
                cause(status)
            )
        }
        None => format!("{address}: {}", status.message()),
    }
}

/// What is behind all that libraries say of a connection: that it is refused, or that there is no way.
fn cause(status: &Status) -> String {
    let mut last = status.source();
    while let Some(next) = last.and_then(Error::source) {
        last = Some(next);
    }
    let cause = last.map(ToString::to_string).unwrap_or_default();
    match status.message().contains(&cause) {
        true => String::new(),
        false => format!(" ({cause})"),
    }
}

pub struct Session {
    address: Listen,
    client: TablesClient,
    /// How long an answer may take.
    seconds: u64,
    /// Between `begin` and `commit`.
    open: Option<Transaction>,
}

impl Session {
    /// A session with the server at `address`, which is not asked for anything yet.
    ///
    /// # Errors
    /// TLS is wanted, and the certificates are missing or wrong: a line for the user.
    pub async fn connect(address: Listen, tls: &TlsArguments, seconds: u64) -> Outcome<Session> {
        let endpoint = Endpoint::from_shared(format!("http://{}", address.address));
        let endpoint = endpoint.map_err(|error| format!("--connect {address}: {error}"))?;
        let channel = match address.is_tls() {
            true => endpoint.connect_with_connector_lazy(Connector::new(address, tls).await?),
            false if tls.is_given() => {
                return Err(format!(
                    "--connect {address}: options for TLS are given; write {address}:tls, or leave them out"
                ));
            }
            false => endpoint.connect_lazy(),
        };
        Ok(Session {
            address,
            client: TablesClient::new(channel),
            seconds,
            open: None,
        })
    }

    /// # Errors
    /// A transaction is left open: what was meant has not happened.
    pub fn end(&self, ran: Outcome) -> Outcome {
        match (&self.open, ran) {
            (Some(_), Ok(())) => {
                Err("the transaction is not committed: nothing of it has happened".into())
            }
            (_, ran) => ran,
        }
    }

    async fn send(&mut self, request: proto::Request) -> Outcome<proto::Answer> {
        let (address, seconds) = (self.address, self.seconds);
        answered(address, seconds, self.client.execute(request)).await
    }

    async fn commit(&mut self, transaction: Transaction) -> Outcome<Answer> {
        let asked = Request::Transaction(transaction).into();
        let answer = self.send(asked).await?;
        Ok(Answer::Changed(answer.changed.iter().sum()))
    }

    async fn operate(&mut self, operations: Vec<Operation>) -> Outcome<Answer> {
        match &mut self.open {
            Some(transaction) => {
                transaction.operations.extend(operations);
                Ok(Answer::Queued)
            }
            None => {
                let conditions = Vec::new();
                let transaction = Transaction {
                    conditions,
                    operations,
                };
                self.commit(transaction).await
            }
        }
    }

    /// # Errors
    /// A line for the user.
    async fn answer(&mut self, statement: Statement) -> Outcome<Answer> {
        let not_open = || "there is no transaction: it starts with `begin'".to_owned();
        match statement {
            Statement::Alter(request) => self.alter(*request).await,
            Statement::Operations(operations) => self.operate(operations).await,
            Statement::Select { query, limit } => self.select(*query, limit).await,
            Statement::Begin if self.open.is_some() => {
                Err("a transaction is open already: `commit' or `rollback' it".into())
            }
            Statement::Begin => {
                self.open = Some(Transaction::default());
                Ok(Answer::Done)
            }
            Statement::Require(condition) => {
                let transaction = self.open.as_mut().ok_or_else(not_open)?;
                transaction.conditions.push(condition);
                Ok(Answer::Queued)
            }
            Statement::Commit => {
                let transaction = self.open.take().ok_or_else(not_open)?;
                self.commit(transaction).await
            }
            Statement::Rollback => {
                self.open.take().ok_or_else(not_open)?;
                Ok(Answer::Done)
            }
            Statement::Tables => self.describe("").await,
            Statement::Describe(table) => self.describe(&table).await,
            Statement::Help(of) => help(&of).map(Answer::Page),
            Statement::Exit => Ok(Answer::Done),
        }
    }

    async fn alter(&mut self, request: proto::Request) -> Outcome<Answer> {
        if self.open.is_some() {
            return Err("schemas are changed outside of transactions: `commit' first".into());
        }
        let builds = match &request.what {
            Some(What::CreateIndex(asked)) => Some(asked.clone()),
            _ => None,
        };
        let mut answer = self.send(request).await?;
        let Some(asked) = builds else {
            return Ok(Answer::Done);
        };
        // The index can be used when this returns.
        while answer.working {
            let what = Some(What::Step(proto::Step {}));
            answer = self.send(proto::Request { what }).await?;
        }
        let name = asked.index.unwrap_or_default().name;
        let told = self.tables(&asked.table).await?;
        let indexes = told.iter().flat_map(|table| &table.indexes);
        match indexes.clone().find(|index| index.name == name) {
            Some(index) if !index.failed.is_empty() => Err(format!(
                "index {name:?} cannot be used: {}; drop it",
                index.failed
            )),
            _ => Ok(Answer::Done),
        }
    }

    async fn tables(&mut self, table: &str) -> Outcome<Vec<proto::Table>> {
        let mut tables: Vec<proto::Table> = Vec::new();
        loop {
            let asked = proto::Description {
                table: table.into(),
                after: tables
                    .last()
                    .map_or(String::new(), |last| last.name.clone()),
            };
            let (address, seconds) = (self.address, self.seconds);
            let told = answered(address, seconds, self.client.describe(asked)).await?;
            tables.extend(told.tables);
            if !told.more {
                return Ok(tables);
            }
        }
    }

    async fn describe(&mut self, table: &str) -> Outcome<Answer> {
        Ok(Answer::Tables(self.tables(table).await?))
    }

    async fn select(&mut self, mut query: proto::Query, limit: Option<u64>) -> Outcome<Answer> {
        if self.open.is_some() {
            return Err("a transaction only changes rows: `commit' first, or use `require'".into());
        }
        let wanted = limit.unwrap_or(ROWS_DEFAULT);
        let mut found = proto::Page::default();
        loop {
            let left = wanted - found.rows.len() as u64;
            query.limit = left.min(limits::PAGE_ROWS as u64) as u32;
            let (address, seconds) = (self.address, self.seconds);
            let page = answered(address, seconds, self.client.read(query.clone())).await?;
            let (mut rows, scanned) = (found.rows, found.scanned + page.scanned);
            found = page;
            rows.append(&mut found.rows);
            (found.rows, found.scanned) = (rows, scanned);
            if found.continuation.is_empty() || found.rows.len() as u64 >= wanted {
                break;
            }
            query.continuation = found.continuation.clone();
        }
        let is_cut = limit.is_none() && !found.continuation.is_empty();
        Ok(Answer::Rows(found, is_cut))
    }
}

impl runner::Session for Session {
    const HAS_LONG_STATEMENTS: bool = true;

    type Statement = Statement;

    fn completer(&self) -> Completer {
        Box::new(|line| complete(line, following))
    }

    fn parse(text: &str) -> Outcome<Vec<Statement>> {
        parse(text.trim_end())
    }

    fn is_begun(text: &str) -> bool {
        is_cut_off(text)
    }

    fn is_exit(statement: &Statement) -> bool {
        *statement == Statement::Exit
    }

    fn prompt(&self) -> &'static str {
        match self.open {
            None => "table",
            Some(_) => "table (transaction)",
        }
    }

    fn has_transaction(&self) -> bool {
        self.open.is_some()
    }

    async fn execute(&mut self, statement: Statement) -> Outcome<Shown> {
        self.answer(statement).await.map(Answer::shown)
    }
}

/// The words that may follow these: names of statements have up to two, and stand behind `help`, too.
fn following(words: &[String]) -> Vec<String> {
    let is_help = words.first().is_some_and(|word| word == "help");
    let (said, names): (&[String], Vec<&str>) = match is_help {
        true => (&words[1..], HELP.subjects().collect()),
        false => (words, HELP.names().collect()),
    };
    let next = |name: &str| {
        let mut parts = name.split(' ');
        let is_begun = said.iter().all(|word| parts.next() == Some(word.as_str()));
        parts.next().filter(|_| is_begun).map(String::from)
    };
    let mut next: Vec<String> = names.into_iter().filter_map(next).collect();
    next.dedup();
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_says_that_its_service_is_away_is_there() {
        let address: Listen = "127.0.0.1:4680".parse().expect("an address");
        let line = explain(address, &Status::unavailable("service x does not answer"));
        assert_eq!(line, "127.0.0.1:4680: service x does not answer");
        let line = plinth_terminal::connect::block_on(async {
            answered::<()>(address, 1, std::future::pending()).await
        });
        let line = line.expect_err("nobody answers");
        assert!(line.contains("no answer within 1 s"), "{line}");
    }

    #[test]
    fn names_of_statements_are_completed_word_by_word() {
        let next = |line: &str| {
            let found = complete(line, following);
            found.words
        };
        assert_eq!(next("sel"), ["select"]);
        assert_eq!(next("create "), ["index", "table"]);
        assert_eq!(next("begin; cre"), ["create"]);
        assert_eq!(next("help create t"), ["table"]);
        assert_eq!(next("help fil"), ["filters"]);
        assert!(next("select x").is_empty());
    }
}
