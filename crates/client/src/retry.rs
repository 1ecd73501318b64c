//! When to send again: a decider without a clock.

use placement::PartitionMap;
use std::{sync::Arc, time::Duration};
use wire::{Failure, Object, Refusal};

/// How long a client tries.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How often a call is sent before its node counts as unavailable.
    pub tries: u32,
    /// The pause before the second try; each later one is twice as long.
    pub pause_first: Duration,
    /// The longest pause.
    pub pause_max: Duration,
}

impl Default for Patience {
    /// About two seconds: longer than a node pauses, shorter than a person waits.
    fn default() -> Self {
        Self { tries: 16, pause_first: Duration::from_millis(1), pause_max: Duration::from_millis(200) }
    }
}

/// A map that is old again and again is no progress either.
const STALE_MAPS_MAX: u32 = 16;

/// One call's tries.
#[derive(Debug)]
pub struct Retry {
    patience: Patience,
    tries: u32,
    stale_maps: u32,
    /// A try may have been done, though no answer came.
    lost: bool,
}

/// What to do about a failure.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Send it again after a pause.
    Again(Duration),
    /// Take this map, and send it again by it.
    Follow(Arc<PartitionMap>),
    /// Give up.
    Refuse(Refusal),
}

impl Retry {
    pub fn new(patience: Patience) -> Self {
        Self { patience, tries: 0, stale_maps: 0, lost: false }
    }

    /// What a failure means for a call about `object`.
    pub fn on(&mut self, failure: Failure, object: impl FnOnce() -> Object) -> Step {
        self.lost |= matches!(failure, Failure::Lost(_));
        match failure {
            Failure::Refused(refusal) => Step::Refuse(refusal),
            Failure::StaleMap(map) if self.stale_maps < STALE_MAPS_MAX => {
                self.stale_maps += 1;
                Step::Follow(map)
            }
            failure => match self.pause() {
                Some(pause) => Step::Again(pause),
                None => Step::Refuse(Refusal::Unavailable {
                    object: object(),
                    tries: self.tries,
                    why: failure.to_string().into(),
                }),
            },
        }
    }

    /// Whether a try may have been done, though no answer came.
    pub fn is_lost(&self) -> bool {
        self.lost
    }

    /// The pause before the next try, while there is one.
    pub fn pause(&mut self) -> Option<Duration> {
        self.tries += 1;
        let doubled = self.patience.pause_first.saturating_mul(1 << (self.tries - 1).min(20));
        (self.tries < self.patience.tries).then(|| doubled.min(self.patience.pause_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use placement::NodeId;

    const PATIENCE: Patience =
        Patience { tries: 4, pause_first: Duration::from_millis(1), pause_max: Duration::from_millis(3) };

    #[test]
    fn pauses_grow_to_a_limit_and_tries_end() {
        let mut retry = Retry::new(PATIENCE);
        let mut on = || retry.on(Failure::Lost("cut".into()), || Object::Pool);
        assert_eq!(on(), Step::Again(Duration::from_millis(1)));
        assert_eq!(on(), Step::Again(Duration::from_millis(2)));
        assert_eq!(on(), Step::Again(Duration::from_millis(3)));
        let Step::Refuse(Refusal::Unavailable { tries: 4, why, .. }) = on() else { panic!("it gives up") };
        assert!(why.contains("cut"));
    }

    #[test]
    fn a_new_map_costs_no_try_but_not_for_ever() {
        let map = Arc::new(PartitionMap::one_node(NodeId(1), 4).unwrap());
        let mut retry = Retry::new(PATIENCE);
        for _ in 0..STALE_MAPS_MAX {
            assert_eq!(retry.on(Failure::StaleMap(map.clone()), || Object::Pool), Step::Follow(map.clone()));
        }
        assert_eq!(retry.on(Failure::StaleMap(map), || Object::Pool), Step::Again(PATIENCE.pause_first));
    }

    #[test]
    fn a_refusal_is_not_tried_again() {
        let refusal = Refusal::NotFound(Object::Pool);
        let step = Retry::new(PATIENCE).on(Failure::Refused(refusal.clone()), || Object::Pool);
        assert_eq!(step, Step::Refuse(refusal));
    }
}
