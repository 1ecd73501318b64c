//! Removes paths of the pool in the background, so that no task waits for the removal of another's
//! files.

use super::copy::bytes_of;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use vfs::Vfs;
use wire::{Outcome, Refusal};

/// A thread that removes paths in the order in which they were queued.
///
/// The queue has no bound of its own: it holds at most one path for each file of the run. A bound
/// could make the scheduler wait for a removal that waits for the scheduler.
#[derive(Debug)]
pub struct BackgroundRemover {
    queue: Option<Sender<Removal>>,
    thread: Option<JoinHandle<()>>,
    /// Bytes of members that will be removed, queued or not yet.
    leaving: Arc<AtomicU64>,
    /// Notified after each removal.
    removed: Arc<Notify>,
    /// True if the pool is lost, with all that is in it.
    lost: Arc<AtomicBool>,
}

/// A place to remove, and the bytes of members that are freed with it.
#[derive(Debug)]
struct Removal {
    place: PathBuf,
    bytes: u64,
}

impl BackgroundRemover {
    /// Starts the thread. Must be called within a tokio runtime.
    pub fn new(pool: Vfs) -> Self {
        let (queue, describe) = channel::<Removal>();
        let (leaving, removed) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
        let (runtime, left, tell) = (Handle::current(), leaving.clone(), removed.clone());
        let lost = Arc::new(AtomicBool::new(false));
        let is_lost = lost.clone();
        let work = move || {
            for Removal { place, bytes } in describe {
                if is_lost.load(Relaxed) {
                    continue;
                }
                if let Err(refusal) = runtime.block_on(remove_from_pool(&pool, &place))
                    && !is_lost.load(Relaxed)
                {
                    tracing::warn!(path = %place.display(), %refusal, "a file that is no longer needed stays in the pool");
                }
                left.fetch_sub(bytes, Relaxed);
                tell.notify_one();
            }
        };
        let thread = std::thread::Builder::new().name("janitor".into()).spawn(work).ok();
        Self { queue: Some(queue), thread, leaving, removed, lost }
    }

    /// Queues the removal of `place` below the pool's root with all its content, and of the
    /// directory around it if that is then empty.
    pub fn remove(&self, place: PathBuf) {
        self.remove_leaving(place, 0);
    }

    /// Queues the removal of a member of `bytes` bytes that was passed to
    /// [`Self::announce_removal`].
    pub fn remove_leaving(&self, place: PathBuf, bytes: u64) {
        // Without the thread nothing is removed before the end of the run, when the pool is
        // removed.
        if let Some(Err(left)) = self.queue.as_ref().map(|queue| queue.send(Removal { place, bytes })) {
            tracing::warn!(path = %left.0.place.display(), "a file that is no longer needed stays in the pool");
            self.leaving.fetch_sub(bytes, Relaxed);
        }
    }

    /// Announces that a member of `bytes` bytes will be removed: soon, or once it is exported.
    pub fn announce_removal(&self, bytes: u64) {
        self.leaving.fetch_add(bytes, Relaxed);
    }

    /// Takes an announcement back: the member is lost.
    pub fn retract_removal(&self, bytes: u64) {
        self.leaving.fetch_sub(bytes, Relaxed);
    }

    /// Bytes of members that were announced and are not removed yet.
    pub fn leaving(&self) -> u64 {
        self.leaving.load(Relaxed)
    }

    /// Waits for the next removal.
    pub async fn removed(&self) {
        self.removed.notified().await;
    }

    /// Removes nothing more: the pool is lost.
    pub fn give_up(&self) {
        self.lost.store(true, Relaxed);
    }

    /// Waits until everything in the queue is removed.
    pub fn close(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for BackgroundRemover {
    fn drop(&mut self) {
        self.close();
    }
}

/// Removes `place` below the pool's root with all its content, and the directory around it if that
/// is then empty.
pub async fn remove_from_pool(pool: &Vfs, place: &Path) -> Outcome<()> {
    match pool.remove_tree(bytes_of(place)).await {
        Err(Refusal::NotFound(_)) => return Ok(()),
        outcome => outcome?,
    }
    // The directory is removed with its last file; before that this call fails, as it should.
    let directory = place.parent().and_then(|directory| Some((directory.parent()?, directory.file_name()?)));
    if let Some((above, name)) = directory {
        let above = pool.resolve(bytes_of(above)).await?.file;
        let _ = pool.remove_directory(above, bytes_of(name.as_ref())).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn files_go_and_their_directory_with_the_last() {
        let settings = node::NodeSettings::new(base::ByteSize::mib(32));
        let engine = store::ModelEngine::new(32 << 20, settings.stripe_bytes);
        let pool = Vfs::new(client::Client::embedded(node::embedded(settings, Arc::new(engine))));
        for directory in ["t.1/scratch", "t.2"] {
            pool.make_directories(directory.as_bytes()).await.unwrap();
        }
        for file in ["t.1/a", "t.1/scratch/b", "t.2/a", "t.2/kept"] {
            pool.write_file(file.as_bytes(), b"x").await.unwrap();
        }
        let mut remover = BackgroundRemover::new(pool.clone());
        for place in ["t.1/a", "t.1/never-there", "t.1/scratch", "t.2/a"] {
            remover.announce_removal(1);
            remover.remove_leaving(place.into(), 1);
        }
        // A member that is lost meanwhile.
        remover.announce_removal(7);
        assert!(remover.leaving() >= 7);
        remover.retract_removal(7);
        remover.removed().await;
        let left = remover.leaving.clone();
        tokio::task::spawn_blocking(move || remover.close()).await.unwrap();
        assert_eq!(left.load(Relaxed), 0);
        assert!(matches!(pool.resolve(b"t.1").await, Err(Refusal::NotFound(_))));
        assert_eq!(pool.read_file(b"t.2/kept").await.unwrap(), b"x");
        assert!(matches!(pool.resolve(b"t.2/a").await, Err(Refusal::NotFound(_))));
    }
}
