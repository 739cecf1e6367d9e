//! Circles of imports between the files of a crate.
//!
//! A file imports another if a `use` or a path that begins with `crate`, `super` or `self` leads there. Imports
//! between a module and those inside it are one concern and do not count. Unit tests do not count.

use super::rust_files;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

type Module = Vec<String>;
type Modules = BTreeMap<Module, String>;

/// Every set of files of the crate at `root` that import each other in a circle.
pub fn of_crate(root: &Path) -> Vec<Vec<String>> {
    let modules = modules(&root.join("src"));
    let imports: BTreeMap<&Module, BTreeSet<Module>> = modules
        .iter()
        .map(|(module, text)| (module, imports(module, text, &modules)))
        .collect();
    let mut circles = BTreeSet::new();
    for module in modules.keys() {
        let there = reachable(module, &imports);
        let both_ways = |other: &&Module| reachable(other, &imports).contains(module);
        let circle: Vec<String> = there
            .iter()
            .filter(both_ways)
            .map(|other| other.join("/"))
            .collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

fn reachable(from: &Module, imports: &BTreeMap<&Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(module) = left.pop() {
        for next in &imports[module] {
            if seen.insert(next.clone()) {
                left.push(next);
            }
        }
    }
    seen
}

/// The files by module path, without comments and unit tests.
fn modules(source: &Path) -> Modules {
    let mut files = Vec::new();
    rust_files(source, &mut files);
    let mut modules = Modules::new();
    for file in files {
        let inside = file.strip_prefix(source).expect("it lies there");
        let path = inside.with_extension("").to_string_lossy().into_owned();
        let mut module: Module = path.split('/').map(String::from).collect();
        let last = module.last().cloned().expect("a name");
        if ["lib", "main", "mod"].contains(&&last[..]) {
            module.pop();
        }
        let is_test = ["tests", "testing"].contains(&&last[..]);
        if module.is_empty() || is_test {
            continue;
        }
        let text = std::fs::read_to_string(&file).expect("text");
        let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        let lines = code
            .lines()
            .map(|line| line.split("//").next().unwrap_or_default());
        modules.insert(module, lines.collect::<Vec<_>>().join("\n"));
    }
    modules
}

/// The modules of the same crate that `text` names, except those that `module` is in, and those in it.
fn imports(module: &Module, text: &str, modules: &Modules) -> BTreeSet<Module> {
    let mut found = BTreeSet::new();
    let mut paths: Vec<String> = Vec::new();
    for part in text.split("use ").skip(1) {
        let tree: String = part
            .split(';')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        expand("", &tree, &mut paths);
    }
    let is_path = |c: char| c.is_ascii_lowercase() || c == '_' || c == ':';
    for part in text.split("crate::").skip(1) {
        let rest: String = part.chars().take_while(|c| is_path(*c)).collect();
        paths.push(format!("crate::{rest}"));
    }
    for path in paths {
        let mut parts: Vec<&str> = path.split("::").filter(|part| !part.is_empty()).collect();
        let mut target: Module = match parts.first() {
            Some(&"crate") => Vec::new(),
            Some(&"self") => module.clone(),
            Some(&"super") => module[..module.len() - 1].to_vec(),
            _ => continue,
        };
        parts.remove(0);
        while parts.first() == Some(&"super") {
            target.pop();
            parts.remove(0);
        }
        target.extend(parts.into_iter().map(String::from));
        while !target.is_empty() && !modules.contains_key(&target) {
            target.pop();
        }
        let is_kin = target.starts_with(module) || module.starts_with(&target);
        if !is_kin {
            found.insert(target);
        }
    }
    found
}

/// Appends every path of a `use` tree.
fn expand(before: &str, tree: &str, paths: &mut Vec<String>) {
    let Some((head, body)) = tree.split_once('{') else {
        paths.push(format!("{before}{tree}"));
        return;
    };
    let before = format!("{before}{head}");
    let (mut depth, mut begin) = (0, 0);
    for (at, c) in body.char_indices() {
        match c {
            '{' => depth += 1,
            '}' | ',' if depth == 0 => {
                expand(&before, &body[begin..at], paths);
                begin = at + 1;
                if c == '}' {
                    return;
                }
            }
            '}' => depth -= 1,
            _ => {}
        }
    }
}

#[test]
fn a_use_tree_names_each_of_its_paths() {
    let mut paths = Vec::new();
    expand("", "crate::a::{b,c::{d,e},self}", &mut paths);
    let expected = [
        "crate::a::b",
        "crate::a::c::d",
        "crate::a::c::e",
        "crate::a::self",
    ];
    assert_eq!(paths, expected);
}
