//! Renames: one message within a partition, three steps across two.
//!
//! That a directory does not move into itself is checked by walking up from its new place before it moves. Two clients that
//! move two directories into each other at the same moment both pass that check; a mount's kernel does not let its own
//! programs do so, and between mounts it takes a pool-wide lease, which is not there yet.

use crate::{Client, client::unexpected, names::named};
use placement::FileId;
use wire::{Answer, Command, Gone, Kind, Object, Outcome, Refusal, RenameFrom, RenameMode, RenameTo};

/// More directories do not stand in each other; a longer way up is a broken tree.
const DEPTH_MAX: usize = 4096;

/// What a rename has done.
struct Renamed {
    file: FileId,
    kind: Kind,
    gone: Option<Gone>,
    elsewhere: Option<(FileId, Kind)>,
}

impl Client {
    /// Renames. Within one directory it is one message, and atomic.
    pub async fn rename(&self, from: RenameFrom, to: RenameTo, mode: RenameMode) -> Outcome<()> {
        if from.parent.partition() != to.parent.partition() {
            return self.rename_across(from, to, mode).await;
        }
        if from.parent != to.parent {
            let (file, kind, _) = self.find(from.parent, &from.name).await?;
            let exchange = self.exchanged(&to, mode).await?;
            self.check_no_cycles((file, kind), &from, &to, exchange).await?;
        }
        let renamed = self
            .with_sealed(&to, |sealed| {
                let (from, to) = (from.clone(), to.clone());
                self.change(from.parent.partition(), Command::Rename { from, to, mode, sealed })
            })
            .await?;
        self.after_rename(renamed, from.parent, to.parent, mode).await;
        Ok(())
    }

    /// Sends a command that may replace a directory. One whose inode is elsewhere is sealed, and it is sent again.
    async fn with_sealed<F>(&self, to: &RenameTo, send: impl Fn(Option<FileId>) -> F) -> Outcome<Renamed>
    where
        F: Future<Output = Outcome<Answer>>,
    {
        let directory = match send(None).await? {
            Answer::Elsewhere(directory) => directory,
            other => return renamed(other),
        };
        let sealed = self.seal(directory).await;
        let mark = sealed.map_err(|refusal| named(refusal, to.parent, &to.name))?;
        let unseal = Command::Unseal { directory, mark };
        match send(Some(directory)).await.and_then(renamed) {
            Ok(renamed) if renamed.elsewhere != Some((directory, Kind::Directory)) => {
                // Another client moved the directory away meanwhile: it was not replaced, and is used on.
                self.change(directory.partition(), unseal).await?;
                Ok(renamed)
            }
            Ok(renamed) => Ok(renamed),
            Err(refusal) => {
                self.undo(&refusal, directory.partition(), unseal).await;
                Err(refusal)
            }
        }
    }

    async fn rename_across(&self, from: RenameFrom, to: RenameTo, mode: RenameMode) -> Outcome<()> {
        let exchange = self.exchanged(&to, mode).await?;
        let source = from.parent.partition();
        let out = Command::MoveOut { from: from.clone(), to: to.clone(), exchange };
        let (file, kind) = match self.change(source, out).await? {
            Answer::Moving { file, kind } => (file, kind),
            other => return Err(unexpected(&other)),
        };
        let renamed = match self.move_in((file, kind), &from, &to, mode, exchange).await {
            Ok(renamed) => renamed,
            Err(refusal) => {
                self.undo(&refusal, source, Command::MoveBack { from, file }).await;
                return Err(refusal);
            }
        };
        let parent = from.parent;
        self.after_rename(renamed, parent, to.parent, mode).await;
        self.change(source, Command::MoveDone { from, file }).await?;
        Ok(())
    }

    /// The second step.
    async fn move_in(
        &self,
        (file, kind): (FileId, Kind),
        from: &RenameFrom,
        to: &RenameTo,
        mode: RenameMode,
        exchange: Option<(FileId, Kind)>,
    ) -> Outcome<Renamed> {
        self.check_no_cycles((file, kind), from, to, exchange).await?;
        self.with_sealed(to, |sealed| {
            let expected = exchange.map(|(other, _)| other).or(sealed);
            let to = to.clone();
            self.change(to.parent.partition(), Command::MoveIn { to, file, kind, mode, expected })
        })
        .await
    }

    /// What an exchange puts in the place of what moves.
    async fn exchanged(&self, to: &RenameTo, mode: RenameMode) -> Outcome<Option<(FileId, Kind)>> {
        if mode != RenameMode::Exchange {
            return Ok(None);
        }
        let (file, kind, _) = self.find(to.parent, &to.name).await?;
        Ok(Some((file, kind)))
    }

    async fn check_no_cycles(
        &self,
        (file, kind): (FileId, Kind),
        from: &RenameFrom,
        to: &RenameTo,
        exchange: Option<(FileId, Kind)>,
    ) -> Outcome<()> {
        self.check_no_cycle(file, kind, to).await?;
        let Some((other, kind)) = exchange else { return Ok(()) };
        let back = RenameTo { parent: from.parent, name: from.name.clone() };
        self.check_no_cycle(other, kind, &back).await
    }

    /// A directory cannot be moved into itself or below.
    async fn check_no_cycle(&self, file: FileId, kind: Kind, to: &RenameTo) -> Outcome<()> {
        let mut above = to.parent;
        for _ in 0..DEPTH_MAX {
            if kind != Kind::Directory || above == FileId::ROOT && file != FileId::ROOT {
                return Ok(());
            }
            if above == file {
                break;
            }
            above = self.parent(above).await?;
        }
        Err(Refusal::invalid(Object::entry(to.parent, &to.name), "a directory cannot be moved into itself"))
    }

    /// What a rename leaves to do elsewhere. Across partitions this comes before the third step, so that a directory knows
    /// where it stands before the mark that tells of its move is gone.
    async fn after_rename(&self, renamed: Renamed, source: FileId, target: FileId, mode: RenameMode) {
        self.purge(renamed.gone).await;
        if renamed.kind == Kind::Directory && source != target && renamed.file.partition() != target.partition() {
            self.set_parent(renamed.file, target).await;
        }
        match renamed.elsewhere {
            Some((file, kind)) if mode != RenameMode::Exchange => self.drop_elsewhere(file, kind).await,
            Some((file, Kind::Directory)) if source != target => self.set_parent(file, source).await,
            _ => {}
        }
    }
}

fn renamed(answer: Answer) -> Outcome<Renamed> {
    match answer {
        Answer::Renamed { file, kind, gone, elsewhere } => Ok(Renamed { file, kind, gone, elsewhere }),
        Answer::Elsewhere(directory) => Err(Refusal::Busy(Object::File(directory))),
        other => Err(unexpected(&other)),
    }
}
