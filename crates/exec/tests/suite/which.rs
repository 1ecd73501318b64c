//! Search for a tool's program by the rules of the tool file.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use exec::{ProgramNotFound, search_dirs, which};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

fn program(dir: &Path, name: &str, mode: u32) -> PathBuf {
    fs::create_dir_all(dir).unwrap();
    let path = dir.join(name);
    fs::write(&path, "#!/bin/sh\n").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

#[test]
fn a_name_is_searched_in_the_tools_directories_then_in_path() {
    let root = tempfile::tempdir().unwrap();
    let here = root.path().join("tools");
    let (own, system) = (here.join("bin"), root.path().join("usr"));
    let first = program(&own, "train", 0o755);
    program(&system, "train", 0o755);
    let second = program(&system, "sort", 0o755);
    let dirs = search_dirs(&["bin".into()], &here, Some(system.as_os_str()));
    assert_eq!(dirs, [own, system]);
    assert_eq!(which(OsStr::new("train"), &dirs, &here), Ok(first));
    assert_eq!(which(OsStr::new("sort"), &dirs, &here), Ok(second));
}

#[test]
fn a_path_starts_at_the_tool_files_directory_and_is_not_searched() {
    let root = tempfile::tempdir().unwrap();
    let beside = program(root.path(), "run.sh", 0o755);
    let other = program(&root.path().join("bin"), "other.sh", 0o755);
    let dirs = [root.path().join("bin")];
    assert_eq!(which(OsStr::new("./run.sh"), &dirs, root.path()).unwrap().canonicalize().unwrap(), beside);
    assert_eq!(which(beside.as_os_str(), &[], Path::new("/none")), Ok(beside));
    assert_eq!(which(other.as_os_str(), &[], Path::new("/none")), Ok(other));
    assert!(matches!(which(OsStr::new("./other.sh"), &dirs, root.path()), Err(ProgramNotFound::NoFile { .. })));
}

#[test]
fn what_cannot_run_is_passed_over_and_told_if_nothing_else_is_there() {
    let root = tempfile::tempdir().unwrap();
    let (first, second) = (root.path().join("a"), root.path().join("b"));
    let text = program(&first, "tool", 0o644);
    fs::create_dir_all(first.join("folder")).unwrap();
    let dirs = [first, second.clone()];
    assert_eq!(which(OsStr::new("tool"), &dirs, root.path()), Err(ProgramNotFound::NotExecutable { path: text }));
    let good = program(&second, "tool", 0o755);
    assert_eq!(which(OsStr::new("tool"), &dirs, root.path()), Ok(good));
    let error = which(OsStr::new("folder"), &dirs, root.path()).unwrap_err();
    assert!(error.to_string().starts_with("`folder` is not installed: it is in none of "), "{error}");
}
