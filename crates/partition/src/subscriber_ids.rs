//! Subscribers as small numbers, and sets of them.

use serde::{Deserialize, Serialize};

/// Number of words of a set.
pub const SUBSCRIBER_WORDS: usize = SubscriberId::MAX / u64::BITS as usize;

/// A subscribed session, as a small number: below [`SubscriberId::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u8")]
pub struct SubscriberId(u8);

impl TryFrom<u8> for SubscriberId {
    type Error = &'static str;

    fn try_from(number: u8) -> Result<Self, Self::Error> {
        Self::new(number.into()).ok_or("a subscriber has a number below 128")
    }
}

impl SubscriberId {
    /// Maximum number of subscribers at a time: a mount on each host of a large job.
    pub const MAX: usize = 128;

    /// Returns the subscriber of this number, or `None` if the number is too large.
    pub fn new(number: usize) -> Option<Self> {
        let number = u8::try_from(number).ok()?;
        (usize::from(number) < Self::MAX).then_some(Self(number))
    }

    /// Returns its number.
    pub fn number(self) -> usize {
        self.0.into()
    }
}

/// A set of subscribers: a bit for each number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriberIds(pub(crate) u128);

const _: () = assert!(SubscriberId::MAX == u128::BITS as usize);

impl SubscriberIds {
    /// The empty set.
    pub const NONE: Self = Self(0);
    /// The set of all possible subscribers.
    pub const ALL: Self = Self(u128::MAX);

    /// Returns the set of these bits, those of the lowest numbers first.
    pub fn from_words([low, high]: [u64; SUBSCRIBER_WORDS]) -> Self {
        Self(u128::from(high) << u64::BITS | u128::from(low))
    }

    /// Returns true if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns true if the set has this subscriber.
    pub fn has(self, subscriber: SubscriberId) -> bool {
        self.0 & Self::of(subscriber).0 != 0
    }

    /// Returns the set with this subscriber added.
    #[must_use]
    pub fn with(self, subscriber: SubscriberId) -> Self {
        self.union(Self::of(subscriber))
    }

    /// Returns the set with this subscriber removed.
    #[must_use]
    pub fn without(self, subscriber: SubscriberId) -> Self {
        Self(self.0 & !Self::of(subscriber).0)
    }

    /// Returns the subscribers in the set, the lowest number first.
    pub fn iter(self) -> impl Iterator<Item = SubscriberId> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let lowest = SubscriberId::new(left.trailing_zeros() as usize)?;
            left &= left - 1;
            Some(lowest)
        })
    }

    /// Returns the union.
    #[must_use]
    pub fn union(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Returns the intersection.
    #[must_use]
    pub fn intersection(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }

    /// Returns the set of this subscriber alone.
    pub fn of(subscriber: SubscriberId) -> Self {
        Self(1 << subscriber.0)
    }
}

impl FromIterator<SubscriberId> for SubscriberIds {
    fn from_iter<I: IntoIterator<Item = SubscriberId>>(subscribers: I) -> Self {
        subscribers.into_iter().fold(Self::NONE, Self::with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_added_and_lists_it_in_order() {
        let [first, middle, last] = [0, 64, SubscriberId::MAX - 1].map(|number| SubscriberId::new(number).unwrap());
        assert_eq!(SubscriberId::new(SubscriberId::MAX), None);
        let set: SubscriberIds = [last, first, middle].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [first, middle, last]);
        assert_eq!(set, SubscriberIds::from_words([1, 1 << 63 | 1]));
        assert!(!set.without(middle).has(middle) && set.without(middle).has(last));
        assert_eq!(SubscriberIds::ALL.iter().count(), SubscriberId::MAX);
        assert_eq!(SubscriberIds::NONE.iter().next(), None);
    }
}
