//! Caller of an operation: the credentials of the current thread. They are read anew for each call,
//! because programs change them.

use rustix::process::{getegid, geteuid, getgid, getgroups, getuid};
use rustix::thread::{CapabilitySet, capabilities};
use std::cell::OnceCell;
use wire::{Credentials, DirAccess};

/// User with groups and capabilities. Groups and capabilities are queried only when they are
/// needed.
#[derive(Debug)]
pub struct Caller {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    groups: OnceCell<Vec<u32>>,
    capable: OnceCell<CapabilitySet>,
}

/// Credentials that a node checks along a path.
#[derive(Debug)]
pub enum TraversalCheck {
    /// No check: the caller's capabilities permit everything.
    Skip,
    /// Check for this user. Where the mode bits alone do not grant access, the node stops, and this
    /// crate checks step by step.
    As(Credentials),
}

impl TraversalCheck {
    /// Returns the credentials to send; `None` for no check.
    pub fn credentials(&self) -> Option<&Credentials> {
        match self {
            Self::Skip => None,
            Self::As(credentials) => Some(credentials),
        }
    }
}

impl Caller {
    /// Returns the effective ids of the thread, which file operations use.
    pub fn effective() -> Self {
        Self { uid: geteuid().as_raw(), gid: getegid().as_raw(), groups: OnceCell::new(), capable: OnceCell::new() }
    }

    /// Returns the real ids of the thread, which access(2) uses, with the capabilities that a user
    /// of these ids would have.
    pub fn real() -> Self {
        let uid = getuid().as_raw();
        let capable = if uid == 0 { OnceCell::new() } else { OnceCell::from(CapabilitySet::empty()) };
        Self { uid, gid: getgid().as_raw(), groups: OnceCell::new(), capable }
    }

    /// Makes a caller with given credentials, for tests and models.
    pub fn new(uid: u32, gid: u32, groups: &[u32], capable: CapabilitySet) -> Self {
        Self { uid, gid, groups: OnceCell::from(groups.to_vec()), capable: OnceCell::from(capable) }
    }

    /// Returns whether the caller is in a group.
    pub fn is_in(&self, gid: u32) -> bool {
        gid == self.gid || self.groups().contains(&gid)
    }

    fn groups(&self) -> &Vec<u32> {
        let query = || getgroups().unwrap_or_default().into_iter().map(rustix::process::Gid::as_raw).collect();
        self.groups.get_or_init(query)
    }

    /// Returns the credentials to check along a path and for `needs` at its end, or
    /// `TraversalCheck::Skip` if the caller has `capable`. `None` if the caller has too many groups
    /// for one message.
    pub fn traversal_check(&self, needs: DirAccess, capable: CapabilitySet) -> Option<TraversalCheck> {
        if self.can(capable) {
            return Some(TraversalCheck::Skip);
        }
        let groups = self.groups();
        let fits = groups.len() <= Credentials::GROUPS_MAX;
        fits.then(|| {
            TraversalCheck::As(Credentials { uid: self.uid, gid: self.gid, groups: groups.clone(), access: needs })
        })
    }

    /// Returns whether the caller has all of these capabilities (capabilities(7)).
    pub fn can(&self, wanted: CapabilitySet) -> bool {
        let query = || capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
        self.capable.get_or_init(query).contains(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEARCH: CapabilitySet = CapabilitySet::DAC_READ_SEARCH;

    #[test]
    fn a_user_is_in_the_primary_group_and_in_every_other_one() {
        let caller = Caller::new(1, 2, &[3, 4], CapabilitySet::empty());
        assert_eq!([1, 2, 3, 4, 5].map(|gid| caller.is_in(gid)), [false, true, true, true, false]);
    }

    #[test]
    fn a_capability_is_held_only_with_all_that_are_wanted() {
        let caller = Caller::new(1, 2, &[], SEARCH | CapabilitySet::FOWNER);
        assert!(caller.can(SEARCH) && caller.can(SEARCH | CapabilitySet::FOWNER) && caller.can(CapabilitySet::empty()));
        assert!(!caller.can(CapabilitySet::CHOWN) && !caller.can(SEARCH | CapabilitySet::CHOWN));
    }

    #[test]
    fn a_node_checks_the_path_for_a_user_whose_groups_fit_in_a_message() {
        let groups: Vec<u32> = (0..=u32::try_from(Credentials::GROUPS_MAX).unwrap()).collect();
        let caller = |groups: &[u32], capable| Caller::new(1, 2, groups, capable);
        let most = caller(&groups[1..], CapabilitySet::empty()).traversal_check(DirAccess::Create, SEARCH).unwrap();
        let credentials = most.credentials().unwrap();
        assert_eq!((credentials.uid, credentials.gid, &credentials.groups[..]), (1, 2, &groups[1..]));
        assert!(caller(&groups, CapabilitySet::empty()).traversal_check(DirAccess::Lookup, SEARCH).is_none());
        let free = caller(&groups, SEARCH).traversal_check(DirAccess::Lookup, SEARCH).unwrap();
        assert!(free.credentials().is_none(), "the capability permits everything");
    }
}
