//! Lists the files of a data directory: inputs that scripts find by name or pattern, files that
//! runs wrote there, and names that cannot be used.
//!
//! Directories that runs write to are set aside, so that a run does not take the results of the
//! last one for inputs:
//! - those of this run, `--out` and `--report`;
//! - reports (a directory with `run.json` and `report.html`, or with `journal.jsonl` and
//!   `flow.json`) and directories named `tidemill-report`;
//! - `out` beside a `tidemill-report`, which a run with the default directories left.
//!
//! Files that are set aside are found by their full name only. Links to directories are followed,
//! and each directory is listed once, by a path without links if there is one; so cycles of links
//! end.

use base::Problem;
use journal::{JOURNAL_FILE, WORKFLOW_FILE};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, DirEntry};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Upper bound of the files in a data directory; a larger one is probably a mistake.
const DATA_FILES_MAX: usize = 1_000_000;

/// Upper bound of the unusable names that are listed; the others are counted.
const UNUSABLE_LISTED_MAX: usize = 5;

/// The default of `--out`.
pub const OUT: &str = "out";

/// Parent of the reports' directories, unless `--report` is given.
pub const REPORTS: &str = "tidemill-report";

/// Files that show that a directory is a report, two of each: a single one may be the user's. The
/// report of a run that was killed has the second pair only.
const REPORT_PAIRS: [(&str, &str); 2] = [("run.json", "report.html"), (JOURNAL_FILE, WORKFLOW_FILE)];

/// Content of a data directory. Paths are relative to it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct DataDirectory {
    /// Files that scripts find by name and by pattern.
    pub files: Vec<String>,
    /// Files in directories that runs write to.
    pub set_aside: Vec<String>,
    /// Warnings about files that cannot be inputs.
    pub warnings: Vec<String>,
}

/// Device and inode of a directory.
type Identity = (u64, u64);

/// A directory to list.
struct PendingDirectory {
    /// Path relative to the data directory.
    path: PathBuf,
    is_set_aside: bool,
}

/// Lists `dir`, where this run writes to the directories `written`.
pub fn list(dir: &Path, written: &[&Path]) -> Result<DataDirectory, Problem> {
    let mut listing = DirectoryListing {
        dir,
        written: written.iter().filter_map(|directory| identity(directory)).collect(),
        seen: HashSet::new(),
        links: Vec::new(),
        unusable: Vec::new(),
        found: DataDirectory::default(),
    };
    listing.seen.extend(identity(dir));
    let mut directories = vec![PendingDirectory { path: PathBuf::new(), is_set_aside: false }];
    // Follow links last, so that a directory is listed by its own path.
    while let Some(directory) = directories.pop().or_else(|| listing.next_link()) {
        listing.list_one(&directory, &mut directories)?;
    }
    listing.found.warnings = listing.warnings();
    Ok(listing.found)
}

struct DirectoryListing<'a> {
    dir: &'a Path,
    written: HashSet<Identity>,
    seen: HashSet<Identity>,
    /// Links to directories, in the order in which they were found.
    links: Vec<PendingDirectory>,
    /// Names that cannot be used, with the reasons.
    unusable: Vec<(PathBuf, &'static str)>,
    found: DataDirectory,
}

impl DirectoryListing<'_> {
    /// The next link to a directory that was not listed yet.
    fn next_link(&mut self) -> Option<PendingDirectory> {
        while let Some(link) = self.links.pop() {
            if self.is_new(&link.path) {
                return Some(link);
            }
        }
        None
    }

    fn is_new(&mut self, path: &Path) -> bool {
        identity(&self.dir.join(path)).is_some_and(|identity| self.seen.insert(identity))
    }

    fn list_one(
        &mut self,
        directory: &PendingDirectory,
        directories: &mut Vec<PendingDirectory>,
    ) -> Result<(), Problem> {
        let whole = self.dir.join(&directory.path);
        let describe = |error: std::io::Error| Problem::new(format!("{}: {error}", whole.display()));
        let mut entries = fs::read_dir(&whole).map_err(describe)?.collect::<Result<Vec<_>, _>>().map_err(describe)?;
        // The order must not depend on the file system: of several links to one directory, the
        // first by name counts.
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.file_name()));
        let has = |name: &str| entries.iter().any(|entry| entry.file_name() == name);
        let traits = DirectoryTraits {
            is_report: REPORT_PAIRS.iter().any(|(a, b)| has(a) && has(b)),
            has_reports: has(REPORTS),
        };
        for entry in &entries {
            self.add_entry(directory, entry, &traits, directories);
            if self.found.files.len() + self.found.set_aside.len() > DATA_FILES_MAX {
                return Err(Problem::new(format!("{}: more than {DATA_FILES_MAX} files", self.dir.display()))
                    .hint("name the directory of the inputs with --data"));
            }
        }
        Ok(())
    }

    fn add_entry(
        &mut self,
        directory: &PendingDirectory,
        entry: &DirEntry,
        traits: &DirectoryTraits,
        directories: &mut Vec<PendingDirectory>,
    ) {
        let path = directory.path.join(entry.file_name());
        if entry.file_name().as_encoded_bytes().starts_with(b".") {
            return;
        }
        let text = match usable(&entry.file_name()) {
            Ok(name) => name,
            Err(why) => return self.unusable.push((path, why)),
        };
        let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        let Ok(about) = fs::metadata(entry.path()) else { return };
        let is_set_aside = directory.is_set_aside || traits.sets_aside(&text);
        if about.is_dir() {
            let is_set_aside =
                is_set_aside || self.written.contains(&(about.dev(), about.ino())) || holds_report(entry);
            let found = PendingDirectory { path, is_set_aside };
            if is_link {
                self.links.push(found);
            } else if self.is_new(&found.path) {
                directories.push(found);
            }
        } else if about.is_file() {
            let files = if is_set_aside { &mut self.found.set_aside } else { &mut self.found.files };
            files.push(path.display().to_string());
        }
    }

    fn warnings(&self) -> Vec<String> {
        let describe = |(path, why): &(PathBuf, &str)| {
            let shown: String = path.as_os_str().as_encoded_bytes().escape_ascii().to_string();
            format!("{}: {shown} is not an input: its name {why}", self.dir.display())
        };
        let mut warnings: Vec<String> = self.unusable.iter().take(UNUSABLE_LISTED_MAX).map(describe).collect();
        let more = self.unusable.len().saturating_sub(UNUSABLE_LISTED_MAX);
        if more > 0 {
            warnings.push(format!("{}: {more} more names cannot be used", self.dir.display()));
        }
        warnings
    }
}

/// Properties of a directory that tell which of its entries runs wrote.
struct DirectoryTraits {
    /// The directory is a report.
    is_report: bool,
    /// Runs were started in the directory.
    has_reports: bool,
}

impl DirectoryTraits {
    fn sets_aside(&self, name: &str) -> bool {
        match name {
            REPORTS => true,
            OUT => self.has_reports,
            name if REPORT_PAIRS.iter().any(|(a, b)| name == *a || name == *b) => self.is_report,
            _ => false,
        }
    }
}

fn holds_report(entry: &DirEntry) -> bool {
    let path = entry.path();
    REPORT_PAIRS.iter().any(|(a, b)| path.join(a).is_file() && path.join(b).is_file())
}

/// The name as text, or the reason why a workflow cannot use it.
fn usable(name: &OsStr) -> Result<String, &'static str> {
    let text = name.to_str().ok_or("is not UTF-8 text")?;
    if text.chars().any(char::is_control) {
        return Err("holds a line end or another control character");
    }
    Ok(text.to_owned())
}

fn identity(path: &Path) -> Option<Identity> {
    fs::metadata(path).ok().map(|about| (about.dev(), about.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::symlink;

    /// A directory with empty files at these paths.
    fn make_directory(paths: &[&str]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for path in paths {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        dir
    }

    fn listed(dir: &Path, written: &[&Path]) -> DataDirectory {
        let mut found = list(dir, written).unwrap();
        found.files.sort();
        found.set_aside.sort();
        found
    }

    #[test]
    fn a_data_directory_lists_its_files_without_the_hidden_ones() {
        let dir = make_directory(&["a/x.csv", "a/.git/y", ".z", "b"]);
        assert_eq!(listed(dir.path(), &[]).files, ["a/x.csv", "b"]);
    }

    #[test]
    fn directories_that_this_run_or_earlier_ones_write_to_are_no_inputs() {
        let dir =
            make_directory(&["in.txt", "out/E.txt", "tidemill-report/f-1/run.json", "tidemill-report/f-1/report.html"]);
        let found = listed(dir.path(), &[]);
        assert_eq!(found.files, ["in.txt"]);
        assert_eq!(found.set_aside[0], "out/E.txt", "found by its full name all the same");
        let elsewhere = make_directory(&[
            "in.txt",
            "a/results/E.txt",
            "b/run.json",
            "b/report.html",
            "b/x",
            "c/run.json",
            "d/flow.json",
            "d/journal.jsonl",
        ]);
        let found = listed(elsewhere.path(), &[&elsewhere.path().join("a/results")]);
        assert_eq!(found.files, ["c/run.json", "in.txt"]);
        let own = make_directory(&["out/in.txt", "run.json"]);
        assert_eq!(listed(own.path(), &[]).files, ["out/in.txt", "run.json"], "no run was here");
    }

    #[test]
    fn a_link_to_a_directory_that_is_written_to_does_not_let_outputs_in() {
        let dir = make_directory(&["in.txt", "results/E.txt"]);
        symlink("results", dir.path().join("latest")).unwrap();
        assert_eq!(listed(dir.path(), &[&dir.path().join("latest")]).files, ["in.txt"]);
    }

    #[test]
    fn links_to_directories_are_followed_and_each_directory_is_listed_once() {
        let (dir, other) = (make_directory(&["real/x", "in"]), make_directory(&["deep/y"]));
        for (target, name) in [(Path::new("real"), "a"), (Path::new("."), "real/round"), (other.path(), "far")] {
            symlink(target, dir.path().join(name)).unwrap();
        }
        symlink("nowhere", dir.path().join("broken")).unwrap();
        symlink("in", dir.path().join("alias")).unwrap();
        assert_eq!(listed(dir.path(), &[]).files, ["alias", "far/deep/y", "in", "real/x"]);
    }

    #[test]
    fn names_that_cannot_be_used_are_named_with_the_reason() {
        let dir = make_directory(&["good", "two\nlines"]);
        fs::write(dir.path().join(OsStr::from_bytes(b"caf\xe9")), "").unwrap();
        let found = listed(dir.path(), &[]);
        assert_eq!(found.files, ["good"]);
        let shown = found.warnings.join("; ");
        assert!(shown.contains("caf\\xe9 is not an input: its name is not UTF-8 text"), "{shown}");
        assert!(shown.contains("two\\nlines is not an input: its name holds a line end"), "{shown}");
        for number in 0..20 {
            fs::write(dir.path().join(format!("bad\t{number}")), "").unwrap();
        }
        let found = listed(dir.path(), &[]);
        assert_eq!(found.warnings.len(), UNUSABLE_LISTED_MAX + 1);
        assert!(found.warnings.last().unwrap().contains("17 more names"), "{:?}", found.warnings.last());
    }
}
