//! Indexes made on vertices that are there already, and dropped, in pieces: many transactions, while others go on.
//!
//! ```text
//!   create_index ──▶ Building ── build_some … ──▶ Ready ── drop_index ──▶ Dropping ── drop_some … ──▶ gone
//!                        └──────────────────────────── drop_index ──────────▲
//! ```
//!
//! From `create_index` on every change of a vertex keeps the index: its transaction has read the new schema, or it
//! conflicts. So what is to be entered are the vertices from before. They are entered ring by ring of the table of
//! primary keys, which misses none ([`HashTable::ring`](plinth_farm_structures::hash::HashTable::ring)).

use crate::error::{Error, Result, at_most, damaged};
use crate::graph::Graph;
use crate::indexes::settings;
use crate::object::{Object, Progress};
use crate::schema::{INDEXES_MAX, Index, State, check_name, get, position};
use crate::transaction::GraphTx;
use crate::types::KEY_BYTES_MAX;
use bytes::Bytes;
use plinth_farm_memory::Objects;
use plinth_farm_structures::btree::BTree;
use plinth_farm_structures::kv::Engine;
use plinth_runtime::{Duration, nobody_has_lied, probe, random, sleep};

/// Bytes of the object that says how far an index is built.
const PROGRESS_BYTES: usize = 22 + KEY_BYTES_MAX;
/// Vertices that a transaction enters or removes, where the graph chooses.
const PIECE: usize = 50;
/// Between two attempts of a piece that has conflicted: up to so long.
const DELAY: Duration = Duration::from_millis(10);

impl<O: Objects> GraphTx<'_, O> {
    /// Declares an index on a property of a vertex type. It is built by [`build_some`](GraphTx::build_some), or by
    /// [`Graph::build_index`], also if there are no vertices yet, and looked up when it is complete.
    pub async fn create_index(
        &self,
        vertex_type: &str,
        name: &str,
        property: &str,
        is_unique: bool,
    ) -> Result<()> {
        check_name(name)?;
        let mut schema = self.schema();
        let number = schema.vertex_type(vertex_type)?;
        if schema.index(number, name).is_ok() {
            return Err(Error::taken("index", name));
        }
        let of = &mut schema.vertices[number];
        let property = position(&of.properties, property)?;
        at_most("indexes", of.indexes.len() + 1, INDEXES_MAX)?;
        let near = self.graph.root();
        let tree = BTree::create(self.tx, settings(), near, self.graph.cache()).await?;
        let progress = self.tx.allocate(PROGRESS_BYTES, near).await?;
        let begun = Progress::default().to_object(self.loaded().mark);
        self.tx.write(progress, begun.into()).await?;
        of.indexes.push(Index {
            name: name.to_owned(),
            property,
            is_unique,
            state: State::Building,
            tree: tree.root(),
            progress,
        });
        self.store_schema(&schema).await
    }

    fn index_in(&self, vertex_type: &str, name: &str, states: &[State]) -> Result<(usize, usize)> {
        let loaded = self.loaded();
        let number = loaded.schema.vertex_type(vertex_type)?;
        let i = loaded.schema.index(number, name)?;
        let state = loaded.schema.vertices[number].indexes[i].state;
        match states.contains(&state) {
            true => Ok((number, i)),
            false => Err(Error::NotReady {
                index: name.to_owned(),
            }),
        }
    }

    /// Enters up to `most` vertices into an index that is being built. True when it is complete, and ready from this
    /// transaction on. Errors: `NotUnique` if two vertices have the same value in a unique index, `Property` if a
    /// value is too long; then only [`drop_index`](GraphTx::drop_index) helps, or a change of the vertices.
    pub async fn build_some(&self, vertex_type: &str, name: &str, most: usize) -> Result<bool> {
        let (number, i) = self.index_in(vertex_type, name, &[State::Building, State::Ready])?;
        let loaded = self.loaded();
        let index = &loaded.schema.vertices[number].indexes[i];
        if index.state == State::Ready {
            return Ok(true);
        }
        let progress = Progress::from_object(&self.tx.read(index.progress).await?, loaded.mark);
        let mut progress = progress.ok_or(damaged(
            index.progress,
            "it does not say how far an index is built",
        ))?;
        let ring = loaded.tables[number].ring(self.tx, progress.ring).await?;
        let Some(mut ring) = ring else {
            let mut schema = self.schema();
            schema.vertices[number].indexes[i].state = State::Ready;
            self.store_schema(&schema).await?;
            return Ok(true);
        };
        ring.retain(|(key, _)| {
            progress
                .after
                .as_ref()
                .is_none_or(|after| key[..] > after[..])
        });
        ring.sort();
        let is_whole = ring.len() <= most;
        ring.truncate(most);
        for (_, place) in &ring {
            self.enter(number, i, place).await?;
        }
        match ring.last().filter(|_| !is_whole) {
            Some((key, _)) => progress.after = Some(key.to_vec()),
            None if is_whole => {
                progress = Progress {
                    ring: progress.ring + 1,
                    after: None,
                }
            }
            None => (),
        }
        let bytes = progress.to_object(loaded.mark);
        self.tx.write(index.progress, bytes.into()).await?;
        Ok(false)
    }

    /// Enters a vertex, by its place in the table of its type.
    async fn enter(&self, number: usize, i: usize, place: &Bytes) -> Result<()> {
        let loaded = self.loaded();
        let index = &loaded.schema.vertices[number].indexes[i];
        let at = self.vertex_place(number, place)?;
        let vertex = self.known_vertex(at).await?;
        let row = self.vertex_row(at, &vertex).await?;
        let Some(value) = get(&row, index.property) else {
            return Ok(());
        };
        if index.is_unique {
            self.check_unique(number, i, value, Some(at)).await?;
        }
        let is_new = self.enter_value(number, i, value, at).await?;
        if !is_new {
            probe!("graph_index_has_it_from_a_writer");
        }
        Ok(())
    }

    /// Begins to drop an index: nobody keeps it or looks in it from this transaction on. Its entries are removed by
    /// [`drop_some`](GraphTx::drop_some), or by [`Graph::drop_index`].
    pub async fn drop_index(&self, vertex_type: &str, name: &str) -> Result<()> {
        let (number, i) = self.index_in(vertex_type, name, &[State::Building, State::Ready])?;
        let mut schema = self.schema();
        schema.vertices[number].indexes[i].state = State::Dropping;
        self.store_schema(&schema).await
    }

    /// Removes up to `most` entries of an index that is being dropped. True when it is gone.
    pub async fn drop_some(&self, vertex_type: &str, name: &str, most: usize) -> Result<bool> {
        let (number, i) = self.index_in(vertex_type, name, &[State::Dropping])?;
        let tree = self.loaded().trees[number][i].clone();
        let found = tree.range(self.tx, b"", None, most, false).await?;
        for (key, _) in &found.rows {
            let was_there = tree.remove(self.tx, key).await?;
            assert!(
                was_there || !nobody_has_lied(),
                "entry {key:?} is in index {name:?}, and cannot be removed"
            );
        }
        if found.more {
            return Ok(false);
        }
        tree.destroy(self.tx).await?;
        let mut schema = self.schema();
        let gone = schema.vertices[number].indexes.remove(i);
        self.tx.free(gone.progress).await?;
        self.store_schema(&schema).await?;
        Ok(true)
    }
}

impl Graph {
    /// Builds an index to its end, each piece in a transaction of its own. It may be called again, by anybody, if it
    /// did not come to an end. Errors: those of [`build_some`](GraphTx::build_some).
    pub async fn build_index<E: Engine>(
        &self,
        engine: &E,
        vertex_type: &str,
        name: &str,
    ) -> Result<()> {
        in_pieces(engine, async |tx| {
            self.on(tx)
                .await?
                .build_some(vertex_type, name, PIECE)
                .await
        })
        .await
    }

    /// Drops an index to its end, each piece in a transaction of its own. It may be called again, by anybody, if it
    /// did not come to an end.
    pub async fn drop_index<E: Engine>(
        &self,
        engine: &E,
        vertex_type: &str,
        name: &str,
    ) -> Result<()> {
        in_pieces(engine, async |tx| {
            let graph = self.on(tx).await?;
            match graph.drop_index(vertex_type, name).await {
                Ok(()) => Ok(false),
                Err(Error::NotReady { .. }) => graph.drop_some(vertex_type, name, PIECE).await,
                Err(error) => Err(error),
            }
        })
        .await
    }
}

/// Runs transactions until one is the last.
async fn in_pieces<E: Engine>(
    engine: &E,
    piece: impl AsyncFn(&E::Transaction) -> Result<bool>,
) -> Result<()> {
    loop {
        let tx = engine.begin().await?;
        let error = match piece(&tx).await {
            Ok(is_last) => match engine.commit(tx).await {
                Ok(()) if is_last => return Ok(()),
                Ok(()) => continue,
                Err(abort) => abort.into(),
            },
            Err(error) => error,
        };
        if !error.is_retryable() {
            return Err(error);
        }
        sleep(DELAY.mul_f64(random::unit())).await;
    }
}
