//! The two system calls of a mount's life: attach the kernel to a mount point, and detach it again.
//!
//! Root calls mount(2) and umount(2). Other users need `fusermount3`, which passes the opened
//! device back over a socket:
//!
//! ```text
//!   this process                         fusermount3 (set-uid root)
//!     | socket pair, one end as its stdin, _FUSE_COMMFD=0
//!     |------------------------------------->|  open /dev/fuse, mount(2)
//!     |<-------- SCM_RIGHTS: the fd ---------|  exit 0
//! ```
//!
//! The end of a session does not unmount anything: another file system may have been mounted at its
//! mount point since.

use std::{
    ffi::CString,
    fs::{self, OpenOptions},
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::{
    mount::{MountFlags, UnmountFlags, mount, unmount},
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
};

use crate::{
    availability::{MountMethod, find_helper},
    error::MountError,
    mountinfo::{self, KIND},
};

/// Time limit for the helper's answer.
const HELPER_WAIT: Duration = Duration::from_secs(10);
/// Pauses before an unmount is retried, milliseconds; then the mount counts as busy. A file that
/// was closed a moment ago still counts as open until the kernel has cleaned up, which takes longer
/// on a busy machine.
const BUSY_PAUSES: [u64; 6] = [10, 20, 40, 80, 160, 320];

/// Parameters of a mount.
pub(crate) struct MountRequest<'a> {
    /// Mount point: an empty directory, absolute and without links.
    pub(crate) point: &'a Path,
    /// Source of the mount, as mount tables show it.
    pub(crate) source: &'a str,
    /// Allows other users to enter (`allow_other`).
    pub(crate) shared: bool,
}

/// Result of an unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnmountOutcome {
    /// The mount was not in use, and is gone.
    Clean,
    /// A file or a working directory in the mount is still in use. The mount point is free; open
    /// files work until they are closed or this process ends.
    Detached,
    /// The mount point had no mount any more.
    NotMounted,
}

/// Mounts, and returns the opened device, which already holds the kernel's first message.
pub(crate) fn attach(method: &MountMethod, request: &MountRequest<'_>) -> Result<OwnedFd, MountError> {
    let refused = |reason: String| MountError::Refused { point: request.point.to_owned(), reason };
    match method {
        MountMethod::Helper(helper) => attach_by_helper(helper, request).map_err(refused),
        MountMethod::Direct => match attach_directly(request) {
            // A container may grant the capability and yet forbid mount(2). The helper may still be
            // allowed.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => match find_helper() {
                Ok(helper) => attach_by_helper(&helper, request).map_err(refused),
                Err(_) => Err(refused(error.to_string())),
            },
            other => other.map_err(|error| refused(error.to_string())),
        },
    }
}

fn attach_directly(request: &MountRequest<'_>) -> io::Result<OwnedFd> {
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse")?;
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions{}",
        device.as_raw_fd(),
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
        if request.shared { ",allow_other" } else { "" },
    );
    let data = CString::new(data).expect("numbers and words hold no zero byte");
    mount(request.source, request.point, KIND, MountFlags::NOSUID | MountFlags::NODEV, data.as_c_str())?;
    Ok(device.into())
}

fn attach_by_helper(helper: &Path, request: &MountRequest<'_>) -> Result<OwnedFd, String> {
    let (local, remote) = UnixStream::pair().map_err(|error| error.to_string())?;
    local.set_read_timeout(Some(HELPER_WAIT)).map_err(|error| error.to_string())?;
    let child = Command::new(helper)
        .arg("-o")
        .arg(helper_options(request))
        .arg("--")
        .arg(request.point)
        .env("_FUSE_COMMFD", "0")
        .env("LC_ALL", "C")
        .stdin(Stdio::from(OwnedFd::from(remote)))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{} cannot be started: {error}", helper.display()))?;
    // Dropping the command closed this process's copy of the helper's end, so if the helper fails
    // the read meets the end of the stream.
    finish_helper(receive_device(&local), child, helper)
}

fn helper_options(request: &MountRequest<'_>) -> String {
    let shared = if request.shared { ",allow_other" } else { "" };
    // A comma or backslash would end the option. Pool names contain neither; the replacement keeps
    // any other source from adding options.
    let source = request.source.replace([',', '\\'], "_");
    format!("fsname={source},subtype=tidemill,default_permissions,nosuid,nodev{shared}")
}

fn finish_helper(device: io::Result<Option<OwnedFd>>, mut child: Child, helper: &Path) -> Result<OwnedFd, String> {
    if matches!(&device, Err(error) if error.kind() == io::ErrorKind::WouldBlock) {
        child.kill().ok();
    }
    let output = child.wait_with_output().map_err(|error| error.to_string())?;
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match device {
        Ok(Some(device)) if output.status.success() => Ok(device),
        Err(error) => Err(format!("{}: {error} {stderr}", helper.display())),
        Ok(_) if stderr.is_empty() => Err(format!("{} ended with {}", helper.display(), output.status)),
        Ok(_) => Err(stderr),
    }
}

/// The descriptor that the helper sends; `None` if the helper closes the socket without one.
fn receive_device(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0_u8; 1];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    Ok(control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    }))
}

/// Unmounts `point`; lazily if it stays in use.
pub(crate) fn detach(point: &Path) -> io::Result<UnmountOutcome> {
    for pause in BUSY_PAUSES {
        match detach_once(point, false) {
            Ok(()) => return Ok(UnmountOutcome::Clean),
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => thread::sleep(Duration::from_millis(pause)),
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(UnmountOutcome::NotMounted),
            Err(error) => return Err(error),
        }
    }
    detach_once(point, true).map(|()| UnmountOutcome::Detached)
}

/// Aborts the kernel's connection to the process that serves a mount: all pending and later
/// requests fail. Returns true if the mount is gone too.
pub(crate) fn abort(entry: &mountinfo::MountEntry) -> io::Result<bool> {
    let minor = entry.device.rsplit(':').next().unwrap_or_default();
    // The control file belongs to the user who mounted. Where it does not exist, root can force the
    // unmount instead.
    if fs::write(format!("/sys/fs/fuse/connections/{minor}/abort"), "1").is_ok() {
        return Ok(false);
    }
    match unmount(&entry.point, UnmountFlags::NOFOLLOW | UnmountFlags::FORCE) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::BUSY) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn detach_once(point: &Path, lazy: bool) -> io::Result<()> {
    let flags = if lazy { UnmountFlags::NOFOLLOW | UnmountFlags::DETACH } else { UnmountFlags::NOFOLLOW };
    match unmount(point, flags) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::PERM) => detach_by_helper(point, lazy),
        Err(error) => Err(error.into()),
    }
}

fn detach_by_helper(point: &Path, lazy: bool) -> io::Result<()> {
    let helper = find_helper().map_err(|reason| io::Error::new(io::ErrorKind::PermissionDenied, reason))?;
    let options = if lazy { "-uz" } else { "-u" };
    let output =
        Command::new(helper).args([options, "--"]).arg(point).env("LC_ALL", "C").stdin(Stdio::null()).output()?;
    let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    match output.status.success() {
        true => Ok(()),
        false if stderr.contains("busy") => Err(io::Error::new(io::ErrorKind::ResourceBusy, stderr)),
        false => Err(io::Error::other(stderr)),
    }
}
