//! The operations of a graph inside one transaction: what all of them need.

use crate::error::{Error, Result, at_most, damaged};
use crate::graph::{Graph, Loaded};
use crate::object::{
    EdgeObject, INLINE_BYTES_MAX, Object, ROW_BYTES_MAX, Stored, VertexObject, decode_long,
    encode_long,
};
use crate::schema::{Property, Row, Schema, decode_row, encode_row};
use crate::value::Value;
use plinth_farm_memory::{Class, Objects, Pointer};
use plinth_runtime::planted;
use std::cell::RefCell;
use std::rc::Rc;

/// Bytes of inline properties beside the row: a flag and a length.
const INLINE_HEAD_BYTES: usize = 5;

/// A vertex, by its place. It means the same as long as the vertex exists, and may be another vertex's later: keep
/// it for one transaction, and the primary key for longer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Vertex(pub(crate) Pointer);

/// An edge, by its place, for one transaction as [`Vertex`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Edge(pub(crate) Pointer);

impl Vertex {
    /// Where it lies.
    pub fn place(self) -> Pointer {
        self.0
    }
}

/// The operations of a graph inside one transaction. There should be one of these at a time for a transaction: a
/// change of the schema is not seen by others that exist already.
///
/// A call that refuses its arguments, or does not find what they name, has changed nothing. After any other error of
/// a change the transaction must be given up.
pub struct GraphTx<'a, O> {
    pub(crate) tx: &'a O,
    pub(crate) graph: Graph,
    loaded: RefCell<Rc<Loaded>>,
}

/// Properties of a vertex or an edge that are there, by name.
#[derive(Clone, PartialEq, Debug)]
pub struct Record {
    pub type_name: String,
    /// In the order in which the type declares them.
    pub values: Vec<(String, Value)>,
}

impl Record {
    pub fn get(&self, name: &str) -> Option<&Value> {
        let found = self.values.iter().find(|(of, _)| of == name);
        found.map(|(_, value)| value)
    }

    pub(crate) fn new(type_name: &str, properties: &[Property], row: Row) -> Record {
        let values = properties.iter().zip(row);
        Record {
            type_name: type_name.to_owned(),
            values: values
                .filter_map(|(property, value)| Some((property.name.clone(), value?)))
                .collect(),
        }
    }
}

impl Graph {
    /// The graph's operations in a transaction. Reads the root object, so that the transaction conflicts with those
    /// that change the schema.
    pub async fn on<'a, O: Objects>(&self, tx: &'a O) -> Result<GraphTx<'a, O>> {
        let is_skipped = planted!(
            "graph_schema_is_not_read",
            "a transaction goes by the schema that was read last"
        );
        let loaded = match self.last_loaded().filter(|_| is_skipped) {
            Some(last) => last,
            None => self.load(tx).await?,
        };
        Ok(GraphTx {
            tx,
            graph: self.clone(),
            loaded: RefCell::new(loaded),
        })
    }
}

impl<O: Objects> GraphTx<'_, O> {
    pub(crate) fn loaded(&self) -> Rc<Loaded> {
        self.loaded.borrow().clone()
    }

    /// The schema at the snapshot, with the transaction's own changes.
    pub fn schema(&self) -> Schema {
        self.loaded().schema.clone()
    }

    pub(crate) async fn store_schema(&self, schema: &Schema) -> Result<()> {
        let loaded = self.graph.store(self.tx, schema).await?;
        self.loaded.replace(loaded);
        Ok(())
    }

    async fn vertex_if_there(&self, at: Pointer) -> Result<Option<VertexObject>> {
        let loaded = self.loaded();
        let bytes = self.tx.read_if_there(at).await?;
        let vertex = bytes.and_then(|bytes| VertexObject::from_object(&bytes, loaded.mark));
        let types = loaded.schema.vertices.len();
        Ok(vertex.filter(|vertex| usize::from(vertex.vertex_type) < types))
    }

    /// The vertex that a user names.
    pub(crate) async fn vertex_at(&self, vertex: Vertex) -> Result<VertexObject> {
        let found = self.vertex_if_there(vertex.0).await?;
        found.ok_or(Error::NoVertex)
    }

    /// The vertex that something in the graph points to.
    pub(crate) async fn known_vertex(&self, at: Pointer) -> Result<VertexObject> {
        self.vertex_if_there(at)
            .await?
            .ok_or(damaged(at, "it is not a vertex of the graph"))
    }

    /// The edge that a user names.
    pub(crate) async fn edge_at(&self, edge: Edge) -> Result<EdgeObject> {
        let loaded = self.loaded();
        let bytes = self.tx.read_if_there(edge.0).await?;
        let found = bytes.and_then(|bytes| EdgeObject::from_object(&bytes, loaded.mark));
        let types = loaded.schema.edges.len();
        let found = found.filter(|edge| usize::from(edge.edge_type) < types);
        found.ok_or(Error::NoEdge)
    }

    /// The edge that a list has.
    pub(crate) async fn known_edge(&self, at: Pointer) -> Result<EdgeObject> {
        match self.edge_at(Edge(at)).await {
            Err(Error::NoEdge) => Err(damaged(at, "it is not an edge of the graph")),
            edge => edge,
        }
    }

    pub(crate) async fn write_vertex(&self, at: Pointer, vertex: &VertexObject) -> Result<()> {
        let bytes = vertex.to_object(self.loaded().mark);
        Ok(self.tx.write(at, bytes.into()).await?)
    }

    pub(crate) async fn write_edge(&self, at: Pointer, edge: &EdgeObject) -> Result<()> {
        let bytes = edge.to_object(self.loaded().mark);
        Ok(self.tx.write(at, bytes.into()).await?)
    }

    /// The row of the object at `at`.
    pub(crate) async fn load_row(
        &self,
        at: Pointer,
        stored: &Stored,
        properties: &[Property],
    ) -> Result<Row> {
        let row = match stored {
            Stored::Inline(bytes) => decode_row(bytes, properties),
            Stored::Long(at) => {
                let bytes = decode_long(&self.tx.read(*at).await?, self.loaded().mark);
                bytes.and_then(|bytes| decode_row(&bytes, properties))
            }
        };
        row.ok_or(damaged(at, "its properties cannot be read"))
    }

    /// Puts a row where it belongs: into the object at `at`, which has `head` bytes beside it, or into one of its own.
    pub(crate) async fn store_row(
        &self,
        at: Pointer,
        head: usize,
        row: Vec<u8>,
        former: Option<&Stored>,
    ) -> Result<Stored> {
        let room = at.class().payload_bytes() - head - INLINE_HEAD_BYTES;
        let former = match former {
            Some(Stored::Long(former)) => Some(*former),
            _ => None,
        };
        if row.len() <= room.min(INLINE_BYTES_MAX) {
            self.free_long(former).await?;
            return Ok(Stored::Inline(row));
        }
        let bytes = encode_long(self.loaded().mark, &row);
        let fits = |at: &Pointer| Class::of(bytes.len()) == Some(at.class());
        let long = match former {
            Some(former) if fits(&former) => former,
            _ => {
                self.free_long(former).await?;
                self.tx.allocate(bytes.len(), at).await?
            }
        };
        self.tx.write(long, bytes.into()).await?;
        Ok(Stored::Long(long))
    }

    async fn free_long(&self, long: Option<Pointer>) -> Result<()> {
        match long {
            Some(at) => Ok(self.tx.free(at).await?),
            None => Ok(()),
        }
    }

    /// Ends an object with properties.
    pub(crate) async fn free_with_row(&self, at: Pointer, stored: &Stored) -> Result<()> {
        if let Stored::Long(long) = stored {
            self.tx.free(*long).await?;
        }
        Ok(self.tx.free(at).await?)
    }
}

/// Bytes of a new object for a head and a row.
pub(crate) fn object_bytes(head: usize, row: &[u8]) -> usize {
    let inline = match row.len() <= INLINE_BYTES_MAX {
        true => row.len(),
        false => 0,
    };
    head + crate::object::STORED_BYTES.max(INLINE_HEAD_BYTES + inline)
}

/// The bytes of a row, if they are not too many.
pub(crate) fn row_bytes(row: &Row) -> Result<Vec<u8>> {
    let bytes = encode_row(row);
    at_most("bytes of properties", bytes.len(), ROW_BYTES_MAX)?;
    Ok(bytes)
}
