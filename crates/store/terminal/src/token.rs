//! `--token FILE`: the token that a client shows with its requests, of commands that read and write keys of
//! applications. It comes from a file and never from the command line, which others see; no line has it.

use crate::Outcome;
use crate::connect::Connection;
use crate::denial::{Noted, note};
use crate::outputs::why_not_read;
use plinth_client::Database;
use plinth_core::Value;
use plinth_identity::files::FileKind;
use plinth_identity::tokens::{TOKEN_BYTES_MAX, said};
use std::fmt;
use std::fs::OpenOptions;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Names the file of a token where no flag does.
pub const VARIABLE: &str = "PLINTH_TOKEN_FILE";
/// What a file may have beside the token: line ends and blanks.
const BLANKS_MAX: usize = 1 << 10;
/// How every token begins that has a header of JSON: `{"` in base64url.
const TOKEN_BEGIN: &str = "eyJ";

#[derive(clap::Args, Clone, Debug, Default)]
pub struct TokenArgument {
    /// File with a token of `plinth token sign`, to show it with each request; else the file that $PLINTH_TOKEN_FILE
    /// names
    #[arg(long, value_name = "FILE")]
    token: Option<PathBuf>,
}

/// A token that was read. Nobody sees it.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    file: PathBuf,
    text: Value,
    /// The first second since 1970 at which it is over, as it says.
    until: u64,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token of {}", self.file.display())
    }
}

/// Whether the text is no file of a token, but one itself: others see it then, and it is repeated nowhere.
pub fn is_one(text: &str) -> bool {
    text.starts_with(TOKEN_BEGIN) || said(text.as_bytes()).is_ok()
}

impl Token {
    /// Reads the file, which `flag` has named.
    ///
    /// # Errors
    /// A line for the user, which has nothing of the token.
    pub fn read(flag: &str, path: &Path) -> Outcome<Token> {
        if path.to_str().is_some_and(is_one) {
            return Err(format!(
                "{flag}: that is a token itself, which others may see now; name the file that has it"
            ));
        }
        let at = |what: String| format!("{flag} {}: {what}", path.display());
        let cannot = |error: std::io::Error| at(why_not_read(&error, flag));
        let file = OpenOptions::new().read(true).open(path).map_err(cannot)?;
        let most = TOKEN_BYTES_MAX + BLANKS_MAX;
        let mut bytes = Vec::new();
        let mut file = file.take(most as u64 + 1);
        file.read_to_end(&mut bytes).map_err(cannot)?;
        let text = bytes.trim_ascii();
        let wrong = |what: String| at(format!("{what}; `plinth token sign' makes a token"));
        if let Some(other) = FileKind::Token.instead(&bytes) {
            return Err(wrong(other));
        }
        if text.is_empty() || bytes.len() > most {
            let what = if text.is_empty() {
                "it is empty"
            } else {
                "it is too large for a token"
            };
            return Err(wrong(what.into()));
        }
        let (_, claims) = said(text).map_err(|error| wrong(error.to_string()))?;
        Ok(Token {
            file: path.to_owned(),
            text: Value::copy_from_slice(text),
            until: claims.until,
        })
    }

    /// The token itself, for those who show it.
    ///
    /// It is shown from now on, and a refusal is explained with it.
    pub fn shown(&self) -> Value {
        note(Noted::Shown(self.file.clone(), self.until));
        self.text.clone()
    }

    /// The database, whose transactions show it.
    ///
    /// # Errors
    /// A line for the user.
    pub fn of(&self, database: &Database) -> Outcome<Database> {
        let shows = database.with_authorization_token(self.shown());
        shows.map_err(|error| format!("token of {}: {error}", self.file.display()))
    }
}

impl TokenArgument {
    /// The connection, whose transactions show the token, if there is one.
    ///
    /// # Errors
    /// The file is none of a token: a line for the user.
    pub fn shown_by(&self, mut connection: Connection) -> Outcome<Connection> {
        match self.read()? {
            Some(token) => connection.database = token.of(&connection.database)?,
            None => note(Noted::Nothing),
        }
        Ok(connection)
    }

    fn read(&self) -> Outcome<Option<Token>> {
        if let Some(file) = &self.token {
            return Token::read("--token", file).map(Some);
        }
        let named = std::env::var_os(VARIABLE).filter(|name| !name.is_empty());
        let read = named.map(|file| Token::read(&format!("${VARIABLE}"), Path::new(&file)));
        read.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_identity::tokens::{Claims, SigningKey};

    const UNTIL: u64 = 1_000_000;

    fn token() -> String {
        let key = SigningKey::new("web", [0xa5; 32]).expect("a name");
        let claims = Claims {
            until: UNTIL,
            read: vec![Value::new()],
            ..Claims::default()
        };
        key.sign(&claims).expect("it is within its bounds")
    }

    fn written(name: &str, content: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("plinth-{name}-{}", std::process::id()));
        std::fs::write(&path, content).expect("writes");
        path
    }

    #[test]
    fn a_token_comes_from_its_file_and_neither_a_line_nor_its_debug_text_has_it() {
        let text = token();
        let path = written("token", &format!("\n{text}\n"));
        let read = Token::read("--token", &path).expect("a token");
        assert_eq!((&read.text[..], read.until), (text.as_bytes(), UNTIL));
        let shown = format!("{read:?}");
        assert!(text.split('.').all(|part| !shown.contains(part)), "{shown}");
        let damaged = text.replace('.', "");
        for (content, words) in [
            ("", "it is empty"),
            (&damaged[..], "it does not have three parts"),
            ("a:b@10.0.0.1:1\n", "it is a cluster file"),
            ("plinth-sign-1 a5 web\n", "it is a key that signs tokens"),
        ] {
            std::fs::write(&path, content).expect("writes");
            let line = Token::read("--token", &path).expect_err(words);
            assert!(
                line.contains(words) && line.contains("`plinth token sign'"),
                "{line}"
            );
            assert!(
                content.is_empty() || !line.contains(content.trim()),
                "{line}"
            );
        }
        std::fs::remove_file(&path).expect("removes");
        let line = Token::read("--token", &path).expect_err("it is gone");
        assert!(
            line.ends_with("there is none; name another with --token"),
            "{line}"
        );
    }

    #[test]
    fn a_token_in_place_of_its_file_is_not_repeated() {
        let text = token();
        for given in [&text[..], &text[..text.len() / 2]] {
            let line = Token::read("--token", Path::new(given)).expect_err("it is no file");
            assert!(
                !line.contains(given) && line.contains("name the file"),
                "{line}"
            );
        }
    }
}
