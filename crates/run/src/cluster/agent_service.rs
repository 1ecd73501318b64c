//! The service of an agent: orders come from the workers of its host, and outcomes go back through
//! the worker that came last.
//!
//! Outcomes are kept until the run has acknowledged them. A worker or the whole Dask cluster may
//! die meanwhile: the next worker that connects gets them again. While none is there, or nothing
//! comes through it, lines go through the pool.

use super::mailbox::Mailbox;
use super::messages::{AgentReady, BEAT, FromAgent, SILENCE, ToAgent, line};
use crate::attempt::Environment;
use crate::host_runner::{AttemptKey, HostRunner};
use crate::order::AttemptOrder;
use crate::outcome::{AttemptFailure, AttemptOutcome};
use flow::DataId;
use report::ReasonKind;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::future::poll_fn;
use std::process::Child;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

/// Time that attempts get to end when the run is over, beyond their grace.
const END_WAIT: Duration = Duration::from_secs(20);

/// Time that the last line may take.
const TELL_WAIT: Duration = Duration::from_secs(2);

/// Interval between two looks at whether copies of inputs should go for the space of the node.
const RELIEF: Duration = Duration::from_millis(250);

/// Serves the orders of one run on one host.
#[derive(Debug)]
pub struct AgentService {
    listener: UnixListener,
    runner: HostRunner,
    /// The message of this host when it began to serve.
    ready: AgentReady,
    /// Inputs that it has itself.
    same_inputs: HashSet<DataId>,
    /// Variables that replace those of workers.
    fixed: BTreeMap<String, String>,
    orphan_wait: Duration,
    /// Lines to each connection, by its number.
    connections: HashMap<u64, ConnectedWorker>,
    /// The connection that gets the outcomes: the last one that said hello.
    listening: Option<u64>,
    /// Tasks that write to connections.
    senders: JoinSet<()>,
    /// Outcomes that are not acknowledged yet, with their numbers.
    outcomes: VecDeque<(u64, String)>,
    /// Attempts that have ended. Kept to the end: an order may come again at any time, and its
    /// attempt must not write once more what others read.
    ended: HashSet<AttemptKey>,
    /// Attempts that were stopped before their orders came.
    stopped: HashSet<AttemptKey>,
    next_number: u64,
    /// Environment of the worker that came last, for orders that come through the pool.
    environment: Arc<Environment>,
    /// Letters through the pool; `None` without one, and while they are exchanged.
    mailbox: Option<Mailbox>,
    exchanging: JoinSet<(Mailbox, Vec<String>)>,
    /// Time of the last line of a worker.
    last_line: Instant,
    /// Time of the last line of the run, by whatever way.
    last_heard: Instant,
    /// Time of the run's last beat, by the run's clock.
    run_beat: u64,
    /// True if the run waits for a beat.
    is_asked: bool,
    /// True when a worker, or the run itself, has ever connected.
    met: bool,
    over: bool,
}

/// Time without any connection after which an agent gives up: the run was given up before it
/// connected.
const FIRST_WAIT: Duration = Duration::from_mins(1);

/// Number that stands for the pool among the connections.
const MAILBOX: u64 = 0;

/// A worker's connection.
#[derive(Debug)]
struct ConnectedWorker {
    lines: UnboundedSender<String>,
    environment: Arc<Environment>,
}

/// A line of a connection, or its end.
type Received = (u64, Option<String>);

impl AgentService {
    /// A service at a socket. Must be called within a tokio runtime.
    pub fn new(
        listener: UnixListener,
        runner: HostRunner,
        ready: AgentReady,
        fixed: BTreeMap<String, String>,
        orphan_wait: Duration,
    ) -> Self {
        Self {
            listener,
            runner,
            same_inputs: ready.same_inputs.iter().copied().collect(),
            ready,
            fixed,
            orphan_wait,
            connections: HashMap::new(),
            listening: None,
            senders: JoinSet::new(),
            outcomes: VecDeque::new(),
            ended: HashSet::new(),
            stopped: HashSet::new(),
            next_number: 1,
            environment: Arc::default(),
            mailbox: None,
            exchanging: JoinSet::new(),
            last_line: Instant::now(),
            last_heard: Instant::now(),
            run_beat: 0,
            is_asked: false,
            met: false,
            over: false,
        }
    }

    /// Lets lines go through the pool while no worker brings them.
    #[must_use]
    pub fn with_mailbox(self, mailbox: Option<Mailbox>) -> Self {
        Self { mailbox, ..self }
    }

    /// Serves until the run is over or is not heard of for too long, or the node has ended.
    pub async fn serve(&mut self, cancel: CancellationToken, mut node: Option<&mut Child>) {
        let (received, mut lines) = unbounded_channel();
        let mut beat = tokio::time::interval(BEAT);
        let mut relief = tokio::time::interval(RELIEF);
        let mut changes = self.runner.copies().map(|copies| copies.changes());
        let mut connection = 0;
        while !self.over {
            if std::mem::take(&mut self.is_asked) {
                beat.reset_immediately();
            }
            tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                accepted = self.listener.accept() => {
                    if let Ok((stream, _)) = accepted {
                        connection += 1;
                        self.connect(connection, stream, received.clone());
                    }
                }
                Some((from, text)) = lines.recv() => self.on_line(from, text),
                Some(exchanged) = self.exchanging.join_next() => self.on_exchanged(exchanged),
                outcome = poll_fn(|context| self.runner.poll_outcome(context)) => self.on_outcome(outcome),
                () = changed(changes.as_mut()) => self.tell_copies(),
                _ = relief.tick() => {
                    if let Some(copies) = self.runner.copies() {
                        copies.relieve();
                    }
                }
                _ = beat.tick() => {
                    // The run trusts failures that come before its question, so a beat says that
                    // the node lives.
                    if node.as_mut().is_some_and(|node| !matches!(node.try_wait(), Ok(None))) {
                        tracing::warn!("the node has ended");
                        self.over = true;
                    } else {
                        self.beat();
                    }
                }
            }
        }
        self.end().await;
    }

    fn connect(&mut self, number: u64, stream: UnixStream, received: UnboundedSender<Received>) {
        let (input, mut output) = stream.into_split();
        let (lines, mut to_send): (_, UnboundedReceiver<String>) = unbounded_channel();
        tokio::spawn(async move {
            let mut input = BufReader::new(input);
            loop {
                let mut text = String::new();
                let is_line = matches!(input.read_line(&mut text).await, Ok(length) if length > 0);
                if received.send((number, is_line.then_some(text))).is_err() || !is_line {
                    return;
                }
            }
        });
        self.senders.spawn(async move {
            while let Some(mut text) = to_send.recv().await {
                text.push('\n');
                while let Ok(more) = to_send.try_recv() {
                    text.push_str(&more);
                    text.push('\n');
                }
                if output.write_all(text.as_bytes()).await.is_err() {
                    return;
                }
            }
        });
        self.met = true;
        self.connections.insert(number, ConnectedWorker { lines, environment: Arc::default() });
    }

    fn on_line(&mut self, from: u64, text: Option<String>) {
        let Some(text) = text else {
            self.connections.remove(&from);
            if self.listening == Some(from) {
                self.listening = None;
                if let Some(other) = self.connections.keys().max().copied() {
                    self.listen_through(other);
                }
            }
            return;
        };
        self.last_line = Instant::now();
        self.on_text(from, &text);
    }

    fn on_text(&mut self, from: u64, text: &str) {
        self.last_heard = Instant::now();
        match serde_json::from_str(text) {
            Ok(message) => self.on_message(from, message),
            Err(error) => tracing::warn!("a line that is no message: {error}"),
        }
    }

    fn on_message(&mut self, from: u64, message: ToAgent) {
        match message {
            ToAgent::Hello { environment, .. } => {
                let merged = environment.into_iter().chain(self.fixed.clone()).collect::<BTreeMap<_, _>>();
                let environment = merged.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
                self.environment = Arc::new(environment);
                if let Some(worker) = self.connections.get_mut(&from) {
                    worker.environment = self.environment.clone();
                }
                self.listen_through(from);
            }
            ToAgent::Order(order) => self.on_order(from, *order),
            ToAgent::Stop(key) => self.on_stop(key),
            ToAgent::Ack(number) => self.acknowledge(number),
            ToAgent::DropCopies(unused) => self.runner.drop_copies(&unused),
            ToAgent::Beat { sent } => {
                // A letter may be read twice.
                self.is_asked |= sent > self.run_beat;
                self.run_beat = self.run_beat.max(sent);
            }
            ToAgent::End => self.over = true,
        }
    }

    /// Tells the run which copies of inputs are here.
    fn tell_copies(&self) {
        if let Some(copies) = self.runner.copies() {
            self.send(line(&FromAgent::Copies(copies.held())));
        }
    }

    /// Makes a connection the one that gets outcomes, and sends those that are not acknowledged.
    fn listen_through(&mut self, connection: u64) {
        self.listening = Some(connection);
        if let Some(worker) = self.connections.get(&connection) {
            for (_, text) in &self.outcomes {
                let _ = worker.lines.send(text.clone());
            }
            let (ready, running) = (Box::new(self.ready.clone()), self.runner.running().collect());
            let _ = worker.lines.send(line(&FromAgent::Serves { ready, running }));
        }
        self.tell_copies();
    }

    fn acknowledge(&mut self, number: u64) {
        while self.outcomes.front().is_some_and(|(first, _)| *first <= number) {
            self.outcomes.pop_front();
        }
    }

    /// Ends an attempt. Orders come by another way, so it may not be there yet.
    fn on_stop(&mut self, key: AttemptKey) {
        if self.runner.is_running(key) {
            self.runner.stop(key);
        } else if !self.ended.contains(&key) {
            self.stopped.insert(key);
        }
    }

    /// Starts an attempt. An order that comes twice is executed once.
    fn on_order(&mut self, from: u64, mut order: AttemptOrder) {
        let key = (order.task, order.attempt);
        if self.ended.contains(&key) || self.runner.is_running(key) {
            return;
        }
        if self.stopped.remove(&key) {
            let failure = AttemptFailure::new(ReasonKind::Cancelled, "the run was ended before it started");
            let failure = AttemptFailure { retry: false, ..failure };
            let blank = AttemptOutcome::blank(order.task, order.attempt);
            return self.on_outcome(AttemptOutcome { result: Err(failure), ..blank });
        }
        // A tool may look for files beside an input, so all are used where they lie, or none.
        let has_all = order.inputs.iter().all(|input| input.bound.is_none() || self.same_inputs.contains(&input.data));
        if !has_all {
            order.inputs.iter_mut().for_each(|input| input.bound = None);
        }
        let worker = self.connections.get(&from);
        let environment = worker.map_or_else(|| self.environment.clone(), |worker| worker.environment.clone());
        self.runner.start(order, environment);
    }

    fn on_outcome(&mut self, outcome: AttemptOutcome) {
        let (number, key) = (self.next_number, (outcome.task, outcome.attempt));
        self.next_number += 1;
        self.ended.insert(key);
        let text = line(&FromAgent::Ended { number, key: super::messages::key_text(key), outcome: Box::new(outcome) });
        self.outcomes.push_back((number, text.clone()));
        self.send(text);
    }

    fn send(&self, text: String) {
        if let Some(worker) = self.listening.and_then(|number| self.connections.get(&number)) {
            let _ = worker.lines.send(text);
        }
    }

    fn beat(&mut self) {
        self.runner.check_copies();
        self.send(self.beat_line());
        if self.is_cut_off()
            && let Some(mut mailbox) = self.mailbox.take()
        {
            let lines = self.letter(self.beat_line());
            self.exchanging.spawn(async move {
                let lines = mailbox.exchange(lines).await;
                (mailbox, lines)
            });
        }
        let wait = if self.met { self.orphan_wait } else { self.orphan_wait.min(FIRST_WAIT) };
        if self.last_heard.elapsed() > wait {
            tracing::warn!("nothing of the run has come for {:.0} s", wait.as_secs_f64());
            self.over = true;
        }
    }

    fn beat_line(&self) -> String {
        line(&FromAgent::Beat { running: self.runner.running().collect(), heard: self.run_beat })
    }

    /// Returns whether no worker brings lines of the run.
    fn is_cut_off(&self) -> bool {
        self.listening.is_none() || self.last_line.elapsed() > SILENCE
    }

    /// All that the run may not know yet.
    fn letter(&self, last: String) -> Vec<String> {
        self.outcomes.iter().map(|(_, text)| text.clone()).chain([last]).collect()
    }

    fn on_exchanged(&mut self, exchanged: Result<(Mailbox, Vec<String>), JoinError>) {
        let (mailbox, lines) = exchanged.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()));
        self.mailbox = Some(mailbox);
        for text in lines {
            self.on_text(MAILBOX, &text);
        }
    }

    /// Tells that nothing is left on this host.
    pub async fn tell_over(mut self) {
        self.send(line(&FromAgent::Over));
        let tell = async {
            if let Some(exchanged) = self.exchanging.join_next().await {
                self.on_exchanged(exchanged);
            }
            let (letter, is_cut_off) = (self.letter(line(&FromAgent::Over)), self.is_cut_off());
            if let Some(mailbox) = self.mailbox.as_mut().filter(|_| is_cut_off) {
                mailbox.write(letter).await;
            }
        };
        let _ = tokio::time::timeout(TELL_WAIT, tell).await;
        let Self { connections, senders, .. } = self;
        drop(connections);
        // The lines are written when the senders have ended.
        let _ = tokio::time::timeout(TELL_WAIT, senders.join_all()).await;
    }

    /// Ends all attempts.
    async fn end(&mut self) {
        self.runner.stop_all();
        let until = tokio::time::Instant::now() + END_WAIT;
        while self.runner.running().next().is_some() {
            let ended = poll_fn(|context| self.runner.poll_outcome(context));
            match tokio::time::timeout_at(until, ended).await {
                Ok(outcome) => self.on_outcome(outcome),
                Err(_) => break,
            }
        }
        let _ = tokio::time::timeout_at(until, self.runner.close_tools()).await;
        self.runner.close();
    }
}

/// Waits for the next change of the copies; never returns without copies.
async fn changed(changes: Option<&mut watch::Receiver<()>>) {
    match changes {
        // The sender lives as long as the service.
        Some(changes) => drop(changes.changed().await),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
#[path = "agent_service_test.rs"]
mod tests;
