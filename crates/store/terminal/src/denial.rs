//! Why the database denies a client what it asks for, as far as this process knows: what it has shown.

use crate::seconds::spanned;
use crate::wording::pasted;
use plinth_core::Error;
use plinth_runtime::unix_time_ms;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// What the clients of this process show.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Noted {
    /// It could show a token.
    Nothing,
    /// The token in this file, which is over at this second since 1970.
    Shown(PathBuf, u64),
}

static NOTED: Mutex<Vec<Noted>> = Mutex::new(Vec::new());

/// From now on a refusal is explained with it.
pub fn note(noted: Noted) {
    let mut all = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|before| *before != noted); // the last one counts, and each once
    all.push(noted);
}

/// What to say behind `permission_denied`.
fn hint() -> String {
    let noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    hint_of(&noted, unix_time_ms() / 1000)
}

fn hint_of(noted: &[Noted], now: u64) -> String {
    const SEE: &str = "see docs/security.md";
    let shown = noted.iter().filter_map(|noted| match noted {
        Noted::Shown(file, until) => Some((file, *until)),
        Noted::Nothing => None,
    });
    let shown: Vec<(&PathBuf, u64)> = shown.collect();
    if let Some((file, until)) = shown.iter().find(|(_, until)| now >= *until) {
        return format!(
            "; the token of {} is over since {}: ask whoever signed it for another one",
            file.display(),
            spanned(now - until)
        );
    }
    match (shown.last(), noted.is_empty()) {
        (Some((file, _)), _) => format!(
            "; the token of {} does not grant that: `plinth token show {}' tells what it grants, and an operator with \
             `listtrusted' whether its key is trusted",
            file.display(),
            pasted(file)
        ),
        (None, true) => format!("; its key, its token or `configure clients=' allows less: {SEE}"),
        (None, false) => format!(
            "; its key or `configure clients=' allows less, and no token is shown: name the file of one with --token; \
             {SEE}"
        ),
    }
}

/// The line of `permission_denied` with what is known of the cause.
pub fn denied() -> String {
    format!("{}{}", Error::permission_denied, hint())
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNTIL: u64 = 1_000_000;

    #[test]
    fn who_is_denied_is_told_what_came_of_the_token() {
        let shown = |until| Noted::Shown("web.token".into(), until);
        for (noted, words) in [
            (&[][..], "configure clients="),
            (&[Noted::Nothing], "with --token"),
            (&[shown(UNTIL)], "of web.token is over since 1 min 1 s"),
            (&[shown(UNTIL + 62)], "`plinth token show web.token' tells"),
            (&[shown(UNTIL + 62), shown(UNTIL)], "is over since"),
        ] {
            let hint = hint_of(noted, UNTIL + 61);
            assert!(hint.starts_with("; ") && hint.contains(words), "{hint}");
        }
    }
}
