//! What a storage server knows of the rows.

use crate::guard::Right;
use crate::rows::Access;
use plinth_identity::Identity;
use plinth_runtime::{Duration, Instant};
use std::cell::RefCell;
use std::rc::Rc;

/// Who has not read the rows for this long does not rely on them any more.
const RELIED_ON: Duration = Duration::from_secs(10);

/// The rows as they were read last, by somebody who reads them again and again.
#[derive(Default)]
pub struct Known(RefCell<Option<(Rc<Access>, Instant)>>);

impl Known {
    /// The rows said so at `as_of` or later.
    pub fn learn(&self, access: Access, as_of: Instant) {
        let mut known = self.0.borrow_mut();
        let last = known.as_ref().map(|(_, last)| *last);
        assert!(
            last.is_none_or(|last| last <= as_of),
            "rows of {as_of:?} after those of {last:?}"
        );
        let same = known.take().map(|(before, _)| before);
        // The same pointer as long as nothing changes.
        let same = same.filter(|before| **before == access);
        *known = Some((same.unwrap_or_else(|| Rc::new(access)), as_of));
    }

    /// `None` if nothing was read yet, or too long ago: it may have changed since.
    pub fn get(&self) -> Option<Rc<Access>> {
        let known = self.0.borrow();
        let (access, as_of) = known.as_ref()?;
        (as_of.elapsed() < RELIED_ON).then(|| access.clone())
    }

    /// Whether the right that `caller` had to read still counts; `None` if nobody knows at the moment.
    pub fn still_counts(&self, right: &Right, caller: Identity) -> Option<bool> {
        if caller >= Identity::Operator {
            return Some(true);
        }
        let access = self.get()?;
        Some(right.still_counts(&access, caller))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Clients;
    use plinth_runtime::sim::{SimConfig, Simulation};
    use plinth_runtime::{now, sleep};

    #[test]
    fn what_was_read_too_long_ago_is_not_relied_on() {
        Simulation::new(1, SimConfig::default()).run(async {
            let known = Known::default();
            assert!(known.get().is_none());
            let closed = || Access {
                clients: Clients::Tokens,
                ..Access::default()
            };
            known.learn(closed(), now());
            let before = known.get().expect("it was read just now");
            sleep(RELIED_ON / 2).await;
            known.learn(closed(), now());
            sleep(RELIED_ON / 2).await;
            let again = known.get().expect("it was read again");
            assert!(Rc::ptr_eq(&before, &again));
            sleep(RELIED_ON).await;
            assert!(known.get().is_none());
        });
    }

    #[test]
    fn a_right_is_not_over_because_nobody_knows_whether_it_is() {
        Simulation::new(1, SimConfig::default()).run(async {
            let (known, right) = (Known::default(), Right::Everything);
            let of = |known: &Known, caller| known.still_counts(&right, caller);
            assert_eq!(of(&known, Identity::Client), None);
            assert_eq!(of(&known, Identity::Operator), Some(true));
            known.learn(Access::default(), now());
            assert_eq!(of(&known, Identity::Client), Some(true));
            sleep(RELIED_ON).await;
            assert_eq!(of(&known, Identity::Client), None);
            let clients = Clients::Tokens;
            known.learn(
                Access {
                    clients,
                    ..Access::default()
                },
                now(),
            );
            assert_eq!(of(&known, Identity::Client), Some(false));
        });
    }
}
