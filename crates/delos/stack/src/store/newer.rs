//! Changes that the engine does not have yet, in the order of a read.

use bytes::Bytes;
use std::iter::Peekable;

/// A changed row; `None` removes it.
pub type Change<'a> = (&'a Bytes, &'a Option<Bytes>);
pub type Source<'a> = Box<dyn Iterator<Item = Change<'a>> + 'a>;

/// Changes of several sources, each in the order of the read. Those of the first source hide those of later ones.
pub struct Newer<'a> {
    sources: Vec<Peekable<Source<'a>>>,
    reverse: bool,
}

/// True if a read comes to `a` before it comes to `b`.
pub fn is_before(a: &[u8], b: &[u8], reverse: bool) -> bool {
    match reverse {
        false => a < b,
        true => a > b,
    }
}

impl<'a> Newer<'a> {
    pub fn new(sources: impl Iterator<Item = Source<'a>>, reverse: bool) -> Self {
        Newer {
            sources: sources.map(Iterator::peekable).collect(),
            reverse,
        }
    }

    /// The next change, if its key is as wanted.
    pub fn next_if(&mut self, is_wanted: impl Fn(&[u8]) -> bool) -> Option<Change<'a>> {
        let keys = self.sources.iter_mut();
        let keys = keys.filter_map(|source| source.peek().map(|(key, _)| *key));
        let first = match self.reverse {
            false => keys.min(),
            true => keys.max(),
        };
        let first = first.filter(|key| is_wanted(key))?;
        let mut found = None;
        for source in &mut self.sources {
            if let Some(change) = source.next_if(|(key, _)| *key == first) {
                found.get_or_insert(change);
            }
        }
        found
    }
}
