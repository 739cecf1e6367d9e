//! Whether this machine works in its configuration, and who waits for the next one.

use plinth_farm_memory::Abort;
use plinth_runtime::sync::Notify;
use std::cell::Cell;

#[derive(Default)]
pub struct Stage {
    /// The configuration in which transactions run here; 0 from its end until the next one is recovered.
    open: Cell<u64>,
    /// The one whose recovery has begun here; 0 from its end until then.
    begun: Cell<u64>,
    /// The machine is no member any more, or data is lost.
    has_left: Cell<bool>,
    bell: Notify,
}

impl Stage {
    /// Transactions still run in the configuration with this number.
    #[inline]
    pub fn is(&self, number: u64) -> bool {
        self.open.get() == number
    }

    /// The same. Error: `Failed`.
    #[inline]
    pub fn check(&self, number: u64) -> Result<(), Abort> {
        match self.is(number) {
            true => Ok(()),
            false => Err(Abort::Failed),
        }
    }

    /// The number; `None` between two configurations.
    #[inline]
    pub fn number(&self) -> Option<u64> {
        Some(self.open.get()).filter(|number| *number > 0)
    }

    pub fn has_left(&self) -> bool {
        self.has_left.get()
    }

    /// Waits until transactions may run. Returns the configuration's number. Error: `Left`.
    pub async fn opened(&self) -> Result<u64, Abort> {
        loop {
            if self.has_left() {
                return Err(Abort::Left);
            }
            if let Some(number) = self.number() {
                return Ok(number);
            }
            self.changed().await;
        }
    }

    /// Waits until transactions do not run in this configuration any more.
    pub async fn ended(&self, number: u64) {
        while self.is(number) && !self.has_left() {
            self.changed().await;
        }
    }

    /// Waits for any change after this call.
    pub async fn changed(&self) {
        self.bell.notified().await;
    }

    /// The fabric is in the configuration with this number, as far as this machine knows.
    pub fn has_begun(&self, number: u64) -> bool {
        self.begun.get() == number
    }

    pub fn close(&self) {
        self.open.set(0);
        self.begun.set(0);
        self.bell.notify_all();
    }

    pub fn begin(&self, number: u64) {
        let (open, begun) = (self.open.get(), self.begun.replace(number));
        assert!(
            open == 0 && begun == 0,
            "configuration {number} begins, and {begun} is not closed, in which {open} is open"
        );
    }

    pub fn open(&self, number: u64) {
        assert!(
            self.has_begun(number),
            "configuration {number} is open, and {} has begun",
            self.begun.get()
        );
        self.open.set(number);
        self.bell.notify_all();
    }

    /// For good.
    pub fn leave(&self) {
        self.has_left.set(true);
        self.close();
    }
}
