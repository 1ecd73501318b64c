//! The kernel's list of mounts, `/proc/self/mountinfo`, read without touching the file systems in
//! it.
//!
//! A stat on a mount whose server has died fails or hangs. Reading this list never does, so all
//! checks of mounts use it.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

/// Type of Tidemill's mounts, as `mount` shows it.
pub(crate) const KIND: &str = "fuse.tidemill";

/// Source of a pool's mount, as `df` and `mount` show it. With a colon in it `df` would take the
/// mount for a remote one.
pub(crate) fn mount_source(pool: &str) -> String {
    format!("tidemill-{pool}")
}

/// A mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MountEntry {
    /// Device of the mounted file system, `major:minor`; unique among the mounts of one kernel.
    pub(crate) device: String,
    /// Mount point.
    pub(crate) point: PathBuf,
    /// Type: `ext4`, `fuse.tidemill`.
    pub(crate) kind: String,
    /// Source; for Tidemill's mounts see [`mount_source`].
    pub(crate) source: OsString,
}

/// The mounts in this process's mount namespace, later ones on top of earlier ones.
pub(crate) fn read() -> io::Result<Vec<MountEntry>> {
    Ok(parse(&fs::read("/proc/self/mountinfo")?))
}

/// The topmost mount exactly at `point`, which must be absolute and without links.
pub(crate) fn topmost_at(point: &Path) -> io::Result<Option<MountEntry>> {
    Ok(read()?.into_iter().rev().find(|entry| entry.point == point))
}

/// True if anything is mounted at `dir` or below it.
pub(crate) fn any_below(dir: &Path) -> io::Result<bool> {
    Ok(read()?.iter().any(|entry| entry.point.starts_with(dir)))
}

/// Skips lines that do not parse: a future kernel may add kinds of lines, but never changes these.
fn parse(text: &[u8]) -> Vec<MountEntry> {
    text.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

/// Parses `36 35 98:0 /root /point opts [optional ...] - type source options`.
fn parse_line(line: &[u8]) -> Option<MountEntry> {
    let mut words = line.split(|byte| *byte == b' ');
    let device = String::from_utf8(words.nth(2)?.to_vec()).ok()?;
    let point = unescape(words.nth(1)?);
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    let kind = String::from_utf8_lossy(words.next()?).into_owned();
    let source = unescape(words.next()?);
    Some(MountEntry { device, point: PathBuf::from(point), kind, source })
}

/// Decodes octal escapes (`\040` for a space).
fn unescape(word: &[u8]) -> OsString {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((&byte, tail)) = rest.split_first() {
        let escaped = octal(byte, tail);
        out.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { &tail[3..] } else { tail };
    }
    OsString::from_vec(out)
}

fn octal(byte: u8, tail: &[u8]) -> Option<u8> {
    let digits = tail.get(..3).filter(|_| byte == b'\\')?;
    u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_with_spaces_and_optional_fields_is_read() {
        let text =
            b"36 35 0:51 / /a\\040b/m rw,nosuid shared:1 master:2 - fuse.tidemill pool\\134x rw,user_id=0\nnonsense\n";
        let entries = parse(text);
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].point, Path::new("/a b/m"));
        assert_eq!(entries[0].kind, KIND);
        assert_eq!(entries[0].source, OsString::from("pool\\x"));
        assert_eq!(entries[0].device, "0:51");
    }

    #[test]
    fn the_root_of_this_machine_is_a_mount() {
        assert!(topmost_at(Path::new("/")).unwrap().is_some());
        assert!(any_below(Path::new("/proc")).unwrap());
    }
}
