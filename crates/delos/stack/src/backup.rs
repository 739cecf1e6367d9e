//! A service outside of the service: a copy of its rows, and the log from there on, in a directory or an object store
//! (§4.2 D).
//!
//! ```text
//!   service                               whose backup this is, and of which kind
//!   rows-<session>-<pos>-<replica>-<n>    a page of the rows at one position
//!   segment-<session>-<first>             entries that follow each other
//!   manifest-<session>-<next>             all of the session up to `next` is there; the newest one counts
//! ```
//! A session begins where an operator has begun the backup, or where it has begun anew after a gap. Its manifest is
//! written when the copy of the rows is complete: so the service can be restored to any position from the copy's on.
//! Everything has a checksum, the rows have one together, and the manifest has one over all segments.

pub mod objects;
pub mod restore;

use bytes::Bytes;
use objects::{MANIFEST, Manifest, Origin, SERVICE, Segment, position_of, sum_of};
use plinth_core::Uid;
use plinth_engine::LocalBoxFuture;
use plinth_runtime::{Boxed, Duration, disk, timeout};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A line for an operator.
pub type Outcome<T = ()> = Result<T, String>;

/// What a place does.
pub type Doing<'a, T = ()> = LocalBoxFuture<'a, Outcome<T>>;

/// Where a backup is. Objects are small: each is read and written at once. Errors are lines that name the place.
pub trait Place {
    /// Writes an object, durably and whole, in the place of one that is there.
    ///
    /// # Errors
    /// It may be written all the same.
    fn put<'a>(&'a self, name: &'a str, content: Bytes) -> Doing<'a>;

    /// # Errors
    /// The place cannot be read.
    fn get<'a>(&'a self, name: &'a str) -> Doing<'a, Option<Bytes>>;

    /// The names of all objects that begin so.
    ///
    /// # Errors
    /// The place cannot be read.
    fn list<'a>(&'a self, prefix: &'a str) -> Doing<'a, Vec<String>>;

    /// # Errors
    /// It may be there still.
    fn remove<'a>(&'a self, name: &'a str) -> Doing<'a>;

    /// For people.
    fn name(&self) -> String;
}

/// A place that says within a while that it gives no answer: a disk behind a network may hang for ever.
pub struct Patient {
    pub place: Rc<dyn Place>,
    pub limit: Duration,
}

impl Patient {
    fn within<'a, T: 'a>(&'a self, doing: Doing<'a, T>) -> Doing<'a, T> {
        Box::pin(async move {
            let done = timeout(self.limit, doing).await;
            done.unwrap_or_else(|| {
                let (name, seconds) = (self.place.name(), self.limit.as_secs());
                Err(format!("backup {name}: no answer within {seconds} s"))
            })
        })
    }
}

impl Place for Patient {
    fn put<'a>(&'a self, name: &'a str, content: Bytes) -> Doing<'a> {
        self.within(self.place.put(name, content))
    }

    fn get<'a>(&'a self, name: &'a str) -> Doing<'a, Option<Bytes>> {
        self.within(self.place.get(name))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Doing<'a, Vec<String>> {
        self.within(self.place.list(prefix))
    }

    fn remove<'a>(&'a self, name: &'a str) -> Doing<'a> {
        self.within(self.place.remove(name))
    }

    fn name(&self) -> String {
        self.place.name()
    }
}

/// Opens a place by what operators call it. Nothing is read or written yet.
///
/// # Errors
/// This program has no such places.
pub type OpenPlace = fn(&str) -> Outcome<Rc<dyn Place>>;

/// What a replica has to know for backups of its service.
#[derive(Clone)]
pub struct Backups {
    pub origin: Origin,
    pub open: OpenPlace,
}

/// Longer names of places are refused.
pub const PLACE_BYTES_MAX: usize = 1000;

/// Opens directories only, by their absolute paths.
///
/// # Errors
/// It is something else.
pub fn directories(place: &str) -> Outcome<Rc<dyn Place>> {
    let path = place.strip_prefix("file://").unwrap_or(place);
    match Path::new(path).is_absolute() {
        true => Ok(Rc::new(Directory(path.into()))),
        false => Err(format!(
            "backup {place}: expected the absolute path of a directory that all replicas reach"
        )),
    }
}

/// A backup in a directory, an object a file.
pub struct Directory(pub PathBuf);

impl Directory {
    fn explain(&self, name: &str, error: std::io::Error) -> String {
        format!("backup {}: {error}", self.0.join(name).display())
    }
}

impl Place for Directory {
    fn put<'a>(&'a self, name: &'a str, content: Bytes) -> Doing<'a> {
        Box::pin(async move {
            let made = disk::create_dir_all(&self.0).await;
            made.map_err(|error| self.explain("", error))?;
            let written = disk::write_file_durably(&self.0.join(name), content).await;
            written.map(drop).map_err(|error| self.explain(name, error))
        })
    }

    fn get<'a>(&'a self, name: &'a str) -> Doing<'a, Option<Bytes>> {
        Box::pin(async move {
            let path = self.0.join(name);
            let is_there = disk::exists(&path).await;
            if !is_there.map_err(|error| self.explain(name, error))? {
                return Ok(None);
            }
            let read = disk::read_file(&path).await;
            read.map(Some).map_err(|error| self.explain(name, error))
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Doing<'a, Vec<String>> {
        Box::pin(async move {
            let is_there = disk::exists(&self.0).await;
            if !is_there.map_err(|error| self.explain("", error))? {
                return Ok(Vec::new());
            }
            let listed = disk::list_dir(&self.0).await;
            let mut names = listed.map_err(|error| self.explain("", error))?;
            // A file that is being written, or was when its writer died, has another ending.
            names.retain(|name| name.starts_with(prefix) && !name.contains('.'));
            Ok(names)
        })
    }

    fn remove<'a>(&'a self, name: &'a str) -> Doing<'a> {
        Box::pin(async move {
            let removed = disk::remove(&self.0.join(name)).await;
            removed.map_err(|error| self.explain(name, error))
        })
    }

    fn name(&self) -> String {
        self.0.display().to_string()
    }
}

/// Makes the place this service's. True if it was empty; false if it is this service's already.
///
/// # Errors
/// It is another service's, or cannot be used.
pub fn claim<'a>(to: &'a dyn Place, origin: &'a Origin) -> Boxed<'a, Outcome<bool>> {
    Box::pin(async move {
        let Some(object) = to.get(SERVICE).await? else {
            to.put(SERVICE, origin.encode()).await?;
            return Ok(true);
        };
        let found = Origin::decode(object);
        let found = found.map_err(|why| format!("backup {}: {SERVICE} {why}", to.name()))?;
        match found.log == origin.log {
            true => Ok(false),
            false => Err(format!(
                "backup {}: the backup of another service, {:?}, is there: choose another place",
                to.name(),
                found.service
            )),
        }
    })
}

/// Writes a segment; its checksum.
///
/// # Errors
/// A line that names the place.
pub fn put_segment<'a>(
    to: &'a dyn Place,
    log: Uid,
    session: u64,
    segment: &'a Segment,
) -> Boxed<'a, Outcome<u32>> {
    Box::pin(async move {
        let content = segment.encode(log);
        let sum = sum_of(&content);
        to.put(&Segment::name(session, segment.first), content)
            .await?;
        Ok(sum)
    })
}

/// Writes a manifest, and removes older ones of its session.
///
/// # Errors
/// A line that names the place.
pub fn put_manifest<'a>(to: &'a dyn Place, log: Uid, manifest: &'a Manifest) -> Boxed<'a, Outcome> {
    Box::pin(async move {
        to.put(&manifest.name(), manifest.encode(log)).await?;
        let own = format!("{MANIFEST}{:020}-", manifest.session);
        for name in to.list(&own).await? {
            let next = name.strip_prefix(&own).and_then(position_of);
            if next.is_some_and(|next| next < manifest.next) {
                to.remove(&name).await?;
            }
        }
        Ok(())
    })
}
