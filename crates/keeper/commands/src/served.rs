//! Trees that gateways serve, and trees that came from another cluster, for commands that write keys of the database.

use plinth_client::Database;
use plinth_core::key::KeyRange;
use plinth_keeper::gone::Gone;
use plinth_keeper::left::{self, State};
use plinth_keeper::tree::rows::Rows;
use plinth_runtime::Boxed;
use plinth_terminal::served::Served;

plinth_terminal::served!(look);
plinth_terminal::carried!(all_trees, without_stream);

/// So many trees are named.
const NAMED_MAX: usize = 5;

fn look(database: &Database) -> Boxed<'_, plinth_core::Result<Vec<Served>>> {
    Box::pin(async move {
        let mut served = Vec::new();
        for tree in left::trees(database).await? {
            let at = left::serving(database, &tree).await?;
            if !at.is_empty() {
                served.push(Served {
                    range: Rows::new(&tree).all(),
                    what: format!("tree `{tree}' of the keeper"),
                    at,
                });
            }
        }
        Ok(served)
    })
}

fn all_trees() -> KeyRange {
    let (begin, end) = Rows::of_all_trees();
    KeyRange::new(begin, end)
}

/// The rows of a tree are copied with the others, and the stream of its changes is none of them.
fn without_stream(
    database: &Database,
    range: KeyRange,
) -> Boxed<'_, plinth_core::Result<Vec<String>>> {
    Box::pin(async move {
        let mut found = Vec::new();
        for tree in left::trees(database).await? {
            let is_there = Rows::new(&tree).all().intersects(&range);
            // Rows of another cluster are known as such only where its versions are higher.
            let state = left::state_of(database, &tree).await?;
            if is_there && matches!(state, State::Gone(Gone::Stream | Gone::Foreign)) {
                found.push(tree);
            }
        }
        Ok(line(&found).into_iter().collect())
    })
}

fn line(trees: &[String]) -> Option<String> {
    let first = trees.first()?;
    let mut named: Vec<String> = trees.iter().map(|tree| format!("`{tree}'")).collect();
    let more = named.len().saturating_sub(NAMED_MAX);
    named.truncate(NAMED_MAX);
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    let (tree, it) = if trees.len() == 1 {
        ("tree", "it")
    } else {
        ("trees", "each of them")
    };
    Some(format!(
        "{tree} {}{more} of the keeper came from another cluster, without its stream of changes, and nobody can serve \
         {it} so: drop {it} here (`plinth keeper drop --tree {first} --whole'), export {it} there (`plinth keeper \
         export --tree {first} --to-files DIR') and import {it} here (`plinth keeper import --from-files DIR --tree \
         {first}')",
        named.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_that_nobody_can_serve_are_named_with_the_way_out_and_not_all_of_many() {
        assert_eq!(line(&[]), None);
        let one = line(&["default".into()]).expect("there is one");
        assert!(
            one.starts_with("tree `default' of the keeper came from another cluster"),
            "{one}"
        );
        assert!(
            one.contains("`plinth keeper drop --tree default --whole'"),
            "{one}"
        );
        let many: Vec<String> = (0..8).map(|i| format!("t{i}")).collect();
        let many = line(&many).expect("there are some");
        assert!(
            many.contains("`t4' and 3 more of the keeper") && !many.contains("t5"),
            "{many}"
        );
    }
}
