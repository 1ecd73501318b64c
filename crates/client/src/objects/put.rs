//! Putting and deleting objects.

use super::{Key, Objects, TRIES, about, folders::Missing, ids::Taken};
use crate::{
    client::unexpected,
    route::{PIECES_UNDER_WAY, pieces},
};
use bytes::Bytes;
use futures_util::{
    StreamExt,
    future::{poll_fn, poll_immediate},
    stream::FuturesUnordered,
};
use placement::{FileId, Layout, PartitionId, StripeNo};
use std::{mem, task::Poll};
use wire::{
    Answer, Command, Condition, Contents, FILE_BYTES_MAX, INLINE_BYTES_MAX, Object, Outcome, Refusal, StripeAction,
    Version,
};

/// The result of a put whose bytes were written in one place.
enum Put {
    Done(Version),
    /// Try again: the name is in another partition than when the file was reserved, or its folder
    /// wants the bytes elsewhere.
    Again,
}

/// The place of a new object.
struct There {
    directory: FileId,
    /// The partition of its name.
    partition: PartitionId,
}

/// Yields once to the executor.
async fn pause() {
    let mut paused = false;
    poll_fn(|context| {
        if mem::replace(&mut paused, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Objects {
    /// Puts an object in place of the one that has its key, if the condition holds: a reader gets
    /// the old object or the new one, complete. Missing folders are made with mode 0755, the object
    /// has mode 0644; both have the owner of the folder above.
    ///
    /// Refused with `Changed` if the condition does not hold, `IsDirectory` if the key is a folder,
    /// `NotDirectory` if a part of it before the last is not one, `NoSpace` if the pool stays full.
    /// A put that is refused, or dropped while it waits, leaves no bytes behind.
    pub async fn put(&self, key: &[u8], bytes: Bytes, condition: Condition) -> Outcome<Version> {
        let key = Key::new(key)?;
        let _call = self.shared.flow.call().await;
        let put = async {
            if bytes.len() <= INLINE_BYTES_MAX as usize {
                return self.put_small(&key, &bytes, condition).await;
            }
            Box::pin(self.put_large(&key, &bytes, condition)).await
        };
        put.await.map_err(|refusal| about(&key, refusal))
    }

    async fn put_small(&self, key: &Key, bytes: &Bytes, condition: Condition) -> Outcome<Version> {
        let put = |parent| {
            let (name, contents) = (key.name().clone(), Contents::Inline(bytes.clone()));
            let (placing, attributes) = (self.placing, self.attributes.clone());
            Command::PutObject { parent, name, condition, placing, attributes, contents }
        };
        let stored = match self.there(key, Missing::Made, put).await? {
            Answer::ObjectStored { version, deleted: None } => return Ok(version),
            Answer::ObjectStored { version, deleted } => Some((version, deleted)),
            Answer::NeedsTransaction => None,
            other => return Err(unexpected(&other)),
        };
        let Some((version, deleted)) = stored else { return self.put_spread(key, bytes, condition).await };
        Box::pin(self.client.purge(deleted)).await;
        Ok(version)
    }

    async fn put_large(&self, key: &Key, bytes: &Bytes, condition: Condition) -> Outcome<Version> {
        if bytes.len() as u64 > FILE_BYTES_MAX {
            let object = Object::text(key.as_bytes());
            return Err(Refusal::TooLarge { object, limit: FILE_BYTES_MAX });
        }
        let _bytes = self.shared.flow.bytes(bytes.len() as u64).await;
        // Reservations belong to a session, and end with it.
        let put = |client| {
            let bound = self.through(client);
            async move { bound.put_large_in(key, bytes, condition).await }
        };
        self.client.in_one_session(put).await
    }

    /// Refuses with `NoSpace` a size beyond the pool's capacity: for callers that know the size
    /// before the bytes come.
    pub async fn check_possible(&self, size: u64) -> Outcome<()> {
        self.client.check_possible(size, None).await
    }

    async fn put_large_in(&self, key: &Key, bytes: &Bytes, condition: Condition) -> Outcome<Version> {
        for _ in 0..TRIES {
            let there = self.known_place(key).await?;
            if let Put::Done(version) = self.try_put_large(key, &there, bytes, condition).await? {
                return Ok(version);
            }
        }
        Err(Refusal::Busy(Object::text(key.as_bytes())))
    }

    /// The place of the name, as far as is known.
    async fn known_place(&self, key: &Key) -> Outcome<There> {
        let directory = match key.folder() {
            b"" => FileId::ROOT,
            folder => match self.known_way(folder) {
                Some(way) => way.directory,
                None => self.find_way(folder, Missing::Made).await?.directory,
            },
        };
        Ok(There { directory, partition: self.client.slot(directory, key.name()).partition() })
    }

    async fn try_put_large(&self, key: &Key, there: &There, bytes: &Bytes, condition: Condition) -> Outcome<Put> {
        let size = bytes.len() as u64;
        // Ask the folder only for objects longer than a stripe: to write one stripe in vain costs
        // less than that message.
        let asks = size > u64::from(self.client.stripe_bytes());
        let placing = self.placing_in(there.directory, asks).await?;
        let (layout, by) = self.client.placed(placing, (there.directory, key.name()), size).await;
        let stripes = size.div_ceil(u64::from(layout.stripe_bytes()));
        if stripes > PIECES_UNDER_WAY as u64 {
            self.client.check_possible(size, Some(layout)).await?;
        }
        let taken = self.shared.ids.take(&self.client, there.partition, stripes, (layout, by)).await?;
        let (file, with_it) = (taken.file, stripes == 1 && self.is_stripe_beside(taken.file, layout));
        let named = async {
            if !with_it {
                self.write_stripes(file, layout, bytes).await?;
            }
            let first = if with_it { bytes.clone() } else { Bytes::new() };
            let put = |parent| {
                let (name, contents) = (key.name().clone(), Contents::Striped { file, size, first: first.clone() });
                let (placing, attributes) = (self.placing, self.attributes.clone());
                Command::PutObject { parent, name, condition, placing, attributes, contents }
            };
            self.there(key, Missing::Made, put).await
        };
        match named.await {
            Ok(Answer::ObjectStored { version, deleted }) => {
                taken.used();
                self.client.purge(deleted).await;
                Ok(Put::Done(version))
            }
            answered => {
                if let Ok(Answer::WrongPlacement(said)) = answered {
                    self.shared.placings.learn(there.directory, said);
                }
                self.not_named(taken, answered, (key, bytes, condition)).await
            }
        }
    }

    /// Handles a reserved file that was not made an object.
    async fn not_named(
        &self,
        taken: Taken<'_>,
        answered: Outcome<Answer>,
        (key, bytes, condition): (&Key, &Bytes, Condition),
    ) -> Outcome<Put> {
        let file = taken.file;
        if matches!(answered, Err(Refusal::Unavailable { .. } | Refusal::OutcomeUnknown(_) | Refusal::SessionEnded)) {
            drop(taken); // the outcome is not known: it is cleaned up later
        } else {
            taken.give_back(&self.client).await;
        }
        match answered {
            Err(Refusal::Stale(Object::File(stale))) if stale == file => Ok(Put::Again),
            Ok(Answer::WrongPlacement(_)) => Ok(Put::Again),
            Ok(Answer::NeedsTransaction) => self.put_spread(key, bytes, condition).await.map(Put::Done),
            Ok(other) => Err(unexpected(&other)),
            Err(refusal) => Err(refusal),
        }
    }

    /// True if the first stripe is at the node of the inode, so that one message can carry both.
    fn is_stripe_beside(&self, file: FileId, layout: Layout) -> bool {
        let inner = &self.client.0;
        let home = layout.partition(inner.seed, file, StripeNo(0), inner.partitions);
        inner.home(home) == inner.home(file.partition())
    }

    async fn write_stripes(&self, file: FileId, layout: Layout, bytes: &Bytes) -> Outcome<()> {
        let writes = pieces(0, bytes.len(), layout.stripe_bytes()).map(|piece| {
            let action = StripeAction::Fill { data: bytes.slice(piece.part) };
            self.client.stripe(file, layout, piece.stripe, action)
        });
        let mut writes = writes.fuse();
        let (mut under_way, mut outcome) = (FuturesUnordered::new(), Ok(()));
        // All writes in flight end before what was written is removed. No write begins after a
        // refusal: each would wait for space anew.
        loop {
            let goes_on = under_way.len() < PIECES_UNDER_WAY && outcome.is_ok();
            let next = if goes_on { writes.next() } else { None };
            let ended = if let Some(write) = next {
                under_way.push(write);
                // The poll copies the piece and sends it before the next one is copied: the node
                // works on one while we copy another.
                let ended = poll_immediate(under_way.next()).await.flatten();
                pause().await;
                ended
            } else {
                let Some(ended) = under_way.next().await else { return outcome };
                Some(ended)
            };
            outcome = outcome.and(ended.map_or(Ok(()), |stripe| stripe.map(drop)));
        }
    }

    /// Removes an object, if the condition holds; `Absent` never does. Its folder stays.
    ///
    /// Refused with `NotFound` if there is none, `Changed` if the condition does not hold,
    /// `IsDirectory` if the key is a folder.
    pub async fn delete(&self, key: &[u8], condition: Condition) -> Outcome<()> {
        let key = Key::new(key)?;
        let _call = self.shared.flow.call().await;
        let delete = |parent| Command::DeleteObject { parent, name: key.name().clone(), condition };
        let removed = match self.there(&key, Missing::Refused, delete).await {
            Ok(Answer::Removed { deleted: None }) => return Ok(()),
            Ok(Answer::Removed { deleted }) => Some(deleted),
            Ok(Answer::NeedsTransaction) => None,
            Ok(other) => return Err(unexpected(&other)),
            Err(refusal) => return Err(about(&key, refusal)),
        };
        if let Some(deleted) = removed {
            Box::pin(self.client.purge(deleted)).await;
            return Ok(());
        }
        Box::pin(self.delete_spread(&key, condition)).await.map_err(|refusal| about(&key, refusal))
    }
}
