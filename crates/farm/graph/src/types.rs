//! Changes of the schema: types and their properties. Indexes are in `build`.

use crate::error::{Error, Result, at_most};
use crate::schema::{
    EdgeType, Property, Schema, TYPES_MAX, VertexType, check_name, check_properties, position,
};
use crate::transaction::GraphTx;
use plinth_farm_memory::Objects;
use plinth_farm_structures::hash::{self, HashTable};
use plinth_runtime::random;

/// Most bytes of a primary key, in the form in which keys have an order: a number has 8, a text has 2 more than its
/// bytes and zeros.
pub const KEY_BYTES_MAX: usize = 128;

impl<O: Objects> GraphTx<'_, O> {
    /// A new type of vertices. `key` names the property that is the primary key; it must be a required one. The
    /// table of primary keys begins with `buckets` buckets of eight vertices, a power of two from 8 to 8192, and
    /// grows only by [`grow`](GraphTx::grow).
    pub async fn create_vertex_type(
        &self,
        name: &str,
        properties: Vec<Property>,
        key: &str,
        buckets: usize,
    ) -> Result<()> {
        check_name(name)?;
        check_properties(&properties)?;
        let key = position(&properties, key)?;
        if !properties[key].is_required {
            return Err(Error::property(
                &properties[key].name,
                "a primary key is required",
            ));
        }
        let mut schema = self.schema();
        if schema.vertex_type(name).is_ok() {
            return Err(Error::taken("vertex type", name));
        }
        at_most("vertex types", schema.vertices.len() + 1, TYPES_MAX)?;
        let settings = hash::Settings {
            buckets,
            slots: 8,
            key_bytes_max: KEY_BYTES_MAX,
            inline_bytes_max: 8,
            seed: random::u64(),
            is_spread: true,
        };
        let table = HashTable::create(self.tx, settings, self.graph.root()).await?;
        schema.vertices.push(VertexType {
            name: name.to_owned(),
            properties,
            key,
            indexes: Vec::new(),
            table: table.root(),
        });
        self.store_schema(&schema).await
    }

    /// A new type of edges.
    pub async fn create_edge_type(&self, name: &str, properties: Vec<Property>) -> Result<()> {
        check_name(name)?;
        check_properties(&properties)?;
        let mut schema = self.schema();
        if schema.edge_type(name).is_ok() {
            return Err(Error::taken("edge type", name));
        }
        at_most("edge types", schema.edges.len() + 1, TYPES_MAX)?;
        let name = name.to_owned();
        schema.edges.push(EdgeType { name, properties });
        self.store_schema(&schema).await
    }

    /// One more property of a vertex type. Vertices from before do not have it, so it must be optional.
    pub async fn add_vertex_property(&self, vertex_type: &str, property: Property) -> Result<()> {
        self.add_property(property, |schema| {
            let at = schema.vertex_type(vertex_type)?;
            Ok(&mut schema.vertices[at].properties)
        })
        .await
    }

    /// One more property of an edge type, which must be optional.
    pub async fn add_edge_property(&self, edge_type: &str, property: Property) -> Result<()> {
        self.add_property(property, |schema| {
            let at = schema.edge_type(edge_type)?;
            Ok(&mut schema.edges[at].properties)
        })
        .await
    }

    async fn add_property(
        &self,
        property: Property,
        of: impl FnOnce(&mut Schema) -> Result<&mut Vec<Property>>,
    ) -> Result<()> {
        if property.is_required {
            return Err(Error::property(
                &property.name,
                "what is added must be optional",
            ));
        }
        let mut schema = self.schema();
        let properties = of(&mut schema)?;
        properties.push(property);
        check_properties(properties)?;
        self.store_schema(&schema).await
    }

    /// Splits up to `rings` rings of eight buckets of the type's table of primary keys, and returns the number of
    /// buckets then. A table should have a bucket for six vertices or fewer; see [`HashTable::grow`].
    pub async fn grow(&self, vertex_type: &str, rings: usize) -> Result<usize> {
        let loaded = self.loaded();
        let at = loaded.schema.vertex_type(vertex_type)?;
        Ok(loaded.tables[at].grow(self.tx, rings).await?)
    }
}
