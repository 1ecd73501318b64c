//! Detects that a connected pool has ended, so that a mount of it can end too.

use crate::PoolFile;
use base::Problem;
use client::Client;
use std::path::{Path, PathBuf};

/// A pool that a client is connected to, with its pool file as it was then.
#[derive(Debug)]
pub struct ConnectedPool {
    path: PathBuf,
    file: PoolFile,
}

impl ConnectedPool {
    /// Reads the pool file as it is now.
    pub fn read(path: &Path) -> Result<Self, Problem> {
        Ok(Self { path: path.to_owned(), file: PoolFile::read(path)? })
    }

    /// Path of the pool file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// True if the pool has ended for good. Then none of its nodes answers this client. Also its
    /// file is gone or belongs to another pool, or all its nodes were processes of this machine
    /// that have ended. A pool that is only unreachable has not ended.
    pub async fn has_ended(&self, client: &Client) -> bool {
        self.may_have_ended() && client.usages().await.iter().all(|(_, usage)| usage.is_err())
    }

    fn may_have_ended(&self) -> bool {
        let gone =
            || self.file.nodes.iter().all(|node| node.process.is_of_this_machine() && node.process.open().is_none());
        PoolFile::read(&self.path).map_or(true, |now| now != self.file || gone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{file::tests::sample, process::Process};

    #[test]
    fn a_pool_may_have_ended_when_its_file_is_gone_or_anothers_or_its_processes_are() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool");
        let mut file = sample();
        file.nodes.iter_mut().for_each(|node| node.process = Process::current().unwrap());
        file.write(&path).unwrap();
        let connected = ConnectedPool::read(&path).unwrap();
        assert!(!connected.may_have_ended(), "its processes live");
        let mut other = file.clone();
        other.started += 1;
        other.write(&path).unwrap();
        assert!(connected.may_have_ended(), "another pool has the file");
        std::fs::remove_file(&path).unwrap();
        assert!(connected.may_have_ended(), "nothing has the file");
        file.nodes[0].process.boot = "of another machine".into();
        file.nodes[1].process.began += 1;
        file.write(&path).unwrap();
        assert!(!ConnectedPool::read(&path).unwrap().may_have_ended(), "nobody knows of the other machine");
        file.nodes[0].process = file.nodes[1].process.clone();
        file.write(&path).unwrap();
        assert!(ConnectedPool::read(&path).unwrap().may_have_ended(), "all were here, and are gone");
    }
}
