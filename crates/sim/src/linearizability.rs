//! Linearizability checker for any sequential model.
//!
//! A history is linearizable (Herlihy and Wing, "Linearizability: A Correctness Condition for
//! Concurrent Objects", TOPLAS 1990) if its operations have an order in which the model gives every
//! reply, and in which no operation precedes another that had ended before it began.
//!
//! The search for the order is that of Wing and Gong ("Testing and Verifying Concurrent Objects",
//! Journal of Parallel and Distributed Computing 1993): try each operation that may come first, and
//! go on with the rest. It remembers the pairs of model state and remaining operations that have
//! failed, as Lowe does ("Testing for linearizability", Concurrency and Computation 2017).
//!
//! An operation of a client that died has no reply. It may take effect at any time after it began,
//! or never.

use std::{
    collections::{BTreeSet, HashSet},
    fmt::Debug,
    hash::Hash,
};

/// State of a sequential model, simple enough to be right by reading it.
pub trait Model: Clone + Eq + Hash {
    /// An operation that a client can request.
    type Operation: Debug;
    /// A reply to an operation.
    type Reply: Debug;

    /// The possible states after an operation with this reply; none if the model does not allow the
    /// reply. Without a reply, the operation may or may not have been applied.
    fn after(&self, operation: &Self::Operation, reply: Option<&Self::Reply>) -> Vec<Self>;
}

/// An operation with its start and its end with the reply; no end if its client died.
#[derive(Clone, Debug)]
pub struct Event<O, R> {
    /// The requested operation.
    pub operation: O,
    /// Time of the start.
    pub began: usize,
    /// Time of the end, and the reply.
    pub ended: Option<(usize, R)>,
}

impl<O, R> Event<O, R> {
    fn end(&self) -> usize {
        self.ended.as_ref().map_or(usize::MAX, |(at, _)| *at)
    }
}

/// Events of a model's operations.
pub type History<M> = Vec<Event<<M as Model>::Operation, <M as Model>::Reply>>;

/// True if some order of the operations explains all replies.
pub fn is_linearizable<M: Model>(initial: &M, history: &[Event<M::Operation, M::Reply>]) -> bool {
    search(initial, history, &mut (0..history.len()).collect(), &mut HashSet::new())
}

fn search<M: Model>(
    state: &M,
    history: &[Event<M::Operation, M::Reply>],
    remaining: &mut BTreeSet<usize>,
    failed: &mut HashSet<(M, BTreeSet<usize>)>,
) -> bool {
    if remaining.iter().all(|at| history[*at].ended.is_none()) {
        return true;
    }
    if failed.contains(&(state.clone(), remaining.clone())) {
        return false;
    }
    let first_end = remaining.iter().map(|at| history[*at].end()).min().unwrap_or(usize::MAX);
    let candidates: Vec<usize> = remaining.iter().copied().filter(|at| history[*at].began <= first_end).collect();
    for at in candidates {
        let Event { operation, ended, .. } = &history[at];
        remaining.remove(&at);
        let next = state.after(operation, ended.as_ref().map(|(_, reply)| reply));
        let found = next.iter().any(|next| search(next, history, remaining, failed));
        remaining.insert(at);
        if found {
            return true;
        }
    }
    failed.insert((state.clone(), remaining.clone()));
    false
}

/// The history as text, one operation a line.
pub fn format_history<O: Debug, R: Debug>(history: &[Event<O, R>]) -> String {
    let lines: Vec<String> = history.iter().map(|event| format!("{event:?}")).collect();
    lines.join("\n")
}
