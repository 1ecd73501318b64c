//! Messages between a run and the agents of a cluster's hosts: one JSON value a line.
//!
//! ```text
//!  run                                      agent
//!   | AgentSetup (version, name, node) ----> |  over its standard input and output
//!   | <---------------------- AgentGreeting - |
//!   | lines of the pool's bootstrap <------> |  passed on to the node, if it has one
//!   | AgentStart (pool, tools, inputs) ----> |
//!   | <------------------------- AgentReady - |  detaches, and serves at its socket
//!   | ToAgent: orders, stops, ...  -------->  |  over its socket
//!   | <----------- FromAgent: outcomes, ... - |
//! ```

use crate::host_copies::UnusedCopies;
use crate::host_runner::AttemptKey;
use crate::order::AttemptOrder;
use crate::outcome::AttemptOutcome;
use crate::spec::StorageRequest;
use base::Problem;
use flow::{DataId, ToolId};
use report::AccessMode;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// First message to an agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AgentSetup {
    /// Version of Tidemill, which must be equal on all hosts.
    pub version: String,
    /// Name of the agent in the host's runtime directory; unique for each host of each run.
    pub name: String,
    /// Number of the node that the agent holds; `None` if the host only computes.
    pub node: Option<u32>,
    /// Time without a message of the run after which the agent ends.
    pub orphan_wait: Duration,
}

/// Answer of an agent that ends the dialogue or goes on with it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentAnswer {
    /// The agent is set up; its node, if any, waits for its bootstrap.
    Greeting {
        /// Processors that it may use.
        processors: u32,
    },
    /// The node has detached from its starter.
    Detached,
    /// The agent serves.
    Ready(AgentReady),
    /// The agent cannot go on, and ends.
    Refused {
        /// What is wrong.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
}

impl From<Problem> for AgentAnswer {
    fn from(problem: Problem) -> Self {
        Self::Refused { message: problem.message, hint: problem.hint }
    }
}

/// Second message to an agent, when the pool runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of the user")]
pub struct AgentStart {
    /// The pool file's content.
    pub pool: String,
    /// Number of the agent's node, if that has joined a pool which had been formed before; else it
    /// is that of the setup.
    pub node: Option<u32>,
    /// The tools that tasks call.
    pub tools: Vec<AgentTool>,
    /// The trees of their files, which are in the pool.
    pub trees: Vec<AgentTree>,
    /// How tasks should see the pool.
    pub storage: StorageRequest,
    /// Enables passthrough of the mount.
    pub passthrough: bool,
    /// Keeps leftovers of tasks.
    pub keep: bool,
    /// Leaves directories of failed attempts in the pool.
    pub leave_failed: bool,
    /// Time between SIGTERM and SIGKILL when a tool is ended.
    pub grace: Duration,
    /// Files of the submitting host that are inputs.
    pub inputs: Vec<HostInput>,
    /// Variables that replace those of the workers' environment.
    pub environment: BTreeMap<String, String>,
    /// True if the agent runs no tasks: it only keeps its node alive.
    pub only_stores: bool,
}

/// A tool that tasks call.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AgentTool {
    /// Id of the tool.
    pub id: ToolId,
    /// Name of the tool.
    pub name: String,
    /// The program: a path, perhaps with the token of `here`, or a name that is searched for.
    pub program: String,
    /// Hash of the tree of its files; `None` if none travel.
    pub tree: Option<String>,
    /// True if its program is in that tree.
    pub travels: bool,
    /// The reason why the preload library does not reach a program that travels, if it does not.
    pub obstacle: Option<String>,
    /// Directories that are searched first, relative to `here`.
    pub path: Vec<String>,
    /// Directory of the tool file.
    pub here: PathBuf,
    /// True if its tasks have files in the pool.
    pub has_files: bool,
    /// Memory that it declares, in bytes; 0 if it declares none.
    pub memory: u64,
}

/// A tree of files of the tools of one tool file. They are in the pool's directory [`TREES`] below
/// its hash: `manifest`, and the files at [`content_place`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentTree {
    /// Hash of its manifest.
    pub hash: String,
    /// Directory of the tool file on the machine that started the run.
    pub here: PathBuf,
    /// Directory of all that travels on the machine that started the run, without links.
    pub root: PathBuf,
    /// Path of the tool file's directory below the root.
    pub inner: PathBuf,
}

/// Directory of the trees in the pool.
pub const TREES: &str = "tools";

/// Where a file with the hash `hash` is below the directory of its tree: in one of 256 directories.
/// One directory of all would be split, and its fragments would lie at nodes that have not the
/// file.
pub fn content_place(hash: &str) -> PathBuf {
    Path::new(hash.get(..2).unwrap_or_default()).join(hash)
}

/// An input as a file of the submitting host. A host has the same file if path, size, time of
/// change and the hash of the first bytes are the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostInput {
    /// Id of the member.
    pub data: DataId,
    /// Absolute path.
    pub path: PathBuf,
    /// Length in bytes.
    pub bytes: u64,
    /// Time of the last change: seconds since 1970 and nanoseconds.
    pub modified: (i64, i64),
    /// BLAKE3 hash of its first bytes.
    pub head: String,
}

/// What an agent that serves tells about its host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AgentReady {
    /// Name of the agent.
    pub name: String,
    /// Path of its socket.
    pub socket: PathBuf,
    /// How its tasks see the pool.
    pub mode: AccessMode,
    /// The reason for that, for the user.
    pub line: String,
    /// The inputs that the host has itself.
    pub same_inputs: Vec<DataId>,
    /// Memory in bytes that tasks may take.
    pub memory: u64,
}

/// Messages to an agent that serves.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToAgent {
    /// First message of a worker: orders over its connection run in this environment.
    Hello {
        /// Name or address of the worker.
        worker: String,
        /// Its environment.
        environment: BTreeMap<String, String>,
        /// Its working directory.
        directory: PathBuf,
    },
    /// Run an attempt, unless it runs or has ended already.
    Order(Box<AttemptOrder>),
    /// End an attempt.
    Stop(AttemptKey),
    /// The outcomes up to this number have arrived.
    Ack(u64),
    /// Remove these copies, as soon as no attempt uses them.
    DropCopies(UnusedCopies),
    /// The run lives. Answered with a beat at once.
    Beat {
        /// Time of the run's clock, which the answer contains.
        sent: u64,
    },
    /// The run is over: end all attempts and the node, and leave nothing.
    End,
}

/// Messages of an agent that serves.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromAgent {
    /// An attempt has ended. Sent again to a new connection until it is acknowledged.
    Ended {
        /// Number of the outcome, from 1.
        number: u64,
        /// Key of the order, see [`key_text`].
        key: String,
        /// The outcome.
        outcome: Box<AttemptOutcome>,
    },
    /// Answer to `Hello`, behind the outcomes that are not acknowledged.
    Serves {
        /// Its message when it began to serve.
        ready: Box<AgentReady>,
        /// The attempts that run.
        running: Vec<AttemptKey>,
    },
    /// The agent and its node live. Sent at least every [`BEAT`].
    Beat {
        /// The attempts that run.
        running: Vec<AttemptKey>,
        /// Time of the run's last beat that was heard; 0 before the first.
        heard: u64,
    },
    /// The copies of inputs at the host's node are these now. Sent after each change, and to a new
    /// connection.
    Copies(Vec<HeldCopy>),
    /// The agent's socket is gone, says the worker.
    Gone(String),
    /// The agent has ended as it was told, or since its node has ended, and nothing of it is left
    /// on its host.
    Over,
}

/// A copy of an input at the node of a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HeldCopy {
    /// Id of the member.
    pub data: DataId,
    /// Bytes that it takes.
    pub bytes: u64,
}

/// Interval of the beats of the run and of agents.
pub const BEAT: Duration = Duration::from_secs(2);
/// Time without a line of the other side after which each side looks for letters in the pool:
/// three beats.
pub const SILENCE: Duration = Duration::from_secs(6);

/// Name of an agent of a run.
pub fn agent_name(run_id: &str, number: u32) -> String {
    format!("{run_id}-h{number}")
}

/// The key of an order, as the carrier knows it.
pub fn key_text((task, attempt): AttemptKey) -> String {
    format!("{}.{attempt}", task.0)
}

/// The line that lets an agent end.
pub fn end_line() -> String {
    format!("{}\n", line(&ToAgent::End))
}

/// A line with a message. The end of an attempt names its key for the carrier.
pub fn line(message: &impl Serialize) -> String {
    serde_json::to_string(message).expect("messages have no maps with other keys than text")
}
