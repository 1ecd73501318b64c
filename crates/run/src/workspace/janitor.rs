//! Removes paths in the background, so that no task waits for the end of another's files.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
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
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => remove_folder(path),
        outcome => outcome,
    }
}

/// Tools leave folders that even their owner may not enter or change; those are opened first.
fn remove_folder(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_folders(path)?;
            fs::remove_dir_all(path)
        }
        outcome => outcome,
    }
}

/// Gives the owner all rights on a folder and those below it. Links are not followed.
fn open_folders(top: &Path) -> io::Result<()> {
    let mut folders = vec![top.to_path_buf()];
    while let Some(folder) = folders.pop() {
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_that_nobody_may_enter_go_too() {
        let root = tempfile::tempdir().unwrap();
        let top = root.path().join("scratch");
        fs::create_dir_all(top.join("deep/er")).unwrap();
        fs::write(top.join("deep/file"), "x").unwrap();
        for folder in ["deep/er", "deep", ""] {
            fs::set_permissions(top.join(folder), fs::Permissions::from_mode(0o000)).unwrap();
        }
        remove_any(&top).unwrap();
        assert!(!top.exists());
    }

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
