//! `plinth keeper status` and `plinth keeper drop`: what there is of a tree, and its end.

use crate::name::parse_tree;
use plinth_keeper::gone::Gone;
use plinth_keeper::left::{self, Left, Removed, State};
use plinth_measure::grouped;
use plinth_terminal::connect::{self, ClusterArguments, Connection};
use plinth_terminal::{Outcome, wrap};

#[derive(clap::Args, Debug)]
struct Tree {
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Name of the tree
    #[arg(long, value_name = "NAME", default_value = "default", value_parser = parse_tree)]
    tree: String,
}

impl Tree {
    async fn connect(&self) -> Outcome<Connection> {
        let connection = self.cluster.connect().await?;
        connection.limit_transactions();
        Ok(connection)
    }

    fn failed(&self, why: String) -> String {
        format!("tree `{}': the database: {why}", self.tree)
    }
}

#[derive(clap::Args, Debug)]
pub struct StatusArguments {
    #[command(flatten)]
    tree: Tree,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
pub struct DropArguments {
    #[command(flatten)]
    tree: Tree,
    /// Drop the tree also if its nodes are there, with all of them
    #[arg(long)]
    whole: bool,
    /// Drop it also while gateways serve it, which serve nobody then until they are started again
    #[arg(long, requires = "whole")]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args, Debug)]
pub struct ListArguments {
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn list(arguments: &ListArguments) -> Outcome {
    let trees = connect::block_on(async {
        let connection = arguments.cluster.connect().await?;
        connection.limit_transactions();
        let (database, mut trees) = (&connection.database, Vec::new());
        let failed = |error| format!("the database: {}", connect::explain(error));
        for tree in left::trees(database).await.map_err(failed)? {
            let state = left::state_of(database, &tree).await.map_err(failed)?;
            trees.push((tree, state.to_string()));
        }
        Ok(trees)
    })?;
    if arguments.json {
        let listed = trees.iter();
        let listed =
            listed.map(|(tree, state)| serde_json::json!({ "tree": tree, "state": state }));
        let listed: Vec<_> = listed.collect();
        println!("{}", serde_json::json!({ "trees": listed }));
        return Ok(());
    }
    for (tree, state) in &trees {
        println!("{tree}  {state}");
    }
    if trees.is_empty() {
        plinth_terminal::say!("there is no tree; a gateway makes one: `plinth keeper server'");
    }
    Ok(())
}

pub fn status(arguments: &StatusArguments) -> Outcome {
    let tree = &arguments.tree;
    let (found, advice) = connect::block_on(async {
        let connection = tree.connect().await?;
        let database = &connection.database;
        let looking = left::look(database, &tree.tree);
        let found = looking
            .await
            .map_err(|error| tree.failed(connect::explain(error)))?;
        let mut advice = advice(&tree.tree, found.state);
        if found.state == State::Absent {
            advice.insert(0, left::none_such(database, &tree.tree).await);
        }
        Ok((found, advice))
    })?;
    match arguments.json {
        true => print_json(&tree.tree, &found, &advice),
        false => wrap::print(&text(&tree.tree, &found, &advice)),
    }
    match found.state {
        State::Whole => Ok(()),
        // Programs look for what has failed in one place.
        state if arguments.json => Err(format!("tree `{}': {state}", tree.tree)),
        _ => Err(String::new()), // it was said
    }
}

fn print_json(tree: &str, left: &Left, advice: &[String]) {
    let Left {
        counted, totals, ..
    } = left;
    let document = serde_json::json!({
        "tree": tree, "state": left.state.to_string(), "is_whole": left.state == State::Whole, "nodes": counted.nodes,
        "ephemerals": counted.ephemerals, "sessions": counted.sessions, "gateways": left.gateways,
        "has_stream": left.has_stream, "znode_count": totals.nodes, "advice": advice,
    });
    println!("{document}");
}

fn text(tree: &str, left: &Left, advice: &[String]) -> String {
    let mut lines = vec![format!("tree `{tree}': {}", left.state)];
    let mut row = |name: &str, value: String| lines.push(format!("  {name:<22} {value}"));
    // The tree's own number has the root twice, as ZooKeeper's.
    let expected = left.totals.nodes - 1;
    let nodes = grouped(left.counted.nodes as f64);
    row(
        "nodes",
        match left.state == State::Whole && expected != left.counted.nodes as i64 {
            true => format!("{nodes}, and there were {expected}"),
            false => nodes,
        },
    );
    row("ephemeral nodes", grouped(left.counted.ephemerals as f64));
    row("sessions", grouped(left.counted.sessions as f64));
    // The rows may be of another cluster, and so the leases in them.
    let gateways = match left.state {
        State::Whole => "gateways with a lease",
        _ => "leases in its rows",
    };
    row(
        gateways,
        match left.gateways.is_empty() {
            true => "none".into(),
            false => left.gateways.join(" "),
        },
    );
    let stream = if left.has_stream { "there" } else { "missing" };
    row("stream of changes", stream.into());
    lines.extend(advice.iter().cloned());
    lines.join("\n")
}

/// How one gateway of `plinth dev` is started again, and not all of it.
const OF_DEV: &str =
    "`plinth dev' starts its own again when somebody ends that process (`kill', with its number)";

/// What an operator can do about it.
fn advice(tree: &str, state: State) -> Vec<String> {
    match state {
        State::Whole => Vec::new(),
        State::Absent => vec![format!(
            "A gateway that starts makes an empty one: `plinth keeper server --tree {tree}'; one that has served it \
             before it was dropped serves nobody until it is started again; {OF_DEV}."
        )],
        State::Importing => vec![
            "Let the import end, or begin it again; `plinth keeper drop' gives the tree up.".into(),
        ],
        State::Gone(Gone::Stream) => vec![
            format!(
                "If somebody has dropped it here: stop the gateways, make it again, and start them: plinth stream \
                 create 'keeper/{tree}' --append --bytes-max 268435456 --seconds-max 600"
            ),
            format!("If the rows were copied or loaded from another cluster: {}", moving(tree)),
        ],
        State::Gone(Gone::Foreign) => vec![
            format!("If the rows were copied or loaded from another cluster: {}", moving(tree)),
            format!(
                "An empty tree: `plinth keeper drop --tree {tree} --whole', then start the gateways again."
            ),
        ],
        State::Unreadable => vec![
            "If a newer release has made it, use that release.".into(),
            format!("An empty tree: `plinth keeper drop --tree {tree} --whole', then start the gateways again."),
        ],
        State::Gone(_) => vec![
            format!(
                "An empty tree: `plinth keeper drop --tree {tree}', with --whole if it still has nodes, then start \
                 the gateways again."
            ),
            format!(
                "The nodes of an export or of a ZooKeeper: drop it, `plinth keeper import --tree {tree}', and start \
                 the gateways again."
            ),
            "Rows that `plinth dump' has read from this cluster: stop the gateways, `plinth load', start them."
                .into(),
        ],
    }
}

/// How a tree comes from another cluster.
fn moving(tree: &str) -> String {
    format!(
        "drop them (`plinth keeper drop --tree {tree} --whole'), export the tree there (`plinth keeper export \
         --to-files DIR'), and import it here (`plinth keeper import --from-files DIR --tree {tree}'): else new zxids \
         might be below those that clients have seen."
    )
}

pub fn drop(arguments: &DropArguments) -> Outcome {
    let tree = &arguments.tree;
    let (removed, serving, none) = connect::block_on(async {
        let connection = tree.connect().await?;
        let database = &connection.database;
        let serving = match arguments.whole {
            true => left::serving(database, &tree.tree).await,
            false => Ok(Vec::new()), // one that serves has its nodes, and stays
        };
        let serving = serving.map_err(|error| tree.failed(connect::explain(error)))?;
        if !arguments.force {
            refuse_served(&tree.tree, &serving)?;
        }
        let removing = left::remove(database, &tree.tree, arguments.whole);
        let removed = removing
            .await
            .map_err(|error| tree.failed(connect::explain(error)))?;
        let none = match removed {
            Removed::Nothing => left::none_such(database, &tree.tree).await,
            _ => String::new(),
        };
        Ok((removed, serving, none))
    })?;
    let name = &tree.tree;
    match removed {
        Removed::Done if arguments.json => {
            let document =
                serde_json::json!({ "tree": name, "dropped": true, "gateways": serving });
            println!("{document}");
            Ok(())
        }
        Removed::Done => {
            println!("tree `{name}' is dropped; the next gateway that starts makes an empty one");
            if !serving.is_empty() {
                plinth_terminal::say!(
                    "who served it serves nobody until it is started again: {}; {OF_DEV}",
                    serving.join(", ")
                );
            }
            Ok(())
        }
        Removed::Nothing => Err(none),
        Removed::Whole => Err(format!(
            "tree `{name}' has its nodes; `plinth keeper export' keeps a copy of a whole one, and --whole drops it \
             with all of them"
        )),
    }
}

/// Clients of a tree that goes lose what they do, and their gateways do not come back by themselves.
fn refuse_served(tree: &str, serving: &[String]) -> Outcome {
    match serving {
        [] => Ok(()),
        some => Err(format!(
            "tree `{tree}' is served at {}; it stays as it is. End {} first, or drop it with --force",
            some.join(", "),
            if some.len() == 1 {
                "that gateway"
            } else {
                "these gateways"
            }
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_that_is_gone_has_advice_for_those_who_have_served_it() {
        let lines = advice("a", State::Absent);
        assert!(lines[0].contains("serves nobody until it is started again"));
        assert!(lines[0].contains("`plinth keeper server --tree a'"));
    }

    #[test]
    fn a_tree_that_is_served_is_not_dropped_and_its_gateways_are_named() {
        assert_eq!(refuse_served("a", &[]), Ok(()));
        let both = ["10.0.0.1:2181".into(), "10.0.0.2:2181".into()];
        let line = refuse_served("a", &both).expect_err("it is served");
        assert!(
            line.contains("served at 10.0.0.1:2181, 10.0.0.2:2181"),
            "{line}"
        );
        assert!(line.contains("--force"), "{line}");
        assert!(refuse_served("a", &both[..1]).is_err_and(|line| line.contains("that gateway")));
    }
}
