//! The agent of the first node: a child of this process, reached by its socket.

use super::agent_link::AgentLink;
use super::messages::{AgentStart, FromAgent, ToAgent, line};
use base::Problem;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::Child;

/// The agent of the first node, which holds the root of the pool.
#[derive(Debug)]
pub struct FirstAgent {
    /// Path of its socket.
    pub socket: PathBuf,
    /// Time of its last beat: it says that the node lives too.
    pub last_beat: Instant,
    output: OwnedWriteHalf,
    lines: Lines<BufReader<OwnedReadHalf>>,
    child: Child,
}

impl FirstAgent {
    /// Lets the agent serve, and connects to it.
    pub async fn start(link: AgentLink, start: &AgentStart) -> Result<Self, Problem> {
        let only_stores =
            AgentStart { only_stores: true, tools: Vec::new(), trees: Vec::new(), inputs: Vec::new(), ..start.clone() };
        let (ready, child) = link.start_child(&only_stores).await?;
        let socket = ready.socket;
        let refused = |error: io::Error| Problem::new(format!("{}: {error}", socket.display()));
        let (input, output) = UnixStream::connect(&socket).await.map_err(refused)?.into_split();
        let mut agent = Self {
            last_beat: Instant::now(),
            output,
            lines: BufReader::new(input).lines(),
            child,
            socket: socket.clone(),
        };
        // The one that said hello gets the beats.
        let hello =
            ToAgent::Hello { worker: "run".to_owned(), environment: BTreeMap::new(), directory: PathBuf::from("/") };
        agent.send(&hello).await.map_err(refused)?;
        Ok(agent)
    }

    async fn send(&mut self, message: &ToAgent) -> io::Result<()> {
        self.output.write_all(format!("{}\n", line(message)).as_bytes()).await
    }

    /// Tells it that the run lives. If it has ended, [`Self::poll_gone`] tells.
    pub fn beat(&self) {
        let _ = self.output.try_write(format!("{}\n", line(&ToAgent::Beat)).as_bytes());
    }

    /// Takes its beats; ready when it has ended.
    pub fn poll_gone(&mut self, context: &mut Context) -> Poll<()> {
        while let Poll::Ready(line) = Pin::new(&mut self.lines).poll_next_line(context) {
            match line.ok().flatten().map(|text| serde_json::from_str(&text)) {
                None | Some(Ok(FromAgent::Over)) => return Poll::Ready(()),
                Some(_) => self.last_beat = Instant::now(),
            }
        }
        Poll::Pending
    }

    /// Returns whether it has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends it with its node. It gets some time for that.
    pub async fn end(mut self, wait: Duration) {
        let _ = self.send(&ToAgent::End).await;
        if tokio::time::timeout(wait, self.child.wait()).await.is_err() {
            let _ = self.child.kill().await;
        }
    }
}
