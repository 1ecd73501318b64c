//! A call: numbered, routed by the map, sent until it is answered.
//!
//! The future of every verb contains the future of a call, and is moved as a whole. So rare cases
//! are boxed, and no answer is kept across an await: each would enlarge all of those futures.

use crate::{
    Client, Connection, Patience,
    client::at_once,
    life::{Life, SESSIONS_MAX},
    meet::Meetings,
    numbers::Number,
    retry::{Retry, Step},
};
use futures_util::future::Either;
use node::{Reply, sleep_until};
use placement::{FileId, Layout, NodeId, PartitionId, PartitionMap, StripeNo};
use std::sync::Arc;
use wire::{
    Answer, Body, Command, Credentials, Failure, Name, Object, Outcome, Refusal, Request, SpaceShortage, StripeAction,
    WalkAction,
};

impl Client {
    /// Sends a partition a command that changes nothing. If intents hold what is asked for, those
    /// that are committed are settled first.
    pub(crate) fn ask(&self, partition: PartitionId, command: Command) -> impl Future<Output = Outcome<Answer>> {
        self.ask_via(Via::Plain, partition, command)
    }

    pub(crate) async fn ask_once(&self, partition: PartitionId, command: Command) -> Outcome<Answer> {
        debug_assert!(!command.is_mutation(), "{command:?} needs a number");
        self.send(partition, &Body::Meta { request_id: None, command }).await
    }

    /// Like [`Self::ask`], at the end of a path walk.
    pub(crate) fn ask_via(
        &self,
        via: Via<'_>,
        partition: PartitionId,
        command: Command,
    ) -> impl Future<Output = Outcome<Answer>> {
        debug_assert!(!command.is_mutation(), "{command:?} needs a number");
        let (home, body) = via.body(partition, command);
        async move {
            match self.send(home, &body).await {
                Ok(Answer::Unsettled { .. }) | Err(Refusal::LockedByIntent { .. }) => {}
                outcome => return outcome,
            }
            Box::pin(self.ask_settled(partition, command_of(body))).await
        }
    }

    /// Sends a partition a command that changes something; it is done once. A command that is
    /// refused because its target is busy, or held by an intent, is retried for a while.
    pub(crate) fn change(&self, partition: PartitionId, command: Command) -> impl Future<Output = Outcome<Answer>> {
        self.change_via(Via::Plain, partition, command)
    }

    /// Like [`Self::change`], at the end of a path walk.
    pub(crate) fn change_via(
        &self,
        via: Via<'_>,
        partition: PartitionId,
        command: Command,
    ) -> impl Future<Output = Outcome<Answer>> {
        debug_assert!(command.is_mutation(), "{command:?} needs no number");
        let (home, body) = via.body(partition, command);
        async move {
            let refusal = match self.send_numbered(home, partition, &body).await {
                Err(refusal @ (Refusal::Busy(_) | Refusal::LockedByIntent { .. })) => refusal,
                outcome => return outcome,
            };
            Box::pin(self.change_again(home, partition, &body, refusal)).await
        }
    }

    /// Sends the command by [`Self::change_via`] or [`Self::ask_via`], depending on whether it
    /// changes anything.
    pub(crate) fn do_via(
        &self,
        via: Via<'_>,
        partition: PartitionId,
        command: Command,
    ) -> impl Future<Output = Outcome<Answer>> {
        if command.is_mutation() {
            Either::Left(self.change_via(via, partition, command))
        } else {
            Either::Right(self.ask_via(via, partition, command))
        }
    }

    async fn change_again(
        &self,
        home: PartitionId,
        partition: PartitionId,
        body: &Body,
        refusal: Refusal,
    ) -> Outcome<Answer> {
        let (mut retry, meetings) = (Retry::new(self.0.patience), Meetings::new(self.0.patience));
        let mut outcome = Err(refusal);
        loop {
            match outcome {
                Err(Refusal::LockedByIntent { intent }) => self.meet(intent, partition, &meetings).await?,
                Err(Refusal::Busy(_)) => {
                    let Some(pause) = retry.pause() else { return outcome };
                    sleep_until(node::now() + pause).await;
                }
                outcome => return outcome,
            }
            outcome = self.send_numbered(home, partition, body).await;
        }
    }

    /// Like [`Self::change`], without resolving conflicts with intents: `LockedByIntent` is
    /// returned to the caller.
    pub(crate) async fn change_unheld(&self, partition: PartitionId, command: Command) -> Outcome<Answer> {
        debug_assert!(command.is_mutation(), "{command:?} needs no number");
        let (home, body) = Via::Plain.body(partition, command);
        let mut retry = Retry::new(self.0.patience);
        loop {
            let outcome = self.send_numbered(home, partition, &body).await;
            if !matches!(outcome, Err(Refusal::Busy(_))) {
                return outcome;
            }
            let Some(pause) = retry.pause() else { return outcome };
            sleep_until(node::now() + pause).await;
        }
    }

    /// Sends a change once and does not wait for its answer: for destructors, which cannot wait.
    pub(crate) fn change_without_waiting(&self, partition: PartitionId, command: Command) {
        let Ok(life) = self.life() else { return };
        let Some(number) = life.numbers.begin(life.session, partition) else { return };
        let Ok((_, node, epoch)) = self.0.way(partition) else { return };
        let body = Body::Meta { request_id: Some(number.request_id()), command };
        let request = Request { epoch, session: life.session, skip_ack: true, partition, body };
        if !matches!(at_once(node.call(request)), Some(Ok(_))) {
            tracing::debug!("a change that nobody waits for was not answered at once");
        }
    }

    /// Sends an action on a stripe to the partition that has it.
    pub(crate) async fn stripe(
        &self,
        file: FileId,
        layout: Layout,
        stripe: StripeNo,
        action: StripeAction,
    ) -> Outcome<Answer> {
        let partition = layout.partition(self.0.seed, file, stripe, self.0.partitions);
        self.send(partition, &Body::Stripe { file, stripe, action }).await
    }

    /// Sends a request without a request id. If the session has ended, the request is sent in the
    /// next one.
    pub(crate) async fn send(&self, partition: PartitionId, body: &Body) -> Outcome<Answer> {
        for _ in 0..SESSIONS_MAX {
            let life = self.life()?;
            match self.send_in(&life, partition, body, None).await {
                Err(Refusal::SessionEnded) => {}
                outcome => return outcome,
            }
            self.next_life(&life).await?;
        }
        Err(Refusal::SessionEnded)
    }

    /// Sends a change of a partition to `home`, under a request id. If the session ended before the
    /// change was done, it is sent in the next one, under another id.
    pub(crate) async fn send_numbered(
        &self,
        home: PartitionId,
        partition: PartitionId,
        body: &Body,
    ) -> Outcome<Answer> {
        let none = || Refusal::invalid(Object::Pool, "the pool has no such partition");
        for _ in 0..SESSIONS_MAX {
            let life = self.life()?;
            let number = life.numbers.begin(life.session, partition).ok_or_else(none)?;
            match self.send_in(&life, home, body, Some(&number)).await {
                Err(Refusal::SessionEnded) => {}
                outcome => return outcome,
            }
            self.next_life(&life).await?;
        }
        Err(Refusal::SessionEnded)
    }

    /// Sends until an answer comes. Refused as `SessionEnded` if the change was not done and its
    /// session has ended.
    async fn send_in(
        &self,
        life: &Life,
        partition: PartitionId,
        body: &Body,
        number: Option<&Number<'_>>,
    ) -> Outcome<Answer> {
        if self.0.nodes.is_any_silent() {
            Box::pin(self.pass(partition, body)).await?;
        }
        let (home, reply) = self.call(life, partition, body, number)?;
        let failure = match reply.await {
            Ok(answer) => return Ok(answer),
            Err(Failure::Refused(Refusal::NoSpace(shortage))) => return Err(self.full(home, shortage)),
            Err(Failure::Refused(refusal)) if refusal != Refusal::SessionEnded => return Err(refusal),
            Err(failure) => failure,
        };
        Box::pin(self.send_again(life, partition, body, number, (home, failure))).await
    }

    /// Refuses at once a request to a node that is known not to answer.
    async fn pass(&self, partition: PartitionId, body: &Body) -> Outcome<()> {
        let (home, ..) = self.0.way(partition)?;
        self.0.nodes.pass(home, || self.usage_request(), || object(body)).await
    }

    /// Sends a request once; returns the node and its reply.
    fn call(
        &self,
        life: &Life,
        partition: PartitionId,
        body: &Body,
        number: Option<&Number<'_>>,
    ) -> Outcome<(NodeId, Reply)> {
        let (home, node, epoch) = self.0.way(partition)?;
        let (session, skip_ack) = (life.session, self.1);
        let request = Request { epoch, session, skip_ack, partition, body: stamped(body, number) };
        let reply = match &self.3 {
            Some(gift) if opens(body) => gift.call(node, request),
            _ => node.call(request),
        };
        Ok((home, reply))
    }

    /// Adds the node that is full to the refusal, in a pool of several.
    fn full(&self, node: NodeId, shortage: SpaceShortage) -> Refusal {
        let node = (self.0.nodes.len() > 1).then_some(node);
        Refusal::NoSpace(SpaceShortage { node, ..shortage })
    }

    /// Adds the node to the refusal of a call, and records that the node does not answer if that is
    /// why.
    fn refused_by(&self, node: NodeId, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::NoSpace(shortage) => self.full(node, shortage),
            Refusal::Unavailable { object, tries, why } => {
                self.0.nodes.silent(node, tries, &why);
                Refusal::Unavailable { object, tries, why: format!("node {node}: {why}").into() }
            }
            other => other,
        }
    }

    /// Retries a call after its first failure.
    async fn send_again(
        &self,
        life: &Life,
        partition: PartitionId,
        body: &Body,
        number: Option<&Number<'_>>,
        (mut home, mut failure): (NodeId, Failure),
    ) -> Outcome<Answer> {
        let mut retry = Retry::new(self.0.patience);
        loop {
            match retry.on(failure, || object(body)) {
                Step::Refuse(Refusal::SessionEnded) if self.greet_late(life, home).await? => {}
                Step::Refuse(Refusal::SessionEnded) if retry.is_lost() && number.is_some() => {
                    return Err(Refusal::OutcomeUnknown(object(body)));
                }
                Step::Refuse(refusal) => return Err(self.refused_by(home, refusal)),
                Step::Follow(map) => self.0.follow(map),
                Step::Again(pause) => sleep_until(node::now() + pause).await,
            }
            let reply;
            (home, reply) = self.call(life, partition, body, number)?;
            failure = match reply.await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
        }
    }
}

/// Copies a body, with its request id if it has one.
fn stamped(body: &Body, number: Option<&Number<'_>>) -> Body {
    let mut body = body.clone();
    let Some(number) = number else { return body };
    match &mut body {
        Body::Meta { request_id, .. } | Body::Extent { request_id, .. } => *request_id = Some(number.request_id()),
        Body::Walk { action: Some(then), .. } => then.request_id = Some(number.request_id()),
        _ => {}
    }
    body
}

/// True if the request opens something.
fn opens(body: &Body) -> bool {
    let command = match body {
        Body::Meta { command, .. } => command,
        Body::Walk { action: Some(then), .. } => &then.command,
        _ => return false,
    };
    matches!(
        command,
        Command::Create { open: true, .. }
            | Command::CreateTmpfile { .. }
            | Command::Open { .. }
            | Command::OpenName { .. }
    )
}

/// The command in a body that [`Via::body`] has made.
fn command_of(body: Body) -> Command {
    match body {
        Body::Meta { command, .. } => command,
        Body::Walk { action: Some(then), .. } => then.command,
        other => unreachable!("no command is in {other:?}"),
    }
}

/// The route by which a command reaches its directory.
#[derive(Clone, Copy, Debug)]
pub enum Via<'a> {
    /// By the directory's id.
    Plain,
    /// By its id, if a walk down from `top` leads to `directory` at that moment.
    Walk {
        /// The start of the walk. Its node must hold the command's partition too.
        top: FileId,
        folders: &'a [Name],
        directory: FileId,
        /// The user on whose behalf the path is walked, if permissions are to be checked.
        who: Option<&'a Credentials>,
    },
}

impl Via<'_> {
    /// The body of the request, and the partition that it is sent to.
    fn body(self, partition: PartitionId, command: Command) -> (PartitionId, Body) {
        match self {
            Self::Plain => (partition, Body::Meta { request_id: None, command }),
            Self::Walk { top, folders, directory, who } => {
                let then = Some(Box::new(WalkAction { directory, partition, request_id: None, command }));
                (
                    top.partition(),
                    Body::Walk { start: top, components: folders.to_vec(), credentials: who.cloned(), action: then },
                )
            }
        }
    }
}

/// Sends to one node until an answer comes. A newer map in a reply is passed to `follow`.
pub async fn until_answered(
    connection: &dyn Connection,
    patience: Patience,
    request: impl Fn() -> Request,
    follow: impl Fn(Arc<PartitionMap>),
) -> Outcome<Answer> {
    let mut retry = Retry::new(patience);
    loop {
        let failure = match connection.call(request()).await {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        match retry.on(failure, || Object::Pool) {
            Step::Refuse(refusal) => return Err(refusal),
            Step::Follow(map) => follow(map),
            Step::Again(pause) => sleep_until(node::now() + pause).await,
        }
    }
}

/// The object that a request is about, for messages.
fn object(body: &Body) -> Object {
    let command = match body {
        Body::Stripe { file, .. } | Body::Extent { file, .. } => return Object::File(*file),
        Body::Meta { command, .. } => command,
        Body::Walk { action: Some(then), .. } => &then.command,
        Body::Walk { start: top, .. } => return Object::File(*top),
        Body::Hello | Body::Usage | Body::Stop | Body::ProbeLease { .. } | Body::FindLeases { .. } => {
            return Object::Pool;
        }
    };
    match command {
        Command::Lookup { parent, name }
        | Command::Create { parent, name, .. }
        | Command::OpenName { parent, name, .. }
        | Command::GetObject { parent, name, .. }
        | Command::PutObject { parent, name, .. }
        | Command::DeleteObject { parent, name, .. }
        | Command::RemoveDirectory { parent, name }
        | Command::Unlink { parent, name } => Object::entry(*parent, name),
        Command::Rename { from, .. } => Object::entry(from.parent, &from.name),
        Command::Stat { file }
        | Command::Read { file, .. }
        | Command::GetFile { file, .. }
        | Command::Unreserve { file }
        | Command::Xattr { file, .. }
        | Command::Xattrs { file }
        | Command::SetXattr { file, .. }
        | Command::RemoveXattr { file, .. }
        | Command::TestLock { file, .. }
        | Command::Lock { file, .. }
        | Command::Allocate { file, .. }
        | Command::Place { file, .. }
        | Command::UnownedStripes { file, .. }
        | Command::Placement { file }
        | Command::Seek { file, .. }
        | Command::Write { file, .. }
        | Command::Open { file, .. }
        | Command::Close { file }
        | Command::Change { file, .. } => Object::File(*file),
        _ => Object::Pool,
    }
}
