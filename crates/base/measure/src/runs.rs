//! The JSON objects that runs have printed, read again, and sets of those that belong together.

use serde_json::Value;
use std::path::{Path, PathBuf};

/// Parses the objects in a text: one per line, one over several lines, or an array of them. The error is one line.
pub fn parse_runs(text: &str) -> Result<Vec<Value>, String> {
    let mut runs = Vec::new();
    for parsed in serde_json::Deserializer::from_str(text).into_iter::<Value>() {
        match parsed.map_err(|error| format!("it is not JSON: {error}"))? {
            Value::Array(items) => runs.extend(items),
            item => runs.push(item),
        }
    }
    match runs.iter().find(|run| !run["workload"].is_string()) {
        Some(_) => {
            Err("an object in it has no \"workload\": it is not from `bench run --json'".into())
        }
        None if runs.is_empty() => Err("it is empty".into()),
        None => Ok(runs),
    }
}

/// Runs that belong together: those of a file, or of a directory.
pub struct Set {
    pub name: String,
    pub runs: Vec<Value>,
}

/// Who measures a workload once keeps all of its files in one set. Files that have the same workloads are compared: by
/// their directories if those tell them apart, else by their names.
pub fn sets(files: Vec<(PathBuf, Vec<Value>)>) -> Vec<Set> {
    let directory = |path: &Path| {
        let directory = path.parent().unwrap_or(Path::new(""));
        let own = directory.file_name().unwrap_or(directory.as_os_str());
        (directory.to_path_buf(), own.to_string_lossy().into_owned())
    };
    let of_file = |path: &Path| {
        let stem = path.file_stem().unwrap_or(path.as_os_str());
        (path.to_path_buf(), stem.to_string_lossy().into_owned())
    };
    let all = |_: &Path| (PathBuf::new(), String::new());
    let ways: [&dyn Fn(&Path) -> (PathBuf, String); 2] = [&all, &directory];
    let good = ways.into_iter().find(|way| {
        let mut seen: Vec<(PathBuf, String, &Path)> = Vec::new();
        files.iter().all(|(path, runs)| {
            let of = way(path).0;
            let labels: Vec<String> = runs.iter().map(label).collect();
            let is_new = labels.iter().all(|label| {
                let is_same = |(set, other, from): &(PathBuf, String, &Path)| {
                    *set == of && other == label && *from != path.as_path()
                };
                !seen.iter().any(is_same)
            });
            seen.extend(
                labels
                    .into_iter()
                    .map(|label| (of.clone(), label, path.as_path())),
            );
            is_new
        })
    });
    let way = good.unwrap_or(&of_file);
    let mut sets: Vec<(PathBuf, Set)> = Vec::new();
    for (path, runs) in &files {
        let (of, name) = way(path);
        match sets.iter_mut().find(|(other, _)| *other == of) {
            Some((_, set)) => set.runs.extend(runs.iter().cloned()),
            None => sets.push((
                of,
                Set {
                    name,
                    runs: runs.clone(),
                },
            )),
        }
    }
    // Two of one name are told apart by their whole paths.
    let names: Vec<String> = sets.iter().map(|(_, set)| set.name.clone()).collect();
    for (of, set) in &mut sets {
        if names.iter().filter(|name| **name == set.name).count() > 1 {
            set.name = of.display().to_string();
        }
    }
    sets.into_iter().map(|(_, set)| set).collect()
}

/// What a run is called: its workload and its clients.
pub fn label(run: &Value) -> String {
    let name = run["workload"].as_str().unwrap_or("?");
    match run["clients"].as_u64().unwrap_or(0) {
        1 => format!("{name}, 1 client"),
        clients => format!("{name}, {clients} clients"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn files(all: &[(&str, &[&str])]) -> Vec<(PathBuf, Vec<Value>)> {
        let run = |workload: &&str| json!({"workload": workload, "clients": 100});
        all.iter()
            .map(|(path, of)| (PathBuf::from(path), of.iter().map(run).collect()))
            .collect()
    }

    fn names(sets: &[Set]) -> Vec<(&str, usize)> {
        sets.iter()
            .map(|set| (set.name.as_str(), set.runs.len()))
            .collect()
    }

    #[test]
    fn files_are_compared_only_if_they_have_the_same_workloads() {
        let one = sets(files(&[
            ("r/a.json", &["point-reads"]),
            ("r/b.json", &["bulk-load"]),
        ]));
        assert_eq!(names(&one), [("", 2)]);
        let directories = sets(files(&[
            ("old/a.json", &["point-reads"]),
            ("old/b.json", &["bulk-load"]),
            ("new/a.json", &["point-reads"]),
        ]));
        assert_eq!(names(&directories), [("old", 2), ("new", 1)]);
        let twice = sets(files(&[("runs.jsonl", &["point-reads", "point-reads"])]));
        assert_eq!(names(&twice), [("", 2)]);
        let alike = sets(files(&[
            ("x/r/a.json", &["point-reads"]),
            ("y/r/a.json", &["point-reads"]),
        ]));
        assert_eq!(names(&alike), [("x/r", 1), ("y/r", 1)]);
    }

    #[test]
    fn what_is_not_from_a_run_is_refused_in_words() {
        assert!(parse_runs("[]").is_err());
        assert!(
            parse_runs("{\"a\":1}")
                .expect_err("no workload")
                .contains("workload")
        );
        assert!(
            parse_runs("{\"workload\"")
                .expect_err("cut off")
                .contains("not JSON")
        );
    }
}
