//! What hardware would do: the trait behind which its place is kept free.

use crate::address::{Address, Error, Machine};
use crate::local::{Local, Message};
use std::future::Future;

/// One-sided operations on the memory of machines, and messages between them. All backends promise:
///
/// - **Acknowledged is there.** When a write, a swap or a message has returned `Ok`, it is in the memory of the other
///   machine. The other's process need not do anything for that, and its next life finds it (§4.2 waits for no more).
/// - **Order.** Operations of one machine on another happen in the order of their first polls, messages among them.
/// - **Refused is not ordered.** After [`Error::Full`] a later message may be sent, because it is shorter or because
///   there is room again. Who needs the order among several messages has one send under way at a time to a receiver,
///   or puts them into one.
/// - **Once.** Nothing is repeated. When a connection breaks, what was under way fails with [`Error::Unreachable`],
///   and all later operations with [`Error::Closed`] until [`open`](Fabric::open) is called again: nothing overtakes.
///   What was under way has no effect after something asked over the new connection.
/// - **Fences.** After [`configure`](Fabric::configure) has returned, nothing changes here that was asked for in an
///   earlier configuration, or by a machine that is no member. A read has seen nothing that was stored after the
///   other had closed the reader's configuration.
/// - **Words.** Ranges are whole words. Reads and writes are torn between words ([`Memory`](crate::Memory)). The
///   headers and versions of objects detect that (§4.4).
///
/// An operation whose future is dropped may still happen. The own machine needs no `open` and no message.
pub trait Fabric {
    fn local(&self) -> &Local;

    /// Connects to a machine, for the first time or anew. Until then, operations on it fail.
    fn open(&self, machine: Machine) -> impl Future<Output = Result<(), Error>>;

    /// Goes to a configuration with these members: [`Local::configure`], which says whom it may wait for. Connections
    /// to others end, and to those whose memory was removed and made anew.
    fn configure(
        &self,
        number: u64,
        members: &[Machine],
    ) -> impl Future<Output = Result<(), Error>>;

    fn read(&self, at: Address, into: &mut [u8]) -> impl Future<Output = Result<(), Error>>;

    fn write(&self, at: Address, from: &[u8]) -> impl Future<Output = Result<(), Error>>;

    /// Stores `new` if the word is `expected`. Returns what it was.
    fn compare_and_swap(
        &self,
        at: Address,
        expected: u64,
        new: u64,
    ) -> impl Future<Output = Result<u64, Error>>;

    /// Puts a message into the other's ring. Error: `Full` until the other has released earlier ones.
    fn send(&self, to: Machine, message: &[u8]) -> impl Future<Output = Result<(), Error>>;

    /// The next message that has arrived here. Never waits: see [`Local::receive`], and [`Local::arrival`] to wait.
    fn receive(&self) -> Option<Message> {
        self.local().receive()
    }

    /// Frees the message and all before it of the same sender.
    fn release(&self, message: &Message) {
        self.local().release(message);
    }
}
