//! Removes paths in the background, so that no task waits for the end of another's files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;

/// A thread that removes what it is told to, in order.
///
/// The queue has no bound of its own: it holds at most one path for each file of the run, and a bound could make the
/// scheduler wait for a removal that waits for it.
#[derive(Debug)]
pub struct Janitor {
    queue: Option<Sender<PathBuf>>,
    thread: Option<JoinHandle<()>>,
}

impl Janitor {
    /// Starts the thread.
    pub fn new() -> Self {
        let (queue, told) = channel::<PathBuf>();
        let work = move || {
            for path in told {
                if let Err(error) = remove(&path) {
                    tracing::warn!(path = %path.display(), %error, "a file that is no longer needed stays in the pool");
                }
            }
        };
        let thread = std::thread::Builder::new().name("janitor".into()).spawn(work).ok();
        Self { queue: Some(queue), thread }
    }

    /// Asks for `path` to be removed, with all that is in it, and its folder too if that is then empty.
    pub fn remove(&self, path: PathBuf) {
        let refused = match &self.queue {
            Some(queue) => queue.send(path).err().map(|refused| refused.0),
            None => Some(path),
        };
        // Without its thread the janitor does the work at once.
        if let Some(path) = refused {
            let _ = remove(&path);
        }
    }

    /// Waits until all is removed.
    pub fn close(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        self.close();
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match remove_any(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        outcome => outcome?,
    }
    // The folder goes with its last file; while there are others this is refused, as it should be.
    if let Some(folder) = path.parent() {
        let _ = fs::remove_dir(folder);
    }
    Ok(())
}

/// Most paths are files, so that is tried first: one call instead of two.
pub(crate) fn remove_any(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => fs::remove_dir_all(path),
        outcome => outcome,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_go_and_their_folder_with_the_last() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("t.1");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("a"), "a").unwrap();
        fs::create_dir(folder.join("scratch")).unwrap();
        fs::write(folder.join("scratch/b"), "b").unwrap();
        let mut janitor = Janitor::new();
        for name in ["a", "never-there", "scratch"] {
            janitor.remove(folder.join(name));
        }
        janitor.close();
        assert!(!folder.exists());
        assert!(root.path().exists(), "only the folder that held the files goes");
    }
}
