//! The workflow as data: elements, tasks, and the members that tasks read and write.
//!
//! Every member of every element has a `DataId`; the members of an array have consecutive ids in
//! row-major order. Tasks refer to members by id, in runs where possible, so that each of 100,000
//! tasks stays below 1 KB. A workflow only grows: languages add elements and tasks, then `check`
//! validates it; nothing is removed.

use crate::tool::{ConfigValue, Tool};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// A member of a data element: the unit that one file holds and one task writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DataId(pub u32);

/// A task; tasks are numbered from 0 in the order of the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub u32);

/// A tool, by its index in `Workflow::tools`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolId(pub u32);

/// A named data element: one file, or an n-dimensional array of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// The name by which scripts know it.
    pub name: String,
    /// The length of each dimension; empty for a scalar.
    pub shape: Vec<u32>,
    /// The id of the first member.
    pub first: DataId,
    /// The number of members: the product of `shape`, 1 for a scalar.
    pub count: u32,
    /// The source of its bytes.
    pub source: Source,
    /// The name of its file, if tasks write it and the language names it; only of a scalar.
    pub file: Option<Box<str>>,
}

/// The source of an element's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Files that exist before the run: a path for each member, relative to the data directory or
    /// absolute.
    Input(Vec<Box<str>>),
    /// Tasks of this workflow, which write the element.
    Defined,
}

/// A call of a tool: the unit of scheduling.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// The tool that is called.
    pub tool: ToolId,
    /// The file parameters that are bound, in the tool's order.
    pub files: Box<[FileBinding]>,
    /// The config parameters that the call sets, in the tool's order; the others have the tool's
    /// defaults.
    pub configs: Box<[ConfigBinding]>,
    /// Tasks that must be done first although no data passes between them.
    pub after: Box<[TaskId]>,
    /// The line of the call in the script, from 1; 0 if unknown.
    pub line: u32,
    /// Its priority and location; `None`: 0, and anywhere.
    pub placing: Option<Box<TaskPlacing>>,
}

/// The priority of a task, and the location where it should run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskPlacing {
    /// Ready tasks of higher priority start first.
    #[serde(default)]
    pub priority: i32,
    /// The location.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<PlacingTarget>,
    /// True if the task may run nowhere else.
    #[serde(default)]
    pub is_hard: bool,
}

/// A location of tasks. Workers, which are hosts, have numbers in the order in which they joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlacingTarget {
    /// A worker.
    Worker(u32),
    /// A slot of a worker.
    Slot(u32, u32),
    /// The worker that has a member, or will have it.
    Data(DataId),
}

/// Members bound to a file parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileBinding {
    /// The index of the parameter in `Tool::params`.
    pub param: u16,
    /// The members.
    pub data: DataRefs,
}

/// A value bound to a config parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigBinding {
    /// The index of the parameter in `Tool::params`.
    pub param: u16,
    /// The value.
    pub value: ConfigValue,
}

/// One or several members, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataRefs {
    /// A single member, not passed as an array.
    One(DataId),
    /// Consecutive members, passed as an array, which may have length 1.
    Run {
        /// The first member.
        first: DataId,
        /// The number of members.
        count: u32,
    },
    /// Any members, passed as an array.
    List(Box<[DataId]>),
}

impl DataRefs {
    /// An array of `members` in the shortest form.
    pub fn array(members: &[DataId]) -> Self {
        let consecutive = members.windows(2).all(|pair| pair[0].0.checked_add(1) == Some(pair[1].0));
        match members.first() {
            Some(first) if consecutive => {
                Self::Run { first: *first, count: u32::try_from(members.len()).unwrap_or(u32::MAX) }
            }
            _ => Self::List(members.into()),
        }
    }

    /// The members in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = DataId> + '_ {
        (0..self.len()).map(|index| self.at(index))
    }

    /// The member at an index.
    pub fn get(&self, index: usize) -> Option<DataId> {
        (index < self.len()).then(|| self.at(index))
    }

    fn at(&self, index: usize) -> DataId {
        match self {
            Self::One(id) => *id,
            #[expect(clippy::cast_possible_truncation, reason = "below `count`, a u32")]
            Self::Run { first, .. } => DataId(first.0 + index as u32),
            Self::List(members) => members[index],
        }
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Run { count, .. } => *count as usize,
            Self::List(members) => members.len(),
        }
    }

    /// Returns whether `id` is one of them.
    pub fn contains(&self, id: DataId) -> bool {
        match self {
            Self::One(only) => *only == id,
            Self::Run { first, count } => id >= *first && id.0 - first.0 < *count,
            Self::List(members) => members.contains(&id),
        }
    }

    /// Returns whether every id is below `count`.
    pub fn is_below(&self, count: u32) -> bool {
        match self {
            Self::One(id) => id.0 < count,
            Self::Run { first, count: length } => first.0.checked_add(*length).is_some_and(|end| end <= count),
            Self::List(members) => members.iter().all(|id| id.0 < count),
        }
    }

    /// Returns whether there are no members.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether the members were passed as an array.
    pub fn is_array(&self) -> bool {
        !matches!(self, Self::One(_))
    }
}

/// A complete workflow.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Workflow {
    /// A name for users: the script's file name without its extension.
    pub name: String,
    /// The declared tools.
    pub tools: Vec<Tool>,
    /// The data elements, in the order of their first ids.
    pub elements: Vec<Element>,
    /// The tasks, in the order of the calls.
    pub tasks: Vec<Task>,
}

impl Workflow {
    /// The number of members of all elements; all ids are below it.
    pub fn data_count(&self) -> u32 {
        self.elements.last().map_or(0, |element| element.first.0 + element.count)
    }

    /// The element that member `id` belongs to.
    pub fn element_of(&self, id: DataId) -> &Element {
        let after = self.elements.partition_point(|element| element.first <= id);
        &self.elements[after - 1]
    }

    /// The tool that `task` calls.
    pub fn tool_of(&self, task: &Task) -> &Tool {
        &self.tools[task.tool.0 as usize]
    }

    /// The name of a member in scripts: `Train`, `Model[0][3]`.
    pub fn data_name(&self, id: DataId) -> String {
        let element = self.element_of(id);
        let mut name = element.name.clone();
        for index in element.indices(id) {
            // Writing to a `String` cannot fail.
            let _ = write!(name, "[{index}]");
        }
        name
    }
}

impl Element {
    /// The members in order.
    pub fn members(&self) -> impl ExactSizeIterator<Item = DataId> + use<> {
        (self.first.0..self.first.0 + self.count).map(DataId)
    }

    /// The index of member `id` in each dimension; empty for a scalar.
    pub fn indices(&self, id: DataId) -> Vec<u32> {
        let mut rest = id.0 - self.first.0;
        let mut indices: Vec<u32> = self
            .shape
            .iter()
            .rev()
            .map(|length| {
                let index = rest % length;
                rest /= length;
                index
            })
            .collect();
        indices.reverse();
        indices
    }
}
