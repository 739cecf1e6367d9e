//! The crate for applications and all that it stands on can be published: their manifests say what a registry asks.

use std::collections::BTreeMap;
use std::path::Path;

const FROM_THE_WORKSPACE: [&str; 5] =
    ["version", "license", "repository", "keywords", "categories"];

/// Names of the project's crates in the lines of a manifest, `plinth` itself excluded.
fn imports(manifest: &str) -> impl Iterator<Item = String> + '_ {
    let own = manifest.split("[dev-dependencies]").next();
    let lines = own.unwrap_or_default().lines();
    lines.filter_map(|line| {
        let name = line.split(['.', ' ']).next().unwrap_or_default();
        name.starts_with("plinth-").then(|| name.to_owned())
    })
}

/// The folder of each of the project's crates, below that of the workspace.
fn folders(workspace: &str) -> BTreeMap<String, String> {
    let mut folders = BTreeMap::new();
    for line in workspace.lines() {
        let Some((name, rest)) = line.split_once(" = { path = \"") else {
            continue;
        };
        let (folder, rest) = rest.split_once('"').expect("a path ends");
        assert!(
            rest.contains("version = "),
            "Cargo.toml: {name} needs a version beside its path"
        );
        folders.insert(name.to_owned(), folder.to_owned());
    }
    folders
}

/// What is missing in the manifests of `plinth` and of what it stands on, at most once each.
pub fn missing(root: &Path) -> Vec<String> {
    let read = |path: &Path| std::fs::read_to_string(path).expect("a manifest");
    let folders = folders(&read(&root.join("Cargo.toml")));
    let (mut open, mut seen, mut missing) = (vec!["plinth".to_owned()], Vec::new(), Vec::new());
    while let Some(name) = open.pop() {
        if seen.contains(&name) {
            continue;
        }
        let manifest = read(&root.join(&folders[&name]).join("Cargo.toml"));
        let package = manifest.split("\n[").next().unwrap_or_default();
        let has = |line: &str| package.lines().any(|of| of.starts_with(line));
        let own = ["description = \"", "readme"].map(str::to_owned);
        let inherited = FROM_THE_WORKSPACE.map(|field| format!("{field}.workspace = true"));
        let wanted = own.into_iter().chain(inherited);
        missing.extend(
            wanted
                .filter(|line| !has(line))
                .map(|line| format!("{name}: {line}")),
        );
        open.extend(imports(&manifest));
        seen.push(name);
    }
    assert!(seen.len() > 10, "the crates below were found: {seen:?}");
    missing
}
