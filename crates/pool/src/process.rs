//! Identity of a node's process, distinct from a later process with the same process id.

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal},
};
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsStr,
    fs, io,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::{Path, PathBuf},
    time::Duration,
};

/// Identity of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Start time, clock ticks after the boot.
    pub began: u64,
    /// Boot id of its machine: another machine, or another boot, has another one.
    pub boot: String,
    /// Inode of its network namespace. Another namespace counts as another host.
    pub net: u64,
}

impl Process {
    /// This process.
    pub fn current() -> io::Result<Self> {
        Self::from_pid(std::process::id())
    }

    /// A process of this host that shares this process's network namespace.
    pub(crate) fn from_pid(pid: u32) -> io::Result<Self> {
        Ok(Self { pid, began: start_time(pid)?, boot: boot_id()?, net: network_namespace()? })
    }

    /// A handle to the process, if it is of this machine and alive, as far as this process can see.
    pub fn open(&self) -> Option<ProcessHandle> {
        if boot_id().ok()? != self.boot {
            return None;
        }
        let handle = ProcessHandle::from_pid(self.pid)?;
        // Compared after the pidfd was opened: from then on the process id cannot name another
        // process.
        (start_time(self.pid).ok()? == self.began && !handle.wait(Duration::ZERO)).then_some(handle)
    }

    /// True if the process looks like a node that was started at this pool file, by its user and
    /// its command line. The caller must hold a handle to it, so that its process id is not reused.
    pub fn is_node_of(&self, file: &Path) -> bool {
        let directory = PathBuf::from(format!("/proc/{}", self.pid));
        let is_ours = fs::metadata(&directory).is_ok_and(|about| about.uid() == geteuid().as_raw());
        let words = fs::read(directory.join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
        let named =
            words.windows(2).find(|pair| pair[0] == b"--pool").map(|pair| Path::new(OsStr::from_bytes(pair[1])));
        let same = |named: &Path| named.canonicalize().ok().zip(file.canonicalize().ok()).is_some_and(|(a, b)| a == b);
        is_ours && words.get(1) == Some(&&b"node"[..]) && named.is_some_and(same)
    }

    /// True if the process is on this host: the same machine and the same network namespace. Then
    /// the host's own sockets reach it.
    pub fn is_of_this_host(&self) -> bool {
        self.is_of_this_machine() && network_namespace().is_ok_and(|net| net == self.net)
    }

    /// True if the process is or was on this machine, since its last boot.
    pub fn is_of_this_machine(&self) -> bool {
        boot_id().is_ok_and(|boot| boot == self.boot)
    }
}

/// Handle to a process (a pidfd), immune to reuse of the process id.
#[derive(Debug)]
pub struct ProcessHandle(OwnedFd);

impl ProcessHandle {
    /// The process that has this id now. A child keeps its id until it was waited for.
    pub fn from_pid(pid: u32) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
        Some(Self(pidfd_open(pid, PidfdFlags::empty()).ok()?))
    }

    /// Waits until the process has ended. False at the time limit.
    pub fn wait(&self, most: Duration) -> bool {
        let timeout = Timespec::try_from(most).ok();
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut fds, timeout.as_ref()).is_ok_and(|ready| ready > 0)
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        let _ = pidfd_send_signal(&self.0, Signal::TERM);
    }

    /// Sends SIGKILL.
    pub fn kill(&self) {
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
    }
}

/// Start time of a process: field 22 of its `stat`. Fields are counted after the name, which may
/// contain blanks.
fn start_time(pid: u32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let behind = stat.rsplit_once(") ").map_or("", |(_, behind)| behind);
    let field = behind.split(' ').nth(19).and_then(|field| field.parse().ok());
    field.ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat has no field 22")))
}

/// Network namespace of this process.
fn network_namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/net")?.ino())
}

/// Boot id of this machine.
fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_found_while_it_lives_and_no_other_of_its_number() {
        let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let process = Process {
            pid: child.id(),
            began: start_time(child.id()).unwrap(),
            boot: boot_id().unwrap(),
            net: network_namespace().unwrap(),
        };
        let handle = process.open().unwrap();
        assert!(!handle.wait(Duration::ZERO));
        assert!(Process { began: process.began + 1, ..process.clone() }.open().is_none(), "another of its number");
        assert!(Process { boot: "x".into(), ..process.clone() }.open().is_none(), "of another machine");
        assert!(process.is_of_this_host() && !Process { net: 0, ..process.clone() }.is_of_this_host());
        handle.kill();
        assert!(handle.wait(Duration::from_secs(10)));
        child.wait().unwrap();
        assert!(process.open().is_none());
    }
}
