//! Descriptors that a client of this host leases, or gets for its programs.

use super::{Answered, Guest};
use wire::{
    Answer, Lent, Mark, Session,
    codec::{Borrow, Obtain, encode_given, encode_lent},
};

impl Guest {
    /// Leases a descriptor; returns false if there is none to lease.
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

    /// Sends a descriptor for a program of the client; returns false if there is none. The program
    /// owns it: it outlives this connection.
    pub(super) fn give(&mut self, id: u64, Obtain { session, file, flags, lent }: Obtain) -> bool {
        let may = self.loans.is_some() && self.sessions.contains(&session) && self.pipe.has_room();
        let given = if may { self.house.node.give(session, file, flags, lent) } else { None };
        let Some((descriptor, mark)) = given else { return false };
        self.pipe.push_with(descriptor, |out| encode_given(mark, id, out));
        true
    }

    /// Sends a descriptor of the file that a request has opened, if one is wanted. It goes ahead of
    /// the reply, so that both are sent together.
    pub(super) fn attach(&mut self, session: Session, answered: &Answered) {
        let Some((id, flags)) = self.attaching.take() else { return };
        let given = match answered {
            Ok(Answer::Opened { attributes, .. }) => {
                let (file, lent) = (attributes.file, Lent::of(attributes, flags));
                self.give(id, Obtain { session, file, flags, lent })
            }
            _ => false,
        };
        if !given {
            self.answer(id, &Ok(Answer::Done));
        }
    }

    /// Answers that there is no descriptor: the request has opened nothing yet.
    pub(super) fn attach_nothing(&mut self) {
        if let Some((id, _)) = self.attaching.take() {
            self.answer(id, &Ok(Answer::Done));
        }
    }

    /// Notes that a program has closed descriptors. Opens of which somebody else has a copy go on.
    pub(super) fn closed(&mut self, marks: Vec<Mark>) {
        if let Some(process) = self.process() {
            for mark in &marks {
                self.house.node.closed_by(process, *mark);
            }
        }
        self.closed.extend(marks);
    }

    /// Probes the closed descriptors, after the requests that came with them were answered.
    pub(super) fn look_at_closed(&mut self) {
        for mark in self.closed.drain(..) {
            self.house.node.look_for(mark);
        }
    }
}
