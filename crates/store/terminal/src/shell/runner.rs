//! Runs the statements of a session: given on the command line, on standard input, or typed by a person. Lines are
//! read beside the event loop, which goes on meanwhile.

use super::answer::{Answer, Form};
use super::editor::{self, Editor, Typed};
use super::input::Input;
use super::lines::{Lines, Then, is_comment};
use super::pager;
pub use super::session::Session;
use crate::text::without_mark;
use crate::{Outcome, interrupts, system_errors, wrap};
use plinth_runtime::real::interrupted_by_user;
use plinth_runtime::{Either, race};
use std::collections::VecDeque;
use std::io::IsTerminal;

/// The prompt where a statement goes on.
const GOES_ON: &str = "  ...";

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

/// The outcome of a shell. With `Form::Json` the error is the answer of the statement that has failed: an object on
/// standard output.
pub fn told(outcome: Outcome, form: Form) -> Outcome {
    match outcome {
        Err(line) if form == Form::Json && !line.is_empty() => {
            print(&serde_json::json!({"error": system_errors::explained(&line)}).to_string());
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
    if S::HAS_LONG_STATEMENTS {
        let mut input = Input::new()?;
        while let Some((number, text)) = input.statements::<S>().await? {
            let at = |error| placed(&format!("line {number}"), error);
            if !execute_all(session, &text, form).await.map_err(at)? {
                break;
            }
        }
        return Ok(());
    }
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
    let (mut lines, mut left) = (Lines::<S>::new(), VecDeque::<String>::new());
    loop {
        if left.is_empty() {
            session.look();
            let prompt = match lines.are_open() {
                true => GOES_ON,
                false => session.prompt(),
            };
            let (typed, returned) = editor::read_line(editor, prompt).await?;
            editor = returned;
            match typed {
                // What was pasted has several.
                Typed::Lines(text) => {
                    let text = text.trim_end_matches('\n');
                    left.extend(text.split('\n').map(str::to_owned));
                }
                Typed::GivenUp => drop(lines.take()),
                Typed::End => return Ok(()),
            }
        }
        let Some(text) = next_statements(&mut lines, &mut left, &mut editor) else {
            continue;
        };
        match carry_out(session, &text, form).await {
            Done::All => {}
            Done::Left => return Ok(()),
            Done::Interrupted => {
                editor.forget_ahead();
                left.clear();
            }
        }
    }
}

/// The next statements of the lines that are left; `None` if more lines are to come.
fn next_statements<S: Session>(
    lines: &mut Lines<S>,
    left: &mut VecDeque<String>,
    editor: &mut Editor,
) -> Option<String> {
    while let Some(line) = left.pop_front() {
        if is_comment(&line) && !lines.are_in_quotes() {
            continue;
        }
        let is_whole = match lines.push(&line) {
            Then::Run => true,
            Then::Wait => false,
            Then::Ask => {
                if left.is_empty() {
                    left.extend(editor.typed_ahead(GOES_ON));
                }
                !left.front().is_some_and(|next| lines.is_continued_by(next))
            }
        };
        if is_whole {
            return Some(lines.take());
        }
    }
    None
}

/// How statements of a person have ended.
enum Done {
    /// They are done, or one has failed.
    All,
    /// The user leaves.
    Left,
    Interrupted,
}

/// Does what a person wants, and prints answers and an error.
async fn carry_out<S: Session>(session: &mut S, text: &str, form: Form) -> Done {
    let failed = |error: &str| crate::say!("ERROR: {}", system_errors::explained(error));
    let statements = match S::parse(text) {
        Ok(statements) => statements,
        Err(error) => {
            failed(&error);
            return Done::All;
        }
    };
    for statement in statements {
        if S::is_exit(&statement) {
            return Done::Left;
        }
        match until_interrupted(session.execute(statement)).await {
            Some(Ok(Answer::Page(text))) if form == Form::Text => pager::show(&text).await,
            Some(Ok(answer)) => show(&answer, form),
            Some(Err(error)) => {
                failed(&error);
                interrupts::forget(); // it was one statement's
                break;
            }
            None => {
                failed(&interrupted(session));
                interrupts::forget();
                return Done::Interrupted;
            }
        }
    }
    Done::All
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
