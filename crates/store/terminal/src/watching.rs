//! A screen that is updated again and again, or printed once: `top` of any system.

use crate::seconds::in_bounds;
use crate::{Outcome, interrupts};
use crossterm::event::{self, Event, KeyCode, KeyModifiers};
use crossterm::{cursor, execute, terminal};
use plinth_runtime::{Duration, Either, race, sleep};
use serde_json::Value;
use std::cell::Cell;
use std::io::{IsTerminal, Write, stdout};
use std::pin::Pin;

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

    pub fn is_once(&self) -> bool {
        self.once || self.json || !stdout().is_terminal()
    }
}

/// The lines of the screen, what they are made of, and the verdict of a command that looks once.
pub type Seen = (Vec<String>, Value, Outcome);

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
        let (lines, document, verdict) = watched.look().await?;
        match how.json {
            true => println!("{document}"),
            false => println!("{}", cut(lines, WIDTH).join("\n")),
        }
        return verdict;
    }
    let screen = Screen::enter()?;
    draw(&["waiting for an answer; q ends".into()]);
    let (is_control_c, has_seen) =
        show_until(keys_that_quit(), how.interval(), watched, draw).await;
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
    draw: impl Fn(&[String]),
) -> (T, bool) {
    let has_seen = Cell::new(false);
    let showing = async {
        loop {
            let lines = match watched.look().await {
                Ok((lines, ..)) => {
                    has_seen.set(true);
                    cut(lines, width())
                }
                // What is watched may come back, so show the error and continue.
                Err(line) => vec![line],
            };
            draw(&lines);
            sleep(interval).await;
        }
    };
    match race(enough, showing).await {
        Either::Left(how) => (how, has_seen.get()),
        Either::Right(never) => never,
    }
}

/// The lines, no longer than a screen is wide.
pub fn cut(lines: Vec<String>, width: usize) -> Vec<String> {
    let cut = |line: String| line.chars().take(width).collect();
    lines.into_iter().map(cut).collect()
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

fn width() -> usize {
    columns().map_or(WIDTH, usize::from)
}

/// Of the terminal, if there is one.
pub fn columns() -> Option<u16> {
    terminal::size().ok().map(|(columns, _)| columns)
}

fn draw(lines: &[String]) {
    let rows = terminal::size().map_or(lines.len(), |(_, rows)| usize::from(rows));
    let mut out = stdout().lock();
    let _ = execute!(out, terminal::Clear(terminal::ClearType::All));
    for (row, line) in lines.iter().take(rows).enumerate() {
        let _ = execute!(out, cursor::MoveTo(0, row as u16));
        let _ = write!(out, "{line}");
    }
    let _ = out.flush();
}

/// Waits until the user presses q, escape or control-c, and says whether it was the last.
async fn keys_that_quit() -> bool {
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
}
