//! In which form a client's connection goes on behind its greeting.

use crate::wire::Protocol;
use plinth_runtime::random::Generator;
use plinth_runtime::{Instant, now};
use std::cell::Cell;

/// Draws a form for each connection: as ZooKeeper's clients speak, in compressed blocks, with numbers of eight bytes,
/// or both. The numbers follow from the moment and not from the run's generator, so that whatever else a seed draws
/// stays as it is.
#[derive(Default)]
pub struct Forms {
    began: Cell<Option<Instant>>,
    drawn: Cell<u64>,
}

impl Forms {
    pub fn next(&self) -> Protocol {
        let began = self.began.get().unwrap_or_else(now);
        self.began.set(Some(began));
        let drawn = self.drawn.get();
        self.drawn.set(drawn + 1);
        let moment = began.elapsed().as_nanos() as u64;
        let form = Generator::new(moment ^ drawn.rotate_right(8)).below(4);
        Protocol::FORMS[form as usize]
    }
}
