//! Edges: made and deleted at both ends, read, changed, and listed.

use crate::error::{Error, Result, damaged};
use crate::lists::{Direction, Span};
use crate::object::{EDGE_HEAD_BYTES, EdgeObject, Entry, VertexObject};
use crate::schema::{Row, check_value, position, row};
use crate::transaction::{Edge, GraphTx, Record, Vertex, object_bytes, row_bytes};
use crate::value::Value;
use plinth_farm_memory::{Objects, Pointer};
use plinth_runtime::{nobody_has_lied, planted};

/// An edge with its ends.
#[derive(Clone, PartialEq, Debug)]
pub struct EdgeRecord {
    pub from: Vertex,
    pub to: Vertex,
    pub record: Record,
}

/// An edge in the list of a vertex.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Adjacent {
    pub edge: Edge,
    /// The vertex at the other end.
    pub other: Vertex,
}

/// Where a list of edges goes on. It may be kept for other transactions: what is at that place in the order then is
/// what follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct After(pub(crate) Entry);

impl After {
    pub fn to_bytes(self) -> Vec<u8> {
        self.0.pack().to_vec()
    }

    /// Error: `Malformed`.
    pub fn from_bytes(bytes: &[u8]) -> Result<After> {
        let entry = Entry::unpack(bytes);
        entry.map(After).ok_or(Error::Malformed("a continuation"))
    }
}

/// Edges of a vertex in order: by type, the place of the other vertex, and their own place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Edges {
    pub edges: Vec<Adjacent>,
    /// There may be more, which follow it.
    pub next: Option<After>,
}

/// The entries of an edge in the lists of its two ends.
fn entries(at: Pointer, edge: &EdgeObject) -> [Entry; 2] {
    let entry = |other| Entry {
        edge_type: edge.edge_type,
        other,
        edge: at,
    };
    [entry(edge.to), entry(edge.from)]
}

/// The part of a list with edges of this type, behind `after`.
pub(crate) fn span(edge_type: Option<u16>, after: Option<&After>) -> Span {
    let mut span = Span::default();
    if let Some(edge_type) = edge_type {
        span.begin = edge_type.to_be_bytes().to_vec();
        let end = edge_type.checked_add(1);
        span.end = end.map(|end| end.to_be_bytes().to_vec());
    }
    if let Some(After(entry)) = after {
        let mut behind = entry.pack().to_vec();
        behind.push(0);
        span.begin = span.begin.max(behind);
    }
    span
}

impl<O: Objects> GraphTx<'_, O> {
    /// A new edge. There may be several of a type between two vertices. Errors: `NoVertex`, `Property`.
    pub async fn create_edge(
        &self,
        edge_type: &str,
        from: Vertex,
        to: Vertex,
        values: &[(&str, Value)],
    ) -> Result<Edge> {
        let loaded = self.loaded();
        let number = loaded.schema.edge_type(edge_type)?;
        let row = row(&loaded.schema.edges[number].properties, values)?;
        let bytes = row_bytes(&row)?;
        let mut from_vertex = self.vertex_at(from).await?;
        let mut to_vertex = match from == to {
            true => None,
            false => Some(self.vertex_at(to).await?),
        };
        let size = object_bytes(EDGE_HEAD_BYTES, &bytes);
        let at = self.tx.allocate(size, from.0).await?;
        let edge = EdgeObject {
            edge_type: number as u16,
            from: from.0,
            to: to.0,
            stored: self.store_row(at, EDGE_HEAD_BYTES, bytes, None).await?,
        };
        self.write_edge(at, &edge).await?;
        let [out, incoming] = entries(at, &edge);
        let out = self.add_entry(from.0, &mut from_vertex, Direction::Out, out);
        let mut is_changed = out.await?;
        let (end, at_end) = match &mut to_vertex {
            Some(vertex) => (vertex, to.0),
            None => (&mut from_vertex, from.0),
        };
        let at_end = self.add_entry(at_end, end, Direction::In, incoming).await?;
        match to_vertex {
            Some(vertex) if at_end => self.write_vertex(to.0, &vertex).await?,
            Some(_) => (),
            None => is_changed |= at_end,
        }
        if is_changed {
            self.write_vertex(from.0, &from_vertex).await?;
        }
        Ok(Edge(at))
    }

    /// Type, ends and properties of an edge. Error: `NoEdge`.
    pub async fn edge(&self, edge: Edge) -> Result<EdgeRecord> {
        let object = self.edge_at(edge).await?;
        let row = self.edge_row(edge.0, &object).await?;
        let loaded = self.loaded();
        let of = &loaded.schema.edges[usize::from(object.edge_type)];
        Ok(EdgeRecord {
            from: Vertex(object.from),
            to: Vertex(object.to),
            record: Record::new(&of.name, &of.properties, row),
        })
    }

    pub(crate) async fn edge_row(&self, at: Pointer, edge: &EdgeObject) -> Result<Row> {
        let loaded = self.loaded();
        let of = &loaded.schema.edges[usize::from(edge.edge_type)];
        self.load_row(at, &edge.stored, &of.properties).await
    }

    /// Sets properties, or removes optional ones. The others stay.
    pub async fn update_edge(&self, edge: Edge, changes: &[(&str, Option<Value>)]) -> Result<()> {
        let mut object = self.edge_at(edge).await?;
        let mut row = self.edge_row(edge.0, &object).await?;
        let loaded = self.loaded();
        let properties = &loaded.schema.edges[usize::from(object.edge_type)].properties;
        for (name, value) in changes {
            let i = position(properties, name)?;
            check_value(&properties[i], value.as_ref())?;
            row[i] = value.clone();
        }
        let bytes = row_bytes(&row)?;
        let stored = Some(&object.stored);
        let stored = self
            .store_row(edge.0, EDGE_HEAD_BYTES, bytes, stored)
            .await?;
        object.stored = stored;
        self.write_edge(edge.0, &object).await
    }

    /// Deletes an edge at both ends. Error: `NoEdge`.
    pub async fn delete_edge(&self, edge: Edge) -> Result<()> {
        self.edge_at(edge).await?;
        self.end_edge(edge.0, None).await
    }

    /// Ends an edge. The lists of the vertex at `except` stay as they are: it will go.
    pub(crate) async fn end_edge(&self, at: Pointer, except: Option<Pointer>) -> Result<()> {
        let edge = self.known_edge(at).await?;
        // The list of the vertex at `except` has led here. What is in memory may be anything.
        assert!(
            except.is_none_or(|end| end == edge.from || end == edge.to) || !nobody_has_lied(),
            "edge {at:?} is in a list of {except:?}, and goes from {:?} to {:?}",
            edge.from,
            edge.to
        );
        let [out, incoming] = entries(at, &edge);
        let ends = [
            (edge.from, Direction::Out, out),
            (edge.to, Direction::In, incoming),
        ];
        for (end, direction, entry) in ends {
            if Some(end) == except {
                continue;
            }
            let is_left = planted!(
                "graph_edge_stays_at_one_end",
                "the vertex to which an edge went still has it"
            );
            if is_left && direction == Direction::In {
                continue;
            }
            let mut vertex: VertexObject = self.known_vertex(end).await?;
            if self
                .remove_entry(end, &mut vertex, direction, entry)
                .await?
            {
                self.write_vertex(end, &vertex).await?;
            }
        }
        self.free_with_row(at, &edge.stored).await
    }

    /// Up to `limit` edges of a vertex in one direction, of one type or of all, in order; those behind `after` if it
    /// is given. An edge from a vertex to itself is in both directions.
    pub async fn edges(
        &self,
        vertex: Vertex,
        direction: Direction,
        edge_type: Option<&str>,
        after: Option<&After>,
        limit: usize,
    ) -> Result<Edges> {
        let loaded = self.loaded();
        let number = match edge_type {
            Some(name) => Some(loaded.schema.edge_type(name)? as u16),
            None => None,
        };
        let object = self.vertex_at(vertex).await?;
        let list = &object.lists[direction.list()];
        let part = self.list_part(list, &span(number, after), limit).await?;
        let types = loaded.schema.edges.len();
        if part
            .entries
            .iter()
            .any(|entry| usize::from(entry.edge_type) >= types)
        {
            return Err(damaged(vertex.0, "an edge in its list has no type"));
        }
        let is_next = part.entries.is_sorted_by(|a, b| a < b)
            && after.is_none_or(|after| part.entries.first().is_none_or(|e| after.0 < *e));
        assert!(
            part.entries.len() <= limit && (is_next || !nobody_has_lied()),
            "{} edges of {limit} come behind {after:?}, in order: {is_next}",
            part.entries.len()
        );
        let next = part.entries.last().filter(|_| part.more);
        // With a limit of 0 the list goes on where it was.
        let next = next
            .copied()
            .map(After)
            .or(after.copied().filter(|_| part.more));
        let adjacent = |entry: &Entry| Adjacent {
            edge: Edge(entry.edge),
            other: Vertex(entry.other),
        };
        Ok(Edges {
            edges: part.entries.iter().map(adjacent).collect(),
            next,
        })
    }
}
