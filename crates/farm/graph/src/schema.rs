//! The schema of a graph: its types, their properties and indexes. One object holds it; a transaction that changes it
//! conflicts with all that use the graph.

use crate::codec::{Reader, put_bytes, put_list, put_pointer, put_u16};
use crate::error::{Error, Result};
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
    if properties.len() > PROPERTIES_MAX {
        let (what, most) = ("properties", PROPERTIES_MAX);
        return Err(Error::TooMany { what, most });
    }
    for (i, property) in properties.iter().enumerate() {
        check_name(&property.name)?;
        if properties[..i].iter().any(|p| p.name == property.name) {
            let (what, name) = ("property", property.name.clone());
            return Err(Error::Taken { what, name });
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
    let present: Vec<_> = (row.iter().enumerate())
        .filter_map(|(i, value)| Some((i, value.as_ref()?)))
        .collect();
    put_list(&mut out, &present, |out, (i, value)| {
        put_u16(out, *i as u16);
        value.write(out);
    });
    out
}

/// The row, if it fits the properties.
pub(crate) fn decode_row(bytes: &[u8], properties: &[Property]) -> Option<Row> {
    let mut reader = Reader(bytes);
    let present = reader.list(PROPERTIES_MAX, |r| Some((r.u16()?, Value::read(r)?)))?;
    let mut row: Row = vec![None; properties.len()];
    for (i, value) in present {
        *row.get_mut(usize::from(i))? = Some(value);
    }
    let is_fit = |(p, v): (&Property, &Option<Value>)| check_value(p, v.as_ref()).is_ok();
    (reader.0.is_empty() && properties.iter().zip(&row).all(is_fit)).then_some(row)
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

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_list(&mut out, &self.vertices, |out, t| {
            put_bytes(out, t.name.as_bytes());
            put_properties(out, &t.properties);
            put_u16(out, t.key as u16);
            put_pointer(out, t.table);
            put_list(out, &t.indexes, |out, index| {
                put_bytes(out, index.name.as_bytes());
                put_u16(out, index.property as u16);
                out.push(u8::from(index.is_unique));
                out.push(index.state as u8);
                put_pointer(out, index.tree);
                put_pointer(out, index.progress);
            });
        });
        put_list(&mut out, &self.edges, |out, t| {
            put_bytes(out, t.name.as_bytes());
            put_properties(out, &t.properties);
        });
        out
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<Schema> {
        let vertices = reader.list(TYPES_MAX, |r| {
            let (name, properties) = (r.text()?, take_properties(r)?);
            let (key, table) = (usize::from(r.u16()?), r.pointer()?);
            let indexes = r.list(INDEXES_MAX, take_index)?;
            let is_sound = key < properties.len()
                && indexes
                    .iter()
                    .all(|index| index.property < properties.len());
            is_sound.then_some(VertexType {
                name,
                properties,
                key,
                indexes,
                table,
            })
        })?;
        let edges = reader.list(TYPES_MAX, |r| {
            let (name, properties) = (r.text()?, take_properties(r)?);
            Some(EdgeType { name, properties })
        })?;
        Some(Schema { vertices, edges })
    }
}

fn put_properties(out: &mut Vec<u8>, properties: &[Property]) {
    put_list(out, properties, |out, property| {
        put_bytes(out, property.name.as_bytes());
        out.push(property.kind as u8);
        out.push(u8::from(property.is_required));
    });
}

fn take_properties(reader: &mut Reader<'_>) -> Option<Vec<Property>> {
    reader.list(PROPERTIES_MAX, |r| {
        Some(Property {
            name: r.text()?,
            kind: Kind::from_code(r.u8()?)?,
            is_required: r.flag()?,
        })
    })
}

fn take_index(reader: &mut Reader<'_>) -> Option<Index> {
    Some(Index {
        name: reader.text()?,
        property: usize::from(reader.u16()?),
        is_unique: reader.flag()?,
        state: match reader.u8()? {
            0 => State::Building,
            1 => State::Ready,
            2 => State::Dropping,
            _ => return None,
        },
        tree: reader.pointer()?,
        progress: reader.pointer()?,
    })
}
