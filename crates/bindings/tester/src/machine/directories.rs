//! Instructions for directories and subspaces.

use super::{Failure, Machine, On, Outcome, senseless};
use crate::program::{bytes, pack};
use bytes::Bytes;
use plinth_client::{Directory, DirectoryLayer, Subspace, Transaction};
use plinth_core::tuple::Element;
use plinth_core::{Error, Result};

/// An entry of the list of directories.
#[derive(Clone)]
enum Entry {
    Layer(DirectoryLayer),
    Directory(Box<Directory>),
    Subspace(Subspace),
    Nothing,
}

impl Entry {
    fn subspace(&self) -> Result<Subspace> {
        match self {
            Entry::Subspace(subspace) => Ok(subspace.clone()),
            Entry::Directory(directory) => directory.subspace().cloned(),
            _ => Err(Error::client_invalid_operation),
        }
    }
}

pub(super) struct Directories {
    list: Vec<Entry>,
    index: usize,
    error_index: usize,
}

impl Default for Directories {
    fn default() -> Self {
        Directories {
            list: vec![Entry::Layer(DirectoryLayer::default())],
            index: 0,
            error_index: 0,
        }
    }
}

/// Instructions that append to the list.
const APPENDING: [&str; 8] = [
    "CREATE_SUBSPACE",
    "CREATE_LAYER",
    "CREATE_OR_OPEN",
    "CREATE",
    "OPEN",
    "MOVE",
    "MOVE_TO",
    "OPEN_SUBSPACE",
];

fn names(elements: Vec<Element>) -> Outcome<Vec<String>> {
    let name = |element| match element {
        Element::Text(name) => Ok(name),
        other => senseless(format!("{other:?} in a path")),
    };
    elements.into_iter().map(name).collect()
}

/// Calls a function that layers and directories both have.
macro_rules! on_either {
    ($entry:expr, $directory:ident => $call:expr) => {
        match $entry {
            Entry::Layer($directory) => $call,
            Entry::Directory($directory) => $call,
            _ => Err(Error::client_invalid_operation),
        }
    };
}

impl Machine {
    pub(super) async fn directory_operation(&mut self, name: &str, on: On) -> Outcome<()> {
        match self.try_directory_operation(name, on).await {
            Err(Failure::Api(_)) => {
                self.push_text("DIRECTORY_ERROR");
                if APPENDING.contains(&name) {
                    self.directories.list.push(Entry::Nothing);
                }
                Ok(())
            }
            other => other,
        }
    }

    fn entry(&self) -> Entry {
        self.directories.list[self.directories.index].clone()
    }

    fn subspace(&self) -> Result<Subspace> {
        self.entry().subspace()
    }

    fn append(&mut self, directory: Directory) {
        self.directories
            .list
            .push(Entry::Directory(Box::new(directory)));
    }

    async fn pop_path(&mut self) -> Outcome<Vec<String>> {
        names(self.pop_many().await?)
    }

    async fn pop_maybe_path(&mut self) -> Outcome<Vec<String>> {
        match self.pop_bool().await? {
            true => self.pop_path().await,
            false => Ok(Vec::new()),
        }
    }

    async fn pop_optional(&mut self) -> Outcome<Option<Bytes>> {
        match self.pop().await? {
            Element::Null => Ok(None),
            Element::Bytes(bytes) => Ok(Some(bytes)),
            other => senseless(format!("{other:?} where bytes or nothing should be")),
        }
    }

    async fn try_directory_operation(&mut self, name: &str, on: On) -> Outcome<()> {
        match name {
            "CHANGE" => {
                let index = self.pop_int().await? as usize;
                self.directories.index = match self.directories.list.get(index) {
                    Some(Entry::Nothing) => self.directories.error_index,
                    Some(_) => index,
                    None => return senseless("there is no such directory"),
                };
            }
            "SET_ERROR_INDEX" => self.directories.error_index = self.pop_int().await? as usize,
            "CREATE_SUBSPACE" => {
                let path = self.pop_many().await?;
                let subspace = Subspace::new(self.pop_bytes().await?).sub(&path)?;
                self.directories.list.push(Entry::Subspace(subspace));
            }
            "CREATE_LAYER" => self.create_layer().await?,
            "CREATE_OR_OPEN" | "CREATE" | "OPEN" => self.obtain(name, on).await?,
            "MOVE" => {
                let (old, new) = (self.pop_path().await?, self.pop_path().await?);
                let entry = self.entry();
                let act = async |tr: &Transaction| on_either!(&entry, d => d.move_within(tr, &old, &new).await);
                let moved = self.with(on, act).await?;
                self.append(moved);
            }
            "MOVE_TO" => {
                let path = self.pop_path().await?;
                let Entry::Directory(directory) = self.entry() else {
                    return Err(Error::cannot_modify_root_directory.into());
                };
                let act = async |tr: &Transaction| directory.move_to(tr, &path).await;
                let moved = self.with(on, act).await?;
                self.append(moved);
            }
            "REMOVE" | "REMOVE_IF_EXISTS" => {
                let (path, entry) = (self.pop_maybe_path().await?, self.entry());
                let must_exist = name == "REMOVE";
                let act = async |tr: &Transaction| {
                    let removed = on_either!(&entry, d => d.remove_if_exists(tr, &path).await)?;
                    match removed || !must_exist {
                        true => Ok(()),
                        false => Err(Error::directory_does_not_exist),
                    }
                };
                self.with(on, act).await?;
            }
            "LIST" => {
                let path = self.pop_maybe_path().await?;
                let found = self.list(on, &path).await?;
                self.push(bytes(found));
            }
            "EXISTS" => {
                let path = self.pop_maybe_path().await?;
                let exists = self.exists(on, &path).await?;
                self.push(Element::Int(i64::from(exists)));
            }
            _ => self.subspace_operation(name, on).await?,
        }
        Ok(())
    }

    async fn create_layer(&mut self) -> Outcome<()> {
        let (nodes, contents) = (self.pop_int().await?, self.pop_int().await?);
        let manual = self.pop_bool().await?;
        let at = |index: i64| {
            let entry = self.directories.list.get(index as usize)?;
            entry.subspace().ok()
        };
        let entry = match (at(nodes), at(contents)) {
            (Some(nodes), Some(contents)) => {
                Entry::Layer(DirectoryLayer::new(nodes, contents, manual)?)
            }
            _ => Entry::Nothing,
        };
        self.directories.list.push(entry);
        Ok(())
    }

    async fn obtain(&mut self, name: &str, on: On) -> Outcome<()> {
        let path = self.pop_path().await?;
        let layer = self.pop_optional().await?.unwrap_or_default();
        let prefix = match name {
            "CREATE" => self.pop_optional().await?,
            _ => None,
        };
        let entry = self.entry();
        let act = async |tr: &Transaction| match name {
            "CREATE_OR_OPEN" => on_either!(&entry, d => d.create_or_open(tr, &path, &layer).await),
            "OPEN" => on_either!(&entry, d => d.open(tr, &path, &layer).await),
            _ => on_either!(&entry, d => d.create(tr, &path, &layer, prefix.clone()).await),
        };
        let directory = self.with(on, act).await?;
        self.append(directory);
        Ok(())
    }

    async fn list(&mut self, on: On, path: &[String]) -> Outcome<Bytes> {
        let entry = self.entry();
        let act = async |tr: &Transaction| on_either!(&entry, d => d.list(tr, path).await);
        let found = self.with(on, act).await?;
        Ok(pack(
            &found.into_iter().map(Element::Text).collect::<Vec<_>>(),
        ))
    }

    async fn exists(&mut self, on: On, path: &[String]) -> Outcome<bool> {
        let entry = self.entry();
        let act = async |tr: &Transaction| on_either!(&entry, d => d.exists(tr, path).await);
        self.with(on, act).await
    }

    async fn subspace_operation(&mut self, name: &str, on: On) -> Outcome<()> {
        match name {
            "PACK_KEY" => {
                let key = self.pop_many().await?;
                let packed = self.subspace()?.pack(&key)?;
                self.push(Element::Bytes(packed));
            }
            "UNPACK_KEY" => {
                let key = self.pop_bytes().await?;
                for element in self.subspace()?.unpack(&key)? {
                    self.push(element);
                }
            }
            "RANGE" => {
                let elements = self.pop_many().await?;
                let range = self.subspace()?.range(&elements)?;
                self.push(Element::Bytes(range.begin));
                self.push(Element::Bytes(range.end));
            }
            "CONTAINS" => {
                let key = self.pop_bytes().await?;
                let contains = self.subspace()?.contains(&key);
                self.push(Element::Int(i64::from(contains)));
            }
            "OPEN_SUBSPACE" => {
                let path = self.pop_many().await?;
                let subspace = self.subspace()?.sub(&path)?;
                self.directories.list.push(Entry::Subspace(subspace));
            }
            "STRIP_PREFIX" => {
                let text = self.pop_bytes().await?;
                let prefix = self.subspace()?.key().clone();
                let rest = text
                    .strip_prefix(&prefix[..])
                    .ok_or(Error::key_not_in_subspace)?;
                self.push(bytes(rest));
            }
            "LOG_SUBSPACE" => {
                let raw = self.pop_bytes().await?;
                let place = pack(&[Element::Int(self.directories.index as i64)]);
                let (key, value) = ([&raw[..], &place].concat(), self.subspace()?.key().clone());
                let write = async |tr: &Transaction| {
                    tr.set(&key, &value);
                    Ok(())
                };
                self.with(on, write).await?;
            }
            "LOG_DIRECTORY" => self.log_directory(on).await?,
            _ => return senseless("there is no such instruction"),
        }
        Ok(())
    }

    async fn log_directory(&mut self, on: On) -> Outcome<()> {
        let index = Element::Int(self.directories.index as i64);
        let log = Subspace::new(self.pop_bytes().await?).sub(&[index])?;
        let exists = self.exists(on, &[]).await?;
        let children = match exists {
            true => self.list(on, &[]).await?,
            false => Bytes::new(),
        };
        let (path, layer) = match self.entry() {
            Entry::Directory(directory) => (directory.path().to_vec(), directory.layer().clone()),
            _ => (Vec::new(), Bytes::new()),
        };
        let path: Vec<Element> = path.into_iter().map(Element::Text).collect();
        let rows = [
            ("path", pack(&path)),
            ("layer", pack(&[Element::Bytes(layer)])),
            ("exists", pack(&[Element::Int(i64::from(exists))])),
            ("children", children),
        ];
        let write = async |tr: &Transaction| {
            for (what, value) in &rows {
                tr.set(log.pack(&[Element::Text((*what).into())])?, value);
            }
            Ok(())
        };
        self.with(on, write).await
    }
}
