//! Who asks, as the system sees the thread at this moment: programs change that while they run.

use rustix::process::{getegid, geteuid, getgid, getgroups, getuid};
use rustix::thread::{CapabilitySet, capabilities};
use std::cell::OnceCell;

/// A user with groups and capabilities. What few calls need is asked when it is needed.
#[derive(Debug)]
pub struct Who {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    groups: OnceCell<Vec<u32>>,
    capable: OnceCell<CapabilitySet>,
}

impl Who {
    /// As file operations see the thread: its effective ids.
    pub fn now() -> Self {
        Self { uid: geteuid().as_raw(), gid: getegid().as_raw(), groups: OnceCell::new(), capable: OnceCell::new() }
    }

    /// As access(2) sees it: its real ids, and the capabilities that a user of those would have.
    pub fn real() -> Self {
        let uid = getuid().as_raw();
        let capable = if uid == 0 { OnceCell::new() } else { OnceCell::from(CapabilitySet::empty()) };
        Self { uid, gid: getgid().as_raw(), groups: OnceCell::new(), capable }
    }

    /// One for tests and models, of whom all is known.
    pub fn of(uid: u32, gid: u32, groups: &[u32], capable: CapabilitySet) -> Self {
        Self { uid, gid, groups: OnceCell::from(groups.to_vec()), capable: OnceCell::from(capable) }
    }

    /// Whether it is one of its groups.
    pub fn is_in(&self, gid: u32) -> bool {
        let ask = || getgroups().unwrap_or_default().into_iter().map(rustix::process::Gid::as_raw).collect();
        gid == self.gid || self.groups.get_or_init(ask).contains(&gid)
    }

    /// Whether it has a capability (capabilities(7)).
    pub fn can(&self, what: CapabilitySet) -> bool {
        let ask = || capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
        self.capable.get_or_init(ask).contains(what)
    }
}
