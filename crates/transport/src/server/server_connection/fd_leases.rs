//! Descriptors that a client of this host leases, or gets for its programs.

use super::ServerConnection;
use crate::ReplyResult;
use wire::{
    Answer, LeaseKind, OpenLeaseId, OpenedFile, Session,
    codec::{LeaseFd, ProgramFd, encode_granted_fd, encode_leased_fd},
};

impl ServerConnection {
    /// Leases a descriptor; returns false if there is none to lease.
    pub(super) fn lease_fd(&mut self, id: u64, LeaseFd { extent, flags }: LeaseFd) -> bool {
        let room = self.framed.may_push_fd();
        let Some(leases) = self.leases.as_mut().filter(|leases| room && leases.has_room()) else { return false };
        let Some(backing) = self.state.node.backing(extent, flags) else { return false };
        match leases.lease_fd(id, extent, backing) {
            Ok(descriptor) => self.framed.push_with_fd(descriptor, |out| encode_leased_fd(id, out)),
            Err(error) => {
                tracing::warn!(%error, "a descriptor could not be leased");
                return false;
            }
        }
        true
    }

    /// Sends a descriptor for a program of the client; returns false if there is none. The program
    /// owns it: it outlives this connection.
    pub(super) fn send_program_fd(&mut self, id: u64, ProgramFd { session, file, flags, kind }: ProgramFd) -> bool {
        let is_allowed = self.leases.is_some() && self.sessions.contains(&session) && self.framed.may_push_fd();
        let leased = if is_allowed { self.state.node.lease_open(session, file, flags, kind) } else { None };
        let Some((descriptor, lease)) = leased else { return false };
        self.framed.push_with_fd(descriptor, |out| encode_granted_fd(lease, id, out));
        true
    }

    /// Sends a descriptor of the file that a request has opened, if one is wanted. It goes ahead of
    /// the reply, so that both are sent together.
    pub(super) fn attach_fd(&mut self, session: Session, answered: &ReplyResult) {
        let Some((id, flags)) = self.attaching.take() else { return };
        let is_sent = match answered {
            Ok(Answer::Opened(OpenedFile { attributes, .. })) => {
                let (file, kind) = (attributes.file, LeaseKind::for_open(attributes, flags));
                self.send_program_fd(id, ProgramFd { session, file, flags, kind })
            }
            _ => false,
        };
        if !is_sent {
            self.reply(id, &Ok(Answer::Done));
        }
    }

    /// Answers that there is no descriptor: the request has opened nothing yet.
    pub(super) fn decline_attach(&mut self) {
        if let Some((id, _)) = self.attaching.take() {
            self.reply(id, &Ok(Answer::Done));
        }
    }

    /// Notes that a program has closed descriptors. Opens of which somebody else has a copy go on.
    pub(super) fn on_closed(&mut self, leases: Vec<OpenLeaseId>) {
        if let Some(process) = self.process() {
            for lease in &leases {
                self.state.node.unlock_on_close(process, *lease);
            }
        }
        self.closed.extend(leases);
    }

    /// Probes the closed descriptors, after the requests that came with them were answered.
    pub(super) fn probe_closed(&mut self) {
        for lease in self.closed.drain(..) {
            self.state.node.end_lease_if_closed(lease);
        }
    }
}
