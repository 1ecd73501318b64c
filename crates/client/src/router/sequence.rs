//! Sequence numbers of changes, for each partition: those in flight, and the number below which all
//! are settled.

use parking_lot::Mutex;
use placement::PartitionId;
use wire::{RequestId, Session};

/// The sequence numbers of one session.
#[derive(Debug)]
pub struct Sequences(Box<[Mutex<Sequence>]>);

/// The sequence for one partition.
#[derive(Debug, Default)]
struct Sequence {
    last: u64,
    /// The numbers that are not settled, ascending. Few.
    in_flight: Vec<u64>,
}

/// A number in use; dropping it settles it.
#[derive(Debug)]
pub struct SequenceNumber<'a> {
    sequence: &'a Mutex<Sequence>,
    request_id: RequestId,
}

impl Sequences {
    pub fn new(partitions: u32) -> Self {
        Self((0..partitions).map(|_| Mutex::default()).collect())
    }

    /// The next number for the partition; `None` if the pool has no such partition.
    pub fn next(&self, session: Session, partition: PartitionId) -> Option<SequenceNumber<'_>> {
        let sequence = self.0.get(usize::from(partition.0))?;
        let mut state = sequence.lock();
        state.last += 1;
        let number = state.last;
        state.in_flight.push(number);
        let request_id = RequestId { session, number, settled: state.in_flight[0] };
        Some(SequenceNumber { sequence, request_id })
    }
}

impl Sequences {
    /// The last number that was given for the partition, if no change is in flight there.
    pub fn last_if_idle(&self, partition: PartitionId) -> Option<u64> {
        let sequence = self.0.get(usize::from(partition.0))?.lock();
        sequence.in_flight.is_empty().then_some(sequence.last)
    }
}

impl SequenceNumber<'_> {
    pub fn request_id(&self) -> RequestId {
        self.request_id
    }
}

impl Drop for SequenceNumber<'_> {
    fn drop(&mut self) {
        self.sequence.lock().in_flight.retain(|number| *number != self.request_id.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_settles_when_it_and_all_before_are_answered() {
        let sequences = Sequences::new(2);
        let begin = || sequences.next(Session(1), PartitionId(1)).unwrap();
        let (first, second) = (begin(), begin());
        assert_eq!((first.request_id().number, second.request_id().number), (1, 2));
        drop(second);
        assert_eq!(begin().request_id().settled, 1, "the first is under way");
        drop(first);
        assert_eq!(begin().request_id().settled, 4);
        assert!(sequences.next(Session(1), PartitionId(2)).is_none());
    }
}
