//! Messages between processes, in frames on sockets: `length u32 | from u128 | to u128 | message`. What cannot be sent
//! is lost.

use super::oracle::World;
use crate::{MemberId, Message};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use plinth_core::codec::Codec;
use plinth_core::id::Uid;
use plinth_runtime::sync::{QueueReceiver, QueueSender, queue};
use plinth_runtime::{TaskGroup, net, random};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;

const HEAD_BYTES: usize = 4 + 16 + 16;
const REPEATED_PART: f64 = 0.02;
const WAITING_MAX: usize = 100;

pub struct Post {
    world: Rc<World>,
    own: MemberId,
    group: TaskGroup,
    ways: RefCell<BTreeMap<SocketAddr, QueueSender<Bytes>>>,
}

impl Post {
    pub fn new(world: Rc<World>, own: MemberId, group: TaskGroup) -> Post {
        Post {
            world,
            own,
            group,
            ways: RefCell::default(),
        }
    }

    pub fn send(&self, to: MemberId, message: &Message) {
        let Some(address) = self.world.address(to) else {
            return;
        };
        let message = message.to_bytes();
        let mut frame = BytesMut::with_capacity(HEAD_BYTES + message.len());
        frame.put_u32(message.len() as u32);
        frame.put_u128(self.own.0);
        frame.put_u128(to.0);
        frame.put_slice(&message);
        let frame = frame.freeze();
        let copies = 1 + u64::from(random::chance(REPEATED_PART));
        for _ in 0..copies {
            if !random::chance(self.world.loss.get()) {
                self.enqueue(address, frame.clone());
            }
        }
    }

    fn enqueue(&self, address: SocketAddr, frame: Bytes) {
        let mut ways = self.ways.borrow_mut();
        let way = ways.entry(address).or_insert_with(|| {
            let (sender, receiver) = queue();
            self.group.spawn("way", carry(address, receiver));
            sender
        });
        if way.len() < WAITING_MAX {
            let _ = way.send(frame);
        }
    }
}

async fn carry(to: SocketAddr, mut frames: QueueReceiver<Bytes>) {
    while let Some(first) = frames.recv().await {
        let Ok((_reader, mut writer)) = net::connect(to).await else {
            continue;
        };
        let mut next = Some(first);
        while let Some(frame) = next {
            if writer.write_all(frame).await.is_err() {
                break;
            }
            next = frames.recv().await;
        }
    }
}

/// Reads messages for `own` from a connection until it ends.
pub async fn receive(
    mut reader: net::Reader,
    own: MemberId,
    mut take: impl FnMut(MemberId, Message),
) {
    let mut buffer = BytesMut::new();
    while reader.read(&mut buffer).await.is_ok_and(|read| read > 0) {
        while buffer.len() >= HEAD_BYTES {
            let len = buffer[..4].try_into().map(u32::from_be_bytes);
            let len = len.expect("four bytes") as usize;
            if buffer.len() < HEAD_BYTES + len {
                break;
            }
            buffer.advance(4);
            let (from, to) = (Uid(buffer.get_u128()), Uid(buffer.get_u128()));
            let message = Message::from_bytes(buffer.split_to(len).freeze());
            if to == own {
                take(from, message.expect("a message"));
            }
        }
    }
}
