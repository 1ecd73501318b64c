//! Owner file of a registered pool: its process, and the resources that belong to it. Format:
//! docs/formats/owner.md.

use std::{
    ffi::OsString,
    fmt::Write,
    fs, io,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
};

/// Name of the file in the pool's directory.
pub(crate) const FILE_NAME: &str = "owner";
/// First line: the format and its version.
const MARKER: &str = "tidemill-owner 1";
/// Size limit, bytes; a longer file is not an owner file.
pub(crate) const BYTES_MAX: u64 = 1 << 20;

/// Identity of a process. Its start time tells it from a later process with the same process id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProcessIdentity {
    pub(crate) pid: u32,
    /// Start time, clock ticks after the boot.
    pub(crate) start_time: u64,
}

/// State of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessState {
    /// The process exists and runs.
    Alive,
    /// The process was killed and has not ended yet. Its threads end, except those that hang in the
    /// kernel.
    Dying,
    /// The process does not exist, as far as this process can see.
    Ended,
}

impl ProcessIdentity {
    pub(crate) fn state(self) -> ProcessState {
        let directory = format!("/proc/{}", self.pid);
        if start_time(&format!("{directory}/stat")).ok() != Some(self.start_time) {
            return ProcessState::Ended;
        }
        let status = fs::read_to_string(format!("{directory}/status")).unwrap_or_default();
        if is_dying(&status) { ProcessState::Dying } else { ProcessState::Alive }
    }
}

/// True if the status file belongs to a zombie, or to a process with a pending SIGKILL: a thread
/// that hangs in the kernel does not take the signal.
fn is_dying(status: &str) -> bool {
    const KILL: u64 = 1 << 8;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map_or("", str::trim);
    let pending = |name: &str| u64::from_str_radix(field(name), 16).unwrap_or(0) & KILL != 0;
    field("State:").starts_with(['Z', 'X']) || pending("SigPnd:") || pending("ShdPnd:")
}

/// A resource that belongs to a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum OwnedResource {
    /// Mount point to unmount.
    Mount(PathBuf),
    /// File or directory to remove, with everything in it.
    Remove(PathBuf),
    /// Control group to remove with those below it, after its processes were killed.
    Group(PathBuf),
}

impl OwnedResource {
    /// The line as written, including its newline.
    pub(crate) fn encode(&self) -> String {
        match self {
            Self::Mount(path) => format!("mount {}\n", escape(path)),
            Self::Remove(path) => format!("remove {}\n", escape(path)),
            Self::Group(path) => format!("group {}\n", escape(path)),
        }
    }

    /// Parses a line. Skips unknown words, which later versions may define, and relative paths,
    /// which Tidemill never writes.
    fn decode(line: &str) -> Option<Self> {
        let (word, rest) = line.split_once(' ')?;
        let path = unescape(rest)?;
        match word {
            _ if !path.is_absolute() => None,
            "mount" => Some(Self::Mount(path)),
            "remove" => Some(Self::Remove(path)),
            "group" => Some(Self::Group(path)),
            _ => None,
        }
    }
}

/// Content of an owner file. If a crash cut the file short, its complete lines count.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct OwnerFile {
    pub(crate) process: Option<ProcessIdentity>,
    pub(crate) lines: Vec<OwnedResource>,
}

impl OwnerFile {
    pub(crate) fn decode(text: &str) -> Self {
        let mut lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
        if lines.next() != Some(MARKER) {
            return Self::default();
        }
        let process = lines.next().and_then(decode_process);
        Self { process, lines: lines.filter_map(OwnedResource::decode).collect() }
    }
}

fn decode_process(line: &str) -> Option<ProcessIdentity> {
    let mut words = line.strip_prefix("process ")?.split(' ');
    Some(ProcessIdentity { pid: words.next()?.parse().ok()?, start_time: words.next()?.parse().ok()? })
}

/// The first two lines of the file, for this process.
pub(crate) fn header() -> io::Result<String> {
    Ok(format!("{MARKER}\nprocess {} {}\n", std::process::id(), start_time("/proc/self/stat")?))
}

/// Start time of a process: field 22 of a stat file. The name in field 2 may contain any character,
/// including `)`.
fn start_time(stat: &str) -> io::Result<u64> {
    let text = fs::read_to_string(stat)?;
    let field = text.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(19));
    field.and_then(|field| field.parse().ok()).ok_or_else(|| io::Error::other(format!("{stat} is not as expected")))
}

/// Encodes `%` and everything but printable ASCII as `%` and two hex digits.
fn escape(path: &Path) -> String {
    let mut out = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'%' | 0..=0x20 | 0x7f.. => write!(out, "%{byte:02x}").expect("a string takes all"),
            plain => out.push(char::from(*plain)),
        }
    }
    out
}

fn unescape(text: &str) -> Option<PathBuf> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, tail)) = rest.split_first() {
        if *byte == b'%' {
            let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
            out.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &tail[2..];
        } else {
            out.push(*byte);
            rest = tail;
        }
    }
    Some(PathBuf::from(OsString::from_vec(out)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_path_survives_being_written_and_read() {
        for path in [&b"/plain"[..], b"/with space\n%41\xff/x", b"/"] {
            let line = OwnedResource::Mount(PathBuf::from(OsString::from_vec(path.to_vec())));
            let text = line.encode();
            assert_eq!(text.matches('\n').count(), 1, "{text}");
            assert_eq!(OwnedResource::decode(text.trim_end()), Some(line));
        }
    }

    #[test]
    fn an_owner_is_read_back_up_to_its_last_whole_line() {
        let text = header().unwrap() + "mount /a\nremove /b%20c\ngroup /d\nfuture thing\nmount relative\nmount /half";
        let owner = OwnerFile::decode(&text);
        assert_eq!(
            owner.lines,
            [
                OwnedResource::Mount("/a".into()),
                OwnedResource::Remove("/b c".into()),
                OwnedResource::Group("/d".into())
            ]
        );
        assert_eq!(owner.process.unwrap().state(), ProcessState::Alive);
    }

    #[test]
    fn a_file_of_another_version_says_nothing() {
        assert_eq!(OwnerFile::decode("tidemill-owner 2\nprocess 1 1\nremove /etc\n"), OwnerFile::default());
        assert_eq!(OwnerFile::decode(""), OwnerFile::default());
    }

    #[test]
    fn a_process_with_a_reused_number_is_another() {
        let own = ProcessIdentity { pid: std::process::id(), start_time: start_time("/proc/self/stat").unwrap() };
        assert_eq!(own.state(), ProcessState::Alive);
        assert_eq!(ProcessIdentity { start_time: own.start_time + 1, ..own }.state(), ProcessState::Ended);
    }

    #[test]
    fn zombies_and_who_has_not_yet_taken_his_sigkill_are_dying() {
        let status = |state: &str, own: &str, shared: &str| {
            format!("Name:\tx\nState:\t{state}\nSigPnd:\t{own}\nShdPnd:\t{shared}\n")
        };
        let none = "0000000000000000";
        assert!(!is_dying(&status("D (disk sleep)", "0000000000000002", none)));
        assert!(is_dying(&status("Z (zombie)", none, none)));
        assert!(is_dying(&status("D (disk sleep)", "0000000000000100", none)));
        assert!(is_dying(&status("R (running)", none, "0000000000000100")));
    }
}
