//! Private mutations: what a commit proxy tells a storage server in the server's own stream of the log (pitfall 8).
//!
//! When a transaction changes who holds a shard, its proxy derives an order for every server whose part in it has
//! changed, and puts it before the transaction's other mutations at the same version. The server's idea of what it
//! holds so changes between two mutations, never beside them. An order is a set of a key that no client may write:
//!
//! ```text
//! \xff\xff/shard/<begin>  →  ShardOrder
//! ```

use crate::codec::Codec;
use crate::key::KeyRange;
use crate::mutation::{Mutation, MutationKind, MutationRef};
use crate::record;
use bytes::{BufMut, Bytes, BytesMut};

const SHARD: &[u8] = b"\xff\xff/shard/";

/// What a server is to do about a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Order {
    /// It is the server's from now on, and there is nothing in it yet.
    Hold = 0,
    /// Copy what is there from those who hold it; from now on its mutations come in this stream.
    Fetch = 1,
    /// It was fetched, and others no longer hold it.
    Keep = 2,
    /// It belongs to others: forget it.
    Leave = 3,
}

impl Codec for Order {
    fn put(&self, out: &mut BytesMut) {
        out.put_u8(*self as u8);
    }
    fn take(input: &mut Bytes) -> Option<Self> {
        Some(match u8::take(input)? {
            0 => Order::Hold,
            1 => Order::Fetch,
            2 => Order::Keep,
            3 => Order::Leave,
            _ => return None,
        })
    }
}

record! {
    /// What the key does not say.
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

/// The order in it; `None` if it is an ordinary mutation. An order that does not parse is one of nobody's.
#[inline]
pub fn parse(mutation: &MutationRef<'_>) -> Option<Option<(KeyRange, Order)>> {
    // Every mutation comes by here: most are told apart by their first byte.
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
