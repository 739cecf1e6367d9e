//! A program at a terminal of its own, of 80 columns and 24 rows, and what it shows there.

use super::{BINARY, text};
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub const COLUMNS: usize = 80;
const ROWS: usize = 24;
const LOOK: Duration = Duration::from_millis(50);

pub struct Screen {
    script: Child,
    keys: Option<ChildStdin>,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

impl Screen {
    pub fn of(arguments: &[&str]) -> Screen {
        let quoted = arguments.iter().map(|argument| format!(" '{argument}'"));
        let line = format!("stty cols {COLUMNS} rows {ROWS}; exec '{BINARY}'");
        let mut script = Command::new("script")
            .args(["--quiet", "--return", "--command"])
            .args([
                &format!("{line}{}", quoted.collect::<String>()),
                "/dev/null",
            ])
            .env("HOME", "")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("`script' is installed");
        let mut out = script.stdout.take().expect("it is piped");
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let kept = bytes.clone();
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(read @ 1..) = out.read(&mut part) {
                let mut bytes = kept.lock().expect("nobody panics with it");
                bytes.extend_from_slice(&part[..read]);
            }
        });
        Screen {
            keys: script.stdin.take(),
            script,
            bytes,
        }
    }

    pub fn press(&mut self, keys: &str) {
        let input = self.keys.as_mut().expect("it is open");
        input.write_all(keys.as_bytes()).expect("it is read");
        input.flush().expect("it is read");
    }

    /// All that was written so far.
    pub fn written(&self) -> String {
        text(&self.bytes.lock().expect("nobody panics with it"))
    }

    /// The rows of the picture.
    pub fn rows(&self) -> Vec<String> {
        picture(&self.written())
    }

    /// The words of the picture, when they have this text, which may go over several rows.
    pub fn await_text(&self, part: &str, limit: Duration) -> String {
        self.await_that(limit, part, |words| words.contains(part))
    }

    pub fn await_that(
        &self,
        limit: Duration,
        what: &str,
        is_there: impl Fn(&str) -> bool,
    ) -> String {
        let begun = Instant::now();
        loop {
            let rows = self.rows();
            let words: Vec<&str> = rows.iter().flat_map(|row| row.split_whitespace()).collect();
            let words = words.join(" ");
            if is_there(&words) {
                return words;
            }
            assert!(begun.elapsed() < limit, "{what} in {rows:#?}");
            std::thread::sleep(LOOK);
        }
    }

    /// Waits for the end: the exit code, and what was written after the screen was left.
    pub fn ended(mut self, limit: Duration) -> (Option<i32>, String) {
        let begun = Instant::now();
        let code = loop {
            if let Some(status) = self.script.try_wait().expect("it is ours") {
                break status.code();
            }
            let rows = self.rows();
            assert!(begun.elapsed() < limit, "it does not end: {rows:#?}");
            std::thread::sleep(LOOK);
        };
        std::thread::sleep(LOOK); // the last bytes are read
        let written = self.written();
        let behind = written.rsplit("\x1b[?1049l").next();
        (code, behind.unwrap_or_default().to_owned())
    }
}

/// What a terminal shows that was sent this. Knows what a screen of `top` sends: clear all, move, and text.
fn picture(written: &str) -> Vec<String> {
    let mut rows = vec![String::new(); ROWS];
    let mut row = 0;
    for part in written.split('\x1b').skip(1) {
        let end = part.find(|c: char| c.is_ascii_alphabetic());
        let Some(end) = end else { continue };
        let (order, shown) = part.split_at(end + 1);
        match order {
            "[2J" => rows.iter_mut().for_each(String::clear),
            order if order.ends_with('H') => {
                let at = order.trim_start_matches('[').split([';', 'H']).next();
                let at: usize = at.and_then(|at| at.parse().ok()).unwrap_or(1);
                row = at.clamp(1, ROWS) - 1;
            }
            _ => {}
        }
        rows[row].push_str(shown);
    }
    rows
}
