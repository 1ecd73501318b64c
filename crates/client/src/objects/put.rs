//! Putting and deleting objects.

use super::{Key, Objects, TRIES, directory_paths::MissingPolicy, id_pool::ReservedId, with_key};
use crate::stripe_ranges::{RANGES_IN_FLIGHT_MAX, stripe_ranges};
use bytes::Bytes;
use futures_util::{
    StreamExt,
    future::{poll_fn, poll_immediate},
    stream::FuturesUnordered,
};
use placement::{FileId, Layout, PartitionId, StripeNo};
use std::{mem, task::Poll};
use wire::{
    Command, Condition, Contents, FILE_BYTES_MAX, INLINE_BYTES_MAX, Object, Outcome, PutObjectAnswer, Refusal,
    RemovalAnswer, StoredObject, StripeAction, Version,
};

/// The result of a put whose bytes were written in one place.
enum PutOutcome {
    Done(Version),
    /// Try again: the name is in another partition than when the file was reserved, or its
    /// directory wants the bytes elsewhere.
    Retry,
}

/// The place of a new object.
struct PutTarget {
    directory: FileId,
    /// The partition of its name.
    partition: PartitionId,
}

/// Yields once to the executor.
async fn yield_once() {
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
    /// the old object or the new one, complete. Missing directories are made with mode 0755, the
    /// object has mode 0644; both have the owner of the directory above.
    ///
    /// Refused with `Changed` if the condition does not hold, `IsDirectory` if the key is a
    /// directory, `NotDirectory` if a part of it before the last is not one, `NoSpace` if the pool
    /// stays full. A put that is refused, or dropped while it waits, leaves no bytes behind.
    pub async fn put(&self, key: &[u8], bytes: Bytes, condition: Condition) -> Outcome<Version> {
        let key = Key::new(key)?;
        let _call = self.shared.limiter.call().await;
        let put = async {
            if bytes.len() <= INLINE_BYTES_MAX as usize {
                return self.put_small(&key, &bytes, condition).await;
            }
            Box::pin(self.put_large(&key, &bytes, condition)).await
        };
        put.await.map_err(|refusal| with_key(&key, refusal))
    }

    async fn put_small(&self, key: &Key, bytes: &Bytes, condition: Condition) -> Outcome<Version> {
        let put = |parent| {
            let (name, contents) = (key.name().clone(), Contents::Inline(bytes.clone()));
            let (placing, attributes) = (self.placing, self.attributes.clone());
            Command::put_object(parent, name, condition, placing, attributes, contents)
        };
        let stored = match self.execute_at_key(key, MissingPolicy::Create, put).await? {
            PutObjectAnswer::ObjectStored(StoredObject { version, deleted: None }) => return Ok(version),
            PutObjectAnswer::ObjectStored(StoredObject { version, deleted }) => Some((version, deleted)),
            // Only bytes in stripes can be placed wrong; an intent asks for no place.
            PutObjectAnswer::NeedsTransaction | PutObjectAnswer::WrongPlacement(_) => None,
        };
        let Some((version, deleted)) = stored else { return self.put_across_partitions(key, bytes, condition).await };
        Box::pin(self.client.purge(deleted)).await;
        Ok(version)
    }

    async fn put_large(&self, key: &Key, bytes: &Bytes, condition: Condition) -> Outcome<Version> {
        if bytes.len() as u64 > FILE_BYTES_MAX {
            let object = Object::text(key.as_bytes());
            return Err(Refusal::TooLarge { object, limit: FILE_BYTES_MAX });
        }
        let _bytes = self.shared.limiter.bytes(bytes.len() as u64).await;
        // Reservations belong to a session, and end with it.
        let put = |client| {
            let bound = self.with_client(client);
            async move { bound.put_large_in(key, bytes, condition).await }
        };
        self.client.run_in_session(put).await
    }

    /// Refuses with `NoSpace` a size beyond the pool's capacity: for callers that know the size
    /// before the bytes come.
    pub async fn check_possible(&self, size: u64) -> Outcome<()> {
        self.client.check_possible(size, None).await
    }

    async fn put_large_in(&self, key: &Key, bytes: &Bytes, condition: Condition) -> Outcome<Version> {
        for _ in 0..TRIES {
            let target = self.put_target(key).await?;
            if let PutOutcome::Done(version) = self.try_put_large(key, &target, bytes, condition).await? {
                return Ok(version);
            }
        }
        Err(Refusal::Busy(Object::text(key.as_bytes())))
    }

    /// The place of the name, as far as is known.
    async fn put_target(&self, key: &Key) -> Outcome<PutTarget> {
        let directory = match self.shared.paths.get(&key.directory_text()) {
            Some(path) => path.directory(),
            None => self.find_directory(key.directory(), MissingPolicy::Create).await?,
        };
        Ok(PutTarget { directory, partition: self.client.slot(directory, key.name()).partition() })
    }

    async fn try_put_large(
        &self,
        key: &Key,
        target: &PutTarget,
        bytes: &Bytes,
        condition: Condition,
    ) -> Outcome<PutOutcome> {
        let size = bytes.len() as u64;
        // Ask the directory only for objects longer than a stripe: to write one stripe in vain
        // costs less than that message.
        let query = size > u64::from(self.client.stripe_bytes());
        let placing = self.placement_in(target.directory, query).await?;
        let (layout, by) = self.client.place_object(placing, (target.directory, key.name()), size).await;
        let stripes = size.div_ceil(u64::from(layout.stripe_bytes()));
        if stripes > RANGES_IN_FLIGHT_MAX as u64 {
            self.client.check_possible(size, Some(layout)).await?;
        }
        let reserved = self.shared.ids.allocate(&self.client, target.partition, stripes, (layout, by)).await?;
        let (file, in_message) = (reserved.file, stripes == 1 && self.is_stripe_colocated(reserved.file, layout));
        let named = async {
            if !in_message {
                self.write_stripes(file, layout, bytes).await?;
            }
            let first = if in_message { bytes.clone() } else { Bytes::new() };
            let put = |parent| {
                let (name, contents) = (key.name().clone(), Contents::Striped { file, size, first: first.clone() });
                let (placing, attributes) = (self.placing, self.attributes.clone());
                Command::put_object(parent, name, condition, placing, attributes, contents)
            };
            self.execute_at_key(key, MissingPolicy::Create, put).await
        };
        match named.await {
            Ok(PutObjectAnswer::ObjectStored(StoredObject { version, deleted })) => {
                reserved.mark_used();
                self.client.purge(deleted).await;
                Ok(PutOutcome::Done(version))
            }
            answered => {
                if let Ok(PutObjectAnswer::WrongPlacement(spec)) = answered {
                    self.shared.placements.learn(target.directory, spec);
                }
                self.handle_unnamed(reserved, answered, (key, bytes, condition)).await
            }
        }
    }

    /// Handles a reserved file that was not made an object.
    async fn handle_unnamed(
        &self,
        reserved: ReservedId<'_>,
        answered: Outcome<PutObjectAnswer>,
        (key, bytes, condition): (&Key, &Bytes, Condition),
    ) -> Outcome<PutOutcome> {
        let file = reserved.file;
        if matches!(answered, Err(Refusal::Unavailable { .. } | Refusal::OutcomeUnknown(_) | Refusal::SessionEnded)) {
            drop(reserved); // the outcome is not known: it is cleaned up later
        } else {
            reserved.release(&self.client).await;
        }
        match answered {
            Err(Refusal::Stale(Object::File(stale))) if stale == file => Ok(PutOutcome::Retry),
            // Its stripe is at another node by now.
            Err(Refusal::Moved(_)) | Ok(PutObjectAnswer::WrongPlacement(_)) => Ok(PutOutcome::Retry),
            Ok(PutObjectAnswer::NeedsTransaction) => {
                self.put_across_partitions(key, bytes, condition).await.map(PutOutcome::Done)
            }
            Ok(PutObjectAnswer::ObjectStored(StoredObject { version, .. })) => Ok(PutOutcome::Done(version)),
            Err(refusal) => Err(refusal),
        }
    }

    /// True if the first stripe is at the node of the inode, so that one message can carry both.
    fn is_stripe_colocated(&self, file: FileId, layout: Layout) -> bool {
        let router = self.client.router();
        let home = layout.partition(router.seed, file, StripeNo(0), router.partitions);
        router.home(home) == router.home(file.partition())
    }

    async fn write_stripes(&self, file: FileId, layout: Layout, bytes: &Bytes) -> Outcome<()> {
        let writes = stripe_ranges(0, bytes.len(), layout.stripe_bytes()).map(|piece| {
            let action = StripeAction::Fill { data: bytes.slice(piece.range) };
            self.client.send_stripe(file, layout, piece.stripe, action)
        });
        let mut writes = writes.fuse();
        let (mut in_flight, mut outcome) = (FuturesUnordered::new(), Ok(()));
        // All writes in flight end before what was written is removed. No write begins after a
        // refusal: each would wait for space anew.
        loop {
            let goes_on = in_flight.len() < RANGES_IN_FLIGHT_MAX && outcome.is_ok();
            let next = if goes_on { writes.next() } else { None };
            let ended = if let Some(write) = next {
                in_flight.push(write);
                // The poll copies the piece and sends it before the next one is copied: the node
                // works on one while we copy another.
                let ended = poll_immediate(in_flight.next()).await.flatten();
                yield_once().await;
                ended
            } else {
                let Some(ended) = in_flight.next().await else { return outcome };
                Some(ended)
            };
            outcome = outcome.and(ended.map_or(Ok(()), |stripe| stripe.map(drop)));
        }
    }

    /// Removes an object, if the condition holds; `Absent` never does. Its directory stays.
    ///
    /// Refused with `NotFound` if there is none, `Changed` if the condition does not hold,
    /// `IsDirectory` if the key is a directory.
    pub async fn delete(&self, key: &[u8], condition: Condition) -> Outcome<()> {
        let key = Key::new(key)?;
        let _call = self.shared.limiter.call().await;
        let delete = |parent| Command::delete_object(parent, key.name().clone(), condition);
        let removed = match self.execute_at_key(&key, MissingPolicy::Refuse, delete).await {
            Ok(RemovalAnswer::Removed(None)) => return Ok(()),
            Ok(RemovalAnswer::Removed(deleted)) => Some(deleted),
            Ok(RemovalAnswer::NeedsTransaction) => None,
            Err(refusal) => return Err(with_key(&key, refusal)),
        };
        if let Some(deleted) = removed {
            Box::pin(self.client.purge(deleted)).await;
            return Ok(());
        }
        Box::pin(self.delete_across_partitions(&key, condition)).await.map_err(|refusal| with_key(&key, refusal))
    }
}
