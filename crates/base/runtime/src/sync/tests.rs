use super::*;
use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Poll, Wake, Waker};

#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_with(future, &Waker::noop().clone())
}

fn poll_with<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

#[test]
fn a_oneshot_carries_its_value_and_knows_when_either_side_is_gone() {
    let (sender, mut receiver) = oneshot::<u32>();
    assert!(poll(&mut receiver).is_pending());
    assert_eq!(sender.send(7), Ok(()));
    assert_eq!(poll(&mut receiver), Poll::Ready(Ok(7)));
    let (sender, mut receiver) = oneshot::<u32>();
    drop(sender);
    assert_eq!(poll(&mut receiver), Poll::Ready(Err(Closed)));
    let (sender, receiver) = oneshot::<u32>();
    assert!(!sender.is_closed());
    drop(receiver);
    assert!(sender.is_closed());
    assert_eq!(sender.send(7), Err(7));
}

#[test]
fn a_queue_is_first_in_first_out_and_ends_when_all_senders_are_gone() {
    let (sender, mut receiver) = queue();
    let other = sender.clone();
    sender.send(1).unwrap();
    other.send(2).unwrap();
    assert_eq!(receiver.len(), 2);
    assert_eq!(receiver.try_recv(), Some(1));
    drop(sender);
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(receiver.poll_recv(&mut context), Poll::Ready(Some(2)));
    assert_eq!(receiver.poll_recv(&mut context), Poll::Pending);
    drop(other);
    assert_eq!(receiver.poll_recv(&mut context), Poll::Ready(None));
}

#[test]
fn a_queue_without_its_receiver_gives_items_back() {
    let (sender, receiver) = queue();
    sender.send(1).unwrap();
    drop(receiver);
    assert_eq!(sender.send(2), Err(2));
}

#[test]
fn notify_one_stores_one_permit_and_only_one() {
    let bell = Notify::new();
    bell.notify_one();
    bell.notify_one();
    assert!(poll(&mut bell.notified()).is_ready());
    assert!(poll(&mut bell.notified()).is_pending());
}

#[test]
fn a_notification_that_was_not_used_goes_to_the_next_waiter() {
    let bell = Notify::new();
    let (mut first, mut second) = (bell.notified(), bell.notified());
    assert!(poll(&mut first).is_pending());
    assert!(poll(&mut second).is_pending());
    bell.notify_one();
    assert!(poll(&mut second).is_pending());
    drop(first);
    assert!(poll(&mut second).is_ready());
}

#[test]
fn notify_all_reaches_those_who_asked_before_it_and_nobody_after() {
    let bell = Notify::new();
    let mut not_polled_yet = bell.notified();
    bell.notify_all();
    assert!(poll(&mut not_polled_yet).is_ready());
    assert!(poll(&mut bell.notified()).is_pending());
}

#[test]
fn a_watch_wakes_the_task_that_looked_last_and_once() {
    let counters = [Arc::new(Counter::default()), Arc::new(Counter::default())];
    let [first, second] = counters.clone().map(Waker::from);
    let woken = || {
        counters
            .each_ref()
            .map(|counter| counter.0.load(Ordering::Relaxed))
    };
    let watch = Watch::new(0);
    let mut changed = watch.changed();
    for waker in [&first, &first, &second, &second] {
        assert!(poll_with(&mut changed, waker).is_pending());
    }
    watch.set(1);
    assert_eq!(woken(), [0, 1]);
    assert!(poll_with(&mut changed, &second).is_ready());
    let mut changed = watch.changed();
    assert!(poll_with(&mut changed, &first).is_pending());
    drop(changed);
    watch.set(2);
    assert_eq!(woken(), [0, 1], "nobody waits");
}

#[test]
fn a_watch_tells_of_the_next_set_after_the_call() {
    let watch = Watch::new(1);
    let mut changed = watch.changed();
    watch.set(2);
    assert!(poll(&mut changed).is_ready());
    let mut changed = watch.changed();
    assert!(poll(&mut changed).is_pending());
    watch.update(|v| *v += 1);
    assert!(poll(&mut changed).is_ready());
    assert_eq!(watch.get(), 3);
    let seen = Cell::new(0);
    let mut waiting = Box::pin(watch.wait_until(|v| {
        seen.set(seen.get() + 1);
        *v == 5
    }));
    assert!(poll(&mut waiting).is_pending());
    watch.set(5);
    assert!(poll(&mut waiting).is_ready());
    assert_eq!(seen.get(), 2);
}

#[test]
fn a_gate_wakes_exactly_the_waiters_it_reached() {
    let gate = VersionGate::new(10);
    assert!(poll(&mut gate.at_least(10)).is_ready());
    let near = Arc::new(Counter::default());
    let far = Arc::new(Counter::default());
    let (mut a, mut b) = (gate.at_least(20), gate.at_least(30));
    assert!(poll_with(&mut a, &near.clone().into()).is_pending());
    assert!(poll_with(&mut b, &far.clone().into()).is_pending());
    gate.set(29);
    assert_eq!(
        (
            near.0.load(Ordering::Relaxed),
            far.0.load(Ordering::Relaxed)
        ),
        (1, 0)
    );
    assert!(poll(&mut a).is_ready());
    drop(b);
    assert_eq!(gate.waiting(), 0);
}

#[test]
#[should_panic(expected = "went back from 5 to 4")]
fn a_gate_never_goes_back() {
    VersionGate::new(5).set(4);
}

#[test]
fn permits_are_given_to_so_many_and_go_on_to_those_who_wait() {
    let permits = Permits::new(1);
    let mut first = Box::pin(permits.take());
    let Poll::Ready(held) = poll(&mut first) else {
        panic!("one is free");
    };
    let mut gone = Box::pin(permits.take());
    let mut second = Box::pin(permits.take());
    assert!(poll(&mut gone).is_pending() && poll(&mut second).is_pending());
    drop(held);
    drop(gone); // it was its turn: the next waiter gets the turn
    assert!(poll(&mut second).is_ready());
}
