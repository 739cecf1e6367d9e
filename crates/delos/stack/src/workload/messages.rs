//! What the simulated clients say to the registers, inside calls of the service.

use plinth_core::record;

record! {
    /// A value that no other write has.
    pub struct Write {
        pub register: u64,
        pub value: u64,
        /// The application writes it, and refuses it then.
        pub is_refused: bool,
    }

    /// Writes that are proposed in this order, before any of them is answered.
    pub struct Burst {
        pub writes: Vec<Write>,
        /// A read is asked for behind the last one, before any is answered.
        pub reads: bool,
    }

    #[derive(Copy, Eq)]
    pub struct Outcome {
        pub kind: u8,
        pub place: u64,
    }

    pub struct BurstDone {
        /// Of each write.
        pub outcomes: Vec<Outcome>,
        pub read: Option<Rows>,
    }

    /// Place 0: it was never written.
    #[derive(Copy, Eq)]
    pub struct Register {
        pub place: u64,
        pub value: u64,
    }

    /// What a read sees.
    #[derive(Eq)]
    pub struct Rows {
        pub count: u64,
        pub registers: Vec<Register>,
    }

    /// A write that was done.
    #[derive(Copy, Eq)]
    pub struct Past {
        pub register: u64,
        pub value: u64,
        /// Its position in the log.
        pub pos: u64,
    }

    pub struct History {
        pub past: Vec<Past>,
    }

    pub struct OfEngine {
        pub engine: String,
    }
}

impl Outcome {
    pub const REFUSED: Outcome = Outcome::of(1);
    /// It is not done, now or later.
    pub const NOT_DONE: Outcome = Outcome::of(2);
    pub const UNKNOWN: Outcome = Outcome::of(3);

    const fn of(kind: u8) -> Outcome {
        Outcome { kind, place: 0 }
    }

    pub const fn done(place: u64) -> Outcome {
        Outcome { kind: 0, place }
    }

    /// Its place, if it is done.
    pub fn place(self) -> Option<u64> {
        (self.kind == 0).then_some(self.place)
    }
}
