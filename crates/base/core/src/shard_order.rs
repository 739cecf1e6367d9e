//! Private mutations: orders of a commit proxy to a storage server, in the server's own stream of the log (pitfall 8).
//!
//! When a transaction changes the team of a shard, its proxy derives an order for every server whose part in the shard
//! has changed. The order comes before the transaction's other mutations at the same version. So the set of ranges
//! that a server holds changes between two mutations, in the order of the log. An order is a set of a key that no
//! client may write:
//!
//! ```text
//! \xff\xff/shard/<begin>  →  ShardOrder
//! ```

use crate::codec::Codec;
use crate::key::KeyRange;
use crate::mutation::{Mutation, MutationKind, MutationRef};
use crate::{record, variants};
use bytes::Bytes;

const SHARD: &[u8] = b"\xff\xff/shard/";

variants! {
    /// What a server must do with a range.
    #[derive(Copy, Eq)]
    pub enum Order {
        /// The server holds the range from now on; the range is empty.
        Hold = 0,
        /// The server copies the range from its holders. From now on the range's mutations come in this stream.
        Fetch = 1,
        /// The server keeps the range that it has fetched; the former holders leave it.
        Keep = 2,
        /// The range belongs to other servers: the server drops it.
        Leave = 3,
    }
}

record! {
    /// The value of an order; the key holds the begin of the range.
    pub struct ShardOrder {
        pub end: Bytes,
        pub order: Order,
    }
}

pub fn mutation(range: &KeyRange, order: Order) -> Mutation {
    let order = ShardOrder {
        end: range.end.clone(),
        order,
    };
    Mutation::set([SHARD, &range.begin].concat(), order.to_bytes())
}

/// The order in a mutation; `None` for an ordinary mutation, `Some(None)` for an order that does not parse.
#[inline]
pub fn parse(mutation: &MutationRef<'_>) -> Option<Option<(KeyRange, Order)>> {
    // This runs for every mutation. The first byte rules out most of them.
    if mutation.first.first() != Some(&0xff) || mutation.kind != MutationKind::Set {
        return None;
    }
    let begin = mutation.first.strip_prefix(SHARD)?;
    let order = ShardOrder::from_bytes(Bytes::copy_from_slice(mutation.second));
    Some(order.map(|order| {
        let range = KeyRange::new(Bytes::copy_from_slice(begin), order.end);
        (range, order.order)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_comes_out_as_it_went_in_and_nothing_else_is_taken_for_one() {
        let range = KeyRange::new(&b""[..], &b"\xff\xff"[..]);
        for order in [Order::Hold, Order::Fetch, Order::Keep, Order::Leave] {
            let mutation = mutation(&range, order);
            assert_eq!(
                parse(&mutation.as_ref()),
                Some(Some((range.clone(), order)))
            );
        }
        assert_eq!(parse(&Mutation::set("a", "b").as_ref()), None);
        let broken = Mutation::set(&b"\xff\xff/shard/a"[..], "b");
        assert_eq!(parse(&broken.as_ref()), Some(None));
    }
}
