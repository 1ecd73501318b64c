//! Ending a pool: every node, and all that its start left.

use crate::{
    NodeEntry, PoolFile,
    connect::{Key, runtime},
};
use base::Problem;
use client::Connection;
use placement::{Epoch, PartitionId};
use std::{fs, path::Path, thread, time::Duration};
use tokio::time::timeout;
use wire::{Body, Request, Session};

/// Who has not answered by then is ended by force, if it is of this machine.
const ANSWER_WAIT: Duration = Duration::from_secs(3);
/// A node that was asked ends its connections first, and what they hold.
const END_WAIT: Duration = Duration::from_secs(20);
/// So long has a node that does not answer to end by SIGTERM.
const TERM_WAIT: Duration = Duration::from_secs(5);

/// How a node ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// As it was asked to.
    Ended,
    /// It was not there any more.
    Gone,
    /// It did not answer, so its process was ended.
    Killed,
    /// It does not answer, and its process is not of this machine.
    Unknown(String),
}

/// Ends all nodes of the pool at `path`, at once; then its file goes, unless a node may still be there. In the order of the file.
pub fn stop(path: &Path) -> Result<Vec<(NodeEntry, Stopped)>, Problem> {
    let file = PoolFile::read(path)?;
    let key = file.key(path)?;
    let stopped: Vec<(NodeEntry, Stopped)> = thread::scope(|scope| {
        let ending = |node: NodeEntry| {
            let key = &key;
            scope.spawn(move || {
                let stopped = stop_node(&node, key);
                (node, stopped)
            })
        };
        let threads: Vec<_> = file.nodes.iter().cloned().map(ending).collect();
        threads.into_iter().map(|thread| thread.join().expect("ending a node does not panic")).collect()
    });
    for (node, how) in &stopped {
        if *how != Stopped::Ended && node.process.is_of_this_machine() {
            fs::remove_file(&node.log).ok();
        }
    }
    if !stopped.iter().any(|(_, how)| matches!(how, Stopped::Unknown(_))) {
        fs::remove_file(path)
            .map_err(|error| Problem::new(format!("the pool file {} cannot be removed: {error}", path.display())))?;
    }
    Ok(stopped)
}

fn stop_node(node: &NodeEntry, key: &Key) -> Stopped {
    let held = node.process.find();
    match (ask(node, key), held) {
        (Ok(()), None) => Stopped::Ended,
        (Ok(()), Some(held)) if held.wait(END_WAIT) => Stopped::Ended,
        (Err(_), None) if node.process.is_of_this_machine() => Stopped::Gone,
        (Err(why), None) => Stopped::Unknown(why),
        (_, Some(held)) => {
            held.terminate();
            if !held.wait(TERM_WAIT) {
                held.kill();
                held.wait(TERM_WAIT);
            }
            Stopped::Killed
        }
    }
}

fn ask(node: &NodeEntry, key: &Key) -> Result<(), String> {
    let remote = key.remote(node).map_err(|problem| problem.message)?;
    let runtime = runtime().map_err(|problem| problem.message)?;
    let (epoch, partition) = (Epoch::FIRST, PartitionId(0));
    let request = Request { epoch, session: Session::NONE, hurried: false, partition, body: Body::Stop };
    runtime.block_on(async {
        match timeout(ANSWER_WAIT, remote.call(request)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(failure)) => Err(failure.to_string()),
            Err(_) => Err(format!("it did not answer within {} s", ANSWER_WAIT.as_secs())),
        }
    })
}
