//! A cluster that is away: what those are told who watch for that.

use plinth_coordination::Look;
use plinth_rpc::Place;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

/// Requests have waited for the cluster for more than a second, and none has reached it.
pub struct Outage {
    /// What each coordinator is like.
    pub coordinators: Vec<(Place, Look)>,
    /// Ends when requests reach the cluster again.
    pub over: Pin<Box<dyn Future<Output = ()>>>,
}

/// A line for the user.
impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no request has reached the cluster for a second, so requests wait; ")?;
        let looks = || self.coordinators.iter();
        let silent: Vec<String> = looks()
            .filter(|(_, look)| !matches!(look, Look::Answers { .. }))
            .map(|(place, look)| format!("{place} ({look})"))
            .collect();
        if !silent.is_empty() {
            let silent = silent.join(", ");
            return write!(f, "these coordinators do not answer: {silent}");
        }
        let leads = |look: &Look| *look == Look::Answers { has_leader: true };
        f.write_str(match looks().any(|(_, look)| leads(look)) {
            true => "its coordinators answer, and `plinth status' says what it waits for",
            false => "its coordinators answer, and no controller is elected",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_the_coordinators_that_do_not_answer() {
        let outage = |looks: &[Look]| {
            let place = |i: usize| Place::At(([10, 0, 0, 1 + i as u8], 4500).into());
            let coordinators = looks.iter().enumerate();
            let coordinators = coordinators.map(|(i, look)| (place(i), look.clone()));
            let coordinators = coordinators.collect();
            let over = Box::pin(std::future::pending());
            Outage { coordinators, over }.to_string()
        };
        let [leads, waits] = [true, false].map(|has_leader| Look::Answers { has_leader });
        let line = outage(&[Look::Unreached, leads.clone(), Look::Silent]);
        let silent = "answer: 10.0.0.1:4500 (cannot be reached), 10.0.0.3:4500 (no answer)";
        assert!(line.ends_with(silent), "{line}");
        let line = outage(&[waits.clone(), leads]);
        assert!(line.contains("`plinth status'"), "{line}");
        let line = outage(&[waits]);
        assert!(line.ends_with("no controller is elected"), "{line}");
    }
}
