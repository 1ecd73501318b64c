//! What must still be done if the process has to end at once: nothing of the run may stay behind.

use fuse::Undo;
use std::sync::{Arc, Mutex, PoisonError};

/// What a run has outside of this process, to be cleared from any thread.
#[derive(Debug)]
pub(crate) struct Remains {
    /// Its mount, and the folder where staging keeps its copies.
    pub undo: Undo,
    /// What every process of the run has in its environment.
    pub mark: String,
}

/// Clears what a run leaves if the process ends before the run does. Copies act on the same run.
#[derive(Debug, Clone, Default)]
pub struct LastResort(Arc<Mutex<Option<Remains>>>);

impl LastResort {
    /// Ends the tools, unmounts, and removes copies on the RAM disk. Callable from any thread, at any time, more than once.
    pub fn act(&self) {
        let Some(remains) = self.slot().take() else { return };
        exec::sweep(&remains.mark);
        remains.undo.act();
    }

    pub(crate) fn arm(&self, remains: Option<Remains>) {
        *self.slot() = remains;
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<Remains>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    #[test]
    fn the_last_resort_ends_tools_and_removes_copies_once() {
        let root = tempfile::tempdir().expect("made");
        let ram_disk = root.path().join("copies");
        let mut claim =
            fuse::RuntimeDir::at(root.path().join("run")).and_then(|dir| dir.claim("last-resort")).expect("claimed");
        claim.also_removes(&ram_disk).expect("noted");
        fs::create_dir_all(ram_disk.join("data")).expect("made");
        let id = format!("last-resort-{}", std::process::id());
        let mut tool = Command::new("sleep").arg("600").env("TIDEMILL_RUN", &id).spawn().expect("started");
        let mark = format!("TIDEMILL_RUN={id}");
        // A process has its environment a moment after it has its number.
        let environment = format!("/proc/{}/environ", tool.id());
        while !fs::read_to_string(&environment).expect("it lives").contains(&mark) {
            std::thread::yield_now();
        }
        let resort = LastResort::default();
        resort.arm(Some(Remains { undo: claim.undo(), mark }));
        resort.clone().act();
        assert_eq!(tool.wait().expect("waited").signal(), Some(9));
        assert!(!ram_disk.exists());
        resort.act();
    }
}
