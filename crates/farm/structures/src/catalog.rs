//! Where the structures of a cluster are found: names, and what lies under each.

use crate::btree::{BTree, Cache, Settings};
use crate::census::Census;
use crate::error::{Error, Result, damaged};
use crate::page::{take, take_pointer};
use bytes::Bytes;
use plinth_farm_memory::{Objects, Pointer};

/// Most bytes of a name.
pub const NAME_BYTES_MAX: usize = 256;

/// What lies under a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A [`BTree`](crate::btree::BTree).
    Tree,
    /// A [`HashTable`](crate::hash::HashTable).
    Table,
    /// An object of an application.
    Object,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Kind::Tree => 1,
            Kind::Table => 2,
            Kind::Object => 3,
        }
    }

    fn from_code(code: u8) -> Option<Kind> {
        [Kind::Tree, Kind::Table, Kind::Object]
            .into_iter()
            .find(|kind| kind.code() == code)
    }
}

/// An entry: what it is, and its root object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Named {
    pub kind: Kind,
    pub root: Pointer,
}

impl Named {
    fn pack(self) -> [u8; 9] {
        let mut packed = [self.kind.code(); 9];
        packed[1..].copy_from_slice(&self.root.bits().to_le_bytes());
        packed
    }

    fn unpack(bytes: &[u8]) -> Option<Named> {
        let ([code], rest) = take::<1>(bytes)?;
        let (root, rest) = take_pointer(rest)?;
        let kind = Kind::from_code(code)?;
        rest.is_empty().then_some(Named { kind, root })
    }
}

/// The catalogue of a cluster. It is made once, in the cluster's first transaction; whoever keeps its root object's
/// place finds everything else by name.
#[derive(Clone)]
pub struct Catalog(BTree);

impl Catalog {
    pub async fn create<O: Objects>(tx: &O, near: Pointer, cache: &Cache) -> Result<Catalog> {
        let settings = Settings {
            key_bytes_max: NAME_BYTES_MAX,
            ..Settings::default()
        };
        Ok(Catalog(BTree::create(tx, settings, near, cache).await?))
    }

    pub async fn open<O: Objects>(tx: &O, root: Pointer, cache: &Cache) -> Result<Catalog> {
        Ok(Catalog(BTree::open(tx, root, cache).await?))
    }

    /// The root object, which stays where it is.
    pub fn root(&self) -> Pointer {
        self.0.root()
    }

    /// Error: `NameTaken`, and nothing is changed.
    pub async fn add<O: Objects>(&self, tx: &O, name: &str, named: Named) -> Result<()> {
        if self.0.insert(tx, name.as_bytes(), &named.pack()).await? {
            Ok(())
        } else {
            Err(Error::NameTaken)
        }
    }

    pub async fn find<O: Objects>(&self, tx: &O, name: &str) -> Result<Option<Named>> {
        match self.0.get(tx, name.as_bytes()).await? {
            Some(packed) => self.unpack(&packed).map(Some),
            None => Ok(None),
        }
    }

    fn unpack(&self, packed: &[u8]) -> Result<Named> {
        Named::unpack(packed).ok_or(damaged(
            self.root(),
            "an entry of the catalogue cannot be read",
        ))
    }

    /// Forgets a name. What lies under it stays. True if the name was there.
    pub async fn remove<O: Objects>(&self, tx: &O, name: &str) -> Result<bool> {
        self.0.remove(tx, name.as_bytes()).await
    }

    /// All entries by name.
    pub async fn list<O: Objects>(&self, tx: &O) -> Result<Vec<(String, Named)>> {
        let rows = self.0.range(tx, b"", None, usize::MAX, false).await?.rows;
        let entry = |(name, packed): (Bytes, Bytes)| {
            let name = String::from_utf8_lossy(&name).into_owned();
            Ok((name, self.unpack(&packed)?))
        };
        rows.into_iter().map(entry).collect()
    }

    /// Walks over the whole catalogue, as [`BTree::check`] does.
    pub async fn check<O: Objects>(&self, tx: &O) -> Result<Census> {
        self.list(tx).await?;
        self.0.check(tx).await
    }
}
