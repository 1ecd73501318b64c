//! Inputs that several hosts have as the same file: a shared file system, or copies made before.

use super::messages::HostInput;
use flow::DataId;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Length of the head that is hashed, bytes.
const HEAD_BYTES: u64 = 64 << 10;

/// Describes a file of this host.
pub fn describe(data: DataId, path: &Path) -> io::Result<HostInput> {
    let metadata = fs::metadata(path)?;
    let mut head = Vec::new();
    File::open(path)?.take(HEAD_BYTES).read_to_end(&mut head)?;
    Ok(HostInput {
        data,
        path: path.to_owned(),
        bytes: metadata.len(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
        head: blake3::hash(&head).to_hex().to_string(),
    })
}

/// Returns whether this host has the same file.
pub fn is_same(input: &HostInput) -> bool {
    describe(input.data, &input.path).is_ok_and(|found| found == *input)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_the_same_only_with_the_same_length_time_and_head() {
        let root = tempfile::tempdir().expect("made");
        let path = root.path().join("in.csv");
        fs::write(&path, "tide").expect("written");
        let input = describe(DataId(3), &path).expect("it is there");
        assert!(is_same(&input));
        for other in [
            HostInput { bytes: 5, ..input.clone() },
            HostInput { modified: (1, 2), ..input.clone() },
            HostInput { head: String::new(), ..input.clone() },
            HostInput { path: root.path().join("none"), ..input.clone() },
        ] {
            assert!(!is_same(&other), "{other:?}");
        }
    }
}
