//! Mailboxes: the run and an agent exchange their lines through the pool while no worker of Dask
//! carries them: after the last worker of a host has left, or while the scheduler is away.
//!
//! ```text
//!  run                             pool                               agent
//!   | acks, stops, orders, end --> letters/<agent>.run --------------> |
//!   | <------------------------- letters/<agent>.agent <-- outcomes, beat |
//! ```
//!
//! Each side replaces its own letter and reads the other one's. A letter has everything that the
//! other side may not know yet, so one that is never read, or read while it is replaced, is no
//! loss.

use crate::workspace::copy::bytes_of;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use vfs::Vfs;
use wire::Refusal;

/// Directory of the letters in the pool. It lies at the first node, as its parent does.
const LETTERS: &str = "letters";

/// A letter, as a file of JSON.
#[derive(Debug, Serialize, Deserialize)]
struct Letter {
    /// Number that differs from that of the letter before.
    number: u64,
    /// Lines as a worker of Dask would carry them.
    lines: Vec<String>,
}

/// One side of the letters between the run and an agent.
#[derive(Debug)]
pub struct Mailbox {
    pool: Vfs,
    own: PathBuf,
    other: PathBuf,
    /// Number of the last letter that was written.
    written: u64,
    /// Number of the last letter that was read.
    read: u64,
}

impl Mailbox {
    /// The side of the run; `agent` is the agent's name.
    pub fn of_run(pool: Vfs, agent: &str) -> Self {
        Self::new(pool, (agent, "run"), "agent")
    }

    /// The side of an agent.
    pub fn of_agent(pool: Vfs, agent: &str) -> Self {
        Self::new(pool, (agent, "agent"), "run")
    }

    fn new(pool: Vfs, (agent, own): (&str, &str), other: &str) -> Self {
        let place = |side: &str| Path::new(LETTERS).join(format!("{agent}.{side}"));
        Self { pool, own: place(own), other: place(other), written: 0, read: 0 }
    }

    /// Replaces this side's letter. Returns the lines of the other side's, if it is a new one.
    pub async fn exchange(&mut self, lines: Vec<String>) -> Vec<String> {
        self.write(lines).await;
        let Ok(text) = self.pool.read_file(bytes_of(&self.other)).await else { return Vec::new() };
        match serde_json::from_slice(&text) {
            Ok(Letter { number, lines }) if number != self.read => {
                self.read = number;
                lines
            }
            // It is not new, or it is being replaced.
            _ => Vec::new(),
        }
    }

    /// Replaces this side's letter.
    pub async fn write(&mut self, lines: Vec<String>) {
        self.written += 1;
        let letter = serde_json::to_vec(&Letter { number: self.written, lines }).expect("it has no maps");
        let mut written = self.pool.write_file(bytes_of(&self.own), &letter).await;
        if matches!(written, Err(Refusal::NotFound(_))) {
            // An error means that the other side has just made it, or that the file fails too.
            let _ = self.pool.make_directories(LETTERS.as_bytes()).await;
            written = self.pool.write_file(bytes_of(&self.own), &letter).await;
        }
        if let Err(refusal) = written {
            tracing::debug!("{}: {refusal}", self.own.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test]
    async fn each_letter_is_read_once_and_the_last_one_counts() {
        let settings = node::NodeSettings::new(base::ByteSize::mib(32));
        let engine = store::ModelEngine::new(32 << 20, settings.stripe_bytes);
        let pool = Vfs::new(client::Client::embedded(node::embedded(settings, Arc::new(engine))));
        let (mut run, mut agent) = (Mailbox::of_run(pool.clone(), "r-h1"), Mailbox::of_agent(pool, "r-h1"));
        let lines = |text: &str| vec![text.to_owned()];
        assert!(agent.exchange(lines("a")).await.is_empty());
        assert_eq!(run.exchange(lines("r")).await, ["a"]);
        assert!(run.exchange(lines("s")).await.is_empty(), "it was read");
        assert_eq!(agent.exchange(lines("b")).await, ["s"]);
        agent.write(lines("c")).await;
        assert_eq!(run.exchange(lines("t")).await, ["c"]);
    }
}
