//! Futures in boxes, and ways to combine futures. Nothing here needs a backend.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::Poll;

/// A future whose code stays in the crate that makes it.
///
/// The compiler makes the code of an `async fn` anew in each crate that awaits it, with all that it awaits in turn. So
/// what a crate offers to others, and is not called for each key, returns this: one allocation for each call.
pub type Boxed<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// Lets every task that is ready now run once.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(move |context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// The winner of a [`race`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Either<A, B> {
    Left(A),
    Right(B),
}

/// Waits for the first of two futures and drops the other. When both are ready, `a` wins.
pub async fn race<A: Future, B: Future>(a: A, b: B) -> Either<A::Output, B::Output> {
    let mut a = pin!(a);
    let mut b = pin!(b);
    std::future::poll_fn(|context| {
        if let Poll::Ready(output) = a.as_mut().poll(context) {
            return Poll::Ready(Either::Left(output));
        }
        b.as_mut().poll(context).map(Either::Right)
    })
    .await
}

/// Waits for all of a few futures; the outputs are in the order of the inputs.
///
/// Every wake-up polls every unfinished future, so this is for replica sets, not for thousands of futures.
pub async fn join_all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut pending: Vec<(Option<Pin<Box<F>>>, Option<F::Output>)> = futures
        .into_iter()
        .map(|f| (Some(Box::pin(f)), None))
        .collect();
    std::future::poll_fn(|context| {
        let mut all_done = true;
        for (future, output) in &mut pending {
            let Some(running) = future else { continue };
            match running.as_mut().poll(context) {
                Poll::Ready(value) => {
                    *output = Some(value);
                    *future = None;
                }
                Poll::Pending => all_done = false,
            }
        }
        if all_done {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
    pending
        .into_iter()
        .map(|(_, output)| output.expect("every future has finished"))
        .collect()
}
