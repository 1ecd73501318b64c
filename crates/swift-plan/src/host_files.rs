//! Files of this host that a script names: inputs in the data directory, patterns, and texts that
//! the script writes.

use base::natural;
use globset::{GlobBuilder, GlobMatcher};
use run::READ_BYTES_MAX;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

/// Most files that a pattern matches; more are probably a mistake.
const GLOB_FILES_MAX: usize = 1_000_000;

/// Returns whether a path names a file that can be an input.
///
/// # Errors
/// The reason why not.
pub fn check_input(data_dir: &Path, path: &str) -> Result<(), String> {
    let why = match fs::metadata(data_dir.join(path)) {
        Ok(about) if about.is_file() => return Ok(()),
        Ok(_) => "it is not a regular file".to_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound && Path::new(path).is_relative() => {
            format!("there is no such file in the data directory {}", data_dir.display())
        }
        Err(error) => error.to_string(),
    };
    Err(format!("`{path}` cannot be an input: {why}"))
}

/// The type of a file, as Tcl names it; a link is one, wherever it leads.
///
/// # Errors
/// There is no such file.
pub fn type_of(path: &Path) -> Result<String, String> {
    let about = fs::symlink_metadata(path).map_err(|error| format!("{}: {error}", path.display()))?.file_type();
    let names = [
        ("directory", about.is_dir()),
        ("link", about.is_symlink()),
        ("fifo", about.is_fifo()),
        ("socket", about.is_socket()),
        ("characterSpecial", about.is_char_device()),
        ("blockSpecial", about.is_block_device()),
    ];
    Ok(names.into_iter().find(|(_, is_it)| *is_it).map_or("file", |(name, _)| name).to_owned())
}

/// The time of the last change of a file, since the beginning of 1970.
///
/// # Errors
/// There is no such file.
pub fn changed(path: &Path) -> Result<Duration, String> {
    let changed = fs::metadata(path).and_then(|about| about.modified());
    let changed = changed.map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(changed.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// The text of a file.
///
/// # Errors
/// The file cannot be read, is too large, or is no text.
pub fn read_text(path: &Path) -> Result<String, String> {
    let failed = |error: io::Error| format!("{} cannot be read: {error}", path.display());
    let mut bytes = Vec::new();
    let file = run::open_file(path).map_err(failed)?;
    file.take(READ_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() > READ_BYTES_MAX {
        return Err(format!(
            "{} has more than {} MiB, the most that a script reads",
            path.display(),
            READ_BYTES_MAX >> 20
        ));
    }
    text_of(bytes, &path.display().to_string())
}

/// The text of a part of a script. Anything but a regular file is an error, and never waits.
pub fn read_source(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    // A byte more, so that a text that is too long is refused and not cut.
    run::open_file(path)?.take(READ_BYTES_MAX as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// A path without links, also if its last parts do not exist yet: two paths of one file are equal.
pub fn resolved(path: &Path) -> PathBuf {
    let known = path.ancestors().find_map(|above| Some((above, fs::canonicalize(above).ok()?)));
    let Some((above, known)) = known else { return path.to_owned() };
    match path.strip_prefix(above) {
        Ok(rest) if !rest.as_os_str().is_empty() => known.join(rest),
        _ => known,
    }
}

/// The content of a file as text.
///
/// # Errors
/// It is no text.
pub fn text_of(bytes: Vec<u8>, name: &str) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        format!("{name} is no text: byte {valid} is not UTF-8")
    })
}

/// The path of a text in a directory. It depends on the text alone, so a script that is evaluated
/// anew finds it there.
pub fn text_path(directory: &Path, text: &str) -> PathBuf {
    directory.join(format!("text-{}", &blake3::hash(text.as_bytes()).to_hex()[..32]))
}

/// Writes the text of a script to a file, and makes the directories above it. A file that has the
/// text already stays as it is.
///
/// # Errors
/// The reason, which names the file.
pub fn write_text(path: &Path, text: &str) -> Result<(), String> {
    if fs::read(path).is_ok_and(|there| there == text.as_bytes()) {
        return Ok(());
    }
    run::write_text(path, text).map_err(|error| error.to_string())
}

/// The path of a mapped file below the directory of outputs.
///
/// # Errors
/// It leads out of that directory, or names no file.
pub fn mapped_path(out_dir: &Path, path: &str) -> Result<PathBuf, String> {
    if Path::new(path).components().any(|part| part == Component::ParentDir) {
        return Err(format!("a file is mapped to `{path}`, which leads out of the directory of outputs"));
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    if matches!(name, "" | ".") || path.contains(['\0', '\n', '\r']) {
        return Err(format!("a file is mapped to {path:?}, which is not the path of a file"));
    }
    Ok(out_dir.join(path))
}

/// The regular files that a pattern matches, in natural order, named as the pattern names them.
/// Stars match no name that begins with a dot.
///
/// # Errors
/// The pattern is not valid, or matches too much.
pub fn matching_files(data_dir: &Path, pattern: &str) -> Result<Vec<String>, String> {
    if pattern.ends_with('/') {
        return Ok(Vec::new()); // Directories are no files.
    }
    let mut found = vec![if pattern.starts_with('/') { "/".to_owned() } else { String::new() }];
    let parts: Vec<&str> = pattern.split('/').filter(|part| !part.is_empty()).collect();
    for part in &parts {
        let matcher = Pattern::new(part)?;
        let mut next = Vec::new();
        for directory in &found {
            matcher.add_matches(data_dir, directory, &mut next);
            if next.len() > GLOB_FILES_MAX {
                return Err(format!("`{pattern}` matches more than {GLOB_FILES_MAX} files"));
            }
        }
        found = next;
    }
    found.retain(|path| fs::metadata(data_dir.join(path)).is_ok_and(|about| about.is_file()));
    found.sort_by(|a, b| natural::compare(a, b));
    Ok(found)
}

/// A part of a pattern between slashes.
enum Pattern<'a> {
    /// A plain name.
    Name(&'a str),
    /// A pattern of names; true if it begins with a dot itself.
    Names(GlobMatcher, bool),
}

impl<'a> Pattern<'a> {
    fn new(part: &'a str) -> Result<Self, String> {
        if !part.contains(['*', '?', '[', '{', '\\']) {
            return Ok(Self::Name(part));
        }
        let glob = GlobBuilder::new(part).literal_separator(true).backslash_escape(true).build();
        let glob = glob.map_err(|error| format!("`{part}` is not a valid pattern: {}", error.kind()))?;
        Ok(Self::Names(glob.compile_matcher(), part.starts_with('.')))
    }

    fn add_matches(&self, data_dir: &Path, directory: &str, found: &mut Vec<String>) {
        let join = |name: &str| {
            let slash = if directory.is_empty() || directory.ends_with('/') { "" } else { "/" };
            format!("{directory}{slash}{name}")
        };
        match self {
            Self::Name(name) => found.push(join(name)),
            Self::Names(matcher, has_dot) => {
                let Ok(entries) = fs::read_dir(data_dir.join(directory)) else { return };
                let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
                let fits = |name: &String| (*has_dot || !name.starts_with('.')) && matcher.is_match(name);
                found.extend(names.filter(fits).map(|name| join(&name)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_files_in_natural_order_and_no_hidden_ones() {
        let root = tempfile::tempdir().expect("made");
        let at = |path: &str| root.path().join(path);
        fs::create_dir_all(at("runs/a")).expect("made");
        fs::create_dir_all(at("runs/b")).expect("made");
        for file in ["m10.txt", "m2.txt", ".m3.txt", "n1.csv", "runs/a/x.txt", "runs/b/x.txt", "runs/b/y.txt"] {
            fs::write(at(file), "").expect("written");
        }
        let found = |pattern: &str| matching_files(root.path(), pattern).expect("valid").join(" ");
        assert_eq!(found("*.txt"), "m2.txt m10.txt");
        assert_eq!(found("*/"), "");
        assert_eq!(found("{m2,n?}.*"), "m2.txt n1.csv");
        assert_eq!(found("{m2.txt,n1.csv}"), "m2.txt n1.csv");
        assert_eq!(found("runs/*/x.txt"), "runs/a/x.txt runs/b/x.txt");
        assert_eq!(found("runs/[!a]/*"), "runs/b/x.txt runs/b/y.txt");
        assert_eq!(found(".m*"), ".m3.txt");
        assert_eq!(found("none/*"), "");
        let absolute = format!("{}/n*.csv", root.path().display());
        assert_eq!(found(&absolute), at("n1.csv").display().to_string());
        assert!(matching_files(root.path(), "a[").expect_err("refused").contains("not a valid pattern"));
    }

    #[test]
    fn mapped_files_stay_in_the_directory_of_outputs() {
        let out = Path::new("/out");
        assert_eq!(mapped_path(out, "a/b.txt"), Ok(PathBuf::from("/out/a/b.txt")));
        assert_eq!(mapped_path(out, "/tmp/b.txt"), Ok(PathBuf::from("/tmp/b.txt")));
        for wrong in ["../b", "a/../../b", "", "a/", "a\nb", "."] {
            assert!(mapped_path(out, wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn inputs_that_are_not_there_are_told_with_their_directory() {
        let root = tempfile::tempdir().expect("made");
        let problem = check_input(root.path(), "none.txt").expect_err("it is not there");
        assert!(problem.contains("no such file in the data directory"), "{problem}");
        assert!(check_input(root.path(), ".").expect_err("a directory").contains("not a regular file"));
    }
}
