//! The blocks of commands of a page, and what the page says that they print.
//!
//! A block is fenced as `sh` or `console`. In a `console` block a command stands behind `$`, statements of the shell
//! behind its prompt, and the lines below are what is printed. In a `sh` block every line is a command, and a `text`
//! block right behind it is what the block prints. A comment before a block, which no reader of the page sees, says
//! what else there is to know:
//!
//! ```text
//! <!-- not run: REASON -->     the block needs what a test does not have
//! <!-- stays: WORDS -->        its commands go on; the next one begins when each of them has printed WORDS
//! <!-- first: COMMAND -->      what a reader who has come here has done before
//! <!-- first, until WORDS: COMMAND -->   the same, for a command that goes on
//! ```

/// A command as it is typed, and what belongs to it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// Line of the page, from 1 on.
    pub line: usize,
    pub command: String,
    /// Statements that are typed into the shell that the command starts.
    pub input: Vec<String>,
    /// What the page says is printed, if it says so.
    pub printed: Option<Vec<String>>,
    /// Words that tell that a command which does not end is ready.
    pub stays: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    Run(Vec<Step>),
    /// The line, and the reason why it is not run.
    Left(usize, String),
}

/// A fenced block as it stands on the page.
struct Fence {
    line: usize,
    language: String,
    comment: Option<String>,
    /// Lines, with their numbers, without the indentation of the fence.
    lines: Vec<(usize, String)>,
    /// Nothing but empty lines is between the one before and this one.
    is_next: bool,
}

fn fences(page: &str) -> Vec<Fence> {
    let mut all: Vec<Fence> = Vec::new();
    let mut open: Option<(Fence, usize)> = None;
    let (mut comment, mut is_next) = (None, false);
    for (number, line) in (1..).zip(page.lines()) {
        let text = line.trim();
        if let Some((fence, indent)) = &mut open {
            if text == "```" {
                all.extend(open.take().map(|(fence, _)| fence));
                (comment, is_next) = (None, true);
            } else {
                let at = line.len() - line.trim_start().len();
                let line = line[at.min(*indent)..].to_string();
                fence.lines.push((number, line));
            }
        } else if let Some(language) = text.strip_prefix("```") {
            let fence = Fence {
                line: number,
                language: language.to_string(),
                comment: comment.take(),
                lines: Vec::new(),
                is_next,
            };
            open = Some((fence, line.len() - line.trim_start().len()));
        } else if let Some(said) = text.strip_prefix("<!--") {
            let said = said.strip_suffix("-->").expect("a comment of one line");
            match said.trim().strip_prefix("first") {
                Some(said) => all.push(before(number, said)),
                None => comment = Some(said.trim().to_string()),
            }
        } else if !text.is_empty() {
            (comment, is_next) = (None, false);
        }
    }
    assert!(open.is_none(), "a block has no end");
    all
}

/// What a comment says that a reader has done before, as a block of its own.
fn before(line: usize, said: &str) -> Fence {
    let (until, command) = said.split_once(": ").expect("a command behind `first: `");
    let until = until.strip_prefix(", until ");
    Fence {
        line,
        language: "sh".into(),
        comment: until.map(|words| format!("stays: {words}")),
        lines: vec![(line, command.to_string())],
        is_next: false,
    }
}

/// The blocks of commands of a page, in order.
pub fn blocks(page: &str) -> Vec<Block> {
    let mut all: Vec<Block> = Vec::new();
    for fence in fences(page) {
        let is_console = fence.language == "console";
        if is_console || fence.language == "sh" {
            all.push(block(fence, is_console));
        } else if fence.language == "text"
            && fence.is_next
            && let Some(Block::Run(steps)) = all.last_mut()
        {
            // What the whole block prints: its commands become one.
            let printed = fence.lines.into_iter().map(|(_, line)| line).collect();
            let commands: Vec<String> = steps.drain(..).map(|step| step.command).collect();
            let step = Step {
                line: fence.line,
                command: commands.join("\n"),
                printed: Some(printed),
                ..Step::default()
            };
            steps.push(step);
        }
    }
    all
}

fn block(fence: Fence, is_console: bool) -> Block {
    let comment = fence.comment.as_deref();
    if let Some(reason) = comment.and_then(|said| said.strip_prefix("not run: ")) {
        return Block::Left(fence.line, reason.to_string());
    }
    let stays = comment.and_then(|said| said.strip_prefix("stays: "));
    let mut steps = if is_console {
        console(&fence.lines)
    } else {
        script(&fence.lines)
    };
    for step in &mut steps {
        step.stays = stays.map(str::to_string);
    }
    Block::Run(steps)
}

/// Whether a command goes on with the next line: a quote is open, or the line ends with a backslash.
fn goes_on(command: &str) -> bool {
    let (mut quote, mut before, mut is_comment) = (None, ' ', false);
    let mut is_escaped = false;
    for c in command.chars() {
        match (quote, c) {
            _ if is_escaped => is_escaped = false,
            _ if is_comment => is_comment = c != '\n',
            (None | Some('"'), '\\') => is_escaped = true,
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            (None, '#') if before.is_whitespace() => is_comment = true,
            _ => {}
        }
        before = c;
    }
    quote.is_some() || is_escaped
}

/// Every line of a script, with those that it goes on with, is a step.
fn script(lines: &[(usize, String)]) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut command = String::new();
    for (number, line) in lines {
        command.push_str(line);
        if goes_on(&command) {
            command.push('\n');
            continue;
        }
        let taken = std::mem::take(&mut command);
        if !taken.trim().is_empty() && !taken.trim().starts_with('#') {
            let (line, command) = (*number, taken);
            steps.push(Step {
                line,
                command,
                ..Step::default()
            });
        }
    }
    assert!(command.is_empty(), "a command has no end: {command}");
    steps
}

/// The statement behind a prompt of the shell.
fn statement(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("plinth")?;
    rest.strip_prefix("> ")
        .or_else(|| rest.strip_prefix(" (transaction)> "))
}

fn console(lines: &[(usize, String)]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut is_open = false;
    for (number, line) in lines {
        if is_open {
            let step = steps.last_mut().expect("a command is open");
            step.command.push('\n');
            step.command.push_str(line);
            is_open = goes_on(&step.command);
        } else if let Some(command) = line.strip_prefix("$ ") {
            is_open = goes_on(command);
            steps.push(Step {
                line: *number,
                command: command.to_string(),
                ..Step::default()
            });
        } else {
            let step = steps.last_mut().expect("a command before what it prints");
            match statement(line) {
                Some(typed) => step.input.push(typed.to_string()),
                None => step.printed.get_or_insert_default().push(line.clone()),
            }
        }
    }
    steps
}

/// Whether `text` is what the page says, but for empty lines. `…` stands for anything within a line, and alone on a
/// line for any lines.
/// Two [marks](is_mark) count as alike.
pub fn agrees(said: &[String], text: &str) -> bool {
    let is_full = |line: &&str| !line.trim().is_empty();
    let lines: Vec<&str> = text.lines().filter(is_full).collect();
    let said: Vec<&str> = said.iter().map(String::as_str).filter(is_full).collect();
    lines_agree(&said, &lines)
}

fn lines_agree(said: &[&str], lines: &[&str]) -> bool {
    match said.split_first() {
        None => lines.is_empty(),
        Some((first, rest)) if first.trim() == "…" => {
            (0..=lines.len()).any(|skipped| lines_agree(rest, &lines[skipped..]))
        }
        Some((first, rest)) => match lines.split_first() {
            Some((line, others)) => line_agrees(first, line) && lines_agree(rest, others),
            None => false,
        },
    }
}

fn line_agrees(said: &str, line: &str) -> bool {
    let (said, line) = (
        without_marks(said.trim_end()),
        without_marks(line.trim_end()),
    );
    let mut pieces = said.split('…');
    let Some(mut rest) = pieces.next().and_then(|first| line.strip_prefix(first)) else {
        return false;
    };
    let mut pieces: Vec<&str> = pieces.collect();
    let Some(last) = pieces.pop() else {
        return rest.is_empty();
    };
    for piece in pieces {
        let Some(at) = rest.find(piece) else {
            return false;
        };
        rest = &rest[at + piece.len()..];
    }
    rest.ends_with(last)
}

/// Versions, ids and keys differ each time: seven digits or more, sixteen digits of a hash, forty of a key.
fn is_mark(word: &str) -> bool {
    let all = |is: fn(&u8) -> bool| word.bytes().all(|byte| is(&byte));
    let is_key = all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(byte));
    match word.len() {
        0..7 => false,
        7..16 => all(u8::is_ascii_digit),
        16..40 => all(u8::is_ascii_hexdigit),
        _ => is_key,
    }
}

/// The words of a line; what is between them is words, too.
fn words(line: &str) -> Vec<&str> {
    let is_in = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    let mut all = Vec::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let end = rest
            .find(|c| is_in(c) != is_in(first))
            .unwrap_or(rest.len());
        all.push(&rest[..end]);
        rest = &rest[end..];
    }
    all
}

/// The marks that the page says are printed, each with the one that was printed in its place. Later commands of the
/// page that have such a mark mean the other one.
pub fn marks(said: &[String], text: &str) -> Vec<(String, String)> {
    let lines: Vec<(Vec<&str>, Vec<&str>)> = said
        .iter()
        .zip(text.lines())
        .map(|(said, line)| (words(said), words(line)))
        .collect();
    let alike = lines.iter().filter(|(said, line)| said.len() == line.len());
    let pairs = alike.flat_map(|(said, line)| said.iter().zip(line));
    let pairs = pairs.filter(|(said, line)| is_mark(said) && is_mark(line));
    pairs
        .map(|(said, line)| (said.to_string(), line.to_string()))
        .collect()
}

/// The line with every mark replaced by one sign.
fn without_marks(line: &str) -> String {
    let words = words(line).into_iter();
    words
        .map(|word| if is_mark(word) { "#" } else { word })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(line: usize, command: &str) -> Step {
        Step {
            line,
            command: command.into(),
            ..Step::default()
        }
    }

    #[test]
    fn lines_of_a_script_are_commands_and_quotes_and_backslashes_join_them() {
        let page = "```sh\necho a   # don't\n# nothing\necho 'b\nc' \\\n  d\n```\n";
        let steps = vec![step(2, "echo a   # don't"), step(6, "echo 'b\nc' \\\n  d")];
        assert_eq!(blocks(page), [Block::Run(steps)]);
    }

    #[test]
    fn a_block_that_is_not_run_has_its_reason() {
        let page = "<!-- not run: two machines -->\n\n  ```sh\n  reboot\n  ```\n";
        assert_eq!(blocks(page), [Block::Left(3, "two machines".into())]);
        let later = "<!-- not run: two machines -->\nWords.\n```sh\ntrue\n```\n";
        assert_eq!(blocks(later), [Block::Run(vec![step(4, "true")])]);
    }

    #[test]
    fn a_comment_says_what_a_reader_has_done_before() {
        let page =
            "<!-- first: true -->\n<!-- first, until it is there: sleep 9 -->\n\n```sh\nls\n```\n";
        let sleep = Step {
            stays: Some("it is there".into()),
            ..step(2, "sleep 9")
        };
        let all = [step(1, "true"), sleep, step(5, "ls")].map(|step| Block::Run(vec![step]));
        assert_eq!(blocks(page), all);
    }

    #[test]
    fn a_console_has_commands_statements_and_what_they_print() {
        let page = "<!-- stays: ready -->\n```console\n$ plinth cli\nplinth> get a\n`a' is `b'\n$ true\n```\n";
        let cli = Step {
            input: vec!["get a".into()],
            printed: Some(vec!["`a' is `b'".into()]),
            stays: Some("ready".into()),
            ..step(3, "plinth cli")
        };
        let last = Step {
            stays: Some("ready".into()),
            ..step(6, "true")
        };
        assert_eq!(blocks(page), [Block::Run(vec![cli, last])]);
    }

    #[test]
    fn text_right_behind_a_script_is_what_it_prints() {
        let page = "```sh\necho a\necho b\n```\n\n```text\na\nb\n```\n";
        let printed = Some(vec!["a".into(), "b".into()]);
        let steps = vec![Step {
            printed,
            ..step(6, "echo a\necho b")
        }];
        assert_eq!(blocks(page), [Block::Run(steps)]);
        let apart = "```sh\necho a\n```\nSo it is:\n```text\na\n```\n";
        assert_eq!(blocks(apart), [Block::Run(vec![step(2, "echo a")])]);
    }

    #[test]
    fn what_is_printed_is_compared_word_for_word_but_for_what_differs_each_time() {
        let said = |lines: &[&str]| {
            lines
                .iter()
                .map(|line| line.to_string())
                .collect::<Vec<_>>()
        };
        assert!(agrees(
            &said(&["Committed (103757630)"]),
            "Committed (9000000000)\n"
        ));
        assert!(!agrees(
            &said(&["Committed (103757630)"]),
            "Committed (12)\n"
        ));
        assert!(!agrees(&said(&["3 pairs"]), "4 pairs\n"));
        assert!(agrees(&said(&["a … c"]), "a b c\n"));
        assert!(!agrees(&said(&["a … c"]), "a b d\n"));
        assert!(agrees(&said(&["a", "…", "c"]), "a\nb\nb\nc\n"));
        assert!(!agrees(&said(&["a"]), "a\nb\n"));
        assert!(agrees(
            &said(&["key c10d242c81678715"]),
            "key 00000000000000aa\n"
        ));
        let marks = marks(
            &said(&["a", "key c10d242c81678715 is"]),
            "a\nkey 00000000000000aa is\n",
        );
        assert_eq!(
            marks,
            [("c10d242c81678715".into(), "00000000000000aa".into())]
        );
    }
}
