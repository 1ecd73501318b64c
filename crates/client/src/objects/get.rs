//! Getting an object's metadata and bytes.

use super::{Key, Objects, TRIES, Value, directory_paths::MissingPolicy, with_key};
use crate::{
    files::pad,
    stripe_ranges::{RANGES_IN_FLIGHT_MAX, stripe_ranges},
};
use bytes::Bytes;
use futures_util::{StreamExt, future::join_all, stream};
use placement::{FileId, Layout, PartitionId};
use std::{mem, ops::Range};
use wire::{
    Command, Content, FoundEntry, FoundObject, GetObjectAnswer, Object, ObjectMeta, Outcome, Refusal, StripeAction,
};

/// Most bytes that are asked for at once of a node of this host, which shares its memory instead of
/// sending: as many as it shares with one client.
const SHARED_BYTES_MAX: u64 = 1 << 30;

/// The answer to the first message.
struct GetReply {
    head: ObjectMeta,
    striped: Option<Layout>,
    /// The first bytes of the range; empty if they are to be fetched like the others.
    received: Vec<Bytes>,
}

/// Bytes of an object that are still to be fetched.
struct RemainingRange {
    file: FileId,
    striped: Option<Layout>,
    range: Range<u64>,
}

impl Objects {
    /// Gets the object's bytes, complete, as they were put. An object that is changed in place
    /// through a mount meanwhile is read as any such file.
    ///
    /// Refused with `NotFound` if there is none, `IsDirectory` if the key is a directory.
    pub async fn get(&self, key: &[u8]) -> Outcome<Value> {
        self.get_range(key, 0, u64::MAX).await
    }

    /// Gets a range of the object's bytes; fewer at its end, none beyond it.
    pub async fn get_range(&self, key: &[u8], offset: u64, length: u64) -> Outcome<Value> {
        let key = Key::new(key)?;
        let _call = self.shared.limiter.call().await;
        self.try_get(&key, offset, length).await.map_err(|refusal| with_key(&key, refusal))
    }

    /// Gets the object's bytes, and those of the named extended attributes that this same object
    /// has.
    pub async fn get_with(&self, key: &[u8], names: &[Bytes]) -> Outcome<(Value, Vec<Option<Bytes>>)> {
        for _ in 0..TRIES {
            let value = self.get(key).await?;
            match self.attributes_of(value.head.version.file, names).await {
                Err(Refusal::NotFound(_)) => {} // another object was put meanwhile
                attributes => return Ok((value, attributes?)),
            }
        }
        Err(Refusal::Busy(Object::text(key)))
    }

    /// The values of the named extended attributes of a file, `None` for those that it does not
    /// have.
    pub async fn attributes_of(&self, file: FileId, names: &[Bytes]) -> Outcome<Vec<Option<Bytes>>> {
        let queries = names.iter().map(|name| self.client.xattr(file, name.clone()));
        let answered = join_all(queries).await.into_iter().map(|answered| match answered {
            Err(Refusal::NoAttribute(_)) => Ok(None),
            answered => answered.map(Some),
        });
        answered.collect()
    }

    /// The object's metadata. One message.
    pub async fn head(&self, key: &[u8]) -> Outcome<ObjectMeta> {
        let key = Key::new(key)?;
        let _call = self.shared.limiter.call().await;
        let found = self.find_object(&key, (0, 0)).await.map_err(|refusal| with_key(&key, refusal))?;
        Ok(found.head)
    }

    async fn try_get(&self, key: &Key, offset: u64, length: u64) -> Outcome<Value> {
        for _ in 0..TRIES {
            let found = self.find_object(key, (offset, length)).await?;
            let (value, wanted) = found.split_received(offset, length);
            if wanted.range.is_empty() {
                return Ok(value);
            }
            if let Some(value) = Box::pin(self.fetch_remaining(value, wanted)).await? {
                return Ok(value);
            }
        }
        Err(Refusal::Busy(Object::text(key.as_bytes())))
    }

    /// The most bytes of a range to ask for at once: those within one stripe, or all that a node of
    /// this host can share.
    fn first_length(&self, partition: PartitionId, (offset, length): (u64, u64)) -> u32 {
        let stripe_bytes = u64::from(self.client.stripe_bytes());
        let sent = stripe_bytes - offset % stripe_bytes;
        let most = if self.client.is_on_local_host(partition) { SHARED_BYTES_MAX } else { sent };
        u32::try_from(length.min(most)).expect("at most 1 GiB")
    }

    async fn find_object(&self, key: &Key, (offset, length): (u64, u64)) -> Outcome<GetReply> {
        let get = |slot: FileId| {
            let length = self.first_length(slot.partition(), (offset, length));
            Command::get_object(slot, key.name().clone(), offset, length)
        };
        for _ in 0..TRIES {
            // The inode is in another partition, or an intent holds the name: ask by the file's id.
            let file = match self.execute_at_key(key, MissingPolicy::Refuse, get).await? {
                GetObjectAnswer::Found(FoundEntry { file, .. }) => file,
                GetObjectAnswer::Object(found) => return Ok(GetReply::from(found)),
            };
            let length = self.first_length(file.partition(), (offset, length));
            match Box::pin(self.get_file(file, offset, length)).await {
                Err(Refusal::NotFound(_)) => {} // the name refers to another file by now
                found => return found.map(GetReply::from),
            }
        }
        Err(Refusal::Busy(Object::text(key.as_bytes())))
    }

    async fn get_file(&self, file: FileId, offset: u64, length: u32) -> Outcome<FoundObject> {
        self.client.query(file.partition(), Command::get_file(file, offset, length)).await
    }

    /// Fetches the bytes that did not come with the first message; `None` if the object was changed
    /// meanwhile.
    async fn fetch_remaining(
        &self,
        Value { head, mut pieces }: Value,
        wanted: RemainingRange,
    ) -> Outcome<Option<Value>> {
        let Some((fetched, sure)) = self.fetch(wanted).await? else { return Ok(None) };
        pieces.extend(fetched);
        let same = sure || self.is_unchanged(head).await?;
        Ok(same.then_some(Value { head, pieces }))
    }

    /// Fetches the pieces, and tells whether they are certainly of that file. A stripe of the
    /// expected length is, because ids are never reused. A shorter one may have been removed, or
    /// have a hole.
    async fn fetch(&self, wanted: RemainingRange) -> Outcome<Option<(Vec<Bytes>, bool)>> {
        let RemainingRange { file, striped, range } = wanted;
        let length = usize::try_from(range.end - range.start)
            .map_err(|_| Refusal::TooLarge { object: Object::File(file), limit: usize::MAX as u64 })?;
        let _bytes = self.shared.limiter.bytes(length as u64).await;
        let stripe_bytes = striped.map_or(self.client.stripe_bytes(), Layout::stripe_bytes);
        let fetched = stripe_ranges(range.start, length, stripe_bytes).map(|piece| async move {
            let length = u32::try_from(piece.range.len()).expect("at most a stripe");
            let bytes = if let Some(layout) = striped {
                let action = StripeAction::Read { offset: piece.offset, length };
                self.client.send_stripe(file, layout, piece.stripe, action).await?.bytes()?
            } else {
                let offset = range.start + piece.range.start as u64;
                match self.get_file(file, offset, length).await {
                    Ok(FoundObject { content: Content::Bytes(bytes), .. }) => bytes,
                    // The object was written through a mount meanwhile, and is in stripes now.
                    Ok(_) | Err(Refusal::NotFound(_)) => return Ok(None),
                    Err(refusal) => return Err(refusal),
                }
            };
            let sure = striped.is_some() && bytes.len() == length as usize;
            Ok(Some((pad(bytes, length as usize), sure)))
        });
        let mut fetched = stream::iter(fetched).buffered(RANGES_IN_FLIGHT_MAX);
        let (mut bytes, mut all_sure) = (Vec::new(), true);
        while let Some(piece) = fetched.next().await {
            let Some((piece, sure)) = piece? else { return Ok(None) };
            bytes.push(piece);
            all_sure &= sure;
        }
        Ok(Some((bytes, all_sure)))
    }

    /// True if a file exists and has not changed.
    async fn is_unchanged(&self, head: ObjectMeta) -> Outcome<bool> {
        match self.get_file(head.version.file, 0, 0).await {
            Ok(found) => Ok(found.head.version == head.version),
            Err(Refusal::NotFound(_)) => Ok(false),
            Err(refusal) => Err(refusal),
        }
    }
}

impl GetReply {
    /// Splits a range into the bytes that are here and the rest.
    fn split_received(self, offset: u64, length: u64) -> (Value, RemainingRange) {
        let Self { head, striped, received } = self;
        let end = offset.saturating_add(length).min(head.size).max(offset);
        let mut most = usize::try_from(end - offset).unwrap_or(usize::MAX);
        let clipped = |mut bytes: Bytes| {
            bytes.truncate(most);
            most -= bytes.len();
            bytes
        };
        let pieces: Vec<Bytes> = received.into_iter().map(clipped).filter(|bytes| !bytes.is_empty()).collect();
        let start = offset + pieces.iter().map(|piece| piece.len() as u64).sum::<u64>();
        (Value { head, pieces }, RemainingRange { file: head.version.file, striped, range: start..end })
    }
}

impl From<FoundObject> for GetReply {
    fn from(FoundObject { head, striped, length, content }: FoundObject) -> Self {
        let received = match content {
            Content::Bytes(bytes) => vec![pad(bytes, length as usize)],
            Content::Pieces(mut pieces) => {
                // A single piece was sent, and may end in a hole.
                if let [bytes] = &mut pieces[..] {
                    *bytes = pad(mem::take(bytes), length as usize);
                }
                pieces
            }
            _ => Vec::new(),
        };
        Self { head, striped, received }
    }
}
