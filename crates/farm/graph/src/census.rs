//! A walk over a whole graph that proves it sound.

use crate::error::{Result, damaged};
use crate::indexes::index_entries;
use crate::lists::{Direction, Span};
use crate::object::{Entry, List, Stored};
use crate::schema::{Row, State, get};
use crate::transaction::GraphTx;
use plinth_farm_memory::{Objects, Pointer};
use plinth_farm_structures::btree::BTree;
use std::collections::{BTreeMap, BTreeSet};

/// What a walk over a graph finds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Census {
    /// Every object that the graph has.
    pub objects: Vec<Pointer>,
    pub vertices: usize,
    pub edges: usize,
    /// Entries of all indexes.
    pub indexed: usize,
}

/// Every end of an edge: vertex, direction, entry.
type Ends = BTreeSet<(Pointer, Direction, Entry)>;

impl<O: Objects> GraphTx<'_, O> {
    /// Reads the whole graph. Error: `Damaged` at the first thing that is wrong: an edge that is not in the lists of
    /// both of its ends, or in another; a primary key that does not lead to its vertex; an index that has too much,
    /// or too little if it is ready; structures that are not sound; objects that cannot be read.
    pub async fn check(&self) -> Result<Census> {
        let loaded = self.loaded();
        let mut census = Census {
            objects: self.graph.objects(self.tx).await?.to_vec(),
            ..Census::default()
        };
        let (mut listed, mut rows) = (Ends::new(), Vec::new());
        for number in 0..loaded.schema.vertices.len() {
            let of_type = self
                .check_vertices(number, &mut census, &mut listed)
                .await?;
            rows.push(of_type);
        }
        self.check_edges(&listed, &mut census).await?;
        for (number, rows) in rows.iter().enumerate() {
            self.check_indexes(number, rows, &mut census).await?;
        }
        Ok(census)
    }

    async fn check_vertices(
        &self,
        number: usize,
        census: &mut Census,
        listed: &mut Ends,
    ) -> Result<BTreeMap<Pointer, Row>> {
        let loaded = self.loaded();
        let table = &loaded.tables[number];
        census.objects.extend(table.check(self.tx).await?.objects);
        let mut rows = BTreeMap::new();
        for (key, place) in table.entries(self.tx).await? {
            let at = self.vertex_place(number, &place)?;
            let vertex = self.known_vertex(at).await?;
            let row = self.vertex_row(at, &vertex).await?;
            let own = get(&row, loaded.schema.vertices[number].key).map(|key| key.ordered());
            if usize::from(vertex.vertex_type) != number || own.as_deref() != Some(&key[..]) {
                return Err(damaged(at, "another primary key leads to it"));
            }
            census.objects.push(at);
            self.count_long(&vertex.stored, census);
            for direction in [Direction::Out, Direction::In] {
                let list = &vertex.lists[direction.list()];
                if let List::Tree(root) = list {
                    let tree = BTree::open(self.tx, *root, self.graph.cache()).await?;
                    census.objects.extend(tree.check(self.tx).await?.objects);
                }
                let part = self.list_part(list, &Span::default(), usize::MAX).await?;
                listed.extend(part.entries.into_iter().map(|entry| (at, direction, entry)));
            }
            rows.insert(at, row);
        }
        census.vertices += rows.len();
        Ok(rows)
    }

    fn count_long(&self, stored: &Stored, census: &mut Census) {
        if let Stored::Long(at) = stored {
            census.objects.push(*at);
        }
    }

    async fn check_edges(&self, listed: &Ends, census: &mut Census) -> Result<()> {
        let edges: BTreeSet<Pointer> = listed.iter().map(|(_, _, entry)| entry.edge).collect();
        let mut expected = Ends::new();
        for at in &edges {
            let edge = self.known_edge(*at).await?;
            self.edge_row(*at, &edge).await?;
            census.objects.push(*at);
            self.count_long(&edge.stored, census);
            let ends = [
                (edge.from, Direction::Out, edge.to),
                (edge.to, Direction::In, edge.from),
            ];
            for (end, direction, other) in ends {
                let (edge_type, edge) = (edge.edge_type, *at);
                let entry = Entry {
                    edge_type,
                    other,
                    edge,
                };
                expected.insert((end, direction, entry));
            }
        }
        census.edges += edges.len();
        match listed.symmetric_difference(&expected).next() {
            Some((_, _, entry)) => Err(damaged(entry.edge, "an edge is not at its two ends")),
            None => Ok(()),
        }
    }

    async fn check_indexes(
        &self,
        number: usize,
        rows: &BTreeMap<Pointer, Row>,
        census: &mut Census,
    ) -> Result<()> {
        let loaded = self.loaded();
        for (i, index) in loaded.schema.vertices[number].indexes.iter().enumerate() {
            let tree = &loaded.trees[number][i];
            census.objects.push(index.progress);
            census.objects.extend(tree.check(self.tx).await?.objects);
            if index.state == State::Dropping {
                continue;
            }
            let found = tree.range(self.tx, b"", None, usize::MAX, false).await?;
            let found: BTreeSet<Vec<u8>> = found.rows.iter().map(|(key, _)| key.to_vec()).collect();
            let expected = index_entries(index, rows)?;
            let is_whole = found.len() == expected.len() || index.state == State::Building;
            if !is_whole || !found.is_subset(&expected) {
                return Err(damaged(tree.root(), "an index is not that of the vertices"));
            }
            census.indexed += found.len();
        }
        Ok(())
    }
}
