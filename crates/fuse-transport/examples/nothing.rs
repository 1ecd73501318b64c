//! `nothing DIR`: a minimal FUSE file system that stores names, and files of up to 4 KiB, in hash
//! tables, with infinite cache times.
//!
//! A baseline for metadata measurements: the cost of a mount without any storage work. Needs root.
//! Ends on SIGTERM or SIGINT, and when it is unmounted. `KERNEL_THREADS` sets the number of
//! threads.

use std::{
    collections::{BTreeMap, HashMap},
    ffi::CString,
    fs::OpenOptions,
    io,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use fuse_transport::{
    Config, FuseAttributes, FuseDirent, FuseEntry, FuseOp, FuseOpen, FuseReply, FuseRequest, FuseSession, Handler,
    Listing, ROOT, SetTime, Setattr, Statfs, Time,
};
use parking_lot::{Mutex, RwLock};
use rustix::{
    io::Errno,
    mount::{MountFlags, UnmountFlags, mount, unmount},
};

const FOREVER: Duration = Duration::from_secs(1 << 30);
const FILE_BYTES_MAX: usize = 4096;
const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
/// Number of inode tables, so that threads rarely contend.
const SHARDS: usize = 16;

struct Inode {
    attributes: FuseAttributes,
    bytes: Vec<u8>,
    /// Of a directory: inode numbers by name.
    names: HashMap<Vec<u8>, u64>,
    /// Of a directory: names by inode number, which is also the position in listings.
    order: BTreeMap<u64, Vec<u8>>,
}

impl Inode {
    /// Sets the inode of a name and returns the previous one.
    fn insert(&mut self, name: &[u8], number: u64) -> Option<u64> {
        let replaced = self.names.insert(name.to_vec(), number);
        replaced.map(|gone| self.order.remove(&gone));
        self.order.insert(number, name.to_vec());
        replaced
    }

    fn remove(&mut self, name: &[u8]) -> Answer<u64> {
        let number = self.names.remove(name).ok_or(Errno::NOENT)?;
        self.order.remove(&number);
        Ok(number)
    }
}

/// Inodes by number, in several tables.
struct Nothing {
    inodes: [RwLock<HashMap<u64, Arc<Mutex<Inode>>>>; SHARDS],
    next: AtomicU64,
}

type Answer<T> = Result<T, Errno>;

impl Nothing {
    fn new() -> Self {
        let this = Self { inodes: Default::default(), next: AtomicU64::new(ROOT) };
        this.make(DIRECTORY | 0o755, 0, 0);
        this
    }

    fn shard(&self, number: u64) -> &RwLock<HashMap<u64, Arc<Mutex<Inode>>>> {
        &self.inodes[usize::try_from(number).unwrap_or_default() % SHARDS]
    }

    fn get(&self, number: u64) -> Answer<Arc<Mutex<Inode>>> {
        self.shard(number).read().get(&number).cloned().ok_or(Errno::STALE)
    }

    fn make(&self, mode: u32, uid: u32, gid: u32) -> FuseAttributes {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let now = now();
        let attributes = FuseAttributes {
            inode: number,
            mode,
            links: 1,
            uid,
            gid,
            block_size: 4096,
            accessed: now,
            modified: now,
            changed: now,
            ..FuseAttributes::default()
        };
        let inode = Inode { attributes, bytes: Vec::new(), names: HashMap::new(), order: BTreeMap::new() };
        self.shard(number).write().insert(number, Arc::new(Mutex::new(inode)));
        attributes
    }

    fn attributes(&self, number: u64) -> Answer<FuseAttributes> {
        Ok(self.get(number)?.lock().attributes)
    }

    fn lookup(&self, parent: u64, name: &[u8]) -> Answer<FuseEntry> {
        let found = self.get(parent)?.lock().names.get(name).copied();
        found.map_or_else(|| Ok(FuseEntry::absent(FOREVER)), |number| self.attributes(number).map(entry))
    }

    fn create(&self, request: &FuseRequest<'_>, name: &[u8], mode: u32) -> Answer<FuseEntry> {
        let parent = self.get(request.inode)?;
        let mut parent = parent.lock();
        if parent.names.contains_key(name) {
            return Err(Errno::EXIST);
        }
        let made = self.make(mode, request.uid, request.gid);
        parent.insert(name, made.inode);
        Ok(entry(made))
    }

    fn remove(&self, parent: u64, name: &[u8]) -> Answer<()> {
        let number = self.get(parent)?.lock().remove(name)?;
        self.shard(number).write().remove(&number);
        Ok(())
    }

    fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8])) -> Answer<()> {
        let number = self.get(from.0)?.lock().remove(from.1)?;
        let replaced = self.get(to.0)?.lock().insert(to.1, number);
        if let Some(gone) = replaced {
            self.shard(gone).write().remove(&gone);
        }
        Ok(())
    }

    fn set(&self, number: u64, set: &Setattr) -> Answer<FuseAttributes> {
        let inode = self.get(number)?;
        let mut inode = inode.lock();
        if let Some(size) = set.size {
            let size = usize::try_from(size).ok().filter(|size| *size <= FILE_BYTES_MAX).ok_or(Errno::FBIG)?;
            inode.bytes.resize(size, 0);
            inode.attributes.size = size as u64;
        }
        let found = &mut inode.attributes;
        found.mode = set.mode.map_or(found.mode, |mode| found.mode & 0o170_000 | mode & 0o7777);
        found.uid = set.uid.unwrap_or(found.uid);
        found.gid = set.gid.unwrap_or(found.gid);
        found.accessed = set.accessed.map_or(found.accessed, moment);
        found.modified = set.modified.map_or(found.modified, moment);
        Ok(*found)
    }

    fn write(&self, number: u64, offset: u64, data: &[u8]) -> Answer<u32> {
        let inode = self.get(number)?;
        let mut inode = inode.lock();
        let start = usize::try_from(offset).map_err(|_| Errno::FBIG)?;
        let end = start.checked_add(data.len()).filter(|end| *end <= FILE_BYTES_MAX).ok_or(Errno::FBIG)?;
        if inode.bytes.len() < end {
            inode.bytes.resize(end, 0);
        }
        inode.bytes[start..end].copy_from_slice(data);
        inode.attributes.size = inode.bytes.len() as u64;
        u32::try_from(data.len()).map_err(|_| Errno::FBIG)
    }

    fn list(&self, number: u64, offset: u64, size: u32, plus: bool) -> Answer<Listing> {
        let mut listing = Listing::new(size);
        let directory = self.get(number)?;
        let directory = directory.lock();
        for (inode, name) in directory.order.range(offset + 1..) {
            let found = self.attributes(*inode)?;
            let name = FuseDirent { inode: *inode, next: *inode, mode: found.mode, name };
            if !(if plus { listing.push_with_entry(name, &entry(found)) } else { listing.push(name) }) {
                break;
            }
        }
        Ok(listing)
    }

    /// Sends the reply of a successful operation; the caller sends errors.
    fn answer(&self, request: &FuseRequest<'_>, reply: &mut Option<FuseReply>) -> Answer<()> {
        let inode = request.inode;
        let mut reply = || reply.take().expect("answered once");
        match &request.operation {
            FuseOp::Lookup { name } => ignore_sent(reply().entry(&self.lookup(inode, name)?)),
            FuseOp::Getattr { .. } => reply().attributes(&self.attributes(inode)?, FOREVER),
            FuseOp::Setattr(set) => {
                let found = self.set(inode, set)?;
                reply().attributes(&found, FOREVER);
            }
            FuseOp::Mkdir { name, mode, .. } => {
                let made = self.create(request, name, mode | DIRECTORY)?;
                ignore_sent(reply().entry(&made));
            }
            FuseOp::Mknod { name, mode, .. } => {
                let made = self.create(request, name, *mode)?;
                ignore_sent(reply().entry(&made));
            }
            FuseOp::Create { name, mode, umask, .. } => {
                let made = self.create(request, name, mode & 0o7777 & !umask | FILE)?;
                ignore_sent(reply().created(&made, opened()));
            }
            FuseOp::Open { .. } => ignore_sent(reply().opened(opened())),
            FuseOp::Unlink { name } | FuseOp::Rmdir { name } => {
                self.remove(inode, name)?;
                reply().done();
            }
            FuseOp::Rename { name, new_parent, new_name, .. } => {
                self.rename((inode, name), (*new_parent, new_name))?;
                reply().done();
            }
            FuseOp::Read { offset, size, .. } => {
                let file = self.get(inode)?;
                let file = file.lock();
                let start = usize::try_from(*offset).map_or(file.bytes.len(), |start| start.min(file.bytes.len()));
                let end = (start + *size as usize).min(file.bytes.len());
                reply().data(&file.bytes[start..end]);
            }
            FuseOp::Write { offset, data, .. } => {
                let written = self.write(inode, *offset, data)?;
                reply().written(written);
            }
            FuseOp::Readdir { offset, size, plus, .. } => {
                let listing = self.list(inode, *offset, *size, *plus)?;
                ignore_sent(reply().listing(&listing));
            }
            FuseOp::Statfs => reply().statfs(&Statfs { name_bytes_max: 255, block_size: 4096, ..Statfs::default() }),
            FuseOp::Release { .. } | FuseOp::Fsync { .. } | FuseOp::Releasedir { .. } => reply().done(),
            _ => return Err(Errno::NOSYS),
        }
        Ok(())
    }
}

impl Handler for Nothing {
    fn handle(&self, request: FuseRequest<'_>, reply: FuseReply) {
        let mut reply = Some(reply);
        let answered = self.answer(&request, &mut reply);
        if let (Err(error), Some(reply)) = (answered, reply) {
            reply.error(error.raw_os_error());
        }
    }
}

/// Ignores the result of a reply, because lookups are not counted here.
fn ignore_sent(_: bool) {}

fn opened() -> FuseOpen {
    FuseOpen { handle: 1, keep_cache: true, no_flush: true, ..FuseOpen::default() }
}

fn entry(attributes: FuseAttributes) -> FuseEntry {
    FuseEntry { inode: attributes.inode, generation: 0, attributes, entry_valid: FOREVER, attributes_valid: FOREVER }
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanoseconds: since.subsec_nanos() }
}

fn moment(set: SetTime) -> Time {
    if let SetTime::At(time) = set { time } else { now() }
}

fn config() -> Config {
    let set = |name: &str| std::env::var(name).ok();
    let threads = set("KERNEL_THREADS").and_then(|text| text.parse().ok()).unwrap_or(Config::default().threads);
    Config { threads, posix_acl: false, locks: false, ..Config::default() }
}

fn attach(point: &Path) -> io::Result<std::fs::File> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
    let options =
        format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other,default_permissions", device.as_raw_fd());
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("nothing", point, "fuse.nothing", flags, Some(CString::new(options)?.as_c_str()))?;
    Ok(device)
}

fn main() -> io::Result<()> {
    let Some(point) = std::env::args_os().nth(1).map(PathBuf::from) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "usage: nothing DIR"));
    };
    let mut signals = signal_hook::iterator::Signals::new([signal_hook::consts::SIGTERM, signal_hook::consts::SIGINT])?;
    let device = attach(&point)?;
    let session = FuseSession::start(device.into(), &config(), |_, _, _| Arc::new(Nothing::new()));
    let session = session.inspect_err(|_| unmount(&point, UnmountFlags::DETACH).unwrap_or_default())?;
    std::thread::spawn(move || {
        if signals.forever().next().is_some() {
            unmount(&point, UnmountFlags::DETACH).ok();
        }
    });
    session.join();
    Ok(())
}
