//! Numbers of the whole tree, for monitoring: rows that transactions add to, so that they conflict with nobody.

use super::node::{Lifetime, Node};

/// What there is, or how much of it has come and gone.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Totals {
    pub nodes: i64,
    pub ephemerals: i64,
    /// Of paths and data.
    pub bytes: i64,
}

impl Totals {
    fn of(path: &str, node: Option<&Node>) -> Totals {
        let Some(node) = node else {
            return Totals::default();
        };
        Totals {
            nodes: 1,
            ephemerals: i64::from(matches!(node.lifetime, Lifetime::Ephemeral(_))),
            bytes: (path.len() + node.data.len()) as i64,
        }
    }

    /// Adds the difference that a change of a node makes.
    pub fn add_change(&mut self, path: &str, before: Option<&Node>, after: Option<&Node>) {
        let (before, after) = (Totals::of(path, before), Totals::of(path, after));
        self.nodes += after.nodes - before.nodes;
        self.ephemerals += after.ephemerals - before.ephemerals;
        self.bytes += after.bytes - before.bytes;
    }

    /// The rows, by the last byte of the key, and what each holds or is added.
    pub fn rows(&self) -> [(u8, i64); 3] {
        [
            (b'n', self.nodes),
            (b'e', self.ephemerals),
            (b'b', self.bytes),
        ]
    }

    /// Takes a row. Others are of a newer format.
    pub fn take_row(&mut self, key: &[u8], row: &[u8]) {
        let (Some(of), Some(bytes)) = (key.last(), row.first_chunk::<8>()) else {
            return;
        };
        let value = i64::from_le_bytes(*bytes);
        match of {
            b'n' => self.nodes = value,
            b'e' => self.ephemerals = value,
            b'b' => self.bytes = value,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_give_back_the_totals() {
        let totals = Totals {
            nodes: 7,
            ephemerals: -1,
            bytes: 1 << 40,
        };
        let mut read = Totals::default();
        for (of, value) in totals.rows() {
            read.take_row(&[1, of], &value.to_le_bytes());
        }
        assert_eq!(read, totals);
        read.take_row(b"n", b"short");
        read.take_row(b"", &[0; 8]);
        assert_eq!(read, totals);
    }
}
