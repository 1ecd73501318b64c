//! Clients that write, append, truncate, remove and read files of several stripes.

use crate::{
    pool::OWNER,
    simulation::{
        byte_files::{ByteFile, ByteRead},
        executor::SimState,
        network::SimEvent,
    },
};
use bytes::Bytes;
use client::{Objects, objects::Condition};
use parking_lot::Mutex;
use placement::FileId;
use std::sync::Arc;
use vfs::{Handle, Vfs};
use wire::{Changes, Object, OpenFlags, Outcome, Refusal, WritePlace};

/// Longest file.
const FILE_BYTES_MAX: usize = 40_000;
/// Longest write.
const WRITE_BYTES_MAX: usize = 20_000;

/// The path of the directory of the files.
pub const FILES_PATH: &str = "a/files";

/// The files of all such clients, also those that are removed.
pub type SharedFiles = Arc<Mutex<Vec<ByteFile>>>;

/// A client with files of its own, which reads those of others.
pub struct ByteClient {
    pub vfs: Vfs,
    pub state: Arc<SimState>,
    pub files: SharedFiles,
    /// The directory of the files.
    pub directory: FileId,
    /// Its own number, for the names of its files.
    pub number: usize,
    /// The number of its file among all, and its open handle.
    pub open: Option<(usize, Handle)>,
}

impl ByteClient {
    /// Does operations one after the other; stops at one that fails with a cause.
    pub async fn run(mut self, operations: usize) {
        for count in 0..operations {
            self.state.pause_of_a_client().await;
            if let Err(refusal) = self.operate(count).await {
                self.state.excuse(&refusal);
                return;
            }
        }
        if self.state.one_in(2)
            && let Some((_, handle)) = self.open.take()
            && let Err(refusal) = self.vfs.close(handle).await
        {
            self.state.excuse(&refusal);
        }
        self.state.end_session(&self.vfs).await;
    }

    async fn operate(&mut self, count: usize) -> Outcome<()> {
        let Some((at, handle)) = self.open else { return self.create(count).await };
        match self.state.random(12) {
            0..=3 => self.write(at, handle, count).await,
            4 | 5 => self.append(at, count).await,
            6 => self.truncate(at).await,
            7 => self.remove(at, handle).await,
            8 | 9 => self.read(at).await,
            _ => {
                let any = self.state.random(self.files.lock().len());
                let is_object = self.files.lock()[any].file.is_none();
                if is_object {
                    read_object(&self.vfs, &self.state, &self.files, any).await
                } else {
                    self.read(any).await
                }
            }
        }
    }

    async fn create(&mut self, count: usize) -> Outcome<()> {
        let name = format!("f{}-{count}", self.number);
        let made = self.vfs.create(self.directory, name.as_bytes(), 0o644, OWNER, OpenFlags::READ_WRITE).await;
        let (made, handle) = made?;
        let mut files = self.files.lock();
        files.push(ByteFile::new(made.file, name));
        self.open = Some((files.len() - 1, handle));
        Ok(())
    }

    /// The bytes of a write: others for each write and each place.
    fn pattern(&self, count: usize, length: usize) -> Bytes {
        let first = self.state.rng.lock().byte();
        (0..length).map(|at| first.wrapping_add(u8::try_from((count + at / 700) % 256).unwrap())).collect()
    }

    fn content(&self, at: usize) -> Vec<u8> {
        self.files.lock()[at].content().expect("an open file is not removed").to_vec()
    }

    fn begin(&self, at: usize, content: Option<Vec<u8>>) {
        let length = content.as_ref().map(Vec::len);
        self.state.trace(|| format!("client {} changes {} to {length:?} bytes", self.number, self.file(at)));
        self.files.lock()[at].begin(content, self.state.steps());
    }

    fn end(&self, at: usize) {
        self.state.trace(|| format!("client {} has changed {}", self.number, self.file(at)));
        self.files.lock()[at].end(self.state.steps());
        self.state.network.count(SimEvent::BytesWritten);
    }

    /// A write has ended. It is short only if something of its file is lost.
    fn end_write(&self, at: usize, written: usize, length: usize) -> Outcome<()> {
        if written < length {
            return Err(Refusal::OutcomeUnknown(Object::File(self.file(at))));
        }
        self.end(at);
        Ok(())
    }

    fn file(&self, at: usize) -> FileId {
        self.files.lock()[at].file.expect("it is no object")
    }

    async fn write(&self, at: usize, handle: Handle, count: usize) -> Outcome<()> {
        let mut content = self.content(at);
        let offset = self.state.random(FILE_BYTES_MAX.min(content.len() + 5_000));
        let length = 1 + self.state.random(WRITE_BYTES_MAX.min(FILE_BYTES_MAX - offset));
        let data = self.pattern(count, length);
        content.resize(content.len().max(offset + length), 0);
        content[offset..offset + length].copy_from_slice(&data);
        self.begin(at, Some(content));
        let written = self.vfs.write(handle, offset as u64, data).await? as usize;
        self.end_write(at, written, length)
    }

    async fn append(&self, at: usize, count: usize) -> Outcome<()> {
        let mut content = self.content(at);
        let length = 1 + self.state.random(WRITE_BYTES_MAX.min(FILE_BYTES_MAX.saturating_sub(content.len())));
        let data = self.pattern(count, length);
        let end = content.len() as u64;
        content.extend_from_slice(&data);
        self.begin(at, Some(content));
        let written = self.vfs.client().write(self.file(at), WritePlace::End, data, false).await?;
        assert_eq!(written.offset, end);
        self.end_write(at, written.length as usize, length)
    }

    async fn truncate(&self, at: usize) -> Outcome<()> {
        let mut content = self.content(at);
        let size = self.state.random(FILE_BYTES_MAX.min(content.len() + 9_000));
        content.resize(size, 0);
        self.begin(at, Some(content));
        let changes = Changes { size: Some(size as u64), ..Changes::default() };
        assert_eq!(self.vfs.change(self.file(at), changes).await?.size, size as u64);
        self.end(at);
        Ok(())
    }

    async fn remove(&mut self, at: usize, handle: Handle) -> Outcome<()> {
        let name = self.files.lock()[at].name.clone();
        self.open = None;
        self.vfs.close(handle).await?;
        self.begin(at, None);
        self.vfs.unlink(self.directory, name.as_bytes()).await?;
        self.end(at);
        Ok(())
    }

    /// Reads a range, of its own file or of another client's.
    async fn read(&self, at: usize) -> Outcome<()> {
        let (offset, length) = (self.state.random(FILE_BYTES_MAX), 1 + self.state.random(WRITE_BYTES_MAX));
        read_range(&self.vfs, &self.state, &self.files, at, (offset, length)).await.map(drop)
    }
}

/// Reads a range of a file, and checks what it finds. Returns whether there is such a file.
pub async fn read_range(
    vfs: &Vfs,
    state: &SimState,
    files: &SharedFiles,
    at: usize,
    (offset, length): (usize, usize),
) -> Outcome<bool> {
    let (file, began) = (files.lock()[at].file.expect("it is no object"), state.steps());
    let found = match vfs.open(file, OpenFlags::READ).await {
        Ok(handle) => {
            let bytes = vfs.read(handle, offset as u64, u32::try_from(length).unwrap()).await;
            vfs.close(handle).await?;
            Some(bytes?)
        }
        Err(Refusal::NotFound(_)) => None,
        Err(refusal) => return Err(refusal),
    };
    let read = ByteRead { offset, length, bytes: found.as_deref() };
    let checked = files.lock()[at].check(read, (began, state.steps()));
    if let Err(why) = checked {
        panic!("a read of {length} bytes at {offset} of {file}: {why}");
    }
    state.network.count(SimEvent::BytesRead);
    Ok(found.is_some())
}

/// A client that puts, gets and deletes an object.
pub struct ObjectClient {
    pub vfs: Vfs,
    pub state: Arc<SimState>,
    pub files: SharedFiles,
    /// The number of its object among all files.
    pub at: usize,
}

impl ObjectClient {
    /// Does operations one after the other; stops at one that fails with a cause.
    pub async fn run(self, operations: usize) {
        for _ in 0..operations {
            self.state.pause_of_a_client().await;
            if let Err(refusal) = self.operate().await {
                self.state.excuse(&refusal);
                return;
            }
        }
        self.state.end_session(&self.vfs).await;
    }

    async fn operate(&self) -> Outcome<()> {
        let objects = Objects::new(self.vfs.client().clone());
        let key = object_key(&self.files, self.at);
        let exists = self.files.lock()[self.at].content().is_some();
        let content = match self.state.random(6) {
            0..=2 => {
                let length = self.state.random(WRITE_BYTES_MAX);
                let byte = self.state.rng.lock().byte();
                Some(vec![byte; if byte.is_multiple_of(3) { length / 20 } else { length }])
            }
            3 if exists => None,
            _ => return read_object(&self.vfs, &self.state, &self.files, self.at).await,
        };
        self.files.lock()[self.at].begin(content.clone(), self.state.steps());
        match content {
            Some(content) => drop(objects.put(key.as_bytes(), content.into(), Condition::Always).await?),
            None => objects.delete(key.as_bytes(), Condition::Always).await?,
        }
        self.files.lock()[self.at].end(self.state.steps());
        self.state.network.count(SimEvent::ObjectPut);
        Ok(())
    }
}

/// The key of an object.
fn object_key(files: &SharedFiles, at: usize) -> String {
    format!("{FILES_PATH}/{}", files.lock()[at].name)
}

/// Gets an object, and checks what it finds.
pub async fn read_object(vfs: &Vfs, state: &SimState, files: &SharedFiles, at: usize) -> Outcome<()> {
    let (key, began) = (object_key(files, at), state.steps());
    let found = match Objects::new(vfs.client().clone()).get(key.as_bytes()).await {
        Ok(value) => Some(value.into_bytes()),
        Err(Refusal::NotFound(_)) => None,
        Err(refusal) => return Err(refusal),
    };
    let checked = files.lock()[at].check_whole(found.as_deref(), (began, state.steps()));
    if let Err(why) = checked {
        panic!("the object {key}: {why}");
    }
    Ok(())
}
