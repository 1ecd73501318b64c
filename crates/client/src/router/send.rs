//! A request: routed by the map, sent until it is answered.
//!
//! The future of every verb contains the future of a request, and is moved as a whole. So rare
//! cases are boxed, and no answer is kept across an await: each would enlarge all of those futures.

use crate::{
    Connection, RetryPolicy,
    client::{CallOptions, poll_now},
    router::{
        Router,
        nodes::NodeLink,
        retry::{RetryDecision, RetryState},
        sequence::SequenceNumber,
        session::SessionState,
    },
};
use node::{ReplyFuture, sleep_until};
use placement::{Epoch, NodeId, PartitionId};
use std::time::Duration;
use tracing::{Level, Span, span_enabled, trace_span};
use wire::{Answer, Body, Command, Failure, Object, Outcome, Refusal, Request, SpaceShortage, codec::begins_stripe};

/// A request of one session: where it goes, and what it asks for.
#[derive(Clone, Copy)]
pub struct Outgoing<'a> {
    pub state: &'a SessionState,
    pub options: &'a CallOptions,
    pub partition: PartitionId,
    pub body: &'a Body,
    /// Its number, if it changes something.
    pub number: Option<&'a SequenceNumber<'a>>,
}

impl Router {
    /// Sends until an answer comes. Refused as `SessionEnded` if the change was not done and its
    /// session has ended.
    pub async fn send(&self, outgoing: Outgoing<'_>) -> Outcome<Answer> {
        let Some((node, reply)) = self.call_if_ready(outgoing) else {
            return Box::pin(self.send_when_ready(outgoing)).await;
        };
        let failure = match reply.await {
            Ok(answer) => return Ok(answer),
            Err(Failure::Refused(Refusal::NoSpace(shortage))) => return Err(self.no_space_refusal(node, shortage)),
            Err(Failure::Refused(refusal)) if !is_resent(&refusal) => return Err(refusal),
            Err(failure) => failure,
        };
        Box::pin(self.resend_or_move(outgoing, node, failure)).await
    }

    /// Sends a request once. `None` if its node is not known, has not heard of the session yet, or
    /// may not answer, or if hellos are due before.
    fn call_if_ready(&self, outgoing: Outgoing<'_>) -> Option<(NodeId, ReplyFuture)> {
        if self.nodes.is_any_unavailable() || self.due_hellos.any() {
            return None;
        }
        let (home, epoch) = self.map.read().entry(outgoing.partition).map(|entry| (entry.server, entry.epoch))?;
        let link = self.nodes.link(home).filter(|link| outgoing.state.has_greeted(link))?;
        Some((home, call(link, epoch, outgoing)))
    }

    /// Sends a request to a node that is told of the session before, or may not answer.
    async fn send_when_ready(&self, outgoing: Outgoing<'_>) -> Outcome<Answer> {
        if self.due_hellos.any() {
            self.say_due_hellos().await;
        }
        let home = self.home(outgoing.partition);
        match (self.send_by_map(outgoing).await, home) {
            (Err(refusal @ Refusal::Unavailable { .. }), Some(home)) => {
                self.send_if_moved(outgoing, home, refusal).await
            }
            (outcome, _) => outcome,
        }
    }

    async fn send_by_map(&self, outgoing: Outgoing<'_>) -> Outcome<Answer> {
        self.admit(outgoing).await?;
        let (link, epoch) = self.greeted_link_to(outgoing.state, outgoing.partition).await?;
        match call(link, epoch, outgoing).await {
            Ok(answer) => Ok(answer),
            Err(failure) => self.resend(outgoing, link, failure).await,
        }
    }

    /// The node that has a partition, with the epoch of its entry; it knows the session. One that
    /// turns out to have left is not waited for.
    async fn greeted_link_to(&self, state: &SessionState, partition: PartitionId) -> Outcome<(&NodeLink, Epoch)> {
        loop {
            let (link, epoch) = self.link_to(partition)?;
            if state.has_greeted(link) {
                return Ok((link, epoch));
            }
            match self.greet(state, link).await {
                Ok(()) => return Ok((link, epoch)),
                Err(_) if !link.is_present() && self.home(partition) != Some(link.node) => {}
                Err(refusal) => return Err(refusal),
            }
        }
    }

    async fn resend_or_move(&self, outgoing: Outgoing<'_>, node: NodeId, failure: Failure) -> Outcome<Answer> {
        let link = self.nodes.link(node).expect("a node that was called stays known");
        match self.resend(outgoing, link, failure).await {
            Err(refusal @ Refusal::Unavailable { .. }) => self.send_if_moved(outgoing, node, refusal).await,
            outcome => outcome,
        }
    }

    /// Sends a request to the node that has its partition by now, if that is another one than
    /// `tried`, which is unavailable.
    async fn send_if_moved(&self, outgoing: Outgoing<'_>, tried: NodeId, refusal: Refusal) -> Outcome<Answer> {
        if let Some(link) = self.nodes.link(tried) {
            self.learn_from_others(outgoing.state, link).await;
        }
        match self.home(outgoing.partition) {
            Some(home) if home != tried => match self.send_by_map(outgoing).await {
                // It may have been executed at `tried`.
                Err(Refusal::SessionEnded) if outgoing.number.is_some() => {
                    Err(Refusal::OutcomeUnknown(request_object(outgoing.body)))
                }
                outcome => outcome,
            },
            _ => Err(refusal),
        }
    }

    /// Refuses at once a request to a node that is known not to answer.
    async fn admit(&self, Outgoing { partition, body, .. }: Outgoing<'_>) -> Outcome<()> {
        let (link, _) = self.link_to(partition)?;
        self.nodes.admit(link, || self.usage_request(), || request_object(body)).await
    }

    /// Sends a change once and does not wait for its answer: for destructors, which cannot wait.
    pub fn send_no_wait(&self, state: &SessionState, partition: PartitionId, command: Command) {
        let Some(number) = state.sequences.next(state.id, partition) else { return };
        let Ok((link, epoch)) = self.link_to(partition) else { return };
        let body = Body::Meta { request_id: Some(number.request_id()), command };
        let request = Request { epoch, session: state.id, skip_ack: true, partition, body };
        if !matches!(poll_now(link.connection.call(request)), Some(Ok(_))) {
            tracing::debug!("a change that nobody waits for was not answered at once");
        }
    }

    /// Sends a node a request that concerns none of its partitions. Refused as `SessionEnded` if
    /// the session has ended there.
    pub async fn send_to_node(&self, state: &SessionState, node: NodeId, body: &Body) -> Outcome<Answer> {
        let why = || format!("node {node} has left the pool, or is not known here").into();
        let unknown = || Refusal::Unavailable { object: request_object(body), tries: 0, why: why() };
        let link = match self.nodes.link(node) {
            Some(link) => link,
            None => Box::pin(self.find_link(state, node)).await.ok_or_else(unknown)?,
        };
        self.nodes.admit(link, || self.usage_request(), || Object::Pool).await?;
        if !state.has_greeted(link) {
            Box::pin(self.greet(state, link)).await?;
        }
        let request = || {
            let (epoch, session, partition) = (Epoch::FIRST, state.id, PartitionId(0));
            Request { epoch, session, skip_ack: false, partition, body: body.clone() }
        };
        let answered = call_until_answered(&*link.connection, self.retry_policy, request).await;
        answered.map_err(|refusal| self.refusal_from(link, refusal))
    }

    /// Asks for the usage of a node: a request that needs no session, and so a probe too.
    pub fn usage_request(&self) -> Request {
        let (epoch, session, partition) = (Epoch::FIRST, self.session_state().id, PartitionId(0));
        Request { epoch, session, skip_ack: false, partition, body: Body::Usage }
    }

    /// Adds the node that is full to the refusal, in a pool of several.
    fn no_space_refusal(&self, node: NodeId, shortage: SpaceShortage) -> Refusal {
        let node = (self.nodes.len() > 1).then_some(node);
        Refusal::NoSpace(SpaceShortage { node, ..shortage })
    }

    /// Adds the node to the refusal of a call, and records that the node does not answer if that is
    /// why.
    pub fn refusal_from(&self, link: &NodeLink, refusal: Refusal) -> Refusal {
        match refusal {
            Refusal::NoSpace(shortage) => self.no_space_refusal(link.node, shortage),
            Refusal::Unavailable { object, tries, why } => {
                self.nodes.record_outage(link, tries, &why);
                Refusal::Unavailable { object, tries, why: format!("node {}: {why}", link.node).into() }
            }
            other => other,
        }
    }

    /// Retries a request after its first failure.
    async fn resend(&self, outgoing: Outgoing<'_>, mut link: &NodeLink, mut failure: Failure) -> Outcome<Answer> {
        let Outgoing { state, partition, body, number, .. } = outgoing;
        let mut retry = RetryState::new(self.retry_policy);
        loop {
            let is_away = matches!(failure, Failure::Unreachable(_));
            match retry.on(failure, || request_object(body)) {
                RetryDecision::Refuse(Refusal::SessionEnded) if retry.is_lost() && number.is_some() => {
                    return Err(Refusal::OutcomeUnknown(request_object(body)));
                }
                RetryDecision::Refuse(refusal) => return Err(self.refusal_from(link, refusal)),
                RetryDecision::Learn(moved) => {
                    let is_apart = has_stripe_elsewhere(body, partition, moved.partition);
                    self.learn_from(link, (*moved).clone()).await?;
                    if is_apart {
                        // If it is moving just now, the caller would try again and again.
                        sleep_until(node::now() + APART_PAUSE).await;
                        return Err(Refusal::Moved(moved));
                    }
                }
                RetryDecision::Resend(pause) => {
                    if is_away {
                        self.learn_from_others(state, link).await;
                    }
                    sleep_until(node::now() + pause).await;
                }
            }
            let epoch;
            (link, epoch) = self.greeted_link_to(state, partition).await?;
            failure = match call(link, epoch, outgoing).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => failure,
            };
        }
    }
}

/// True if the request brings the bytes of a stripe that belongs into another partition, which has
/// moved: it must be sent without them.
fn has_stripe_elsewhere(body: &Body, partition: PartitionId, moved: PartitionId) -> bool {
    let target = if let Body::Walk { action: Some(action), .. } = body { action.partition } else { partition };
    moved != partition && moved != target && begins_stripe(body).is_some_and(|first| !first.is_empty())
}

/// Pause before a request is sent without the bytes of a stripe.
const APART_PAUSE: Duration = Duration::from_millis(5);

/// Sends a request once.
fn call(
    link: &NodeLink,
    epoch: Epoch,
    Outgoing { state, options, partition, body, number }: Outgoing<'_>,
) -> ReplyFuture {
    let (session, skip_ack) = (state.id, options.skip_ack);
    let request = Request { epoch, session, skip_ack, partition, body: with_request_id(body, number) };
    if span_enabled!(Level::TRACE) {
        let span = call_span(link.node, &request);
        return span.in_scope(|| call_node(&*link.connection, options, request)).in_span(span);
    }
    call_node(&*link.connection, options, request)
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "copies of request and reply would cost a small request 1 %")]
fn call_node(node: &dyn Connection, options: &CallOptions, request: Request) -> ReplyFuture {
    match &options.fd_request {
        Some(fd_request) if is_open_request(&request.body) => fd_request.call(node, request),
        _ => node.call(request),
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
pub fn with_request_id(body: &Body, number: Option<&SequenceNumber<'_>>) -> Body {
    let mut body = body.clone();
    let Some(number) = number else { return body };
    match &mut body {
        Body::Meta { request_id, .. } | Body::Extent { request_id, .. } | Body::Finish { request_id, .. } => {
            *request_id = Some(number.request_id());
        }
        Body::Walk { action: Some(then), .. } => then.request_id = Some(number.request_id()),
        _ => {}
    }
    body
}

/// True if the request opens something.
fn is_open_request(body: &Body) -> bool {
    matches!(
        body.command(),
        Some(
            Command::Create { open: true, .. }
                | Command::CreateTmpfile { .. }
                | Command::Open { .. }
                | Command::OpenName { .. }
        )
    )
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
            RetryDecision::Refuse(Refusal::SessionEnded)
                if retry.is_lost() && request().body.request_id().is_some() =>
            {
                return Err(Refusal::OutcomeUnknown(request_object(&request().body)));
            }
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
        Body::Stripe { file, .. }
        | Body::Extent { file, .. }
        | Body::Finish { file, .. }
        | Body::NoteLock { file, .. }
        | Body::NoteUnused { file } => return Object::File(*file),
        Body::Meta { command, .. } => command,
        Body::Walk { action: Some(then), .. } => &then.command,
        Body::Walk { start: top, .. } => return Object::File(*top),
        Body::Hello
        | Body::Usage
        | Body::Stop
        | Body::ProbeLease { .. }
        | Body::FindLeases { .. }
        | Body::EndSession { .. }
        | Body::EndMovedSession { .. }
        | Body::Move { .. }
        | Body::Manage { .. }
        | Body::Workers => return Object::Pool,
    };
    command.object()
}
