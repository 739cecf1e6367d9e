//! A graph: its root object, and its schema with the structures that this names.
//!
//! ```text
//!   root:    mark 8 | 'G' | stamp 8 | place of the schema's object 8
//! ```
//!
//! The stamp is a new random number at each change of the schema. Every transaction on the graph reads it, so a
//! transaction under the former schema conflicts with the change, and nobody goes by a schema that is not of the
//! transaction's snapshot.

use crate::codec::Code;
use crate::error::{Result, at_most, damaged};
use crate::object::{RootObject, decode_long, encode_long};
use crate::schema::Schema;
use bytes::Bytes;
use plinth_farm_memory::{Class, OBJECT_BYTES_MAX, Objects, Pointer};
use plinth_farm_structures::btree::{BTree, Cache};
use plinth_farm_structures::hash::HashTable;
use plinth_runtime::{probe, random};
use std::cell::RefCell;
use std::rc::Rc;

/// The schema of a stamp, and its structures.
pub(crate) struct Loaded {
    pub mark: u64,
    pub stamp: u64,
    pub schema: Schema,
    /// Vertices by primary key, by type.
    pub tables: Vec<HashTable>,
    /// By type and position of the index.
    pub trees: Vec<Vec<BTree>>,
}

/// A graph in the cluster's memory. A handle belongs to no transaction: [`on`](Graph::on) gives its operations inside
/// of one. Clones share what they know of the schema.
#[derive(Clone)]
pub struct Graph {
    root: Pointer,
    cache: Cache,
    loaded: Rc<RefCell<Option<Rc<Loaded>>>>,
}

impl Graph {
    /// A new graph without types, on the machine of `near` if there is room. Whoever keeps [`root`](Graph::root)
    /// finds it again. `cache` is for inner nodes of its trees.
    pub async fn create<O: Objects>(tx: &O, near: Pointer, cache: &Cache) -> Result<Graph> {
        let schema = encode_long(0, &Schema::default().encode());
        let at = tx.allocate(schema.len(), near).await?;
        let root = tx.allocate(RootObject::BYTES, near).await?;
        let object = RootObject {
            mark: random::u64(),
            stamp: random::u64(),
            schema: at,
        };
        let schema = encode_long(object.mark, &Schema::default().encode());
        tx.write(at, schema.into()).await?;
        tx.write(root, object.encode().into()).await?;
        Ok(Graph::at(root, cache))
    }

    /// The graph with this root object. Error: `Damaged` if there is no graph.
    pub async fn open<O: Objects>(tx: &O, root: Pointer, cache: &Cache) -> Result<Graph> {
        let graph = Graph::at(root, cache);
        graph.load(tx).await?;
        Ok(graph)
    }

    fn at(root: Pointer, cache: &Cache) -> Graph {
        Graph {
            root,
            cache: cache.clone(),
            loaded: Rc::default(),
        }
    }

    /// The root object, which stays where it is.
    pub fn root(&self) -> Pointer {
        self.root
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.cache
    }

    async fn read_root<O: Objects>(&self, tx: &O) -> Result<RootObject> {
        RootObject::decode(&tx.read(self.root).await?)
            .ok_or(damaged(self.root, "it is not the root of a graph"))
    }

    /// The objects of the graph itself.
    pub(crate) async fn objects<O: Objects>(&self, tx: &O) -> Result<[Pointer; 2]> {
        Ok([self.root, self.read_root(tx).await?.schema])
    }

    /// The schema of the snapshot.
    pub(crate) async fn load<O: Objects>(&self, tx: &O) -> Result<Rc<Loaded>> {
        let known = self.last_loaded();
        let root = self.read_root(tx).await?;
        if let Some(known) =
            known.filter(|known| known.stamp == root.stamp && known.mark == root.mark)
        {
            return Ok(known);
        }
        probe!("graph_schema_is_stale");
        let bytes = decode_long(&tx.read(root.schema).await?, root.mark);
        let schema = bytes.and_then(|bytes| Schema::decode(&bytes));
        let schema = schema.ok_or(damaged(root.schema, "it is not the schema of the graph"))?;
        let loaded = Rc::new(self.with_structures(tx, &root, schema).await?);
        self.loaded.replace(Some(loaded.clone()));
        Ok(loaded)
    }

    /// The schema that was read last, whatever the snapshot has now.
    pub(crate) fn last_loaded(&self) -> Option<Rc<Loaded>> {
        self.loaded.borrow().clone()
    }

    async fn with_structures<O: Objects>(
        &self,
        tx: &O,
        root: &RootObject,
        schema: Schema,
    ) -> Result<Loaded> {
        let (mut tables, mut trees) = (Vec::new(), Vec::new());
        for vertex in &schema.vertices {
            tables.push(HashTable::open(tx, vertex.table).await?);
            let mut of_type = Vec::new();
            for index in &vertex.indexes {
                of_type.push(BTree::open(tx, index.tree, &self.cache).await?);
            }
            trees.push(of_type);
        }
        Ok(Loaded {
            mark: root.mark,
            stamp: root.stamp,
            schema,
            tables,
            trees,
        })
    }

    /// Puts another schema in the place of the one of the snapshot.
    pub(crate) async fn store<O: Objects>(&self, tx: &O, schema: &Schema) -> Result<Rc<Loaded>> {
        let mut root = self.read_root(tx).await?;
        let bytes = encode_long(root.mark, &schema.encode());
        at_most("bytes of a schema", bytes.len(), OBJECT_BYTES_MAX)?;
        if Class::of(bytes.len()) != Some(root.schema.class()) {
            let former =
                std::mem::replace(&mut root.schema, tx.allocate(bytes.len(), self.root).await?);
            tx.free(former).await?;
        }
        tx.write(root.schema, Bytes::from(bytes)).await?;
        root.stamp = random::u64();
        tx.write(self.root, root.encode().into()).await?;
        self.load(tx).await
    }
}
