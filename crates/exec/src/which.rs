//! Finds a tool's program by the rules of the tool file: a value with a `/` is a path, any other is
//! searched for.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Reasons why a program cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProgramNotFound {
    /// The path does not exist or is not a regular file.
    #[error("there is no program `{}`", .path.display())]
    NoFile {
        /// The path.
        path: PathBuf,
    },
    /// The path is a directory.
    #[error("`{}` is a directory", .path.display())]
    IsDirectory {
        /// The path.
        path: PathBuf,
    },
    /// The file is not executable.
    #[error("`{}` is not executable (try: chmod +x)", .path.display())]
    NotExecutable {
        /// The path.
        path: PathBuf,
    },
    /// The program is in none of the directories.
    #[error("`{name}` is not installed: {}", list(.searched))]
    NotInstalled {
        /// The name.
        name: String,
        /// The directories that were searched.
        searched: Vec<PathBuf>,
    },
}

/// Returns the directories to search for a tool's program, which are also its task's `PATH`: the
/// tool's own (relative ones from `tool_dir`, the directory of the tool file), then the absolute
/// ones of `path`, the value of `PATH`.
pub fn search_dirs(own: &[String], tool_dir: &Path, path: Option<&OsStr>) -> Vec<PathBuf> {
    let inherited = path.map(|path| std::env::split_paths(path).collect()).unwrap_or_default();
    let inherited: Vec<PathBuf> = inherited;
    let named = |dir: &PathBuf| dir.is_absolute();
    own.iter().map(|dir| tool_dir.join(dir)).chain(inherited.into_iter().filter(named)).collect()
}

/// Returns the absolute path of `program`: with a `/` relative to `tool_dir`, otherwise in the
/// first of `dirs` that has it.
pub fn which(program: &OsStr, dirs: &[PathBuf], tool_dir: &Path) -> Result<PathBuf, ProgramNotFound> {
    if program.as_bytes().contains(&b'/') {
        return executable(tool_dir.join(program));
    }
    let mut unusable = None;
    for dir in dirs {
        match executable(dir.join(program)) {
            Ok(found) => return Ok(found),
            Err(error @ ProgramNotFound::NotExecutable { .. }) => unusable = unusable.or(Some(error)),
            Err(_) => {}
        }
    }
    let name = program.to_string_lossy().into_owned();
    Err(unusable.unwrap_or_else(|| ProgramNotFound::NotInstalled { name, searched: dirs.to_vec() }))
}

fn executable(path: PathBuf) -> Result<PathBuf, ProgramNotFound> {
    match fs::metadata(&path) {
        Ok(file) if file.is_file() && file.permissions().mode() & 0o111 != 0 => Ok(path),
        Ok(file) if file.is_file() => Err(ProgramNotFound::NotExecutable { path }),
        Ok(file) if file.is_dir() => Err(ProgramNotFound::IsDirectory { path }),
        Ok(_) | Err(_) => Err(ProgramNotFound::NoFile { path }),
    }
}

fn list(dirs: &[PathBuf]) -> String {
    if dirs.is_empty() {
        return "PATH is empty".into();
    }
    let dirs: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    format!("it is in none of {}", dirs.join(":"))
}
