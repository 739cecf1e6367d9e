//! A screen that is updated again and again, or printed once: `top` of any system.

pub mod table;

use crate::seconds::in_bounds;
use crate::{Outcome, interrupts};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use crossterm::{cursor, execute, terminal};
use plinth_runtime::{Duration, Either, race, sleep};
use serde_json::Value;
use std::cell::{Cell, RefCell};
use std::io::{IsTerminal, Write, stdout};
use std::pin::Pin;
use table::{Order, Table};

/// Interval between checks of the keyboard.
const KEYS_INTERVAL: Duration = Duration::from_millis(50);
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
}

impl Shown {
    fn lines(lines: Vec<String>) -> Shown {
        Shown {
            lines,
            ..Shown::default()
        }
    }
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
    fn look(&mut self) -> Pin<Box<dyn Future<Output = Outcome<Seen>> + '_>>;
}

fn parse_interval(text: &str) -> Result<f64, String> {
    in_bounds(text, 0.1, 3600.0)
}

/// Shows what `watched` sees, again and again, or once; then its verdict is the command's.
pub async fn watch(how: &How, watched: &mut dyn Watched) -> Outcome {
    if how.is_once() {
        let (shown, document, verdict) = watched.look().await?;
        match how.json {
            true => println!("{document}"),
            false => println!("{}", all_lines(&shown, WIDTH).join("\n")),
        }
        return verdict;
    }
    let screen = Screen::enter()?;
    let waiting = Shown::lines(vec!["waiting for an answer; q ends".into()]);
    let (shown, view) = (RefCell::new(waiting), RefCell::new(View::default()));
    let draw = || {
        let size = terminal::size().map_or((WIDTH, usize::MAX), |(w, h)| (w.into(), h.into()));
        draw(&screenful(&shown.borrow(), &mut view.borrow_mut(), size));
    };
    draw();
    let press = |key: KeyEvent| {
        if moves(&mut view.borrow_mut(), key, &shown.borrow()) {
            draw();
        }
    };
    let show = |new: Shown| {
        shown.replace(new);
        draw();
    };
    let quits = keys_that_quit(press);
    let (is_control_c, has_seen) = show_until(quits, how.interval(), watched, show).await;
    drop(screen);
    match is_control_c && !has_seen {
        true => {
            interrupts::note();
            Err(interrupts::WAITING.into())
        }
        false => Ok(()),
    }
}

/// Shows what `watched` sees, until the user has enough, also of waiting for an answer. Gives how he has said so, and
/// whether there was an answer.
async fn show_until<T>(
    enough: impl Future<Output = T>,
    interval: Duration,
    watched: &mut dyn Watched,
    show: impl Fn(Shown),
) -> (T, bool) {
    let has_seen = Cell::new(false);
    let showing = async {
        loop {
            show(match watched.look().await {
                Ok((shown, ..)) => {
                    has_seen.set(true);
                    shown
                }
                // What is watched may come back, so show the error and continue.
                Err(line) => Shown::lines(vec![line]),
            });
            sleep(interval).await;
        }
    };
    match race(enough, showing).await {
        Either::Left(how) => (how, has_seen.get()),
        Either::Right(never) => never,
    }
}

/// Everything, without a screen.
fn all_lines(shown: &Shown, width: usize) -> Vec<String> {
    screenful(shown, &mut View::default(), (width, usize::MAX))
}

/// What a screen of so many columns and rows shows. The view is moved to where there is something.
fn screenful(shown: &Shown, view: &mut View, (width, height): (usize, usize)) -> Vec<String> {
    let mut screen = shown.head.clone();
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
    if seen.end - seen.start + 1 < all {
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

/// Of the terminal, if there is one.
pub fn columns() -> Option<u16> {
    let size = terminal::size().ok();
    // One that does not know has 0.
    size.map(|(columns, _)| columns)
        .filter(|columns| *columns > 0)
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

    struct Silent;

    impl Watched for Silent {
        fn look(&mut self) -> Pin<Box<dyn Future<Output = Outcome<Seen>> + '_>> {
            Box::pin(std::future::pending())
        }
    }

    #[test]
    fn a_screen_ends_while_it_waits_for_an_answer() {
        plinth_runtime::real::block_on(async {
            let enough = sleep(Duration::from_millis(1));
            let ended = show_until(enough, Duration::from_secs(1), &mut Silent, |_| {}).await;
            assert_eq!(ended, ((), false));
        });
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
