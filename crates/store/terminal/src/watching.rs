//! A screen that is updated again and again, or printed once: `top` of any system.

pub mod table;

use crate::seconds::in_bounds;
pub use crate::wrap::columns;
use crate::wrap::wrapped;
use crate::{Outcome, interrupts};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use crossterm::{cursor, execute, terminal};
use plinth_runtime::{Duration, Either, Instant, now, race, sleep};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io::{IsTerminal, Write, stdout};
use std::pin::Pin;
use table::{Order, Table};

/// Interval between checks of the keyboard.
const KEYS_INTERVAL: Duration = Duration::from_millis(50);
/// Who waits for an answer for so long is told why.
const PATIENCE: Duration = Duration::from_secs(1);
/// Interval between two questions why there is no answer.
const WHY_INTERVAL: Duration = Duration::from_secs(1);
/// Width in columns if there is no terminal.
const WIDTH: usize = 160;

#[derive(clap::Args, Debug)]
pub struct How {
    /// Seconds between two updates
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0, value_parser = parse_interval)]
    interval: f64,
    /// Print once and exit, as without a terminal
    #[arg(long)]
    once: bool,
    /// Print once what the screen is made of, as JSON, and exit
    #[arg(long)]
    json: bool,
}

impl How {
    pub fn interval(&self) -> Duration {
        Duration::from_secs_f64(self.interval)
    }

    /// Columns for what is shown.
    pub fn width(&self) -> usize {
        let of_screen = columns().filter(|_| !self.is_once());
        of_screen.map_or(WIDTH, usize::from)
    }

    pub fn is_once(&self) -> bool {
        self.once || self.json || !stdout().is_terminal()
    }
}

/// What the screen shows, what it is made of, and the verdict of a command that looks once.
pub type Seen = (Shown, Value, Outcome);

/// What a screen shows: lines that stay, and below them a table, or lines, that are moved through.
#[derive(Default)]
pub struct Shown {
    pub head: Vec<String>,
    pub table: Option<Table>,
    pub lines: Vec<String>,
    /// Above all: what is to be read first. It is folded to the width.
    pub note: String,
}

/// How the user looks at it.
#[derive(Clone, Default)]
struct View {
    order: Order,
    /// The first row that is seen.
    from: usize,
}

/// What is looked at again and again.
pub trait Watched {
    /// Looks once. It ends with the line of a command that gives up when the time-out of the command has passed.
    fn look(&self) -> Pin<Box<dyn Future<Output = Outcome<Seen>> + '_>>;

    /// Why a look takes long, as far as is known.
    fn why(&self) -> Pin<Box<dyn Future<Output = Option<String>> + '_>>;
}

fn parse_interval(text: &str) -> Result<f64, String> {
    in_bounds(text, 0.1, 3600.0)
}

/// Shows what `watched` sees, again and again, or once; then its verdict is the command's. A screen that has never had
/// an answer ends with the line of the look, when that gives up; one that has had some goes on.
pub async fn watch(how: &How, watched: &dyn Watched) -> Outcome {
    if how.is_once() {
        let (shown, document, verdict) = watched.look().await?;
        match how.json {
            true => println!("{document}"),
            false => println!("{}", all_lines(&shown, WIDTH).join("\n")),
        }
        return verdict;
    }
    let screen = Screen::enter()?;
    let (shown, view) = (
        RefCell::new(Shown::default()),
        RefCell::new(View::default()),
    );
    let draw = || {
        let size = terminal::size().map_or((WIDTH, usize::MAX), |(w, h)| (w.into(), h.into()));
        draw(&screenful(&shown.borrow(), &mut view.borrow_mut(), size));
    };
    let press = |key: KeyEvent| {
        if moves(&mut view.borrow_mut(), key, &shown.borrow()) {
            draw();
        }
    };
    let show = |news: News| {
        match news {
            News::Picture(new) => drop(shown.replace(new)),
            News::Note(note) => shown.borrow_mut().note = note,
        }
        draw();
    };
    show(News::Note("waiting for an answer".into()));
    let ended = show_until(keys_that_quit(press), how.interval(), watched, show).await;
    drop(screen);
    match ended {
        Ended::GaveUp(line) => Err(line),
        Ended::Unanswered(true, _) => {
            interrupts::note();
            Err(interrupts::WAITING.into())
        }
        // The screen is gone, and with it what it has said.
        Ended::Unanswered(false, why) => Err(why.unwrap_or_else(|| UNANSWERED.into())),
        Ended::Seen => Ok(()),
    }
}

const UNANSWERED: &str = "it was ended before there was an answer";

/// What a screen is told to show.
enum News {
    Picture(Shown),
    /// Above what is there.
    Note(String),
}

/// How a screen ends.
#[derive(PartialEq, Debug)]
enum Ended<T> {
    /// The user had enough, who has seen something.
    Seen,
    /// The user had enough of waiting for an answer, which was not there for this reason.
    Unanswered(T, Option<String>),
    /// There was no answer in time: the line of the command.
    GaveUp(String),
}

/// Shows what `watched` sees, until the user has enough, also of waiting for an answer, or until the first look gives
/// up.
async fn show_until<T>(
    enough: impl Future<Output = T>,
    interval: Duration,
    watched: &dyn Watched,
    show: impl Fn(News),
) -> Ended<T> {
    // When there was an answer for the last time, and why there is none.
    let (seen, last_why) = (Cell::new(None), RefCell::new(None));
    let showing = async {
        loop {
            let telling = tell_why(watched, &seen, &last_why, &show);
            match race(watched.look(), telling).await {
                Either::Left(Ok((shown, ..))) => {
                    seen.set(Some(now()));
                    show(News::Picture(shown));
                }
                Either::Left(Err(line)) => match seen.get() {
                    None => return line,
                    // What is watched may come back.
                    Some(at) => show(News::Note(without_answer(at, &line))),
                },
                Either::Right(never) => match never {},
            }
            sleep(interval).await;
        }
    };
    match race(enough, showing).await {
        Either::Left(_) if seen.get().is_some() => Ended::Seen,
        Either::Left(how) => Ended::Unanswered(how, last_why.take()),
        Either::Right(line) => Ended::GaveUp(line),
    }
}

/// Says again and again why a look takes long.
async fn tell_why(
    watched: &dyn Watched,
    seen: &Cell<Option<Instant>>,
    last_why: &RefCell<Option<String>>,
    show: &impl Fn(News),
) -> Infallible {
    sleep(PATIENCE).await;
    loop {
        let why = watched.why().await;
        match (seen.get(), &why) {
            (Some(at), why) => {
                let why = why.as_deref().unwrap_or("it takes long");
                show(News::Note(without_answer(at, why)));
            }
            (None, Some(why)) => show(News::Note(format!("waiting for an answer: {why}"))),
            (None, None) => {}
        }
        if why.is_some() {
            last_why.replace(why);
        }
        sleep(WHY_INTERVAL).await;
    }
}

/// What stands above the last picture.
fn without_answer(since: Instant, why: &str) -> String {
    let seconds = now().saturating_since(since).as_secs();
    format!("OLD: no answer for {seconds} s, and this is the last one: {why}")
}

/// Everything, without a screen.
fn all_lines(shown: &Shown, width: usize) -> Vec<String> {
    screenful(shown, &mut View::default(), (width, usize::MAX))
}

/// What a screen of so many columns and rows shows. The view is moved to where there is something.
fn screenful(shown: &Shown, view: &mut View, (width, height): (usize, usize)) -> Vec<String> {
    let mut screen = wrapped(shown.note.split_whitespace(), width);
    screen.extend(shown.head.iter().cloned());
    let mut rows = shown.lines.clone();
    if let Some(table) = &shown.table {
        let (titles, lines) = table.lines(width, view.order);
        screen.extend([String::new(), titles]);
        rows = lines;
    }
    let room = height.saturating_sub(screen.len() + 1).max(1);
    view.from = view.from.min(rows.len().saturating_sub(room));
    let (from, all) = (view.from, rows.len());
    let to = (from.saturating_add(room)).min(all);
    screen.extend(rows.drain(from..to));
    if height != usize::MAX {
        screen.resize(height.saturating_sub(1), String::new());
        screen.push(footer(shown, view, from + 1..to, all));
    }
    let cut = |line: String| line.chars().take(width).collect();
    screen.into_iter().map(cut).collect()
}

/// What the keys do, and where the view is.
fn footer(shown: &Shown, view: &View, seen: std::ops::Range<usize>, all: usize) -> String {
    let mut parts = vec!["q ends".to_owned()];
    if let Some(table) = &shown.table {
        let column = table.columns.get(view.order.column);
        let title = column.map_or("", |column| column.title);
        parts.push(format!("s sorts: {title}"));
        parts.push("r turns".into());
    }
    if (seen.end + 1).saturating_sub(seen.start) < all {
        parts.push(format!(
            "{}-{} of {all}: arrows, page keys",
            seen.start, seen.end
        ));
    }
    parts.join("   ")
}

/// Moves the view as a key says. False if it says nothing.
fn moves(view: &mut View, key: KeyEvent, shown: &Shown) -> bool {
    const PAGE: usize = 10;
    match key.code {
        KeyCode::Down | KeyCode::Char('j') => view.from = view.from.saturating_add(1),
        KeyCode::Up | KeyCode::Char('k') => view.from = view.from.saturating_sub(1),
        KeyCode::PageDown | KeyCode::Char(' ') => view.from = view.from.saturating_add(PAGE),
        KeyCode::PageUp => view.from = view.from.saturating_sub(PAGE),
        KeyCode::Home => view.from = 0,
        KeyCode::End => view.from = usize::MAX,
        KeyCode::Char('r') => view.order.is_turned = !view.order.is_turned,
        KeyCode::Char('s') => {
            let columns = shown.table.as_ref().map_or(1, |table| table.columns.len());
            view.order.column = (view.order.column + 1) % columns;
        }
        _ => return false,
    }
    true
}

/// The terminal's alternate screen, until it is dropped.
struct Screen;

impl Screen {
    fn enter() -> Outcome<Screen> {
        let entered = terminal::enable_raw_mode()
            .and_then(|()| execute!(stdout(), terminal::EnterAlternateScreen, cursor::Hide));
        match entered {
            Ok(()) => Ok(Screen),
            Err(error) => Err(format!("this terminal cannot show it: {error}; try --once")),
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = execute!(stdout(), cursor::Show, terminal::LeaveAlternateScreen);
        let _ = terminal::disable_raw_mode();
    }
}

fn draw(lines: &[String]) {
    let mut out = stdout().lock();
    let _ = execute!(out, terminal::Clear(terminal::ClearType::All));
    for (row, line) in lines.iter().enumerate() {
        let _ = execute!(out, cursor::MoveTo(0, row as u16));
        let _ = write!(out, "{line}");
    }
    let _ = out.flush();
}

/// Waits until the user presses q, escape or control-c, and says whether it was the last. `press` gets the other keys.
async fn keys_that_quit(press: impl Fn(KeyEvent)) -> bool {
    loop {
        while event::poll(Duration::ZERO).unwrap_or(false) {
            let Ok(Event::Key(key)) = event::read() else {
                continue;
            };
            let control_c =
                key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
            if control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                return control_c;
            }
            press(key);
        }
        sleep(KEYS_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers so many times, and is silent then.
    struct Silent {
        answers: Cell<usize>,
        gives_up: bool,
    }

    impl Watched for Silent {
        fn look(&self) -> Pin<Box<dyn Future<Output = Outcome<Seen>> + '_>> {
            Box::pin(async {
                if self.answers.get() > 0 {
                    self.answers.set(self.answers.get() - 1);
                    return Ok((Shown::default(), Value::Null, Ok(())));
                }
                match self.gives_up {
                    true => Err("it does not answer".into()),
                    false => std::future::pending().await,
                }
            })
        }

        fn why(&self) -> Pin<Box<dyn Future<Output = Option<String>> + '_>> {
            Box::pin(async { Some("it is down".into()) })
        }
    }

    fn silent(answers: usize, gives_up: bool) -> Silent {
        Silent {
            answers: Cell::new(answers),
            gives_up,
        }
    }

    /// How the screen of such a thing ends for somebody who has so much patience, and the notes that it has shown.
    fn shown_of(watched: &Silent, patience: Duration) -> (Ended<()>, Vec<String>) {
        let notes = RefCell::new(Vec::new());
        let show = |news| {
            if let News::Note(note) = news {
                notes.borrow_mut().push(note);
            }
        };
        let pause = Duration::from_millis(10);
        let showing = show_until(sleep(patience), pause, watched, show);
        let ended = plinth_runtime::real::block_on(showing);
        (ended, notes.into_inner())
    }

    #[test]
    fn a_screen_ends_while_it_waits_for_an_answer_and_says_why_there_was_none() {
        let shortly = Duration::from_millis(1);
        let (ended, _) = shown_of(&silent(0, false), shortly);
        assert_eq!(ended, Ended::Unanswered((), None));
        let (ended, notes) = shown_of(&silent(0, false), PATIENCE * 3 / 2);
        assert_eq!(ended, Ended::Unanswered((), Some("it is down".into())));
        assert_eq!(notes, ["waiting for an answer: it is down"]);
    }

    #[test]
    fn a_screen_without_a_first_answer_gives_up_when_its_look_does_and_later_it_goes_on_and_marks_the_picture()
     {
        let shortly = Duration::from_millis(100);
        let (ended, _) = shown_of(&silent(0, true), shortly);
        assert_eq!(ended, Ended::GaveUp("it does not answer".into()));
        let (ended, notes) = shown_of(&silent(1, true), shortly);
        assert_eq!(ended, Ended::Seen);
        let line = "OLD: no answer for 0 s, and this is the last one: it does not answer";
        assert!(
            notes.len() > 1 && notes.iter().all(|note| note == line),
            "{notes:?}"
        );
        let (_, notes) = shown_of(&silent(1, false), PATIENCE * 3 / 2);
        assert_eq!(
            notes,
            ["OLD: no answer for 1 s, and this is the last one: it is down"]
        );
    }

    #[test]
    fn a_reason_is_seen_whole_above_the_last_picture() {
        let shown = Shown {
            head: vec!["head".into()],
            note: "waiting for an answer: coordinators tried: 10.0.0.1:4500, 10.0.0.2:4500".into(),
            ..Shown::default()
        };
        let lines = screenful(&shown, &mut View::default(), (40, 10));
        assert_eq!(lines[9], "q ends");
        assert_eq!(
            lines[..4],
            [
                "waiting for an answer: coordinators",
                "tried: 10.0.0.1:4500, 10.0.0.2:4500",
                "head",
                ""
            ]
        );
    }

    #[test]
    fn more_lines_than_a_screen_has_are_moved_through() {
        let shown = Shown {
            head: vec!["head".into()],
            lines: (0..30).map(|line| format!("line {line}")).collect(),
            ..Shown::default()
        };
        let mut view = View::default();
        let mut pressed = |code| {
            moves(&mut view, KeyEvent::new(code, KeyModifiers::NONE), &shown);
            screenful(&shown, &mut view, (40, 10))
        };
        let first = pressed(KeyCode::Up);
        assert_eq!(
            (first.len(), &first[0][..], &first[1][..]),
            (10, "head", "line 0")
        );
        assert_eq!(first[9], "q ends   1-8 of 30: arrows, page keys");
        assert_eq!(pressed(KeyCode::PageDown)[1], "line 10");
        assert_eq!(pressed(KeyCode::End)[8], "line 29");
        assert_eq!(pressed(KeyCode::Up)[8], "line 28");
        assert_eq!(all_lines(&shown, 40).len(), 31);
    }
}
