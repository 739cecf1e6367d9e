//! Vertices: made, found by primary key, read, changed, deleted with their edges.

use crate::error::{Error, Result, damaged};
use crate::lists::{Direction, Span};
use crate::object::{List, Stored, VERTEX_HEAD_BYTES, VertexObject};
use crate::schema::{Row, check_value, get, position, row};
use crate::transaction::{GraphTx, Record, Vertex, object_bytes, row_bytes};
use crate::types::KEY_BYTES_MAX;
use crate::value::Value;
use plinth_farm_memory::{Objects, Pointer};
use std::collections::BTreeSet;

/// Most edges that go with a vertex that is deleted. With more, delete edges first:
/// [`delete_some_edges`](GraphTx::delete_some_edges).
pub const DELETED_EDGES_MAX: usize = 256;

fn key_bytes(name: &str, key: &Value) -> Result<Vec<u8>> {
    let bytes = key.ordered();
    match bytes.len() > KEY_BYTES_MAX {
        true => Err(Error::property(name, "it is too long for a primary key")),
        false => Ok(bytes),
    }
}

impl<O: Objects> GraphTx<'_, O> {
    /// A new vertex. Errors: `KeyTaken`, `NotUnique`, `Property`.
    pub async fn create_vertex(
        &self,
        vertex_type: &str,
        values: &[(&str, Value)],
    ) -> Result<Vertex> {
        self.create_vertex_near(vertex_type, values, None).await
    }

    /// A new vertex, on the machine of `near` if there is room. Queries cost fewer messages if vertices with many
    /// edges between them lie together.
    pub async fn create_vertex_near(
        &self,
        vertex_type: &str,
        values: &[(&str, Value)],
        near: Option<Vertex>,
    ) -> Result<Vertex> {
        let loaded = self.loaded();
        let number = loaded.schema.vertex_type(vertex_type)?;
        let of = &loaded.schema.vertices[number];
        let row = row(&of.properties, values)?;
        let bytes = row_bytes(&row)?;
        let Some(key) = get(&row, of.key) else {
            return Err(Error::property(
                &of.properties[of.key].name,
                "it is required",
            ));
        };
        let key = key_bytes(&of.properties[of.key].name, key)?;
        match self.check_indexed(number, None, &row, None).await {
            // The other vertex with a value of a unique index may be the one with the key.
            Err(Error::NotUnique { .. })
                if loaded.tables[number].contains(self.tx, &key).await? =>
            {
                return Err(Error::KeyTaken);
            }
            checked => checked?,
        }
        let near = near.map_or(Pointer::NULL, |near| near.0);
        let size = object_bytes(VERTEX_HEAD_BYTES, &bytes);
        let at = self.tx.allocate(size, near).await?;
        let place = at.bits().to_le_bytes();
        if !loaded.tables[number].insert(self.tx, &key, &place).await? {
            self.tx.free(at).await?;
            return Err(Error::KeyTaken);
        }
        let vertex = VertexObject {
            vertex_type: number as u16,
            lists: [List::Inline(Vec::new()), List::Inline(Vec::new())],
            stored: self.store_row(at, VERTEX_HEAD_BYTES, bytes, None).await?,
        };
        self.write_vertex(at, &vertex).await?;
        self.maintain(number, at, None, Some(&row)).await?;
        Ok(Vertex(at))
    }

    /// The vertex with this primary key.
    pub async fn find_vertex(&self, vertex_type: &str, key: &Value) -> Result<Option<Vertex>> {
        let loaded = self.loaded();
        let number = loaded.schema.vertex_type(vertex_type)?;
        let of = &loaded.schema.vertices[number];
        check_value(&of.properties[of.key], Some(key))?;
        let key = key_bytes(&of.properties[of.key].name, key)?;
        let Some(place) = loaded.tables[number].get(self.tx, &key).await? else {
            return Ok(None);
        };
        Ok(Some(Vertex(self.vertex_place(number, &place)?)))
    }

    /// The place of a vertex, as the table of its type has it.
    pub(crate) fn vertex_place(&self, number: usize, place: &[u8]) -> Result<Pointer> {
        let word = place.try_into().ok().map(u64::from_le_bytes);
        word.and_then(Pointer::from_bits).ok_or(damaged(
            self.loaded().tables[number].root(),
            "a primary key leads to no place",
        ))
    }

    /// All vertices of the graph, in no order that means anything: a read of every table of primary keys.
    pub async fn vertices(&self) -> Result<Vec<Vertex>> {
        let mut vertices = Vec::new();
        for (number, table) in self.loaded().tables.iter().enumerate() {
            for (_, place) in table.entries(self.tx).await? {
                vertices.push(Vertex(self.vertex_place(number, &place)?));
            }
        }
        Ok(vertices)
    }

    /// Type and properties of a vertex. Error: `NoVertex`.
    pub async fn vertex(&self, vertex: Vertex) -> Result<Record> {
        let object = self.vertex_at(vertex).await?;
        let row = self.vertex_row(vertex.0, &object).await?;
        let loaded = self.loaded();
        let of = &loaded.schema.vertices[usize::from(object.vertex_type)];
        Ok(Record::new(&of.name, &of.properties, row))
    }

    pub(crate) async fn vertex_row(&self, at: Pointer, vertex: &VertexObject) -> Result<Row> {
        let loaded = self.loaded();
        let of = &loaded.schema.vertices[usize::from(vertex.vertex_type)];
        self.load_row(at, &vertex.stored, &of.properties).await
    }

    /// Sets properties, or removes optional ones. The others stay. The primary key cannot change.
    pub async fn update_vertex(
        &self,
        vertex: Vertex,
        changes: &[(&str, Option<Value>)],
    ) -> Result<()> {
        let mut object = self.vertex_at(vertex).await?;
        let former = self.vertex_row(vertex.0, &object).await?;
        let loaded = self.loaded();
        let number = usize::from(object.vertex_type);
        let of = &loaded.schema.vertices[number];
        let mut row = former.clone();
        for (name, value) in changes {
            let i = position(&of.properties, name)?;
            check_value(&of.properties[i], value.as_ref())?;
            if i == of.key && get(&row, i) != value.as_ref() {
                return Err(Error::property(name, "a primary key cannot change"));
            }
            row[i] = value.clone();
        }
        let bytes = row_bytes(&row)?;
        self.check_indexed(number, Some(&former), &row, Some(vertex.0))
            .await?;
        let stored = Some(&object.stored);
        let stored = self.store_row(vertex.0, VERTEX_HEAD_BYTES, bytes, stored);
        let stored = stored.await?;
        // A long row that stays in its object leaves the vertex as it is.
        if !matches!(stored, Stored::Long(_)) || stored != object.stored {
            object.stored = stored;
            self.write_vertex(vertex.0, &object).await?;
        }
        self.maintain(number, vertex.0, Some(&former), Some(&row))
            .await
    }

    /// Deletes a vertex and its edges, and returns how many edges that were. Error: `TooManyEdges`, see
    /// [`DELETED_EDGES_MAX`].
    pub async fn delete_vertex(&self, vertex: Vertex) -> Result<usize> {
        let object = self.vertex_at(vertex).await?;
        let row = self.vertex_row(vertex.0, &object).await?;
        let mut edges = BTreeSet::new();
        for list in &object.lists {
            let part = self
                .list_part(list, &Span::default(), DELETED_EDGES_MAX + 1)
                .await?;
            edges.extend(part.entries.iter().map(|entry| entry.edge));
        }
        if edges.len() > DELETED_EDGES_MAX {
            return Err(Error::TooManyEdges {
                most: DELETED_EDGES_MAX,
            });
        }
        for edge in &edges {
            self.end_edge(*edge, Some(vertex.0)).await?;
        }
        let loaded = self.loaded();
        let number = usize::from(object.vertex_type);
        let key = get(&row, loaded.schema.vertices[number].key);
        let key = key.map_or(Vec::new(), Value::ordered);
        if !loaded.tables[number].remove(self.tx, &key).await? {
            return Err(damaged(vertex.0, "its primary key does not lead to it"));
        }
        self.maintain(number, vertex.0, Some(&row), None).await?;
        for list in &object.lists {
            self.drop_list(list).await?;
        }
        self.free_with_row(vertex.0, &object.stored).await?;
        Ok(edges.len())
    }

    /// Deletes up to `limit` edges of a vertex, and returns how many: fewer than `limit` if these were the last. For
    /// vertices with too many edges to be deleted with them in one transaction.
    pub async fn delete_some_edges(&self, vertex: Vertex, limit: usize) -> Result<usize> {
        let mut deleted = 0;
        for direction in [Direction::Out, Direction::In] {
            let object = self.vertex_at(vertex).await?;
            let list = &object.lists[direction.list()];
            let left = limit - deleted;
            let part = self.list_part(list, &Span::default(), left).await?;
            assert!(
                part.entries.len() <= left,
                "{} edges are deleted, where {left} may be",
                part.entries.len()
            );
            for entry in &part.entries {
                self.end_edge(entry.edge, None).await?;
            }
            deleted += part.entries.len();
        }
        Ok(deleted)
    }
}
