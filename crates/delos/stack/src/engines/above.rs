//! The upper half of most engines: entries pass it, but for those of the engine's own, which its rule executes.

use super::guard::{Guard, Seen};
use crate::entry::Entry;
use crate::log::LogPos;
use crate::stack::{Answer, Applicator, Applied, Upper};
use crate::store::RwTx;
use bytes::Bytes;
use plinth_core::Result;

/// What an engine does with entries on their way up to `A`. Whatever it does follows from the rows, the entry and the
/// position.
pub trait Rule<A: Applicator>: 'static {
    /// Whose entries and notes it looks for.
    const GUARD: Guard;

    /// What comes before an entry, whoever it is of.
    ///
    /// # Errors
    /// The replica stops.
    fn begin(&self, tx: &mut RwTx, pos: LogPos) -> Result<()> {
        let _ = (tx, pos);
        Ok(())
    }

    /// Executes an entry of the engine's own. What it returns is the answer.
    ///
    /// # Errors
    /// The replica stops.
    fn own(&self, tx: &mut RwTx, said: Bytes, pos: LogPos) -> Result<Bytes>;

    /// Passes an entry of another one up, with what the engine has noted there.
    ///
    /// # Errors
    /// See [`Applicator::apply`].
    fn pass(
        &self,
        upper: &Upper<A>,
        tx: &mut RwTx,
        entry: &Entry,
        note: Option<Bytes>,
        pos: LogPos,
    ) -> Applied<A::Return, A::Refusal> {
        let _ = note;
        upper.apply(tx, entry, pos)
    }

    /// The changes that an entry led to are in the store, and those above know it.
    fn post_apply(&self) {}
}

/// See the module.
pub struct Above<R, A> {
    pub(crate) upper: Upper<A>,
    pub(super) rule: R,
}

impl<R: Default, A: Applicator> Above<R, A> {
    pub fn new(above: A) -> Self {
        Above {
            upper: Upper::new(above),
            rule: R::default(),
        }
    }

    /// What is above, for its lower half.
    pub fn above(&self) -> &A {
        &self.upper.applicator
    }
}

impl<R: Rule<A>, A: Applicator> Applicator for Above<R, A> {
    type Return = A::Return;
    type Refusal = A::Refusal;

    fn apply(&self, tx: &mut RwTx, entry: &Entry, pos: LogPos) -> Applied<A::Return, A::Refusal> {
        self.upper.pass_over();
        self.rule.begin(tx, pos)?;
        match R::GUARD.look(tx, entry)? {
            Seen::Passing(note) => self.rule.pass(&self.upper, tx, entry, note, pos),
            Seen::Own(said) => Ok(Answer::Own(self.rule.own(tx, said, pos)?)),
            Seen::Over => Ok(Answer::Own(Bytes::new())),
        }
    }

    fn post_apply(&self, entry: &Entry, pos: LogPos) {
        self.upper.post_apply(entry, pos);
        self.rule.post_apply();
    }
}
