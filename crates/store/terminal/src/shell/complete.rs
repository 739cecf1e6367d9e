//! What Tab completes in a line. Pure; each shell says which words may come next.

/// The words that may stand at the end of a line.
#[derive(PartialEq, Debug)]
pub struct Completions {
    /// Position of the first byte that they replace.
    pub from: usize,
    pub words: Vec<String>,
}

/// Gives the words that may stand at the end of a line. The editor calls it on its own thread.
pub type Completer = Box<dyn Fn(&str) -> Completions + Send>;

/// The completions of a line up to the cursor. `next` gives the words that may follow those of a statement.
pub fn complete(line: &str, next: impl Fn(&[String]) -> Vec<String>) -> Completions {
    let (words, from) = last_statement(line);
    let begun = &line[from..];
    let mut fitting = next(&words);
    fitting.retain(|word| word.starts_with(begun));
    Completions {
        from,
        words: fitting,
    }
}

/// The complete words of the last statement, as they are written, and where the word under way begins.
fn last_statement(line: &str) -> (Vec<String>, usize) {
    let (mut words, mut begin) = (Vec::new(), 0);
    let (mut quoted, mut escaped) = (false, false);
    for (at, byte) in line.bytes().enumerate() {
        if std::mem::take(&mut escaped) {
            continue;
        }
        match byte {
            b'\\' => escaped = true,
            b'"' => quoted = !quoted,
            _ if quoted || byte != b';' && !byte.is_ascii_whitespace() => {}
            _ => {
                if begin < at {
                    words.push(line[begin..at].to_string());
                }
                if byte == b';' {
                    words.clear();
                }
                begin = at + 1;
            }
        }
    }
    (words, begin)
}
