//! The processes of this host that have files open or mapped, as `/proc` tells. Only those of the
//! node's own user, or all if that is root.

use std::{
    collections::{BTreeSet, HashMap},
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::Path,
};

/// Device and inode number of a file, as `stat` returns them.
pub type InodeNumbers = (u64, u64);

/// The processes that have each of these files open or mapped, other than this one.
pub fn processes_with(wanted: &BTreeSet<InodeNumbers>) -> HashMap<InodeNumbers, BTreeSet<u32>> {
    let mut found: HashMap<InodeNumbers, BTreeSet<u32>> = HashMap::new();
    if wanted.is_empty() {
        return found;
    }
    let others = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let process: u32 = entry.file_name().to_str()?.parse().ok()?;
        (process != std::process::id()).then(|| (process, entry.path()))
    });
    for (process, directory) in others {
        for numbers in open_files(&directory).chain(mapped_files(&directory)).filter(|numbers| wanted.contains(numbers))
        {
            found.entry(numbers).or_default().insert(process);
        }
    }
    found
}

/// The name of a process; empty if it has ended.
pub fn process_name(process: u32) -> String {
    fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default().trim_end().to_owned()
}

fn open_files(process: &Path) -> impl Iterator<Item = InodeNumbers> + use<> {
    let numbers = |about: Metadata| (about.dev(), about.ino());
    let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    descriptors.filter_map(move |entry| fs::metadata(entry.path()).ok().map(numbers))
}

fn mapped_files(process: &Path) -> impl Iterator<Item = InodeNumbers> + use<> {
    let maps = fs::read_to_string(process.join("maps")).unwrap_or_default();
    maps.lines().filter_map(mapped_file).collect::<Vec<_>>().into_iter()
}

/// The file of a line such as `7f3c-7f3d rw-s 00000000 00:3b 17   /memfd:x (deleted)`.
fn mapped_file(line: &str) -> Option<InodeNumbers> {
    let mut words = line.split_ascii_whitespace().skip(3);
    let (major, minor) = words.next()?.split_once(':')?;
    let inode: u64 = words.next()?.parse().ok()?;
    let number = |text| u32::from_str_radix(text, 16).ok();
    (inode != 0).then_some((rustix::fs::makedev(number(major)?, number(minor)?), inode))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_that_has_a_file_open_is_found_until_it_ends() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let about = file.as_file().metadata().unwrap();
        let numbers = (about.dev(), about.ino());
        let input = fs::File::open(file.path()).unwrap();
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::from(input)).spawn().unwrap();
        assert_eq!(processes_with(&[numbers].into()), [(numbers, [child.id()].into())].into());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(processes_with(&[numbers].into()), HashMap::new());
    }

    #[test]
    fn the_line_of_a_mapping_names_its_file_and_that_of_other_memory_none() {
        let line = "7f3c0000-7f3d0000 rw-s 00000000 00:3b 17                 /memfd:x (deleted)";
        assert_eq!(mapped_file(line), Some((rustix::fs::makedev(0, 0x3b), 17)));
        assert_eq!(mapped_file("7f3c0000-7f3d0000 rw-p 00000000 00:00 0     [heap]"), None);
        assert_eq!(mapped_file(""), None);
    }
}
