//! Where everything in a cluster is found: a catalogue, which a well-known object names.
//!
//! The object is the first of its size in region 0. Only the primary of that region makes it, before anything else is
//! allocated there, so that it is the first one; a primary that dies in between leaves no part of it. The catalogue
//! has the tree of keys and values from the beginning.

use plinth_farm_memory::{Abort, Class, Objects, Pointer, Sizes};
use plinth_farm_structures::btree::{BTree, Cache, Settings};
use plinth_farm_structures::catalog::{Catalog, Kind, Named};
use plinth_farm_structures::kv::Engine;
use plinth_farm_structures::{Error, Result, damaged};
use plinth_runtime::{Duration, sleep};

const ROOT_BYTES: usize = 8;
/// The name of the tree of keys and values.
const PAIRS: &str = "kv";
const PAUSE: Duration = Duration::from_millis(20);

/// The well-known place. `None` for sizes that no region has.
fn place(sizes: &Sizes) -> Option<Pointer> {
    let (shape, class) = (sizes.shape().ok()?, Class::of(ROOT_BYTES)?);
    Some(shape.pointer(0, class, 0, 0))
}

async fn find<O: Objects>(tx: &O, at: Pointer, cache: &Cache) -> Result<Option<Catalog>> {
    let Some(bytes) = tx.read_if_there(at).await? else {
        return Ok(None);
    };
    let bits = bytes.first_chunk().copied().map(u64::from_le_bytes);
    let root = bits.and_then(Pointer::from_bits);
    let root = root.ok_or(damaged(at, "it is not the object that names the catalogue"))?;
    Catalog::open(tx, root, cache).await.map(Some)
}

/// Makes it, in a transaction that has not read the place: no transaction gets a place where it has seen nothing.
async fn make_in<O: Objects>(tx: &O, at: Pointer, cache: &Cache) -> Result<Catalog> {
    if tx.allocate(ROOT_BYTES, at).await? != at {
        // Somebody was faster, or is about to give it back.
        return Err(Abort::Conflict.into());
    }
    let catalog = Catalog::create(tx, at, cache).await?;
    let bits = catalog.root().bits().to_le_bytes();
    tx.write(at, bits.to_vec().into()).await?;
    let tree = BTree::create(tx, Settings::default(), at, cache).await?;
    let (kind, root) = (Kind::Tree, tree.root());
    catalog.add(tx, PAIRS, Named { kind, root }).await?;
    Ok(catalog)
}

/// Makes the catalogue if there is none. For the primary of region 0.
pub async fn make<E: Engine>(engine: &E, sizes: &Sizes, cache: &Cache) -> Result<Catalog> {
    let at = place(sizes).ok_or(Error::Invalid("there is no such region"))?;
    loop {
        let tried = async {
            let tx = engine.begin().await?;
            if let Some(found) = find(&tx, at, cache).await? {
                return Ok(found);
            }
            let tx = engine.begin().await?;
            let catalog = make_in(&tx, at, cache).await?;
            engine.commit(tx).await?;
            Ok(catalog)
        };
        match tried.await {
            Err(Error::Abort(abort)) if abort.is_retryable() || abort == Abort::Unknown => {
                sleep(PAUSE).await;
            }
            outcome => return outcome,
        }
    }
}

/// Waits for the catalogue.
pub async fn open<E: Engine>(engine: &E, sizes: &Sizes, cache: &Cache) -> Result<Catalog> {
    let at = place(sizes).ok_or(Error::Invalid("there is no such region"))?;
    loop {
        let tried = async {
            let tx = engine.begin().await?;
            find(&tx, at, cache).await
        };
        match tried.await {
            Ok(Some(catalog)) => return Ok(catalog),
            Ok(None) => (),
            Err(error) if error.is_retryable() => (),
            Err(error) => return Err(error),
        }
        sleep(PAUSE).await;
    }
}

/// The tree of keys and values.
pub async fn pairs<E: Engine>(engine: &E, catalog: &Catalog, cache: &Cache) -> Result<BTree> {
    loop {
        let tried = async {
            let tx = engine.begin().await?;
            match catalog.find(&tx, PAIRS).await? {
                Some(named) => BTree::open(&tx, named.root, cache).await,
                None => Err(Error::Invalid("the catalogue has no keys and values")),
            }
        };
        match tried.await {
            Err(error) if error.is_retryable() => sleep(PAUSE).await,
            outcome => return outcome,
        }
    }
}
