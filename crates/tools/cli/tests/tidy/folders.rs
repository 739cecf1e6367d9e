//! Folders of crates: each is a system or what systems stand on. A crate imports from its own folder and from those
//! below it, and of the store only what the store offers. Inside a folder, Cargo itself refuses circles.

use super::{crates, folders_in};
use std::collections::BTreeMap;
use toml::de::DeTable;

/// A folder, and the others whose crates it may import. Each stands above those.
const FOLDERS: [(&str, &[&str]); 8] = [
    ("base", &[]),
    ("store", &["base"]),
    ("bindings", &["base", "store"]),
    ("layers", &["base", "store"]),
    ("keeper", &["base", "store"]),
    ("farm", &["base", "store"]),
    ("delos", &["base", "store", "keeper"]),
    (
        "tools",
        &["base", "store", "layers", "keeper", "farm", "delos"],
    ),
];

/// What others may import of the store, by its folder. The rest is its own business.
const OFFERED: [&str; 6] = [
    "client",
    "coordination",
    "engine",
    "log",
    "terminal",
    "workload",
];

/// Crates that are for these packages only, by their folder. Everything else of a system is for all of it.
const FOR: [(&str, &[&str]); 6] = [
    ("store/commands", &["plinth-cli"]),
    // What operators choose for ZooKeeper's clients, they choose for Zelos, too.
    ("keeper/commands", &["plinth-cli", "plinth-delos-commands"]),
    ("farm/commands", &["plinth-cli"]),
    ("delos/commands", &["plinth-cli"]),
    // Simulated clusters, for `plinth tools sim` and for tests.
    ("store/sim", &["plinth-commands"]),
    // The world of the in-memory engine in the simulator.
    ("farm/check", &["plinth-farm-commands"]),
];

/// The embedded cluster of the crate for applications; the program, which has a cluster in it as well.
const ALSO: [(&str, &str); 3] = [
    ("plinth", "plinth-server"),
    ("plinth-cli", "plinth-server"),
    ("plinth-cli", "plinth-control"),
];

struct Package {
    folder: String,
    room: String,
    imports: Vec<String>,
    tests_import: Vec<String>,
}

fn names(manifest: &DeTable, table: &str) -> Vec<String> {
    let table = manifest
        .get(table)
        .and_then(|value| value.get_ref().as_table());
    let names = table.into_iter().flat_map(|table| table.keys());
    let names = names.map(|name| name.get_ref().to_string());
    names.filter(|name| name.starts_with("plinth")).collect()
}

/// Dependencies of some targets only, which are of other projects.
fn targets_import_nothing(manifest: &DeTable) -> bool {
    let targets = manifest
        .get("target")
        .and_then(|value| value.get_ref().as_table());
    let targets = targets.into_iter().flat_map(|targets| targets.values());
    let mut targets = targets.filter_map(|value| value.get_ref().as_table());
    targets.all(|target| names(target, "dependencies").is_empty())
}

/// Every package by its name.
fn packages() -> BTreeMap<String, Package> {
    let mut packages = BTreeMap::new();
    for (folder, _) in FOLDERS {
        for room in folders_in(&crates().join(folder)) {
            let path = crates().join(folder).join(&room).join("Cargo.toml");
            let text = std::fs::read_to_string(&path).expect("a manifest");
            let manifest = DeTable::parse(&text).expect("a manifest").into_inner();
            assert!(
                targets_import_nothing(&manifest)
                    && names(&manifest, "build-dependencies").is_empty(),
                "{}: this test looks at no such dependencies",
                path.display()
            );
            let name = manifest["package"].get_ref()["name"].get_ref().as_str();
            let package = Package {
                folder: folder.to_owned(),
                room,
                imports: names(&manifest, "dependencies"),
                tests_import: names(&manifest, "dev-dependencies"),
            };
            packages.insert(name.expect("a name").to_owned(), package);
        }
    }
    assert!(packages.len() > 40, "the crates were found");
    packages
}

/// Why `name` may not import `import`; `None` if it may.
fn refusal(name: &str, of: &Package, import: &str, imported: &Package) -> Option<&'static str> {
    let (_, below) = FOLDERS.iter().find(|(folder, _)| *folder == of.folder)?;
    let is_inside = of.folder == imported.folder;
    let place = format!("{}/{}", imported.folder, imported.room);
    let only = FOR.iter().find(|(crate_for, _)| *crate_for == place);
    if !is_inside && !below.contains(&&imported.folder[..]) {
        return Some("that folder is not below");
    }
    if let Some((_, users)) = only {
        return (!users.contains(&name)).then_some("that crate is for others");
    }
    let is_offered = imported.folder != "store" || OFFERED.contains(&&imported.room[..]);
    (!is_inside && !is_offered && !ALSO.contains(&(name, import)))
        .then_some("the store does not offer it")
}

#[test]
fn every_crate_lies_in_a_folder_that_is_listed() {
    let mut listed = FOLDERS.map(|(folder, _)| folder);
    listed.sort_unstable();
    assert_eq!(folders_in(&crates()), listed);
}

#[test]
fn a_crate_imports_only_from_its_own_folder_and_those_below() {
    let packages = packages();
    for (name, of) in &packages {
        for import in &of.imports {
            let refusal = refusal(name, of, import, &packages[import]);
            assert_eq!(refusal, None, "{name} imports {import}");
        }
    }
}

/// Tests look into everything, but a system's tests run without the systems above it.
#[test]
fn the_tests_of_a_crate_import_nothing_from_a_folder_that_is_not_below() {
    let packages = packages();
    for (name, of) in &packages {
        for import in &of.tests_import {
            let (folder, imported) = (&of.folder[..], &packages[import].folder[..]);
            let (_, below) = FOLDERS[place_of(folder)];
            let may = folder == imported || folder == "tools" || below.contains(&imported);
            assert!(may, "the tests of {name} import {import}");
        }
    }
}

fn place_of(folder: &str) -> usize {
    let place = FOLDERS.iter().position(|(name, _)| *name == folder);
    place.unwrap_or_else(|| panic!("{folder} is not listed"))
}

#[test]
fn a_folder_stands_above_those_that_it_imports_from() {
    for (own, (folder, below)) in FOLDERS.iter().enumerate() {
        for other in *below {
            assert!(place_of(other) < own, "{folder} imports {other}");
        }
    }
}

/// A rule that nothing needs any more would let something come back unseen.
#[test]
fn every_exception_is_used() {
    let packages = packages();
    for (name, import) in ALSO {
        let used = packages[name].imports.iter().any(|used| used == import);
        assert!(used, "{name} does not import {import}");
    }
    for (place, users) in FOR {
        let (folder, room) = place.split_once('/').expect("a folder and a room");
        let is_it = |package: &&Package| package.folder == folder && package.room == room;
        let name = packages.iter().find(|(_, package)| is_it(package));
        let (name, _) = name.unwrap_or_else(|| panic!("{place} is no crate"));
        for user in users {
            let used = packages[*user].imports.contains(name);
            assert!(used, "{user} does not import {name}");
        }
    }
}
