//! Names of nodes: `/a/b`. The root is `/`.

/// Longest path. A key of the store has at most 10,000 bytes, and the keeper's own part of it is short.
pub const PATH_BYTES_MAX: usize = 9000;
/// Deepest node.
pub const DEPTH_MAX: usize = 4000;

/// The path that a read means: who reads an empty path gets the root, as from ZooKeeper. A watch of it is one of the
/// empty path, and tells nothing.
pub fn named(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}

/// True if ZooKeeper accepts the path as the name of a node (its `PathUtils.validatePath`).
pub fn is_valid(path: &str) -> bool {
    let Some(rest) = path.strip_prefix('/') else {
        return false;
    };
    if rest.is_empty() {
        return true;
    }
    if path.len() > PATH_BYTES_MAX || depth(path) > DEPTH_MAX {
        return false;
    }
    let names_a_node = |name: &str| !matches!(name, "" | "." | "..");
    // Most paths are plain ASCII, and each is looked at several times.
    let is_plain = rest.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    rest.split('/').all(names_a_node) && (is_plain || !rest.chars().any(is_forbidden))
}

fn is_forbidden(c: char) -> bool {
    // A character outside Unicode's first plane is two halves in Java, and ZooKeeper refuses both.
    matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

/// The path of the parent; `None` for the root. `path` need not be valid.
pub fn parent(path: &str) -> Option<&str> {
    match path.rfind('/')? {
        0 if path.len() == 1 => None,
        0 => Some("/"),
        slash => Some(&path[..slash]),
    }
}

/// The last part of a path; empty for the root.
pub fn name(path: &str) -> &str {
    path.rfind('/').map_or(path, |slash| &path[slash + 1..])
}

/// The first part of a path; empty for the root.
pub fn first_name(path: &str) -> &str {
    path.split('/').nth(1).unwrap_or_default()
}

/// The path of the child `name` of `parent`.
pub fn join(parent: &str, name: &str) -> String {
    match parent {
        "/" => format!("/{name}"),
        _ => format!("{parent}/{name}"),
    }
}

/// The node whose subtree is counted for a quota, if `path` is where the quota says how much there is.
pub fn counted(path: &str) -> Option<&str> {
    let quota = path.strip_prefix("/zookeeper/quota")?;
    match quota.strip_suffix("/zookeeper_stats")? {
        "" => Some("/"),
        path => Some(path),
    }
}

/// Number of names in a valid path; 0 for the root.
pub fn depth(path: &str) -> usize {
    match path {
        "/" => 0,
        _ => path.bytes().filter(|byte| *byte == b'/').count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_valid_as_zookeeper_has_them() {
        for good in [
            "/",
            "/a",
            "/a/b",
            "/a.b/..c/.d.",
            "/ü",
            "/a b",
            "/zookeeper/quota",
        ] {
            assert!(is_valid(good), "{good:?}");
        }
        for bad in [
            "",
            "a",
            "a/b",
            "//",
            "/a/",
            "/a//b",
            "/.",
            "/..",
            "/a/./b",
            "/a/../b",
            "/a\0b",
            "/\u{1}",
            "/a\u{1f}",
            "/\u{7f}",
            "/\u{85}",
            "/\u{e000}",
            "/\u{fffd}",
            "/\u{1f600}",
        ] {
            assert!(!is_valid(bad), "{bad:?}");
        }
        assert!(!is_valid(&format!("/{}", "a".repeat(PATH_BYTES_MAX))));
        assert!(!is_valid(&"/a".repeat(DEPTH_MAX + 1)));
    }

    #[test]
    fn a_path_has_a_parent_a_name_and_a_depth() {
        for (path, parent_is, name_is, depth_is) in [
            ("/", None, "", 0),
            ("/a", Some("/"), "a", 1),
            ("/a/b", Some("/a"), "b", 2),
            ("/a/b/c", Some("/a/b"), "c", 3),
        ] {
            assert_eq!(parent(path), parent_is);
            assert_eq!(name(path), name_is);
            assert_eq!(first_name(path), if depth_is == 0 { "" } else { "a" });
            assert_eq!(depth(path), depth_is);
            if let Some(above) = parent_is {
                assert_eq!(join(above, name_is), path);
            }
        }
        assert_eq!(parent("no-slash"), None);
    }

    #[test]
    fn a_quota_counts_the_nodes_of_its_path() {
        let counted_of_a = counted("/zookeeper/quota/a/b/zookeeper_stats");
        assert_eq!(counted_of_a, Some("/a/b"));
        assert_eq!(counted("/zookeeper/quota/zookeeper_stats"), Some("/"));
        for other in [
            "/zookeeper/quota",
            "/zookeeper/quota/a/zookeeper_limits",
            "/a/zookeeper_stats",
        ] {
            assert_eq!(counted(other), None);
        }
    }
}
