//! Reads lines from the terminal, with history and completion, while the event loop runs.

use super::ahead::{Ahead, Keys, Next};
use super::complete::{Completer, Completions};
use crate::Outcome;
use reedline::{
    ColumnarMenu, CompletionResult, DefaultPrompt, DefaultPromptSegment, EditCommand, Emacs,
    FileBackedHistory, HistoryItem, KeyCode, KeyModifiers, MenuBuilder, Reedline, ReedlineEvent,
    ReedlineMenu, Signal, Span, Suggestion, default_emacs_keybindings,
};
use std::fs::Permissions;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const HISTORY_LINES: usize = 10_000;
const MENU: &str = "completion";

pub struct Editor {
    lines: Reedline,
    ahead: Ahead,
}

/// A completer in the form that the editor wants.
struct Words(Completer);

impl reedline::Completer for Words {
    fn complete(&mut self, line: &str, at: usize) -> CompletionResult {
        let line = line.get(..at).unwrap_or(line);
        let Completions { from, words } = (self.0)(line);
        let span = Span::new(from, line.len());
        let suggestion = |value: String| Suggestion {
            append_whitespace: !value.ends_with('='),
            value,
            span,
            ..Suggestion::default()
        };
        CompletionResult::fresh(words.into_iter().map(suggestion).collect::<Vec<_>>())
    }
}

impl Editor {
    /// `name` is the shell's: each has its own language, and a history of its own.
    pub fn new(completer: Completer, name: &str) -> Self {
        let mut keys = default_emacs_keybindings();
        let complete = ReedlineEvent::UntilFound(vec![
            ReedlineEvent::Menu(MENU.into()),
            ReedlineEvent::MenuNext,
        ]);
        keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, complete);
        let ahead = Ahead::default();
        let keys = Keys {
            keys: Emacs::new(keys),
            ahead: ahead.clone(),
        };
        let mut lines = Reedline::create()
            .with_completer(Box::new(Words(completer)))
            .with_menu(ReedlineMenu::EngineCompleter(Box::new(
                ColumnarMenu::default().with_name(MENU),
            )))
            .with_ansi_colors(std::env::var_os("NO_COLOR").is_none())
            .use_bracketed_paste(true)
            .with_quick_completions(true)
            .with_partial_completions(true)
            .with_edit_mode(Box::new(keys));
        // Without a home directory there is no history file; the shell works without it.
        if let Some(path) = history_path(name)
            && keep_private(&path).is_ok()
            && let Ok(history) = FileBackedHistory::with_file(HISTORY_LINES, path)
        {
            lines = lines.with_history(Box::new(history));
        }
        Editor { lines, ahead }
    }

    /// After Ctrl-C nothing of what was typed ahead is done.
    pub fn forget_ahead(&self) {
        self.ahead.forget();
    }

    /// The next line, if it was typed ahead.
    pub fn typed_ahead(&mut self, prompt: &str) -> Option<String> {
        let line = self.ahead.take_line()?;
        self.show_and_keep(&line, prompt);
        Some(line)
    }

    /// A line that was typed ahead, as the editor would show it.
    fn show_and_keep(&mut self, line: &str, prompt: &str) {
        println!("{prompt}> {line}");
        if !line.is_empty() {
            let item = HistoryItem::from_command_line(line);
            let _ = self.lines.history_mut().save(item); // the line is carried out without it, too
        }
    }
}

fn history_path(name: &str) -> Option<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
    Some(PathBuf::from(home).join(history_file(name)))
}

/// Of the store, whose shell is called as the program is, or of a system.
fn history_file(shell: &str) -> String {
    match shell {
        "plinth" => ".plinth_history".into(),
        system => format!(".plinth_{system}_history"),
    }
}

/// Makes the file, or takes it from everybody else: values and secrets are typed into a shell. Without that there is
/// no history.
fn keep_private(path: &Path) -> std::io::Result<()> {
    const OWNER: u32 = 0o600;
    let mut file = std::fs::OpenOptions::new();
    file.create(true).append(true).mode(OWNER);
    let file = file.open(path)?;
    match file.metadata()?.permissions().mode() & 0o7777 {
        OWNER => Ok(()),
        _ => file.set_permissions(Permissions::from_mode(OWNER)),
    }
}

/// What came from a terminal.
pub enum Typed {
    /// A line, or several that were pasted.
    Lines(String),
    /// Ctrl-C: what was typed before belongs to nothing.
    GivenUp,
    /// The user leaves.
    End,
}

/// Reads the next line and returns the editor.
pub async fn read_line(mut editor: Editor, prompt: &'static str) -> Outcome<(Typed, Editor)> {
    plinth_runtime::offload(move || {
        match editor.ahead.take() {
            Next::Line(line) => {
                editor.show_and_keep(&line, prompt);
                return Ok((Typed::Lines(line), editor));
            }
            Next::End => return Ok((Typed::End, editor)),
            Next::Begin(begin) => {
                let begin = [EditCommand::InsertString(begin)];
                editor.lines.run_edit_commands(&begin);
            }
        }
        let prompt = DefaultPrompt::new(
            DefaultPromptSegment::Basic(prompt.into()),
            DefaultPromptSegment::Empty,
        );
        match editor.lines.read_line(&prompt) {
            Ok(Signal::Success(text)) => Ok((Typed::Lines(text), editor)),
            Ok(Signal::CtrlC) => Ok((Typed::GivenUp, editor)),
            Ok(_) => Ok((Typed::End, editor)),
            Err(error) => Err(format!("cannot read from the terminal: {error}")),
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_has_a_history_of_its_own() {
        assert_eq!(history_file("plinth"), ".plinth_history");
        assert_eq!(history_file("farm"), ".plinth_farm_history");
    }

    #[test]
    fn only_its_owner_reads_the_history() {
        let name = format!("plinth-history-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let mode = || {
            std::fs::metadata(&path)
                .expect("it is there")
                .permissions()
                .mode()
                & 0o7777
        };
        keep_private(&path).expect("makes it");
        assert_eq!(mode(), 0o600);
        std::fs::write(&path, "get a\n").expect("writes");
        for wide in [0o644, 0o666, 0o640] {
            std::fs::set_permissions(&path, Permissions::from_mode(wide)).expect("it is ours");
            keep_private(&path).expect("takes it from others");
            assert_eq!(mode(), 0o600);
        }
        assert_eq!(std::fs::read(&path).expect("reads"), b"get a\n");
        std::fs::remove_file(&path).expect("removes");
    }
}
