//! Removing: names, inodes, directories, sessions, and what is left for others to finish.

use crate::{Partition, weight};
use placement::FileId;
use wire::{Answer, Gone, Kind, Leftovers, Move, Name, Object, Outcome, Refusal, RenameFrom, Session, Timestamp};

impl Partition {
    pub(crate) fn unlink(&mut self, parent: FileId, name: &Name, now: Timestamp) -> Outcome<Answer> {
        let (file, kind) = self.settled_entry(parent, name)?;
        if kind == Kind::Directory {
            return Err(Refusal::IsDirectory(Object::entry(parent, name)));
        }
        self.edit_entries(parent, now, |entries, hash| Ok(entries.remove(hash, name)))?;
        Ok(self.drop_or_point(file, now))
    }

    /// Drops a name of an inode that is here, or says that it is elsewhere.
    fn drop_or_point(&mut self, file: FileId, now: Timestamp) -> Answer {
        if self.is_home_of(file) {
            self.drop_link(file, now)
        } else {
            Answer::Removed { gone: None, elsewhere: Some(file) }
        }
    }

    pub(crate) fn drop_link(&mut self, file: FileId, now: Timestamp) -> Answer {
        Answer::Removed { gone: self.drop_name(file, now), elsewhere: None }
    }

    /// One name less; the inode goes with its last name, or with its last close after that.
    pub(crate) fn drop_name(&mut self, file: FileId, now: Timestamp) -> Option<Gone> {
        self.edit(file, |inode| {
            inode.names = inode.names.saturating_sub(1);
            inode.changed = now;
            Ok(())
        })
        .ok()?;
        self.keep_if_known(file);
        self.remove_if_unused(file)
    }

    /// Removes an inode to which nothing refers any more.
    pub(crate) fn remove_if_unused(&mut self, file: FileId) -> Option<Gone> {
        let unused = self.inodes.get(&file)?.is_unused() && !self.grants.keeps(file);
        if unused { self.remove_inode(file) } else { None }
    }

    /// Removes an inode; its stripes, if it may have some, are noted until they are removed.
    pub(crate) fn remove_inode(&mut self, file: FileId) -> Option<Gone> {
        let mut inode = self.inodes.remove(&file)?;
        self.bytes -= inode.weight();
        let crate::inode::Body::File(body) = &mut inode.body else { return None };
        self.told.freed.extend(body.extent());
        let stripes = body.stripes();
        if stripes.is_empty() {
            return None;
        }
        self.bytes += weight::runs(&stripes);
        self.gone.insert(file, stripes.clone());
        Some(Gone { file, stripes })
    }

    pub(crate) fn purged(&mut self, file: FileId) -> Answer {
        if let Some(stripes) = self.gone.remove(&file) {
            self.bytes -= weight::runs(&stripes);
        }
        Answer::Done
    }

    pub(crate) fn close(&mut self, session: Session, file: FileId) -> Outcome<Answer> {
        let inode = self.inodes.get_mut(&file).ok_or(Refusal::NotFound(Object::File(file)))?;
        if !inode.closed(session) {
            return Err(Refusal::BadHandle(Object::File(file)));
        }
        let last = inode.opens.is_empty();
        let gone = self.remove_if_unused(file);
        if last {
            self.note_closed(file);
        }
        Ok(Answer::Removed { gone, elsewhere: None })
    }

    pub(crate) fn remove_directory(&mut self, parent: FileId, name: &Name, now: Timestamp) -> Outcome<Answer> {
        let (file, kind) = self.settled_entry(parent, name)?;
        if kind != Kind::Directory {
            return Err(Refusal::NotDirectory(Object::entry(parent, name)));
        }
        if !self.is_home_of(file) {
            return Ok(Answer::Elsewhere(file));
        }
        self.check_removable(file)?;
        self.edit_entries(parent, now, |entries, hash| Ok(entries.remove(hash, name)))?;
        Ok(self.drop_link(file, now))
    }

    /// Whether a directory is empty and nobody else removes it.
    pub(crate) fn check_removable(&self, directory: FileId) -> Outcome<()> {
        let empty = self.open_directory(directory)?.is_empty();
        if empty { Ok(()) } else { Err(Refusal::NotEmpty(Object::File(directory))) }
    }

    pub(crate) fn seal(&mut self, directory: FileId, seal: (Session, u64)) -> Outcome<Answer> {
        self.check_removable(directory)?;
        self.edit(directory, |inode| {
            inode.directory_mut(directory)?.seal = Some(seal);
            Ok(Answer::Sealed { mark: seal.1 })
        })
    }

    pub(crate) fn unseal(&mut self, directory: FileId, seal: (Session, u64)) -> Outcome<Answer> {
        self.edit(directory, |inode| {
            let entries = inode.directory_mut(directory)?;
            entries.seal = entries.seal.filter(|held| *held != seal);
            Ok(Answer::Done)
        })
    }

    pub(crate) fn remove_entry(
        &mut self,
        parent: FileId,
        name: &Name,
        directory: FileId,
        now: Timestamp,
    ) -> Outcome<Answer> {
        let (file, _) = self.settled_entry(parent, name)?;
        if file != directory {
            return Err(Refusal::NotFound(Object::entry(parent, name)));
        }
        self.edit_entries(parent, now, |entries, hash| Ok(entries.remove(hash, name)))?;
        Ok(Answer::Done)
    }

    pub(crate) fn drop_directory(&mut self, directory: FileId, now: Timestamp) -> Outcome<Answer> {
        let Ok(entries) = self.directory(directory) else { return Ok(Answer::Done) };
        if !entries.is_empty() {
            return Err(Refusal::NotEmpty(Object::File(directory)));
        }
        self.drop_name(directory, now);
        Ok(Answer::Done)
    }

    /// Ends all that a session holds; says which files went with it.
    pub(crate) fn close_session(&mut self, session: Session) -> Answer {
        let mut held: Vec<FileId> =
            self.inodes.iter().filter(|(_, inode)| inode.is_held_by(session)).map(|(file, _)| *file).collect();
        held.extend(self.grants.let_go(session));
        held.sort_unstable();
        held.dedup();
        self.answered.forget(session);
        Answer::Closed(held.into_iter().filter_map(|file| self.release(file, session)).collect())
    }

    fn release(&mut self, file: FileId, session: Session) -> Option<Gone> {
        let inode = self.inodes.get_mut(&file)?;
        inode.released_by(session);
        let last = inode.opens.is_empty();
        let gone = self.remove_if_unused(file);
        if last {
            self.note_closed(file);
        }
        gone
    }

    /// What clients that are no more may have left: marked entries, stripes of files that are gone.
    pub(crate) fn leftovers(&self) -> Leftovers {
        let mut moves: Vec<Move> = self.inodes.keys().flat_map(|directory| self.moves_of(*directory)).collect();
        moves.sort_by_key(|moved| moved.file);
        let gone = self.gone.iter().map(|(file, stripes)| Gone { file: *file, stripes: stripes.clone() }).collect();
        Leftovers { moves, gone }
    }

    fn moves_of(&self, parent: FileId) -> Vec<Move> {
        let Ok(entries) = self.directory(parent) else { return Vec::new() };
        let told = entries.moving().map(|(entry, moving)| Move {
            session: moving.session,
            from: RenameFrom { parent, name: entry.name.clone() },
            to: moving.to.clone(),
            file: entry.file,
            exchange: moving.exchange,
        });
        told.collect()
    }
}
