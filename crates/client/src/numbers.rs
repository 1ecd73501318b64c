//! Sequence numbers of changes, for each partition: those in flight, and the number below which all
//! are settled.

use parking_lot::Mutex;
use placement::PartitionId;
use wire::{RequestId, Session};

/// The sequence numbers of one session.
#[derive(Debug)]
pub struct Numbers(Box<[Mutex<Lane>]>);

/// The sequence for one partition.
#[derive(Debug, Default)]
struct Lane {
    given: u64,
    /// The numbers that are not settled, ascending. Few.
    open: Vec<u64>,
}

/// A number in use; dropping it settles it.
#[derive(Debug)]
pub struct Number<'a> {
    lane: &'a Mutex<Lane>,
    request_id: RequestId,
}

impl Numbers {
    pub fn new(partitions: u32) -> Self {
        Self((0..partitions).map(|_| Mutex::default()).collect())
    }

    /// The next number for the partition; `None` if the pool has no such partition.
    pub fn begin(&self, session: Session, partition: PartitionId) -> Option<Number<'_>> {
        let lane = self.0.get(usize::from(partition.0))?;
        let mut state = lane.lock();
        state.given += 1;
        let number = state.given;
        state.open.push(number);
        let request_id = RequestId { session, number, settled: state.open[0] };
        Some(Number { lane, request_id })
    }
}

impl Numbers {
    /// The last number that was given for the partition, if no change is in flight there.
    pub fn quiet(&self, partition: PartitionId) -> Option<u64> {
        let lane = self.0.get(usize::from(partition.0))?.lock();
        lane.open.is_empty().then_some(lane.given)
    }
}

impl Number<'_> {
    pub fn request_id(&self) -> RequestId {
        self.request_id
    }
}

impl Drop for Number<'_> {
    fn drop(&mut self) {
        self.lane.lock().open.retain(|number| *number != self.request_id.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_settles_when_it_and_all_before_are_answered() {
        let numbers = Numbers::new(2);
        let begin = || numbers.begin(Session(1), PartitionId(1)).unwrap();
        let (first, second) = (begin(), begin());
        assert_eq!((first.request_id().number, second.request_id().number), (1, 2));
        drop(second);
        assert_eq!(begin().request_id().settled, 1, "the first is under way");
        drop(first);
        assert_eq!(begin().request_id().settled, 4);
        assert!(numbers.begin(Session(1), PartitionId(2)).is_none());
    }
}
