//! Stops a pool: ends every node and removes what its start left.

use crate::{
    NodeEntry, PoolFile,
    connect::{PoolSecret, runtime},
};
use base::Problem;
use client::Connection;
use placement::{Epoch, PartitionId};
use std::{ffi::OsStr, fs, path::Path, thread, time::Duration};
use tokio::time::timeout;
use wire::{Body, Request, Session};

/// Time limit for a node's answer to the stop request; then its process is ended by force, if it is
/// on this machine.
const ANSWER_WAIT: Duration = Duration::from_secs(3);
/// Time limit for a node to exit after it has accepted the request; it ends its connections and
/// frees what they hold first.
const END_WAIT: Duration = Duration::from_secs(20);
/// Time limit for a node to exit after SIGTERM, before SIGKILL.
const TERM_WAIT: Duration = Duration::from_secs(5);

/// How a node ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StopResult {
    /// The node ended on request.
    Ended,
    /// The node had already ended.
    AlreadyEnded,
    /// The node did not answer, or did not end in time, so its process was ended by a signal.
    Killed,
    /// The node may still run: its process is on another machine, or cannot be verified as a node
    /// of this pool. The reason.
    Unknown(String),
}

/// Stops all nodes of the pool at `path` concurrently; returns them in the order of the file. Then
/// removes the pool file, and a link that led to it, unless a node may still run.
///
/// The pool file may be forged. So only a process that is verified as a node of this pool is ended
/// by force, and logs of nodes that died are removed only from `runtime`, the user's own directory.
pub fn stop(path: &Path, runtime: Option<&Path>) -> Result<Vec<(NodeEntry, StopResult)>, Problem> {
    let file = PoolFile::read(path)?;
    let (secret, link) = (file.secret(path)?, path);
    let path = &path.canonicalize().map_err(|error| Problem::new(format!("{}: {error}", path.display())))?;
    let stopped: Vec<(NodeEntry, StopResult)> = thread::scope(|scope| {
        let ending = |node: NodeEntry| {
            let secret = &secret;
            scope.spawn(move || {
                let stopped = stop_node(&node, secret, path);
                (node, stopped)
            })
        };
        let threads: Vec<_> = file.nodes.iter().cloned().map(ending).collect();
        threads.into_iter().map(|thread| thread.join().expect("ending a node does not panic")).collect()
    });
    for (node, how) in &stopped {
        if *how != StopResult::Ended && node.process.is_of_this_machine() && is_log_in(runtime, &node.log) {
            fs::remove_file(&node.log).ok();
        }
    }
    if !stopped.iter().any(|(_, how)| matches!(how, StopResult::Unknown(_))) {
        fs::remove_file(path)
            .map_err(|error| Problem::new(format!("the pool file {} cannot be removed: {error}", path.display())))?;
        if fs::symlink_metadata(link).is_ok_and(|about| about.is_symlink()) {
            fs::remove_file(link)
                .map_err(|error| Problem::new(format!("the link {} cannot be removed: {error}", link.display())))?;
        }
    }
    Ok(stopped)
}

/// True if the log has the name of a node's log and is directly in that directory.
fn is_log_in(runtime: Option<&Path>, log: &Path) -> bool {
    let stem = log.file_stem().and_then(OsStr::to_str).unwrap_or_default();
    let is_named_so = stem.starts_with("node-") && log.extension() == Some(OsStr::new("log"));
    runtime.is_some() && log.parent() == runtime && is_named_so
}

fn stop_node(node: &NodeEntry, secret: &PoolSecret, file: &Path) -> StopResult {
    let handle = node.process.open();
    match (request_stop(node, secret), handle) {
        (Ok(()), None) => StopResult::Ended,
        (Ok(()), Some(handle)) if handle.wait(END_WAIT) => StopResult::Ended,
        (Err(_), None) if node.process.is_of_this_machine() => StopResult::AlreadyEnded,
        (Err(why), None) => StopResult::Unknown(why),
        (_, Some(_)) if !node.process.is_node_of(file) => {
            let why = format!(
                "process {} is not seen to be a `tidemill node` of this pool, so it was left alone",
                node.pid()
            );
            StopResult::Unknown(why)
        }
        (_, Some(handle)) => {
            handle.terminate();
            if !handle.wait(TERM_WAIT) {
                handle.kill();
                handle.wait(TERM_WAIT);
            }
            StopResult::Killed
        }
    }
}

fn request_stop(node: &NodeEntry, secret: &PoolSecret) -> Result<(), String> {
    let remote = secret.remote(node).map_err(|problem| problem.message)?;
    let runtime = runtime().map_err(|problem| problem.message)?;
    let (epoch, partition) = (Epoch::FIRST, PartitionId(0));
    let request = Request { epoch, session: Session::NONE, skip_ack: false, partition, body: Body::Stop };
    runtime.block_on(async {
        match timeout(ANSWER_WAIT, remote.call(request)).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(failure)) => Err(failure.to_string()),
            Err(_) => Err(format!("it did not answer within {} s", ANSWER_WAIT.as_secs())),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{file::tests::sample, process::Process};
    use std::{os::unix::fs::symlink, process::Command};

    #[test]
    fn a_forged_pool_file_ends_no_process_and_removes_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let [path, link, victim] = ["pool", "link", "node-1.log"].map(|name| directory.path().join(name));
        fs::write(&victim, "dear").unwrap();
        let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let mut file = sample();
        for node in &mut file.nodes {
            node.addresses = vec![format!("unix:{}", directory.path().join("nobody").display()).parse().unwrap()];
            node.log.clone_from(&victim);
            node.process = Process::from_pid(child.id()).unwrap();
        }
        file.write(&path).unwrap();
        let stopped = stop(&path, Some(Path::new("/run/other"))).unwrap();
        assert!(stopped.iter().all(|(_, how)| matches!(how, StopResult::Unknown(why) if why.contains("left alone"))));
        assert!(child.try_wait().unwrap().is_none() && path.exists() && victim.exists());
        child.kill().unwrap();
        child.wait().unwrap();
        symlink(&path, &link).unwrap();
        let stopped = stop(&link, Some(Path::new("/run/other"))).unwrap();
        assert!(stopped.iter().all(|(_, how)| *how == StopResult::AlreadyEnded) && victim.exists());
        assert!(
            !path.exists() && fs::symlink_metadata(&link).is_err(),
            "neither the file nor the link looks like a pool"
        );
    }
}
