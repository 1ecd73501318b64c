//! Objects whose name and inode are in different partitions: files that were renamed into another
//! directory, or have names in several.
//!
//! A put or delete of such an object is an intent. That is rare, and takes a few more messages: a
//! new file is first made as an unnamed one.

use super::{Key, Objects, directory_paths::MissingPolicy};
use crate::intent::TransactionPlan;
use bytes::Bytes;
use placement::FileId;
use wire::{
    Answer, Command, Condition, Kind, Object, ObjectMeta, Outcome, Part, Refusal, Target, TypedCommand,
    UnsettledAnswer, Version,
};

impl Objects {
    /// Puts an object by an intent. It is also correct if the name is in the partition of its inode
    /// by now.
    pub(super) async fn put_across_partitions(
        &self,
        key: &Key,
        bytes: &Bytes,
        condition: Condition,
    ) -> Outcome<Version> {
        let put = |client| {
            let bound = self.with_client(client);
            async move { bound.put_across_partitions_in(key, bytes, condition).await }
        };
        Box::pin(self.client.run_in_session(put)).await
    }

    async fn put_across_partitions_in(self, key: &Key, bytes: &Bytes, condition: Condition) -> Outcome<Version> {
        let mut upload = self.begin(key, condition).await?;
        match upload.add(bytes.clone()).await {
            Ok(()) => upload.finish().await,
            Err(refusal) => {
                // If the file cannot be closed now, it is closed with the session.
                drop(upload.abandon().await);
                Err(refusal)
            }
        }
    }

    pub(super) async fn delete_across_partitions(&self, key: &Key, condition: Condition) -> Outcome<()> {
        let directory = self.find_directory(key.directory(), MissingPolicy::Refuse).await?;
        self.replace(key, directory, None, condition).await
    }

    /// Makes the name refer to another file, or to none, if the condition holds.
    pub(super) async fn replace(
        &self,
        key: &Key,
        directory: FileId,
        by: Option<FileId>,
        condition: Condition,
    ) -> Outcome<()> {
        let object = || Object::text(key.as_bytes());
        let conflicts = self.client.conflict_backoff();
        let attempt = || async {
            let taken = match self.client.find(directory, key.name()).await {
                Ok((_, Kind::Directory, _)) => return Err(Refusal::IsDirectory(object())),
                Ok((file, kind, _)) => Some((file, kind)),
                Err(Refusal::NotFound(Object::Entry { .. })) if by.is_some() || condition != Condition::Always => None,
                Err(refusal) => return Err(refusal),
            };
            let slot = self.client.slot(directory, key.name());
            let mut driver = self.client.begin_transaction(slot.partition(), &conflicts);
            // Prepare before the condition is checked, so that it still holds at the commit.
            let mut plan = replacement_plan(key, slot, taken, by);
            driver.prepare_others(&mut plan).await?;
            driver.prepare(slot.partition(), plan.into_coordinator_parts()).await.map_err(exists_to_stale)?;
            if let Err(refusal) = self.check_condition(key, taken, condition).await {
                driver.abort().await;
                return Err(refusal);
            }
            driver.commit(Vec::new()).await
        };
        self.client.retry_plan(object, attempt).await
    }

    async fn check_condition(&self, key: &Key, taken: Option<Target>, condition: Condition) -> Outcome<()> {
        if condition == Condition::Always {
            return Ok(());
        }
        let present = match taken {
            Some((file, _)) => Some(self.locked_version(file).await?),
            None => None,
        };
        let holds = match condition {
            Condition::Is(version) => present == Some(version),
            Condition::Absent | Condition::Always => present.is_none(),
        };
        if holds { Ok(()) } else { Err(Refusal::VersionMismatch { object: Object::text(key.as_bytes()), present }) }
    }

    /// The version of a file that an intent of ours holds.
    async fn locked_version(&self, file: FileId) -> Outcome<Version> {
        let TypedCommand { command, take } = Command::stat(file);
        let answer = match self.client.query_once(file.partition(), command.clone()).await? {
            Answer::Unsettled(UnsettledAnswer { answer, .. }) => *answer,
            answer => answer,
        };
        let answer = match answer {
            Answer::Hosted(hosted) => self.client.finish_query(file.partition(), command, hosted).await?,
            answer => answer,
        };
        Ok(ObjectMeta::from(&take(answer)?).version)
    }
}

/// Maps `Exists` to `Stale`: the name was taken since, so the change is planned anew.
fn exists_to_stale(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::Exists(object) => Refusal::Stale(object),
        other => other,
    }
}

/// The parts that make the name refer to another file, or to none.
fn replacement_plan(key: &Key, slot: FileId, was: Option<Target>, by: Option<FileId>) -> TransactionPlan {
    let mut plan = TransactionPlan::new(slot.partition());
    let becomes = by.map(|file| (file, Kind::File));
    plan.add(slot.partition(), Part::Entry { directory: slot, name: key.name().clone(), before: was, after: becomes });
    if let Some(file) = by {
        plan.add(file.partition(), Part::AddLink { file });
    }
    if let Some((file, _)) = was {
        plan.add(file.partition(), Part::DropLink { file });
    }
    plan
}
