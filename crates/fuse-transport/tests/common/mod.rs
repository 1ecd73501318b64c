//! A real mount of a small file system that records its requests, and children that use it.
//!
//! The server's own process never accesses its mount. Every wait has a watchdog that aborts the
//! mount and fails the test.

pub(crate) mod child;
pub(crate) mod server;

use std::{
    ffi::CString,
    fs::{File, OpenOptions},
    os::fd::AsRawFd,
    process::{Child, Command, Stdio},
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use fuse_transport::{Backings, Config, FuseSession, Negotiated, Notifier};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use server::Small;
use tempfile::TempDir;

/// Timeout of the watchdog: longer than any step on a busy machine.
const WATCH: Duration = Duration::from_mins(1);

/// A mount with its server, unmounted on drop.
pub(crate) struct Mounted {
    pub(crate) directory: TempDir,
    pub(crate) server: Arc<Small>,
    pub(crate) negotiated: Negotiated,
    pub(crate) notifier: Notifier,
    pub(crate) backings: Backings,
    session: Option<FuseSession>,
}

impl Mounted {
    /// Mounts the file system. Returns `None`, with a message on standard error, if this process
    /// may not mount.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let directory = tempfile::Builder::new().prefix("fuse-transport-test-").tempdir().unwrap();
        let Some(device) = attach(&directory) else {
            eprintln!("SKIPPED: mount(2) of FUSE needs CAP_SYS_ADMIN and /dev/fuse");
            return None;
        };
        let server = Arc::new(Small::default());
        let (kept, serve) = (Arc::new(std::sync::Mutex::new(None)), Arc::clone(&server));
        let keep = Arc::clone(&kept);
        let session = FuseSession::start(device.into(), config, move |negotiated, notifier, backings| {
            *keep.lock().unwrap() = Some((negotiated.clone(), notifier, backings));
            serve
        });
        let (negotiated, notifier, backings) = kept.lock().unwrap().take().unwrap();
        Some(Self { directory, server, negotiated, notifier, backings, session: Some(session.unwrap()) })
    }

    /// Starts a child that performs `verb` on `name`.
    pub(crate) fn spawn(&self, verb: &str, name: &str) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--ignored"])
            .env(child::VERB, verb)
            .env(child::PATH, self.directory.path().join(name))
            .stdout(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Waits for a child. Returns its error number, 0 on success, -1 if it was killed.
    pub(crate) fn wait(&self, mut child: Child) -> i32 {
        self.watched("a child", move || child.wait().unwrap().code().unwrap_or(-1))
    }

    /// Performs `verb` on `name` in a child. Returns its error number, or 0.
    pub(crate) fn act(&self, verb: &str, name: &str) -> i32 {
        self.wait(self.spawn(verb, name))
    }

    /// Runs `work`. If it hangs, aborts the connection and fails the test.
    pub(crate) fn watched<T: Send + 'static>(&self, what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, receiver) = mpsc::channel();
        let worker = thread::spawn(move || sender.send(work()).ok());
        let result = receiver.recv_timeout(WATCH).unwrap_or_else(|_| {
            self.abort();
            panic!("{what} hangs; it was asked: {:?}", self.server.requests());
        });
        worker.join().unwrap();
        result
    }

    /// Aborts the connection by a forced unmount, which works without the control file system.
    pub(crate) fn abort(&self) {
        unmount(self.directory.path(), UnmountFlags::FORCE | UnmountFlags::DETACH).ok();
    }

    /// Unmounts and waits for the end of the session.
    pub(crate) fn end(&mut self) {
        let Some(session) = self.session.take() else { return };
        unmount(self.directory.path(), UnmountFlags::DETACH).ok();
        let ended = self.watched("the end of the session", move || {
            session.join();
            session.is_closed()
        });
        assert!(ended, "a session that was joined has ended");
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if thread::panicking() {
            return self.abort();
        }
        self.end();
    }
}

fn attach(directory: &TempDir) -> Option<File> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse").ok()?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
    let options = CString::new(options).unwrap();
    mount(
        "fuse-transport-test",
        directory.path(),
        "fuse.fuse-transport-test",
        MountFlags::NODEV,
        Some(options.as_c_str()),
    )
    .ok()?;
    Some(device)
}
