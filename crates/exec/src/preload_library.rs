//! Finds the preload library, with which programs access a pool without a mount.

use crate::elf_check::is_library;
use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// File name of the library.
const LIBRARY: &str = "libtidemill_preload.so";
/// Environment variable with the path of a library outside the default places.
const VARIABLE: &str = "TIDEMILL_PRELOAD";
/// Environment variable of the libraries to preload (ld.so(8)).
const PRELOAD_LIST: &str = "LD_PRELOAD";

/// Reasons why there is no usable library.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PreloadLibraryError {
    /// The path in the environment variable is not a file.
    #[error("{VARIABLE} names {}, which is not a file", .0.display())]
    NotAFile(PathBuf),
    /// The file named in the environment variable is not a library of this processor type.
    #[error("{VARIABLE} names {}, which is not a library for this kind of processor", .0.display())]
    NotALibrary(PathBuf),
    /// The library is in none of the default places.
    #[error("{LIBRARY} is neither in {} nor in ../lib or ../lib/tidemill", .0.display())]
    Missing(PathBuf),
    /// The path contains a separator of the loader's list.
    #[error("{} has a blank or a colon in its path, which the system's loader takes for a separator", .0.display())]
    Separator(PathBuf),
}

impl PreloadLibraryError {
    /// Advice for the user.
    pub fn hint(&self) -> String {
        match self {
            Self::NotAFile(_) | Self::NotALibrary(_) => {
                format!("unset {VARIABLE} if the library is beside the binary")
            }
            Self::Missing(_) => format!("`make build` builds it; {VARIABLE}=FILE names another path"),
            Self::Separator(_) => format!("move it; {VARIABLE}=FILE names its path"),
        }
    }
}

/// Returns the path of the library: the value of `TIDEMILL_PRELOAD`, else a file beside this
/// program, in `../lib` or in `../lib/tidemill`.
///
/// # Errors
/// The library is missing, or its path cannot be passed to the loader.
pub fn preload_library() -> Result<PathBuf, PreloadLibraryError> {
    let binary = env::current_exe().and_then(|path| path.canonicalize()).unwrap_or_default();
    let named = env::var_os(VARIABLE).filter(|named| !named.is_empty());
    find(named.map(PathBuf::from), binary.parent().unwrap_or(Path::new("/")))
}

fn find(named: Option<PathBuf>, beside: &Path) -> Result<PathBuf, PreloadLibraryError> {
    let found = match named {
        Some(named) => match std::path::absolute(&named).ok().filter(|path| path.is_file()) {
            None => Err(PreloadLibraryError::NotAFile(named)),
            Some(path) if !is_library(&path) => Err(PreloadLibraryError::NotALibrary(path)),
            Some(path) => Ok(path),
        },
        None => ["", "../lib", "../lib/tidemill"]
            .map(|directory| beside.join(directory).join(LIBRARY))
            .into_iter()
            .find(|path| path.is_file())
            .ok_or_else(|| PreloadLibraryError::Missing(beside.to_owned())),
    }?;
    let has_separator = found.as_os_str().as_encoded_bytes().iter().any(|byte| b" \t\n:".contains(byte));
    if has_separator { Err(PreloadLibraryError::Separator(found)) } else { Ok(found) }
}

/// Returns the environment variable that preloads the library, followed by the `others` already
/// listed.
pub fn preload_variable(library: &Path, others: Option<&OsStr>) -> (OsString, OsString) {
    let mut all = library.as_os_str().to_owned();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        all.push(":");
        all.push(others);
    }
    (PRELOAD_LIST.into(), all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_library_is_found_beside_the_binary_or_where_packages_put_it() {
        let root = tempfile::tempdir().unwrap();
        let bin = root.path().join("bin");
        fs::create_dir_all(root.path().join("lib/tidemill")).unwrap();
        fs::create_dir(&bin).unwrap();
        assert!(matches!(find(None, &bin), Err(PreloadLibraryError::Missing(_))));
        for directory in ["lib/tidemill", "lib", "bin"] {
            let file = root.path().join(directory).join(LIBRARY);
            fs::write(&file, "").unwrap();
            assert_eq!(find(None, &bin).unwrap().canonicalize().unwrap(), file);
        }
    }

    #[test]
    fn what_the_user_names_counts_alone() {
        let root = tempfile::tempdir().unwrap();
        let (named, odd) = (root.path().join("mine.so"), root.path().join("a b.so"));
        fs::write(root.path().join(LIBRARY), "").unwrap();
        assert_eq!(find(Some(named.clone()), root.path()), Err(PreloadLibraryError::NotAFile(named.clone())));
        fs::write(&named, "no library").unwrap();
        assert_eq!(find(Some(named.clone()), root.path()), Err(PreloadLibraryError::NotALibrary(named.clone())));
        // The first bytes of a library: those of this program, with the type of a library.
        let mut head = fs::read("/proc/self/exe").unwrap()[..64].to_vec();
        head[16..18].copy_from_slice(&3_u16.to_ne_bytes());
        fs::write(&named, &head).unwrap();
        assert_eq!(find(Some(named.clone()), root.path()), Ok(named));
        fs::write(&odd, &head).unwrap();
        assert_eq!(find(Some(odd.clone()), root.path()), Err(PreloadLibraryError::Separator(odd)));
    }

    #[test]
    fn others_come_behind_it() {
        let list = |others: Option<&str>| preload_variable(Path::new("/l.so"), others.map(OsStr::new)).1;
        assert_eq!(list(None), "/l.so");
        assert_eq!(list(Some("")), "/l.so");
        assert_eq!(list(Some("/a.so:/b.so")), "/l.so:/a.so:/b.so");
    }
}
