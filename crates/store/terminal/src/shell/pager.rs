//! Texts that are longer than the terminal, in a program that shows them in parts: `$PAGER`, else `less`.

use crate::wrap::{fitted, room};
use crossterm::terminal;
use plinth_runtime::real::interrupted_by_user;
use plinth_runtime::{Either, race};
use std::io::Write;
use std::pin::pin;
use std::process::{Command, Stdio};

const USUAL: &str = "less";
/// Of `less`: colours as they are, and the text stays on the screen.
const FLAGS: &str = "RX";

/// Shows a text to the person at the terminal, in parts if it has more lines than there is room for.
pub async fn show(text: &str) {
    let Some(width) = room() else {
        return println!("{text}");
    };
    let text = fitted(text, width);
    let rows = terminal::size().map_or(0, |(_, rows)| rows);
    // One that does not know its size has no rows. The next prompt has a line, too.
    let is_long = rows > 0 && text.lines().count() >= rows.into();
    let pager = std::env::var("PAGER").unwrap_or(USUAL.into());
    if !is_long || pager.trim().is_empty() || !parted(pager, text.clone()).await {
        println!("{text}");
    }
}

/// False if the program cannot be run. Ctrl-C is the program's own meanwhile.
async fn parted(pager: String, text: String) -> bool {
    let mut shown = pin!(plinth_runtime::offload(move || run(&pager, &text)));
    loop {
        if let Either::Left(shown) = race(shown.as_mut(), interrupted_by_user()).await {
            return shown;
        }
    }
}

fn run(pager: &str, text: &str) -> bool {
    /// A shell has not found the program, or may not run it.
    const NONE: [i32; 2] = [126, 127];
    let mut shell = Command::new("sh");
    shell.args(["-c", pager]).stdin(Stdio::piped());
    if std::env::var_os("LESS").is_none() {
        shell.env("LESS", FLAGS);
    }
    let Ok(mut child) = shell.spawn() else {
        return false;
    };
    if let Some(mut input) = child.stdin.take() {
        let _ = input.write_all(format!("{text}\n").as_bytes()); // who has seen enough reads no more
    }
    let code = child.wait().ok().and_then(|status| status.code());
    !code.is_some_and(|code| NONE.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pager_gets_the_text_and_one_that_is_not_there_shows_nothing() {
        let file = std::env::temp_dir().join(format!("plinth-pager-{}", std::process::id()));
        assert!(run(&format!("cat > {}", file.display()), "a\nb"));
        let got = std::fs::read_to_string(&file).expect("it was written");
        std::fs::remove_file(&file).expect("it is there");
        assert_eq!(got, "a\nb\n");
        assert!(run("true", &"long\n".repeat(100_000)), "it reads nothing");
        assert!(!run("no-such-pager 2> /dev/null", "a"));
    }
}
