//! Removes paths of the pool in the background, so that no task waits for the end of another's files.

use super::transfer::bytes_of;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use tokio::runtime::Handle;
use vfs::Vfs;
use wire::{Outcome, Refusal};

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
    /// Starts the thread. Must be called within a tokio runtime.
    pub fn new(pool: Vfs) -> Self {
        let (queue, told) = channel::<PathBuf>();
        let runtime = Handle::current();
        let work = move || {
            for place in told {
                if let Err(refusal) = runtime.block_on(remove(&pool, &place)) {
                    tracing::warn!(path = %place.display(), %refusal, "a file that is no longer needed stays in the pool");
                }
            }
        };
        let thread = std::thread::Builder::new().name("janitor".into()).spawn(work).ok();
        Self { queue: Some(queue), thread }
    }

    /// Asks for `place` below the pool's root to be removed, with all that is in it, and its folder too if that is then empty.
    pub fn remove(&self, place: PathBuf) {
        // Without its thread nothing is removed before the end of the run, when the pool goes.
        if let Some(Err(left)) = self.queue.as_ref().map(|queue| queue.send(place)) {
            tracing::warn!(path = %left.0.display(), "a file that is no longer needed stays in the pool");
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

async fn remove(pool: &Vfs, place: &Path) -> Outcome<()> {
    match pool.remove_tree(bytes_of(place)).await {
        Err(Refusal::NotFound(_)) => return Ok(()),
        outcome => outcome?,
    }
    // The folder goes with its last file; while there are others this is refused, as it should be.
    let folder = place.parent().and_then(|folder| Some((folder.parent()?, folder.file_name()?)));
    if let Some((above, name)) = folder {
        let above = pool.resolve(bytes_of(above)).await?.file;
        let _ = pool.remove_directory(above, bytes_of(name.as_ref())).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[tokio::test(flavor = "multi_thread")]
    async fn files_go_and_their_folder_with_the_last() {
        let settings = node::Settings::new(base::ByteSize::mib(32));
        let engine = store::Model::new(32 << 20, settings.stripe_bytes);
        let pool = Vfs::new(client::Client::embedded(node::embedded(settings, Arc::new(engine))));
        for folder in ["t.1/scratch", "t.2"] {
            pool.make_directories(folder.as_bytes()).await.unwrap();
        }
        for file in ["t.1/a", "t.1/scratch/b", "t.2/a", "t.2/kept"] {
            pool.write_file(file.as_bytes(), b"x").await.unwrap();
        }
        let mut janitor = Janitor::new(pool.clone());
        for place in ["t.1/a", "t.1/never-there", "t.1/scratch", "t.2/a"] {
            janitor.remove(place.into());
        }
        tokio::task::spawn_blocking(move || janitor.close()).await.unwrap();
        assert!(matches!(pool.resolve(b"t.1").await, Err(Refusal::NotFound(_))));
        assert_eq!(pool.read_file(b"t.2/kept").await.unwrap(), b"x");
        assert!(matches!(pool.resolve(b"t.2/a").await, Err(Refusal::NotFound(_))));
    }
}
