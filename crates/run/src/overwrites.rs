//! Refuses, before the start, outputs that would overwrite an input, the workflow, each other or
//! the report.
//!
//! A place is a name in a directory. Directories are compared by device and inode, so links and
//! bind mounts in a path do not hide that two paths mean one place. An input that is a symbolic
//! link has several places: its own, those of the links that it leads over, and that of the file.

use base::Problem;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Upper bound of the problems that are listed.
const LISTED_MAX: usize = 10;

/// Number of symbolic links that the kernel follows.
const LINKS_MAX: usize = 40;

/// A name in a directory, or a file by any name.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Place {
    Name { device: u64, directory: u64, name: OsString },
    File { device: u64, inode: u64 },
}

/// A file that is read or written, and its description for the user.
#[derive(Debug)]
pub struct NamedPath {
    /// Description, such as `input Train` or `the script`.
    pub description: String,
    /// Path of the file, whether or not it exists yet.
    pub path: PathBuf,
}

impl NamedPath {
    /// The file `path` with this description.
    pub fn new(description: impl Into<String>, path: impl Into<PathBuf>) -> Self {
        Self { description: description.into(), path: path.into() }
    }
}

/// Problems of writing `written`, in this order, while `read` is needed. Overwriting a file of an
/// earlier run is no problem.
pub fn overwrites(
    read: impl IntoIterator<Item = NamedPath>,
    written: impl IntoIterator<Item = NamedPath>,
) -> Vec<Problem> {
    let mut taken: HashMap<Place, NamedPath> = HashMap::new();
    for file in read {
        for place in places_of_input(&file.path) {
            taken.entry(place).or_insert_with(|| NamedPath::new(file.description.clone(), file.path.clone()));
        }
    }
    let (mut problems, mut unlisted) = (Vec::new(), 0);
    for file in written {
        let places: Vec<Place> = name_place(&file.path).into_iter().chain(file_place(&file.path)).collect();
        if let Some(before) = places.iter().find_map(|place| taken.get(place)) {
            if problems.len() < LISTED_MAX { problems.push(describe(&file, before)) } else { unlisted += 1 }
        }
        // Two outputs may replace two names of one old file, so an output takes only its name.
        if let Some(place @ Place::Name { .. }) = places.into_iter().next() {
            taken.entry(place).or_insert(file);
        }
    }
    if unlisted > 0 {
        problems.push(Problem::new(format!("and {unlisted} more files would be overwritten")));
    }
    problems
}

fn describe(file: &NamedPath, before: &NamedPath) -> Problem {
    let (path, other) = (file.path.display(), before.path.display());
    Problem::new(format!("{} at {path} would overwrite {} at {other}", file.description, before.description))
        .hint("choose another directory with --out or --report, or another file name")
}

/// All places of an input: overwriting any of them would lose it.
fn places_of_input(path: &Path) -> Vec<Place> {
    let (mut places, mut path) = (Vec::new(), path.to_path_buf());
    for _ in 0..LINKS_MAX {
        places.extend(name_place(&path));
        let Ok(target) = fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("/")).join(target);
    }
    places.extend(file_place(&path));
    places
}

/// The name in its directory; `None` if the directory does not exist, as nothing can be in it.
fn name_place(path: &Path) -> Option<Place> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let about = fs::metadata(directory).ok()?;
    let name = path.file_name()?.to_owned();
    Some(Place::Name { device: about.dev(), directory: about.ino(), name })
}

/// The file itself, to find other names of it: hard links, or two spellings on a file system that
/// treats them as one.
fn file_place(path: &Path) -> Option<Place> {
    let about = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
    Some(Place::File { device: about.dev(), inode: about.ino() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn refused(inputs: &[&Path], outputs: &[&Path]) -> Vec<String> {
        let named = |description: &'static str| move |path: &&Path| NamedPath::new(description, *path);
        let problems = overwrites(inputs.iter().map(named("input I")), outputs.iter().map(named("output O")));
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_output_never_takes_the_place_of_an_input_by_whatever_path() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::create_dir(at("data")).unwrap();
        fs::write(at("data/in.txt"), "").unwrap();
        symlink("data", at("out")).unwrap();
        symlink("in.txt", at("data/first")).unwrap();
        symlink("first", at("data/second")).unwrap();
        let input = at("data/in.txt");
        for output in ["data/in.txt", "out/in.txt", "data/../out/in.txt"] {
            let message = refused(&[&input], &[&at(output)]).concat();
            assert!(
                message.contains(output) && message.contains("data/in.txt") && message.contains("input I"),
                "{message}"
            );
        }
        assert_eq!(refused(&[&at("data/second")], &[&at("out/first")]).len(), 1, "a link on the way");
        assert_eq!(refused(&[&at("data/second")], &[&at("out/in.txt")]).len(), 1, "the file that it leads to");
        fs::hard_link(&input, at("data/other")).unwrap();
        assert_eq!(refused(&[&input], &[&at("data/other")]).len(), 1, "the same file");
    }

    #[test]
    fn a_file_of_an_earlier_run_and_a_link_that_is_replaced_are_no_loss() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name);
        fs::write(at("in.txt"), "").unwrap();
        fs::create_dir(at("out")).unwrap();
        fs::write(at("out/in.txt"), "old").unwrap();
        symlink("../in.txt", at("out/link")).unwrap();
        let outputs = [at("out/in.txt"), at("out/link"), at("new/in.txt")];
        assert_eq!(refused(&[&at("in.txt")], &outputs.each_ref().map(PathBuf::as_path)), Vec::<String>::new());
    }

    #[test]
    fn two_outputs_of_one_place_are_refused_and_many_are_counted() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("E")).unwrap();
        symlink("E", root.path().join("F")).unwrap();
        let message = refused(&[], &[&root.path().join("E/x"), &root.path().join("F/x")]);
        assert!(message.len() == 1 && message[0].contains("output O"), "{message:?}");
        let same = root.path().join("E/x");
        assert_eq!(refused(&[], &vec![same.as_path(); 20]).len(), LISTED_MAX + 1);
    }
}
