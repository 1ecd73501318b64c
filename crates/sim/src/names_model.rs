//! Linearizability checker: a reference model of names, simple enough to be right by reading it,
//! and the search for an order in which the model gives the clients' results.

use placement::FileId;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use wire::RenameMode;

pub type Place = (FileId, &'static str);

#[derive(Clone, Copy, Debug)]
pub enum Action {
    Create(Place),
    MakeDirectory(Place),
    Unlink(Place),
    RemoveDirectory(Place),
    Rename(Place, Place, RenameMode),
    Link(FileId, Place),
    Lookup(Place),
    List(FileId),
    Links(FileId),
    Parent(FileId),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Nothing,
    File(FileId),
    Entries(Vec<(String, FileId)>),
    Links(u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    NotFound,
    Exists,
    NotDirectory,
    IsDirectory,
    NotEmpty,
    Invalid,
    NotPermitted,
    /// A reply that a plain file system never gives.
    Strange,
}

/// An operation with its start and its end with result; no end if its client died.
#[derive(Clone, Debug)]
pub struct Event {
    pub action: Action,
    pub began: usize,
    pub ended: Option<(usize, Result<Seen, Why>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Thing {
    File(FileId),
    Directory(FileId),
}

impl Thing {
    fn id(self) -> FileId {
        match self {
            Self::File(id) | Self::Directory(id) => id,
        }
    }

    fn is_directory(self) -> bool {
        matches!(self, Self::Directory(_))
    }
}

/// Reference model: the names in all directories.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tree {
    entries: BTreeMap<FileId, BTreeMap<String, Thing>>,
    /// All directories that existed at first, the root before the others, in the order of their
    /// creation.
    pub directories: Vec<FileId>,
    pub files: Vec<FileId>,
}

impl Tree {
    pub fn new() -> Self {
        let mut tree = Self::default();
        tree.add(FileId::ROOT);
        tree
    }

    fn add(&mut self, directory: FileId) {
        self.entries.insert(directory, BTreeMap::new());
        self.directories.push(directory);
    }

    /// Adds an entry before the test.
    pub fn put(&mut self, parent: FileId, name: &str, thing: Thing) {
        self.set((parent, name), Some(thing));
        match thing {
            Thing::Directory(directory) => self.add(directory),
            Thing::File(file) if !self.files.contains(&file) => self.files.push(file),
            Thing::File(_) => {}
        }
    }

    fn get(&self, (parent, name): (FileId, &str)) -> Option<Thing> {
        self.entries.get(&parent)?.get(name).copied()
    }

    fn set(&mut self, (parent, name): (FileId, &str), thing: Option<Thing>) {
        let Some(entries) = self.entries.get_mut(&parent) else { return };
        match thing {
            Some(thing) => drop(entries.insert(name.to_owned(), thing)),
            None => drop(entries.remove(name)),
        }
    }

    fn is_there(&self, directory: FileId) -> bool {
        self.entries.contains_key(&directory)
    }

    fn is_empty(&self, directory: FileId) -> bool {
        self.entries.get(&directory).is_none_or(BTreeMap::is_empty)
    }

    fn names_of(&self, file: FileId) -> u32 {
        let things = self.entries.values().flat_map(BTreeMap::values);
        u32::try_from(things.filter(|thing| thing.id() == file).count()).unwrap()
    }

    fn above(&self, directory: FileId) -> Option<FileId> {
        let thing = Thing::Directory(directory);
        self.entries.iter().find(|(_, entries)| entries.values().any(|entry| *entry == thing)).map(|(above, _)| *above)
    }

    /// True if the directory is `above` or a descendant of it.
    fn stands_in(&self, directory: FileId, above: FileId) -> bool {
        std::iter::successors(Some(directory), |at| self.above(*at)).any(|at| at == above)
    }

    /// Applies an action if the model allows this reply; returns whether it does.
    fn does(&mut self, action: Action, answer: &Result<Seen, Why>) -> bool {
        let reasons = self.reasons(action);
        match answer {
            Err(why) => reasons.contains(why),
            Ok(seen) => reasons.is_empty() && self.perform(action, seen),
        }
    }

    /// All errors that apply to an action; a reply may have any of them.
    fn reasons(&self, action: Action) -> Vec<Why> {
        let mut reasons = Vec::new();
        let mut unless = |right: bool, why: Why| {
            if !right {
                reasons.push(why);
            }
        };
        match action {
            Action::Create(place) | Action::MakeDirectory(place) => {
                unless(self.is_there(place.0), Why::NotFound);
                unless(self.get(place).is_none(), Why::Exists);
            }
            Action::Unlink(place) => {
                unless(self.get(place).is_some(), Why::NotFound);
                unless(!self.get(place).is_some_and(Thing::is_directory), Why::IsDirectory);
            }
            Action::RemoveDirectory(place) => {
                unless(self.get(place).is_some(), Why::NotFound);
                unless(self.get(place).is_none_or(Thing::is_directory), Why::NotDirectory);
                unless(self.get(place).is_none_or(|thing| self.is_empty(thing.id())), Why::NotEmpty);
            }
            Action::Rename(from, to, mode) => return self.rename_reasons(from, to, mode),
            Action::Link(file, place) => {
                unless(self.is_there(place.0) && self.names_of(file) > 0, Why::NotFound);
                unless(self.get(place).is_none(), Why::Exists);
            }
            Action::Lookup(place) => unless(self.get(place).is_some(), Why::NotFound),
            Action::List(directory) | Action::Parent(directory) => unless(self.is_there(directory), Why::NotFound),
            Action::Links(file) => unless(self.names_of(file) > 0, Why::NotFound),
        }
        reasons
    }

    fn rename_reasons(&self, from: Place, to: Place, mode: RenameMode) -> Vec<Why> {
        let mut reasons = Vec::new();
        let mut when = |wrong: bool, why: Why| {
            if wrong {
                reasons.push(why);
            }
        };
        let (moved, taken) = (self.get(from), self.get(to));
        when(moved.is_none() || !self.is_there(to.0), Why::NotFound);
        when(mode == RenameMode::Exchange && taken.is_none(), Why::NotFound);
        when(mode == RenameMode::NoReplace && taken.is_some(), Why::Exists);
        let Some(moved) = moved else { return reasons };
        when(moved.is_directory() && self.stands_in(to.0, moved.id()), Why::Invalid);
        let Some(taken) = taken.filter(|taken| *taken != moved) else { return reasons };
        match mode {
            RenameMode::Exchange => when(taken.is_directory() && self.stands_in(from.0, taken.id()), Why::Invalid),
            RenameMode::Replace => {
                when(moved.is_directory() && !taken.is_directory(), Why::NotDirectory);
                when(!moved.is_directory() && taken.is_directory(), Why::IsDirectory);
                when(taken.is_directory() && !self.is_empty(taken.id()), Why::NotEmpty);
            }
            RenameMode::NoReplace => {}
        }
        reasons
    }

    /// Applies an action that has no error; false if its reply does not match the model.
    fn perform(&mut self, action: Action, seen: &Seen) -> bool {
        match (action, seen) {
            (Action::Create(place), Seen::File(made)) => self.set(place, Some(Thing::File(*made))),
            (Action::MakeDirectory(place), Seen::File(made)) => {
                self.set(place, Some(Thing::Directory(*made)));
                self.entries.insert(*made, BTreeMap::new());
            }
            (Action::Unlink(place) | Action::RemoveDirectory(place), _) => self.remove(place),
            (Action::Rename(from, to, mode), _) => self.rename(from, to, mode),
            (Action::Link(file, place), _) => self.set(place, Some(Thing::File(file))),
            (Action::Lookup(place), Seen::File(found)) => {
                self.learn(place, *found);
                return self.get(place).map(Thing::id) == Some(*found);
            }
            (Action::List(directory), Seen::Entries(found)) => {
                for (name, id) in found {
                    self.learn((directory, name), *id);
                }
                let there: Vec<(String, FileId)> =
                    self.entries[&directory].iter().map(|(name, thing)| (name.clone(), thing.id())).collect();
                return there == *found;
            }
            (Action::Links(file), Seen::Links(count)) => return self.names_of(file) == *count,
            (Action::Parent(directory), Seen::File(above)) => {
                return self.above(directory).unwrap_or(FileId::ROOT) == *above;
            }
            _ => return false,
        }
        true
    }

    /// Sets the id of an entry that a dead client created, when another client sees it.
    fn learn(&mut self, place: (FileId, &str), id: FileId) {
        if self.get(place).map(Thing::id) != Some(UNKNOWN) {
            return;
        }
        for thing in self.entries.values_mut().flat_map(BTreeMap::values_mut).filter(|thing| thing.id() == UNKNOWN) {
            *thing = if thing.is_directory() { Thing::Directory(id) } else { Thing::File(id) };
        }
        if let Some(entries) = self.entries.remove(&UNKNOWN) {
            self.entries.insert(id, entries);
        }
    }

    fn remove(&mut self, place: Place) {
        if let Some(Thing::Directory(directory)) = self.get(place) {
            self.entries.remove(&directory);
        }
        self.set(place, None);
    }

    fn rename(&mut self, from: Place, to: Place, mode: RenameMode) {
        let (moved, taken) = (self.get(from), self.get(to));
        if moved == taken {
            return;
        }
        if mode == RenameMode::Exchange {
            self.set(from, taken);
        } else {
            self.remove(to);
            self.set(from, None);
        }
        self.set(to, moved);
    }
}

/// True if some order of the operations explains all replies.
pub fn fits(tree: &Tree, history: &[Event]) -> bool {
    search(tree, history, &mut (0..history.len()).collect(), &mut HashSet::new())
}

fn search(
    tree: &Tree,
    history: &[Event],
    left: &mut BTreeSet<usize>,
    failed: &mut HashSet<(Tree, BTreeSet<usize>)>,
) -> bool {
    let ended = |event: &Event| event.ended.as_ref().map_or(usize::MAX, |(at, _)| *at);
    let Some(first_end) = left.iter().map(|at| ended(&history[*at])).min() else { return true };
    if left.iter().all(|at| history[*at].ended.is_none()) {
        return true;
    }
    if failed.contains(&(tree.clone(), left.clone())) {
        return false;
    }
    let candidates: Vec<usize> = left.iter().copied().filter(|at| history[*at].began <= first_end).collect();
    for at in candidates {
        left.remove(&at);
        let found = outcomes(tree, &history[at]).into_iter().any(|next| search(&next, history, left, failed));
        left.insert(at);
        if found {
            return true;
        }
    }
    failed.insert((tree.clone(), left.clone()));
    false
}

/// The possible trees after an operation with this reply. An operation without a reply may or may
/// not have been applied.
fn outcomes(tree: &Tree, event: &Event) -> Vec<Tree> {
    let mut next = tree.clone();
    if let Some((_, answer)) = &event.ended {
        return next.does(event.action, answer).then_some(next).into_iter().collect();
    }
    let guess = match event.action {
        Action::Create(_) | Action::MakeDirectory(_) => Seen::File(UNKNOWN),
        _ => Seen::Nothing,
    };
    let done = next.does(event.action, &Ok(guess)).then_some(next);
    [Some(tree.clone()), done].into_iter().flatten().collect()
}

/// Placeholder for the id of an entry whose creator died before the reply, until a client sees it.
const UNKNOWN: FileId = FileId(u64::MAX);
