//! Objects whose name and inode are in different partitions: files that were renamed into another
//! folder, or have names in several.
//!
//! A put or delete of such an object is an intent. That is rare, and takes a few more messages: a
//! new file is first made as an unnamed one.

use super::{Key, Objects, folders::Missing};
use crate::{client::unexpected, intent::Plan};
use bytes::Bytes;
use placement::FileId;
use wire::{Answer, Command, Condition, Kind, Object, ObjectMeta, Outcome, Part, Refusal, Target, Version};

impl Objects {
    /// Puts an object by an intent. It is also correct if the name is in the partition of its inode
    /// by now.
    pub(super) async fn put_spread(&self, key: &Key, bytes: &Bytes, condition: Condition) -> Outcome<Version> {
        let put = |client| {
            let bound = self.through(client);
            async move { bound.put_spread_in(key, bytes, condition).await }
        };
        Box::pin(self.client.in_one_session(put)).await
    }

    async fn put_spread_in(self, key: &Key, bytes: &Bytes, condition: Condition) -> Outcome<Version> {
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

    pub(super) async fn delete_spread(&self, key: &Key, condition: Condition) -> Outcome<()> {
        let directory = self.find_way(key.folder(), Missing::Refused).await?.directory;
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
        let meetings = self.client.meetings();
        let attempt = || async {
            let taken = match self.client.find(directory, key.name()).await {
                Ok((_, Kind::Directory, _)) => return Err(Refusal::IsDirectory(object())),
                Ok((file, kind, _)) => Some((file, kind)),
                Err(Refusal::NotFound(Object::Entry { .. })) if by.is_some() || condition != Condition::Always => None,
                Err(refusal) => return Err(refusal),
            };
            let slot = self.client.slot(directory, key.name());
            let mut drive = self.client.intend(slot.partition(), &meetings);
            // Prepare before the condition is checked, so that it still holds at the commit.
            let mut plan = plan_of(key, slot, taken, by);
            drive.prepare_others(&mut plan).await?;
            drive.prepare(slot.partition(), plan.into_last()).await.map_err(looked_too_early)?;
            if let Err(refusal) = self.check_condition(key, taken, condition).await {
                drive.take_back().await;
                return Err(refusal);
            }
            drive.commit(Vec::new()).await
        };
        self.client.until_done(object, attempt).await
    }

    async fn check_condition(&self, key: &Key, taken: Option<Target>, condition: Condition) -> Outcome<()> {
        if condition == Condition::Always {
            return Ok(());
        }
        let present = match taken {
            Some((file, _)) => Some(self.version_held(file).await?),
            None => None,
        };
        let holds = match condition {
            Condition::Is(version) => present == Some(version),
            Condition::Absent | Condition::Always => present.is_none(),
        };
        if holds { Ok(()) } else { Err(Refusal::VersionMismatch { object: Object::text(key.as_bytes()), present }) }
    }

    /// The version of a file that an intent of ours holds.
    async fn version_held(&self, file: FileId) -> Outcome<Version> {
        let answer = match self.client.ask_once(file.partition(), Command::Stat { file }).await? {
            Answer::Unsettled { answer, .. } => *answer,
            answer => answer,
        };
        match answer {
            Answer::Attributes(attributes) => Ok(ObjectMeta::from(&attributes).version),
            other => Err(unexpected(&other)),
        }
    }
}

/// Maps `Exists` to `Stale`: the name was taken since, so the change is planned anew.
fn looked_too_early(refusal: Refusal) -> Refusal {
    match refusal {
        Refusal::Exists(object) => Refusal::Stale(object),
        other => other,
    }
}

/// The parts that make the name refer to another file, or to none.
fn plan_of(key: &Key, slot: FileId, was: Option<Target>, by: Option<FileId>) -> Plan {
    let mut plan = Plan::new(slot.partition());
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
