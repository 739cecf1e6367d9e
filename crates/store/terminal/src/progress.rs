//! Progress of long commands: a bar on standard error, if it is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;

/// A bar over `total` steps (0: unknown); hidden if standard error is not a terminal.
pub fn bar(total: u64, what: &str) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr_with_hz(5)
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target((total > 0).then_some(total), target);
    let template = if total > 0 {
        format!("{what} [{{bar:40}}] {{percent}}% {{msg}} {{eta}} left")
    } else {
        format!("{what} {{spinner}} {{msg}} {{elapsed}}")
    };
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar
}
