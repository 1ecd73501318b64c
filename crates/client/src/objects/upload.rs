//! Uploads: putting bytes as they come, when their number is not known before.

use super::{Condition, Key, ObjectMeta, Objects, Version, directory_paths::MissingPolicy, with_key};
use bytes::Bytes;
use placement::FileId;
use wire::{NewInode, NewKind, Outcome, Refusal, WritePlace, XattrMode};

/// Permission bits of an object.
const OBJECT_MODE: u32 = 0o644;

/// An object in the making, in an unnamed file: nobody sees it before [`Upload::finish`]. If it is
/// dropped before, its bytes are removed when the client's session ends; [`Upload::abandon`]
/// removes them at once.
#[derive(Debug)]
pub struct Upload {
    /// Bound to the session that has the file open.
    objects: Objects,
    key: Key,
    condition: Condition,
    directory: FileId,
    file: FileId,
    written: u64,
}

impl Objects {
    /// Begins to put an object whose bytes come piece by piece; missing directories are made.
    /// Otherwise as [`Objects::put`], except for the number of messages. The condition is checked
    /// at the end.
    ///
    /// Refused as [`Objects::put`]; and with `SessionEnded` at any later moment if a connection
    /// broke meanwhile: then begin the upload again.
    pub async fn upload(&self, key: &[u8], condition: Condition) -> Outcome<Upload> {
        let key = Key::new(key)?;
        let objects = self.with_client(self.client.bind_to_session());
        objects.begin(&key, condition).await.map_err(|refusal| with_key(&key, refusal))
    }

    /// Begins an upload by a client that is bound to its session.
    pub(super) async fn begin(self, key: &Key, condition: Condition) -> Outcome<Upload> {
        let directory = self.find_directory(key.directory(), MissingPolicy::Create).await?;
        let slot = self.client.slot(directory, key.name());
        let owner = self.client.directory_owner(directory, slot).await?;
        let placing = self.placing.boxed();
        let inode = NewInode { placing, ..NewInode::new(NewKind::File, OBJECT_MODE, owner) };
        let file = self.client.create_unnamed(slot, Some(key.name().clone()), inode, true).await?.attributes.file;
        for (name, value) in &self.attributes {
            self.client.set_xattr(file, name.clone(), value.clone(), XattrMode::Set, false).await?;
        }
        Ok(Upload { objects: self, key: key.clone(), condition, directory, file, written: 0 })
    }
}

impl Upload {
    /// Adds bytes at the end.
    pub async fn write(&mut self, bytes: Bytes) -> Outcome<()> {
        let shared = self.objects.shared.clone();
        let _bytes = shared.limiter.bytes(bytes.len() as u64).await;
        self.add(bytes).await
    }

    /// Adds bytes that are counted in the limiter already. If it is refused, the next bytes are
    /// written to the same place, so a caller that adds these again has them once.
    pub(super) async fn add(&mut self, bytes: Bytes) -> Outcome<()> {
        let start = self.written;
        let added = self.add_all(bytes).await;
        if added.is_err() {
            self.written = start;
        }
        added
    }

    async fn add_all(&mut self, mut bytes: Bytes) -> Outcome<()> {
        while !bytes.is_empty() {
            let place = WritePlace::At(self.written);
            let written = self.objects.client.write_until_full(self.file, place, bytes.clone(), false).await;
            let (written, stopped) = written.map_err(|refusal| with_key(&self.key, refusal))?;
            self.written += u64::from(written.length);
            drop(bytes.split_to(written.length as usize));
            // The write has waited for space already.
            if let Some(refusal @ Refusal::NoSpace(_)) = stopped {
                return Err(refusal);
            }
        }
        Ok(())
    }

    /// Gives the object its name, in place of the one that has it, if the condition holds.
    pub async fn finish(self) -> Outcome<Version> {
        let Self { objects, key, condition, directory, file, .. } = &self;
        let put = async {
            let version = ObjectMeta::from(&objects.client.stat(*file).await?).version;
            objects.replace(key, *directory, Some(*file), *condition).await.map(|()| version)
        };
        let outcome = put.await;
        let closed = self.objects.client.close_file(self.file).await;
        outcome.and_then(|version| closed.map(|()| version)).map_err(|refusal| with_key(&self.key, refusal))
    }

    /// Gives the upload up, and removes its bytes.
    pub async fn abandon(self) -> Outcome<()> {
        self.objects.client.close_file(self.file).await
    }
}
