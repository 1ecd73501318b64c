//! Needs: what an operation waits for.

use super::Evaluator;
use super::frames::VariableFrame;
use crate::program::{Need, NeedKind};
use crate::value::{ArrayCell, ArrayKey, FileCell, Future, Mapping, Members, SwiftValue, ValueSlot, WaiterId};
use std::rc::Rc;

/// The cause for which an operation waits.
#[derive(Debug)]
pub enum Wait {
    /// A value.
    Future(Rc<Future>),
    /// The end of an array.
    Array(Rc<ArrayCell>),
    /// A member of an array.
    Member(Rc<ArrayCell>, ArrayKey),
    /// The path, the writer or the bytes of a file.
    File(Rc<FileCell>),
}

impl Wait {
    /// Adds an operation to those that wait.
    pub fn add(&self, unit: WaiterId) {
        match self {
            Self::Future(future) => future.waiters.borrow_mut().push(unit),
            Self::Array(array) => array.waiters.borrow_mut().push(unit),
            Self::Member(array, key) => array.member_waiters.borrow_mut().entry(key.clone()).or_default().push(unit),
            Self::File(file) => file.waiters.borrow_mut().push(unit),
        }
    }
}

impl Evaluator {
    /// The lack of a need; `None` if it is met.
    #[expect(clippy::unused_self, reason = "needs belong to the evaluator")]
    pub(super) fn unmet(&self, frame: &VariableFrame, need: Need) -> Option<Wait> {
        frame.with_slot(need.place, |slot| match slot {
            ValueSlot::Value(value) => lacks(value, need.kind),
            slot => match slot.get() {
                None => Some(Wait::Future(slot.share())),
                Some(value) => lacks(&value, need.kind),
            },
        })
    }
}

/// The lack of a value; `None` if it has none.
fn lacks(value: &SwiftValue, kind: NeedKind) -> Option<Wait> {
    match value {
        SwiftValue::Array(array) => array_lacks(array, kind),
        SwiftValue::File(file) => file_lacks(file, kind),
        SwiftValue::Struct(struct_) if kind == NeedKind::Ready => {
            let mut fields = struct_.fields.borrow_mut();
            fields.iter_mut().find_map(|field| match field.get() {
                None => Some(Wait::Future(field.share())),
                Some(value) => lacks(&value, kind),
            })
        }
        _ => None,
    }
}

/// The lack of a file. It may stand for another one, whose writer and bytes count then.
fn file_lacks(file: &Rc<FileCell>, kind: NeedKind) -> Option<Wait> {
    let file = if matches!(kind, NeedKind::Assigned | NeedKind::Ready) { file.resolve() } else { file.clone() };
    let state = file.state.borrow();
    let is_met = match kind {
        NeedKind::Value | NeedKind::Closed => true,
        NeedKind::Mapped => state.mapping != Mapping::Awaited,
        NeedKind::Assigned => state.source.is_some() && state.mapping != Mapping::Awaited,
        NeedKind::Ready => state.source.is_some() && state.is_ready,
    };
    (!is_met).then(|| Wait::File(file.clone()))
}

fn array_lacks(array: &Rc<ArrayCell>, kind: NeedKind) -> Option<Wait> {
    if kind == NeedKind::Value {
        return None;
    }
    if !array.is_closed() {
        return Some(Wait::Array(array.clone()));
    }
    if kind == NeedKind::Closed {
        return None;
    }
    let Members::Map(map) = &mut *array.members.borrow_mut() else {
        // Packed numbers are all there.
        return None;
    };
    map.values_mut().find_map(|slot| match slot.get() {
        None => Some(Wait::Future(slot.share())),
        Some(value) => lacks(&value, kind),
    })
}
