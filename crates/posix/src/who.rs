//! Who asks, as the system sees the thread at this moment: programs change that while they run.

use rustix::process::{getegid, geteuid, getgid, getgroups, getuid};
use rustix::thread::{CapabilitySet, capabilities};
use std::cell::OnceCell;
use wire::{Credentials, Needs};

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

/// Whom a node lets through on a way.
#[derive(Debug)]
pub enum Going {
    /// Anybody: nothing keeps this user.
    Free,
    /// This user, where it is sure.
    As(Credentials),
}

impl Going {
    /// As a way has it.
    pub fn who(&self) -> Option<&Credentials> {
        match self {
            Self::Free => None,
            Self::As(who) => Some(who),
        }
    }
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
        gid == self.gid || self.groups().contains(&gid)
    }

    fn groups(&self) -> &Vec<u32> {
        let ask = || getgroups().unwrap_or_default().into_iter().map(rustix::process::Gid::as_raw).collect();
        self.groups.get_or_init(ask)
    }

    /// As whom a node is to look at a way, and at what is at its end, which capabilities may make needless; none where that cannot be told.
    pub fn going(&self, needs: Needs, capable: CapabilitySet) -> Option<Going> {
        if self.can(capable) {
            return Some(Going::Free);
        }
        let groups = self.groups();
        let told = groups.len() <= Credentials::GROUPS_MAX;
        told.then(|| Going::As(Credentials { uid: self.uid, gid: self.gid, groups: groups.clone(), needs }))
    }

    /// Whether it has a capability (capabilities(7)).
    pub fn can(&self, what: CapabilitySet) -> bool {
        let ask = || capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
        self.capable.get_or_init(ask).contains(what)
    }
}
