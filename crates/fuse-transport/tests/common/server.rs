//! A small file system of a few fixed inodes that records all its requests.

use std::{
    collections::HashMap,
    pin::pin,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Wake, Waker},
    thread::{self, Thread},
    time::Duration,
};

use fuse_transport::{
    BackingId, FuseAttributes, FuseDirent, FuseEntry, FuseLock, FuseLockKind, FuseOp, FuseOpen, FuseReply, FuseRequest,
    Handler, Listing, ROOT, Statfs, Statx, Time,
};

/// The inodes of the names.
pub(crate) const FILE: u64 = 2;
pub(crate) const OTHER: u64 = 3;
const DIRECTORY: u64 = 4;
const LINK: u64 = 5;
pub(crate) const PASSED: u64 = 6;
pub(crate) const CACHED: u64 = 7;
const MADE: u64 = 9;
/// Error numbers that the server sends.
const ENOSYS: i32 = 38;
const EINTR: i32 = 4;
const LONG: Duration = Duration::from_secs(100_000);

/// Recorded requests, with a condition variable for new ones.
#[derive(Default)]
struct Notes {
    lines: Mutex<Vec<String>>,
    changed: Condvar,
}

impl Notes {
    fn add(&self, line: String) {
        self.lines.lock().unwrap().push(line);
        self.changed.notify_all();
    }
}

#[derive(Default)]
pub(crate) struct Small {
    notes: Arc<Notes>,
    backing: Mutex<HashMap<u64, BackingId>>,
    ended: AtomicBool,
}

impl Small {
    /// All requests: the inode and the operation with its fields.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.notes.lines.lock().unwrap().clone()
    }

    /// Number of requests that start with `beginning`.
    pub(crate) fn count(&self, beginning: &str) -> usize {
        self.requests().iter().filter(|line| line.starts_with(beginning)).count()
    }

    /// Waits for `count` requests that start with `beginning`. Returns false on a timeout.
    pub(crate) fn await_count(&self, beginning: &str, count: usize) -> bool {
        let asked = self.notes.lines.lock().unwrap();
        let few = |asked: &mut Vec<String>| asked.iter().filter(|line| line.starts_with(beginning)).count() < count;
        !self.notes.changed.wait_timeout_while(asked, Duration::from_mins(1), few).unwrap().1.timed_out()
    }

    /// Opens the inode with the backing file from now on.
    pub(crate) fn pass(&self, inode: u64, backing: BackingId) {
        self.backing.lock().unwrap().insert(inode, backing);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    fn note(&self, line: String) {
        self.notes.add(line);
    }

    fn opened(&self, inode: u64) -> FuseOpen {
        let backing = self.backing.lock().unwrap().get(&inode).copied();
        let cached = inode == CACHED;
        FuseOpen {
            handle: inode + 100,
            direct: !cached && backing.is_none(),
            keep_cache: cached,
            backing,
            ..FuseOpen::default()
        }
    }

    fn lookup(name: &[u8], reply: FuseReply) {
        let inode = match name {
            b"file" => FILE,
            b"other" => OTHER,
            b"dir" => DIRECTORY,
            b"link" => LINK,
            b"passed" => PASSED,
            b"cached" => CACHED,
            b"panic" => panic!("on purpose"),
            b"dropped" => return drop(reply),
            b"errno" => return reply.error(100_000),
            _ => return ignore_sent(reply.entry(&FuseEntry::absent(Duration::ZERO))),
        };
        ignore_sent(reply.entry(&entry(inode)));
    }
}

impl Handler for Small {
    fn handle(&self, request: FuseRequest<'_>, reply: FuseReply) {
        self.note(format!("{} {:?}", request.inode, request.operation));
        let inode = request.inode;
        match request.operation {
            FuseOp::Lookup { name } => Self::lookup(name, reply),
            FuseOp::Getattr { .. } | FuseOp::Setattr(_) => reply.attributes(&attributes(inode), valid(inode)),
            FuseOp::Statx { .. } => {
                let born = Some(Time { seconds: 99, nanoseconds: 0 });
                reply.statx(&Statx { attributes: attributes(inode), born, ..Statx::default() }, Duration::ZERO);
            }
            FuseOp::Readlink => reply.data_parts(&[b"tar", b"get"]),
            FuseOp::Symlink { .. } => ignore_sent(reply.entry(&made(0o120_777))),
            FuseOp::Mkdir { mode, .. } => ignore_sent(reply.entry(&made(mode | 0o040_000))),
            FuseOp::Mknod { mode, .. } => ignore_sent(reply.entry(&made(mode))),
            FuseOp::Link { inode, .. } => ignore_sent(reply.entry(&entry(inode))),
            FuseOp::Create { .. } | FuseOp::Tmpfile { .. } => {
                ignore_sent(reply.created(&made(0o100_644), self.opened(MADE)));
            }
            FuseOp::Open { .. } => ignore_sent(reply.opened(self.opened(inode))),
            FuseOp::Read { .. } => reply.data(b"0123456789"),
            FuseOp::Write { data, .. } => reply.written(u32::try_from(data.len()).unwrap()),
            FuseOp::Readdir { offset, size, plus, .. } => ignore_sent(reply.listing(&list(offset, size, plus))),
            FuseOp::Statfs => reply.statfs(&Statfs { name_bytes_max: 255, ..Statfs::default() }),
            FuseOp::Getxattr { .. } => reply.data(b"value"),
            FuseOp::Listxattr { .. } => reply.data(b"user.a\0"),
            FuseOp::Getlk { lock, .. } => reply.lock(&FuseLock { kind: FuseLockKind::Unlock, ..lock }),
            FuseOp::Setlk { wait: true, .. } => park(reply, Arc::clone(&self.notes)),
            FuseOp::Lseek { offset, .. } => reply.offset(offset),
            FuseOp::CopyFileRange { length, .. } => reply.copied(length),
            FuseOp::Opendir { .. } | FuseOp::Poll { .. } | FuseOp::Ioctl { .. } | FuseOp::Unknown(_) => {
                reply.error(ENOSYS);
            }
            _ => reply.done(),
        }
    }

    fn forget(&self, inode: u64, lookups: u64) {
        self.note(format!("{inode} Forget {lookups}"));
    }

    fn on_close(&self) {
        assert!(!self.ended.swap(true, Ordering::SeqCst), "ended once");
        self.note("ended".into());
    }
}

/// Defers the reply until the caller gives up.
fn park(reply: FuseReply, notes: Arc<Notes>) {
    let interrupted = reply.interrupted();
    thread::spawn(move || {
        block_on(interrupted);
        notes.add("interrupted".into());
        reply.error(EINTR);
    });
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on(future: impl Future<Output = ()>) {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    while future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        thread::park();
    }
}

fn ignore_sent(_: bool) {}

/// Validity of names and attributes: long for the cached file, zero for all others.
fn valid(inode: u64) -> Duration {
    if inode == CACHED { LONG } else { Duration::ZERO }
}

fn attributes(inode: u64) -> FuseAttributes {
    let mode = match inode {
        ROOT | DIRECTORY => 0o040_755,
        LINK => 0o120_777,
        _ => 0o100_644,
    };
    FuseAttributes { inode, size: 10, mode, links: 1, block_size: 4096, ..FuseAttributes::default() }
}

fn entry(inode: u64) -> FuseEntry {
    let (entry_valid, attributes_valid) = (valid(inode), valid(inode));
    FuseEntry { inode, generation: 0, attributes: attributes(inode), entry_valid, attributes_valid }
}

fn made(mode: u32) -> FuseEntry {
    FuseEntry { attributes: FuseAttributes { mode, ..attributes(MADE) }, ..entry(MADE) }
}

fn list(offset: u64, size: u32, plus: bool) -> Listing {
    let mut listing = Listing::new(size);
    for (at, inode) in [(1, FILE), (2, OTHER)] {
        let name =
            FuseDirent { inode, next: at, mode: 0o100_644, name: if inode == FILE { b"file" } else { b"other" } };
        let fits = at <= offset || if plus { listing.push_with_entry(name, &entry(inode)) } else { listing.push(name) };
        assert!(fits, "two names fit");
    }
    listing
}
