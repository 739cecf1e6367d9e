//! Statements of several lines, for shells whose language has them ([`Session::is_begun`]). Lines come in the same way
//! from a terminal, from a paste and from standard input:
//!
//! ```text
//! a line that is whole                     is carried out, with a `;' at its end or without
//! one that is whole, without a `;', before one that goes on with it      both are one statement, which goes on
//! one that is not whole                    goes on with the lines behind it, to a `;' at the end of a line, to an
//!                                          empty line, or to the end of the input
//! ```
//!
//! Only whether a line goes on with the one before depends on what is there already: nobody waits for a person.

use super::session::Session;
use std::marker::PhantomData;

/// A longer statement is carried out as far as it came: it is none.
const BYTES_MAX: usize = 16 << 20;

/// The lines of the statements that have begun.
pub struct Lines<S> {
    text: String,
    /// The last line ends within these quotes.
    quote: Option<char>,
    /// They go on to a `;' or to an empty line.
    goes_on: bool,
    language: PhantomData<S>,
}

/// Whether nothing is to be done: people explain their files of statements.
pub fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with('#')
}

/// What to do after a line.
#[derive(PartialEq, Eq, Debug)]
pub enum Then {
    /// Nothing: more lines are to come.
    Wait,
    /// [`Lines::is_continued_by`] says whether the next line belongs to it, if that is there already.
    Ask,
    /// Carry out what was [taken](Lines::take).
    Run,
}

impl<S: Session> Lines<S> {
    pub fn new() -> Lines<S> {
        Lines {
            text: String::new(),
            quote: None,
            goes_on: false,
            language: PhantomData,
        }
    }

    /// Whether a statement has begun that is not whole.
    pub fn are_open(&self) -> bool {
        self.goes_on
    }

    /// Whether the next line begins within quotes.
    pub fn are_in_quotes(&self) -> bool {
        self.quote.is_some()
    }

    /// Adds a line, without its end or with it.
    pub fn push(&mut self, line: &str) -> Then {
        let line = line.trim_end_matches(['\n', '\r']);
        // Somebody gives it up, or has meant its end.
        let is_empty = line.trim().is_empty() && self.quote.is_none();
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text.push_str(line);
        self.quote = quote_after(self.quote, line);
        let is_ended = self.quote.is_none() && line.trim_end().ends_with(';');
        if !S::HAS_LONG_STATEMENTS || is_empty || self.text.len() > BYTES_MAX {
            return Then::Run;
        }
        match self.goes_on {
            true if is_ended => Then::Run,
            true => Then::Wait,
            false if S::is_begun(&self.text) => {
                self.goes_on = true;
                Then::Wait
            }
            false if is_ended || S::parse(&self.text).is_err() => Then::Run,
            false => Then::Ask,
        }
    }

    /// Whether `next` goes on with what is whole without it: together they are statements, and it alone is none.
    pub fn is_continued_by(&mut self, next: &str) -> bool {
        if next.trim().is_empty() || S::parse(next).is_ok() || S::is_begun(next) {
            return false;
        }
        let both = format!("{}\n{next}", self.text);
        self.goes_on = S::is_begun(&both) || S::parse(&both).is_ok_and(|all| !all.is_empty());
        self.goes_on
    }

    /// The lines, of which there are none from now on.
    pub fn take(&mut self) -> String {
        std::mem::replace(self, Lines::new()).text
    }
}

/// The quote within which a line ends that begins within `open`. One that is written twice closes and opens.
fn quote_after(open: Option<char>, line: &str) -> Option<char> {
    let quotes = line.chars().filter(|letter| matches!(letter, '\'' | '"'));
    quotes.fold(open, |open, letter| match open {
        None => Some(letter),
        Some(quote) if quote == letter => None,
        within => within,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Outcome;
    use crate::shell::answer::Answer;
    use crate::shell::complete::Completer;

    /// A language of statements `all` and `some of NAME [and NAME …]`.
    struct Toy;

    impl Session for Toy {
        const HAS_LONG_STATEMENTS: bool = true;
        type Statement = String;

        fn completer(&self) -> Completer {
            unreachable!("nobody completes")
        }

        fn parse(text: &str) -> Outcome<Vec<String>> {
            let statements = text.split(';').map(str::trim).filter(|one| !one.is_empty());
            let is_one = |one: &str| match &one.split_whitespace().collect::<Vec<_>>()[..] {
                ["all"] => true,
                ["some", "of", first, rest @ ..] => {
                    *first != "and"
                        && rest
                            .chunks(2)
                            .all(|two| matches!(two, ["and", name] if *name != "and"))
                }
                _ => false,
            };
            let all = statements.map(|one| match is_one(one) {
                true => Ok(one.split_whitespace().collect::<Vec<_>>().join(" ")),
                false => Err(format!("{one}: it is no statement")),
            });
            all.collect()
        }

        fn is_begun(text: &str) -> bool {
            let last = text.rsplit(';').next().unwrap_or_default().trim();
            text.matches('\'').count() % 2 == 1
                || last == "some"
                || last.starts_with("some of") && (last.ends_with("of") || last.ends_with("and"))
        }

        fn is_exit(_: &String) -> bool {
            false
        }

        fn prompt(&self) -> &'static str {
            "toy"
        }

        async fn execute(&mut self, _: String) -> Outcome<Answer> {
            unreachable!("nobody executes")
        }
    }

    /// What is carried out of lines that are all there, each with the lines that it has.
    fn run(text: &str) -> Vec<Outcome<Vec<String>>> {
        let (mut lines, mut done) = (Lines::<Toy>::new(), Vec::new());
        let mut rest = text.lines().peekable();
        while let Some(line) = rest.next() {
            let is_run = match lines.push(line) {
                Then::Run => true,
                Then::Wait => false,
                Then::Ask => !rest.peek().is_some_and(|next| lines.is_continued_by(next)),
            };
            if is_run {
                done.push(Toy::parse(&lines.take()));
            }
        }
        if lines.are_open() {
            done.push(Toy::parse(&lines.take()));
        }
        done
    }

    #[test]
    fn a_line_is_a_statement_and_one_that_is_not_whole_goes_on() {
        let one = |text: &str| vec![Ok(vec![text.to_owned()])];
        assert_eq!(run("all"), one("all"));
        assert_eq!(run("all;"), one("all"));
        assert_eq!(run("some\nof a;"), one("some of a"));
        assert_eq!(
            run("some\n  of a\n  and b\n  and c;"),
            one("some of a and b and c")
        );
        // The first line is whole: the second one would lose what it says.
        assert_eq!(run("some of a\nand b;"), one("some of a and b"));
        assert_eq!(run("some of a\nand\nb;"), one("some of a and b"));
        // To the end of the input, or to an empty line.
        assert_eq!(run("some\nof a"), one("some of a"));
        assert_eq!(
            run("some\nof a\n\nall")[0],
            Ok(vec!["some of a".to_owned()])
        );
        assert_eq!(run("all\nall"), [one("all"), one("all")].concat());
        assert_eq!(
            run("all; some\nof b;"),
            [Ok(vec!["all".to_owned(), "some of b".to_owned()])]
        );
    }

    #[test]
    fn a_statement_that_is_given_up_is_an_error_and_what_follows_is_another() {
        let done = run("some\n\nall;");
        assert!(done[0].is_err() && done[1].is_ok(), "{done:?}");
        let done = run("none\nall");
        assert!(done[0].is_err() && done[1].is_ok(), "{done:?}");
    }

    #[test]
    fn a_semicolon_or_an_empty_line_in_quotes_ends_nothing() {
        let mut lines = Lines::<Toy>::new();
        assert_eq!(lines.push("some of 'a;"), Then::Wait);
        assert_eq!(lines.push(""), Then::Wait);
        assert_eq!(lines.push("it''s;"), Then::Wait);
        assert_eq!(lines.push("' and \"b'\";"), Then::Run);
        assert_eq!(lines.take(), "some of 'a;\n\nit''s;\n' and \"b'\";");
        assert!(!lines.are_open());
    }

    #[test]
    fn a_statement_without_an_end_is_bounded() {
        let mut lines = Lines::<Toy>::new();
        let long = format!("some of {} and", "a".repeat(BYTES_MAX / 4));
        let ends = (0..8).any(|_| lines.push(&long) == Then::Run);
        assert!(ends);
    }
}
