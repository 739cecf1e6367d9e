//! Compares this machine's clock with its second one at every reading. The bounds of clocks are about their rates: a
//! clock that jumps breaks them at once, and the master's next answer would show it too late, when timestamps of
//! another time are out. Both clocks count the same ticks, so their difference is constant.
//!
//! ```text
//!   second clock   ── before ──────────────── after ──▶      clock - after  ≤  difference  ≤  clock - before
//!   clock          ─────────── reading ───────────────▶
//! ```
//! A thread may rest between two readings. So a reading that seems wrong is proved wrong by a third one: whatever the
//! rests, the range above holds the difference.
//!
//! Found: a jump of either clock, a clock that runs too fast or too slow, time that the machine was suspended. Not
//! found: what happens to both clocks alike, such as the drift of their oscillator; the bounds allow for that.

use crate::interval::Bounds;
use plinth_runtime::{now, planted, second_clock};

/// Most attempts to find the difference, until one is this narrow.
const TRIES: usize = 64;
const NARROW_NS: i128 = 200;

/// The clock, less the second one.
#[derive(Clone, Copy)]
struct Difference {
    least: i128,
    most: i128,
}

fn second() -> Option<i128> {
    second_clock().map(|instant| i128::from(instant.0))
}

impl Difference {
    fn look() -> Option<Difference> {
        let before = second()?;
        let reading = i128::from(now().0);
        let after = second()?;
        Some(Difference {
            least: reading - after,
            most: reading - before,
        })
    }

    fn width(&self) -> i128 {
        self.most - self.least
    }
}

/// What a clock shows that has jumped.
pub(crate) struct Jumped(pub u64);

pub(crate) struct Guard {
    /// `None` where there is no second clock.
    known: Option<Difference>,
    slack_ns: i128,
}

impl Guard {
    /// The clocks are right now, or at least nobody has relied on them.
    pub fn new(bounds: &Bounds) -> Guard {
        let mut known: Option<Difference> = None;
        for _ in 0..TRIES {
            let Some(found) = Difference::look() else {
                break;
            };
            if known.is_none_or(|known| found.width() < known.width()) {
                known = Some(found);
            }
            if found.width() <= NARROW_NS {
                break;
            }
        }
        Guard {
            known,
            slack_ns: 2 * i128::from(bounds.reading_ns),
        }
    }

    /// Reads the clock. An error if it is another one than it was.
    pub fn read(&self) -> Result<u64, Jumped> {
        let (Some(known), Some(before)) = (self.known, second()) else {
            return Ok(now().0);
        };
        let reading = now().0;
        let (least, most) = (known.least - self.slack_ns, known.most + self.slack_ns);
        let difference = i128::from(reading) - before;
        if (least..=most).contains(&difference) {
            return Ok(reading);
        }
        let is_possible = difference >= least
            && second().is_some_and(|after| i128::from(reading) - after <= most);
        let is_believed = planted!(
            "farm_jump_is_believed",
            "a clock that has jumped is read on as if nothing had been"
        );
        match is_possible || is_believed {
            true => Ok(reading),
            false => Err(Jumped(reading)),
        }
    }
}
