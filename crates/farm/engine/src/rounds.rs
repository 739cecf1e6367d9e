//! What happens again and again: the rounds of the oldest active transaction, truncations that no message has carried,
//! and what a new safe point allows (§4.5, 4.8).

use crate::core::Core;
use crate::wire::{Horizon, Message};
use plinth_farm_fabric::Machine;
use plinth_runtime::{nobody_has_lied, sleep};

/// So much further. Others may wait for this machine's word before they can use memory again.
const QUIET_FACTOR: u32 = 4;

impl Core {
    /// One round of this machine.
    pub fn round(&self) {
        self.pace.pass_round();
        if self.active.oldest().is_some() || !self.parked.borrow().is_empty() {
            self.pace.quicken();
        }
        self.post.hurry();
        if !self.parked.borrow().is_empty() {
            self.retry_parked();
        }
        // While there is no time, the safe point stays where it is.
        let Ok(Some(now)) = self.interval() else {
            return;
        };
        let report = self.oat.borrow().report(now.lower, self.active.oldest());
        let collector = self.view.borrow().master;
        match collector == self.own {
            true => self.collect(self.own, report),
            false => self.post.push(collector, Message::Oat(report), None),
        }
    }

    /// The collector hears a machine, which may be this one.
    pub fn collect(&self, from: Machine, report: Horizon) {
        let view = self.view();
        if view.master != self.own {
            return;
        }
        let answer = self.oat.borrow_mut().collect(&view.machines, from, report);
        match from == self.own {
            true => self.hear(answer),
            false => self.post.push(from, Message::Safe(answer), None),
        }
    }

    pub fn hear(&self, horizon: Horizon) {
        if !self.oat.borrow_mut().hear(horizon) {
            return;
        }
        let safe = self.oat.borrow().safe();
        // What is collected below is needed by no transaction (Figure 9). The collector says so.
        let oldest = self.active.oldest();
        assert!(
            oldest.is_none_or(|oldest| safe <= oldest) || !nobody_has_lied(),
            "the safe point is {safe}, and a transaction of machine {} reads at {oldest:?}",
            self.own.0
        );
        self.keep_safe(safe);
        self.store.old.borrow_mut().collect(safe);
        self.reuse_slabs(safe);
        if !self.parked.borrow().is_empty() {
            self.retry_parked();
        }
    }

    pub async fn run_rounds(&self) {
        loop {
            let step = match self.pace.is_quiet() {
                true => QUIET_FACTOR * self.settings.round,
                false => self.settings.round,
            };
            sleep(step).await;
            self.round();
        }
    }
}
