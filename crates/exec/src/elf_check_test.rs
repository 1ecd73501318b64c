//! Checks of programs of every kind, built byte by byte.

use super::{ElfInfo, ElfTarget, PreloadObstacle, preload_obstacle};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Segment types (System V ABI, "Program Header").
const INTERPRETER: u32 = 3;
const NOTE: u32 = 4;

/// A directory with programs.
struct Programs(TempDir);

impl Programs {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).expect("written");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("executable");
        path
    }

    /// A program whose loader is a file named `loader` in the directory.
    fn with_loader(&self, name: &str, loader: &str) -> PathBuf {
        let loader = self.write(loader, b"");
        self.write(name, &program(&[(INTERPRETER, &text(&loader))]))
    }

    fn obstacle(&self, program: &Path) -> Option<PreloadObstacle> {
        preload_obstacle(program, &[self.0.path().into()]).expect("readable")
    }
}

/// A program of this machine with these segments.
fn program(segments: &[(u32, &[u8])]) -> Vec<u8> {
    let ElfTarget { class, order, processor } = ElfTarget::current().expect("this test is a program");
    let count = u16::try_from(segments.len()).expect("few");
    let mut bytes = vec![0x7f, b'E', b'L', b'F', class, order, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    bytes.extend(3_u16.to_le_bytes());
    bytes.extend(processor);
    bytes.extend(1_u32.to_le_bytes());
    // Entry point; program headers, directly behind this header; no sections.
    for at in [0_u64, 64, 0] {
        bytes.extend(at.to_le_bytes());
    }
    bytes.extend(0_u32.to_le_bytes());
    for field in [64, 56, count, 64, 0, 0] {
        bytes.extend(u16::to_le_bytes(field));
    }
    let mut at = 64 + 56 * u64::from(count);
    for (kind, content) in segments {
        let length = content.len() as u64;
        bytes.extend(kind.to_le_bytes());
        bytes.extend(4_u32.to_le_bytes());
        for field in [at, at, at, length, length, 4] {
            bytes.extend(field.to_le_bytes());
        }
        at += length;
    }
    for (_, content) in segments {
        bytes.extend_from_slice(content);
    }
    bytes
}

/// A path as in a segment, terminated by NUL.
fn text(path: &Path) -> Vec<u8> {
    let mut text = path.as_os_str().as_encoded_bytes().to_vec();
    text.push(0);
    text
}

#[test]
fn a_program_of_this_system_is_reached() {
    let programs = Programs::new();
    assert_eq!(programs.obstacle(Path::new("/proc/self/exe")), None);
    let made = programs.with_loader("made", "ld-linux-x86-64.so.2");
    assert_eq!(programs.obstacle(&made), None);
}

#[test]
fn a_program_without_a_loader_is_static() {
    let programs = Programs::new();
    let program = programs.write("static", &program(&[]));
    assert_eq!(programs.obstacle(&program), Some(PreloadObstacle::Static { program }));
}

#[test]
fn a_loader_that_is_not_here_or_of_another_library_is_named() {
    let programs = Programs::new();
    let loader = programs.0.path().join("ld-linux-none.so.1");
    let nowhere = programs.write("nowhere", &program(&[(INTERPRETER, &text(&loader))]));
    assert_eq!(programs.obstacle(&nowhere), Some(PreloadObstacle::NoLoader { program: nowhere, loader }));

    let musl = programs.with_loader("musl", "ld-musl-x86_64.so.1");
    let said = programs.obstacle(&musl).expect("not reached").to_string();
    assert!(said.contains("another C library than glibc") && said.contains("ld-musl-x86_64.so.1"), "{said}");
}

#[test]
fn another_kind_of_processor_is_said() {
    let programs = Programs::new();
    let mut bytes = program(&[]);
    bytes[18] ^= 0x55;
    let other = programs.write("other", &bytes);
    assert_eq!(programs.obstacle(&other), Some(PreloadObstacle::OtherMachine { program: other }));
}

#[test]
fn a_go_program_with_a_loader_is_known_by_its_note() {
    let programs = Programs::new();
    let loader = programs.write("ld-linux.so.2", b"");
    let mut note = Vec::new();
    for field in [4_u32, 4, 4] {
        note.extend(field.to_le_bytes());
    }
    note.extend(b"Go\0\0id\0\0");
    let go = programs.write("go", &program(&[(INTERPRETER, &text(&loader)), (NOTE, &note)]));
    assert_eq!(programs.obstacle(&go), Some(PreloadObstacle::Go { program: go }));
}

#[test]
fn set_id_bits_count_where_they_change_who_a_process_is() {
    let programs = Programs::new();
    let program = programs.with_loader("su", "ld-linux.so.2");
    fs::set_permissions(&program, Permissions::from_mode(0o4755)).expect("its owner may");
    assert_eq!(programs.obstacle(&program), None, "its owner is who runs it");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&program, Some(65534), None).expect("root may");
        fs::set_permissions(&program, Permissions::from_mode(0o4755)).expect("root may");
        assert_eq!(programs.obstacle(&program), Some(PreloadObstacle::OwnRights { program }));
    }
}

#[test]
fn a_script_is_judged_by_its_interpreter_also_by_the_one_that_env_finds() {
    let programs = Programs::new();
    let fixed = programs.write("fixed", &program(&[]));
    let direct = programs.write("direct", format!("#! {} -x\n", fixed.display()).as_bytes());
    let by_direct = programs.write("by-direct", format!("#!{}\n", direct.display()).as_bytes());
    let by_env = programs.write("by-env", b"#!/usr/bin/env fixed\n");
    for script in [direct, by_direct, by_env] {
        assert_eq!(
            programs.obstacle(&script),
            Some(PreloadObstacle::Static { program: fixed.clone() }),
            "{}",
            script.display()
        );
    }
    let plain = programs.write("plain", b"echo a shell runs this\n");
    assert_eq!(programs.obstacle(&plain), None);
}

#[test]
fn a_script_whose_interpreter_is_not_there_names_it() {
    let programs = Programs::new();
    let script = programs.write("script", b"#!/nowhere/at/all -x\n");
    let missing = PreloadObstacle::NoInterpreter { program: script.clone(), interpreter: "/nowhere/at/all".into() };
    assert_eq!(programs.obstacle(&script), Some(missing));
}

#[test]
fn interpreters_that_name_each_other_end() {
    let programs = Programs::new();
    let path = programs.0.path().join("loop");
    programs.write("loop", format!("#!{}\n", path.display()).as_bytes());
    assert_eq!(programs.obstacle(&path), None);
}

#[test]
fn a_program_that_is_not_there_is_an_error() {
    let missing = preload_obstacle(Path::new("/nowhere/at/all"), &[]).expect_err("there is none");
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
}

#[test]
fn damaged_programs_are_looked_at_without_a_panic() {
    let note = [4_u32.to_le_bytes(); 5].concat();
    let whole = program(&[(INTERPRETER, b"/lib/ld-linux.so.2\0"), (NOTE, &note)]);
    for end in 0..whole.len() {
        let _ = ElfInfo::parse(&whole[..end]);
    }
    // Set every byte to each of a few values that may pass the checks.
    for at in 0..whole.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff] {
            let mut damaged = whole.clone();
            damaged[at] = value;
            let _ = ElfInfo::parse(damaged.as_slice());
        }
    }
}
