//! Processes of nodes, told apart from later ones with the same number.

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

/// A process of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// When it began: clock ticks after the boot.
    pub began: u64,
    /// Which boot of which machine: nobody else's processes have these numbers.
    pub boot: String,
    /// Its network namespace, as the kernel numbers it: another is as good as another host.
    pub net: u64,
}

impl Process {
    /// This one.
    pub fn this() -> io::Result<Self> {
        Self::of(std::process::id())
    }

    /// One of this host, in the network of this one.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        Ok(Self { pid, began: began(pid)?, boot: boot()?, net: net()? })
    }

    /// A hold on it, if it is of this machine and lives, as far as this process can see.
    pub fn find(&self) -> Option<Held> {
        if boot().ok()? != self.boot {
            return None;
        }
        let held = Held::of(self.pid)?;
        // Only now is it sure that the number is not given to another.
        (began(self.pid).ok()? == self.began && !held.wait(Duration::ZERO)).then_some(held)
    }

    /// Whether it is a node that was started at this pool file, as far as can be seen: by its user and the words that it was called with. It is
    /// to be held meanwhile, so that its number is not given to another.
    pub fn is_node_of(&self, file: &Path) -> bool {
        let folder = PathBuf::from(format!("/proc/{}", self.pid));
        let is_ours = fs::metadata(&folder).is_ok_and(|about| about.uid() == geteuid().as_raw());
        let words = fs::read(folder.join("cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
        let named =
            words.windows(2).find(|pair| pair[0] == b"--pool").map(|pair| Path::new(OsStr::from_bytes(pair[1])));
        let same = |named: &Path| named.canonicalize().ok().zip(file.canonicalize().ok()).is_some_and(|(a, b)| a == b);
        is_ours && words.get(1) == Some(&&b"node"[..]) && named.is_some_and(same)
    }

    /// Whether it is on this host, so that nobody loses what is said over the host's own sockets: on this machine and in this network.
    pub fn is_of_this_host(&self) -> bool {
        self.is_of_this_machine() && net().is_ok_and(|net| net == self.net)
    }

    /// Whether it would be of this machine.
    pub fn is_of_this_machine(&self) -> bool {
        boot().is_ok_and(|boot| boot == self.boot)
    }
}

/// A process that nobody else can become.
#[derive(Debug)]
pub struct Held(OwnedFd);

impl Held {
    /// Of whoever has this number now: a child that was not waited for keeps its own.
    pub fn of(pid: u32) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
        Some(Self(pidfd_open(pid, PidfdFlags::empty()).ok()?))
    }

    /// Waits until it has ended. False when it has not by then.
    pub fn wait(&self, most: Duration) -> bool {
        let timeout = Timespec::try_from(most).ok();
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        poll(&mut fds, timeout.as_ref()).is_ok_and(|ready| ready > 0)
    }

    /// Asks it to end.
    pub fn terminate(&self) {
        let _ = pidfd_send_signal(&self.0, Signal::TERM);
    }

    /// Ends it.
    pub fn kill(&self) {
        let _ = pidfd_send_signal(&self.0, Signal::KILL);
    }
}

/// Field 22 of the process's `stat`, counted behind its name.
fn began(pid: u32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let behind = stat.rsplit_once(") ").map_or("", |(_, behind)| behind);
    let field = behind.split(' ').nth(19).and_then(|field| field.parse().ok());
    field.ok_or_else(|| io::Error::other(format!("/proc/{pid}/stat has no field 22")))
}

/// Of this process.
fn net() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/net")?.ino())
}

/// Of the machine.
fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_found_while_it_lives_and_no_other_of_its_number() {
        let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        let process =
            Process { pid: child.id(), began: began(child.id()).unwrap(), boot: boot().unwrap(), net: net().unwrap() };
        let held = process.find().unwrap();
        assert!(!held.wait(Duration::ZERO));
        assert!(Process { began: process.began + 1, ..process.clone() }.find().is_none(), "another of its number");
        assert!(Process { boot: "x".into(), ..process.clone() }.find().is_none(), "of another machine");
        assert!(process.is_of_this_host() && !Process { net: 0, ..process.clone() }.is_of_this_host());
        held.kill();
        assert!(held.wait(Duration::from_secs(10)));
        child.wait().unwrap();
        assert!(process.find().is_none());
    }
}
