//! The catalogue.

use crate::btree::{self, BTree, Cache};
use crate::catalog::{Catalog, Kind, Named};
use crate::hash::{self, HashTable};
use crate::testing::{Store, run};
use crate::{Error, Result};
use plinth_farm_memory::{Objects, Pointer};

#[test]
fn structures_are_found_by_name() {
    let store = Store::new(1);
    let cache = Cache::new(100_000);
    let made = store.run(async |tx| {
        let catalog = Catalog::create(tx, Pointer::NULL, &cache).await?;
        let tree = BTree::create(tx, btree::Settings::default(), catalog.root(), &cache).await?;
        let root = tree.root();
        let kind = Kind::Tree;
        catalog.add(tx, "orders", Named { kind, root }).await?;
        let table = HashTable::create(tx, hash::Settings::default(), catalog.root()).await?;
        table.set(tx, b"apples", b"3").await?;
        let root = table.root();
        let kind = Kind::Table;
        catalog.add(tx, "stock", Named { kind, root }).await?;
        Ok(catalog.root())
    });
    let root = run(made).expect("a catalogue");
    let used: Result<()> = run(store.run(async |tx| {
        let catalog = Catalog::open(tx, root, &cache).await?;
        let named = catalog.find(tx, "stock").await?.expect("it is there");
        assert_eq!(named.kind, Kind::Table);
        let table = HashTable::open(tx, named.root).await?;
        assert_eq!(table.get(tx, b"apples").await?.as_deref(), Some(&b"3"[..]));
        let again = catalog.add(tx, "orders", named).await;
        assert_eq!(again, Err(Error::NameTaken));
        assert_eq!(catalog.find(tx, "nothing").await?, None);
        let names = catalog.list(tx).await?;
        assert_eq!(names.len(), 2);
        assert_eq!(names[0].0, "orders");
        assert!(catalog.remove(tx, "orders").await?);
        assert!(!catalog.remove(tx, "orders").await?);
        assert_eq!(catalog.check(tx).await?.entries, 1);
        // A place that is no catalogue.
        let wrong = Catalog::open(tx, named.root, &cache).await;
        assert!(matches!(wrong.err(), Some(Error::Damaged { .. })));
        let gone = tx.allocate(100, Pointer::NULL).await?;
        tx.free(gone).await?;
        assert!(Catalog::open(tx, gone, &cache).await.is_err());
        Ok(())
    }));
    assert_eq!(used, Ok(()));
}
