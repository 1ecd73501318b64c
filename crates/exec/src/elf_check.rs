//! Checks if the dynamic loader will load our library (`LD_PRELOAD`) into a program.
//!
//! The loader does so for dynamically linked programs of our C library, processor type and
//! privileges. For all others it does nothing, silently. So a caller that relies on the library
//! checks here first, and can report the obstacle or choose another way. Programs are untrusted
//! input: they are read one header at a time. Files that the system would refuse to start are not
//! judged.

use crate::which::which;
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{Endianness, ReadCache, ReadRef, elf};
use rustix::process::{getgid, getuid};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use thiserror::Error;

/// Reasons why the loader does not load a library into a program. For a script, its interpreter is
/// named.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PreloadObstacle {
    /// The program is statically linked and has no loader.
    #[error("`{}` is statically linked", .program.display())]
    Static {
        /// The program.
        program: PathBuf,
    },
    /// The loader does not exist, so the program does not start either.
    #[error("`{}` needs the loader {}, which does not exist", .program.display(), .loader.display())]
    NoLoader {
        /// The program.
        program: PathBuf,
        /// The loader named in the program.
        loader: PathBuf,
    },
    /// The interpreter named in the first line does not exist, so the script does not start either.
    #[error("`{}` needs the interpreter {}, which does not exist", .program.display(), .interpreter.display())]
    NoInterpreter {
        /// The script.
        program: PathBuf,
        /// The interpreter.
        interpreter: PathBuf,
    },
    /// The loader is not that of the GNU C library.
    #[error("`{}` uses another C library than glibc (its loader is {})", .program.display(), .loader.display())]
    OtherLibrary {
        /// The program.
        program: PathBuf,
        /// Its loader.
        loader: PathBuf,
    },
    /// The program is for another processor, word length or byte order.
    #[error("`{}` is for another kind of processor than the library", .program.display())]
    OtherMachine {
        /// The program.
        program: PathBuf,
    },
    /// The program has set-id bits for another user or group, or capabilities: loaders then ignore
    /// the environment.
    #[error("`{}` has privileges of its own (set-uid or capabilities), so the system ignores the library", .program.display())]
    OwnRights {
        /// The program.
        program: PathBuf,
    },
    /// The program is a Go program: the library is loaded but not called.
    #[error("`{}` is a Go program, which calls the system past the C library", .program.display())]
    Go {
        /// The program.
        program: PathBuf,
    },
}

/// Bytes of a program that the kernel reads to find its interpreter (`BINPRM_BUF_SIZE`).
const HEAD_BYTES: usize = 256;
/// Depth of nested interpreters that the kernel follows (`exec_binprm`).
const INTERPRETERS_MAX: usize = 5;

/// Returns why a library would not be loaded into the program at `program`; `None` if it would. A
/// script is judged by its interpreter, and `#!/usr/bin/env NAME` by the program `NAME`, searched
/// in `dirs`.
///
/// # Errors
/// The program cannot be read; it may be executable all the same.
pub fn preload_obstacle(program: &Path, dirs: &[PathBuf]) -> io::Result<Option<PreloadObstacle>> {
    let mut program = program.to_path_buf();
    let mut script = None;
    for _ in 0..=INTERPRETERS_MAX {
        let mut file = match (File::open(&program), script) {
            (Err(error), Some(script)) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Some(PreloadObstacle::NoInterpreter { program: script, interpreter: program }));
            }
            (opened, _) => opened?,
        };
        let head = read_head(&mut file)?;
        match interpreter(&head, dirs) {
            Some(next) => script = Some(std::mem::replace(&mut program, next)),
            None if head.starts_with(&elf::ELFMAG) => return check_elf(program, file, &head),
            None => return Ok(None),
        }
    }
    Ok(None)
}

/// Reads the first bytes, at most [`HEAD_BYTES`].
fn read_head(file: &mut File) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(HEAD_BYTES);
    file.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head)?;
    Ok(head)
}

/// Returns the interpreter of a script's first line; for `env NAME` the program `NAME`, if found.
fn interpreter(head: &[u8], dirs: &[PathBuf]) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| b" \t".contains(byte)).filter(|word| !word.is_empty());
    let named = PathBuf::from(OsStr::from_bytes(words.next()?));
    if named.file_name() != Some(OsStr::new("env")) {
        return Some(named);
    }
    let wanted = words.next().filter(|word| !word.starts_with(b"-") && !word.contains(&b'='));
    let found = wanted.and_then(|name| which(OsStr::from_bytes(name), dirs, Path::new("/")).ok());
    Some(found.unwrap_or(named))
}

/// Returns true if the file is a shared library for programs of this kind.
pub fn is_library(path: &Path) -> bool {
    let head = File::open(path).and_then(|mut file| read_head(&mut file)).unwrap_or_default();
    let kind = head.get(16..18).map(|kind| u16::from_ne_bytes([kind[0], kind[1]]));
    head.starts_with(&elf::ELFMAG)
        && ElfTarget::from_header(&head) == ElfTarget::current()
        && kind == Some(elf::ET_DYN.0)
}

/// Judges an ELF program.
fn check_elf(program: PathBuf, file: File, head: &[u8]) -> io::Result<Option<PreloadObstacle>> {
    if ElfTarget::from_header(head) != ElfTarget::current() {
        return Ok(Some(PreloadObstacle::OtherMachine { program }));
    }
    let privileged = changes_privileges(&program, &file)?;
    // A damaged program is refused by the system, so it is not judged.
    let Ok(info) = ElfInfo::parse(&ReadCache::new(file)) else { return Ok(None) };
    let Some(loader) = info.loader else { return Ok(Some(PreloadObstacle::Static { program })) };
    Ok(if !loader.exists() {
        Some(PreloadObstacle::NoLoader { program, loader })
    } else if !is_glibc_loader(&loader) {
        Some(PreloadObstacle::OtherLibrary { program, loader })
    } else if privileged {
        Some(PreloadObstacle::OwnRights { program })
    } else if info.go {
        Some(PreloadObstacle::Go { program })
    } else {
        None
    })
}

/// Word length, byte order and processor, from the first 20 bytes of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ElfTarget {
    class: u8,
    order: u8,
    processor: [u8; 2],
}

impl ElfTarget {
    /// Returns `None` if the program is shorter than its header fields.
    fn from_header(head: &[u8]) -> Option<Self> {
        Some(Self { class: *head.get(4)?, order: *head.get(5)?, processor: head.get(18..20)?.try_into().ok()? })
    }

    fn current() -> Option<Self> {
        static CURRENT: OnceLock<Option<ElfTarget>> = OnceLock::new();
        *CURRENT.get_or_init(|| Self::from_header(&read_head(&mut File::open("/proc/self/exe").ok()?).ok()?))
    }
}

/// Facts from a program's segments.
#[derive(Debug, Default, PartialEq, Eq)]
struct ElfInfo {
    loader: Option<PathBuf>,
    go: bool,
}

impl ElfInfo {
    fn parse<'data>(program: impl ReadRef<'data>) -> Result<Self, object::read::Error> {
        let header = elf::FileHeader64::<Endianness>::parse(program)?;
        let order = header.endian()?;
        let mut info = Self::default();
        for segment in header.program_headers(order, program)? {
            if let Some(loader) = segment.interpreter(order, program)? {
                info.loader = Some(PathBuf::from(OsStr::from_bytes(loader)));
            }
            let Some(mut notes) = segment.notes(order, program)? else { continue };
            while let Some(note) = notes.next()? {
                info.go |= note.name() == b"Go";
            }
        }
        Ok(info)
    }
}

/// Recognises the loader of glibc by name: `ld-linux-x86-64.so.2`, `ld64.so.2`.
fn is_glibc_loader(loader: &Path) -> bool {
    let name = loader.file_name().unwrap_or_default().as_bytes();
    name.starts_with(b"ld-linux") || name.starts_with(b"ld64.so")
}

/// Returns true if executing the program changes privileges (`AT_SECURE`, ld.so(8)).
fn changes_privileges(program: &Path, file: &File) -> io::Result<bool> {
    let found = file.metadata()?;
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    let as_owner = found.mode() & libc::S_ISUID != 0 && found.uid() != uid;
    // Without group execute permission the set-group-ID bit means mandatory locking.
    let of_group = libc::S_ISGID | libc::S_IXGRP;
    let as_group = found.mode() & of_group == of_group && found.gid() != gid;
    let with_capabilities =
        uid != 0 && rustix::fs::getxattr(program, "security.capability", &mut [0_u8; 64][..]).is_ok();
    Ok(as_owner || as_group || with_capabilities)
}

#[cfg(test)]
#[path = "elf_check_test.rs"]
mod elf_check_test;
