//! Emergency cleanup: removes everything that a run has outside of the process, if the process must
//! end at once.

use crate::cluster::CarrierHandle;
use crate::environment::run_env_var;
use mount::Rollback;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// Mount, directories and processes of a run, to be removed from any thread.
#[derive(Debug, Clone)]
pub(crate) struct CleanupList {
    /// Removes its mount, and the directory where staging keeps its copies.
    pub rollback: Rollback,
    /// The environment variable that every process of the run has, as `NAME=value`.
    pub run_env_var: String,
    /// The way to the agents of a cluster.
    pub carrier: Option<CarrierHandle>,
    /// Sockets of agents on this host that are the run's own.
    pub agents: Vec<PathBuf>,
}

impl CleanupList {
    /// The list of a run, or of an agent, with this name on this host.
    pub fn new(rollback: Rollback, name: &str) -> Self {
        Self { rollback, run_env_var: run_env_var(name), carrier: None, agents: Vec::new() }
    }

    fn end_agents(&self) {
        if let Some(carrier) = &self.carrier {
            carrier.abandon();
        }
        for socket in &self.agents {
            let end = crate::cluster::end_line();
            // An error means that it has ended.
            let _ = UnixStream::connect(socket).and_then(|mut agent| agent.write_all(end.as_bytes()));
        }
    }
}

/// Cleans up after a run if the process ends before the run does. Clones act on the same run.
#[derive(Debug, Clone, Default)]
pub struct EmergencyCleanup(Arc<Mutex<Option<CleanupList>>>);

impl EmergencyCleanup {
    /// Kills the tools, unmounts, removes copies on the RAM disk, and lets agents end. Callable
    /// from any thread, at any time, more than once.
    pub fn act(&self) {
        let Some(list) = self.armed().take() else { return };
        list.end_agents();
        exec::kill_by_env_var(&list.run_env_var);
        list.rollback.run();
    }

    pub(crate) fn arm(&self, list: Option<CleanupList>) {
        *self.armed() = list;
    }

    fn armed(&self) -> std::sync::MutexGuard<'_, Option<CleanupList>> {
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
        let mut registration = mount::RuntimeDir::at(root.path().join("run"))
            .and_then(|dir| dir.register("last-resort"))
            .expect("claimed");
        registration.add_directory(&ram_disk).expect("noted");
        fs::create_dir_all(ram_disk.join("data")).expect("made");
        let id = format!("last-resort-{}", std::process::id());
        let mut tool = Command::new("sleep").arg("600").env("TIDEMILL_RUN", &id).spawn().expect("started");
        let run_env_var = format!("TIDEMILL_RUN={id}");
        // Wait for the exec: until then /proc shows the environment of the parent.
        let environment = format!("/proc/{}/environ", tool.id());
        while !fs::read_to_string(&environment).expect("it lives").contains(&run_env_var) {
            std::thread::yield_now();
        }
        let cleanup = EmergencyCleanup::default();
        cleanup.arm(Some(CleanupList::new(registration.rollback(), &id)));
        cleanup.clone().act();
        assert_eq!(tool.wait().expect("waited").signal(), Some(9));
        assert!(!ram_disk.exists());
        cleanup.act();
    }
}
