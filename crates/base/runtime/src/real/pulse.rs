//! Distinguishes a busy event loop from a dead process. A peer that gets no answer from a loop asks the process past
//! the loop, with a datagram to the port at which the process listens. A separate thread answers how long a turn of
//! the loop has taken.
//!
//! ```text
//!   question   magic 4 │ nonce 8 │ nothing 4
//!   answer     magic 4 │ nonce 8 │ milliseconds of the turn 4      as long as the question, and never taken for one
//! ```
//!
//! A process that is stopped, killed or cut off does not answer, and a loop that waits for events answers 0. If
//! datagrams do not get through, a busy loop and a dead process look alike: both are silent.

use super::watchdog::clock;
use crate::metric::latency::Timed;
use crate::random;
use std::cell::{OnceCell, RefCell};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

const QUESTION: [u8; 4] = *b"PLq1";
const ANSWER: [u8; 4] = *b"PLa1";
const BYTES: usize = 16;
type Datagram = [u8; BYTES];

/// A shorter turn does not count as long.
const LONG_NS: u64 = 50_000_000;
/// How long a long turn counts after its end, because the answer to a ping takes a few turns.
const LATELY_NS: u64 = 1_000_000_000;
/// A thread that must end notices after this time at the latest, if it is not woken before.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
const STACK_BYTES: usize = 64 << 10;

/// The turns of one loop. A turn is everything that runs between two polls of sockets and timers. In nanoseconds of
/// the [`clock`]; 0 means never.
#[derive(Default)]
struct Turns {
    /// When the turn under way began.
    since: AtomicU64,
    /// The last long turn: its end and its duration.
    ended: AtomicU64,
    took: AtomicU64,
}

thread_local! {
    static TURNS: OnceCell<Arc<Turns>> = const { OnceCell::new() };
    static LENGTHS: RefCell<Timed> = RefCell::default();
}

/// How long the turns of this thread's loop took.
pub(crate) fn lengths() -> Timed {
    LENGTHS.with_borrow(Timed::clone)
}

fn of_this_thread() -> Arc<Turns> {
    TURNS.with(|turns| turns.get_or_init(Arc::default).clone())
}

impl Turns {
    /// Duration of a long turn that is in progress or ended recently; zero if there is none.
    fn longest_ns(&self) -> u64 {
        let now = clock();
        let before = match now.saturating_sub(self.ended.load(Relaxed)) < LATELY_NS {
            true => self.took.load(Relaxed),
            false => 0,
        };
        let under_way = match self.since.load(Relaxed) {
            0 => 0,
            since => now.saturating_sub(since),
        };
        let longest = before.max(under_way);
        if longest < LONG_NS { 0 } else { longest }
    }
}

/// The main future of a loop, whose polls are its turns.
pub(super) async fn in_turns<T>(future: impl Future<Output = T>) -> T {
    let turns = of_this_thread();
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        let began = clock();
        turns.since.store(began, Relaxed);
        let output = future.as_mut().poll(context);
        turns.since.store(0, Relaxed);
        let ended = clock();
        // The clock may have been set back under this process.
        let took = ended.saturating_sub(began);
        LENGTHS.with_borrow_mut(|lengths| lengths.add(Duration::from_nanos(took)));
        if took >= LONG_NS {
            turns.took.store(took, Relaxed);
            turns.ended.store(ended, Relaxed);
        }
        output
    })
    .await
}

fn datagram(magic: [u8; 4], nonce: [u8; 8], rest: u32) -> Datagram {
    let mut bytes = [0; BYTES];
    bytes[..4].copy_from_slice(&magic);
    bytes[4..12].copy_from_slice(&nonce);
    bytes[12..].copy_from_slice(&rest.to_le_bytes());
    bytes
}

/// The nonce and the number after it; `None` if the length or the magic is wrong.
fn parse(bytes: &[u8], magic: [u8; 4]) -> Option<([u8; 8], u32)> {
    let bytes: &Datagram = bytes.try_into().ok()?;
    let (nonce, rest) = bytes[4..].split_first_chunk::<8>()?;
    let rest = u32::from_le_bytes(rest.try_into().ok()?);
    (bytes[..4] == magic).then_some((*nonce, rest))
}

/// Answers for this thread's loop until it is dropped.
pub(super) struct Pulse {
    socket: Arc<UdpSocket>,
    is_over: Arc<AtomicBool>,
}

impl Pulse {
    /// Starts the thread, at the address of a listener. If that fails, a busy loop may be taken for dead; nothing else
    /// changes.
    ///
    /// A socket at all addresses of the machine may answer from another one than it was asked at, and nobody takes
    /// such an answer. So the socket is at the IP of `public`, if this machine has it.
    pub fn start(address: SocketAddr, public: Option<SocketAddr>) -> Option<Self> {
        let at_public = public.map(|public| SocketAddr::new(public.ip(), address.port()));
        let at_public = at_public.and_then(|address| Self::try_start(address).ok());
        let started = at_public.map_or_else(|| Self::try_start(address), Ok);
        if let Err(error) = &started {
            super::warn(
                "PulseUnavailable",
                &[("address", &address), ("error", error)],
            );
        }
        started.ok()
    }

    fn try_start(address: SocketAddr) -> io::Result<Self> {
        let socket = Arc::new(UdpSocket::bind(address)?);
        socket.set_read_timeout(Some(LOOK_INTERVAL))?;
        let pulse = Pulse {
            socket,
            is_over: Arc::default(),
        };
        let (socket, is_over) = (pulse.socket.clone(), pulse.is_over.clone());
        let turns = of_this_thread();
        std::thread::Builder::new()
            .name("pulse".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                while !is_over.load(Relaxed) {
                    answer_one(&socket, &turns);
                }
            })?;
        Ok(pulse)
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        // Wakes the thread, so that the port is free at once.
        if let Ok(own) = self.socket.local_addr() {
            let _ = self.socket.send_to(&[], own);
        }
    }
}

/// Waits for a datagram, and answers it if it is a question.
fn answer_one(socket: &UdpSocket, turns: &Turns) {
    let mut bytes = [0; BYTES + 1]; // one byte more, to recognise datagrams that are too long
    match socket.recv_from(&mut bytes) {
        Ok((length, from)) => {
            if let Some((nonce, _)) = parse(&bytes[..length], QUESTION) {
                let milliseconds = turns.longest_ns() / 1_000_000;
                let milliseconds = u32::try_from(milliseconds).unwrap_or(u32::MAX);
                let answer = datagram(ANSWER, nonce, milliseconds);
                let _ = socket.send_to(&answer, from); // lost like any other datagram
            }
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock) => {}
        // An error of an answer that could not be delivered is reported here. Errors of any kind must not keep a
        // processor busy.
        Err(_) => std::thread::sleep(Duration::from_millis(1)),
    }
}

/// Asks for the pulse of the process that listens at `address`, and waits for the answer, which may never come.
pub(crate) async fn pulse(address: SocketAddr) -> io::Result<Duration> {
    let any_address = match address {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = tokio::net::UdpSocket::bind(any_address).await?;
    socket.connect(address).await?; // datagrams from other addresses are dropped
    let nonce = random::u64().to_le_bytes();
    socket.send(&datagram(QUESTION, nonce, 0)).await?;
    let mut bytes = [0; BYTES + 1];
    loop {
        let length = socket.recv(&mut bytes).await?;
        if let Some((of, milliseconds)) = parse(&bytes[..length], ANSWER)
            && of == nonce
        {
            return Ok(Duration::from_millis(milliseconds.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::real::block_on;
    use crate::{net, sleep, timeout};
    use std::thread;

    /// The answer to these bytes.
    fn answer_to(address: SocketAddr, bytes: &[u8]) -> Option<Vec<u8>> {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let wait = Duration::from_millis(200);
        socket.set_read_timeout(Some(wait)).unwrap();
        socket.send_to(bytes, address).unwrap();
        let mut answer = vec![0; 100];
        let length = socket.recv(&mut answer).ok()?;
        answer.truncate(length);
        Some(answer)
    }

    async fn listen() -> (net::Listener, SocketAddr) {
        let listener = net::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    #[test]
    fn a_loop_in_a_long_turn_is_answered_for_and_one_that_waits_is_not_called_busy() {
        block_on(async {
            let (_listener, address) = listen().await;
            assert_eq!(net::pulse(address).await, Some(Duration::ZERO));
            let asking = thread::spawn(move || {
                thread::sleep(Duration::from_millis(400));
                answer_to(address, &datagram(QUESTION, [7; 8], 0))
            });
            let busy = Duration::from_millis(800);
            sleep(Duration::from_millis(1)).await;
            thread::sleep(busy);
            let answer = asking.join().unwrap().expect("it is answered meanwhile");
            let (nonce, milliseconds) = parse(&answer, ANSWER).unwrap();
            assert_eq!(nonce, [7; 8]);
            assert!((300..5000).contains(&milliseconds), "{milliseconds}");
            // After its end the turn is reported for a while, and then forgotten.
            sleep(Duration::from_millis(1)).await;
            assert!(net::pulse(address).await >= Some(busy));
            sleep(Duration::from_nanos(LATELY_NS)).await;
            assert_eq!(net::pulse(address).await, Some(Duration::ZERO));
        });
    }

    #[test]
    fn nothing_but_a_question_is_answered_and_no_answer_is_longer_or_a_question() {
        block_on(async {
            let (_listener, address) = listen().await;
            let question = datagram(QUESTION, [1, 2, 3, 4, 5, 6, 7, 8], 0);
            let answer = answer_to(address, &question).unwrap();
            assert_eq!(answer.len(), question.len());
            assert_eq!(parse(&answer, QUESTION), None);
            let longer = [&question[..], &[0; 2000]].concat();
            let others = [&[][..], &question[..15], &longer, &answer, &[0xff; 16]];
            for other in others {
                assert_eq!(answer_to(address, other), None);
            }
            assert!(answer_to(address, &question).is_some());
        });
    }

    #[test]
    fn a_listener_that_is_gone_has_no_pulse_and_its_port_is_free_soon() {
        block_on(async {
            let (listener, address) = listen().await;
            drop(listener);
            sleep(Duration::from_millis(100)).await;
            assert_eq!(net::pulse(address).await, None);
            let _another = UdpSocket::bind(address).unwrap();
            // A listener works without a pulse if the datagram port is taken.
            let _listener = net::listen(address).await.unwrap();
            let limit = Duration::from_millis(100);
            assert_eq!(timeout(limit, net::pulse(address)).await, None);
        });
    }
}
