//! The schema of a graph: its types, their properties and indexes. One object holds it; a transaction that changes it
//! conflicts with all that use the graph.

use crate::codec::{Code, Reader, code_for, listed, put_count};
use crate::error::{Error, Result, at_most};
use crate::value::{Kind, Value};
use plinth_farm_memory::Pointer;

/// Most vertex types, and most edge types, of a graph.
pub const TYPES_MAX: usize = 256;
/// Most properties of a type.
pub const PROPERTIES_MAX: usize = 64;
/// Most indexes of a vertex type.
pub const INDEXES_MAX: usize = 8;
/// Most bytes of a name.
pub const NAME_BYTES_MAX: usize = 48;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Property {
    pub name: String,
    pub kind: Kind,
    pub is_required: bool,
}

impl Property {
    pub fn required(name: &str, kind: Kind) -> Property {
        Property {
            name: name.to_owned(),
            kind,
            is_required: true,
        }
    }

    pub fn optional(name: &str, kind: Kind) -> Property {
        Property {
            is_required: false,
            ..Property::required(name, kind)
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Changes of vertices maintain it; vertices from before are entered in pieces. Nobody looks in it.
    Building,
    Ready,
    /// Nobody maintains it or looks in it; its entries are removed in pieces.
    Dropping,
}

/// A secondary index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Index {
    pub name: String,
    /// Position among the properties of the type.
    pub property: usize,
    pub is_unique: bool,
    pub state: State,
    pub(crate) tree: Pointer,
    /// The object that says how far the index is built.
    pub(crate) progress: Pointer,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VertexType {
    pub name: String,
    pub properties: Vec<Property>,
    /// Position of the primary key among the properties.
    pub key: usize,
    pub indexes: Vec<Index>,
    pub(crate) table: Pointer,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EdgeType {
    pub name: String,
    pub properties: Vec<Property>,
}

/// All types. A type's number is its position; types and properties never go.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Schema {
    pub vertices: Vec<VertexType>,
    pub edges: Vec<EdgeType>,
}

/// Values of the properties of a type, by position. Missing ones at the end are absent.
pub(crate) type Row = Vec<Option<Value>>;

pub(crate) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let what = "bytes of a name, which must not be empty,";
        let most = NAME_BYTES_MAX;
        return Err(Error::TooMany { what, most });
    }
    Ok(())
}

pub(crate) fn check_properties(properties: &[Property]) -> Result<()> {
    at_most("properties", properties.len(), PROPERTIES_MAX)?;
    for (i, property) in properties.iter().enumerate() {
        check_name(&property.name)?;
        if properties[..i].iter().any(|p| p.name == property.name) {
            return Err(Error::taken("property", &property.name));
        }
    }
    Ok(())
}

pub(crate) fn position(properties: &[Property], name: &str) -> Result<usize> {
    let found = properties.iter().position(|p| p.name == name);
    found.ok_or_else(|| Error::unknown("property", name))
}

/// Values by name as a row that fits the properties.
pub(crate) fn row(properties: &[Property], values: &[(&str, Value)]) -> Result<Row> {
    let mut row: Row = vec![None; properties.len()];
    for (name, value) in values {
        let i = position(properties, name)?;
        if row[i].replace(value.clone()).is_some() {
            return Err(Error::property(name, "it is given twice"));
        }
    }
    for (property, value) in properties.iter().zip(&row) {
        check_value(property, value.as_ref())?;
    }
    Ok(row)
}

pub(crate) fn check_value(property: &Property, value: Option<&Value>) -> Result<()> {
    match value {
        Some(value) if value.kind() != property.kind => Err(Error::property(
            &property.name,
            "the value has another type",
        )),
        None if property.is_required => Err(Error::property(&property.name, "it is required")),
        _ => Ok(()),
    }
}

pub(crate) fn get(row: &Row, i: usize) -> Option<&Value> {
    row.get(i)?.as_ref()
}

pub(crate) fn encode_row(row: &Row) -> Vec<u8> {
    let mut out = Vec::new();
    put_count(&mut out, row.iter().flatten().count());
    for (i, value) in row.iter().enumerate() {
        if let Some(value) = value {
            i.put(&mut out);
            value.put(&mut out);
        }
    }
    out
}

/// The row, if it fits the properties.
pub(crate) fn decode_row(bytes: &[u8], properties: &[Property]) -> Option<Row> {
    let present: Vec<(usize, Value)> = Code::decode(bytes)?;
    let mut row: Row = vec![None; properties.len()];
    for (i, value) in present {
        *row.get_mut(i)? = Some(value);
    }
    let is_fit = |(p, v): (&Property, &Option<Value>)| check_value(p, v.as_ref()).is_ok();
    properties.iter().zip(&row).all(is_fit).then_some(row)
}

impl Schema {
    pub fn vertex_type(&self, name: &str) -> Result<usize> {
        let found = self.vertices.iter().position(|t| t.name == name);
        found.ok_or_else(|| Error::unknown("vertex type", name))
    }

    pub fn edge_type(&self, name: &str) -> Result<usize> {
        let found = self.edges.iter().position(|t| t.name == name);
        found.ok_or_else(|| Error::unknown("edge type", name))
    }

    pub(crate) fn index(&self, vertex_type: usize, name: &str) -> Result<usize> {
        let indexes = &self.vertices[vertex_type].indexes;
        let found = indexes.iter().position(|index| index.name == name);
        found.ok_or_else(|| Error::unknown("index", name))
    }
}

listed!(TYPES_MAX; VertexType, EdgeType);
listed!(PROPERTIES_MAX; Property, (usize, Value));
listed!(INDEXES_MAX; Index);

code_for!(Schema { vertices, edges });
code_for!(EdgeType { name, properties });
code_for!(Property {
    name,
    kind,
    is_required,
});
code_for!(Index {
    name,
    property,
    is_unique,
    state,
    tree,
    progress,
});
code_for!(
    enum State {
        Building = 0,
        Ready = 1,
        Dropping = 2,
    }
);

impl Code for VertexType {
    fn put(&self, out: &mut Vec<u8>) {
        self.name.put(out);
        self.properties.put(out);
        self.key.put(out);
        self.table.put(out);
        self.indexes.put(out);
    }
    fn take(reader: &mut Reader<'_>) -> Option<Self> {
        let vertex_type = VertexType {
            name: reader.get()?,
            properties: reader.get()?,
            key: reader.get()?,
            table: reader.get()?,
            indexes: reader.get()?,
        };
        let properties = vertex_type.properties.len();
        let indexed = vertex_type.indexes.iter().map(|index| index.property);
        let is_sound = indexed.chain([vertex_type.key]).all(|at| at < properties);
        is_sound.then_some(vertex_type)
    }
}
