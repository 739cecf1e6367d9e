//! What a shell is of: a language, and who carries its statements out.

use super::answer::Answer;
use super::complete::Completer;
use crate::Outcome;

/// What understands and executes statements.
#[allow(async_fn_in_trait)] // all tasks of a process share one thread
pub trait Session {
    /// Whether a statement may take up several lines.
    const HAS_LONG_STATEMENTS: bool = false;

    type Statement;

    /// Completes the lines of a person.
    fn completer(&self) -> Completer;

    /// Begins to look for what the completer should know. Called before each prompt, which does not wait for it.
    fn look(&self) {}

    /// All statements of a text. After an error none of them runs.
    fn parse(text: &str) -> Outcome<Vec<Self::Statement>>;

    /// Whether the text is the begin of statements and none yet, of a session that has such of several lines.
    fn is_begun(_text: &str) -> bool {
        false
    }

    fn is_exit(statement: &Self::Statement) -> bool;

    fn prompt(&self) -> &'static str;

    /// Whether statements up to now wait for a commit. Who interrupts one is told.
    fn has_transaction(&self) -> bool {
        false
    }

    async fn execute(&mut self, statement: Self::Statement) -> Outcome<Answer>;
}
