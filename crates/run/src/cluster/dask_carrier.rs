//! Carrier: the process that passes lines between the run and the hosts of a Dask cluster.
//!
//! It is a Python program that is part of this binary, with a pipe for each direction. Its messages
//! are in docs/formats/carrier.md. Two threads move the lines, so nothing here waits for Python.

use super::messages::{ToAgent, line};
use crate::spec::{ClusterTarget, StartedCluster};
use base::Problem;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

/// The program: both files, one behind the other.
const SOURCE: &str = concat!(
    include_str!("../../../../python/carrier/clusters.py"),
    include_str!("../../../../python/carrier/carrier.py")
);

/// Time that the carrier gets to end by itself.
const END_WAIT: Duration = Duration::from_secs(5);
/// The same for one that has a cluster to end.
const CLUSTER_END_WAIT: Duration = Duration::from_secs(30);

/// Time that the last message gets to be written when the process ends at once.
const WRITE_WAIT: Duration = Duration::from_secs(1);

/// Messages to the carrier.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ToCarrier {
    /// Connect to a Dask scheduler.
    Open {
        /// Address of the scheduler; `None` if the carrier starts one.
        #[serde(skip_serializing_if = "Option::is_none")]
        address: Option<String>,
        /// The cluster to start; `None` if there is one.
        #[serde(skip_serializing_if = "Option::is_none")]
        cluster: Option<StartedCluster>,
        /// Id of the run.
        run: String,
        /// Path of this binary.
        binary: PathBuf,
        /// Time limit in seconds.
        wait: f64,
    },
    /// Start the agent of a host.
    Launch {
        /// The host.
        host: String,
        /// Number of the question.
        id: u64,
    },
    /// Pass a line to an agent that starts.
    Say {
        /// The host.
        host: String,
        /// Number of the question.
        id: u64,
        /// The line.
        line: String,
    },
    /// The agent of a host serves at a socket.
    Attach {
        /// The host.
        host: String,
        /// Path of the socket.
        socket: PathBuf,
    },
    /// Carry orders to a host as one Dask task.
    Orders {
        /// The host.
        host: String,
        /// Lines with the orders.
        lines: Vec<String>,
        /// Their keys.
        keys: Vec<String>,
    },
    /// Pass lines to the agent of a host.
    Post {
        /// The host.
        host: String,
        /// The lines.
        lines: Vec<String>,
    },
    /// Have the cluster that the carrier has started have this number of workers.
    Scale {
        /// The number.
        workers: u32,
        /// Hosts whose workers are closed. No others are.
        release: Vec<String>,
    },
    /// End.
    Close {
        /// Line that all agents get first, if they should not wait for their run.
        #[serde(skip_serializing_if = "Option::is_none")]
        line: Option<String>,
    },
}

impl ToCarrier {
    /// End, and let all agents end.
    fn abandon() -> Self {
        Self::Close { line: Some(line(&ToAgent::End)) }
    }
}

/// The way to the Dask scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DaskConnection {
    /// Messages pass.
    Open,
    /// The scheduler cannot be reached now.
    Cut,
    /// The carrier has ended, and another one is about to connect.
    Restarted,
    /// The carrier has ended.
    Gone,
}

/// Messages from the carrier.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromCarrier {
    /// It is connected.
    Opened {
        /// Address of this machine as the cluster reaches it.
        address: String,
    },
    /// It cannot go on.
    Failed {
        /// What is wrong.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The hosts that have workers now.
    Hosts(Vec<ClusterHost>),
    /// Answer to `Launch` or `Say`.
    Said {
        /// Number of the question.
        id: u64,
        /// The answer.
        line: Option<String>,
        /// The reason why there is none.
        error: Option<String>,
    },
    /// Lines of an agent.
    Lines {
        /// The host.
        host: String,
        /// The lines.
        lines: Vec<String>,
    },
    /// It is not known whether these orders came to the agent.
    Undelivered {
        /// The host.
        host: String,
        /// Keys of the orders.
        keys: Vec<String>,
        /// The reason.
        why: String,
    },
    /// Workers that were wanted could not be started.
    Unscaled {
        /// The reason.
        why: String,
    },
    /// The connection to the scheduler is lost.
    Cut {
        /// The reason.
        why: String,
    },
    /// The process has ended; made by the reader, never sent.
    #[serde(skip)]
    Gone(String),
}

/// A host that has Dask workers.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ClusterHost {
    /// Its address.
    pub host: String,
    /// Number of its workers.
    pub workers: u32,
    /// Number of threads of its workers.
    pub threads: u32,
    /// Path of `tidemill` there; `None` if there is none.
    pub binary: Option<PathBuf>,
    /// What `tidemill --version` says there.
    pub version: Option<String>,
}

/// Answers that are waited for.
type Questions = Arc<Mutex<HashMap<u64, oneshot::Sender<Result<String, String>>>>>;

/// Writes to the carrier. Clones write to the same one, also when it was started again.
#[derive(Debug, Clone)]
pub struct CarrierHandle {
    to: Arc<Mutex<mpsc::Sender<ToCarrier>>>,
    questions: Questions,
    next: Arc<AtomicU64>,
}

impl CarrierHandle {
    /// Sends a message. Lost if the carrier has ended, which is told by `FromCarrier::Gone`.
    pub fn send(&self, message: ToCarrier) {
        let _ = self.to.lock().send(message);
    }

    /// Ends the carrier and all agents from any thread, before this process ends at once.
    pub fn abandon(&self) {
        let until = Instant::now() + WRITE_WAIT;
        // The first one is the last message that is written; then there is no receiver.
        while self.to.lock().send(ToCarrier::abandon()).is_ok() && Instant::now() < until {
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Starts the agent of a host.
    pub async fn launch(&self, host: &str) -> Result<(), String> {
        let (id, answer) = self.ask();
        self.send(ToCarrier::Launch { host: host.to_owned(), id });
        Self::answered(answer).await.map(drop)
    }

    /// Passes a line to an agent that starts; returns its answer.
    pub async fn say(&self, host: &str, line: &str) -> Result<String, String> {
        let (id, answer) = self.ask();
        self.send(ToCarrier::Say { host: host.to_owned(), id, line: line.trim_end().to_owned() });
        Self::answered(answer).await
    }

    fn ask(&self) -> (u64, oneshot::Receiver<Result<String, String>>) {
        let (sender, answer) = oneshot::channel();
        let id = self.next.fetch_add(1, Relaxed);
        self.questions.lock().insert(id, sender);
        (id, answer)
    }

    async fn answered(answer: oneshot::Receiver<Result<String, String>>) -> Result<String, String> {
        answer.await.unwrap_or_else(|_| Err("the carrier has ended".to_owned()))
    }
}

/// The carrier's process. When this is dropped, it ends, and so do all agents, if
/// [`Carrier::close`] did not end it before.
#[derive(Debug)]
pub struct Carrier {
    /// Writes to it.
    pub handle: CarrierHandle,
    /// Its messages, but answers.
    pub messages: UnboundedReceiver<FromCarrier>,
    child: Child,
    python: PathBuf,
    target: ClusterTarget,
    /// The message that it was opened with.
    opening: Option<ToCarrier>,
    /// Number of times that it may be started again.
    restarts: u32,
}

/// Number of times that a carrier which ends is started again.
const RESTARTS_MAX: u32 = 3;

impl Carrier {
    /// Starts the program with a Python that has Dask, for a cluster.
    pub fn start(python: &Path, target: &ClusterTarget) -> Result<Self, Problem> {
        let (to, _) = mpsc::channel();
        let handle = CarrierHandle { to: Arc::new(Mutex::new(to)), questions: Arc::default(), next: Arc::default() };
        let (child, messages) = spawn(python, &handle)?;
        let (python, target) = (python.to_owned(), target.clone());
        Ok(Self { handle, messages, child, python, target, opening: None, restarts: RESTARTS_MAX })
    }

    /// Sends the first message.
    pub fn open(&mut self, message: ToCarrier) {
        self.handle.send(message.clone());
        self.opening = Some(message);
    }

    /// Starts the process again after it has ended, and opens the same scheduler. Returns whether
    /// that was possible: a cluster that it had started has ended with it.
    pub fn restart(&mut self) -> bool {
        let Some(opening) = self.opening.clone().filter(|_| self.restarts > 0) else { return false };
        if matches!(self.target, ClusterTarget::Start(_)) {
            return false;
        }
        self.restarts -= 1;
        let _ = self.child.kill();
        let _ = self.child.wait();
        let Ok((child, messages)) = spawn(&self.python, &self.handle) else { return false };
        (self.child, self.messages) = (child, messages);
        self.open(opening);
        true
    }
}

/// Starts the program, with a thread for each direction. The handle writes to it from now on.
fn spawn(python: &Path, handle: &CarrierHandle) -> Result<(Child, UnboundedReceiver<FromCarrier>), Problem> {
    let mut command = Command::new(python);
    command.args(["-u", "-c", SOURCE]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| {
        Problem::new(format!("{}: {error}", python.display()))
            .hint("--on needs a Python with Dask: name it with --python, or put it into PATH")
    })?;
    let (mut input, output) = (child.stdin.take().expect("it is piped"), child.stdout.take().expect("it is piped"));
    let (to, lines) = mpsc::channel::<ToCarrier>();
    let (from, messages) = unbounded_channel();
    *handle.to.lock() = to;
    let questions = handle.questions.clone();
    let write = move || {
        for message in lines {
            let mut text = serde_json::to_vec(&message).expect("messages have no maps");
            text.push(b'\n');
            let is_last = matches!(message, ToCarrier::Close { .. });
            if input.write_all(&text).and_then(|()| input.flush()).is_err() || is_last {
                return;
            }
        }
    };
    let read = move || read_messages(BufReader::new(output), &from, &questions);
    for (name, work) in [("to-carrier", Box::new(write) as Box<dyn FnOnce() + Send>), ("from-carrier", Box::new(read))]
    {
        let started = thread::Builder::new().name(name.into()).spawn(work);
        started.map_err(|error| Problem::new(format!("no thread for the carrier: {error}")))?;
    }
    Ok((child, messages))
}

fn read_messages(output: impl BufRead, from: &UnboundedSender<FromCarrier>, questions: &Questions) {
    let mut why = "its output has ended".to_owned();
    for text in output.lines() {
        match text.map_err(|error| error.to_string()).and_then(|text| parse(&text)) {
            Ok(FromCarrier::Said { id, line, error }) => {
                if let Some(sender) = questions.lock().remove(&id) {
                    let _ = sender.send(line.ok_or_else(|| error.unwrap_or_default()));
                }
            }
            Ok(message) => drop(from.send(message)),
            Err(error) => {
                why = error;
                break;
            }
        }
    }
    questions.lock().clear();
    let _ = from.send(FromCarrier::Gone(why));
}

fn parse(text: &str) -> Result<FromCarrier, String> {
    serde_json::from_str(text).map_err(|error| format!("a line that is no message: {error}"))
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.handle.send(ToCarrier::abandon());
        let end_wait = if matches!(self.target, ClusterTarget::Start(_)) { CLUSTER_END_WAIT } else { END_WAIT };
        let until = Instant::now() + end_wait;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > until {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::ClusterKind;

    #[test]
    fn messages_are_written_and_read_as_the_page_of_the_format_has_them() {
        let line = |message| serde_json::to_string(&message).expect("written");
        assert_eq!(line(ToCarrier::Close { line: None }), r#"{"close":{}}"#);
        assert_eq!(line(ToCarrier::abandon()), r#"{"close":{"line":"\"end\""}}"#);
        let say = ToCarrier::Say { host: "h".into(), id: 3, line: "{}".into() };
        assert_eq!(line(say), r#"{"say":{"host":"h","id":3,"line":"{}"}}"#);
        let scale = ToCarrier::Scale { workers: 2, release: vec!["h".into()] };
        assert_eq!(line(scale), r#"{"scale":{"workers":2,"release":["h"]}}"#);
        let cluster = StartedCluster {
            kind: ClusterKind::Slurm,
            hosts: vec![],
            workers: Some(2),
            most: None,
            options: serde_json::from_str(r#"{"cores": 1}"#).unwrap(),
        };
        let (run, binary) = ("r".to_owned(), "b".into());
        let open = ToCarrier::Open { address: None, cluster: Some(cluster), run, binary, wait: 1.0 };
        assert_eq!(
            line(open),
            r#"{"open":{"cluster":{"kind":"slurm","hosts":[],"workers":2,"options":{"cores":1}},"run":"r","binary":"b","wait":1.0}}"#
        );
        let hosts =
            r#"{"hosts": [{"host": "h", "workers": 2, "threads": 4, "binary": null, "version": null, "x": 1}]}"#;
        assert!(matches!(parse(hosts), Ok(FromCarrier::Hosts(hosts)) if hosts[0].threads == 4));
        assert!(matches!(parse(r#"{"cut": {"why": "x"}}"#), Ok(FromCarrier::Cut { .. })));
        assert!(matches!(parse(r#"{"unscaled": {"why": "x"}}"#), Ok(FromCarrier::Unscaled { .. })));
        assert!(parse("Welcome").is_err());
    }

    #[test]
    fn answers_go_to_those_who_asked_and_the_end_is_told() {
        let (to, _lines) = mpsc::channel();
        let handle = CarrierHandle { to: Arc::new(Mutex::new(to)), questions: Arc::default(), next: Arc::default() };
        let ((id, answer), (_, lost)) = (handle.ask(), handle.ask());
        let (from, mut messages) = unbounded_channel();
        let text = format!("{{\"said\": {{\"id\": {id}, \"line\": \"yes\"}}}}\n{{\"cut\": {{\"why\": \"w\"}}}}\n");
        read_messages(text.as_bytes(), &from, &handle.questions);
        assert_eq!(answer.blocking_recv(), Ok(Ok("yes".to_owned())));
        assert!(lost.blocking_recv().is_err());
        assert!(matches!(messages.try_recv(), Ok(FromCarrier::Cut { .. })));
        assert!(matches!(messages.try_recv(), Ok(FromCarrier::Gone(_))));
    }
}
