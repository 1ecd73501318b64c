//! POSIX access control lists, as acl(5) and the kernel define them, in the kernel's encoding,
//! version 2. Pure functions.
//!
//! An ACL of a file and its permission bits overlap, so they are kept consistent. Setting an ACL
//! sets the bits. A chmod sets the entries of the owner, the mask (or the group, if there is no
//! mask) and the others. An ACL that the bits express completely is not stored.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// First word of the encoding.
const VERSION: u32 = 2;
const HEADER_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;
/// The id of entries without a named user or group.
const NOBODY: u32 = u32::MAX;
/// Read, write and execute bits of one class.
const PERMISSIONS: u16 = 0o7;

/// Subject of an entry. Entries are in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tag {
    Owner,
    User,
    OwningGroup,
    Group,
    Mask,
    Other,
}

impl Tag {
    const CODES: [(Self, u16); 6] = [
        (Self::Owner, 0x01),
        (Self::User, 0x02),
        (Self::OwningGroup, 0x04),
        (Self::Group, 0x08),
        (Self::Mask, 0x10),
        (Self::Other, 0x20),
    ];

    fn of(code: u16) -> Option<Self> {
        Self::CODES.iter().find(|(_, known)| *known == code).map(|(tag, _)| *tag)
    }

    fn code(self) -> u16 {
        Self::CODES[self as usize].1
    }

    fn names_somebody(self) -> bool {
        matches!(self, Self::User | Self::Group)
    }

    /// Returns true if an entry of this tag may follow one of the tag `last`; `None` before the
    /// first.
    fn may_follow(self, last: Option<Self>) -> bool {
        let Some(last) = last else { return self == Self::Owner };
        match self {
            Self::Owner => false,
            Self::User => matches!(last, Self::Owner | Self::User),
            Self::OwningGroup => matches!(last, Self::Owner | Self::User),
            Self::Group => matches!(last, Self::OwningGroup | Self::Group),
            Self::Mask => matches!(last, Self::OwningGroup | Self::Group),
            Self::Other => matches!(last, Self::OwningGroup | Self::Group | Self::Mask),
        }
    }
}

/// One entry of an ACL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AclEntry {
    tag: Tag,
    permissions: u16,
    id: u32,
}

/// A valid ACL: owner, named users, owning group, named groups, mask, others, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<AclEntry>);

/// Decoding error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AclError {
    /// Another version of the encoding.
    Version,
    /// No valid encoding, or an ACL that acl(5) does not allow.
    Form,
}

impl Acl {
    /// Decodes and validates an ACL. `None` if it has no entries: a request to remove the ACL.
    pub fn decode(mut bytes: &[u8]) -> Result<Option<Self>, AclError> {
        if bytes.len() < HEADER_BYTES || !(bytes.len() - HEADER_BYTES).is_multiple_of(ENTRY_BYTES) {
            return Err(AclError::Form);
        }
        if bytes.get_u32_le() != VERSION {
            return Err(AclError::Version);
        }
        let mut entries = Vec::with_capacity(bytes.len() / ENTRY_BYTES);
        while bytes.has_remaining() {
            entries.push(decode_entry(&mut bytes).ok_or(AclError::Form)?);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        let acl = Self(entries);
        if acl.is_valid() { Ok(Some(acl)) } else { Err(AclError::Form) }
    }

    /// Encodes the ACL in the kernel's format.
    pub fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::with_capacity(HEADER_BYTES + self.0.len() * ENTRY_BYTES);
        bytes.put_u32_le(VERSION);
        for entry in &self.0 {
            bytes.put_u16_le(entry.tag.code());
            bytes.put_u16_le(entry.permissions);
            bytes.put_u32_le(entry.id);
        }
        bytes.freeze()
    }

    /// Checks that all required entries exist once and in order, with a mask if a user or group is
    /// named.
    fn is_valid(&self) -> bool {
        let mut last = None;
        let in_order = self.0.iter().all(|entry| entry.tag.may_follow(last.replace(entry.tag)));
        let named = self.0.iter().any(|entry| entry.tag.names_somebody());
        in_order && last == Some(Tag::Other) && (!named || self.has(Tag::Mask))
    }

    fn has(&self, tag: Tag) -> bool {
        self.0.iter().any(|entry| entry.tag == tag)
    }

    /// Returns the tag of the entry that the group's permission bits stand for.
    fn group_class(&self) -> Tag {
        if self.has(Tag::Mask) { Tag::Mask } else { Tag::OwningGroup }
    }

    fn permissions(&self, tag: Tag) -> u32 {
        self.0.iter().find(|entry| entry.tag == tag).map_or(0, |entry| entry.permissions.into())
    }

    /// Returns the permission bits that correspond to the ACL, as far as bits can.
    pub fn bits(&self) -> u32 {
        self.permissions(Tag::Owner) << 6 | self.permissions(self.group_class()) << 3 | self.permissions(Tag::Other)
    }

    /// Returns true if the ACL grants a user all of `wants`: one who does not own the file, whose
    /// group is `group`, and who is in the groups that `is_in` says (acl(5), "access check
    /// algorithm").
    pub fn grants(&self, uid: u32, is_in: impl Fn(u32) -> bool, group: u32, wants: u32) -> bool {
        let mask = if self.has(Tag::Mask) { self.permissions(Tag::Mask) } else { PERMISSIONS.into() };
        let is_enough = |entry: &AclEntry| u32::from(entry.permissions) & mask & wants == wants;
        if let Some(named) = self.0.iter().find(|entry| entry.tag == Tag::User && entry.id == uid) {
            return is_enough(named);
        }
        let of_groups = self.0.iter().filter(|entry| match entry.tag {
            Tag::OwningGroup => is_in(group),
            Tag::Group => is_in(entry.id),
            _ => false,
        });
        let mut of_groups = of_groups.peekable();
        // A single entry must grant everything.
        match of_groups.peek() {
            Some(_) => of_groups.any(is_enough),
            None => self.permissions(Tag::Other) & wants == wants,
        }
    }

    /// Returns true if the permission bits express the whole ACL.
    pub fn is_only_bits(&self) -> bool {
        self.0.iter().all(|entry| matches!(entry.tag, Tag::Owner | Tag::OwningGroup | Tag::Other))
    }

    /// Returns the ACL after a chmod.
    #[must_use]
    pub fn with_bits(self, bits: u32) -> Self {
        self.changed(|_, class| class_of(bits, class))
    }

    /// Returns the ACL restricted to these bits, for a new inode.
    #[must_use]
    pub fn at_most(self, bits: u32) -> Self {
        self.changed(|had, class| had & class_of(bits, class))
    }

    /// Changes the entries that permission bits stand for. `change` gets an entry's permissions and
    /// the shift of its bits.
    fn changed(mut self, change: impl Fn(u16, u32) -> u16) -> Self {
        let group_class = self.group_class();
        for entry in &mut self.0 {
            let shift = match entry.tag {
                Tag::Owner => 6,
                Tag::Other => 0,
                tag if tag == group_class => 3,
                _ => continue,
            };
            entry.permissions = change(entry.permissions, shift);
        }
        self
    }
}

fn decode_entry(bytes: &mut &[u8]) -> Option<AclEntry> {
    let (tag, permissions, id) = (Tag::of(bytes.get_u16_le())?, bytes.get_u16_le(), bytes.get_u32_le());
    let id = if tag.names_somebody() { id } else { NOBODY };
    let possible = permissions & !PERMISSIONS == 0 && (!tag.names_somebody() || id != NOBODY);
    possible.then_some(AclEntry { tag, permissions, id })
}

/// Returns the three bits of a class from the mode.
fn class_of(bits: u32, shift: u32) -> u16 {
    let class = (bits >> shift) & u32::from(PERMISSIONS);
    u16::try_from(class).expect("three bits")
}
