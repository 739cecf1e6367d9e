//! Lists that look at more than names: some of the children, with what is in them, or all nodes below a node.

use super::reserved::{LOADS_AT_ONCE, Reserved, load_list, path_of};
use super::{
    Tries, data_of, names_of, node, readable, readable_list, readable_with_data, stat_now,
};
use crate::paths;
use crate::talk::Talk;
use crate::wire::{Code, Details, Filter, Listed, MultiResult, Request, Text};
use crate::{ANSWER_BYTES_MAX, LIST_BYTES_MAX};
use plinth_runtime::join_all;

/// True for such a list.
pub fn is_deep(request: &Request) -> bool {
    matches!(
        request,
        Request::List { .. } | Request::ListRecursive { .. }
    )
}

/// The list as it is now, if all that it looks at is known; waits for the store otherwise. `None` if others have
/// changed something as it was loaded.
pub async fn read(connection: &Talk, request: &Request) -> Result<Option<MultiResult>, Code> {
    match request {
        Request::List {
            path,
            filter,
            details,
            ..
        } => {
            let of = details.unwrap_or(Details {
                stat: false,
                data: false,
            });
            let listed = children(connection, path, *filter, of).await?;
            Ok(listed.map(|listed| match details {
                Some(_) => MultiResult::Listed(listed),
                None => MultiResult::ChildrenAndStat(listed.names, listed.stat),
            }))
        }
        Request::ListRecursive { path, most } => {
            let paths = below(connection, path, *most).await?;
            Ok(paths.map(MultiResult::Paths))
        }
        _ => Err(Code::UNIMPLEMENTED),
    }
}

/// Who may not read a child learns neither what it has nor what kind it is.
async fn children(
    connection: &Talk,
    path: &str,
    filter: Filter,
    of: Details,
) -> Result<Option<Listed>, Code> {
    let path = paths::named(path);
    let node = readable_list(connection, path, LIST_BYTES_MAX.get(), Tries(1)).await?;
    let Some(node) = node else { return Ok(None) };
    let mut listed = Listed {
        stat: node.stat(),
        ..Listed::default()
    };
    for name in names_of(connection, path) {
        let at = paths::join(path, &name);
        let reading = async {
            match of.data {
                true => readable_with_data(connection, &at, Tries(1)).await,
                false => readable(connection, &at).await.map(Some),
            }
        };
        let child = match reading.await {
            // It is in the list, and its rows say that there is none.
            Err(Code::NO_NODE) => Err(Code::DATA_INCONSISTENCY),
            read => read,
        }?;
        let Some(child) = child else { return Ok(None) };
        let stat = match of.data {
            true => child.stat(),
            false => stat_now(&connection.life.replica, &at, child.stat()),
        };
        if !filter.has(&stat) {
            continue;
        }
        listed.names.push(name);
        if of.stat {
            listed.stats.push(stat);
        }
        if of.data {
            listed.data.push(data_of(&child).cloned());
        }
    }
    Ok(Some(listed))
}

/// Nodes that the client may not read are left out, with all below them.
async fn below(connection: &Talk, path: &str, most: u32) -> Result<Option<Vec<Text>>, Code> {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let first = Text::from(paths::named(path));
    readable(connection, &first).await?;
    let (mut found, mut bytes, mut next) = (vec![first], 0, 0);
    while let Some(path) = found.get(next).cloned() {
        next += 1;
        let node = readable_list(connection, &path, LIST_BYTES_MAX.get(), Tries(1)).await?;
        if node.is_none() {
            return Ok(None);
        }
        for name in names_of(connection, &path) {
            let child = Text::from(paths::join(&path, &name));
            match readable(connection, &child).await {
                Ok(_) => {}
                Err(Code::NO_AUTH) => continue,
                Err(Code::NO_NODE) => return Err(Code::DATA_INCONSISTENCY),
                Err(code) => return Err(code),
            }
            if found.len() > most {
                found.remove(0);
                return Ok(Some(found));
            }
            bytes += child.len();
            if bytes > ANSWER_BYTES_MAX.get() {
                return Err(Code::CONNECTION_LOSS);
            }
            found.push(child);
        }
    }
    found.remove(0);
    Ok(Some(found))
}

/// Loads what a list looks at, and keeps it. What is left of `left` bytes then; `None` if it needs more.
pub async fn load(
    connection: &Talk,
    reserved: &Reserved,
    request: &Request,
    left: usize,
) -> Result<Option<usize>, Code> {
    let (most, data) = match request {
        Request::List { details, .. } => (0, details.is_some_and(|details| details.data)),
        Request::ListRecursive { most, .. } => {
            (usize::try_from(*most).unwrap_or(usize::MAX), false)
        }
        _ => return Ok(Some(left)),
    };
    let (mut left, mut lists, mut next) = (left, vec![Text::from(path_of(request))], 0);
    while let Some(path) = lists.get(next).cloned() {
        next += 1;
        let list = Request::GetChildren {
            path: path.clone(),
            watch: false,
        };
        let Some(rest) = load_list(connection, &list, left).await? else {
            return Ok(None);
        };
        left = rest;
        let names = names_of(connection, &path);
        let children: Vec<Text> = names
            .iter()
            .map(|name| paths::join(&path, name).into())
            .collect();
        for some in children.chunks(LOADS_AT_ONCE) {
            some.iter().for_each(|child| reserved.keep(child));
            let Some(rest) = load_nodes(connection, some, data, left).await else {
                return Ok(None);
            };
            left = rest;
        }
        // The nodes that are less deep come first, so no more lists are needed than the answer has nodes.
        if lists.len() <= most {
            lists.extend(children);
        }
    }
    Ok(Some(left))
}

/// Loads nodes whose places are kept.
async fn load_nodes(connection: &Talk, paths: &[Text], data: bool, left: usize) -> Option<usize> {
    let replica = &connection.life.replica;
    let cost = |path: &Text| {
        replica.cost(&Request::GetData {
            path: path.clone(),
            watch: false,
        })
    };
    let bytes = || {
        paths.iter().map(|path| match data {
            true => cost(path),
            false => replica.bytes_of(path),
        })
    };
    // Whoever reads them finds out what is wrong with them.
    join_all(paths.iter().map(|path| node(connection, path))).await;
    if bytes().sum::<usize>() > left {
        return None;
    }
    if data {
        join_all(
            paths
                .iter()
                .map(|path| readable_with_data(connection, path, Tries(1))),
        )
        .await;
    }
    left.checked_sub(bytes().sum())
}
