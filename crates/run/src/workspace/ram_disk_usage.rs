//! Memory that a staged run's files take on the RAM disk. The RAM disk has no tight limit of its
//! own.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Unit of the block count of `stat`.
const STAT_BLOCK_BYTES: u64 = 512;

/// Bytes of memory that the files below `directory` take. Files that vanish meanwhile count as
/// nothing; links are not followed.
pub fn bytes_below(directory: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(directory) else { return 0 };
    entries.filter_map(Result::ok).map(|entry| bytes_of(&entry)).sum()
}

fn bytes_of(entry: &fs::DirEntry) -> u64 {
    match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
        Ok(metadata) => metadata.blocks() * STAT_BLOCK_BYTES,
        Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_all_directories_count_and_what_links_lead_to_does_not() {
        let root = tempfile::tempdir().expect("made");
        let other = tempfile::tempdir().expect("made");
        fs::write(other.path().join("large"), vec![1; 1 << 20]).expect("written");
        fs::create_dir(root.path().join("t.1")).expect("made");
        fs::write(root.path().join("t.1/out"), vec![1; 256 << 10]).expect("written");
        std::os::unix::fs::symlink(other.path(), root.path().join("data")).expect("linked");
        let bytes = bytes_below(root.path());
        assert!((256 << 10..512 << 10).contains(&bytes), "{bytes}");
        assert_eq!(bytes_below(Path::new("/none")), 0);
    }
}
