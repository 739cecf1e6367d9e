//! What a gateway does with rows that are damaged, and what goes first.

use super::{Front, Proposes};
use crate::entry::decode;
use crate::view::ZXIDS;
use bytes::Bytes;
use plinth_core::key::KeyRange;
use plinth_core::{Error, Result, Version};
use plinth_delos::entry::Entry;
use plinth_delos::log::LogPos;
use plinth_delos::stack::Lost;
use plinth_keeper::replica::Replica;
use plinth_keeper::store::{Boxed, Most, Page, Store};
use plinth_keeper::tree::change::Change;
use plinth_keeper::tree::execute::Operation;
use plinth_keeper::tree::plan::Known;
use plinth_keeper::tree::quota::Exceeded;
use plinth_keeper::tree::rows::Rows;
use plinth_keeper::wire::Request;
use plinth_keeper::writes::{Listener, Writes};
use plinth_runtime::real::block_on;
use plinth_runtime::{Duration, spawn, timeout, yield_now};
use std::cell::RefCell;
use std::rc::Rc;

/// Rows of nodes that nobody can read. Those of `/torn` fail by themselves.
struct Damaged(Rows);

impl Store for Damaged {
    fn row<'a>(&'a self, _: Version, _: &'a [u8]) -> Boxed<'a, Result<Option<Bytes>>> {
        Box::pin(async { Ok(None) })
    }

    fn page(&self, _: Version, range: KeyRange, _: Most) -> Boxed<'_, Result<Page>> {
        let is_torn = range == self.0.around_node("/torn");
        Box::pin(async move {
            let rows = vec![(range.begin, Bytes::from_static(b"?"))];
            let page = Page { rows, more: false };
            (!is_torn).then_some(page).ok_or(Error::file_corrupt)
        })
    }
}

/// A log that takes nothing.
struct Nothing;

impl Proposes for Nothing {
    fn propose(&self, _: Entry) -> Boxed<'_, std::result::Result<bool, Lost>> {
        Box::pin(async { Ok(true) })
    }

    fn sync(&self) -> Boxed<'_, std::result::Result<(), Lost>> {
        Box::pin(async { Ok(()) })
    }

    fn applied(&self) -> LogPos {
        10
    }
}

impl Listener for Nothing {
    fn before(&self, _: &Replica, _: &Change, _: i64) {}
    fn owns(&self, _: i64) -> bool {
        true
    }
    fn is_silent(&self, _: i64) -> bool {
        true
    }
    fn has_clients(&self) -> bool {
        true
    }
    fn enforces_quotas(&self) -> bool {
        false
    }
    fn exceeds(&self, _: &Exceeded, _: &str) {}
    fn lost(&self, why: &'static str) {
        panic!("{why}");
    }
}

#[test]
fn reads_behind_writes_do_not_wait_for_rows_that_are_damaged() {
    block_on(async {
        let rows = Rows::new("zelos");
        let store = Rc::new(Damaged(rows.clone()));
        let replica = Rc::new(Replica::new(store, rows, ZXIDS, 10, 1 << 20));
        let front = Front::new(replica.clone(), Rc::new(Nothing), 1, Rc::new(Nothing));
        let serving = spawn("front", front.clone().serve());
        let writes: Rc<dyn Writes> = front;
        for path in ["/torn", "/damaged"] {
            let (path, watch) = (path.into(), false);
            let look = Operation::Look {
                session: 7,
                most: usize::MAX,
                request: Request::MultiRead {
                    operations: vec![Request::GetData { path, watch }],
                    breaks_off: false,
                },
            };
            let looked = timeout(Duration::from_secs(5), writes.run(look)).await;
            assert!(looked.flatten().is_some(), "it is answered");
        }
        assert!(matches!(replica.node_if_known("/torn"), Known::Unknown));
        assert!(matches!(replica.node_if_known("/damaged"), Known::Damaged));
        drop(serving);
    });
}

/// A log that keeps what it was given.
#[derive(Default)]
struct Given(RefCell<Vec<Operation>>);

impl Proposes for Given {
    fn propose(&self, entry: Entry) -> Boxed<'_, std::result::Result<bool, Lost>> {
        let (_, operations) = decode(entry.payload.expect("a batch")).expect("a batch");
        self.0.borrow_mut().extend(operations);
        Box::pin(std::future::pending())
    }

    fn sync(&self) -> Boxed<'_, std::result::Result<(), Lost>> {
        Box::pin(std::future::pending())
    }

    fn applied(&self) -> LogPos {
        10
    }
}

#[test]
fn a_beat_and_a_client_that_comes_back_stand_behind_nobodys_writes() {
    block_on(async {
        let rows = Rows::new("zelos");
        let store = Rc::new(Damaged(rows.clone()));
        let replica = Rc::new(Replica::new(store, rows, ZXIDS, 10, 1 << 20));
        let log = Rc::new(Given::default());
        let front = Front::new(replica, log.clone(), 1, Rc::new(Nothing));
        let writes: Rc<dyn Writes> = front.clone();
        let open = |session| Operation::OpenSession {
            session,
            timeout_ms: 4000,
            password: Vec::new(),
        };
        let take = Operation::TakeSession {
            session: 7,
            timeout_ms: 4000,
            password: Vec::new(),
            found: None,
        };
        let all = (100..600).map(open).chain([take.clone()]);
        all.for_each(|operation| writes.submit(operation, Box::new(|_, _, _| ())));
        let row = b"row".to_vec();
        let beating = writes.beat(row.clone());
        let serving = spawn("front", front.serve());
        while log.0.borrow().len() < 3 {
            yield_now().await;
        }
        let given = log.0.borrow();
        let first = format!("{:?}", &given[..3]);
        let expected = [Operation::Beat { row }, take, open(100)];
        assert_eq!(first, format!("{expected:?}"));
        drop((beating, serving));
    });
}
