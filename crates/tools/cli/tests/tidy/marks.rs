//! What programs print has one kind of marks around what is typed: `word'. This finds the other kinds in texts of the
//! code. Texts of commands and flags are Markdown, since they are comments and pages, too; the program gives them
//! their marks (`crates/tools/cli/src/marks.rs`).

use super::sources;

/// Ends of files' names, and why their texts have other marks.
const EXCEPTIONS: [(&str, &str); 13] = [
    (
        "delos/table/src/language/parse.rs",
        "a text has the quotes of the language",
    ),
    ("keeper/bench/src/markdown.rs", "it writes Markdown"),
    ("store/bench/src/scale.rs", "it writes Markdown"),
    ("tools/cli/src/grammar.rs", "it writes Markdown"),
    ("tools/cli/src/completions.rs", "it writes a script"),
    ("store/terminal/src/wording.rs", "it quotes for a shell"),
    (
        "store/commands/src/bench.rs",
        "a call has quotes for a shell",
    ),
    (
        "store/bench/src/lodging.rs",
        "a call has quotes for a shell",
    ),
    (
        "store/terminal/src/configuration.rs",
        "a setting has the quotes of its file",
    ),
    ("store/sim/src/idle.rs", "names of tasks, as in traces"),
    ("base/runtime/src/real/mod.rs", "the name of a task"),
    ("base/runtime/src/sim/executor.rs", "the name of a task"),
    (
        "base/runtime/src/sim/worlds.rs",
        "a call has quotes for a shell",
    ),
];

/// Calls in which texts are Markdown.
const MARKDOWN: [&str; 4] = [
    "examples(&[",
    "plinth_terminal::command!(",
    "#[command(",
    "#[arg(",
];

/// A text of the code: where it begins, and what stands between its quotes.
type Literal<'a> = (usize, &'a str);

/// The texts outside of comments.
fn literals(code: &str) -> Vec<Literal<'_>> {
    let (mut at, mut found) = (0, Vec::new());
    while let Some(rest) = code.get(at..).filter(|rest| !rest.is_empty()) {
        let is_word = code[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let raw = raw_begin(rest).filter(|_| !is_word);
        at += if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some((begin, end)) = raw {
            let length = rest[begin..].find(&end).expect("it ends");
            found.push((at + begin, &rest[begin..begin + length]));
            begin + length + end.len()
        } else if let Some(text) = rest.strip_prefix('"') {
            let length = length_of(text);
            found.push((at + 1, &text[..length]));
            length + 2
        } else if let Some(length) = letter(rest) {
            length
        } else {
            rest.chars().next().map_or(1, char::len_utf8)
        };
    }
    found
}

/// How long the begin of a text is that has no escapes, and what ends it.
fn raw_begin(rest: &str) -> Option<(usize, String)> {
    let signs = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('r')?;
    let marks = signs.len() - signs.trim_start_matches('#').len();
    signs[marks..].strip_prefix('"')?;
    let begin = rest.len() - signs.len() + marks + 1;
    Some((begin, format!("\"{}", "#".repeat(marks))))
}

fn length_of(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text.find(|c| {
        let is_end = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_end
    });
    end.expect("it ends")
}

/// How long the letter in quotes is that the code begins with. A lifetime is none.
fn letter(rest: &str) -> Option<usize> {
    let inner = rest.strip_prefix('\'')?;
    let length = match inner.strip_prefix('\\') {
        Some(escaped) => 2 + escaped.get(1..)?.find('\'')?,
        None => inner.chars().next()?.len_utf8(),
    };
    inner.get(length..)?.starts_with('\'').then_some(length + 2)
}

/// Places of the code whose texts are Markdown: from a call to its end.
fn markdown(code: &str, texts: &[Literal]) -> Vec<std::ops::Range<usize>> {
    let is_text = |at: usize| {
        let before = texts.partition_point(|(begin, _)| *begin <= at);
        let text = before.checked_sub(1).map(|before| texts[before]);
        text.is_some_and(|(begin, text)| at < begin + text.len())
    };
    let calls = MARKDOWN.iter().flat_map(|call| code.match_indices(call));
    let end = |(begin, call): (usize, &str)| {
        let mut depth = 0;
        let open = begin + call.find(['(', '[']).unwrap_or(0);
        let signs = code[open..].char_indices();
        for (at, sign) in signs.filter(|(at, _)| !is_text(open + at)) {
            depth += i32::from("([".contains(sign)) - i32::from(")]".contains(sign));
            if depth == 0 {
                return begin..open + at;
            }
        }
        begin..code.len()
    };
    calls.map(end).collect()
}

/// The marks of a text that are of another kind: `word` in one line of the code, and a value of a format in quotes.
fn others(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.lines() {
        let parts: Vec<&str> = line.split('`').collect();
        let words = parts.iter().skip(1).take(parts.len().saturating_sub(2));
        // What lies between two words begins with a blank.
        let words = words.filter(|word| !word.contains('\'') && !word.starts_with(' '));
        let words = words.filter(|word| !word.is_empty());
        found.extend(words.map(|word| format!("`{word}`")));
        for (at, _) in line.match_indices("'{") {
            let is_end = line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '\\');
            let value = line[at + 2..].split_once('}');
            let value = value.filter(|(_, behind)| behind.starts_with('\'') && !is_end);
            found.extend(value.map(|(value, _)| format!("'{{{value}}}'")));
        }
    }
    found
}

/// The code without its tests, which are at the end of a file.
fn without_tests(code: &str) -> &str {
    let Some(tests) = code.find("\nmod tests {") else {
        return code;
    };
    &code[..code[..tests].rfind("#[cfg(").unwrap_or(tests)]
}

#[test]
fn what_programs_print_has_one_kind_of_marks_around_words() {
    let (mut wrong, mut unused) = (Vec::new(), EXCEPTIONS.to_vec());
    for (file, code) in sources() {
        let name = file.display().to_string();
        let is_test = name.contains("/tests/") || name.contains("/tests.rs");
        if is_test || !name.contains("/src/") {
            continue;
        }
        let code = without_tests(&code);
        let texts = literals(code);
        let markdown = markdown(code, &texts);
        let own = texts
            .iter()
            .filter(|(at, _)| !markdown.iter().any(|place| place.contains(at)));
        let found = own.flat_map(|(at, text)| {
            let line = code[..*at].lines().count();
            others(text).into_iter().map(move |mark| (line, mark))
        });
        let found: Vec<(usize, String)> = found.collect();
        if EXCEPTIONS.iter().any(|(end, _)| name.ends_with(end)) {
            unused.retain(|(end, _)| found.is_empty() || !name.ends_with(end));
            continue;
        }
        // What FoundationDB says of an error stays as it is.
        let found = found.into_iter().filter(|(_, mark)| mark != "'{...}'");
        wrong.extend(found.map(|(line, mark)| format!("{name}:{line}: {mark}")));
    }
    assert!(
        wrong.is_empty(),
        "other marks than `word':\n{}",
        wrong.join("\n")
    );
    assert!(unused.is_empty(), "no exception any more: {unused:?}");
}

#[test]
fn other_marks_are_found_in_texts_and_nowhere_else() {
    let code = "
        /// A comment with `a` and \"`b`\".
        #[command(after_help = examples(&[(\"plinth (\", \"It has `c`\")]))]
        fn f<'a>(c: char) { let quote = '\"'; let other = '\\''; say(\"one `d` and `e'\"); r#\"a \"`f`\"\"#; }
        format!(\"'{g}' and `{g}' and it's {g}'s\")
        #[cfg(test)]\nmod tests { \"`h`\" }";
    let code = without_tests(code);
    let texts = literals(code);
    let markdown = markdown(code, &texts);
    let own = texts
        .iter()
        .filter(|(at, _)| !markdown.iter().any(|place| place.contains(at)));
    let found: Vec<String> = own.flat_map(|(_, text)| others(text)).collect();
    assert_eq!(found, ["`d`", "`f`", "'{g}'"]);
}

#[test]
fn no_page_has_a_link_that_only_the_compiler_of_pages_follows() {
    let mut pages = Vec::new();
    for folder in super::folders_in(&super::crates()) {
        let folder = super::crates().join(folder);
        let crates = super::folders_in(&folder).into_iter();
        pages.extend(crates.map(|name| folder.join(name).join("README.md")));
    }
    pages.retain(|page| page.exists());
    assert!(
        !pages.is_empty(),
        "the page of the crate `plinth` was found"
    );
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page");
        let links = text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        let wrong = links.filter(|link| link.contains('@') || link.contains("::"));
        let wrong: Vec<&str> = wrong.collect();
        assert!(wrong.is_empty(), "{}: {wrong:?}", page.display());
    }
}
