//! Descriptors that a client of this host is lent, or given for its programs.

use super::{Answered, Guest};
use wire::{
    Answer, Attributes, Lent, Mark, OpenFlags, Session,
    codec::{Borrow, Obtain, encode_given, encode_lent},
};

/// What a request has opened.
#[derive(Debug)]
pub struct Opened {
    /// The request's.
    id: u64,
    session: Session,
    attributes: Attributes,
}

impl Guest {
    /// Whether there was something to lend.
    pub(super) fn lend(&mut self, id: u64, Borrow { extent, flags }: Borrow) -> bool {
        let room = self.pipe.has_room();
        let Some(loans) = self.loans.as_mut().filter(|loans| room && loans.has_room()) else { return false };
        let Some(backing) = self.house.node.backing(extent, flags) else { return false };
        match loans.lend(id, backing) {
            Ok(descriptor) => self.pipe.push_with(descriptor, |out| encode_lent(id, out)),
            Err(error) => {
                tracing::warn!(%error, "a descriptor could not be lent");
                return false;
            }
        }
        true
    }

    /// Whether there was a descriptor to give, which is the program's own then: nothing of it ends with this connection.
    pub(super) fn give(&mut self, id: u64, Obtain { session, file, flags, lent }: Obtain) -> bool {
        let may = self.loans.is_some() && self.sessions.contains(&session) && self.pipe.has_room();
        let given = if may { self.house.node.give(session, file, flags, lent) } else { None };
        let Some((descriptor, mark)) = given else { return false };
        self.pipe.push_with(descriptor, |out| encode_given(mark, id, out));
        true
    }

    /// Notes what a request has opened, for the frame behind it.
    pub(super) fn note_opened(&mut self, id: u64, session: Session, answered: &Answered) {
        self.opened = match answered {
            Ok(Answer::Opened { attributes, .. }) if self.loans.is_some() => {
                Some(Opened { id, session, attributes: *attributes })
            }
            _ => None,
        };
    }

    /// Whether there was a descriptor to give of what the request before this one has opened.
    pub(super) fn attach(&mut self, id: u64, flags: OpenFlags) -> bool {
        match self.opened.take() {
            Some(Opened { id: before, session, attributes }) if before + 1 == id => {
                let (file, lent) = (attributes.file, Lent::of(&attributes, flags));
                self.give(id, Obtain { session, file, flags, lent })
            }
            _ => false,
        }
    }

    /// Descriptors of a program were closed. Whatever somebody else still has of them goes on.
    pub(super) fn closed(&mut self, marks: Vec<Mark>) {
        if let Some(process) = self.process() {
            for mark in &marks {
                self.house.node.closed_by(process, *mark);
            }
        }
        self.closed.extend(marks);
    }

    /// Looks at what was closed, when what came with it has its answer.
    pub(super) fn look_at_closed(&mut self) {
        for mark in self.closed.drain(..) {
            self.house.node.look_for(mark);
        }
    }
}
