//! Memory for requests that are long, of all connections.
//!
//! A request is read whole before it is understood. Each connection may send one that is as long as requests may be,
//! so a thousand of them would take a thousand times as much. So who begins one waits until there is room for it here.
//! Nobody who has room waits for more of it. Who does not go on sending gives it up if others wait
//! ([`LONG_FRAME_LIMIT`]): his connection ends.

use crate::FRAMES_BYTES_MAX;
use plinth_runtime::sync::{Permits, Watch};
use plinth_runtime::{Duration, Instant, now, probe};
use std::cell::Cell;
use std::rc::Rc;

const SHORT_BYTES: usize = 64 << 10;
/// Who sends a long frame may take so long for it while others wait.
pub const LONG_FRAME_LIMIT: Duration = Duration::from_secs(10);
/// Who sends nothing of it, or reads none of his answers, may do so for so long while others wait.
pub const STALL_LIMIT: Duration = Duration::from_secs(2);

/// A frame that is no longer takes no room here: so much is read at once anyway.
pub fn short_bytes() -> usize {
    SHORT_BYTES.min(FRAMES_BYTES_MAX.get() / 10)
}

/// See the module. Of a gateway.
pub struct Frames {
    taken: Watch<usize>,
    /// Who came first waits first: no long frame waits for ever.
    turns: Permits,
    waiting: Cell<usize>,
}

impl Default for Frames {
    fn default() -> Frames {
        Frames {
            taken: Watch::new(0),
            turns: Permits::new(1),
            waiting: Cell::new(0),
        }
    }
}

/// Counts one who waits.
struct Waits<'a>(&'a Cell<usize>);

impl<'a> Waits<'a> {
    fn new(waiting: &'a Cell<usize>) -> Waits<'a> {
        waiting.set(waiting.get() + 1);
        Waits(waiting)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Frames {
    /// Waits for room for so many bytes. A frame that is longer than all of the room takes all of it.
    pub async fn reserve(self: &Rc<Self>, bytes: usize) -> Room {
        let most = FRAMES_BYTES_MAX.get();
        let bytes = bytes.min(most);
        let has_room = |taken: &usize| taken.saturating_add(bytes) <= most;
        {
            let _waits = Waits::new(&self.waiting);
            let _turn = self.turns.take().await;
            if !self.taken.with(has_room) {
                probe!("keeper_long_frame_waits_for_memory");
            }
            self.taken.wait_until(has_room).await;
        }
        self.taken.update(|taken| *taken += bytes);
        Room {
            frames: self.clone(),
            bytes,
            since: Cell::new(now()),
            heard: Cell::new(now()),
        }
    }

    #[cfg(test)]
    fn taken(&self) -> usize {
        self.taken.get()
    }
}

/// Room that a connection has, until it is dropped.
pub struct Room {
    frames: Rc<Frames>,
    bytes: usize,
    since: Cell<Instant>,
    heard: Cell<Instant>,
}

impl Room {
    /// Gives back what is more than so many bytes.
    pub fn shrink_to(&mut self, bytes: usize) {
        let more = self.bytes.saturating_sub(bytes);
        self.bytes -= more;
        self.give_back(more);
    }

    /// The next frame begins. It may have come with the one before, and then so does its room.
    pub fn renew(&self) {
        self.since.set(now());
        self.hear();
    }

    /// Whoever has the room has gone on.
    pub fn hear(&self) {
        self.heard.set(now());
    }

    /// True if others have waited while whoever has the room was slow.
    pub fn is_wanted(&self) -> bool {
        let is_slow = self.since.get().elapsed() > LONG_FRAME_LIMIT;
        self.frames.waiting.get() > 0 && (is_slow || self.heard.get().elapsed() > STALL_LIMIT)
    }

    fn give_back(&self, bytes: usize) {
        self.frames.taken.update(|taken| {
            assert!(*taken >= bytes, "{bytes} of {taken} bytes are given back");
            *taken -= bytes;
        });
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.give_back(self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::knobs::{Knobs, set_knobs};
    use plinth_runtime::real::block_on;
    use plinth_runtime::sim::{SimConfig, Simulation};
    use plinth_runtime::{sleep, spawn, timeout};

    #[test]
    fn all_long_frames_together_take_no_more_than_there_is_and_the_first_comes_first() {
        let mut knobs = Knobs::default();
        knobs
            .set("keeper_frames_bytes_max", "1000")
            .expect("a knob");
        set_knobs(knobs);
        block_on(async {
            let frames = Rc::new(Frames::default());
            let (first, mut second) = (frames.reserve(600).await, frames.reserve(400).await);
            let tick = Duration::from_millis(20);
            let mut large = Box::pin(frames.reserve(5000));
            assert!(timeout(tick, large.as_mut()).await.is_none());
            let mut small = Box::pin(frames.reserve(10));
            assert!(timeout(tick, small.as_mut()).await.is_none());
            second.shrink_to(100);
            assert_eq!(frames.taken(), 700);
            assert!(
                timeout(tick, small.as_mut()).await.is_none(),
                "the large one was first"
            );
            drop((first, second));
            let large = large.await;
            assert_eq!(frames.taken(), 1000, "all that there is");
            assert!(!large.is_wanted(), "it has just begun");
            drop(large);
            assert_eq!(small.await.bytes, 10);
            // Who waits no more is not waited for.
            let whole = frames.reserve(1000).await;
            assert!(timeout(tick, frames.reserve(1)).await.is_none());
            assert_eq!(frames.waiting.get(), 0);
            sleep(tick).await;
            drop(whole);
            assert_eq!(frames.taken(), 0);
        });
    }

    #[test]
    fn who_goes_on_keeps_his_room_and_who_stalls_gives_it_up_if_others_wait() {
        let simulation = Simulation::new(1, SimConfig::default());
        simulation.run(async {
            let frames = Rc::new(Frames::default());
            let room = frames.reserve(usize::MAX).await;
            sleep(2 * LONG_FRAME_LIMIT).await;
            assert!(!room.is_wanted(), "nobody waits");
            let other = frames.clone();
            let _waiting = spawn("waits", async move { other.reserve(1).await });
            for _ in 0..30 {
                room.renew();
                sleep(STALL_LIMIT / 2).await;
                assert!(!room.is_wanted(), "each frame takes a second");
            }
            sleep(STALL_LIMIT).await;
            assert!(room.is_wanted());
        });
    }
}
