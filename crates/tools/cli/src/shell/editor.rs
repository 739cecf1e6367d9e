//! Reads lines from the terminal, with history and completion, while the event loop runs.

use crate::Outcome;
use reedline::{
    ColumnarMenu, DefaultCompleter, DefaultPrompt, DefaultPromptSegment, Emacs, FileBackedHistory,
    KeyCode, KeyModifiers, MenuBuilder, Reedline, ReedlineEvent, ReedlineMenu, Signal,
    default_emacs_keybindings,
};
use std::path::PathBuf;

const HISTORY_LINES: usize = 10_000;
const MENU: &str = "completion";

pub struct Editor(Reedline);

impl Editor {
    /// `words` are completed.
    pub fn new(words: Vec<String>) -> Self {
        let mut keys = default_emacs_keybindings();
        let complete = ReedlineEvent::UntilFound(vec![
            ReedlineEvent::Menu(MENU.into()),
            ReedlineEvent::MenuNext,
        ]);
        keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, complete);
        let mut editor = Reedline::create()
            .with_completer(Box::new(DefaultCompleter::new_with_wordlen(words, 1)))
            .with_menu(ReedlineMenu::EngineCompleter(Box::new(
                ColumnarMenu::default().with_name(MENU),
            )))
            .with_quick_completions(true)
            .with_partial_completions(true)
            .with_edit_mode(Box::new(Emacs::new(keys)));
        // Without a home directory there is no history file; the shell works without it.
        if let Some(path) = history_path()
            && let Ok(history) = FileBackedHistory::with_file(HISTORY_LINES, path)
        {
            editor = editor.with_history(Box::new(history));
        }
        Editor(editor)
    }
}

fn history_path() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").filter(|home| !home.is_empty())?;
    Some(PathBuf::from(home).join(".plinth_history"))
}

/// Reads the next line and returns the editor; the line is `None` when the user leaves.
pub async fn read_line(
    mut editor: Editor,
    prompt: &'static str,
) -> Outcome<(Option<String>, Editor)> {
    plinth_runtime::offload(move || {
        let prompt = DefaultPrompt::new(
            DefaultPromptSegment::Basic(prompt.into()),
            DefaultPromptSegment::Empty,
        );
        loop {
            match editor.0.read_line(&prompt) {
                Ok(Signal::Success(line)) => return Ok((Some(line), editor)),
                Ok(Signal::CtrlC) => continue,
                Ok(_) => return Ok((None, editor)),
                Err(error) => return Err(format!("cannot read from the terminal: {error}")),
            }
        }
    })
    .await
}
