//! Sequential model of objects: a map from keys to bytes and versions, with conditional puts. For
//! the linearizability checker.

use crate::linearizability::{Event, Model};
use client::objects::Version;

/// Keys of the objects: in the root and in two directories.
pub const KEYS: [&str; 3] = ["k", "a/k", "b/k"];

/// An operation on objects with its start and its end.
pub type ObjectEvent = Event<ObjectOperation, ObjectReply>;

/// An action of a client on the object of a key; `fill` is the byte that its value repeats.
#[derive(Clone, Copy, Debug)]
pub enum ObjectAction {
    /// Puts without a condition.
    Put(usize, u8),
    /// Puts if there is no object.
    PutAbsent(usize, u8),
    /// Puts if the object has the version that this client saw last.
    Swap(usize, u8),
    /// Gets.
    Get(usize),
    /// Deletes.
    Delete(usize),
    /// Renames the object of one key to another key, as a file.
    Move(usize, usize),
}

/// An action, with the version that its condition requires.
#[derive(Clone, Copy, Debug)]
pub struct ObjectOperation {
    /// The action.
    pub action: ObjectAction,
    /// The version that an [`ObjectAction::Swap`] expects.
    pub expected: Option<Version>,
}

/// Reply to a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectReply {
    /// Success, with the new version of a put.
    Done(Option<Version>),
    /// The fill byte and the version of a get.
    Value(u8, Version),
    /// There is no object.
    Missing,
    /// The condition failed; the version that is present.
    Changed(Option<Version>),
}

/// State of the map: fill byte of each key, and the version once a client has seen it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ObjectMap([Option<(u8, Option<Version>)>; KEYS.len()]);

impl Model for ObjectMap {
    type Operation = ObjectOperation;
    type Reply = ObjectReply;

    fn after(&self, operation: &ObjectOperation, reply: Option<&ObjectReply>) -> Vec<Self> {
        match reply {
            Some(reply) => self.replied(*operation, *reply),
            None => self.unreplied(*operation),
        }
    }
}

impl ObjectMap {
    fn with(&self, key: usize, fill: u8, version: Option<Version>) -> Self {
        let mut next = *self;
        next.0[key] = Some((fill, version));
        next
    }

    fn without(&self, key: usize) -> Self {
        let mut next = *self;
        next.0[key] = None;
        next
    }

    fn moved(&self, from: usize, to: usize) -> Self {
        let mut next = *self;
        next.0[to] = next.0[from].take();
        next
    }

    /// Possible states after a reply; none if it is not allowed.
    fn replied(&self, ObjectOperation { action, expected }: ObjectOperation, reply: ObjectReply) -> Vec<Self> {
        use {ObjectAction as Action, ObjectReply as Reply};
        match (action, reply) {
            (Action::Put(key, fill), Reply::Done(version)) => vec![self.with(key, fill, version)],
            (Action::PutAbsent(key, fill), Reply::Done(version)) if self.0[key].is_none() => {
                vec![self.with(key, fill, version)]
            }
            (Action::Swap(key, fill), Reply::Done(version)) => match (self.0[key], expected) {
                (Some((_, known)), Some(expected)) if may_be(known, expected) => vec![self.with(key, fill, version)],
                _ => Vec::new(),
            },
            (Action::PutAbsent(key, _) | Action::Swap(key, _), Reply::Changed(present)) => match (self.0[key], present)
            {
                (None, None) => vec![*self],
                (Some((fill, known)), Some(present)) if may_be(known, present) && expected != Some(present) => {
                    vec![self.with(key, fill, Some(present))]
                }
                _ => Vec::new(),
            },
            (Action::Get(key), Reply::Value(fill, version)) => match self.0[key] {
                Some((there, known)) if there == fill && may_be(known, version) => {
                    vec![self.with(key, fill, Some(version))]
                }
                _ => Vec::new(),
            },
            (Action::Get(key) | Action::Delete(key), Reply::Missing) if self.0[key].is_none() => vec![*self],
            (Action::Delete(key), Reply::Done(_)) if self.0[key].is_some() => vec![self.without(key)],
            (Action::Move(from, _), Reply::Missing) if self.0[from].is_none() => vec![*self],
            (Action::Move(from, to), Reply::Done(_)) if self.0[from].is_some() => vec![self.moved(from, to)],
            _ => Vec::new(),
        }
    }

    /// Possible states after an operation of a client that died: applied or not.
    fn unreplied(&self, ObjectOperation { action, expected }: ObjectOperation) -> Vec<Self> {
        let has_expected = |key: usize| matches!((self.0[key], expected), (Some((_, known)), Some(expected)) if may_be(known, expected));
        let applied = match action {
            ObjectAction::Put(key, fill) => Some(self.with(key, fill, None)),
            ObjectAction::PutAbsent(key, fill) => self.0[key].is_none().then(|| self.with(key, fill, None)),
            ObjectAction::Swap(key, fill) => has_expected(key).then(|| self.with(key, fill, None)),
            ObjectAction::Delete(key) => Some(self.without(key)),
            ObjectAction::Move(from, to) => self.0[from].is_some().then(|| self.moved(from, to)),
            ObjectAction::Get(_) => None,
        };
        [Some(*self), applied].into_iter().flatten().collect()
    }
}

/// True if a version that is known, or not yet, can be this one.
fn may_be(known: Option<Version>, version: Version) -> bool {
    known.is_none_or(|known| known == version)
}
