//! Names of directory entries: bytes that are validated once, on entry.

use crate::{Object, Refusal};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, SeqAccess, Visitor},
};
use std::{fmt, sync::Arc};

/// Maximum length of an entry's name, in bytes (the limit of Linux file systems).
pub const NAME_BYTES_MAX: usize = 255;
/// Maximum length of a symbolic link's target, in bytes (`PATH_MAX` without its NUL).
pub const TARGET_BYTES_MAX: usize = 4095;

/// A valid name of a directory entry: 1 to 255 bytes, no `/`, no NUL, neither `.` nor `..`. Cheap
/// to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<[u8]>);

impl Name {
    /// Validates `bytes`; refuses with `NameTooLong` or `Invalid`.
    pub fn new(bytes: &[u8]) -> Result<Self, Refusal> {
        if bytes.len() > NAME_BYTES_MAX {
            return Err(Refusal::NameTooLong(Object::text(bytes)));
        }
        let why = match bytes {
            b"" => "a name cannot be empty",
            b"." | b".." => "`.` and `..` are not names of entries",
            _ if bytes.iter().any(|byte| matches!(byte, 0 | b'/')) => "a name cannot hold `/` or NUL",
            _ => return Ok(Self(bytes.into())),
        };
        Err(Refusal::Invalid { object: Object::text(bytes), why: why.into() })
    }

    /// Returns the bytes of the name.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Iterates over the names in a path: what is between its slashes, without empty ones. `.` and `..`
/// are among them.
pub fn path_names(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    path.split(|byte| *byte == b'/').filter(|name| !name.is_empty())
}

impl AsRef<[u8]> for Name {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_bytes(NameVisitor)
    }
}

/// Visitor that validates a name: bytes in a message, a list of numbers in JSON.
struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = Name;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the bytes of a name")
    }

    fn visit_bytes<E: Error>(self, bytes: &[u8]) -> Result<Name, E> {
        Name::new(bytes).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Name, A::Error> {
        let mut bytes = Vec::new();
        while let Some(byte) = from.next_element()? {
            bytes.push(byte);
            if bytes.len() > NAME_BYTES_MAX {
                break;
            }
        }
        self.visit_bytes(&bytes)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_at_most_255_bytes() {
        assert!(Name::new(&[b'x'; 255]).is_ok());
        assert!(matches!(Name::new(&[b'x'; 256]), Err(Refusal::NameTooLong(_))));
    }

    #[test]
    fn a_name_is_one_component() {
        for bad in [&b""[..], b".", b"..", b"a/b", b"a\0"] {
            assert!(matches!(Name::new(bad), Err(Refusal::Invalid { .. })), "{bad:?}");
        }
        assert!(Name::new("na\u{ef}ve ...".as_bytes()).is_ok());
        assert!(Name::new(&[0xff, 0xfe]).is_ok(), "names are bytes, not text");
    }
}
