//! Values, rows, the schema and objects as bytes.

use crate::codec::Code;
use crate::object::{
    EdgeObject, Entry, List, Object, Stored, VertexObject, decode_long, encode_long,
};
use crate::schema::{
    EdgeType, Index, Property, Schema, State, VertexType, decode_row, encode_row, row,
};
use crate::value::{Kind, Value};
use plinth_core::testing::fuzz;
use plinth_farm_memory::{Class, Pointer};
use proptest::prelude::*;

const MARK: u64 = 0x1234_5678_9abc_def0;

fn place(word: u64) -> Pointer {
    Pointer::new(1, Class::of(100).expect("a class"), word)
}

fn value() -> impl Strategy<Value = Value> {
    let bytes = || {
        proptest::collection::vec(
            prop_oneof![Just(0u8), Just(1), Just(255), any::<u8>()],
            0..6,
        )
    };
    prop_oneof![
        any::<bool>().prop_map(Value::Bool),
        prop_oneof![-2..3i64, any::<i64>()].prop_map(Value::I64),
        any::<u64>().prop_map(|bits| Value::F64(f64::from_bits(bits))),
        (-2..3i32).prop_map(|n| Value::F64(f64::from(n) * -0.0)),
        bytes().prop_map(|b| Value::String(String::from_utf8_lossy(&b).into_owned())),
        bytes().prop_map(Value::Bytes),
    ]
}

fn properties() -> Vec<Property> {
    vec![
        Property::required("name", Kind::String),
        Property::optional("age", Kind::I64),
    ]
}

fn schema() -> Schema {
    let index = Index {
        name: "by age".to_owned(),
        property: 1,
        is_unique: false,
        state: State::Building,
        tree: place(7),
        progress: place(8),
    };
    let vertex = VertexType {
        name: "person".to_owned(),
        properties: properties(),
        key: 0,
        indexes: vec![index],
        table: place(9),
    };
    let edge = EdgeType {
        name: "knows".to_owned(),
        properties: properties(),
    };
    Schema {
        vertices: vec![vertex],
        edges: vec![edge],
    }
}

fn vertex() -> VertexObject {
    let entry = |edge_type| Entry {
        edge_type,
        other: place(5),
        edge: place(6),
    };
    VertexObject {
        vertex_type: 3,
        lists: [List::Inline(vec![entry(1), entry(2)]), List::Tree(place(4))],
        stored: Stored::Inline(vec![1, 2, 3]),
    }
}

fn edge() -> EdgeObject {
    EdgeObject {
        edge_type: 2,
        from: place(1),
        to: place(2),
        stored: Stored::Long(place(3)),
    }
}

proptest! {
    #[test]
    fn bytes_of_an_index_have_the_order_of_values(a in value(), b in value()) {
        if a.kind() == b.kind() {
            let (x, y) = (a.ordered(), b.ordered());
            prop_assert_eq!(x.cmp(&y), a.cmp(&b));
            prop_assert!(x == y || !x.starts_with(&y));
        }
    }

    #[test]
    fn a_value_comes_back_from_its_bytes(value in value()) {
        prop_assert_eq!(Value::decode(&value.encode()), Some(value));
    }

    #[test]
    fn entries_of_a_list_have_the_order_of_their_bytes(a: [u8; 3], b: [u8; 3]) {
        let entry = |[t, o, e]: [u8; 3]| Entry {
            edge_type: u16::from(t) << 4,
            other: place(1 + u64::from(o) * 100),
            edge: place(1 + u64::from(e) * 100),
        };
        let (a, b) = (entry(a), entry(b));
        prop_assert_eq!(a.pack().cmp(&b.pack()), a.cmp(&b));
        prop_assert_eq!(Entry::unpack(&a.pack()), Some(a));
    }
}

#[test]
fn schema_vertex_and_edge_come_back_from_their_bytes() {
    let bytes = schema().encode();
    assert_eq!(Schema::decode(&bytes), Some(schema()));
    assert_eq!(
        VertexObject::from_object(&vertex().to_object(MARK), MARK),
        Some(vertex())
    );
    assert_eq!(
        EdgeObject::from_object(&edge().to_object(MARK), MARK),
        Some(edge())
    );
    assert_eq!(
        VertexObject::from_object(&vertex().to_object(MARK), MARK + 1),
        None
    );
    assert_eq!(
        EdgeObject::from_object(&vertex().to_object(MARK), MARK),
        None
    );
    assert_eq!(
        decode_long(&encode_long(MARK, b"abc"), MARK),
        Some(b"abc".to_vec())
    );
}

#[test]
fn a_row_fits_its_properties_or_is_refused() {
    let name = || ("name", Value::String("Ada".to_owned()));
    let fit = row(&properties(), &[name()]).expect("age is optional");
    assert_eq!(
        decode_row(&encode_row(&fit), &properties()),
        Some(fit.clone())
    );
    let mut more = properties();
    more.push(Property::optional("height", Kind::F64));
    let old = decode_row(&encode_row(&fit), &more).expect("an older row");
    assert_eq!(old.len(), 3);
    assert!(row(&properties(), &[("age", Value::I64(3))]).is_err());
    assert!(row(&properties(), &[name(), name()]).is_err());
    assert!(row(&properties(), &[name(), ("age", Value::Bool(true))]).is_err());
    assert!(row(&properties(), &[name(), ("size", Value::I64(3))]).is_err());
    more.push(Property::required("id", Kind::I64));
    assert_eq!(decode_row(&encode_row(&fit), &more), None);
}

#[test]
fn damaged_bytes_are_refused_without_a_panic() {
    let row = encode_row(&vec![
        Some(Value::String("Ada".to_owned())),
        Some(Value::I64(36)),
    ]);
    fuzz("row", 1, [row], |bytes| {
        decode_row(bytes, &properties()).is_some()
    });
    fuzz("schema", 2, [schema().encode()], |bytes| {
        Schema::decode(bytes).is_some()
    });
    let objects = [
        vertex().to_object(MARK),
        edge().to_object(MARK),
        encode_long(MARK, b"abc"),
    ];
    fuzz("object", 3, objects, |bytes| {
        VertexObject::from_object(bytes, MARK).is_some()
            || EdgeObject::from_object(bytes, MARK).is_some()
            || decode_long(bytes, MARK).is_some()
    });
}
