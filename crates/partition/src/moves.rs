//! Renames: in one command where both directories are here, else in three.
//!
//! ```text
//!   partition of the old name        partition of the new name
//!     MoveOut: the entry is marked
//!                                      MoveIn: the new name refers to the inode
//!     MoveDone: the old name goes      (or MoveBack, when MoveIn was refused)
//! ```
//!
//! Until `MoveDone` both names are there, so a client that dies in between loses nothing: the mark says where to look.

use crate::{Partition, directory::Moving};
use placement::FileId;
use wire::{Answer, Gone, Kind, Name, Object, Outcome, Refusal, RenameFrom, RenameMode, RenameTo, Session, Timestamp};

/// What an entry refers to.
type Target = (FileId, Kind);

/// What became of the new name.
enum Placed {
    /// It refers to the moved inode.
    Put(Replaced),
    /// It did already: nothing is to be done, the old name stays.
    Same,
    /// It is a directory elsewhere, which must be sealed first.
    Unsealed(FileId),
}

/// What the new name referred to before.
#[derive(Default)]
struct Replaced {
    gone: Option<Gone>,
    elsewhere: Option<Target>,
}

impl Partition {
    pub(crate) fn rename(
        &mut self,
        from: &RenameFrom,
        to: &RenameTo,
        mode: RenameMode,
        sealed: Option<FileId>,
        now: Timestamp,
    ) -> Outcome<Answer> {
        let moved = self.settled_entry(from.parent, &from.name)?;
        if (from.parent, &from.name) == (to.parent, &to.name) && mode != RenameMode::NoReplace {
            return Ok(renamed(moved, Replaced::default()));
        }
        match self.place(to, moved, mode, sealed, now)? {
            Placed::Unsealed(directory) => Ok(Answer::Elsewhere(directory)),
            Placed::Same => Ok(renamed(moved, Replaced::default())),
            Placed::Put(replaced) => {
                let exchange = replaced.elsewhere.filter(|_| mode == RenameMode::Exchange);
                self.leave(from, exchange, now)?;
                self.has_moved(moved.0, to.parent, now);
                if let Some(other) = exchange {
                    self.has_moved(other.0, from.parent, now);
                }
                Ok(renamed(moved, replaced))
            }
        }
    }

    /// Takes the old name away, or gives it what was exchanged.
    fn leave(&mut self, from: &RenameFrom, exchange: Option<Target>, now: Timestamp) -> Outcome<()> {
        self.edit_entries(from.parent, now, |entries, hash| {
            match exchange {
                Some((file, kind)) => entries.replace(hash, &from.name, file, kind),
                None => drop(entries.remove(hash, &from.name)),
            }
            Ok(())
        })
    }

    /// An inode that may be here stands in another directory now.
    fn has_moved(&mut self, file: FileId, parent: FileId, now: Timestamp) {
        let moved = self.edit(file, |inode| {
            inode.changed = now;
            if let Ok(entries) = inode.directory_mut(file) {
                entries.parent = parent;
            }
            Ok(())
        });
        drop(moved); // it may be elsewhere
    }

    /// Lets the new name refer to what moves.
    fn place(
        &mut self,
        to: &RenameTo,
        moved: Target,
        mode: RenameMode,
        expected: Option<FileId>,
        now: Timestamp,
    ) -> Outcome<Placed> {
        if to.parent == moved.0 {
            return Err(Refusal::invalid(Object::entry(to.parent, &to.name), "a directory cannot move into itself"));
        }
        self.open_directory(to.parent)?;
        let taken = match self.settled_entry(to.parent, &to.name) {
            Err(Refusal::NotFound(_)) if mode != RenameMode::Exchange => return self.place_new(to, moved, now),
            taken => taken?,
        };
        match mode {
            RenameMode::NoReplace => Err(Refusal::Exists(Object::entry(to.parent, &to.name))),
            _ if taken.0 == moved.0 => Ok(Placed::Same),
            RenameMode::Exchange => self.place_exchanged(to, moved, taken, expected, now),
            RenameMode::Replace => self.place_over(to, moved, taken, expected, now),
        }
    }

    fn place_new(&mut self, to: &RenameTo, (file, kind): Target, now: Timestamp) -> Outcome<Placed> {
        self.edit_entries(to.parent, now, |entries, hash| entries.insert(hash, to.name.clone(), file, kind))?;
        Ok(Placed::Put(Replaced::default()))
    }

    fn place_exchanged(
        &mut self,
        to: &RenameTo,
        moved: Target,
        taken: Target,
        expected: Option<FileId>,
        now: Timestamp,
    ) -> Outcome<Placed> {
        if expected.is_some_and(|expected| expected != taken.0) {
            return Err(Refusal::Stale(Object::entry(to.parent, &to.name)));
        }
        self.point(to.parent, &to.name, moved, now)?;
        Ok(Placed::Put(Replaced { gone: None, elsewhere: Some(taken) }))
    }

    fn place_over(
        &mut self,
        to: &RenameTo,
        moved: Target,
        taken: Target,
        sealed: Option<FileId>,
        now: Timestamp,
    ) -> Outcome<Placed> {
        let object = || Object::entry(to.parent, &to.name);
        let here = self.is_home_of(taken.0);
        match (moved.1 == Kind::Directory, taken.1 == Kind::Directory) {
            (true, false) => return Err(Refusal::NotDirectory(object())),
            (false, true) => return Err(Refusal::IsDirectory(object())),
            (true, true) if here => self.check_removable(taken.0)?,
            (true, true) if sealed != Some(taken.0) => return Ok(Placed::Unsealed(taken.0)),
            _ => {}
        }
        self.point(to.parent, &to.name, moved, now)?;
        let gone = if here { self.drop_name(taken.0, now) } else { None };
        Ok(Placed::Put(Replaced { gone, elsewhere: (!here).then_some(taken) }))
    }

    fn point(&mut self, parent: FileId, name: &Name, (file, kind): Target, now: Timestamp) -> Outcome<()> {
        self.edit_entries(parent, now, |entries, hash| {
            entries.replace(hash, name, file, kind);
            Ok(())
        })
    }

    pub(crate) fn move_out(
        &mut self,
        session: Session,
        from: &RenameFrom,
        to: RenameTo,
        exchange: Option<Target>,
    ) -> Outcome<Answer> {
        let (file, kind) = self.settled_entry(from.parent, &from.name)?;
        let hash = self.names();
        self.edit(from.parent, |inode| {
            if let Some(entry) = inode.directory_mut(from.parent)?.get_mut(hash, &from.name) {
                entry.moving = Some(Box::new(Moving { session, to, exchange }));
            }
            Ok(Answer::Moving { file, kind })
        })
    }

    pub(crate) fn move_in(
        &mut self,
        to: &RenameTo,
        moved: Target,
        mode: RenameMode,
        expected: Option<FileId>,
        now: Timestamp,
    ) -> Outcome<Answer> {
        match self.place(to, moved, mode, expected, now)? {
            Placed::Unsealed(directory) => Ok(Answer::Elsewhere(directory)),
            Placed::Same => Ok(renamed(moved, Replaced::default())),
            Placed::Put(replaced) => {
                self.has_moved(moved.0, to.parent, now);
                Ok(renamed(moved, replaced))
            }
        }
    }

    pub(crate) fn move_done(&mut self, from: &RenameFrom, file: FileId, now: Timestamp) -> Outcome<Answer> {
        let moving = self.marked(from, file)?;
        self.leave(from, moving.exchange, now)?;
        self.has_moved(file, moving.to.parent, now);
        if let Some(other) = moving.exchange {
            self.has_moved(other.0, from.parent, now);
        }
        Ok(Answer::Done)
    }

    pub(crate) fn move_back(&mut self, from: &RenameFrom, file: FileId) -> Outcome<Answer> {
        self.marked(from, file)?;
        let hash = self.names();
        self.edit(from.parent, |inode| {
            inode
                .directory_mut(from.parent)?
                .get_mut(hash, &from.name)
                .into_iter()
                .for_each(|entry| entry.moving = None);
            Ok(Answer::Done)
        })
    }

    /// The mark of an entry that still refers to `file`.
    fn marked(&self, from: &RenameFrom, file: FileId) -> Outcome<Moving> {
        let entry = self.entry(from.parent, &from.name)?;
        let moving = entry.moving.as_deref().filter(|_| entry.file == file);
        moving.cloned().ok_or_else(|| Refusal::Stale(Object::entry(from.parent, &from.name)))
    }

    pub(crate) fn set_parent(&mut self, directory: FileId, parent: FileId, now: Timestamp) -> Outcome<Answer> {
        self.directory(directory)?;
        self.has_moved(directory, parent, now);
        Ok(Answer::Done)
    }
}

fn renamed((file, kind): Target, replaced: Replaced) -> Answer {
    Answer::Renamed { file, kind, gone: replaced.gone, elsewhere: replaced.elsewhere }
}
