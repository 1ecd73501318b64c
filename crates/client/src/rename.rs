//! Renames: one message within a partition, an intent over several.
//!
//! A directory that gets a new parent could be moved into itself, also by two clients that move two
//! directories into each other at the same moment. So such a move takes the move lease, of which
//! the pool has one, before it checks the ancestors of its new place, and holds it until it is
//! done.

use crate::{
    Client,
    conflict::ConflictBackoff,
    intent::{TransactionDriver, TransactionPlan},
};
use placement::FileId;
use wire::{
    Command, Kind, Object, Outcome, Part, Refusal, RenameAnswer, RenameFrom, RenameMode, RenameTo, RenamedEntry, Target,
};

/// Deepest nesting of directories; a longer path up to the root means a broken tree.
const DEPTH_MAX: usize = 4096;

/// A rename over several partitions, with the inodes that its two names refer to.
struct Rename<'a> {
    from: &'a RenameFrom,
    to: &'a RenameTo,
    mode: RenameMode,
    moved: Target,
    taken: Option<Target>,
}

impl Client {
    /// Renames. It is one message within one partition, and atomic over several too.
    pub async fn rename(&self, from: RenameFrom, to: RenameTo, mode: RenameMode) -> Outcome<()> {
        match self
            .retry_plan(|| Object::entry(from.parent, &from.name), || self.rename_in_partition(&from, &to, mode))
            .await?
        {
            Some(renamed) => {
                self.finish_rename(renamed).await;
                Ok(())
            }
            None => Box::pin(self.rename_across_partitions(&from, &to, mode)).await,
        }
    }

    /// Does what a rename in one partition leaves to its client.
    pub(crate) async fn finish_rename(&self, renamed: RenamedEntry) {
        let RenamedEntry { deleted, remote: elsewhere } = renamed;
        self.purge(deleted).await;
        self.update_ctimes(elsewhere).await;
    }

    /// Renames if everything involved is in one partition. `None` if an intent is needed.
    async fn rename_in_partition(
        &self,
        from: &RenameFrom,
        to: &RenameTo,
        mode: RenameMode,
    ) -> Outcome<Option<RenamedEntry>> {
        let (source, target) = (self.slot(from.parent, &from.name), self.slot(to.parent, &to.name));
        if source.partition() != target.partition() {
            return Ok(None);
        }
        let from = RenameFrom { parent: source, name: from.name.clone() };
        let to = RenameTo { parent: target, name: to.name.clone() };
        match self.mutate(source.partition(), Command::rename(from, to, mode)).await? {
            RenameAnswer::Renamed(renamed) => Ok(Some(renamed)),
            RenameAnswer::NeedsTransaction => Ok(None),
        }
    }

    /// Updates the change times of inodes whose entries were renamed in another partition. Failures
    /// are only logged: a time is not worth a refusal.
    async fn update_ctimes(&self, files: Vec<FileId>) {
        for file in files {
            if let Err(error) = self.mutate(file.partition(), Command::update_ctime(file)).await {
                tracing::debug!(%error, %file, "the change time of a renamed inode could not be set");
            }
        }
    }

    async fn rename_across_partitions(&self, from: &RenameFrom, to: &RenameTo, mode: RenameMode) -> Outcome<()> {
        let conflicts = self.conflict_backoff();
        let attempt = || self.try_rename(from, to, mode, &conflicts);
        self.retry_plan(|| Object::entry(from.parent, &from.name), attempt).await
    }

    async fn try_rename(
        &self,
        from: &RenameFrom,
        to: &RenameTo,
        mode: RenameMode,
        conflicts: &ConflictBackoff,
    ) -> Outcome<()> {
        let (file, kind, _) = self.find(from.parent, &from.name).await?;
        let taken = match self.find(to.parent, &to.name).await {
            Ok((file, kind, _)) => Some((file, kind)),
            Err(Refusal::NotFound(Object::Entry { .. })) => None,
            Err(refusal) => return Err(refusal),
        };
        let rename = Rename { from, to, mode, moved: (file, kind), taken };
        let mut driver = self.begin_transaction(rename.coordinator(self), conflicts);
        let verdict = match self.check_rename(&mut driver, &rename).await {
            Ok(verdict) => verdict,
            Err(refusal) => {
                driver.abort().await;
                return Err(refusal);
            }
        };
        let done = match verdict {
            Ok(true) => driver.execute(self.plan_rename(&rename)).await,
            // The rename has nothing to do, or is not allowed. Prepare both names as they are, to
            // make sure of that.
            Ok(false) | Err(_) => driver.execute(self.plan_check(&rename)).await,
        };
        done.map_err(|refusal| map_target_refusal(refusal, to))?;
        verdict.map(drop)
    }

    /// True if the rename changes anything; the inner refusal says why it is not allowed. The move
    /// lease keeps the ancestors of directories as they are.
    async fn check_rename(&self, driver: &mut TransactionDriver<'_>, rename: &Rename<'_>) -> Outcome<Outcome<bool>> {
        let Rename { from, to, mode, moved, taken } = rename;
        let missing = taken.is_none() && *mode == RenameMode::Exchange;
        if from.parent != to.parent && !missing {
            let exchanged = taken.filter(|_| *mode == RenameMode::Exchange);
            if moved.1 == Kind::Directory || exchanged.is_some_and(|(_, kind)| kind == Kind::Directory) {
                driver.prepare(FileId::ROOT.partition(), vec![Part::MoveLease]).await?;
            }
            if self.is_within(to.parent, *moved).await? {
                return Ok(Err(move_into_itself(to)));
            }
            if let Some(exchanged) = exchanged
                && self.is_within(from.parent, exchanged).await?
            {
                return Ok(Err(move_into_itself(to)));
            }
        }
        Ok(mode.check(*moved, *taken, || Object::entry(to.parent, &to.name)))
    }

    /// True if a directory is `above`, or is below it.
    async fn is_within(&self, directory: FileId, above: Target) -> Outcome<bool> {
        let mut at = directory;
        for _ in 0..DEPTH_MAX {
            if above.1 != Kind::Directory || at == FileId::ROOT && above.0 != FileId::ROOT {
                return Ok(false);
            }
            if at == above.0 {
                return Ok(true);
            }
            at = self.parent(at).await?;
        }
        Ok(true)
    }

    fn plan_rename(&self, rename: &Rename<'_>) -> TransactionPlan {
        let Rename { from, to, mode, moved, taken } = rename;
        let exchanged = taken.filter(|_| *mode == RenameMode::Exchange);
        let mut plan = TransactionPlan::new(rename.coordinator(self));
        self.plan_ends(&mut plan, rename, exchanged, Some(*moved));
        plan.add(moved.0.partition(), Part::Moved { file: moved.0, parent: to.parent });
        match (taken, exchanged) {
            (_, Some((file, _))) => plan.add(file.partition(), Part::Moved { file, parent: from.parent }),
            (Some((directory, Kind::Directory)), _) => self.plan_removal(&mut plan, *directory),
            (Some((file, _)), _) => plan.add(file.partition(), Part::DropLink { file: *file }),
            (None, None) => {}
        }
        plan
    }

    /// The plan that holds both names as they are and changes nothing.
    fn plan_check(&self, rename: &Rename<'_>) -> TransactionPlan {
        let mut plan = TransactionPlan::new(rename.coordinator(self));
        self.plan_ends(&mut plan, rename, Some(rename.moved), rename.taken);
        plan
    }

    /// Adds the parts for the two entries, with the inodes that they refer to afterwards.
    fn plan_ends(
        &self,
        plan: &mut TransactionPlan,
        rename: &Rename<'_>,
        source: Option<Target>,
        target: Option<Target>,
    ) {
        let Rename { from, to, moved, taken, .. } = rename;
        let mut add = |parent: FileId, name: &wire::Name, was: Option<Target>, becomes: Option<Target>| {
            let directory = self.slot(parent, name);
            plan.add(directory.partition(), Part::Entry { directory, name: name.clone(), before: was, after: becomes });
        };
        add(from.parent, &from.name, Some(*moved), source);
        if (from.parent, &from.name) != (to.parent, &to.name) {
            add(to.parent, &to.name, *taken, target);
        }
    }
}

impl Rename<'_> {
    /// The partition that makes the only check that can fail although both names are as expected:
    /// that a replaced directory is empty.
    fn coordinator(&self, client: &Client) -> placement::PartitionId {
        match self.taken {
            Some((directory, Kind::Directory)) if self.mode == RenameMode::Replace => directory.partition(),
            _ => client.slot(self.to.parent, &self.to.name).partition(),
        }
    }
}

fn move_into_itself(to: &RenameTo) -> Refusal {
    Refusal::invalid(Object::entry(to.parent, &to.name), "a directory cannot be moved into itself")
}

/// Maps the refusal of a part to one of the rename. A new name that has been taken meanwhile
/// becomes `Stale`: the rename is planned anew.
fn map_target_refusal(refusal: Refusal, to: &RenameTo) -> Refusal {
    match refusal {
        Refusal::NotEmpty(_) => Refusal::NotEmpty(Object::entry(to.parent, &to.name)),
        Refusal::Exists(object) => Refusal::Stale(object),
        other => other,
    }
}
