//! Values, and the cells of those that get their parts one after another.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;

mod members;

pub use members::{ArrayKey, Members};

/// An operation that waits.
pub type WaiterId = u32;

/// A value.
#[derive(Debug, Clone)]
pub enum SwiftValue {
    /// A whole number.
    Int(i64),
    /// A number with a point.
    Float(f64),
    /// True or false.
    Boolean(bool),
    /// A string.
    Text(Rc<str>),
    /// Something has happened.
    Void,
    /// A file.
    File(Rc<FileCell>),
    /// An array or a bag.
    Array(Rc<ArrayCell>),
    /// A struct.
    Struct(Rc<StructCell>),
    /// A location of tasks at a slot.
    Location(TaskLocation),
    /// A location of tasks at the place of a file, which it keeps; true if it is hard.
    FileLocation(Rc<FileCell>, bool),
    /// A constant of the library: `HARD`, `SOFT`, `RANK` or `NODE`.
    Word(&'static str),
}

/// A location of tasks, as a script sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskLocation {
    /// A slot.
    Slot {
        /// The rank: slots are counted node by node.
        rank: i64,
        /// True if tasks may run nowhere else.
        is_hard: bool,
        /// True if any slot of the node of that rank will do.
        is_node: bool,
    },
    /// The node where a file is, or will be when its task has run.
    File {
        /// The file.
        file: ScriptFileId,
        /// True if tasks may run nowhere else.
        is_hard: bool,
    },
}

impl TaskLocation {
    /// The same location as a wish.
    #[must_use]
    pub fn softened(self) -> Self {
        match self {
            Self::Slot { rank, is_node, .. } => Self::Slot { rank, is_hard: false, is_node },
            Self::File { file, .. } => Self::File { file, is_hard: false },
        }
    }
}

impl SwiftValue {
    /// A string.
    pub fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    /// The whole number; panics if the checker let another value through.
    pub fn int(&self) -> i64 {
        if let Self::Int(number) = self { *number } else { panic!("{self:?} is no int") }
    }

    /// The number with a point.
    pub fn float(&self) -> f64 {
        match self {
            Self::Float(number) => *number,
            #[expect(clippy::cast_precision_loss, reason = "as the language converts")]
            Self::Int(number) => *number as f64,
            other => panic!("{other:?} is no float"),
        }
    }

    /// The condition.
    pub fn boolean(&self) -> bool {
        if let Self::Boolean(value) = self { *value } else { panic!("{self:?} is no boolean") }
    }

    /// The string.
    pub fn str(&self) -> &str {
        if let Self::Text(text) = self { text } else { panic!("{self:?} is no string") }
    }

    /// The array.
    pub fn array(&self) -> &Rc<ArrayCell> {
        if let Self::Array(array) = self { array } else { panic!("{self:?} is no array") }
    }

    /// The file.
    pub fn file(&self) -> &Rc<FileCell> {
        if let Self::File(file) = self { file } else { panic!("{self:?} is no file") }
    }
}

/// A variable in a frame, a member of an array or a field of a struct.
#[derive(Debug, Clone, Default)]
pub enum ValueSlot {
    /// It has no value.
    #[default]
    Empty,
    /// It has its value.
    Value(SwiftValue),
    /// Several share it.
    Shared(Rc<Future>),
}

impl ValueSlot {
    /// The value, if it is there.
    pub fn get(&self) -> Option<SwiftValue> {
        match self {
            Self::Empty => None,
            Self::Value(value) => Some(value.clone()),
            Self::Shared(future) => future.value.borrow().clone(),
        }
    }

    /// The future that others may share; a value is given away with it.
    pub fn share(&mut self) -> Rc<Future> {
        let future = match std::mem::take(self) {
            Self::Shared(future) => future,
            Self::Empty => Rc::default(),
            Self::Value(value) => Rc::new(Future { value: RefCell::new(Some(value)), ..Future::default() }),
        };
        *self = Self::Shared(future.clone());
        future
    }

    /// Gives it a value; returns those that waited for it, or `None` if it has one already.
    pub fn set(&mut self, value: SwiftValue) -> Option<Vec<WaiterId>> {
        match self {
            Self::Empty => {
                *self = Self::Value(value);
                Some(Vec::new())
            }
            Self::Value(_) => None,
            Self::Shared(future) => future.set(&value),
        }
    }
}

/// A value that comes later.
#[derive(Debug, Default)]
pub struct Future {
    /// The value.
    pub value: RefCell<Option<SwiftValue>>,
    /// Those that wait for it.
    pub waiters: RefCell<Vec<WaiterId>>,
    /// Others that get the same value.
    followers: RefCell<Vec<Rc<Self>>>,
}

impl Future {
    /// Gives it a value; returns those that waited for it, or `None` if it has one already.
    pub fn set(&self, value: &SwiftValue) -> Option<Vec<WaiterId>> {
        if self.value.borrow().is_some() {
            return None;
        }
        *self.value.borrow_mut() = Some(value.clone());
        let mut waiters = self.waiters.take();
        for follower in self.followers.take() {
            waiters.extend(follower.set(value).unwrap_or_default());
        }
        Some(waiters)
    }

    /// Gives another one the value of this one, now or later; returns those that waited for it.
    pub fn lead(&self, follower: &Rc<Self>) -> Vec<WaiterId> {
        let value = self.value.borrow().clone();
        if let Some(value) = value {
            follower.set(&value).unwrap_or_default()
        } else {
            self.followers.borrow_mut().push(follower.clone());
            Vec::new()
        }
    }
}

/// An array or a bag.
#[derive(Debug)]
pub struct ArrayCell {
    /// The members.
    pub members: RefCell<Members>,
    /// The number of those that may still write it; it is closed at 0.
    pub writers: Cell<u32>,
    /// Those that wait for its end.
    pub waiters: RefCell<Vec<WaiterId>>,
    /// Those that wait for members.
    pub member_waiters: RefCell<HashMap<ArrayKey, Vec<WaiterId>>>,
    /// True if it was made as a member of another one, with which it closes.
    pub is_inner: bool,
    /// True if it has such members.
    pub has_inner: Cell<bool>,
}

impl ArrayCell {
    /// An array without members that one writer holds open.
    pub fn open() -> Self {
        Self {
            members: RefCell::default(),
            writers: Cell::new(1),
            waiters: RefCell::default(),
            member_waiters: RefCell::default(),
            is_inner: false,
            has_inner: Cell::new(false),
        }
    }

    /// A closed array with these members.
    pub fn closed(values: impl IntoIterator<Item = SwiftValue>) -> Self {
        let array = Self { writers: Cell::new(0), ..Self::open() };
        for (index, value) in (0..).zip(values) {
            array.members.borrow_mut().insert(ArrayKey::Int(index), ValueSlot::Value(value));
        }
        array
    }

    /// Returns whether it gets no more members.
    pub fn is_closed(&self) -> bool {
        self.writers.get() == 0
    }
}

/// A struct.
#[derive(Debug)]
pub struct StructCell {
    /// The fields.
    pub fields: RefCell<Vec<ValueSlot>>,
}

/// The number of a file of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScriptFileId(pub u64);

/// A file.
#[derive(Debug)]
pub struct FileCell {
    /// Its number.
    pub id: ScriptFileId,
    /// The name of its variable; empty if it has none.
    pub name: Arc<str>,
    /// Its state.
    pub state: RefCell<FileState>,
    /// Those that wait for its path or its writer.
    pub waiters: RefCell<Vec<WaiterId>>,
    /// Gets the number when nothing can see the file any more.
    pub dropped: Rc<RefCell<Vec<ScriptFileId>>>,
}

/// The state of a file.
#[derive(Debug, Clone, Default)]
pub struct FileState {
    /// Its path.
    pub mapping: Mapping,
    /// The source of its bytes.
    pub source: Option<FileSource>,
    /// True when its bytes are there.
    pub is_ready: bool,
}

/// The path of a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Mapping {
    /// It has none of its own.
    #[default]
    None,
    /// It has one that is not known yet.
    Awaited,
    /// This one.
    Path(Rc<str>),
}

/// The source of the bytes of a file.
#[derive(Debug, Clone)]
pub enum FileSource {
    /// A file that was there before, with its path.
    Input(Rc<str>),
    /// A call of an app, or text of the script.
    Made,
    /// Another file of the script.
    Same(Rc<FileCell>),
}

impl FileCell {
    /// The file that this one stands for.
    pub fn resolve(self: &Rc<Self>) -> Rc<Self> {
        let mut file = self.clone();
        loop {
            let next = match &file.state.borrow().source {
                Some(FileSource::Same(other)) => other.clone(),
                _ => return file.clone(),
            };
            file = next;
        }
    }

    /// Returns whether it was there before the script.
    pub fn is_input(&self) -> bool {
        matches!(self.state.borrow().source, Some(FileSource::Input(_)))
    }
}

impl Drop for FileCell {
    fn drop(&mut self) {
        self.dropped.borrow_mut().push(self.id);
    }
}

/// A map of members, for arrays that are not packed.
pub type MemberMap = BTreeMap<ArrayKey, ValueSlot>;
