//! `plinth farm cli`: keys and values of a cluster, from a member without data.

use super::ClusterArgument;
use super::status::{as_json, text as status_text};
use plinth_coordination::ClusterFile;
use plinth_core::key::{SYSTEM_BEGIN, prefix_end};
use plinth_core::{Error, Key, KeySelector, Value};
use plinth_farm_server::{Access, Guest, GuestConfig, RING_BYTES, caller, survey, while_moving};
use plinth_farm_structures::kv::{Database, RangeOptions, Transaction};
use plinth_runtime::real::block_on;
use plinth_runtime::{Boxed, Duration, Either, race, timeout};
use plinth_terminal::Outcome;
use plinth_terminal::connect::{explain, telling};
use plinth_terminal::interrupts;
use plinth_terminal::numbers::seconds_within;
use plinth_terminal::shell::answer::{Answer, FormArguments};
use plinth_terminal::shell::complete::{Completer, complete};
use plinth_terminal::shell::help::{ESCAPING, Help, page};
use plinth_terminal::shell::runner;
use plinth_terminal::shell::words::split;
use plinth_terminal::wrap::{folded, room};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::PathBuf;

/// Limit of rows of a range if the user names none.
const ROWS_DEFAULT: i32 = 25;
const LOOK_LIMIT: Duration = Duration::from_secs(2);
/// Follows what hinders a statement that changes something.
const MAY_BE_DONE: &str =
    "; what the statement changes may still be done, now or later: read it back";
const LEFT: &str = "it has left the cluster";

#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    cluster: ClusterArgument,
    /// Directory of the memories of this host's machines, if they have another than the default
    #[arg(long, value_name = "DIR")]
    memory_dir: Option<PathBuf>,
    /// Address of this host, at which the machines of other hosts reach the shell [default: the one toward them]
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,
    /// Statements to run, separated by ';', instead of an interactive shell
    #[arg(long, value_name = "STATEMENTS")]
    exec: Option<String>,
    #[command(flatten)]
    form: FormArguments,
    /// Seconds to wait for the cluster before giving up
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = seconds_within(1..=86_400))]
    timeout: u64,
}

/// The address of this host from which packets to `to` go out. Nothing is sent.
fn own_address(to: SocketAddr) -> Outcome<IpAddr> {
    let any = match to {
        SocketAddr::V4(_) => "0.0.0.0:0",
        SocketAddr::V6(_) => "[::]:0",
    };
    let found = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(to)?;
        socket.local_addr()
    });
    found.map(|address| address.ip()).map_err(|error| {
        format!("there is no way to {to}: {error}; name an address of this host with --address")
    })
}

pub fn run(arguments: Arguments) -> Outcome {
    let outcome = block_on(serve(&arguments));
    let outcome = outcome.map_err(|line| runner::placed("farm cli", line));
    let outcome = runner::told(outcome, arguments.form.chosen());
    if let Err(line) = &outcome
        && arguments.exec.is_none()
    {
        // A thread may still wait for a line, and the process would wait for it.
        if !line.is_empty() {
            plinth_terminal::say!("plinth: {line}");
        }
        std::process::exit(interrupts::exit_code().into());
    }
    outcome
}

/// The names of the statements of `plinth farm cli`.
pub fn statements() -> impl Iterator<Item = &'static str> {
    HELP.names()
}

async fn serve(arguments: &Arguments) -> Outcome {
    let file = arguments.cluster.load_for_tool().await?;
    let address = match arguments.address {
        Some(address) => address,
        None => own_address(file.addresses()[0])?,
    };
    if let Some(directory) = arguments.memory_dir.as_deref().filter(|at| !at.is_dir()) {
        plinth_terminal::say!(
            "plinth: farm cli: --memory-dir {} is made: no machine of this host has its memory there",
            directory.display()
        );
    }
    let limit = Duration::from_secs(arguments.timeout);
    let entering = Guest::enter(GuestConfig {
        cluster: file.clone(),
        memory_directory: arguments.memory_dir.clone(),
        address,
        limit,
    });
    let why = async { Some("the cluster has not let it in yet".into()) };
    let guest = telling(entering, arguments.timeout, why).await?;
    let left = guest.joined.node.left().clone();
    // Boxed: the compiler has a limit for futures within futures.
    let using: Boxed<Outcome> = Box::pin(async {
        let database = timeout(limit, guest.database()).await;
        let database = match database {
            Some(opened) => opened?,
            None => return Err(silence(&file, limit).await),
        };
        let mut session = Session {
            database,
            guest: &guest,
            file,
            limit,
            open: None,
            has_written: false,
        };
        let exec = arguments.exec.as_deref();
        let ran = runner::run(&mut session, exec, arguments.form.chosen()).await;
        session.end(ran)
    });
    let outcome = match race(using, left.wait_until(Option::is_some)).await {
        Either::Left(outcome) => outcome,
        Either::Right(()) => Err(String::new()), // between two statements
    };
    let outcome = match outcome {
        Err(line) if !line.contains(LEFT) => Err(why_left(&guest).unwrap_or(line)),
        outcome => outcome,
    };
    guest.leave().await;
    outcome
}

/// Why the shell is no member any more, if so.
fn why_left(guest: &Guest) -> Option<String> {
    let node = &guest.joined.node;
    // Statements may end before the member has looked at the clock.
    node.member().look_at_clock();
    Some(format!("{LEFT}: {}", node.left().get()?))
}

/// Of a cluster that does not answer: what it lacks, if that is known.
async fn silence(file: &ClusterFile, limit: Duration) -> String {
    let lacks = survey(&caller(file), file, LOOK_LIMIT).await.missing();
    let lacks = match lacks.is_empty() {
        true => "; `plinth farm status' tells what it lacks".to_owned(),
        false => format!(": {}", lacks.join("; ")),
    };
    let seconds = limit.as_secs();
    format!(
        "the cluster does not answer within {seconds} s{lacks}{}",
        while_moving(file)
    )
}

fn key_too_large(most: usize) -> String {
    let code = Error::key_too_large.code();
    format!("a key has at most {most} bytes in this cluster ({code})")
}

#[derive(Clone, PartialEq, Debug)]
enum Statement {
    Get(Key),
    Set(Key, Value),
    Clear(Key),
    ClearRange(Key, Key),
    /// Begin, end if given, limit.
    GetRange(Key, Option<Key>, i32),
    Begin,
    Commit,
    Rollback,
    Status,
    Help(Option<String>),
    Exit,
}

#[rustfmt::skip]
const HELP: Help = Help {
    groups: &[
        ("Reading", &[
            page("get", "KEY", "show the value of a key", "get hello"),
            page("getrange", "BEGIN [END] [LIMIT]",
                "show the pairs from BEGIN up to, and without, END; without END, those that begin with BEGIN; LIMIT \
                is 25 unless it is said",
                "getrange user/a user/n 100"),
        ]),
        ("Writing", &[
            page("set", "KEY VALUE", "write a pair", "set hello \"big world\""),
            page("clear", "KEY", "remove a key", "clear hello"),
            page("clearrange", "BEGIN END", "remove every key from BEGIN up to, and without, END",
                "clearrange user/a user/n"),
        ]),
        ("Transactions", &[
            page("begin", "", "start a transaction, which the statements up to commit or rollback belong to",
                "begin; set a 1; set b 2; commit"),
            page("commit", "", "commit the transaction", "begin; clear a; commit"),
            page("rollback", "", "end the transaction without a commit", "begin; clear a; rollback"),
        ]),
        ("The cluster", &[page("status", "", "show the state of the cluster", "status")]),
        ("The shell", &[
            page("help", "[STATEMENT|escaping]", "explain a statement, or escapes in keys", "help getrange"),
            page("exit", "", "leave; quit does so, too", "exit"),
        ]),
    ],
    topics: &[("escaping", "how keys and values are written and shown")],
};

fn help(of: Option<&str>) -> Outcome<String> {
    match of {
        None => Ok(HELP.screen()),
        Some("escaping") => Ok(ESCAPING.into()),
        Some(wanted) => HELP.page(wanted).ok_or_else(|| HELP.unexplained(wanted)),
    }
}

fn parse(words: &[Vec<u8>]) -> Outcome<Statement> {
    let name = String::from_utf8_lossy(&words[0]).to_ascii_lowercase();
    let key = |i: usize| Key::copy_from_slice(&words[i]);
    Ok(match (name.as_str(), words.len() - 1) {
        ("get", 1) => Statement::Get(key(1)),
        ("set", 2) => Statement::Set(key(1), key(2)),
        ("clear", 1) => Statement::Clear(key(1)),
        ("clearrange", 2) => Statement::ClearRange(key(1), key(2)),
        ("getrange", count @ 1..=3) => {
            let limit = match count {
                3 => String::from_utf8_lossy(&words[3])
                    .parse()
                    .ok()
                    .filter(|limit| *limit > 0),
                _ => Some(ROWS_DEFAULT),
            };
            let limit = limit.ok_or("the limit is a number of rows, at least 1")?;
            Statement::GetRange(key(1), (count > 1).then(|| key(2)), limit)
        }
        ("begin", 0) => Statement::Begin,
        ("commit", 0) => Statement::Commit,
        ("rollback", 0) => Statement::Rollback,
        ("status", 0) => Statement::Status,
        ("help", 0) => Statement::Help(None),
        ("help", 1) => {
            let of = String::from_utf8_lossy(&words[1]).to_ascii_lowercase();
            Statement::Help(Some(of))
        }
        ("exit" | "quit", 0) => Statement::Exit,
        _ => return Err(HELP.usage(&name).unwrap_or_else(|| HELP.unknown(&name))),
    })
}

struct Session<'a> {
    guest: &'a Guest,
    database: Database<Access>,
    file: ClusterFile,
    limit: Duration,
    open: Option<Transaction<Access>>,
    has_written: bool,
}

impl runner::Session for Session<'_> {
    type Statement = Statement;

    fn completer(&self) -> Completer {
        Box::new(|line| {
            complete(line, |words| match words {
                [] => HELP.names().map(String::from).collect(),
                [help] if help == "help" => HELP.subjects().map(String::from).collect(),
                _ => Vec::new(),
            })
        })
    }

    fn parse(text: &str) -> Outcome<Vec<Statement>> {
        let statements = split(text)?;
        let words = statements.iter().filter(|words| !words.is_empty());
        words.map(|words| parse(words)).collect()
    }

    fn is_exit(statement: &Statement) -> bool {
        *statement == Statement::Exit
    }

    fn prompt(&self) -> &'static str {
        match self.open {
            Some(_) => "farm (transaction)",
            None => "farm",
        }
    }

    fn has_transaction(&self) -> bool {
        self.open.is_some()
    }

    async fn execute(&mut self, statement: Statement) -> Outcome<Answer> {
        let seconds = self.limit.as_secs();
        let why = async {
            Some("the cluster does not answer; `plinth farm status' tells what it lacks".to_owned())
        };
        telling(self.carry_out(statement), seconds, why).await
    }
}

impl Session<'_> {
    async fn carry_out(&mut self, statement: Statement) -> Outcome<Answer> {
        match statement {
            Statement::Get(key) => {
                let read = self.read(async |tx| tx.get(&key).await).await?;
                Ok(Answer::Value(key, read))
            }
            Statement::GetRange(begin, end, limit) => self.get_range(&begin, end, limit).await,
            Statement::Set(key, value) => self.write(|tx| tx.set(&key, &value)).await,
            Statement::Clear(key) => self.write(|tx| tx.clear(&key)).await,
            Statement::ClearRange(begin, end) => {
                self.write(|tx| tx.clear_range(&begin, &end)).await
            }
            Statement::Begin if self.open.is_some() => {
                Err("a transaction is open already; `commit' or `rollback' ends it".into())
            }
            Statement::Begin => {
                self.open = Some(self.database.create_transaction());
                Ok(Answer::Text("Transaction started".into()))
            }
            Statement::Commit => self.commit().await,
            Statement::Rollback => {
                self.open.take().ok_or("no transaction is open")?;
                self.has_written = false;
                Ok(Answer::Text("Transaction rolled back".into()))
            }
            Statement::Status => {
                let seen = survey(&caller(&self.file), &self.file, LOOK_LIMIT).await;
                Ok(Answer::Whole {
                    text: folded(&status_text(&seen), room().unwrap_or(usize::MAX)),
                    document: as_json(&seen),
                    rows: None,
                })
            }
            Statement::Help(of) => help(of.as_deref()).map(Answer::Page),
            Statement::Exit => Ok(Answer::Nothing),
        }
    }

    /// Uncommitted writes are lost, which is an error.
    fn end(&self, outcome: Outcome) -> Outcome {
        match (&self.open, self.has_written) {
            (Some(_), true) => {
                Err("the transaction was not committed: nothing of it has happened".into())
            }
            _ => outcome,
        }
    }

    /// Does what a statement asks for, in time.
    async fn within<T>(
        &self,
        may_be_done: &str,
        work: impl Future<Output = Result<T, Error>>,
    ) -> Outcome<T> {
        let left = self.guest.joined.node.left();
        let work = race(work, left.wait_until(Option::is_some));
        let done = match timeout(self.limit, work).await {
            Some(Either::Left(done)) => Some(done),
            Some(Either::Right(())) => Some(Err(Error::shutdown_in_progress)),
            None => None,
        };
        if let Some(Err(_)) = &done
            && let Some(line) = why_left(self.guest)
        {
            return Err(line + may_be_done);
        }
        match done {
            // The store's text names the store's limit.
            Some(Err(Error::transaction_too_large)) => Err(format!(
                "a transaction writes less than {} KiB to one machine: write it in parts ({})",
                RING_BYTES >> 10,
                Error::transaction_too_large.code()
            )),
            // So does that of keys.
            Some(Err(Error::key_too_large)) => {
                Err(key_too_large(self.database.tree().settings().key_bytes_max))
            }
            Some(done) => done.map_err(explain),
            None => Err(silence(&self.file, self.limit).await + may_be_done),
        }
    }

    /// Reads in the open transaction, or in one of its own.
    async fn read<T>(
        &self,
        read: impl AsyncFn(&Transaction<Access>) -> Result<T, Error>,
    ) -> Outcome<T> {
        match &self.open {
            Some(open) => self.within("", read(open)).await,
            None => {
                let read = self.database.run(async |tx| read(&tx).await);
                self.within("", read).await
            }
        }
    }

    async fn write(&mut self, write: impl Fn(&Transaction<Access>)) -> Outcome<Answer> {
        if let Some(open) = &self.open {
            write(open);
            self.has_written = true;
            return Ok(Answer::Nothing);
        }
        let done = self.database.run(async |tx| {
            write(&tx);
            Ok(())
        });
        self.within(MAY_BE_DONE, done).await?;
        Ok(Answer::Text("Committed".into()))
    }

    async fn commit(&mut self) -> Outcome<Answer> {
        let open = self.open.take().ok_or("no transaction is open")?;
        self.has_written = false;
        self.within(MAY_BE_DONE, open.commit()).await?;
        Ok(Answer::Text("Committed".into()))
    }

    async fn get_range(&self, begin: &Key, end: Option<Key>, limit: i32) -> Outcome<Answer> {
        if end.as_ref().is_some_and(|end| begin > end) {
            return Err(explain(Error::inverted_range));
        }
        let end = end.unwrap_or_else(|| match prefix_end(begin) {
            Some(end) if !begin.is_empty() => end,
            _ => Key::from_static(SYSTEM_BEGIN),
        });
        let read = async |tx: &Transaction<Access>| {
            let begin = KeySelector::first_greater_or_equal(begin.clone());
            let end = KeySelector::first_greater_or_equal(end.clone());
            // One more tells whether there are more.
            let limit = RangeOptions::limit(limit.saturating_add(1));
            tx.get_range(begin, end, limit).await
        };
        let found = self.read(read).await?;
        Ok(Answer::Rows(found.rows, limit, false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_terminal::shell::help::check;
    use runner::Session as _;

    #[test]
    fn statements_are_parsed_and_each_mistake_is_named() {
        let parsed = Session::parse("set a \"b c\"; getrange a b 3;").expect("parses");
        let range = Statement::GetRange("a".into(), Some("b".into()), 3);
        assert_eq!(parsed, [Statement::Set("a".into(), "b c".into()), range]);
        for (text, word) in [
            ("get", "usage: get KEY"),
            ("fly", "fly"),
            ("gte a", "did you mean `get'?"),
            ("getrange a b 0", "limit"),
            ("set 'x' 1", "double quotes"),
        ] {
            let error = Session::parse(text).expect_err(text);
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn every_statement_is_in_a_group_on_one_screen_and_has_a_page_and_an_example() {
        check(&HELP, |of| help(Some(of).filter(|of| !of.is_empty())));
        for page in HELP.pages() {
            let found = Session::parse(page.example);
            assert!(found.is_ok(), "{}: {found:?}", page.example);
        }
        let line = help(Some("rolback")).expect_err("there is none");
        assert!(line.ends_with("did you mean `rollback'?"), "{line}");
    }
}
