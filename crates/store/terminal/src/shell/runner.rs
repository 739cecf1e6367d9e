//! Runs the statements of a session: given on the command line, on standard input, or typed by a person. Lines are
//! read beside the event loop, which goes on meanwhile.

use super::answer::{Answer, Form};
use super::complete::Completer;
use super::editor::{self, Editor};
use super::pager;
use crate::text::without_mark;
use crate::{Outcome, interrupts, wrap};
use plinth_runtime::real::interrupted_by_user;
use plinth_runtime::{Either, race};
use std::io::IsTerminal;

/// What understands and executes statements.
#[allow(async_fn_in_trait)] // all tasks of a process share one thread
pub trait Session {
    type Statement;

    /// Completes the lines of a person.
    fn completer(&self) -> Completer;

    /// Begins to look for what the completer should know. Called before each prompt, which does not wait for it.
    fn look(&self) {}

    /// All statements of a text. After an error none of them runs.
    fn parse(text: &str) -> Outcome<Vec<Self::Statement>>;

    fn is_exit(statement: &Self::Statement) -> bool;

    fn prompt(&self) -> &'static str;

    /// Whether statements up to now wait for a commit. Who interrupts one is told.
    fn has_transaction(&self) -> bool {
        false
    }

    async fn execute(&mut self, statement: Self::Statement) -> Outcome<Answer>;
}

/// Runs `exec`, or what standard input has.
pub async fn run<S: Session>(session: &mut S, exec: Option<&str>, form: Form) -> Outcome {
    match exec {
        Some(text) => execute_all(session, text, form).await.map(drop),
        None if std::io::stdin().is_terminal() => interact(session, form).await,
        None => execute_input(session, form).await,
    }
}

/// Runs statements up to the first that fails; returns false if the user leaves. Of several statements, the error says
/// which one it was.
async fn execute_all<S: Session>(session: &mut S, text: &str, form: Form) -> Outcome<bool> {
    let statements = S::parse(text)?;
    let are_several = statements.len() > 1;
    for (place, statement) in statements.into_iter().enumerate() {
        if S::is_exit(&statement) {
            return Ok(false);
        }
        let at = |line: String| match are_several {
            true => placed(&format!("statement {}", place + 1), line),
            false => line,
        };
        let answer = session.execute(statement).await.map_err(at)?;
        let answer = match form {
            Form::Json => answer.with_verdict(),
            _ => answer,
        };
        show(&answer, form);
        match answer.into_outcome() {
            // The answer says so: each statement has one.
            Err(_) if form == Form::Json => return Err(String::new()),
            outcome => outcome.map_err(at)?,
        }
    }
    Ok(true)
}

/// The line about what has failed there. An empty one was printed already.
pub fn placed(at: &str, line: String) -> String {
    match line.is_empty() {
        true => line,
        false => format!("{at}: {line}"),
    }
}

/// Whether nothing is to be done: people explain their files of statements.
fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with('#')
}

/// The outcome of a shell. With `Form::Json` the error is the answer of the statement that has failed: an object on
/// standard output.
pub fn told(outcome: Outcome, form: Form) -> Outcome {
    match outcome {
        Err(line) if form == Form::Json && !line.is_empty() => {
            print(&serde_json::json!({"error": line}).to_string());
            Err(String::new())
        }
        outcome => outcome,
    }
}

/// The next line of standard input; `None` at its end. The first line may have a byte-order mark, and others, too, if
/// several files come one after another.
pub async fn read_line() -> Outcome<Option<String>> {
    plinth_runtime::offload(|| {
        let mut line = String::new();
        let read = std::io::stdin().read_line(&mut line);
        let read = read.map_err(|error| format!("standard input: {error}"))?;
        Ok((read > 0).then(|| without_mark(&line).to_owned()))
    })
    .await
}

/// Runs statements from standard input, line by line.
async fn execute_input<S: Session>(session: &mut S, form: Form) -> Outcome {
    let mut number = 0u64;
    while let Some(line) = read_line().await? {
        number += 1;
        if is_comment(&line) {
            continue;
        }
        let at = |error| placed(&format!("line {number}"), error);
        if !execute_all(session, &line, form).await.map_err(at)? {
            break;
        }
    }
    Ok(())
}

/// Prompts for statements until the user leaves. Prints an error and continues with the next prompt.
async fn interact<S: Session>(session: &mut S, form: Form) -> Outcome {
    println!(
        "plinth {}: `help' lists the statements, `exit' leaves.",
        env!("CARGO_PKG_VERSION")
    );
    interrupts::are_heard();
    let name = session.prompt().split(' ').next().unwrap_or_default();
    let mut editor = Editor::new(session.completer(), name);
    loop {
        session.look();
        let (line, returned) = editor::read_line(editor, session.prompt()).await?;
        editor = returned;
        let Some(line) = line else { return Ok(()) };
        if is_comment(&line) {
            continue;
        }
        let statements = match S::parse(&line) {
            Ok(statements) => statements,
            Err(error) => {
                crate::say!("ERROR: {error}");
                continue;
            }
        };
        for statement in statements {
            if S::is_exit(&statement) {
                return Ok(());
            }
            let answer = match until_interrupted(session.execute(statement)).await {
                Some(answer) => answer,
                None => {
                    editor.forget_ahead();
                    Err(interrupted(session))
                }
            };
            match answer {
                Ok(Answer::Page(text)) if form == Form::Text => pager::show(&text).await,
                Ok(answer) => show(&answer, form),
                Err(error) => {
                    crate::say!("ERROR: {error}");
                    interrupts::forget(); // it was one statement's
                    break;
                }
            }
        }
    }
}

/// What the statement of a person answers; `None` if Ctrl-C has ended it, and not the shell.
async fn until_interrupted(
    statement: impl Future<Output = Outcome<Answer>>,
) -> Option<Outcome<Answer>> {
    // A statement that knows what an interrupt means for it says so: it comes first.
    match race(statement, interrupted_by_user()).await {
        Either::Left(answer) => Some(answer),
        Either::Right(Ok(())) => None,
        Either::Right(Err(error)) => Some(Err(format!("cannot wait for signals: {error}"))),
    }
}

fn interrupted<S: Session>(session: &S) -> String {
    let open = match session.has_transaction() {
        true => "; the transaction is still open: `commit' or `rollback' ends it",
        false => "",
    };
    format!("interrupted; what the statement had asked for may still be done{open}")
}

/// Prints the answer, and what is for people only on standard error.
fn show(answer: &Answer, form: Form) {
    let text = answer.render(form);
    match form == Form::Text && answer.is_prose() {
        true => wrap::print(&text),
        false => print(&text),
    }
    if let Some(aside) = answer.aside(form) {
        crate::say!("{aside}");
    }
}

fn print(text: &str) {
    if !text.is_empty() {
        println!("{text}");
    }
}
