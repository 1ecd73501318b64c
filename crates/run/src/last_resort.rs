//! What must still be done if the process has to end at once: nothing of the run may stay behind.

use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// What a run has outside of this process, to be cleared from any thread.
#[derive(Debug)]
pub(crate) struct Remains {
    /// The mount.
    pub unmounter: Option<fuse::Unmounter>,
    /// Where staging keeps its copies.
    pub ram_disk: Option<PathBuf>,
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
        if let Some(unmounter) = remains.unmounter {
            let _ = unmounter.unmount();
        }
        if let Some(ram_disk) = remains.ram_disk {
            let _ = fs::remove_dir_all(ram_disk);
        }
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
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    #[test]
    fn the_last_resort_ends_tools_and_removes_copies_once() {
        let root = tempfile::tempdir().expect("made");
        let ram_disk = root.path().join("copies");
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
        resort.arm(Some(Remains { unmounter: None, ram_disk: Some(ram_disk.clone()), mark }));
        resort.clone().act();
        assert_eq!(tool.wait().expect("waited").signal(), Some(9));
        assert!(!ram_disk.exists());
        resort.act();
    }
}
