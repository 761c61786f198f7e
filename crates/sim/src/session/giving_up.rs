//! Sessions that give an operation up: they drop it, and go on with its key.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use timestone_client::LocalDb;
use timestone_workload::{KeyIndex, Op, TxnPlan};

/// What was asked, unless it is dropped since it is not there in time.
pub(super) async fn within<T>(
    db: &LocalDb,
    span: Option<Duration>,
    asked: impl Future<Output = T>,
) -> Option<T> {
    let Some(span) = span else { return Some(asked.await) };
    if span.is_zero() {
        return None;
    }
    let (mut asked, mut timer) = (pin!(asked), pin!(db.sleep(span)));
    poll_fn(|context| match asked.as_mut().poll(context) {
        std::task::Poll::Ready(answer) => std::task::Poll::Ready(Some(answer)),
        std::task::Poll::Pending => timer.as_mut().poll(context).map(|_| None),
    })
    .await
}

/// What a session does next with a key: it must come after what it gave up.
pub(super) fn go_on(key: KeyIndex, deletes: bool, plan: &mut TxnPlan) {
    plan.ops.clear();
    plan.ops.push(Op::Get(key));
    plan.ops.extend(deletes.then_some(Op::Delete(key)));
}
