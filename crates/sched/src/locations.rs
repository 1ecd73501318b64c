//! The places of the copies of data, and the durations of tools, as policies know them.
//!
//! Most data is at one place, so a datum takes 4 bytes and further copies are kept apart.

use crate::median::RunningMedian;
use crate::resources::PlaceId;
use flow::{DataId, ToolId};
use std::collections::HashMap;

/// The inputs of a task that are at one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalInputs {
    /// The place.
    pub place: PlaceId,
    /// The number of inputs there; each element of an array counts.
    pub count: u32,
    /// Their bytes.
    pub bytes: u64,
}

/// Stands for no place.
const NOWHERE: u32 = u32::MAX;

/// The places of each datum.
#[derive(Debug, Default)]
pub struct Locations {
    first: Vec<u32>,
    /// The other places of data that is at several, in order of their coming.
    further: HashMap<DataId, Vec<PlaceId>>,
}

impl Locations {
    /// Adds a place of the datum; returns whether it is new.
    pub fn add(&mut self, data: DataId, place: PlaceId) -> bool {
        assert!(place.0 != NOWHERE, "places are numbered below 2^32 - 1");
        let at = data.0 as usize;
        if at >= self.first.len() {
            self.first.resize(at + 1, NOWHERE);
        }
        if self.places(data).any(|known| known == place) {
            return false;
        }
        if self.first[at] == NOWHERE {
            self.first[at] = place.0;
        } else {
            self.further.entry(data).or_default().push(place);
        }
        true
    }

    /// Removes a place of the datum; returns whether the datum was there.
    pub fn remove(&mut self, data: DataId, place: PlaceId) -> bool {
        let Some(first) = self.first.get_mut(data.0 as usize) else { return false };
        let mut further = self.further.remove(&data).unwrap_or_default();
        let found = if *first == place.0 {
            *first = if further.is_empty() { NOWHERE } else { further.remove(0).0 };
            true
        } else {
            let at = further.iter().position(|known| *known == place);
            at.map(|at| further.remove(at)).is_some()
        };
        if !further.is_empty() {
            self.further.insert(data, further);
        }
        found
    }

    /// Removes all places of the datum.
    pub fn clear(&mut self, data: DataId) {
        if let Some(first) = self.first.get_mut(data.0 as usize) {
            *first = NOWHERE;
            self.further.remove(&data);
        }
    }

    /// The places of the datum.
    pub fn places(&self, data: DataId) -> impl Iterator<Item = PlaceId> + '_ {
        let first = self.first.get(data.0 as usize).copied().filter(|first| *first != NOWHERE);
        let further = first.and_then(|_| self.further.get(&data)).into_iter().flatten().copied();
        first.map(PlaceId).into_iter().chain(further)
    }

    /// Sums inputs by their places, the place with most bytes first, then that with most inputs.
    pub fn sum(&self, inputs: impl Iterator<Item = (DataId, u64)>) -> Vec<LocalInputs> {
        let mut all: Vec<LocalInputs> = Vec::new();
        for (data, bytes) in inputs {
            all.extend(self.places(data).map(|place| LocalInputs { place, count: 1, bytes }));
        }
        all.sort_unstable_by_key(|local| local.place);
        all.dedup_by(|next, sum| {
            let same = next.place == sum.place;
            if same {
                sum.count += next.count;
                sum.bytes += next.bytes;
            }
            same
        });
        all.sort_by_key(|local| std::cmp::Reverse((local.bytes, local.count)));
        all
    }
}

/// The median duration of the tasks of each tool.
#[derive(Debug, Default)]
pub struct ToolDurations(Vec<RunningMedian>);

impl ToolDurations {
    /// Adds the duration of a task that succeeded.
    pub fn add(&mut self, tool: ToolId, ms: u64) {
        let at = tool.0 as usize;
        if at >= self.0.len() {
            self.0.resize_with(at + 1, RunningMedian::default);
        }
        self.0[at].push(ms);
    }

    /// The number of tasks of the tool that have succeeded.
    pub fn count(&self, tool: ToolId) -> usize {
        self.0.get(tool.0 as usize).map_or(0, RunningMedian::len)
    }

    /// The median in ms; `None` if no task of the tool has succeeded.
    pub fn median_ms(&self, tool: ToolId) -> Option<u64> {
        self.0.get(tool.0 as usize)?.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datum_may_be_at_several_places_and_inputs_are_summed_by_place() {
        let mut locations = Locations::default();
        let (near, far) = (PlaceId(3), PlaceId(1));
        assert!(locations.add(DataId(0), near) && locations.add(DataId(0), far) && !locations.add(DataId(0), near));
        locations.add(DataId(2), far);
        let inputs = [(DataId(0), 5), (DataId(2), 7), (DataId(9), 100)];
        let sums = [(far, 2, 12), (near, 1, 5)].map(|(place, count, bytes)| LocalInputs { place, count, bytes });
        assert_eq!(locations.sum(inputs.into_iter()), sums);
        assert!(locations.remove(DataId(0), near) && !locations.remove(DataId(0), near));
        assert_eq!(locations.places(DataId(0)).collect::<Vec<_>>(), [far]);
        locations.clear(DataId(0));
        assert_eq!(locations.places(DataId(0)).count(), 0);
    }
}
