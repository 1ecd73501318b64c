//! An agent's service over its socket: orders run once, outcomes come until they are acknowledged,
//! and nothing of the run ends the service.

use super::AgentService;
use crate::attempt::HostContext;
use crate::checked_workflow::CheckedWorkflow;
use crate::cluster::mailbox::Mailbox;
use crate::cluster::messages::{AgentReady, BEAT, FromAgent, ToAgent, line};
use crate::host_runner::HostRunner;
use crate::layout::{AttemptPlace, RunLayout};
use crate::order::AttemptOrder;
use crate::outcome::AttemptOutcome;
use flow::TaskId;
use report::ReasonKind;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio_util::sync::CancellationToken;

/// Two tasks of a tool that prints a variable of its environment.
const FLOW: &str = r#"{"tidemill_flow": 1, "name": "f",
    "tools": [{"name": "say", "command": ["sh", "-c", "echo $WORD; echo run >> $LOG"]}],
    "elements": [], "tasks": [{"tool": "say"}, {"tool": "say"}]}"#;

fn order(task: u32, attempt: u32) -> AttemptOrder {
    let flow = CheckedWorkflow::new(flow::from_json(FLOW, "f.json").expect("read"), None).expect("right");
    let place = AttemptPlace { attempt, node: None };
    AttemptOrder::new(&flow, &RunLayout::default(), (TaskId(task), place), "/bin/sh".into(), &|_| None)
}

fn service(socket: &Path, orphan_wait: Duration) -> AgentService {
    let context = HostContext {
        workspace: None,
        tools: None,
        copies: None,
        default_cwd: "/".into(),
        grace: Duration::from_millis(100),
        memory: None,
        keep: false,
        leave_failed: false,
        filled: AtomicU64::default(),
    };
    let runner = HostRunner::new(context, u64::MAX);
    let listener = UnixListener::bind(socket).expect("bound");
    let ready = AgentReady {
        name: "a".into(),
        socket: socket.to_owned(),
        mode: report::AccessMode::None,
        line: String::new(),
        same_inputs: Vec::new(),
        memory: 0,
    };
    AgentService::new(listener, runner, ready, BTreeMap::new(), orphan_wait)
}

/// A worker's end of a connection.
struct Worker {
    lines: tokio::io::Lines<BufReader<OwnedReadHalf>>,
    output: OwnedWriteHalf,
}

impl Worker {
    async fn connect(socket: &Path, word: &str, log: &Path) -> Self {
        let (input, output) = UnixStream::connect(socket).await.expect("connected").into_split();
        let mut worker = Self { lines: BufReader::new(input).lines(), output };
        let path = std::env::var("PATH").unwrap_or_default();
        let environment = [("WORD", word.to_owned()), ("LOG", log.display().to_string()), ("PATH", path)];
        let environment = environment.map(|(name, value)| (name.to_owned(), value)).into();
        worker.tell(&ToAgent::Hello { worker: word.into(), environment, directory: "/".into() }).await;
        worker
    }

    async fn tell(&mut self, message: &ToAgent) {
        self.output.write_all(format!("{}\n", line(message)).as_bytes()).await.expect("sent");
    }

    /// The next outcome, with its number.
    async fn outcome(&mut self) -> (u64, AttemptOutcome) {
        loop {
            let text = self.lines.next_line().await.expect("read").expect("it is not the end");
            if let FromAgent::Ended { number, outcome, .. } = serde_json::from_str(&text).expect("a message") {
                return (number, *outcome);
            }
        }
    }
}

/// Runs a service beside `work`, which ends it.
async fn beside(socket: &Path, work: impl Future<Output = ()>) {
    let mut service = service(socket, Duration::from_mins(10));
    tokio::join!(service.serve(CancellationToken::new(), None), work);
}

#[tokio::test]
async fn an_order_that_comes_twice_runs_once_in_the_environment_of_its_worker() {
    let root = tempfile::tempdir().expect("made");
    let (socket, log) = (root.path().join("agent"), root.path().join("log"));
    beside(&socket, async {
        let mut worker = Worker::connect(&socket, "tide", &log).await;
        for _ in 0..2 {
            worker.tell(&ToAgent::Order(Box::new(order(0, 1)))).await;
        }
        let (number, outcome) = worker.outcome().await;
        assert_eq!((number, outcome.task, outcome.exit_code), (1, TaskId(0), Some(0)));
        assert_eq!(outcome.stdout.expect("it printed").head, "tide\n");
        worker.tell(&ToAgent::Ack(1)).await;
        worker.tell(&ToAgent::Order(Box::new(order(0, 1)))).await;
        worker.tell(&ToAgent::Order(Box::new(order(0, 2)))).await;
        let (number, outcome) = worker.outcome().await;
        assert_eq!((number, outcome.attempt), (2, 2), "another attempt is another order");
        worker.tell(&ToAgent::End).await;
    })
    .await;
    assert_eq!(std::fs::read_to_string(log).expect("written"), "run\nrun\n");
}

#[tokio::test]
async fn a_beat_of_the_run_is_answered_at_once_with_its_time() {
    let root = tempfile::tempdir().expect("made");
    let (socket, log) = (root.path().join("agent"), root.path().join("log"));
    beside(&socket, async {
        let mut worker = Worker::connect(&socket, "tide", &log).await;
        let began = Instant::now();
        for sent in 1..=20 {
            worker.tell(&ToAgent::Beat { sent }).await;
            let last = loop {
                let text = worker.lines.next_line().await.expect("read").expect("it is not the end");
                match serde_json::from_str(&text).expect("a message") {
                    FromAgent::Beat { heard, .. } if heard >= sent => break heard,
                    _ => {}
                }
            };
            assert_eq!(last, sent);
        }
        assert!(began.elapsed() < 10 * BEAT, "no answer waits for the next beat");
        worker.tell(&ToAgent::End).await;
    })
    .await;
}

#[tokio::test]
async fn outcomes_come_to_the_next_worker_until_they_are_acknowledged() {
    let root = tempfile::tempdir().expect("made");
    let (socket, log) = (root.path().join("agent"), root.path().join("log"));
    beside(&socket, async {
        let mut first = Worker::connect(&socket, "a", &log).await;
        for task in 0..2 {
            first.tell(&ToAgent::Order(Box::new(order(task, 1)))).await;
        }
        let numbers = [first.outcome().await.0, first.outcome().await.0];
        assert_eq!(numbers, [1, 2]);
        drop(first);
        let mut second = Worker::connect(&socket, "b", &log).await;
        assert_eq!([second.outcome().await.0, second.outcome().await.0], [1, 2], "nothing was acknowledged");
        let text = second.lines.next_line().await.expect("read").expect("it is not the end");
        let message = serde_json::from_str(&text).expect("a message");
        assert!(matches!(message, FromAgent::Serves { running, .. } if running.is_empty()), "{text}");
        second.tell(&ToAgent::Ack(1)).await;
        let mut third = Worker::connect(&socket, "c", &log).await;
        // The acknowledgement and the hello come by two connections, in any order.
        let number = third.outcome().await.0;
        let number = if number == 1 { third.outcome().await.0 } else { number };
        assert_eq!(number, 2);
        third.tell(&ToAgent::End).await;
    })
    .await;
}

#[tokio::test]
async fn lines_go_through_the_pool_while_no_worker_brings_them() {
    let root = tempfile::tempdir().expect("made");
    let (socket, log) = (root.path().join("agent"), root.path().join("log"));
    let settings = node::NodeSettings::new(base::ByteSize::mib(32));
    let engine = store::ModelEngine::new(32 << 20, settings.stripe_bytes);
    let pool = vfs::Vfs::new(client::Client::embedded(node::embedded(settings, Arc::new(engine))));
    let mailbox = Mailbox::of_agent(pool.clone(), "r-h1");
    let mut service = service(&socket, Duration::from_mins(10)).with_mailbox(Some(mailbox));
    let run = async {
        let mut worker = Worker::connect(&socket, "tide", &log).await;
        worker.tell(&ToAgent::Order(Box::new(order(0, 1)))).await;
        worker.outcome().await;
        drop(worker);
        let mut mailbox = Mailbox::of_run(pool.clone(), "r-h1");
        let letter = |ack, message| vec![line(&ToAgent::Ack(ack)), line(&message)];
        let mut heard = Vec::new();
        while heard.len() < 2 {
            for text in mailbox.exchange(letter(0, ToAgent::Order(Box::new(order(1, 1))))).await {
                if let FromAgent::Ended { number, outcome, .. } = serde_json::from_str(&text).expect("a message")
                    && !heard.contains(&(number, outcome.task, outcome.exit_code))
                {
                    heard.push((number, outcome.task, outcome.exit_code));
                }
            }
            tokio::task::yield_now().await;
        }
        assert_eq!(heard, [(1, TaskId(0), Some(0)), (2, TaskId(1), Some(0))], "in the environment of the last worker");
        mailbox.write(letter(2, ToAgent::End)).await;
    };
    tokio::join!(service.serve(CancellationToken::new(), None), run);
    service.tell_over().await;
    let last = Mailbox::of_run(pool, "r-h1").exchange(Vec::new()).await;
    assert_eq!(last, [line(&FromAgent::Over)], "all outcomes were acknowledged");
}

#[tokio::test]
async fn an_attempt_that_is_stopped_before_its_order_comes_never_runs() {
    let root = tempfile::tempdir().expect("made");
    let (socket, log) = (root.path().join("agent"), root.path().join("log"));
    beside(&socket, async {
        let mut worker = Worker::connect(&socket, "a", &log).await;
        worker.tell(&ToAgent::Stop((TaskId(0), 1))).await;
        worker.tell(&ToAgent::Order(Box::new(order(0, 1)))).await;
        let failure = worker.outcome().await.1.result.expect_err("it was stopped");
        assert_eq!(failure.kind, ReasonKind::Cancelled);
        worker.tell(&ToAgent::End).await;
    })
    .await;
    assert!(!log.exists());
}

#[tokio::test]
async fn a_service_that_hears_nothing_of_its_run_ends() {
    let root = tempfile::tempdir().expect("made");
    let mut service = service(&root.path().join("agent"), Duration::ZERO);
    service.serve(CancellationToken::new(), None).await;
    assert!(service.over);
}
