//! Stores that workers work on: one interface to pools, directories and key-value servers.

use crate::{BenchTarget, key_values, messages::FilePlacement};
use base::Problem;
use bytes::Bytes;
use client::{Objects, RetryPolicy, objects::Condition};
use placement::{FileId, Policy};
use pool::Reactor;
use std::{
    collections::HashMap,
    fs,
    io::{Read, Write},
    path::PathBuf,
    sync::Mutex,
};
use vfs::Vfs;
use wire::{Attributes, Name, OpenFlags, Outcome, PLACEMENT, Refusal, RenameFrom, RenameMode, RenameTo, XattrMode};

const FILE_MODE: u32 = 0o644;

/// Source of the chunks to write, in order; `None` at the end.
pub type ChunkIter<'a> = &'a mut dyn FnMut() -> Option<Bytes>;
/// Receiver of the bytes that are read, in order.
pub type ByteSink<'a> = &'a mut dyn FnMut(&[u8]) -> Result<(), Problem>;

/// A store, as one worker uses it. Paths are relative, with `/` between names.
pub trait BenchStore {
    /// Makes a directory whose parent exists; succeeds if it exists already.
    fn make_directory(&self, path: &str) -> Result<(), Problem>;
    /// Sets the placement of files that will be written to a directory.
    fn set_placement(&self, path: &str, _near: FilePlacement) -> Result<(), Problem> {
        Err(Problem::new(format!("{path}: only a pool has a placement of files")))
    }
    /// Removes a directory with all its content.
    fn remove_directory(&self, path: &str) -> Result<(), Problem>;
    /// Writes a new file.
    fn write(&self, path: &str, chunks: ChunkIter<'_>) -> Result<(), Problem>;
    /// Reads a file to its end, `chunk_bytes` bytes at a time.
    fn read(&self, path: &str, chunk_bytes: u64, take: ByteSink<'_>) -> Result<(), Problem>;
    /// Creates an empty file that does not exist yet, and closes it.
    fn create(&self, path: &str) -> Result<(), Problem>;
    /// Queries the size of a file.
    fn stat(&self, path: &str) -> Result<u64, Problem>;
    /// Renames a file within its directory.
    fn rename(&self, path: &str, to: &str) -> Result<(), Problem>;
    /// Removes a file.
    fn remove(&self, path: &str) -> Result<(), Problem>;
    /// Puts a value under each key, new or replacing another, all concurrently.
    fn put_values(&self, keys: &[String], value: &Bytes) -> Result<(), Problem>;
    /// Gets the values of keys concurrently, and passes each to `take`.
    fn get_values(&self, keys: &[String], take: ByteSink<'_>) -> Result<(), Problem>;
    /// Removes the values of keys.
    fn remove_values(&self, keys: &[String]) -> Result<(), Problem> {
        keys.iter().try_for_each(|key| self.remove(key))
    }
}

/// Opens the store at a target.
pub fn open(target: &BenchTarget) -> Result<Box<dyn BenchStore>, Problem> {
    Ok(match target {
        BenchTarget::Pool(None) => return Err(Problem::new("no pool is named")),
        BenchTarget::Pool(Some(file)) => Box::new(PoolStore::open(file)?),
        BenchTarget::Directory(path) if path.is_dir() => Box::new(DirectoryStore(path.clone())),
        BenchTarget::Directory(path) => {
            return Err(Problem::new(format!("{}: there is no such directory", path.display())));
        }
        BenchTarget::Redis(address) => Box::new(key_values::KeyValueServer::redis(address)?),
        BenchTarget::Memcached(address) => Box::new(key_values::KeyValueServer::memcached(address)?),
    })
}

/// Splits a path into its directory and last name.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

fn refused<T>(path: &str, outcome: Outcome<T>) -> Result<T, Problem> {
    outcome.map_err(|refusal| Problem::new(format!("{path}: {refusal}")))
}

/// Pool over the client that programs have under the preload library and in Python: the thread that
/// waits for a reply drives the connections.
struct PoolStore {
    reactor: Reactor,
    vfs: Vfs,
    objects: Objects,
    directories: Mutex<HashMap<String, Attributes>>,
}

impl PoolStore {
    fn open(file: &std::path::Path) -> Result<Self, Problem> {
        let reactor = Reactor::new().map_err(|error| Problem::new(format!("connections cannot be polled: {error}")))?;
        let client = pool::connect_with_reactor(&reactor, file, RetryPolicy::default())?;
        Ok(Self {
            reactor,
            objects: Objects::new(client.clone()),
            vfs: Vfs::new(client),
            directories: Mutex::default(),
        })
    }

    fn wait<T>(&self, path: &str, operation: impl Future<Output = Outcome<T>>) -> Result<T, Problem> {
        refused(path, self.reactor.block_on(operation))
    }

    /// Attributes of a directory; looked up once.
    fn lookup_directory(&self, path: &str) -> Result<Attributes, Problem> {
        let mut directories = self.directories.lock().expect("a worker is one thread");
        if let Some(known) = directories.get(path) {
            return Ok(*known);
        }
        let found = self.wait(path, self.vfs.resolve(path.as_bytes()))?;
        directories.insert(path.to_owned(), found);
        Ok(found)
    }

    fn parent<'a>(&self, path: &'a str) -> Result<(FileId, &'a [u8]), Problem> {
        let (parent, name) = split(path);
        Ok((self.lookup_directory(parent)?.file, name.as_bytes()))
    }
}

impl BenchStore for PoolStore {
    fn make_directory(&self, path: &str) -> Result<(), Problem> {
        self.wait(path, self.vfs.make_directories(path.as_bytes())).map(drop)
    }

    fn set_placement(&self, path: &str, placement: FilePlacement) -> Result<(), Problem> {
        let client = self.objects.client();
        let own = client.local_node().ok_or_else(|| Problem::new("no node of the pool is on this host"))?;
        let node = match placement {
            FilePlacement::Local => own,
            FilePlacement::Remote => {
                let all = client.data_nodes();
                all.iter().find(|node| **node > own).or(all.first()).copied().unwrap_or(own)
            }
        };
        let policy = Bytes::from(Policy::At(node).to_string());
        let directory = self.lookup_directory(path)?.file;
        self.wait(path, self.vfs.set_xattr(directory, PLACEMENT, policy, XattrMode::Set, false))
    }

    fn remove_directory(&self, path: &str) -> Result<(), Problem> {
        self.wait(path, self.vfs.remove_tree(path.as_bytes()))
    }

    fn write(&self, path: &str, chunks: ChunkIter<'_>) -> Result<(), Problem> {
        let (parent, name) = split(path);
        let (directory, flags) = (self.lookup_directory(parent)?, OpenFlags { exclusive: true, ..OpenFlags::WRITE });
        let (_, handle) =
            self.wait(path, self.vfs.create(directory.file, name.as_bytes(), FILE_MODE, directory.owner, flags))?;
        let mut at = 0;
        while let Some(mut chunk) = chunks() {
            while !chunk.is_empty() {
                let written = self.wait(path, self.vfs.write(handle, at, chunk.clone()))?;
                at += u64::from(written);
                chunk = chunk.split_off(written as usize);
            }
        }
        self.wait(path, self.vfs.close(handle))
    }

    fn read(&self, path: &str, chunk_bytes: u64, take: ByteSink<'_>) -> Result<(), Problem> {
        let (parent, name) = self.parent(path)?;
        let file = self.wait(path, self.vfs.lookup(parent, name))?.file;
        let handle = self.wait(path, self.vfs.open(file, OpenFlags::READ))?;
        let (mut at, length) = (0, u32::try_from(chunk_bytes).unwrap_or(u32::MAX));
        loop {
            let bytes = self.wait(path, self.vfs.read(handle, at, length))?;
            if bytes.is_empty() {
                return self.wait(path, self.vfs.close(handle));
            }
            at += bytes.len() as u64;
            take(&bytes)?;
        }
    }

    fn create(&self, path: &str) -> Result<(), Problem> {
        let (parent, name) = split(path);
        let (directory, flags) = (self.lookup_directory(parent)?, OpenFlags { exclusive: true, ..OpenFlags::WRITE });
        let made = self.vfs.create(directory.file, name.as_bytes(), FILE_MODE, directory.owner, flags);
        let (_, handle) = self.wait(path, made)?;
        self.wait(path, self.vfs.close(handle))
    }

    fn stat(&self, path: &str) -> Result<u64, Problem> {
        let (parent, name) = self.parent(path)?;
        Ok(self.wait(path, self.vfs.lookup(parent, name))?.size)
    }

    fn rename(&self, path: &str, to: &str) -> Result<(), Problem> {
        let (parent, name) = self.parent(path)?;
        let name_of = |name: &[u8]| Name::new(name).map_err(|refusal: Refusal| Problem::new(refusal.to_string()));
        let from = RenameFrom { parent, name: name_of(name)? };
        let to = RenameTo { parent, name: name_of(split(to).1.as_bytes())? };
        self.wait(path, self.vfs.rename(from, to, RenameMode::Replace))
    }

    fn remove(&self, path: &str) -> Result<(), Problem> {
        let (parent, name) = self.parent(path)?;
        self.wait(path, self.vfs.unlink(parent, name))
    }

    fn put_values(&self, keys: &[String], value: &Bytes) -> Result<(), Problem> {
        if let [key] = keys {
            return self.wait(key, self.objects.put(key.as_bytes(), value.clone(), Condition::Always)).map(drop);
        }
        let all: Vec<_> = keys.iter().map(|key| (key.as_bytes(), value.clone(), Condition::Always)).collect();
        let put = self.reactor.block_on(self.objects.put_many(&all));
        keys.iter().zip(put).try_for_each(|(key, put)| refused(key, put).map(drop))
    }

    fn get_values(&self, keys: &[String], take: ByteSink<'_>) -> Result<(), Problem> {
        let got = if let [key] = keys {
            vec![self.reactor.block_on(self.objects.get(key.as_bytes()))]
        } else {
            let all: Vec<_> = keys.iter().map(String::as_bytes).collect();
            self.reactor.block_on(self.objects.get_many(&all))
        };
        keys.iter().zip(got).try_for_each(|(key, got)| take(&refused(key, got)?.into_bytes()))
    }
}

struct DirectoryStore(PathBuf);

impl DirectoryStore {
    fn with_path<T>(&self, path: &str, work: impl FnOnce(PathBuf) -> std::io::Result<T>) -> Result<T, Problem> {
        let whole = self.0.join(path);
        let shown = whole.display().to_string();
        work(whole).map_err(|error| Problem::new(format!("{shown}: {error}")))
    }
}

impl BenchStore for DirectoryStore {
    fn make_directory(&self, path: &str) -> Result<(), Problem> {
        self.with_path(path, fs::create_dir_all)
    }

    fn remove_directory(&self, path: &str) -> Result<(), Problem> {
        self.with_path(path, fs::remove_dir_all)
    }

    fn write(&self, path: &str, chunks: ChunkIter<'_>) -> Result<(), Problem> {
        self.with_path(path, |whole| {
            let mut file = fs::File::create_new(whole)?;
            while let Some(chunk) = chunks() {
                file.write_all(&chunk)?;
            }
            Ok(())
        })
    }

    fn read(&self, path: &str, chunk_bytes: u64, take: ByteSink<'_>) -> Result<(), Problem> {
        let mut file = self.with_path(path, fs::File::open)?;
        let mut buffer = vec![0; usize::try_from(chunk_bytes).expect("a chunk fits into memory")];
        loop {
            let read = self.with_path(path, |_| file.read(&mut buffer))?;
            if read == 0 {
                return Ok(());
            }
            take(&buffer[..read])?;
        }
    }

    fn create(&self, path: &str) -> Result<(), Problem> {
        self.with_path(path, fs::File::create_new).map(drop)
    }

    fn stat(&self, path: &str) -> Result<u64, Problem> {
        self.with_path(path, fs::metadata).map(|found| found.len())
    }

    fn rename(&self, path: &str, to: &str) -> Result<(), Problem> {
        self.with_path(path, |whole| fs::rename(whole, self.0.join(to)))
    }

    fn remove(&self, path: &str) -> Result<(), Problem> {
        self.with_path(path, fs::remove_file)
    }

    fn put_values(&self, keys: &[String], value: &Bytes) -> Result<(), Problem> {
        keys.iter().try_for_each(|key| self.with_path(key, |whole| fs::write(whole, value)))
    }

    fn get_values(&self, keys: &[String], take: ByteSink<'_>) -> Result<(), Problem> {
        keys.iter().try_for_each(|key| take(&self.with_path(key, fs::read)?))
    }
}
