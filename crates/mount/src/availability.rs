//! Detects whether and how this process can mount through FUSE. Cheap enough to call before every
//! run.

use std::{
    env, fs,
    fs::OpenOptions,
    io::ErrorKind,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use crate::error::Unavailable;

/// Bit of `CAP_SYS_ADMIN` in the capability masks of `/proc/self/status`.
const CAP_SYS_ADMIN_BIT: u32 = 21;

/// Mount method of this process.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum MountMethod {
    /// This process may call mount(2) itself.
    Direct,
    /// The set-uid helper at this path, for users other than root.
    Helper(PathBuf),
}

/// Mount method of this process, or the reason why there is none. Success is no guarantee: a
/// container may still refuse the mount itself.
pub fn availability() -> Result<MountMethod, Unavailable> {
    check_device()?;
    if may_mount() { Ok(MountMethod::Direct) } else { find_helper().map(MountMethod::Helper) }
}

fn check_device() -> Result<(), Unavailable> {
    match OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        Ok(_) => Ok(()),
        // ENXIO and ENODEV: the device file exists, but no driver.
        Err(error) if error.kind() == ErrorKind::NotFound => Err(Unavailable::NoDevice),
        Err(error) if matches!(error.raw_os_error(), Some(6 | 19)) => Err(Unavailable::NoDevice),
        Err(error) => Err(Unavailable::DeviceRefused(error.to_string())),
    }
}

/// True if the effective capabilities of this process include `CAP_SYS_ADMIN`.
fn may_mount() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & (1 << CAP_SYS_ADMIN_BIT) != 0)
}

/// Finds the helper in `PATH` or in the usual system directories, which an ordinary user's `PATH`
/// may lack.
pub(crate) fn find_helper() -> Result<PathBuf, Unavailable> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories = env::split_paths(&path).chain(["/usr/bin", "/bin", "/usr/sbin", "/sbin"].map(PathBuf::from));
    let found: Vec<PathBuf> =
        directories.map(|directory| directory.join("fusermount3")).filter(|file| file.is_file()).collect();
    let usable = found.iter().find(|file| is_set_uid_root(file));
    match (usable, found.first()) {
        (Some(file), _) => Ok(file.clone()),
        (None, Some(found)) => Err(Unavailable::HelperNotSetUid(found.clone())),
        (None, None) => Err(Unavailable::NoHelper),
    }
}

fn is_set_uid_root(file: &Path) -> bool {
    fs::metadata(file).is_ok_and(|meta| meta.uid() == 0 && meta.mode() & 0o4000 != 0)
}
