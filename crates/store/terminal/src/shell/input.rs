//! Lines of standard input, each with its number, for statements that may take up several. A thread of its own reads
//! them, so that whoever waits for the next line does not hold up the end of the process.

use super::lines::{Lines, Then, is_comment};
use super::session::Session;
use crate::Outcome;
use crate::text::without_mark;
use plinth_runtime::{Duration, timeout};
use tokio::sync::mpsc;

/// A line that goes on with the one before is there by now, unless a person writes it.
const NEXT_LIMIT: Duration = Duration::from_millis(100);
/// Lines that are read before somebody wants them.
const AHEAD_MAX: usize = 16;

pub struct Input {
    lines: mpsc::Receiver<Outcome<String>>,
    /// A line that was looked at, and is the next one.
    looked_at: Option<Outcome<String>>,
    /// Of the last line that was taken, from 1.
    number: u64,
}

impl Input {
    /// Of standard input, which nobody else reads.
    pub fn new() -> Outcome<Input> {
        let (sender, lines) = mpsc::channel(AHEAD_MAX);
        let reads = move || {
            loop {
                let mut line = String::new();
                let read = std::io::stdin().read_line(&mut line);
                let read = read.map_err(|error| format!("standard input: {error}"));
                let is_last = !matches!(read, Ok(1..));
                let line = read.map(|_| without_mark(&line).to_owned());
                let is_end = matches!(&line, Ok(line) if line.is_empty()) && is_last;
                // It fails if the shell has ended.
                if is_end || sender.blocking_send(line).is_err() || is_last {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("input".into());
        #[expect(
            clippy::disallowed_methods,
            reason = "the thread has no event loop, and may be left behind"
        )]
        let started = thread.spawn(reads);
        started.map_err(|error| format!("cannot start a thread: {error}"))?;
        Ok(Input {
            lines,
            looked_at: None,
            number: 0,
        })
    }

    async fn line(&mut self) -> Outcome<Option<String>> {
        let line = match self.looked_at.take() {
            Some(line) => Some(line),
            None => self.lines.recv().await,
        };
        self.number += 1;
        line.transpose()
    }

    /// The next line, if it is there.
    async fn look(&mut self) -> Option<&str> {
        if self.looked_at.is_none() {
            self.looked_at = timeout(NEXT_LIMIT, self.lines.recv()).await.flatten();
        }
        self.looked_at.as_ref()?.as_deref().ok()
    }

    /// The next statements, and the number of their first line; `None` at the end.
    pub async fn statements<S: Session>(&mut self) -> Outcome<Option<(u64, String)>> {
        let (mut lines, mut first) = (Lines::<S>::new(), None);
        while let Some(line) = self.line().await? {
            if is_comment(&line) && !lines.are_in_quotes() {
                continue;
            }
            let first = *first.get_or_insert(self.number);
            let is_whole = match lines.push(&line) {
                Then::Run => true,
                Then::Wait => false,
                Then::Ask => match self.look().await {
                    Some(next) => !lines.is_continued_by(next),
                    None => true,
                },
            };
            if is_whole {
                return Ok(Some((first, lines.take())));
            }
        }
        Ok(first.map(|first| (first, lines.take())))
    }
}
