//! `put`, `get`, `cat`, `ls`, `cp`, `rm`, `stat`, `locate`: files of a pool from the command line.

use crate::args::{CpArgs, GetArgs, KeysArgs, LsArgs, PoolArg, PutArgs, RmArgs, StatArgs};
use crate::console;
use crate::output::{self, PrintError};
use crate::pool_command;
use base::{ByteSize, Problem, printable};
use bytes::Bytes;
use client::{
    Objects, RetryPolicy,
    objects::{Condition, KEY_BYTES_MAX},
};
use placement::{FileId, PlacementSpec, Policy};
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use tokio::runtime::Runtime;
use vfs::{ExpectedLocation, FileLocation, Handle, PathLocation, Vfs};
use wire::{Attributes, Kind, NAME_BYTES_MAX, Object, ObjectMeta, OpenFlags, Outcome, Refusal, Timestamp, Version};

/// Bytes read or written at a time.
const CHUNK_BYTES: usize = 4 << 20;
/// Directory entries requested at a time.
const PAGE_ENTRIES: usize = 1024;

/// Upper bound of the characters of a key in a message.
const SHOWN_CHARS_MAX: usize = 100;

/// A connection to a pool, for one command.
struct PoolHandle {
    runtime: Runtime,
    vfs: Vfs,
    objects: Objects,
}

/// Reason why a command on one key ended early.
enum KeyCommandError {
    /// An error to report.
    Reported(Problem),
    /// The reader of standard output went away.
    ReaderGone,
}

impl From<PrintError> for KeyCommandError {
    fn from(error: PrintError) -> Self {
        error.problem().map_or(Self::ReaderGone, Self::Reported)
    }
}

impl PoolHandle {
    fn connect(pool_arg: &PoolArg) -> Result<Self, Vec<Problem>> {
        let opened = || {
            let path = pool_command::file(pool_arg)?;
            let runtime = pool::runtime()?;
            let client = runtime.block_on(pool::connect(&path, RetryPolicy::default()))?;
            Ok(Self { runtime, vfs: Vfs::new(client.clone()), objects: Objects::new(client) })
        };
        opened().map_err(|problem| vec![problem])
    }

    fn wait<T>(&self, operation: impl Future<Output = Outcome<T>>) -> Outcome<T> {
        self.runtime.block_on(operation)
    }

    /// The attributes of the file at a key.
    fn find(&self, key: &str) -> Result<Attributes, KeyCommandError> {
        self.wait(self.vfs.resolve(key.as_bytes())).map_err(|refusal| refused(key, &refusal))
    }

    /// Puts the chunks that `next` returns as one object that replaces any at the key. Readers see
    /// it only when it is complete.
    fn put(
        &self,
        objects: &Objects,
        (key, condition): (&str, Condition),
        mut next: impl FnMut() -> Result<Bytes, KeyCommandError>,
    ) -> Result<(), KeyCommandError> {
        let fails = |refusal| refused(key, &refusal);
        let (object, mut chunk) = (key.trim_matches('/').as_bytes(), next()?);
        if chunk.len() < CHUNK_BYTES {
            return self.wait(objects.put(object, chunk, condition)).map(drop).map_err(fails);
        }
        let mut upload = self.wait(objects.upload(object, condition)).map_err(fails)?;
        while !chunk.is_empty() {
            self.wait(upload.write(chunk)).map_err(fails)?;
            chunk = next()?;
        }
        self.wait(upload.finish()).map(drop).map_err(fails)
    }

    /// Passes the bytes of a file to `take`, chunk by chunk.
    fn read(
        &self,
        key: &str,
        mut take: impl FnMut(&Bytes) -> Result<(), KeyCommandError>,
    ) -> Result<(), KeyCommandError> {
        let found = self.find(key)?;
        if found.kind == Kind::Directory {
            return Err(refused(key, &Refusal::IsDirectory(Object::text(key.as_bytes()))));
        }
        let fails = |refusal| refused(key, &refusal);
        let handle = self.wait(self.vfs.open(found.file, OpenFlags::READ)).map_err(fails)?;
        let mut at = 0;
        loop {
            let bytes = self.read_at(handle, at).map_err(fails)?;
            if bytes.is_empty() {
                return self.wait(self.vfs.close(handle)).map_err(fails);
            }
            at += bytes.len() as u64;
            take(&bytes)?;
        }
    }

    fn read_at(&self, handle: Handle, at: u64) -> Outcome<Bytes> {
        self.wait(self.vfs.read(handle, at, u32::try_from(CHUNK_BYTES).unwrap_or(u32::MAX)))
    }

    /// Runs `what` for each key, prints errors, and returns the exit code.
    fn each(&self, keys: &[String], mut operation: impl FnMut(&Self, &str) -> Result<(), KeyCommandError>) -> u8 {
        let mut worst = 0;
        for key in keys {
            worst = worst.max(code(operation(self, key)));
        }
        worst
    }
}

/// Prints the error of a command on one key, if any; returns the exit code.
fn code(done: Result<(), KeyCommandError>) -> u8 {
    match done {
        Ok(()) | Err(KeyCommandError::ReaderGone) => 0,
        Err(KeyCommandError::Reported(problem)) => {
            console::say(&format!("error: {problem}"));
            1
        }
    }
}

fn refused(key: &str, refusal: &Refusal) -> KeyCommandError {
    let key = display_key(key);
    KeyCommandError::Reported(match refusal {
        Refusal::NotFound(_) => Problem::new(format!("{key}: no such file or directory")),
        Refusal::IsDirectory(_) => Problem::new(format!("{key} is a directory")),
        Refusal::VersionMismatch { present, .. } => changed(&key, *present),
        Refusal::NotDirectory(_) => Problem::new(format!("{key}: a part of its path is not a directory")),
        Refusal::NotEmpty(_) => Problem::new(format!("{key}: the directory is not empty")),
        Refusal::NameTooLong(_) => {
            let limits = format!("each name in it at most {NAME_BYTES_MAX} bytes, all of it {KEY_BYTES_MAX}");
            Problem::new(format!("{key}: too long a key")).hint(limits)
        }
        Refusal::Unavailable { why, .. } => {
            Problem::new(format!("{key}: a node that is needed does not answer: {why}"))
                .hint("`tidemill pool status` shows which nodes answer; the data of these is available")
        }
        Refusal::Invalid { why, .. } | Refusal::Io { why, .. } => Problem::new(format!("{key}: {why}")),
        other => Problem::new(format!("{key}: {other}")),
    })
}

/// A key in a message: `/` for the root, and only the beginning of a very long key.
fn display_key(key: &str) -> String {
    match key.char_indices().nth(SHOWN_CHARS_MAX) {
        Some((at, _)) => format!("{}... ({} bytes)", &key[..at], key.len()),
        None if key.trim_matches('/').is_empty() => "/".to_owned(),
        None => key.to_owned(),
    }
}

/// The problem that a condition did not hold.
fn changed(key: &str, present: Option<Version>) -> Problem {
    match present {
        Some(version) => Problem::new(format!("{key} exists, in version {version}; nothing was changed")),
        None => Problem::new(format!("{key} does not exist; nothing was changed")),
    }
}

fn of_host(path: &Path, error: &io::Error) -> KeyCommandError {
    KeyCommandError::Reported(Problem::new(format!("{}: {error}", path.display())))
}

/// The next chunk of a reader; shorter only at its end.
fn chunk(from: &mut dyn Read) -> io::Result<Bytes> {
    let mut bytes = Vec::with_capacity(CHUNK_BYTES);
    from.take(CHUNK_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

/// `tidemill put`.
pub fn put(args: &PutArgs) -> Result<u8, Vec<Problem>> {
    let pool = PoolHandle::connect(&args.pool_arg)?;
    Ok(code(put_file(&pool, args)))
}

fn put_file(pool: &PoolHandle, args: &PutArgs) -> Result<(), KeyCommandError> {
    let key = key_for(&args.key, &args.file)?;
    let (mut from, size): (Box<dyn Read>, u64) = if args.file.as_os_str() == "-" {
        (Box::new(io::stdin()), 0)
    } else {
        let opened = File::open(&args.file).and_then(|file| {
            let of = file.metadata()?;
            if of.is_dir() { Err(io::ErrorKind::IsADirectory.into()) } else { Ok((file, of.len())) }
        });
        let (file, size) = opened.map_err(|error| of_host(&args.file, &error))?;
        (Box::new(file), size)
    };
    let next = || chunk(&mut *from).map_err(|error| of_host(&args.file, &error));
    let condition = match args.if_version {
        Some(version) => Condition::Is(version),
        None if args.if_absent => Condition::Absent,
        None => Condition::Always,
    };
    let placing = PlacementSpec { policy: args.placement, stripe_size: args.stripe_size };
    let fails = |refusal| refused(&key, &refusal);
    let objects = pool.objects.with_placement(placing).map_err(fails)?;
    if size > CHUNK_BYTES as u64 {
        pool.wait(objects.check_possible(size)).map_err(fails)?;
    }
    pool.put(&objects, (&key, condition), next)
}

/// The key of an object to put: after a trailing slash, the file name of its source is appended.
fn key_for(key: &str, from: &Path) -> Result<String, KeyCommandError> {
    if !key.ends_with('/') {
        return Ok(key.to_owned());
    }
    let Some(name) = from.file_name().and_then(OsStr::to_str).filter(|name| *name != "-") else {
        let problem = Problem::new(format!("{} is a directory", display_key(key)));
        return Err(KeyCommandError::Reported(problem.hint("say which name the file gets in it")));
    };
    Ok(format!("{key}{name}"))
}

/// `tidemill get`. A file of the host is written completely or not at all.
pub fn get(args: &GetArgs) -> Result<u8, Vec<Problem>> {
    let pool = PoolHandle::connect(&args.pool_arg)?;
    if args.file.as_os_str() == "-" {
        return Ok(code(pool.read(&args.key, to_standard_output)));
    }
    // Into a directory of the host, under the object's own name.
    let name = args.key.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let file = &if args.file.is_dir() { args.file.join(name) } else { args.file.clone() };
    let fails = |error: io::Error| of_host(file, &error);
    let fetched = || {
        let is_plain = std::fs::symlink_metadata(file).map_or(true, |metadata| metadata.is_file());
        if !is_plain {
            // A pipe or a device is written to, not replaced.
            let mut to = File::options().write(true).open(file).map_err(fails)?;
            return pool.read(&args.key, |bytes| to.write_all(bytes).map_err(fails));
        }
        let mut part = file.as_os_str().to_owned();
        part.push(format!(".part-{}", std::process::id()));
        let part = Path::new(&part);
        let written = || {
            let mut to = File::create_new(part).map_err(fails)?;
            pool.read(&args.key, |bytes| to.write_all(bytes).map_err(fails))?;
            std::fs::rename(part, file).map_err(fails)
        };
        written().inspect_err(|_| drop(std::fs::remove_file(part)))
    };
    Ok(code(fetched()))
}

fn to_standard_output(bytes: &Bytes) -> Result<(), KeyCommandError> {
    output::print(bytes).map_err(KeyCommandError::from)
}

/// `tidemill cat`.
pub fn cat(args: &KeysArgs) -> Result<u8, Vec<Problem>> {
    let pool = PoolHandle::connect(&args.pool_arg)?;
    Ok(pool.each(&args.keys, |pool, key| pool.read(key, to_standard_output)))
}

/// `tidemill ls`.
pub fn ls(args: &LsArgs) -> Result<u8, Vec<Problem>> {
    let pool = PoolHandle::connect(&args.pool_arg)?;
    let listed = || {
        let found = pool.find(&args.key)?;
        let key = args.key.trim_matches('/');
        if found.kind != Kind::Directory {
            return print_entry(key, &found, args).map(|()| 0);
        }
        list(&pool, key, "", found.file, args)
    };
    Ok(listed().unwrap_or_else(|failed| code(Err(failed))))
}

/// Prints the entries of a directory in the order of their names, with `prefix` before each name.
/// An error with one entry does not hide the others; returns the exit code.
fn list(pool: &PoolHandle, key: &str, prefix: &str, directory: FileId, args: &LsArgs) -> Result<u8, KeyCommandError> {
    let (mut entries, mut after, mut worst) = (Vec::new(), 0, 0);
    loop {
        let page =
            pool.wait(pool.vfs.list(directory, after, PAGE_ENTRIES)).map_err(|refusal| refused(key, &refusal))?;
        let Some(last) = page.last() else { break };
        after = last.cookie;
        entries.extend(page);
    }
    entries.sort_by(|one, other| one.name.as_bytes().cmp(other.name.as_bytes()));
    for entry in entries {
        let last = String::from_utf8_lossy(entry.name.as_bytes());
        let (name, below) = (format!("{prefix}{last}"), format!("{key}/{last}"));
        let below = below.trim_start_matches('/');
        if args.long || args.json {
            match pool.wait(pool.vfs.stat(entry.file)) {
                // The entry was removed meanwhile.
                Err(Refusal::NotFound(_)) => continue,
                Err(refusal) => worst = code(Err(refused(below, &refusal))),
                Ok(found) => print_entry(&name, &found, args)?,
            }
        } else {
            print_line(&format!("{name}{}", ending(entry.kind)))?;
        }
        if args.recursive && entry.kind == Kind::Directory {
            let listed = list(pool, below, &format!("{name}/"), entry.file, args);
            worst = worst.max(listed.unwrap_or_else(|failed| code(Err(failed))));
        }
    }
    Ok(worst)
}

fn print_entry(name: &str, found: &Attributes, args: &LsArgs) -> Result<(), KeyCommandError> {
    if args.json {
        return print_json(&as_json(name, found));
    }
    let end = ending(found.kind);
    if !args.long {
        return print_line(&format!("{name}{end}"));
    }
    let (kind, time) = (letter(found.kind), shown_time(found.modified));
    print_line(&format!("{kind} {:04o} {:>12} {time} {name}{end}", found.mode, found.size))
}

/// Suffix of a name in listings: `/` for a directory.
fn ending(kind: Kind) -> &'static str {
    if kind == Kind::Directory { "/" } else { "" }
}

/// A time in the format of RFC 3339; times before 1970 are shown as 1970.
fn shown_time(at: Timestamp) -> String {
    let millis = u64::try_from(at.secs).unwrap_or(0) * 1000 + u64::from(at.nanos / 1_000_000);
    report::rfc3339_utc(millis)
}

fn letter(kind: Kind) -> char {
    match kind {
        Kind::File => '-',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::Fifo => 'p',
        Kind::Socket => 's',
        Kind::CharDevice(_) => 'c',
        Kind::BlockDevice(_) => 'b',
        _ => '?',
    }
}

/// Prints a line and escapes control characters in the names in it.
fn print_line(line: &str) -> Result<(), KeyCommandError> {
    output::print(format!("{}\n", printable::line(line)).as_bytes()).map_err(KeyCommandError::from)
}

fn print_json(value: &Value) -> Result<(), KeyCommandError> {
    output::print(format!("{value}\n").as_bytes()).map_err(KeyCommandError::from)
}

/// `tidemill cp`.
pub fn cp(args: &CpArgs) -> Result<u8, Vec<Problem>> {
    let pool = PoolHandle::connect(&args.pool_arg)?;
    let copied = || {
        let found = pool.find(&args.from)?;
        if found.kind != Kind::File {
            return Err(KeyCommandError::Reported(
                Problem::new(format!("{} is not a file", display_key(&args.from))).hint("cp copies one file"),
            ));
        }
        let fails = |refusal| refused(&args.from, &refusal);
        let handle = pool.wait(pool.vfs.open(found.file, OpenFlags::READ)).map_err(fails)?;
        let mut at = 0;
        let to = key_for(&args.to, Path::new(args.from.trim_end_matches('/')))?;
        pool.put(&pool.objects, (&to, Condition::Always), || {
            let bytes = pool.read_at(handle, at).map_err(fails)?;
            at += bytes.len() as u64;
            Ok(bytes)
        })?;
        pool.wait(pool.vfs.close(handle)).map_err(fails)
    };
    Ok(code(copied()))
}

/// `tidemill rm`.
pub fn rm(args: &RmArgs) -> Result<u8, Vec<Problem>> {
    let pool = PoolHandle::connect(&args.pool_arg)?;
    Ok(pool.each(&args.keys, |pool, key| {
        let fails = |refusal| refused(key, &refusal);
        let found = pool.find(key)?;
        if found.kind == Kind::Directory && !args.recursive {
            return Err(KeyCommandError::Reported(
                Problem::new(format!("{} is a directory", display_key(key)))
                    .hint("rm -r removes it with everything in it"),
            ));
        }
        if found.file == FileId::ROOT {
            return Err(KeyCommandError::Reported(
                Problem::new("the root directory cannot be removed".to_owned()).hint("name the entries to remove"),
            ));
        }
        pool.wait(pool.vfs.remove_tree(key.as_bytes())).map_err(fails)
    }))
}

/// `tidemill stat`.
pub fn stat(args: &StatArgs) -> Result<u8, Vec<Problem>> {
    let pool = PoolHandle::connect(&args.pool_arg)?;
    Ok(pool.each(&args.keys, |pool, key| {
        let found = pool.find(key)?;
        if args.json {
            return print_json(&as_json(key, &found));
        }
        let kind = word(found.kind);
        let (mode, modified) = (format!("{:04o}", found.mode), shown_time(found.modified));
        let (size, held) = (found.size, ByteSize(found.allocated));
        let key = display_key(key);
        print_line(&format!("{key}: {kind}, {size} bytes, {held} in the pool, mode {mode}, {modified}"))
    }))
}

fn word(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Directory => "folder",
        Kind::Symlink => "link",
        Kind::Fifo => "pipe",
        Kind::Socket => "socket",
        Kind::CharDevice(_) | Kind::BlockDevice(_) => "device",
        _ => "other",
    }
}

/// The JSON object that `stat` and `ls` print for a file or directory.
fn as_json(key: &str, found: &Attributes) -> Value {
    let (mode, modified) = (format!("{:04o}", found.mode), shown_time(found.modified));
    json!({
        "key": key, "file": found.file.to_string(), "version": ObjectMeta::from(found).version.to_string(),
        "kind": word(found.kind), "size": found.size,
        "allocated": found.allocated, "mode": mode, "links": found.links, "uid": found.owner.uid, "gid": found.owner.gid,
        "modified": modified, "changed": shown_time(found.changed), "created": shown_time(found.created),
    })
}

/// `tidemill locate`.
pub fn locate(args: &StatArgs) -> Result<u8, Vec<Problem>> {
    let pool = PoolHandle::connect(&args.pool_arg)?;
    Ok(pool.each(&args.keys, |pool, key| {
        let fails = |refusal| refused(key, &refusal);
        match pool.wait(pool.vfs.locate_path(key.as_bytes())).map_err(fails)? {
            PathLocation::Existing(located) => print_located(key, &located, args.json),
            PathLocation::Expected(expected) => print_expected(key, &expected, args.json),
        }
    }))
}

fn print_located(key: &str, located: &FileLocation, as_json: bool) -> Result<(), KeyCommandError> {
    let (shares, inode) = (located.shares(), located.inode);
    if as_json {
        let shares: Vec<_> = shares.iter().map(|(node, bytes)| json!({"node": node, "bytes": bytes})).collect();
        let ranges = located.bytes.iter().map(|(range, node)| json!([range.start, range.end, node]));
        let ranges: Vec<_> = ranges.collect();
        let shown = json!({"key": key, "exists": true, "inode": inode, "nodes": shares, "ranges": ranges});
        return print_json(&shown);
    }
    let nodes: Vec<String> =
        shares.iter().map(|(node, bytes)| format!("{} on node {node}", ByteSize(*bytes))).collect();
    let nodes = if nodes.is_empty() { "no bytes".to_owned() } else { nodes.join(", ") };
    print_line(&format!("{key}: {nodes}; inode on node {inode}"))
}

fn print_expected(key: &str, expected: &ExpectedLocation, as_json: bool) -> Result<(), KeyCommandError> {
    let ExpectedLocation { inode, policy, nodes } = expected;
    if as_json {
        let nodes: Vec<_> = nodes.iter().map(|(node, share)| json!({"node": node, "share": share})).collect();
        let shown =
            json!({"key": key, "exists": false, "placement": policy.to_string(), "inode": inode, "nodes": nodes});
        return print_json(&shown);
    }
    let shared = nodes.iter().map(|(node, share)| format!("node {node} ({:.0} %)", share * 100.0));
    let would = match (&nodes[..], policy) {
        ([(node, _)], _) => format!("on node {node}"),
        (_, Policy::Striped) => format!("over {}", shared.collect::<Vec<_>>().join(", ")),
        _ => format!("on one of {}", shared.collect::<Vec<_>>().join(", ")),
    };
    let inode = inode.map_or_else(String::new, |node| format!("; inode on node {node}"));
    print_line(&format!("{key}: does not exist; would be {would}, by `{policy}`{inode}"))
}

#[cfg(test)]
#[path = "key_command_test.rs"]
mod key_command_test;
