//! Removes on the host what tools left there: copies on the RAM disk, and files beside them.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Removes a file, or a directory with its content. Most paths are files: trying that first saves a
/// call.
pub(crate) fn remove_any(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => remove_directory(path),
        outcome => outcome,
    }
}

/// Removes a directory with its content. Tools leave directories that even their owner may not
/// enter or change; their permissions are changed first.
fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            open_directories(path)?;
            fs::remove_dir_all(path)
        }
        outcome => outcome,
    }
}

/// Gives the owner all rights on a directory and those below it. Links are not followed.
fn open_directories(top: &Path) -> io::Result<()> {
    let mut directories = vec![top.to_path_buf()];
    while let Some(directory) = directories.pop() {
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                directories.push(entry.path());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_that_nobody_may_enter_go_too() {
        let root = tempfile::tempdir().unwrap();
        let top = root.path().join("scratch");
        fs::create_dir_all(top.join("deep/er")).unwrap();
        fs::write(top.join("deep/file"), "x").unwrap();
        for directory in ["deep/er", "deep", ""] {
            fs::set_permissions(top.join(directory), fs::Permissions::from_mode(0o000)).unwrap();
        }
        remove_any(&top).unwrap();
        assert!(!top.exists());
    }
}
