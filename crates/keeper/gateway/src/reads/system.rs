//! `/keeper`: what a keeper says of itself to ClickHouse's clients. No row of the store has it, and no list: only who
//! asks for it by name finds it. A tree that has a node of this name shows its own.

use crate::connection::Connection;
use crate::life::Options;
use crate::talk::Talk;
use crate::tree::node::{Data, Lifetime, Node};
use crate::tree::plan::Known;
use crate::wire::{Acl, Request, Text, permission};
use std::rc::Rc;

/// The node that has the others.
pub const ROOT: &str = "/keeper";
/// What there is besides plain ZooKeeper's requests, as clients before the flags know it: filtered lists, several
/// reads in one request, and checks that there is no node.
pub const API_VERSION: &str = "3";

/// What ClickHouse's clients may ask a keeper for, by the places of the flags. Recursive lists have none: ClickHouse
/// knows no flag for its operation 507, so they are answered and nothing tells of them.
pub const FLAGS: [&str; 11] = [
    "filtered_list",
    "multi_read",
    "check_not_exists",
    "create_if_not_exists",
    "remove_recursive",
    "multi_watches",
    "check_stat",
    "persistent_watches",
    "create_with_stats",
    "try_remove",
    "list_with_stat_and_data",
];

/// The flags as a string of bits, the first at the front.
fn flags() -> Vec<u8> {
    let mut bytes = vec![0; FLAGS.len().div_ceil(8)];
    for place in 0..FLAGS.len() {
        bytes[place / 8] |= 0x80 >> (place % 8);
    }
    bytes
}

/// True for `/keeper` and what is below it.
pub fn is_in(path: &str) -> bool {
    path.strip_prefix(ROOT)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// True for what ClickHouse's clients read before they send any request that ZooKeeper does not know.
pub fn tells_flags(path: &str) -> bool {
    matches!(path, "/keeper/feature_flags" | "/keeper/api_version")
}

/// The names below `/keeper`, with what they say.
fn said(options: &Options) -> Vec<(&'static str, Vec<u8>)> {
    let mut said = vec![
        ("api_version", API_VERSION.into()),
        ("feature_flags", flags()),
    ];
    if let Some(zone) = &options.zone {
        said.push(("availability_zone", zone.as_bytes().to_vec()));
    }
    said
}

/// The node, as clients may read it.
pub fn node(options: &Options, path: &str) -> Option<Rc<Node>> {
    let said = said(options);
    if path == ROOT {
        return Some(shown(Data::Here(Vec::new().into()), said.len()));
    }
    let name = path.strip_prefix(ROOT)?.strip_prefix('/')?;
    let (_, data) = said.into_iter().find(|(its, _)| *its == name)?;
    Some(shown(Data::Here(data.into()), 0))
}

/// A node that says this to who asks.
pub fn saying(text: String) -> Rc<Node> {
    shown(Data::Here(text.into()), 0)
}

fn shown(data: Data, children: usize) -> Rc<Node> {
    let acl = Acl::open().into_iter().map(|all| Acl {
        perms: permission::READ,
        ..all
    });
    let mut node = Node {
        czxid: 0,
        mzxid: 0,
        pzxid: 0,
        ctime: 0,
        mtime: 0,
        version: 0,
        aversion: 0,
        counts: Default::default(),
        lifetime: Lifetime::Persistent,
        acl: acl.collect(),
        data,
    };
    let children = i32::try_from(children).unwrap_or(0);
    (node.counts.created, node.counts.present) = (children, children);
    Rc::new(node)
}

/// True if the path is of what is shown, as far as that is known. What is known may be out of date as soon as anybody
/// waits.
pub fn is_shown(talk: &Talk, path: &str) -> bool {
    talk.gateway.options.clickhouse
        && is_in(path)
        && matches!(talk.life.replica.node_if_known(ROOT), Known::Absent)
}

/// The names of the children of a node that is shown.
pub fn children(talk: &Talk, path: &str) -> Option<Vec<Text>> {
    if !is_shown(talk, path) {
        return None;
    }
    let names = match path == ROOT {
        true => said(&talk.gateway.options),
        false => Vec::new(),
    };
    Some(names.into_iter().map(|(name, _)| name.into()).collect())
}

/// Nobody creates `/keeper` where it is shown: such a create gets a path that names no node.
pub fn guard(options: &Options, connection: &Connection, request: &mut Request) {
    let is_own = || matches!(connection.replica.node_if_known(ROOT), Known::Here(_));
    match request {
        Request::Create { path, .. }
            if options.clickhouse && path.as_str() == ROOT && !is_own() =>
        {
            *path = Text::default();
        }
        Request::Multi { operations } => {
            let all = operations.iter_mut();
            all.for_each(|operation| guard(options, connection, operation));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::opcode;

    #[test]
    fn each_flag_has_its_bit() {
        assert_eq!(flags(), [0b1111_1111, 0b1110_0000]);
    }

    #[test]
    fn each_operation_of_clickhouses_keeper_has_its_flag_but_for_recursive_lists() {
        let operations = [
            ("filtered_list", opcode::FILTERED_LIST),
            ("multi_read", opcode::MULTI_READ),
            ("check_not_exists", opcode::CHECK_NOT_EXISTS),
            ("create_if_not_exists", opcode::CREATE_IF_NOT_EXISTS),
            ("remove_recursive", opcode::REMOVE_RECURSIVE),
            ("multi_watches", opcode::MULTI_READ),
            ("check_stat", opcode::CHECK_STAT),
            ("persistent_watches", opcode::ADD_WATCH),
            ("create_with_stats", opcode::CREATE_2),
            ("try_remove", opcode::TRY_REMOVE),
            ("list_with_stat_and_data", opcode::LIST_WITH_STAT_AND_DATA),
        ];
        assert_eq!(FLAGS, operations.map(|(flag, _)| flag));
        let told: Vec<i32> = operations.iter().map(|(_, opcode)| *opcode).collect();
        let own = opcode::FILTERED_LIST..=opcode::LIST_RECURSIVE;
        let untold: Vec<i32> = own.filter(|opcode| !told.contains(opcode)).collect();
        assert_eq!(untold, [opcode::LIST_RECURSIVE]);
    }

    #[test]
    fn only_keeper_and_what_is_below_it_is_shown() {
        for (path, is) in [
            ("/keeper", true),
            ("/keeper/feature_flags", true),
            ("/keeper_map", false),
            ("/", false),
        ] {
            assert_eq!(is_in(path), is, "{path}");
        }
        let options = Options {
            zone: Some("east".into()),
            ..Options::default()
        };
        let data = |path| node(&options, path).map(|node| node.data.clone());
        let text = |text: &'static str| Some(Data::Here(text.into()));
        assert_eq!(data("/keeper/api_version"), text("3"));
        assert_eq!(data("/keeper/availability_zone"), text("east"));
        assert_eq!(data("/keeper/other"), None);
        assert_eq!(
            node(&options, ROOT).map(|node| node.stat().num_children),
            Some(3)
        );
        assert!(node(&Options::default(), "/keeper/availability_zone").is_none());
    }
}
