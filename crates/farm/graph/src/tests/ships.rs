//! Requests, answers and frames as bytes, and queries whose stages are evaluated elsewhere.

use super::operations::{commit, people, text};
use crate::codec::Code;
use crate::frames::{Assembly, HEAD_BYTES, Kind, frames, is_frame};
use crate::lists::Direction;
use crate::query::{Compare, Condition, Frontier, Keep, Outcome, Query, Row, Stage, Then};
use crate::ship::{Ship, parse, serve};
use crate::wire::{Reply, Request};
use crate::{Error, Graph, Result, Value};
use plinth_core::testing::fuzz;
use plinth_farm_fabric::Machine;
use plinth_farm_memory::{Abort, Class, Pointer};
use plinth_farm_structures::testing::{Store, run};
use std::cell::Cell;
use std::rc::Rc;

fn place(word: u64) -> Pointer {
    Pointer::new(1, Class::of(100).expect("a class"), word)
}

fn conditions() -> Vec<Condition> {
    vec![
        Condition::new("age", Compare::AtLeast, Value::I64(3)),
        Condition::new("name", Compare::NotEqual, text("Ada")),
    ]
}

fn requests() -> Vec<Request> {
    let keep = |vertex_type: Option<&str>| Keep {
        vertex_type: vertex_type.map(str::to_owned),
        conditions: conditions(),
    };
    let thens = [
        Then::Stay,
        Then::Rows(vec!["age".to_owned(), "name".to_owned()]),
        Then::Follow {
            direction: Direction::In,
            edge_type: "knows".to_owned(),
            conditions: conditions(),
        },
    ];
    let request = |then| Request {
        root: place(1),
        read_at: 77,
        stage: Stage {
            keeps: vec![keep(None), keep(Some("person"))],
            then,
        },
        frontier: Frontier::from([(place(100), 1), (place(200), u64::MAX)]),
    };
    thens.map(request).to_vec()
}

fn replies() -> Vec<Reply> {
    let row = Row {
        vertex_type: "person".to_owned(),
        paths: 3,
        values: vec![None, Some(Value::F64(0.5))],
    };
    let outcome = Outcome {
        frontier: Frontier::from([(place(100), 3)]),
        rows: vec![(place(100), row)],
    };
    vec![
        Reply::Outcome(outcome),
        Reply::Abort(Abort::TooOld),
        Reply::Refused("why".to_owned()),
    ]
}

#[test]
fn requests_and_replies_come_back_from_their_bytes() {
    for request in requests() {
        assert_eq!(Request::decode(&request.encode()), Some(request));
    }
    for reply in replies() {
        assert_eq!(Reply::decode(&reply.encode()), Some(reply));
    }
    let long = Reply::Refused("ä".repeat(1000)).encode();
    assert!(Reply::decode(&long).is_some() && long.len() < 400);
}

#[test]
fn damaged_requests_replies_and_frames_are_refused_without_a_panic() {
    fuzz(
        "request",
        1,
        requests().iter().map(Request::encode),
        |bytes| Request::decode(bytes).is_some(),
    );
    fuzz("reply", 2, replies().iter().map(Reply::encode), |bytes| {
        Reply::decode(bytes).is_some()
    });
    let whole: Vec<u8> = (0..200).map(|i| i as u8).collect();
    let mut assembly = Assembly::default();
    fuzz(
        "frame",
        3,
        frames(4, Kind::Request, 9, &whole, 60),
        |bytes| {
            assembly.take(Machine(1), bytes);
            is_frame(bytes)
        },
    );
    assert!(assembly.len() <= 64);
}

#[test]
fn a_message_comes_together_from_its_frames_whatever_comes_between() {
    let whole: Vec<u8> = (0..1000).map(|i| i as u8).collect();
    for most in [HEAD_BYTES + 1, 60, 999, 5000] {
        let mut assembly = Assembly::default();
        let (one, other) = (
            frames(4, Kind::Request, 9, &whole, most),
            frames(4, Kind::Answer, 9, &whole[1..], most),
        );
        let mut found = Vec::new();
        for (a, b) in one.iter().zip(&other) {
            assert!(a.len() <= most);
            found.extend(assembly.take(Machine(1), a));
            found.extend(assembly.take(Machine(1), b));
        }
        for a in &one[other.len()..] {
            found.extend(assembly.take(Machine(1), a));
        }
        found.sort();
        let expected = [
            (Kind::Request, 9, whole.clone()),
            (Kind::Answer, 9, whole[1..].to_vec()),
        ];
        assert_eq!((found, assembly.len()), (expected.to_vec(), 0));
    }
    let mut assembly = Assembly::default();
    let pieces = frames(4, Kind::Request, 9, &whole, 500);
    assert_eq!(assembly.take(Machine(1), &pieces[0]), None);
    assert_eq!(
        assembly.take(Machine(1), &pieces[2]),
        None,
        "one is missing"
    );
    assert_eq!(assembly.len(), 0);
    assert!(frames(4, Kind::Request, 9, b"", 500).len() == 1);
}

/// All vertices are on another machine, which has the same store.
struct Elsewhere {
    store: Rc<Store>,
    graph: Graph,
    shipped: Cell<usize>,
    is_gone: Cell<bool>,
}

impl Ship for Elsewhere {
    fn place(&self, _region: u16) -> Option<Machine> {
        Some(Machine(7))
    }

    async fn ship(&self, to: Machine, request: Vec<u8>) -> Result<Vec<u8>> {
        self.shipped.set(self.shipped.get() + 1);
        if self.is_gone.get() {
            return Err(Error::Gone { machine: to.0 });
        }
        let request = parse(&request)?;
        let tx = self.store.begin();
        Ok(serve(&self.graph, &tx, &request).await)
    }
}

/// Thirty people, and edges between them.
fn acquaint(store: &Rc<Store>, graph: &Graph) {
    commit(store, graph, async |on| {
        let mut people = Vec::new();
        for i in 0..30 {
            let values = [("name", text(&i.to_string())), ("age", Value::I64(i % 7))];
            people.push(on.create_vertex("person", &values).await?);
        }
        for i in 0..300usize {
            let (from, to) = (people[i * 7 % 30], people[i * 11 % 29]);
            let since = [("since", Value::I64(i as i64))];
            on.create_edge("knows", from, to, &since).await?;
        }
        Ok(())
    });
}

#[test]
fn a_stage_that_is_shipped_gives_what_it_gives_here() {
    let store = Store::new(1);
    let graph = people(&store);
    acquaint(&store, &graph);
    let (store_of, graph_of) = (store.clone(), graph.clone());
    let ship = Elsewhere {
        store: store_of,
        graph: graph_of,
        shipped: Cell::new(0),
        is_gone: Cell::new(false),
    };
    let since = [Condition::new("since", Compare::Less, Value::I64(150))];
    let young = [Condition::new("age", Compare::AtMost, Value::I64(4))];
    let start = || Query::from_key("person", text("7"));
    let queries = [
        start(),
        start()
            .follow(Direction::Out, "knows", &since)
            .properties(&["name"]),
        start()
            .follow(Direction::Out, "knows", &[])
            .follow(Direction::In, "knows", &since),
        start()
            .follow(Direction::Out, "knows", &[])
            .keep(Some("person"), &young)
            .limit(3)
            .follow(Direction::In, "knows", &[])
            .properties(&["age", "name"]),
    ];
    commit(&store, &graph, async |on| {
        for query in &queries {
            let here = on.query(query).await?;
            assert!(here.vertices > 0);
            assert_eq!(on.query_shipped(query, 0, &ship).await?, here);
        }
        assert_eq!(ship.shipped.get(), 1 + 1 + 1 + 1 + 1 + 3);
        let unknown = start().follow(Direction::Out, "hates", &[]);
        assert_eq!(
            on.query(&unknown).await,
            on.query_shipped(&unknown, 0, &ship).await
        );
        on.query(&unknown).await.expect_err("no such type");
        let kind = start().keep(
            Some("person"),
            &[Condition::new("age", Compare::Less, text("x"))],
        );
        on.query(&kind).await.expect_err("another kind");
        ship.is_gone.set(true);
        let gone = on.query_shipped(&queries[1], 0, &ship).await;
        assert_eq!(gone, Err(Error::Gone { machine: 7 }));
        Ok(())
    });
}

#[test]
fn a_stage_for_what_is_no_vertex_is_refused() {
    let store = Store::new(1);
    let graph = people(&store);
    let tx = store.begin();
    let request = Request {
        root: graph.root(),
        frontier: Frontier::from([(graph.root(), 1)]),
        ..requests().remove(0)
    };
    let reply = run(serve(&graph, &tx, &request));
    assert!(matches!(Reply::decode(&reply), Some(Reply::Refused(_))));
}
