//! Circles of imports between the files of a crate.
//!
//! A file imports another if a `use` or a path that begins with `crate`, `super` or `self` leads there, also by what a
//! module re-exports and by an exported macro. Who imports a module as a whole may use all that is in it, so that
//! imports the files inside, too. Imports between a module and those inside it are one concern and do not count. Unit
//! tests do not count.

use super::rust_files;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

type Module = Vec<String>;
type Modules = BTreeMap<Module, String>;

/// Where a module has an item from: the path by which it re-exports it.
type Exports = BTreeMap<(Module, String), Module>;

/// Every set of files of the crate at `root` that import each other in a circle, with what each imports of the others.
pub fn of_crate(root: &Path) -> Vec<Vec<String>> {
    let modules = modules(&root.join("src"));
    let exports = exports(&modules);
    let imports: BTreeMap<&Module, BTreeSet<Module>> = modules
        .iter()
        .map(|(module, text)| (module, imports(module, text, &modules, &exports)))
        .collect();
    let mut circles = BTreeSet::new();
    for module in modules.keys() {
        let there = reachable(module, &imports);
        let both_ways = |other: &&Module| reachable(other, &imports).contains(module);
        let circle: BTreeSet<Module> = there.iter().filter(both_ways).cloned().collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    let told = |circle: BTreeSet<Module>| {
        let told = circle.iter().map(|file| {
            let next = imports[file].intersection(&circle);
            let next: Vec<String> = next.map(|next| next.join("/")).collect();
            format!("{} imports {}", file.join("/"), next.join(", "))
        });
        told.collect()
    };
    circles.into_iter().map(told).collect()
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

/// The files by module path, that of the crate itself being empty, without comments and unit tests.
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
        let is_test = |part: &String| ["tests", "testing"].contains(&&part[..]);
        if module.iter().any(is_test) {
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

/// The paths of every `use` in `text`, and whether it re-exports.
fn uses(text: &str) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    for (at, word) in text.match_indices("use ") {
        let before = text[..at].trim_end_matches(' ');
        let line = before.rsplit('\n').next().unwrap_or_default().trim_start();
        if !(line.is_empty() || line.starts_with("pub")) {
            continue;
        }
        let tree = text[at + word.len()..].split(';').next();
        let tree = tree.unwrap_or_default().replace(" as ", "=>");
        let tree: String = tree.split_whitespace().collect();
        let mut paths = Vec::new();
        expand("", &tree, &mut paths);
        found.extend(paths.into_iter().map(|path| (path, !line.is_empty())));
    }
    found
}

/// A path as it is written in `module`, from the crate's root; `None` if it leads out of the crate.
fn from_root(module: &Module, path: &str, modules: &Modules) -> Option<Module> {
    let path = path.split("=>").next().unwrap_or_default();
    let mut parts = path.split("::").filter(|part| !part.is_empty()).peekable();
    let first = parts.next()?;
    let mut target = match first {
        "crate" => Vec::new(),
        "self" => module.clone(),
        "super" => module[..module.len().checked_sub(1)?].to_vec(),
        child => {
            let mut inside = module.clone();
            inside.push(child.to_owned());
            modules.contains_key(&inside).then_some(inside)?
        }
    };
    while parts.next_if(|part| *part == "super").is_some() {
        target.pop();
    }
    target.extend(parts.filter(|part| *part != "self").map(String::from));
    Some(target)
}

fn exports(modules: &Modules) -> Exports {
    let mut exports = Exports::new();
    for (module, text) in modules {
        for (path, is_export) in uses(text) {
            let name = path.rsplit("=>").next().unwrap_or_default();
            let name = name.rsplit("::").next().unwrap_or_default();
            if let Some(target) = from_root(module, &path, modules).filter(|_| is_export) {
                exports.insert((module.clone(), name.to_owned()), target);
            }
        }
        for part in text.split("#[macro_export]").skip(1) {
            let name = part.split("macro_rules! ").nth(1).unwrap_or_default();
            let name = name.split([' ', '{']).next().unwrap_or_default();
            exports.insert((Vec::new(), name.to_owned()), module.clone());
        }
    }
    exports
}

/// The modules that a path from the root leads to.
fn resolve(path: &Module, modules: &Modules, exports: &Exports) -> Vec<Module> {
    let mut path = path.clone();
    // A re-export may lead to another.
    for _ in 0..8 {
        let depth = (0..=path.len())
            .rev()
            .find(|depth| modules.contains_key(&path[..*depth]));
        let module = path[..depth.unwrap_or(0)].to_vec();
        let Some(item) = path.get(module.len()) else {
            let inside = modules.keys().filter(|other| other.starts_with(&module));
            return inside.cloned().collect();
        };
        let Some(export) = exports.get(&(module.clone(), item.clone())) else {
            return vec![module];
        };
        let mut next = export.clone();
        next.extend(path.drain(module.len() + 1..));
        if next == path {
            return vec![module];
        }
        path = next;
    }
    Vec::new()
}

/// The modules of the same crate that `text` names, except those that `module` is in, and those in it.
fn imports(module: &Module, text: &str, modules: &Modules, exports: &Exports) -> BTreeSet<Module> {
    let mut paths: Vec<String> = uses(text).into_iter().map(|(path, _)| path).collect();
    let is_path = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    for part in text.split("crate::").skip(1) {
        let rest: String = part.chars().take_while(|c| is_path(*c)).collect();
        // A tree in braces is in `uses`.
        paths.extend((!rest.is_empty()).then(|| format!("crate::{rest}")));
    }
    let paths = paths
        .iter()
        .filter_map(|path| from_root(module, path, modules));
    // Who names what it lies in means what is there, and not its neighbours.
    let paths = paths.filter(|path| !module.starts_with(path));
    let found = paths.flat_map(|path| resolve(&path, modules, exports));
    let is_kin = |other: &Module| other.starts_with(module) || module.starts_with(other);
    found.filter(|other| !is_kin(other)).collect()
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
