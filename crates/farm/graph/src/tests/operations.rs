//! Operations with results that are written down.

use crate::schema::Property;
use crate::{
    DELETED_EDGES_MAX, Direction, Error, Graph, GraphTx, Kind, Query, Result, Value, Vertex,
};
use plinth_farm_memory::Pointer;
use plinth_farm_structures::btree::Cache;
use plinth_farm_structures::testing::{Store, Tx, run};
use std::collections::BTreeSet;
use std::ops::Bound;
use std::rc::Rc;

pub fn text(text: &str) -> Value {
    Value::String(text.to_owned())
}

/// A graph of people who know each other.
pub fn people(store: &Rc<Store>) -> Graph {
    let cache = Cache::new(1 << 20);
    let made = store.run(async |tx| {
        let graph = Graph::create(tx, Pointer::NULL, &cache)
            .await
            .expect("a graph");
        let on = graph.on(tx).await.expect("its operations");
        let properties = vec![
            Property::required("name", Kind::String),
            Property::optional("age", Kind::I64),
        ];
        let person = on.create_vertex_type("person", properties, "name", 8).await;
        person.expect("a type");
        let since = vec![Property::optional("since", Kind::I64)];
        on.create_edge_type("knows", since).await.expect("a type");
        let likes = on.create_edge_type("likes", Vec::new()).await;
        likes.expect("a type");
        Ok(graph)
    });
    run(made).expect("a graph")
}

/// Runs a transaction that commits.
pub fn commit<T>(
    store: &Rc<Store>,
    graph: &Graph,
    body: impl AsyncFn(&GraphTx<'_, Tx>) -> Result<T>,
) -> T {
    run(async {
        let tx = store.begin();
        let on = graph.on(&tx).await.expect("its operations");
        let output = body(&on).await.expect("it works");
        tx.commit().await.expect("nobody else is there");
        output
    })
}

#[test]
fn what_was_made_is_found_and_read() {
    let store = Store::new(1);
    let graph = people(&store);
    commit(&store, &graph, async |on| {
        let ada = on
            .create_vertex("person", &[("name", text("Ada")), ("age", Value::I64(36))])
            .await?;
        let bob = on.create_vertex("person", &[("name", text("Bob"))]).await?;
        let edge = on
            .create_edge("knows", ada, bob, &[("since", Value::I64(1833))])
            .await?;
        on.update_vertex(bob, &[("age", Some(Value::I64(41)))])
            .await?;
        let record = on.edge(edge).await?;
        assert_eq!((record.from, record.to), (ada, bob));
        assert_eq!(record.record.get("since"), Some(&Value::I64(1833)));
        Ok(())
    });
    commit(&store, &graph, async |on| {
        let ada = on.find_vertex("person", &text("Ada")).await?.expect("she");
        let bob = on.find_vertex("person", &text("Bob")).await?.expect("he");
        assert_eq!(on.find_vertex("person", &text("Eve")).await?, None);
        assert_eq!(on.vertex(bob).await?.get("age"), Some(&Value::I64(41)));
        let out = on
            .edges(ada, Direction::Out, Some("knows"), None, 10)
            .await?;
        assert_eq!(
            (out.edges.len(), out.edges[0].other, out.next),
            (1, bob, None)
        );
        let incoming = on.edges(bob, Direction::In, None, None, 10).await?;
        assert_eq!(incoming.edges[0].other, ada);
        assert!(
            on.edges(ada, Direction::In, None, None, 10)
                .await?
                .edges
                .is_empty()
        );
        assert_eq!(on.delete_vertex(ada).await?, 1);
        assert_eq!(on.vertex(ada).await, Err(Error::NoVertex));
        assert!(
            on.edges(bob, Direction::In, None, None, 10)
                .await?
                .edges
                .is_empty()
        );
        Ok(())
    });
}

#[test]
fn a_call_that_is_refused_has_changed_nothing() {
    let store = Store::new(2);
    let graph = people(&store);
    commit(&store, &graph, async |on| {
        let ada = on.create_vertex("person", &[("name", text("Ada"))]).await?;
        let again = on.create_vertex("person", &[("name", text("Ada"))]).await;
        assert_eq!(again, Err(Error::KeyTaken));
        let long = on
            .create_vertex("person", &[("name", text(&"x".repeat(200)))])
            .await;
        assert!(matches!(long, Err(Error::Property { .. })));
        assert!(on.create_vertex("person", &[]).await.is_err());
        assert!(on.create_vertex("robot", &[]).await.is_err());
        let change = on.update_vertex(ada, &[("name", Some(text("Eve")))]).await;
        assert!(matches!(change, Err(Error::Property { .. })));
        let large = Value::String("x".repeat(70_000));
        on.update_vertex(ada, &[("age", Some(large))])
            .await
            .expect_err("another kind");
        on.create_edge("hates", ada, ada, &[])
            .await
            .expect_err("no such type");
        on.create_vertex_type("person", vec![Property::required("a", Kind::I64)], "a", 8)
            .await
            .expect_err("there is one");
        on.create_vertex_type("robot", vec![Property::optional("a", Kind::I64)], "a", 8)
            .await
            .expect_err("its key is optional");
        on.add_vertex_property("person", Property::optional("age", Kind::I64))
            .await
            .expect_err("there is one");
        let census = on.check().await?;
        assert_eq!((census.vertices, census.edges), (1, 0));
        assert_eq!(
            census
                .objects
                .iter()
                .copied()
                .collect::<BTreeSet<_>>()
                .len(),
            census.objects.len()
        );
        Ok(())
    });
    let census = commit(&store, &graph, async |on| on.check().await);
    let objects: BTreeSet<Pointer> = census.objects.into_iter().collect();
    assert_eq!(objects, store.allocated());
}

#[test]
fn a_change_of_the_schema_conflicts_with_a_transaction_under_the_former_one() {
    let store = Store::new(3);
    let graph = people(&store);
    run(async {
        let tx = store.begin();
        let on = graph.on(&tx).await.expect("its operations");
        let made = on.create_vertex("person", &[("name", text("Ada"))]).await;
        made.expect("a vertex");
        commit(&store, &graph, async |on| {
            on.add_vertex_property("person", Property::optional("size", Kind::F64))
                .await
        });
        tx.commit().await.expect_err("another schema");
    });
    commit(&store, &graph, async |on| {
        let size = ("size", Value::F64(1.7));
        let eve = on
            .create_vertex("person", &[("name", text("Eve")), size])
            .await?;
        assert_eq!(on.vertex(eve).await?.get("size"), Some(&Value::F64(1.7)));
        Ok(())
    });
}

/// Ada with so many edges to others, and to herself.
fn hub(store: &Rc<Store>, graph: &Graph, edges: usize, others: usize) -> Vertex {
    let ada = commit(store, graph, async |on| {
        on.create_vertex("person", &[("name", text("Ada"))]).await
    });
    let mut vertices = vec![ada];
    for first in (0..others).step_by(200) {
        vertices.extend(commit(store, graph, async |on| {
            let mut made = Vec::new();
            for i in first..others.min(first + 200) {
                made.push(
                    on.create_vertex("person", &[("name", text(&i.to_string()))])
                        .await?,
                );
            }
            Ok(made)
        }));
    }
    for first in (0..edges).step_by(500) {
        commit(store, graph, async |on| {
            for i in first..edges.min(first + 500) {
                let other = vertices[i % vertices.len()];
                let since = ("since", Value::I64(i as i64));
                match i % 3 {
                    0 => on.create_edge("likes", ada, other, &[]).await?,
                    _ => on.create_edge("knows", ada, other, &[since]).await?,
                };
            }
            Ok(())
        });
    }
    ada
}

#[test]
fn a_vertex_with_a_hundred_thousand_edges_works() {
    let store = Store::new(4);
    let graph = people(&store);
    let ada = hub(&store, &graph, 100_000, 1000);
    commit(&store, &graph, async |on| {
        let (mut listed, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let part = on
                .edges(ada, Direction::Out, None, after.as_ref(), 700)
                .await?;
            listed.extend(part.edges.iter().map(|adjacent| adjacent.edge));
            pages += 1;
            match part.next {
                Some(next) => after = Some(crate::After::from_bytes(&next.to_bytes())?),
                None => break,
            }
        }
        assert_eq!((listed.len(), pages), (100_000, 143));
        assert_eq!(listed.iter().collect::<BTreeSet<_>>().len(), 100_000);
        let likes = on
            .edges(ada, Direction::Out, Some("likes"), None, usize::MAX)
            .await?;
        let query = Query::from_key("person", text("Ada")).follow(Direction::Out, "likes", &[]);
        let likers = on.query(&query).await?;
        assert_eq!((likers.vertices, likers.paths), (1001, 33_334));
        assert_eq!(likes.edges.len(), 33_334);
        assert!(
            likes
                .edges
                .is_sorted_by_key(|adjacent| (adjacent.other, adjacent.edge))
        );
        Ok(())
    });
    let tx = store.begin();
    run(async {
        let on = graph.on(&tx).await.expect("its operations");
        let one = on.edges(ada, Direction::Out, Some("knows"), None, 1).await;
        let edge = one.expect("edges").edges[0].edge;
        let reads = tx.calls.get().reads;
        on.edge(edge).await.expect("it is there");
        on.delete_edge(edge).await.expect("it is there");
        let reads = tx.calls.get().reads - reads;
        assert!(reads < 20, "{reads} reads to delete an edge of a hub");
    });
}

#[test]
fn a_vertex_with_too_many_edges_is_deleted_in_pieces() {
    let store = Store::new(5);
    let graph = people(&store);
    let ada = hub(&store, &graph, DELETED_EDGES_MAX + 1, 7);
    run(async {
        let tx = store.begin();
        let on = graph.on(&tx).await.expect("its operations");
        let error = on.delete_vertex(ada).await.expect_err("too many");
        assert!(matches!(error, Error::TooManyEdges { .. }));
        assert!(error.to_string().contains("delete_some_edges"));
    });
    while commit(&store, &graph, async |on| {
        on.delete_some_edges(ada, 50).await
    }) == 50
    {}
    assert_eq!(
        commit(&store, &graph, async |on| on.delete_vertex(ada).await),
        0
    );
    let ada = hub(&store, &graph, 1, 0);
    for _ in 0..DELETED_EDGES_MAX / 2 {
        commit(&store, &graph, async |on| {
            on.create_edge("likes", ada, ada, &[]).await
        });
    }
    let gone = commit(&store, &graph, async |on| on.delete_vertex(ada).await);
    assert_eq!(gone, DELETED_EDGES_MAX / 2 + 1);
    let census = commit(&store, &graph, async |on| on.check().await);
    assert_eq!((census.vertices, census.edges), (7, 0));
    assert_eq!(
        census.objects.into_iter().collect::<BTreeSet<_>>(),
        store.allocated()
    );
}

#[test]
fn an_index_is_built_in_pieces_while_the_table_grows() {
    let store = Store::new(6);
    let graph = people(&store);
    hub(&store, &graph, 0, 500);
    for i in 0..500i64 {
        commit(&store, &graph, async |on| {
            let at = on.find_vertex("person", &text(&i.to_string())).await?;
            on.update_vertex(at.expect("it"), &[("age", Some(Value::I64(i % 90)))])
                .await
        });
    }
    let age = |age: &Value| (Bound::Included(age.clone()), Bound::Included(age.clone()));
    commit(&store, &graph, async |on| {
        on.create_index("person", "by age", "age", false).await
    });
    let mut pieces = 0;
    while !commit(&store, &graph, async |on| {
        on.build_some("person", "by age", 7).await
    }) {
        pieces += 1;
        commit(&store, &graph, async |on| {
            let range = age(&Value::I64(3));
            let range = (range.0.as_ref(), range.1.as_ref());
            let early = on.lookup("person", "by age", range, None, 10).await;
            assert!(matches!(early, Err(Error::NotReady { .. })));
            let some = text(&random_number(pieces).to_string());
            let at = on.find_vertex("person", &some).await?.expect("it");
            on.update_vertex(at, &[("age", Some(Value::I64(-1)))])
                .await?;
            on.grow("person", usize::from(pieces % 10 == 0)).await?;
            Ok(())
        });
    }
    assert!(pieces > 70, "{pieces} pieces");
    let census = commit(&store, &graph, async |on| on.check().await);
    assert_eq!(census.indexed, 500);
    let again = run(graph.build_index(&store, "person", "by age"));
    assert_eq!(again, Ok(()), "it is complete");
    let again = run(graph.build_index(&store, "person", "by age"));
    assert_eq!(again, Ok(()), "it is complete");
    commit(&store, &graph, async |on| {
        on.drop_index("person", "by age").await
    });
    while !commit(&store, &graph, async |on| {
        on.drop_some("person", "by age", 60).await
    }) {}
    let census = commit(&store, &graph, async |on| on.check().await);
    assert_eq!(
        census.objects.into_iter().collect::<BTreeSet<_>>(),
        store.allocated()
    );
}

#[test]
fn an_index_is_built_and_dropped_to_its_end_by_the_graph() {
    let store = Store::new(7);
    let graph = people(&store);
    hub(&store, &graph, 0, 300);
    commit(&store, &graph, async |on| {
        on.create_index("person", "by name", "name", true).await
    });
    run(graph.build_index(&store, "person", "by name")).expect("it is built");
    commit(&store, &graph, async |on| {
        let range = (Bound::Unbounded, Bound::Unbounded);
        let found = on.lookup("person", "by name", range, None, 1000).await?;
        assert_eq!((found.vertices.len(), found.next), (301, None));
        let one = on
            .lookup_equal("person", "by name", &text("17"), 10)
            .await?;
        assert_eq!(
            one,
            [on.find_vertex("person", &text("17")).await?.expect("it")]
        );
        Ok(())
    });
    run(graph.drop_index(&store, "person", "by name")).expect("it is dropped");
    let census = commit(&store, &graph, async |on| on.check().await);
    let objects: BTreeSet<Pointer> = census.objects.into_iter().collect();
    assert_eq!(objects, store.allocated());
}

fn random_number(i: usize) -> usize {
    i * 7919 % 500
}
