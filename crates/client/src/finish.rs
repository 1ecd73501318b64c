//! Finishing: undoing a step, cutting and removing stripes, and what a dead client left.

use crate::{Client, client::unexpected};
use placement::{FileId, PartitionId, StripeNo};
use wire::{Answer, Command, Gone, Kind, Leftovers, Move, Outcome, Refusal, Session, StripeAction, Trim};

impl Client {
    /// Undoes a step after the next one was refused. When it is not known whether that was done, nothing is undone: an
    /// inode without an entry may stay behind, an entry without an inode must not.
    pub(crate) async fn undo(&self, refusal: &Refusal, partition: PartitionId, command: Command) {
        if matches!(refusal, Refusal::Unavailable { .. }) {
            return;
        }
        if let Err(error) = self.change(partition, command).await {
            tracing::warn!(%error, "a refused change was not undone; it is when this client's session ends");
        }
    }

    /// Drops a name of an inode in another partition than its entry was. The entry is gone already, so nobody is refused.
    pub(crate) async fn drop_elsewhere(&self, file: FileId, kind: Kind) {
        let command = match kind {
            Kind::Directory => Command::DropDirectory { directory: file },
            _ => Command::DropLink { file },
        };
        match self.change(file.partition(), command).await {
            Ok(Answer::Removed { gone, .. }) => self.purge(gone).await,
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, %file, "an inode without a name was left behind"),
        }
    }

    /// Removes the stripes of a file that is gone. What fails is left to [`Self::recover`].
    pub(crate) async fn purge(&self, gone: Option<Gone>) {
        if let Some(gone) = gone
            && let Err(error) = self.remove_stripes(&gone).await
        {
            tracing::warn!(%error, file = %gone.file, "stripes of a removed file were left behind");
        }
    }

    async fn remove_stripes(&self, gone: &Gone) -> Outcome<()> {
        for stripe in gone.stripes.iter() {
            self.stripe(gone.file, StripeNo(stripe), StripeAction::Remove).await?;
        }
        self.change(gone.file.partition(), Command::Purged { file: gone.file }).await?;
        Ok(())
    }

    /// Removes stripes that were touched while their file was removed by another client: who removed it did not see them.
    pub(crate) async fn forget(&self, file: FileId, stripes: impl Iterator<Item = u64>) {
        for stripe in stripes {
            if let Err(error) = self.stripe(file, StripeNo(stripe), StripeAction::Remove).await {
                tracing::warn!(%error, %file, "a stripe of a removed file was left behind");
            }
        }
    }

    /// Cuts the stripes of a truncated file, so that it may grow again.
    pub(crate) async fn finish_trim(&self, file: FileId, trim: Trim) -> Outcome<()> {
        let stripe_bytes = u64::from(self.0.stripe_bytes);
        for stripe in trim.stripes.iter() {
            let kept = trim.length.saturating_sub(stripe * stripe_bytes).min(stripe_bytes);
            let length = u32::try_from(kept).expect("at most the length of a stripe");
            let action = StripeAction::Truncate { generation: trim.generation, length };
            match self.stripe(file, StripeNo(stripe), action).await {
                Ok(_) | Err(Refusal::Stale(_)) => {}
                Err(refusal) => return Err(refusal),
            }
        }
        let done = self.change(file.partition(), Command::TrimDone { file, generation: trim.generation }).await;
        if matches!(done, Err(Refusal::NotFound(_))) {
            self.forget(file, trim.stripes.iter()).await;
        }
        done.map(drop)
    }

    /// Finishes or undoes what a client that is no more has left, and ends its session: its opens, its seals, its moves.
    pub async fn recover(&self, session: Session) -> Outcome<()> {
        for partition in self.partitions() {
            let left = self.leftovers(partition).await?;
            for moved in left.moves.into_iter().filter(|moved| moved.session == session) {
                self.finish_move(moved).await?;
            }
            for gone in left.gone {
                self.remove_stripes(&gone).await?;
            }
            self.end_session(partition, session).await?;
        }
        Ok(())
    }

    /// Ends this client's session: all that it holds open.
    pub async fn close(&self) -> Outcome<()> {
        for partition in self.partitions() {
            self.end_session(partition, self.0.session).await?;
        }
        Ok(())
    }

    fn partitions(&self) -> impl Iterator<Item = PartitionId> + use<> {
        let last = u16::try_from(self.0.partitions - 1).expect("a map has at most 2^16 partitions");
        (0..=last).map(PartitionId)
    }

    async fn leftovers(&self, partition: PartitionId) -> Outcome<Leftovers> {
        match self.ask(partition, Command::Leftovers).await? {
            Answer::Leftovers(left) => Ok(left),
            other => Err(unexpected(&other)),
        }
    }

    async fn end_session(&self, partition: PartitionId, session: Session) -> Outcome<()> {
        match self.change(partition, Command::CloseSession { session }).await? {
            Answer::Closed(gone) => {
                for gone in gone {
                    self.purge(Some(gone)).await;
                }
                Ok(())
            }
            other => Err(unexpected(&other)),
        }
    }

    /// The new name tells whether the move had come to its second step.
    async fn finish_move(&self, moved: Move) -> Outcome<()> {
        let Move { from, to, file, exchange, .. } = moved;
        let arrived = matches!(self.find(to.parent, &to.name).await, Ok((found, _, _)) if found == file);
        let partition = from.parent.partition();
        if !arrived {
            self.change(partition, Command::MoveBack { from, file }).await?;
            return Ok(());
        }
        let (source, target) = (from.parent, to.parent);
        self.change(partition, Command::MoveDone { from, file }).await?;
        self.set_parent(file, target).await;
        if let Some((other, Kind::Directory)) = exchange {
            self.set_parent(other, source).await;
        }
        Ok(())
    }

    /// Tells a directory where it stands now; other files do not know, and refuse.
    pub(crate) async fn set_parent(&self, directory: FileId, parent: FileId) {
        match self.change(directory.partition(), Command::SetParent { directory, parent }).await {
            Ok(_) | Err(Refusal::NotDirectory(_)) => {}
            Err(error) => tracing::warn!(%error, %directory, "a moved directory does not know where it stands"),
        }
    }
}
