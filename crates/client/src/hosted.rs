//! Files whose bytes are at another node than their inode: the node of the bytes finishes answers,
//! and a node does by its own client what other nodes need to know.

use crate::{
    Client,
    call::command_of,
    files::PLANS_MAX,
    router::{retry::RetryState, send::with_request_id},
    session::SESSIONS_MAX,
};
use bytes::Bytes;
use node::{HostWork, HostedBytes, HostedDemotion, Node};
use placement::{FileId, NodeId, PartitionId};
use std::{collections::VecDeque, convert::Infallible};
use wire::{
    Answer, Body, Command, Extent, ExtentAction, ExtentWrite, HostedAnswer, Lock, Object, Outcome, Refusal, Session,
    TypedCommand, WritePlace,
};

impl Client {
    /// Writes to the extent of a file. `None` if the bytes have left that extent, so that the write
    /// must be planned anew.
    pub(crate) async fn write_extent(
        &self,
        file: FileId,
        extent: Extent,
        place: WritePlace,
        data: &Bytes,
    ) -> Outcome<Option<(u64, u32)>> {
        let data = data.clone();
        let body = |action| Body::Extent { request_id: None, file, extent, action };
        let put = match place {
            WritePlace::At(offset) => self.query_node(extent.node, body(ExtentAction::Write { offset, data })).await,
            WritePlace::End => self.mutate_at_host(extent.node, file, &body(ExtentAction::Append { data })).await,
        };
        match put.and_then(Answer::extent_written) {
            Ok(ExtentWrite { offset, length }) => Ok(Some((offset, length))),
            Err(Refusal::Stale(_)) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// Has the node of the bytes finish an answer to a query. If they have left that node, the
    /// query is sent once more.
    pub(crate) async fn finish_query(
        &self,
        partition: PartitionId,
        command: Command,
        mut hosted: HostedAnswer,
    ) -> Outcome<Answer> {
        let mut retry = RetryState::new(self.router().retry_policy);
        for _ in 0..PLANS_MAX {
            let HostedAnswer { node, file, answer } = hosted;
            let body = Body::Finish { request_id: None, file, command: Box::new(command.clone()), answer };
            match self.query_node(node, body).await {
                // Most likely its node has just tried to demote it.
                Err(refusal @ Refusal::Stale(_)) => retry.pause_after(refusal).await?,
                outcome => return outcome,
            }
            match self.ask_settled(partition, command.clone()).await? {
                Answer::Hosted(again) => hosted = again,
                answer => return Ok(answer),
            }
        }
        Err(Refusal::Busy(command.object()))
    }

    /// Has the node of the bytes finish an answer to a change. If they have left that node, the
    /// change is done once more: what it does to an inode is the same then.
    pub(crate) async fn finish_mutation(
        &self,
        home: PartitionId,
        partition: PartitionId,
        body: &Body,
        mut hosted: HostedAnswer,
    ) -> Outcome<Answer> {
        let mut retry = RetryState::new(self.router().retry_policy);
        for _ in 0..PLANS_MAX {
            let HostedAnswer { node, file, answer } = hosted.clone();
            let opened = matches!(*answer, Answer::Opened(_));
            let command = Box::new(command_of(body).clone());
            let finish = Body::Finish { request_id: None, file, command, answer };
            match (self.mutate_at_host(node, file, &finish).await, opened) {
                (Err(refusal @ Refusal::Stale(_)), _) => {
                    // Most likely its node has just tried to demote it.
                    if let Err(refusal) = retry.pause_after(refusal).await {
                        return self.undo_open(opened, file, refusal);
                    }
                }
                (Err(refusal), true) => return self.undo_open(opened, file, refusal),
                (outcome, _) => return outcome,
            }
            if !opened {
                match self.mutate_raw(home, partition, body).await? {
                    Answer::Hosted(again) => hosted = again,
                    answer => return Ok(answer),
                }
            }
        }
        Err(Refusal::Busy(command_of(body).object()))
    }

    /// Closes a file whose open cannot be finished.
    fn undo_open(&self, opened: bool, file: FileId, refusal: Refusal) -> Outcome<Answer> {
        if opened {
            self.mutate_no_wait(file.partition(), Command::close(file));
        }
        Err(refusal)
    }

    /// Sends the node of a file's bytes a change of them; it is done once.
    async fn mutate_at_host(&self, node: NodeId, file: FileId, body: &Body) -> Outcome<Answer> {
        let none = || Refusal::invalid(Object::Pool, "the pool has no such partition");
        for _ in 0..SESSIONS_MAX {
            let state = self.session_state();
            let number = state.sequences.next(state.id, file.partition()).ok_or_else(none)?;
            match self.router().send_to_node(&state, node, &with_request_id(body, Some(&number))).await {
                Err(Refusal::SessionEnded) => {}
                outcome => return outcome,
            }
            self.renew_session(&state).await?;
        }
        Err(Refusal::SessionEnded)
    }

    /// Does what a node in this process needs other nodes for, about bytes, opens and locks of its
    /// host. Returns how many things were done; the others stay with the node.
    ///
    /// # Errors
    /// The last refusal because of which something could not be done yet.
    pub async fn do_host_work(&self, node: &Node) -> Outcome<u64> {
        self.do_host_tasks(node, node.take_host_work()).await
    }

    /// Does the work that comes while a file is copied, and goes on for ever.
    pub(crate) async fn do_short_host_work(&self, node: &Node) -> Infallible {
        loop {
            // Boxed: a task may copy a file, which does such work.
            if let Err(refusal) = Box::pin(self.do_host_tasks(node, node.take_short_host_work())).await {
                tracing::debug!(%refusal, "work of a host is tried again after a file is copied");
            }
            node.host_work_added().await;
        }
    }

    async fn do_host_tasks(&self, node: &Node, tasks: impl Iterator<Item = HostWork>) -> Outcome<u64> {
        let (mut done, mut outcome) = (0, Ok(()));
        let mut taken = TakenHostWork { node, left: tasks.collect() };
        while let Some(work) = taken.left.front().copied() {
            let result = self.do_host_task(node, work).await;
            taken.left.pop_front();
            match result {
                Err(refusal) if is_temporary(&refusal) => {
                    node.put_back_host_work(work);
                    if !matches!(refusal, Refusal::Busy(_)) {
                        outcome = Err(refusal);
                    }
                    continue;
                }
                Err(refusal) => tracing::debug!(%refusal, ?work, "work of a host is not needed any more"),
                Ok(()) => done += 1,
            }
            node.end_host_work(work);
        }
        outcome.map(|()| done)
    }

    async fn do_host_task(&self, node: &Node, work: HostWork) -> Outcome<()> {
        match work {
            HostWork::NoteUnused { node: other, file } => {
                match self.query_node(other, Body::NoteUnused { file }).await {
                    // Its memory has gone with it.
                    Err(_) if node.has_departed(other) => Ok(()),
                    noted => noted?.done(),
                }
            }
            HostWork::Settle(file) => self.settle_hosted(node, file).await,
            HostWork::EndSession { node: other, session, left } => {
                match self.end_moved_session(other, session, left).await {
                    // Its partitions have moved on, and it may not have told where.
                    Err(_) if self.has_left(other).await => {}
                    ended => return ended,
                }
                let present: Vec<NodeId> = self.router().nodes.links().iter().map(|link| link.node).collect();
                for other in present.into_iter().filter(|other| *other != node.id()) {
                    self.end_moved_session(other, session, left).await?;
                }
                Ok(())
            }
            HostWork::Release { file, session, .. } => {
                match self.mutate(file.partition(), Command::release(file, session, None)).await {
                    Ok(deleted) => self.purge(deleted).await,
                    // A session may have several opens of a file: a second try might end another
                    // one.
                    Err(Refusal::OutcomeUnknown(_)) => {}
                    Err(refusal) => return Err(refusal),
                }
                Ok(())
            }
            HostWork::Unlock { file, owner } => {
                for lock in Lock::all_released(owner) {
                    self.mutate(file.partition(), Command::lock(file, lock, false)).await?;
                }
                Ok(())
            }
        }
    }

    async fn end_moved_session(&self, node: NodeId, session: Session, left: bool) -> Outcome<()> {
        for deleted in self.query_node(node, Body::EndMovedSession { session, left }).await?.closed()? {
            self.purge(Some(deleted)).await;
        }
        Ok(())
    }

    /// Has the bytes of a file that are at this node leave it, or frees them if the file is gone.
    async fn settle_hosted(&self, node: &Node, file: FileId) -> Outcome<()> {
        if let Some(HostedBytes::Bound(_)) = node.hosted_bytes(file) {
            match self.stat(file).await {
                Err(Refusal::NotFound(_)) => node.end_hosting(file),
                found => drop(found?),
            }
            return Ok(());
        }
        // Also if its partition has come here: the end of an earlier try may have to be sent again.
        self.end_evacuation_again(node, file).await?;
        if self.demote_hosted(node, file).await? { Ok(()) } else { self.evacuate(node, file).await }
    }

    /// Demotes a small file; false if it is too large or has stripes.
    async fn demote_hosted(&self, node: &Node, file: FileId) -> Outcome<bool> {
        let Some(HostedDemotion { extent, bytes, times }) = node.begin_demotion(file)? else { return Ok(false) };
        match self.send_once(Command::demote(file, extent, bytes, times).command).await {
            Ok(()) => node.end_demotion(file, true),
            // It may be done, or be done later, so the extent stays as it is.
            Err(refusal) if !is_definite(&refusal) => return Err(refusal),
            // Open, or gone, or done by an earlier try.
            Err(Refusal::Stale(_) | Refusal::NotFound(_)) => {
                let is_done = !self.is_hosted_at(file, extent).await?;
                node.end_demotion(file, is_done);
            }
            Err(Refusal::AlreadyPlaced(_)) => {
                node.end_demotion(file, false);
                return Ok(false);
            }
            Err(refusal) => {
                node.end_demotion(file, false);
                return Err(refusal);
            }
        }
        Ok(true)
    }

    /// Sends a change of a file whose extent is frozen. Once: the extent cannot be used meanwhile.
    pub(crate) async fn send_once(&self, command: Command) -> Outcome<()> {
        let Object::File(file) = command.object() else { unreachable!("{command:?} is about a file") };
        let (home, body) = (file.partition(), Body::Meta { request_id: None, command });
        self.send_with_id(home, home, &body).await.and_then(Answer::done)
    }

    /// True if a file exists and has this extent, whether or not that can be used now.
    pub(crate) async fn is_hosted_at(&self, file: FileId, extent: Extent) -> Outcome<bool> {
        let TypedCommand { command, .. } = Command::stat(file);
        match self.ask_settled(file.partition(), command).await {
            Ok(Answer::Hosted(HostedAnswer { answer, .. })) => {
                Ok(answer.attributes().is_ok_and(|found| found.extent == Some(extent)))
            }
            Ok(answer) => Ok(answer.attributes()?.extent == Some(extent)),
            Err(Refusal::NotFound(_)) => Ok(false),
            Err(refusal) => Err(refusal),
        }
    }
}

/// Work that was taken from a node. It goes back if nobody does it any more.
struct TakenHostWork<'a> {
    node: &'a Node,
    /// The first of it is being done.
    left: VecDeque<HostWork>,
}

impl Drop for TakenHostWork<'_> {
    fn drop(&mut self) {
        for (at, work) in self.left.drain(..).enumerate() {
            // A second try might end another open of the same session.
            match work {
                HostWork::Release { .. } if at == 0 => self.node.end_host_work(work),
                _ => self.node.put_back_host_work(work),
            }
        }
    }
}

/// True if what was refused was not done, and will not be.
pub fn is_definite(refusal: &Refusal) -> bool {
    !matches!(refusal, Refusal::OutcomeUnknown(_) | Refusal::SessionEnded | Refusal::Unavailable { .. })
}

/// True if what was refused may be done later.
fn is_temporary(refusal: &Refusal) -> bool {
    matches!(
        refusal,
        Refusal::Busy(_)
            | Refusal::NoSpace(_)
            | Refusal::OutcomeUnknown(_)
            | Refusal::SessionEnded
            | Refusal::Unavailable { .. }
    )
}
