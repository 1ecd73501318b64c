//! The agent of the first node: a process of this host, reached by its socket. It is a child of
//! this process, or of one that was killed.

use super::agent_link::AgentLink;
use super::beat_clock::RUN_CLOCK;
use super::messages::{AgentStart, FromAgent, ToAgent, line};
use base::Problem;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::process::Child;
use tokio::time::timeout;

/// Time in which an agent that lives answers.
const ANSWER_WAIT: Duration = Duration::from_secs(10);

/// The agent of the first node, which holds the root of the pool.
#[derive(Debug)]
pub struct FirstAgent {
    /// Path of its socket.
    pub socket: PathBuf,
    /// Time of the run's last beat that it has answered: its node lived later than that.
    pub answered: Instant,
    output: OwnedWriteHalf,
    lines: Lines<BufReader<OwnedReadHalf>>,
    /// `None` if another process started it.
    child: Option<Child>,
}

impl FirstAgent {
    /// Lets the agent serve, and connects to it.
    pub async fn start(link: AgentLink, start: &AgentStart) -> Result<Self, Problem> {
        let only_stores =
            AgentStart { only_stores: true, tools: Vec::new(), trees: Vec::new(), inputs: Vec::new(), ..start.clone() };
        let (ready, child) = link.start_child(&only_stores).await?;
        Ok(Self { child: Some(child), ..Self::join(ready.socket).await? })
    }

    /// Connects to an agent that serves already.
    pub async fn join(socket: PathBuf) -> Result<Self, Problem> {
        let refused = |error: io::Error| Problem::new(format!("{}: {error}", socket.display()));
        let (input, output) = UnixStream::connect(&socket).await.map_err(refused)?.into_split();
        let (lines, answered) = (BufReader::new(input).lines(), Instant::now());
        let mut agent = Self { answered, output, lines, child: None, socket: socket.clone() };
        // The one that said hello gets the beats.
        let hello =
            ToAgent::Hello { worker: "run".to_owned(), environment: BTreeMap::new(), directory: PathBuf::from("/") };
        agent.send(&hello).await.map_err(refused)?;
        let answer = timeout(ANSWER_WAIT, agent.lines.next_line()).await.map_err(io::Error::from);
        match answer.and_then(|line| line).map_err(refused)? {
            Some(_) => Ok(agent),
            None => Err(refused(io::ErrorKind::UnexpectedEof.into())),
        }
    }

    async fn send(&mut self, message: &ToAgent) -> io::Result<()> {
        self.output.write_all(format!("{}\n", line(message)).as_bytes()).await
    }

    /// Sends it a beat of the run. If it has ended, [`Self::poll_gone`] tells.
    pub fn beat(&self, beat: &ToAgent) {
        let _ = self.output.try_write(format!("{}\n", line(beat)).as_bytes());
    }

    /// Takes its beats; ready when it has ended.
    pub fn poll_gone(&mut self, context: &mut Context) -> Poll<()> {
        while let Poll::Ready(line) = Pin::new(&mut self.lines).poll_next_line(context) {
            match line.ok().flatten().map(|text| serde_json::from_str(&text)) {
                None | Some(Ok(FromAgent::Over)) => return Poll::Ready(()),
                Some(Ok(FromAgent::Beat { heard, .. })) => RUN_CLOCK.advance(&mut self.answered, heard),
                Some(_) => {}
            }
        }
        Poll::Pending
    }

    /// Returns whether it has ended, when nobody waits for that any more.
    pub fn has_ended(&mut self) -> bool {
        self.poll_gone(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    /// Ends it with its node. It gets some time for that.
    pub async fn end(mut self, wait: Duration) {
        let _ = self.send(&ToAgent::End).await;
        // It closes its socket when nothing of it is left.
        let closed = async { while let Ok(Some(_)) = self.lines.next_line().await {} };
        let closed = timeout(wait, closed).await;
        if let Some(child) = &mut self.child {
            let _ = if closed.is_ok() { child.wait().await.map(drop) } else { child.kill().await };
        }
    }
}
