//! The grants of one inode: the subscribers that may cache parts of it, or know it.
//!
//! Most pools have few mounts, and an inode has four sets. So the **first** subscribers, of the
//! lowest numbers, are two bytes of each set. The sets of all **further** subscribers are a block
//! of memory that an inode has only while one of them is in a set. `memory_cost::INODE_BYTES` has
//! room for it.

use crate::{SubscriberId, SubscriberIds};
use serde::{Deserialize, Serialize};

/// Subscribers whose bits are in the inode itself.
const FIRST: SubscriberIds = SubscriberIds(u16::MAX as u128);

/// The sets of an inode's grants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantSet {
    /// May cache the attributes.
    Attributes,
    /// May cache bytes of a file, or names of a directory.
    Content,
    /// Subscribers whose kernel knows the inode, or did until recently.
    Known,
    /// Subscribers whose kernels may know other names of it than it has: other sessions created,
    /// moved or removed a name.
    UnsureHolders,
}

impl GrantSet {
    const ALL: [Self; 4] = [Self::Attributes, Self::Content, Self::Known, Self::UnsureHolders];
}

/// The sets of further subscribers.
pub type FurtherSets = [SubscriberIds; GrantSet::ALL.len()];

/// Changes of the current edit of an inode that its attributes do not show.
#[derive(Clone, Copy, Debug, Default)]
pub struct EditMarks {
    /// It changed bytes or entries.
    pub touched: bool,
    /// It changed access rules, or other sessions read the file directly from now on: the
    /// attributes that others cache are outdated, although they look the same.
    pub outdated: bool,
}

/// Grants of one inode.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InodeGrants {
    /// The first subscribers of each set.
    first: [u16; GrantSet::ALL.len()],
    /// The further subscribers of each set; `None` if all sets have none.
    further: Option<Box<FurtherSets>>,
}

impl InodeGrants {
    /// Returns the grants of a new fragment. It does not know who caches parts of its directory, so
    /// all subscribers are notified of changes.
    pub fn for_fragment() -> Self {
        let mut grants = Self::default();
        grants.add(GrantSet::Attributes, SubscriberIds::ALL);
        grants.add(GrantSet::Content, SubscriberIds::ALL);
        grants
    }

    /// Returns the subscribers in a set.
    pub fn get(&self, set: GrantSet) -> SubscriberIds {
        let further = self.further.as_ref().map_or(SubscriberIds::NONE, |sets| sets[set as usize]);
        SubscriberIds(self.first[set as usize].into()).union(further)
    }

    /// Adds subscribers to a set.
    pub fn add(&mut self, set: GrantSet, subscribers: SubscriberIds) {
        self.first[set as usize] |= first_bits(subscribers);
        let further = SubscriberIds(subscribers.0 & !FIRST.0);
        if !further.is_empty() {
            let sets = self.further.get_or_insert_default();
            sets[set as usize] = sets[set as usize].union(further);
        }
    }

    /// Removes those of the subscribers that are in a set, and returns them.
    pub fn take(&mut self, set: GrantSet, subscribers: SubscriberIds) -> SubscriberIds {
        let taken = self.get(set).intersection(subscribers);
        self.first[set as usize] &= !first_bits(taken);
        if let Some(sets) = &mut self.further {
            sets[set as usize].0 &= !taken.0;
            if sets.iter().all(|set| set.is_empty()) {
                self.further = None;
            }
        }
        taken
    }

    /// Removes a subscriber from all sets.
    pub fn remove(&mut self, subscriber: SubscriberId) {
        for set in GrantSet::ALL {
            self.take(set, SubscriberIds::of(subscriber));
        }
    }

    /// Returns true if no subscriber is in a set.
    pub fn is_empty(&self) -> bool {
        self.first == [0; GrantSet::ALL.len()] && self.further.is_none()
    }

    /// Returns these grants with each set changed.
    #[must_use]
    pub fn map(&self, change: impl Fn(SubscriberIds) -> SubscriberIds) -> Self {
        let mut changed = Self::default();
        for set in GrantSet::ALL {
            changed.add(set, change(self.get(set)));
        }
        changed
    }
}

/// Returns the bits of the first subscribers.
fn first_bits(subscribers: SubscriberIds) -> u16 {
    (subscribers.0 & FIRST.0) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use GrantSet::{Attributes, Content, Known};

    fn ids(numbers: &[usize]) -> SubscriberIds {
        numbers.iter().map(|number| SubscriberId::new(*number).unwrap()).collect()
    }

    #[test]
    fn a_set_gives_back_whom_it_was_given_once_whatever_their_numbers() {
        let mut grants = InodeGrants::default();
        grants.add(Attributes, ids(&[0, 15, 16, 127]));
        grants.add(Known, ids(&[16]));
        assert_eq!(grants.get(Attributes), ids(&[0, 15, 16, 127]));
        assert_eq!(grants.take(Attributes, ids(&[1, 15, 16, 17])), ids(&[15, 16]));
        assert_eq!(grants.take(Attributes, SubscriberIds::ALL), ids(&[0, 127]));
        assert_eq!((grants.get(Attributes), grants.get(Content)), (SubscriberIds::NONE, SubscriberIds::NONE));
        assert_eq!(grants.get(Known), ids(&[16]));
    }

    #[test]
    fn memory_for_further_subscribers_is_taken_only_while_one_of_them_has_a_grant() {
        let mut grants = InodeGrants::default();
        grants.add(Content, ids(&[15]));
        assert!(grants.further.is_none());
        grants.add(Content, ids(&[16]));
        grants.add(Known, ids(&[100]));
        grants.remove(SubscriberId::new(16).unwrap());
        assert!(grants.further.is_some());
        assert_eq!(grants.take(Known, ids(&[100])), ids(&[100]));
        assert!(grants.further.is_none() && !grants.is_empty());
    }

    #[test]
    fn grants_of_all_are_those_of_every_number_and_are_mapped_one_by_one() {
        let grants = InodeGrants::for_fragment();
        assert_eq!((grants.get(Attributes), grants.get(Known)), (SubscriberIds::ALL, SubscriberIds::NONE));
        let mapped = grants.map(|set| set.intersection(ids(&[3, 99])));
        assert_eq!((mapped.get(Content), mapped.get(Known)), (ids(&[3, 99]), SubscriberIds::NONE));
        assert!(mapped.map(|_| SubscriberIds::NONE).is_empty());
    }
}
