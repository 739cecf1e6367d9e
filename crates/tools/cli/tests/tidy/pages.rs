//! Pages name files, names in files, and each other: all of that is there. The book has every page, and a newcomer's
//! questions have short answers.

use super::{crates, docs, folders_in, names_in, sources};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const QUESTIONS: usize = 10;
const PATHS_OF_AN_ANSWER_MAX: usize = 3;
const PROSE_COLUMNS_MAX: usize = 120;
/// Where a crate keeps its files.
const PLACES: [&str; 4] = ["src", "tests", "benches", "examples"];

struct Page {
    /// From the root of the repository, such as `docs/walks/commit.md`.
    name: String,
    text: String,
}

fn root() -> PathBuf {
    crates().join("..")
}

fn page(name: &str) -> Page {
    let text = std::fs::read_to_string(root().join(name));
    Page {
        name: name.to_owned(),
        text: text.unwrap_or_else(|error| panic!("{name}: {error}")),
    }
}

/// The pages of a folder below `docs`.
fn pages_in(folder: &str) -> Vec<Page> {
    let names = names_in(&docs().join(folder)).into_iter();
    let names = names.filter(|name| name.ends_with(".md"));
    let path = |name| Path::new("docs").join(folder).join(name);
    names
        .map(|name| page(&path(name).to_string_lossy()))
        .collect()
}

/// All pages of the book. Its table of contents is none.
fn pages() -> Vec<Page> {
    let outside = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    ];
    let mut pages: Vec<Page> = outside.into_iter().map(page).collect();
    for folder in [vec![String::new()], folders_in(&docs())].concat() {
        pages.extend(pages_in(&folder));
    }
    pages.retain(|page| page.name != "docs/SUMMARY.md");
    pages
}

/// The pages that tell the code's readers where something is.
fn pages_about_code() -> Vec<Page> {
    let alone = [
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "docs/glossary.md",
        "docs/pitfalls.md",
        "docs/simulation.md",
    ];
    let folders = ["subsystems", "walks", "decisions"];
    let mut pages: Vec<Page> = alone.into_iter().map(page).collect();
    pages.extend(folders.into_iter().flat_map(pages_in));
    pages
}

/// Parts of the text in backticks, each with what follows it. Blocks of code are left out.
fn quoted(text: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    for prose in text.split("\n```").step_by(2) {
        let mut rest = prose;
        while let Some((_, from)) = rest.split_once('`') {
            let Some((quoted, after)) = from.split_once('`') else {
                break;
            };
            found.push((quoted, after));
            rest = after;
        }
    }
    found
}

fn is_path(quoted: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    quoted.ends_with(".rs") && quoted.chars().all(is_part)
}

/// The crate of a path as ARCHITECTURE.md ("Paths") names it, and the rest; `None` if it names no crate.
fn split(path: &str) -> Option<(&str, &str)> {
    let place = |part: &str| PLACES.contains(&part);
    let mut at = 0;
    for part in path.split('/') {
        if at > 0 && place(part) {
            return Some((&path[..at - 1], &path[at..]));
        }
        at += part.len() + 1;
    }
    None
}

/// The folder of a crate that is named with its folder, or without if that is clear.
fn room(name: &str) -> Result<PathBuf, String> {
    let name = name.strip_prefix("crates/").unwrap_or(name);
    let own = crates().join(name);
    let of_store = crates().join("store").join(name);
    if name.contains('/') || of_store.is_dir() {
        return Ok(if name.contains('/') { own } else { of_store });
    }
    let folders = folders_in(&crates()).into_iter();
    let found = folders.map(|folder| crates().join(folder).join(name));
    let found: Vec<PathBuf> = found.filter(|path| path.is_dir()).collect();
    match &found[..] {
        [only] => Ok(only.clone()),
        _ => Err(format!("{} crates have the name {name}", found.len())),
    }
}

/// The file that a path means. A short one may be any that ends so, of the crates that the page names.
fn file(path: &str, short: &BTreeSet<PathBuf>) -> Result<Option<PathBuf>, String> {
    let Some((name, rest)) = split(path) else {
        let is_there = short.iter().any(|file| file.ends_with(path));
        return match is_there {
            true => Ok(None),
            false => Err("no file of the page's crates ends so".into()),
        };
    };
    let file = room(name)?.join(rest);
    match file.is_file() {
        true => Ok(Some(file)),
        false => Err(format!("there is no {}", file.display())),
    }
}

/// The files of the crates that a page names, for paths without a crate.
fn files_of_crates_in(page: &Page, all: &[PathBuf]) -> BTreeSet<PathBuf> {
    let words = quoted(&page.text).into_iter();
    let named = words.filter_map(|(word, _)| match split(word) {
        Some((name, _)) => room(name).ok(),
        None => word
            .strip_prefix("crates/")
            .and_then(|name| room(name).ok()),
    });
    let rooms: BTreeSet<PathBuf> = named.collect();
    let is_named = |file: &&PathBuf| rooms.iter().any(|room| file.starts_with(room));
    all.iter().filter(is_named).cloned().collect()
}

/// Names in parentheses right behind a path.
fn names_behind(after: &str) -> Vec<&str> {
    let inside = after.trim_start().strip_prefix('(');
    let Some((inside, _)) = inside.and_then(|inside| inside.split_once(')')) else {
        return Vec::new();
    };
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = quoted(inside).into_iter().map(|(word, _)| word);
    words.filter(|word| word.chars().all(is_part)).collect()
}

fn has_word(text: &str, wanted: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !is_part(c)).any(|word| word == wanted)
}

#[test]
fn prose_is_as_narrow_as_code() {
    for Page { name, text } in pages() {
        // What is generated is not written by anybody.
        if name == "docs/commands.md" {
            continue;
        }
        let mut is_code = false;
        for (number, line) in (1..).zip(text.lines()) {
            is_code ^= line.trim_start().starts_with("```");
            let begins = |with: &str| line.trim_start().starts_with(with);
            let may_be_wide = is_code || begins("|") || begins("<!--") || line.contains("://");
            let columns = line.chars().count();
            assert!(
                may_be_wide || columns <= PROSE_COLUMNS_MAX,
                "{name}:{number} has {columns} columns"
            );
        }
    }
}

#[test]
fn a_file_that_a_page_names_is_there_with_the_names_behind_it() {
    let all: Vec<PathBuf> = sources().into_iter().map(|(file, _)| file).collect();
    let (mut files, mut names, mut wrong) = (0, 0, Vec::new());
    for page in pages_about_code() {
        let short = files_of_crates_in(&page, &all);
        let paths = quoted(&page.text).into_iter();
        for (path, after) in paths.filter(|(quoted, _)| is_path(quoted)) {
            files += 1;
            let file = match file(path, &short) {
                Ok(Some(file)) => file,
                Ok(None) => continue,
                Err(why) => {
                    wrong.push(format!("{}: `{path}': {why}", page.name));
                    continue;
                }
            };
            let text = std::fs::read_to_string(file).expect("text");
            for name in names_behind(after) {
                names += 1;
                if !has_word(&text, name) {
                    wrong.push(format!("{}: `{path}' has no {name}", page.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(files > 400 && names > 100, "the pages were read");
}

#[test]
fn ten_questions_of_a_newcomer_have_three_files_and_one_sentence_each() {
    let page = page("ARCHITECTURE.md");
    let heading = "\n## Ten questions of a newcomer\n";
    let (_, from) = page.text.split_once(heading).expect("the section");
    let section = from.split("\n## ").next().expect("it ends");
    let questions: Vec<&str> = section.split(". **").skip(1).collect();
    assert_eq!(questions.len(), QUESTIONS, "questions");
    for question in questions {
        let (asked, answer) = question.split_once("** ").expect("an answer");
        assert!(asked.ends_with('?'), "{asked}");
        // The number of the next question is behind the last line.
        let answer = answer.trim_end_matches(|c: char| c.is_ascii_digit() || c.is_whitespace());
        let words = quoted(answer).into_iter().map(|(word, _)| word);
        let paths: Vec<&str> = words.filter(|word| is_path(word)).collect();
        assert!(
            (1..=PATHS_OF_AN_ANSWER_MAX).contains(&paths.len()),
            "{asked} is answered with {} files",
            paths.len()
        );
        for path in paths {
            let found = file(path, &BTreeSet::new());
            assert!(matches!(found, Ok(Some(_))), "{asked} `{path}': {found:?}");
        }
        let prose: String = answer.split('`').step_by(2).collect();
        let ends = prose.matches(['.', '?', '!']).count();
        assert!(ends == 1 && prose.ends_with('.'), "{asked}: one sentence");
    }
}

/// Where a link of a page leads, from the root of the repository, and the heading there.
fn target(page: &str, link: &str) -> (PathBuf, String) {
    let (path, heading) = link.split_once('#').unwrap_or((link, ""));
    let mut parts: Vec<&str> = page.split('/').collect();
    if !path.is_empty() {
        parts.pop();
        for part in path.split('/') {
            match part {
                ".." => drop(parts.pop()),
                part => parts.push(part),
            }
        }
    }
    (parts.into_iter().collect(), heading.to_owned())
}

fn links(text: &str) -> Vec<&str> {
    let prose = text.split("\n```").step_by(2);
    let links = prose.flat_map(|prose| prose.split("](").skip(1));
    let links = links.filter_map(|from| from.split_once(')').map(|(link, _)| link));
    links.filter(|link| !link.contains("://")).collect()
}

/// The names by which links reach the headings of a page.
fn headings(text: &str) -> BTreeSet<String> {
    let lines = text.lines().filter(|line| line.starts_with('#'));
    let titles = lines.map(|line| line.trim_start_matches('#').trim().to_lowercase());
    let name = |title: String| {
        let kept = |c: &char| c.is_alphanumeric() || "_- ".contains(*c);
        title.chars().filter(kept).collect::<String>()
    };
    titles.map(|title| name(title).replace(' ', "-")).collect()
}

#[test]
fn a_link_of_a_page_leads_somewhere() {
    let (mut followed, mut wrong) = (0, Vec::new());
    for page in pages() {
        for link in links(&page.text) {
            followed += 1;
            let (path, heading) = target(&page.name, link);
            let file = root().join(&path);
            let is_page = path.extension().is_some_and(|e| e == "md");
            // Pictures are no text.
            let is_right = match std::fs::read(&file) {
                Ok(bytes) if is_page && !heading.is_empty() => {
                    let text = String::from_utf8(bytes).expect("a page is text");
                    headings(&text).contains(&heading)
                }
                Ok(_) => true,
                Err(_) => file.is_dir(),
            };
            if !is_right {
                wrong.push(format!("{}: {link}", page.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(followed > 200, "the links were found");
}

/// The pages that a page below `docs` links to, in order.
fn pages_linked_by(page: &Page) -> Vec<String> {
    let links = links(&page.text).into_iter();
    let targets = links.map(|link| target(&page.name, link).0);
    let targets = targets.map(|path| path.to_string_lossy().into_owned());
    targets.filter(|path| path.ends_with(".md")).collect()
}

#[test]
fn the_book_has_every_page_once_and_the_list_of_pages_has_the_same_order() {
    let summary = pages_linked_by(&page("docs/SUMMARY.md"));
    let mut listed = summary.clone();
    listed.sort();
    let mut all: Vec<String> = pages().into_iter().map(|page| page.name).collect();
    all.sort();
    assert_eq!(listed, all, "docs/SUMMARY.md lists every page once");
    // The list does not name itself, and what is before it in the book.
    let before = ["README.md", "docs/README.md"];
    let wanted: Vec<&String> = summary
        .iter()
        .filter(|name| !before.contains(&&name[..]))
        .collect();
    let list = pages_linked_by(&page("docs/README.md"));
    assert_eq!(list.iter().collect::<Vec<_>>(), wanted, "docs/README.md");
}
