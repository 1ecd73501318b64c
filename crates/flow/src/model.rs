//! The workflow as data: elements, tasks, and who reads and writes what.
//!
//! Every member of every element has a `DataId`; an array's members are consecutive, row-major. Tasks refer to members by
//! id, in runs where they can, so that 100,000 tasks stay below 1 KB each. A workflow only grows: languages add elements
//! and tasks, `check` proves it whole, and nothing is taken away.

use crate::tool::{ConfigValue, Tool};
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;

/// A member of a data element: the unit that one file holds and one task writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DataId(pub u32);

/// A task, numbered from 0 in the order of the calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(pub u32);

/// A tool of the workflow, by its place in `Workflow::tools`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolId(pub u32);

/// A named data element: one file, or an n-dimensional array of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Element {
    /// The name that scripts know it by.
    pub name: String,
    /// The length of each dimension; empty for a scalar.
    pub shape: Vec<u32>,
    /// The id of the first member.
    pub first: DataId,
    /// How many members it has: the product of `shape`, 1 for a scalar.
    pub count: u32,
    /// Where its bytes come from.
    pub source: Source,
}

/// Where an element's bytes come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Files that exist before the run: a path for each member, relative to the data folder, or absolute.
    Input(Vec<Box<str>>),
    /// Tasks of this workflow write it.
    Defined,
}

/// A call of a tool: the unit of scheduling.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// The tool that is called.
    pub tool: ToolId,
    /// File parameters that are bound, in the tool's order.
    pub files: Box<[FileBinding]>,
    /// Config parameters that the call gives itself, in the tool's order; the others have the tool's defaults.
    pub configs: Box<[ConfigBinding]>,
    /// Tasks that must be done first although no data passes between them.
    pub after: Box<[TaskId]>,
    /// The line of the call in the script, from 1; 0 when unknown.
    pub line: u32,
}

/// Members bound to a file parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileBinding {
    /// The parameter, by its place in `Tool::params`.
    pub param: u16,
    /// What is bound.
    pub data: DataRefs,
}

/// A value bound to a config parameter.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigBinding {
    /// The parameter, by its place in `Tool::params`.
    pub param: u16,
    /// The value.
    pub value: ConfigValue,
}

/// One or several members, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DataRefs {
    /// A single member, passed as such.
    One(DataId),
    /// Consecutive members, passed as an array (of one, perhaps).
    Run {
        /// The first.
        first: DataId,
        /// How many.
        count: u32,
    },
    /// Any members, passed as an array.
    List(Box<[DataId]>),
}

impl DataRefs {
    /// Members in the shortest form that says the same array.
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

    /// The member at a place.
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

    /// How many members.
    pub fn len(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Run { count, .. } => *count as usize,
            Self::List(members) => members.len(),
        }
    }

    /// Whether `id` is one of them.
    pub fn contains(&self, id: DataId) -> bool {
        match self {
            Self::One(only) => *only == id,
            Self::Run { first, count } => id >= *first && id.0 - first.0 < *count,
            Self::List(members) => members.contains(&id),
        }
    }

    /// Whether every id is below `count`.
    pub fn is_below(&self, count: u32) -> bool {
        match self {
            Self::One(id) => id.0 < count,
            Self::Run { first, count: length } => first.0.checked_add(*length).is_some_and(|end| end <= count),
            Self::List(members) => members.iter().all(|id| id.0 < count),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether they were passed as an array.
    pub fn is_array(&self) -> bool {
        !matches!(self, Self::One(_))
    }
}

/// A whole workflow.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Workflow {
    /// A name for people: the script's file name without its extension.
    pub name: String,
    /// The declared tools.
    pub tools: Vec<Tool>,
    /// The data elements, in the order of their first ids.
    pub elements: Vec<Element>,
    /// The tasks, in the order of the calls.
    pub tasks: Vec<Task>,
}

impl Workflow {
    /// How many members all elements have together; ids are below it.
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

    /// The member's name as scripts write it: `Train`, `Model[0][3]`.
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
    /// Its members in order.
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
