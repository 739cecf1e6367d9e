//! What people, or programs at a terminal, type ahead. The editor takes all keys that wait as one batch. It ends the
//! line at the first Enter, and knows as such only the carriage return: behind a line feed it would drop the rest of
//! the batch. Line feeds come from programs, and from keys that were typed while a statement ran.
//!
//! ```text
//! keys of a batch ──► the editor, up to a line feed
//!                └──► kept behind it ──► the next lines
//! ```

use crossterm::event::{Event, KeyCode, KeyEvent, KeyModifiers};
use reedline::{EditMode, PromptEditMode, ReedlineEvent, ReedlineRawEvent};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Ctrl-D: the end of the input, on a line of its own.
const END: char = '\u{4}';

/// What was typed ahead, and the editor has not seen.
#[derive(Clone, Default)]
pub struct Ahead(Arc<Mutex<Typed>>);

#[derive(Default)]
struct Typed {
    /// A line feed came in the batch that is read now.
    has_ended: bool,
    text: String,
}

/// What comes next, before the editor reads.
#[derive(PartialEq, Eq, Debug)]
pub enum Next {
    Line(String),
    End,
    /// The begin of the line that the editor reads.
    Begin(String),
}

impl Ahead {
    fn typed(&self) -> MutexGuard<'_, Typed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn take(&self) -> Next {
        let mut typed = self.typed();
        if let Some(rest) = typed.text.strip_prefix(END) {
            typed.text = rest.to_owned();
            return Next::End;
        }
        match typed.text.split_once('\n') {
            Some((line, rest)) => {
                let (line, rest) = (line.replace(END, ""), rest.to_owned());
                typed.text = rest;
                Next::Line(line)
            }
            None => Next::Begin(std::mem::take(&mut typed.text).replace(END, "")),
        }
    }

    /// The next line, if it is whole.
    pub fn take_line(&self) -> Option<String> {
        let is_line = self.typed().text.contains('\n');
        match is_line.then(|| self.take())? {
            Next::Line(line) => Some(line),
            // The end of the input comes before the line.
            Next::End => {
                let mut typed = self.typed();
                typed.text.insert(0, END);
                None
            }
            Next::Begin(_) => None,
        }
    }

    /// After Ctrl-C.
    pub fn forget(&self) {
        self.typed().text.clear();
    }

    /// True if the key is behind the end of a line: then it is kept.
    fn keeps(&self, event: &Event) -> bool {
        let mut typed = self.typed();
        if !typed.has_ended {
            typed.has_ended = is_line_feed(event);
            return false;
        }
        push(&mut typed.text, event);
        true
    }

    fn end_batch(&self) {
        self.typed().has_ended = false;
    }
}

fn is_line_feed(event: &Event) -> bool {
    let feed = KeyEvent::new(KeyCode::Char('j'), KeyModifiers::CONTROL);
    matches!(event, Event::Key(key) if (key.code, key.modifiers) == (feed.code, feed.modifiers))
}

fn push(text: &mut String, event: &Event) {
    let key = match event {
        // Terminals send lines as the key for Enter ends them.
        Event::Paste(pasted) => {
            return text.push_str(&pasted.replace("\r\n", "\n").replace('\r', "\n"));
        }
        Event::Key(key) => key,
        _ => return,
    };
    match (key.code, key.modifiers) {
        (KeyCode::Char(letter), KeyModifiers::NONE | KeyModifiers::SHIFT) => text.push(letter),
        (KeyCode::Tab, _) => text.push(' '),
        (KeyCode::Char('d'), KeyModifiers::CONTROL) => text.push(END),
        (KeyCode::Char('c'), KeyModifiers::CONTROL) => text.clear(),
        (KeyCode::Backspace, _) if !text.ends_with('\n') => {
            text.pop();
        }
        (KeyCode::Enter, _) => text.push('\n'),
        _ if is_line_feed(event) => text.push('\n'),
        _ => {} // it moves in a line, or in the history
    }
}

/// Keys of an editor that keep what was typed ahead.
pub struct Keys<M> {
    pub keys: M,
    pub ahead: Ahead,
}

impl<M: EditMode> EditMode for Keys<M> {
    fn parse_event(&mut self, raw: ReedlineRawEvent) -> ReedlineEvent {
        let event = Event::from(raw);
        if self.ahead.keeps(&event) {
            return ReedlineEvent::None;
        }
        let raw = ReedlineRawEvent::try_from(event).expect("it was one");
        self.keys.parse_event(raw)
    }

    /// The editor asks for it when it has parsed a batch.
    fn edit_mode(&self) -> PromptEditMode {
        self.ahead.end_batch();
        self.keys.edit_mode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reedline::Emacs;

    fn key(letter: char) -> Event {
        let (code, modifiers) = match letter {
            '\n' => (KeyCode::Char('j'), KeyModifiers::CONTROL),
            '\r' => (KeyCode::Enter, KeyModifiers::NONE),
            END => (KeyCode::Char('d'), KeyModifiers::CONTROL),
            '\u{8}' => (KeyCode::Backspace, KeyModifiers::NONE),
            letter => (KeyCode::Char(letter), KeyModifiers::NONE),
        };
        Event::Key(KeyEvent::new(code, modifiers))
    }

    fn typed(keys: &mut Keys<Emacs>, text: &str) {
        for letter in text.chars() {
            let raw = ReedlineRawEvent::try_from(key(letter)).expect("a key");
            keys.parse_event(raw);
        }
        keys.edit_mode();
    }

    #[test]
    fn lines_that_were_typed_ahead_come_one_after_another() {
        let ahead = Ahead::default();
        let mut keys = Keys {
            keys: Emacs::default(),
            ahead: ahead.clone(),
        };
        typed(&mut keys, "get a\nset b 1\nset bb\u{8} 2\r\nge");
        let line = |text: &str| Next::Line(text.into());
        let begin = |text: &str| Next::Begin(text.into());
        assert_eq!(
            [(); 4].map(|()| ahead.take()),
            [line("set b 1"), line("set b 2"), line(""), begin("ge")]
        );
        assert_eq!(ahead.take(), begin(""));

        // A batch without a line feed is the editor's, and what comes behind one in another batch.
        typed(&mut keys, "get a\rset");
        typed(&mut keys, "\n");
        typed(&mut keys, "x");
        assert_eq!(ahead.take(), begin(""));

        typed(&mut keys, "a\nb\n\u{4}");
        assert_eq!([ahead.take(), ahead.take()], [line("b"), Next::End]);
        typed(&mut keys, "a\nb\nc");
        ahead.forget();
        assert_eq!(ahead.take(), begin(""));
    }
}
