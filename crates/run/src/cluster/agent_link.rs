//! Dialogue of the run with an agent that starts: a child of this process, or one on a host of the
//! cluster.

use super::dask_carrier::CarrierHandle;
use super::messages::{AgentAnswer, AgentReady, AgentSetup, AgentStart, line};
use base::Problem;
use pool::BootstrapLink;
use std::io;
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// An agent that starts.
#[derive(Debug)]
pub struct AgentLink {
    /// Name of its host, for messages.
    pub host: String,
    channel: AgentChannel,
}

#[derive(Debug)]
enum AgentChannel {
    /// Pipes to a process of this host.
    Pipes(Box<AgentPipes>),
    /// The carrier.
    Carrier(CarrierHandle),
}

/// Pipes to an agent that is a child of this process.
#[derive(Debug)]
struct AgentPipes {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    child: Child,
}

impl AgentLink {
    /// Starts an agent on this host. It goes on when this process ends.
    pub fn start_here(program: &Path) -> Result<Self, Problem> {
        let cannot = |error: io::Error| Problem::new(format!("{}: {error}", program.display()));
        let mut command = Command::new(program);
        // Another process group: signals of the terminal are for the run, which then ends it.
        command.arg("agent").stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        let mut child = command.spawn().map_err(cannot)?;
        let (input, output) = (child.stdin.take().expect("it is piped"), child.stdout.take().expect("it is piped"));
        Ok(Self {
            host: "this host".to_owned(),
            channel: AgentChannel::Pipes(Box::new(AgentPipes { input, output: BufReader::new(output), child })),
        })
    }

    /// Starts the agent of a host of the cluster.
    pub async fn start_at(carrier: &CarrierHandle, host: &str) -> Result<Self, Problem> {
        let started = carrier.launch(host).await;
        started.map_err(|why| at(host, format!("the agent cannot be started: {why}")))?;
        Ok(Self { host: host.to_owned(), channel: AgentChannel::Carrier(carrier.clone()) })
    }

    /// Sends a line; returns the answer.
    async fn say(&mut self, text: &str) -> Result<String, Problem> {
        match &mut self.channel {
            AgentChannel::Carrier(carrier) => carrier.say(&self.host, text).await.map_err(|why| at(&self.host, why)),
            AgentChannel::Pipes(pipes) => {
                let AgentPipes { input, output, .. } = &mut **pipes;
                let host = &self.host;
                let gone = |error: io::Error| at(host, format!("the agent has ended: {error}"));
                input.write_all(format!("{}\n", text.trim_end()).as_bytes()).await.map_err(gone)?;
                let mut answer = String::new();
                match output.read_line(&mut answer).await.map_err(gone)? {
                    0 => Err(at(host, "the agent has ended; its message is above")),
                    _ => Ok(answer),
                }
            }
        }
    }

    async fn ask(&mut self, text: &str) -> Result<AgentAnswer, Problem> {
        let answer = self.say(text).await?;
        let read = serde_json::from_str(&answer);
        match read.map_err(|error| at(&self.host, format!("the agent's answer cannot be read: {error}")))? {
            AgentAnswer::Refused { message, hint } => {
                let problem = at(&self.host, message);
                Err(hint.map_or(problem.clone(), |hint| problem.hint(hint)))
            }
            answer => Ok(answer),
        }
    }

    /// Sets the agent up; returns the processors that it may use.
    pub async fn set_up(&mut self, setup: &AgentSetup) -> Result<u32, Problem> {
        match self.ask(&line(setup)).await? {
            AgentAnswer::Greeting { processors } => Ok(processors),
            other => Err(at(&self.host, format!("the agent answered {other:?}"))),
        }
    }

    /// Passes the lines of the node's bootstrap on, between the agent and the starter of the pool
    /// at the other end of `starter`, until the node detaches.
    pub async fn bootstrap(&mut self, starter: UnixStream) -> Result<(), Problem> {
        let (input, mut output) = starter.into_split();
        let mut lines = BufReader::new(input).lines();
        while let Ok(Some(text)) = lines.next_line().await {
            let answer = self.say(&text).await?;
            match serde_json::from_str::<AgentAnswer>(&answer) {
                Ok(AgentAnswer::Detached) => return Ok(()),
                Ok(AgentAnswer::Refused { message, .. }) => return Err(at(&self.host, message)),
                _ => {
                    let text = format!("{}\n", answer.trim_end());
                    if output.write_all(text.as_bytes()).await.is_err() {
                        break;
                    }
                }
            }
        }
        Err(at(&self.host, "the pool could not be started"))
    }

    /// Lets the agent serve that is a child of this process.
    pub async fn start_child(mut self, start: &AgentStart) -> Result<(AgentReady, Child), Problem> {
        let ready = self.start(start).await?;
        match self.channel {
            AgentChannel::Pipes(pipes) => Ok((ready, pipes.child)),
            AgentChannel::Carrier(_) => panic!("an agent of another host is no child"),
        }
    }

    /// Lets the agent serve.
    pub async fn start(&mut self, start: &AgentStart) -> Result<AgentReady, Problem> {
        match self.ask(&line(start)).await? {
            AgentAnswer::Ready(ready) => Ok(ready),
            other => Err(at(&self.host, format!("the agent answered {other:?}"))),
        }
    }
}

/// A problem of a host.
fn at(host: &str, message: impl AsRef<str>) -> Problem {
    Problem::new(format!("{host}: {}", message.as_ref().trim_end()))
}

/// A connection between the starter of a pool and [`AgentLink::bootstrap`].
pub fn bootstrap_channel() -> io::Result<(BootstrapLink, UnixStream)> {
    let (ours, theirs) = StdStream::pair()?;
    ours.set_nonblocking(true)?;
    let output = theirs.try_clone()?;
    Ok((BootstrapLink { input: Box::new(theirs), output: Box::new(output) }, UnixStream::from_std(ours)?))
}
