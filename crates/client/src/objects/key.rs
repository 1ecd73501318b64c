//! Keys: paths from the pool's root, checked once.

use crate::PathText;
use placement::FileId;
use wire::{NAME_BYTES_MAX, Name, Object, Outcome, Refusal, path_names};

/// The longest key, bytes: the longest path that a program can name, without its NUL.
pub const KEY_BYTES_MAX: usize = 4095;

/// A key: names with `/` between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    bytes: Box<[u8]>,
    /// Start of the last name.
    last: usize,
    name: Name,
}

impl Key {
    /// Checks a key: 1 to 4,095 bytes; its parts are names of 1 to 255 bytes with single slashes
    /// between them, and none at either end.
    ///
    /// Refused as `NameTooLong` or `Invalid`, with the rule that it breaks.
    pub fn new(bytes: &[u8]) -> Outcome<Self> {
        if bytes.len() > KEY_BYTES_MAX || bytes.split(|byte| *byte == b'/').any(|part| part.len() > NAME_BYTES_MAX) {
            return Err(Refusal::NameTooLong(Object::text(bytes)));
        }
        if let Some(why) = broken_rule(bytes) {
            return Err(Refusal::invalid(Object::text(bytes), why));
        }
        let last = bytes.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
        Ok(Self { bytes: bytes.into(), last, name: Name::new(&bytes[last..])? })
    }

    /// The whole key.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The last name.
    pub(super) fn name(&self) -> &Name {
        &self.name
    }

    /// The path of the directory, without a slash at its end; empty for the root.
    pub(super) fn directory(&self) -> &[u8] {
        &self.bytes[..self.last.saturating_sub(1)]
    }

    /// The path of the directory, as it is remembered.
    pub(super) fn directory_text(&self) -> PathText {
        (FileId::ROOT, self.directory().to_vec())
    }
}

fn broken_rule(bytes: &[u8]) -> Option<&'static str> {
    let is = |rule: fn(&[u8]) -> bool| bytes.split(|byte| *byte == b'/').any(rule);
    match bytes {
        b"" => Some("a key has at least one byte"),
        [b'/', ..] => Some("a key does not begin with `/`"),
        [.., b'/'] => Some("a key does not end with `/`"),
        _ if is(<[u8]>::is_empty) => Some("a key has no two slashes side by side"),
        _ if is(|part| matches!(part, b"." | b"..")) => Some("no part of a key is `.` or `..`"),
        _ if bytes.contains(&0) => Some("a key has no NUL"),
        _ => None,
    }
}

/// The names of a directory's path that was checked.
pub(super) fn names(directory: &[u8]) -> Outcome<Vec<Name>> {
    path_names(directory).map(Name::new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_path_from_the_root_and_a_refusal_says_which_rule_it_breaks() {
        for (key, rule) in [
            (&b""[..], "at least one byte"),
            (b"/a", "begin with"),
            (b"a/", "end with"),
            (b"/", "begin with"),
            (b"a//b", "side by side"),
            (b"a/./b", "`.` or `..`"),
            (b"..", "`.` or `..`"),
            (b"a\0b", "NUL"),
        ] {
            let refusal = Key::new(key).unwrap_err().to_string();
            assert!(refusal.contains(rule), "{refusal}");
        }
        let (part, long) = ([b'x'; 256], [b'x', b'/'].repeat(2048));
        assert!(matches!(Key::new(&part), Err(Refusal::NameTooLong(_))));
        assert!(matches!(Key::new(&long), Err(Refusal::NameTooLong(_))));
        let longest = [&[b'x', b'/'].repeat(2047)[..], b"y"].concat();
        let key = Key::new(&longest).unwrap();
        assert_eq!((key.as_bytes().len(), key.name().as_bytes(), key.directory().len()), (4095, &b"y"[..], 4093));
        let plain = Key::new(b"...\xff").unwrap();
        assert_eq!((plain.directory(), plain.name().as_bytes()), (&b""[..], &b"...\xff"[..]));
    }
}
