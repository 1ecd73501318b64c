//! A call: numbered, routed by the map, sent until it is answered.
//!
//! The future of every verb contains the future of a call, and is moved as a whole. So rare cases
//! are boxed, and no answer is kept across an await: each would enlarge all of those futures.

use crate::{
    Client, Connection, RetryPolicy,
    client::poll_now,
    conflict::ConflictBackoff,
    retry::{RetryDecision, RetryState},
    sequence::SequenceNumber,
    session::{SESSIONS_MAX, SessionState},
};
use futures_util::future::Either;
use node::{ReplyFuture, sleep_until};
use placement::{Epoch, FileId, Layout, NodeId, PartitionId, StripeNo};
use tracing::{Level, Span, span_enabled, trace_span};
use wire::{
    Answer, Body, Command, Credentials, Failure, Name, Object, Outcome, Refusal, Request, SpaceShortage, StripeAction,
    TypedCommand, WalkAction,
};

impl Client {
    /// Sends a partition a command that changes nothing. If intents hold what is asked for, those
    /// that are committed are settled first.
    pub(crate) fn query<V>(&self, partition: PartitionId, call: TypedCommand<V>) -> impl Future<Output = Outcome<V>> {
        self.query_by_route(Route::ById, partition, call)
    }

    pub(crate) async fn query_once(&self, partition: PartitionId, command: Command) -> Outcome<Answer> {
        debug_assert!(!command.is_mutation(), "{command:?} needs a number");
        self.send(partition, &Body::Meta { request_id: None, command }).await
    }

    /// Like [`Self::query`], at the end of a path walk.
    pub(crate) fn query_by_route<V>(
        &self,
        route: Route<'_>,
        partition: PartitionId,
        TypedCommand { command, take }: TypedCommand<V>,
    ) -> impl Future<Output = Outcome<V>> {
        debug_assert!(!command.is_mutation(), "{command:?} needs a number");
        let (home, body) = route.body(partition, command);
        async move {
            match self.send(home, &body).await {
                Ok(Answer::Unsettled(..)) | Err(Refusal::LockedByIntent { .. }) => {}
                outcome => return outcome.and_then(take),
            }
            Box::pin(self.query_settled(partition, into_command(body))).await.and_then(take)
        }
    }

    /// Sends a partition a command that changes something; it is done once. A command that is
    /// refused because its target is busy, or held by an intent, is retried for a while.
    pub(crate) fn mutate<V>(&self, partition: PartitionId, call: TypedCommand<V>) -> impl Future<Output = Outcome<V>> {
        self.mutate_by_route(Route::ById, partition, call)
    }

    /// Like [`Self::mutate`], at the end of a path walk.
    pub(crate) fn mutate_by_route<V>(
        &self,
        route: Route<'_>,
        partition: PartitionId,
        TypedCommand { command, take }: TypedCommand<V>,
    ) -> impl Future<Output = Outcome<V>> {
        debug_assert!(command.is_mutation(), "{command:?} needs no number");
        let (home, body) = route.body(partition, command);
        async move {
            let refusal = match self.send_with_id(home, partition, &body).await {
                Err(refusal @ (Refusal::Busy(_) | Refusal::LockedByIntent { .. })) => refusal,
                outcome => return outcome.and_then(take),
            };
            Box::pin(self.retry_mutation(home, partition, &body, refusal)).await.and_then(take)
        }
    }

    /// Sends the command by [`Self::mutate_by_route`] or [`Self::query_by_route`], depending on
    /// whether it changes anything. The answer may be that the walk stopped before its end.
    pub(crate) fn execute_by_route(
        &self,
        route: Route<'_>,
        partition: PartitionId,
        command: Command,
    ) -> impl Future<Output = Outcome<Answer>> {
        let call = TypedCommand { command, take: Ok };
        if call.command.is_mutation() {
            Either::Left(self.mutate_by_route(route, partition, call))
        } else {
            Either::Right(self.query_by_route(route, partition, call))
        }
    }

    async fn retry_mutation(
        &self,
        home: PartitionId,
        partition: PartitionId,
        body: &Body,
        refusal: Refusal,
    ) -> Outcome<Answer> {
        let (mut retry, conflicts) =
            (RetryState::new(self.inner.retry_policy), ConflictBackoff::new(self.inner.retry_policy));
        let mut outcome = Err(refusal);
        loop {
            match outcome {
                Err(Refusal::LockedByIntent { intent }) => self.resolve_conflict(intent, partition, &conflicts).await?,
                Err(Refusal::Busy(_)) => {
                    let Some(pause) = retry.pause() else { return outcome };
                    sleep_until(node::now() + pause).await;
                }
                outcome => return outcome,
            }
            outcome = self.send_with_id(home, partition, body).await;
        }
    }

    /// Like [`Self::mutate`], without resolving conflicts with intents: `LockedByIntent` is
    /// returned to the caller.
    pub(crate) async fn mutate_or_conflict<V>(&self, partition: PartitionId, call: TypedCommand<V>) -> Outcome<V> {
        let TypedCommand { command, take } = call;
        debug_assert!(command.is_mutation(), "{command:?} needs no number");
        let (home, body) = Route::ById.body(partition, command);
        let mut retry = RetryState::new(self.inner.retry_policy);
        loop {
            let outcome = self.send_with_id(home, partition, &body).await;
            if !matches!(outcome, Err(Refusal::Busy(_))) {
                return take(outcome?);
            }
            let Some(pause) = retry.pause() else { return take(outcome?) };
            sleep_until(node::now() + pause).await;
        }
    }

    /// Sends a change once and does not wait for its answer: for destructors, which cannot wait.
    pub(crate) fn mutate_no_wait<V>(&self, partition: PartitionId, TypedCommand { command, .. }: TypedCommand<V>) {
        let Ok(state) = self.session_state() else { return };
        let Some(number) = state.sequences.next(state.id, partition) else { return };
        let Ok((_, node, epoch)) = self.inner.connection_to(partition) else { return };
        let body = Body::Meta { request_id: Some(number.request_id()), command };
        let request = Request { epoch, session: state.id, skip_ack: true, partition, body };
        if !matches!(poll_now(node.call(request)), Some(Ok(_))) {
            tracing::debug!("a change that nobody waits for was not answered at once");
        }
    }

    /// Sends an action on a stripe to the partition that has it.
    pub(crate) async fn send_stripe(
        &self,
        file: FileId,
        layout: Layout,
        stripe: StripeNo,
        action: StripeAction,
    ) -> Outcome<Answer> {
        let partition = layout.partition(self.inner.seed, file, stripe, self.inner.partitions);
        self.send(partition, &Body::Stripe { file, stripe, action }).await
    }

    /// Sends a node a request that concerns none of its partitions. If the session has ended, the
    /// request is sent in the next one.
    pub(crate) async fn query_node(&self, node: NodeId, body: Body) -> Outcome<Answer> {
        let unknown = || Refusal::invalid(Object::Pool, "the pool has no node of this id");
        let connection = self.inner.nodes.get(node).ok_or_else(unknown)?;
        for _ in 0..SESSIONS_MAX {
            let state = self.session_state()?;
            self.inner.nodes.admit(node, || self.usage_request(), || Object::Pool).await?;
            let request = || {
                let (epoch, session, partition) = (Epoch::FIRST, state.id, PartitionId(0));
                Request { epoch, session, skip_ack: false, partition, body: body.clone() }
            };
            match call_until_answered(connection, self.inner.retry_policy, request).await {
                Err(Refusal::SessionEnded) if self.handshake_late(&state, node).await? => {}
                Err(Refusal::SessionEnded) => self.renew_session(&state).await?,
                outcome => return outcome.map_err(|refusal| self.refusal_from(node, refusal)),
            }
        }
        Err(Refusal::SessionEnded)
    }

    /// Sends a request without a request id. If the session has ended, the request is sent in the
    /// next one.
    pub(crate) async fn send(&self, partition: PartitionId, body: &Body) -> Outcome<Answer> {
        for _ in 0..SESSIONS_MAX {
            let state = self.session_state()?;
            match self.send_in_session(&state, partition, body, None).await {
                Err(Refusal::SessionEnded) => {}
                outcome => return outcome,
            }
            self.renew_session(&state).await?;
        }
        Err(Refusal::SessionEnded)
    }

    /// Sends a change of a partition to `home`, under a request id. If the session ended before the
    /// change was done, it is sent in the next one, under another id.
    pub(crate) async fn send_with_id(&self, home: PartitionId, partition: PartitionId, body: &Body) -> Outcome<Answer> {
        let none = || Refusal::invalid(Object::Pool, "the pool has no such partition");
        for _ in 0..SESSIONS_MAX {
            let state = self.session_state()?;
            let number = state.sequences.next(state.id, partition).ok_or_else(none)?;
            match self.send_in_session(&state, home, body, Some(&number)).await {
                Err(Refusal::SessionEnded) => {}
                outcome => return outcome,
            }
            self.renew_session(&state).await?;
        }
        Err(Refusal::SessionEnded)
    }

    /// Sends until an answer comes. Refused as `SessionEnded` if the change was not done and its
    /// session has ended.
    async fn send_in_session(
        &self,
        state: &SessionState,
        partition: PartitionId,
        body: &Body,
        number: Option<&SequenceNumber<'_>>,
    ) -> Outcome<Answer> {
        if self.inner.nodes.is_any_unavailable() {
            Box::pin(self.admit(partition, body)).await?;
        }
        let (home, reply) = self.call(state, partition, body, number)?;
        let failure = match reply.await {
            Ok(answer) => return Ok(answer),
            Err(Failure::Refused(Refusal::NoSpace(shortage))) => return Err(self.no_space_refusal(home, shortage)),
            Err(Failure::Refused(refusal)) if !is_resent(&refusal) => return Err(refusal),
            Err(failure) => failure,
        };
        Box::pin(self.resend(state, partition, body, number, (home, failure))).await
    }

    /// Refuses at once a request to a node that is known not to answer.
    async fn admit(&self, partition: PartitionId, body: &Body) -> Outcome<()> {
        let (home, ..) = self.inner.connection_to(partition)?;
        self.inner.nodes.admit(home, || self.usage_request(), || request_object(body)).await
    }

    /// Sends a request once; returns the node and its reply.
    fn call(
        &self,
        state: &SessionState,
        partition: PartitionId,
        body: &Body,
        number: Option<&SequenceNumber<'_>>,
    ) -> Outcome<(NodeId, ReplyFuture)> {
        let (home, node, epoch) = self.inner.connection_to(partition)?;
        let (session, skip_ack) = (state.id, self.options.skip_ack);
        let request = Request { epoch, session, skip_ack, partition, body: with_request_id(body, number) };
        if span_enabled!(Level::TRACE) {
            let span = call_span(home, &request);
            return Ok((home, span.in_scope(|| self.call_node(node, request)).in_span(span)));
        }
        Ok((home, self.call_node(node, request)))
    }

    #[inline(always)]
    #[expect(clippy::inline_always, reason = "copies of request and reply would cost a small request 1 %")]
    fn call_node(&self, node: &dyn Connection, request: Request) -> ReplyFuture {
        match &self.options.fd_request {
            Some(fd_request) if is_open_request(&request.body) => fd_request.call(node, request),
            _ => node.call(request),
        }
    }

    /// Adds the node that is full to the refusal, in a pool of several.
    fn no_space_refusal(&self, node: NodeId, shortage: SpaceShortage) -> Refusal {
        let node = (self.inner.nodes.len() > 1).then_some(node);
        Refusal::NoSpace(SpaceShortage { node, ..shortage })
    }

    /// Adds the node to the refusal of a call, and records that the node does not answer if that is
    /// why.
    fn refusal_from(&self, node: NodeId, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::NoSpace(shortage) => self.no_space_refusal(node, shortage),
            Refusal::Unavailable { object, tries, why } => {
                self.inner.nodes.record_outage(node, tries, &why);
                Refusal::Unavailable { object, tries, why: format!("node {node}: {why}").into() }
            }
            other => other,
        }
    }

    /// Retries a call after its first failure.
    async fn resend(
        &self,
        state: &SessionState,
        partition: PartitionId,
        body: &Body,
        number: Option<&SequenceNumber<'_>>,
        (mut home, mut failure): (NodeId, Failure),
    ) -> Outcome<Answer> {
        let mut retry = RetryState::new(self.inner.retry_policy);
        loop {
            match retry.on(failure, || request_object(body)) {
                RetryDecision::Refuse(Refusal::SessionEnded) if self.handshake_late(state, home).await? => {}
                RetryDecision::Refuse(Refusal::SessionEnded) if retry.is_lost() && number.is_some() => {
                    return Err(Refusal::OutcomeUnknown(request_object(body)));
                }
                RetryDecision::Refuse(refusal) => return Err(self.refusal_from(home, refusal)),
                RetryDecision::Learn(moved) => self.inner.learn(*moved),
                RetryDecision::Resend(pause) => sleep_until(node::now() + pause).await,
            }
            let reply;
            (home, reply) = self.call(state, partition, body, number)?;
            failure = match reply.await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
        }
    }
}

/// True if the call goes on after this refusal: elsewhere, or in another session.
fn is_resent(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::SessionEnded | Refusal::Moved(_))
}

/// The span of one attempt of a call. The node's span of the request has the same session and
/// number.
fn call_span(node: NodeId, request: &Request) -> Span {
    trace_span!(
        "call",
        node = node.0,
        kind = request.body.kind().name(),
        partition = request.partition.0,
        session = request.session.0,
        number = request.body.request_id().map(|request_id| request_id.number),
    )
}

/// Copies a body, with its request id if it has one.
fn with_request_id(body: &Body, number: Option<&SequenceNumber<'_>>) -> Body {
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
fn is_open_request(body: &Body) -> bool {
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

/// The command in a body that [`Route::body`] has made.
fn into_command(body: Body) -> Command {
    match body {
        Body::Meta { command, .. } => command,
        Body::Walk { action: Some(then), .. } => then.command,
        other => unreachable!("no command is in {other:?}"),
    }
}

/// The route by which a command reaches its directory.
#[derive(Clone, Copy, Debug)]
pub enum Route<'a> {
    /// By the directory's id.
    ById,
    /// By its id, if a walk down from `top` leads to `directory` at that moment.
    ByPath {
        /// The start of the walk. Its node must hold the command's partition too.
        top: FileId,
        names: &'a [Name],
        directory: FileId,
        /// The user on whose behalf the path is walked, if permissions are to be checked.
        credentials: Option<&'a Credentials>,
    },
}

impl Route<'_> {
    /// The body of the request, and the partition that it is sent to.
    fn body(self, partition: PartitionId, command: Command) -> (PartitionId, Body) {
        match self {
            Self::ById => (partition, Body::Meta { request_id: None, command }),
            Self::ByPath { top, names, directory, credentials } => {
                let then = Some(Box::new(WalkAction { directory, partition, request_id: None, command }));
                (
                    top.partition(),
                    Body::Walk {
                        start: top,
                        components: names.to_vec(),
                        credentials: credentials.cloned(),
                        action: then,
                    },
                )
            }
        }
    }
}

/// Sends to one node until an answer comes, a request that concerns no partition.
pub async fn call_until_answered(
    connection: &dyn Connection,
    retry_policy: RetryPolicy,
    request: impl Fn() -> Request,
) -> Outcome<Answer> {
    let mut retry = RetryState::new(retry_policy);
    loop {
        let failure = match connection.call(request()).await {
            Ok(answer) => return Ok(answer),
            Err(failure) => failure,
        };
        match retry.on(failure, || Object::Pool) {
            RetryDecision::Refuse(refusal) => return Err(refusal),
            // No request of this kind is about a partition.
            RetryDecision::Learn(moved) => return Err(Refusal::Moved(moved)),
            RetryDecision::Resend(pause) => sleep_until(node::now() + pause).await,
        }
    }
}

/// The object that a request is about, for messages.
fn request_object(body: &Body) -> Object {
    let command = match body {
        Body::Stripe { file, .. } | Body::Extent { file, .. } => return Object::File(*file),
        Body::Meta { command, .. } => command,
        Body::Walk { action: Some(then), .. } => &then.command,
        Body::Walk { start: top, .. } => return Object::File(*top),
        Body::Hello
        | Body::Usage
        | Body::Stop
        | Body::ProbeLease { .. }
        | Body::FindLeases { .. }
        | Body::EndSession { .. }
        | Body::Workers => return Object::Pool,
    };
    command.object()
}
