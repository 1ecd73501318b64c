//! Copies of data at the nodes of hosts, as the run knows them: which inputs are worth a copy, who
//! has one, and which of them a lane of Algorithm 1 leaves behind. The agents make and remove them
//! (`cluster::InputCopies`).

use crate::order::InputPlace;
use flow::DataId;
use sched::PlaceId;
use serde::{Deserialize, Serialize};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// Number of tasks that have yet to read an input, at least, for it to be shared. Of two tasks the
/// second one often runs at another host, and would not use the copy of the first.
const SHARED_READERS_MIN: u32 = 3;

/// Length of the smallest input of a directory that makes copies pay. A shorter one comes with one
/// request, and to ask whether its copy is up to date takes as many.
const SHARED_BYTES_MIN: u64 = 64 << 10;

/// Marks the inputs of an attempt that are shared. `known` gives the bytes of an input that lies
/// elsewhere, and the number of tasks that have yet to read it. Tools look for inputs beside each
/// other, so a long one makes the short ones of its directory pay too.
pub fn mark_shared(inputs: &mut [InputPlace], known: &dyn Fn(DataId) -> Option<(u64, u32)>) {
    let mut paying = BTreeSet::new();
    for input in inputs.iter_mut() {
        let Some((bytes, _)) = known(input.data).filter(|(_, readers)| *readers >= SHARED_READERS_MIN) else {
            continue;
        };
        input.is_shared = true;
        if bytes >= SHARED_BYTES_MIN {
            paying.insert(input.place.parent().map(Path::to_owned));
        }
    }
    for input in inputs {
        input.is_shared &= paying.contains(&input.place.parent().map(Path::to_owned));
    }
}

/// The copies at all places.
#[derive(Debug, Default)]
pub struct HostCopies {
    at: HashMap<PlaceId, PlaceCopies>,
    /// Bytes of all copies.
    bytes: u64,
    places: HashMap<DataId, BTreeSet<PlaceId>>,
    /// The use by the last task of each lane: a place, and a number there.
    lanes: BTreeMap<(PlaceId, u32), LaneUse>,
}

/// The copies at one place.
#[derive(Debug, Default)]
struct PlaceCopies {
    data: BTreeSet<DataId>,
    bytes: u64,
}

/// The inputs and tools of a task.
#[derive(Debug, Default)]
struct LaneUse {
    inputs: BTreeSet<DataId>,
    /// Directory of the tool file of its tool; empty if it has none.
    here: PathBuf,
}

/// Copies at a place that are not used any more.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnusedCopies {
    /// The members.
    pub data: Vec<DataId>,
    /// Directory of a tool file, as the run sees it: none of its tools is used.
    pub tools: Option<PathBuf>,
}

/// The changes by a new list of a place's copies.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CopyChanges {
    /// Members of which the place has a copy now.
    pub added: Vec<DataId>,
    /// Members of which it has none any more.
    pub removed: Vec<DataId>,
}

impl HostCopies {
    /// Replaces the list of a place's copies.
    pub fn update(&mut self, place: PlaceId, copies: impl IntoIterator<Item = (DataId, u64)>) -> CopyChanges {
        let mut now = PlaceCopies::default();
        for (data, bytes) in copies {
            now.data.insert(data);
            now.bytes += bytes;
        }
        let before = self.at.remove(&place).unwrap_or_default();
        let added: Vec<DataId> = now.data.difference(&before.data).copied().collect();
        let removed: Vec<DataId> = before.data.difference(&now.data).copied().collect();
        for data in &added {
            self.places.entry(*data).or_default().insert(place);
        }
        for data in &removed {
            if let Entry::Occupied(mut places) = self.places.entry(*data) {
                places.get_mut().remove(&place);
                if places.get().is_empty() {
                    places.remove();
                }
            }
        }
        self.bytes = self.bytes + now.bytes - before.bytes;
        self.at.insert(place, now);
        CopyChanges { added, removed }
    }

    /// Forgets a place that is lost. Returns the members of which it had copies.
    pub fn lose(&mut self, place: PlaceId) -> Vec<DataId> {
        self.lanes.retain(|(at, _), _| *at != place);
        let removed = self.update(place, []).removed;
        self.at.remove(&place);
        removed
    }

    /// Returns whether a place has a copy of a member.
    pub fn has(&self, place: PlaceId, data: DataId) -> bool {
        self.at.get(&place).is_some_and(|copies| copies.data.contains(&data))
    }

    /// The places that have a copy of a member.
    pub fn places_of(&self, data: DataId) -> Vec<PlaceId> {
        self.places.get(&data).into_iter().flatten().copied().collect()
    }

    /// Bytes that the copies at a place take.
    pub fn bytes_at(&self, place: PlaceId) -> u64 {
        self.at.get(&place).map_or(0, |copies| copies.bytes)
    }

    /// Bytes that all copies take.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Records what the task uses that starts next in a lane: its inputs, and the tools beside its
    /// own in `here`. Returns what the task before it used, and the last task of no lane at the
    /// place does.
    pub fn clean(
        &mut self,
        lane: (PlaceId, u32),
        inputs: impl Iterator<Item = DataId>,
        here: impl Into<PathBuf>,
    ) -> UnusedCopies {
        let next = LaneUse { inputs: inputs.collect(), here: here.into() };
        let before = self.lanes.insert(lane, next).unwrap_or_default();
        let place = lane.0;
        let lanes = || self.lanes.range((place, 0)..=(place, u32::MAX)).map(|(_, used)| used);
        let is_used = |data: &DataId| lanes().any(|used| used.inputs.contains(data));
        let has_files = !before.here.as_os_str().is_empty();
        UnusedCopies {
            tools: (has_files && !lanes().any(|used| used.here == before.here)).then_some(before.here),
            data: before.inputs.into_iter().filter(|data| self.has(place, *data) && !is_used(data)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: PlaceId = PlaceId(1);
    const THERE: PlaceId = PlaceId(2);

    fn ids(numbers: &[u32]) -> Vec<DataId> {
        numbers.iter().copied().map(DataId).collect()
    }

    fn copies(numbers: &[u32]) -> Vec<(DataId, u64)> {
        numbers.iter().map(|number| (DataId(*number), 100)).collect()
    }

    #[test]
    fn inputs_with_three_readers_left_are_shared_if_one_of_their_directory_is_long() {
        let input = |(number, place): (u32, &str)| InputPlace {
            data: DataId(number),
            place: place.into(),
            bound: None,
            is_shared: false,
            copy: None,
        };
        let mut inputs: Vec<InputPlace> =
            [(0, "db/nsq"), (1, "db/nin"), (2, "db/query"), (3, "short"), (4, "here")].map(input).into();
        let known = [Some((1 << 20, 3)), Some((9, 3)), Some((1 << 20, 2)), Some((9, 9)), None];
        mark_shared(&mut inputs, &|data| known[data.0 as usize]);
        let shared: Vec<u32> = inputs.iter().filter(|input| input.is_shared).map(|input| input.data.0).collect();
        assert_eq!(shared, [0, 1]);
    }

    #[test]
    fn a_new_list_tells_what_came_and_what_went_and_a_lost_place_takes_its_copies_along() {
        let mut known = HostCopies::default();
        assert_eq!(known.update(HERE, copies(&[1, 2])), CopyChanges { added: ids(&[1, 2]), removed: vec![] });
        assert_eq!(known.update(THERE, copies(&[2])).added, ids(&[2]));
        assert_eq!(known.update(HERE, copies(&[2, 3])), CopyChanges { added: ids(&[3]), removed: ids(&[1]) });
        assert_eq!(known.places_of(DataId(2)), [HERE, THERE]);
        assert_eq!((known.bytes_at(HERE), known.bytes()), (200, 300));
        assert!(known.has(HERE, DataId(3)) && !known.has(HERE, DataId(1)) && known.places_of(DataId(1)).is_empty());
        assert_eq!(known.lose(HERE), ids(&[2, 3]));
        assert_eq!((known.places_of(DataId(2)), known.bytes()), (vec![THERE], 100));
    }

    #[test]
    fn a_lane_leaves_the_copies_that_its_next_task_and_other_lanes_do_not_use() {
        let mut known = HostCopies::default();
        known.update(HERE, copies(&[1, 2, 3]));
        let mut start = |place, lane, inputs: &[u32]| known.clean((place, lane), ids(inputs).into_iter(), "").data;
        assert_eq!(start(HERE, 0, &[1, 2, 9]), [], "nothing ran there before");
        assert_eq!(start(HERE, 1, &[2]), []);
        assert_eq!(start(THERE, 0, &[1]), []);
        assert_eq!(start(HERE, 0, &[3]), ids(&[1]), "the other lane reads 2, and there is no copy of 9");
        assert_eq!(start(HERE, 1, &[3]), ids(&[2]));
        assert_eq!(start(HERE, 1, &[3]), []);
    }

    #[test]
    fn a_lane_leaves_the_tools_of_a_tool_file_that_its_next_task_and_other_lanes_do_not_use() {
        let mut known = HostCopies::default();
        let mut start = |lane, here: &str| known.clean((HERE, lane), [].into_iter(), here).tools;
        assert_eq!([start(0, "/a"), start(1, "/a"), start(0, "/b")], [None, None, None], "lane 1 uses /a");
        assert_eq!([start(1, ""), start(1, "/b"), start(0, "/b")], [Some("/a".into()), None, None]);
    }
}
