//! Extended attributes of an inode, including ACLs.
//!
//! The access ACL and the permission bits are kept consistent here. The kernel itself checks who
//! may set an attribute, and that `user.` attributes are only on files and directories. The latter
//! is checked again for callers in this process.

use crate::{Partition, apply::CommandContext, inode::Inode, memory_cost, placement_request::PlacementAttr};
use bytes::Bytes;
use placement::FileId;
use serde::{Deserialize, Serialize};
use wire::{
    ACL_ACCESS, ACL_DEFAULT, Acl, AclError, Answer, DESCRIPTIONS, Kind, OWN_NAMES, Object, ObjectAttributes, Outcome,
    PLACEMENT, Refusal, SET_GROUP_ID, STRIPE_SIZE, Timestamp, XATTR_LIST_BYTES_MAX, XATTR_NAME_BYTES_MAX,
    XATTR_VALUE_BYTES_MAX, XattrMode,
};

/// Capabilities of a program. Linux removes them when the bytes or the owner change.
const CAPABILITY: &[u8] = b"security.capability";
/// The set-user-id bit.
const SET_USER_ID: u32 = 0o4000;
/// Execute permission of the group.
const GROUP_MAY_RUN: u32 = 0o010;
/// Permission bits that an ACL covers.
const ACL_BITS: u32 = 0o777;

/// A short list of names and values, ordered by name.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Xattrs(Vec<(Bytes, Bytes)>);

impl Xattrs {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, name: &[u8]) -> Option<&Bytes> {
        self.find(name).ok().map(|at| &self.0[at].1)
    }

    pub fn put(&mut self, name: Bytes, value: Bytes) {
        match self.find(&name) {
            Ok(at) => self.0[at].1 = value,
            Err(at) => self.0.insert(at, (name, value)),
        }
    }

    /// Removes an attribute; returns true if it existed.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        self.find(name).is_ok_and(|at| {
            self.0.remove(at);
            true
        })
    }

    pub fn names(&self) -> impl Iterator<Item = &Bytes> {
        self.0.iter().map(|(name, _)| name)
    }

    /// Returns the memory cost, bytes.
    pub fn memory_cost(&self) -> u64 {
        self.0.iter().map(|(name, value)| memory_cost::xattr(name, value)).sum()
    }

    fn find(&self, name: &[u8]) -> Result<usize, usize> {
        self.0.binary_search_by(|(held, _)| held.as_ref().cmp(name))
    }
}

/// Kind of an attribute, by its name.
enum AttrKind {
    Plain,
    AccessAcl,
    DefaultAcl,
    Placement(PlacementAttr),
    /// A reserved name that no inode has.
    Reserved,
}

/// Returns true if the attribute is inherited, or may derive from one that is: fragments of a
/// directory store it too.
pub fn is_inheritable(name: &[u8]) -> bool {
    matches!(name, ACL_ACCESS | ACL_DEFAULT) || placement_attr(name).is_some()
}

/// Returns the placement attribute of this name.
pub fn placement_attr(name: &[u8]) -> Option<PlacementAttr> {
    match name {
        PLACEMENT => Some(PlacementAttr::Policy),
        STRIPE_SIZE => Some(PlacementAttr::StripeSize),
        _ => None,
    }
}

/// Refuses a value that is too long.
fn check_length(file: FileId, value: &[u8]) -> Outcome<()> {
    if value.len() > XATTR_VALUE_BYTES_MAX {
        return Err(Refusal::AttributeTooLong { object: Object::File(file), limit: XATTR_VALUE_BYTES_MAX });
    }
    Ok(())
}

/// Returns the kind of an attribute; refuses an invalid name.
fn attr_kind(file: FileId, name: &[u8]) -> Outcome<AttrKind> {
    let object = || Object::File(file);
    if name.len() > XATTR_NAME_BYTES_MAX {
        return Err(Refusal::AttributeTooLong { object: object(), limit: XATTR_NAME_BYTES_MAX });
    }
    let spaces = [&b"user."[..], b"trusted.", b"security."];
    match name {
        ACL_ACCESS => Ok(AttrKind::AccessAcl),
        ACL_DEFAULT => Ok(AttrKind::DefaultAcl),
        _ if DESCRIPTIONS.contains(&name) => Ok(AttrKind::Plain),
        _ if name.starts_with(OWN_NAMES) => Ok(placement_attr(name).map_or(AttrKind::Reserved, AttrKind::Placement)),
        _ if spaces.contains(&name) || name.contains(&0) => {
            Err(Refusal::invalid(object(), "an attribute needs a name"))
        }
        _ if spaces.iter().any(|space| name.starts_with(space)) => Ok(AttrKind::Plain),
        _ => Err(Refusal::Unsupported { object: object(), what: "an attribute of this namespace".into() }),
    }
}

impl Partition {
    pub(crate) fn xattr(&mut self, _: CommandContext, file: FileId, name: Bytes) -> Outcome<Answer> {
        let inode = self.inode(file)?;
        let value = match attr_kind(file, &name)? {
            AttrKind::Placement(which) => inode.placement_value(which),
            _ => inode.xattr(&name).cloned(),
        };
        value.map(Answer::Xattr).ok_or(Refusal::NoAttribute(Object::File(file)))
    }

    pub(crate) fn xattrs(&mut self, _: CommandContext, file: FileId) -> Outcome<Answer> {
        let inode = self.inode(file)?;
        let held = inode.rare.iter().flat_map(|rare| rare.xattrs.names().cloned());
        Ok(Answer::Xattrs(held.chain(inode.placement_names()).collect()))
    }

    pub(crate) fn set_xattr(
        &mut self,
        context: CommandContext,
        file: FileId,
        name: Bytes,
        value: Bytes,
        mode: XattrMode,
        kill_set_group_id: bool,
    ) -> Outcome<Answer> {
        self.check_xattr_changeable(file, &name, (true, mode))?;
        self.set_checked_xattr(file, (name, value), mode, kill_set_group_id, context.now)
    }

    fn set_checked_xattr(
        &mut self,
        file: FileId,
        (name, value): (Bytes, Bytes),
        mode: XattrMode,
        kill_set_group_id: bool,
        now: Timestamp,
    ) -> Outcome<Answer> {
        check_length(file, &value)?;
        let settings = *self.settings();
        self.edit(file, |inode| {
            match attr_kind(file, &name)? {
                AttrKind::Plain => inode.set_plain(file, name, value, mode)?,
                AttrKind::AccessAcl => inode.set_access_acl(file, &value, kill_set_group_id)?,
                AttrKind::DefaultAcl => inode.set_default_acl(file, &value)?,
                AttrKind::Placement(which) => inode.set_placement(&settings, file, which, Some(&value))?,
                AttrKind::Reserved => return Err(Refusal::NotPermitted(Object::File(file))),
            }
            inode.changed = now;
            inode.marks.outdated = true;
            Ok(Answer::Done)
        })
    }

    /// As [`Self::check_changeable`], but only for inheritable attributes: fragments store no
    /// others. Also checks the placement mode, because only the directory itself knows which values
    /// were set on it.
    fn check_xattr_changeable(&self, file: FileId, name: &[u8], (sets, mode): (bool, XattrMode)) -> Outcome<()> {
        if !is_inheritable(name) {
            return Ok(());
        }
        if let Some(attr) = placement_attr(name) {
            self.inode(file)?.check_placement_mode(file, attr, (sets, mode))?;
        }
        self.check_changeable(file)
    }

    /// Sets or removes an inheritable attribute that was checked.
    pub(crate) fn set_inheritable(
        &mut self,
        file: FileId,
        name: Bytes,
        value: Option<Bytes>,
        kill_set_group_id: bool,
        now: Timestamp,
    ) -> Outcome<()> {
        match value {
            Some(value) => {
                self.set_checked_xattr(file, (name, value), XattrMode::Set, kill_set_group_id, now).map(drop)
            }
            None => self.remove_checked_xattr(file, &name, now).map(drop),
        }
    }

    pub(crate) fn remove_xattr(&mut self, context: CommandContext, file: FileId, name: Bytes) -> Outcome<Answer> {
        self.check_xattr_changeable(file, &name, (false, XattrMode::Set))?;
        self.remove_checked_xattr(file, &name, context.now)
    }

    fn remove_checked_xattr(&mut self, file: FileId, name: &[u8], now: Timestamp) -> Outcome<Answer> {
        let settings = *self.settings();
        self.edit(file, |inode| {
            let removed = match attr_kind(file, name)? {
                AttrKind::Placement(which) => {
                    inode.set_placement(&settings, file, which, None)?;
                    true
                }
                AttrKind::Plain | AttrKind::Reserved if !inode.remove_xattr(name) => {
                    return Err(Refusal::NoAttribute(Object::File(file)));
                }
                AttrKind::Plain | AttrKind::Reserved => true,
                AttrKind::AccessAcl | AttrKind::DefaultAcl => inode.remove_xattr(name),
            };
            if removed {
                inode.changed = now;
                inode.marks.outdated = true;
            }
            Ok(Answer::Done)
        })
    }
}

impl Inode {
    pub fn xattr(&self, name: &[u8]) -> Option<&Bytes> {
        self.rare.as_ref()?.xattrs.get(name)
    }

    pub fn put_xattr(&mut self, name: &'static [u8], value: Bytes) {
        self.rare_attributes_mut().xattrs.put(Bytes::from_static(name), value);
    }

    /// Sets the attributes of a new object, which is put into this directory.
    pub fn describe(&mut self, parent: FileId, attributes: ObjectAttributes) -> Outcome<()> {
        for (name, value) in attributes {
            check_length(parent, &value)?;
            match attr_kind(parent, &name)? {
                AttrKind::Plain if name.starts_with(b"user.") => self.set_plain(parent, name, value, XattrMode::Set)?,
                _ => return Err(Refusal::NotPermitted(Object::File(parent))),
            }
        }
        Ok(())
    }

    fn remove_xattr(&mut self, name: &[u8]) -> bool {
        let removed = self.rare.as_mut().is_some_and(|rare| rare.xattrs.remove(name));
        self.free_empty_rare_attributes();
        removed
    }

    fn set_plain(&mut self, file: FileId, name: Bytes, value: Bytes, mode: XattrMode) -> Outcome<()> {
        let object = || Object::File(file);
        if name.starts_with(b"user.") && !matches!(self.kind(), Kind::File | Kind::Directory) {
            return Err(Refusal::NotPermitted(object()));
        }
        match (mode, self.xattr(&name).is_some()) {
            (XattrMode::Create, true) => return Err(Refusal::Exists(object())),
            (XattrMode::Replace, false) => return Err(Refusal::NoAttribute(object())),
            (_, false) => self.check_listable(file, &name)?,
            _ => {}
        }
        self.rare_attributes_mut().xattrs.put(name, value);
        Ok(())
    }

    /// Checks that one more name fits into a listing.
    pub fn check_listable(&self, file: FileId, name: &[u8]) -> Outcome<()> {
        let fits = self.xattr_list_bytes() + name.len() < XATTR_LIST_BYTES_MAX;
        if fits { Ok(()) } else { Err(Refusal::TooManyAttributes(Object::File(file))) }
    }

    /// Returns the length of a listing of the names, each with its NUL.
    fn xattr_list_bytes(&self) -> usize {
        let held = self.rare.iter().flat_map(|rare| rare.xattrs.names()).map(|name| name.len() + 1);
        held.chain(self.placement_names().map(|name| name.len() + 1)).sum()
    }

    fn set_access_acl(&mut self, file: FileId, value: &[u8], kill_set_group_id: bool) -> Outcome<()> {
        let acl = self.decoded(file, value)?;
        if let Some(acl) = &acl {
            self.mode = self.mode & !ACL_BITS | acl.bits();
            self.mode &= if kill_set_group_id { !SET_GROUP_ID } else { !0 };
        }
        match acl.filter(|acl| !acl.is_only_bits()) {
            Some(acl) => self.put_xattr(ACL_ACCESS, acl.encode()),
            None => drop(self.remove_xattr(ACL_ACCESS)),
        }
        Ok(())
    }

    /// Checks that a directory may pass on this value.
    pub fn check_inheritable(&self, file: FileId, name: &[u8], value: Option<&[u8]>) -> Outcome<()> {
        check_length(file, value.unwrap_or_default())?;
        match (attr_kind(file, name)?, value) {
            (AttrKind::Placement(which), _) => self.check_placement(file, which, value).map(drop),
            (AttrKind::AccessAcl | AttrKind::DefaultAcl, None) => Ok(()),
            (AttrKind::AccessAcl | AttrKind::DefaultAcl, Some(value)) => self.decoded(file, value).map(drop),
            (AttrKind::Plain | AttrKind::Reserved, _) => {
                Err(Refusal::invalid(Object::File(file), "it is not handed down"))
            }
        }
    }

    fn set_default_acl(&mut self, file: FileId, value: &[u8]) -> Outcome<()> {
        match self.decoded(file, value)? {
            Some(_) if self.kind() != Kind::Directory => Err(Refusal::NotPermitted(Object::File(file))),
            Some(acl) => {
                self.put_xattr(ACL_DEFAULT, acl.encode());
                Ok(())
            }
            None => {
                self.remove_xattr(ACL_DEFAULT);
                Ok(())
            }
        }
    }

    fn decoded(&self, file: FileId, value: &[u8]) -> Outcome<Option<Acl>> {
        let unsupported = |what: &'static str| Refusal::Unsupported { object: Object::File(file), what: what.into() };
        if self.kind() == Kind::Symlink {
            return Err(unsupported("an ACL of a symbolic link"));
        }
        Acl::decode(value).map_err(|wrong| match wrong {
            AclError::Version => unsupported("this version of ACLs"),
            AclError::Form => Refusal::invalid(Object::File(file), "not a valid access control list"),
        })
    }

    /// Sets the permission bits, and updates the access ACL to match.
    pub fn set_mode(&mut self, bits: u32) {
        self.mode = bits & 0o7777;
        let acl = self.xattr(ACL_ACCESS).and_then(|value| Acl::decode(value).ok().flatten());
        if let Some(acl) = acl {
            self.put_xattr(ACL_ACCESS, acl.with_bits(bits).encode());
        }
    }

    /// Drops privileges because the bytes change: capabilities, and the set-id bits if `set_id`,
    /// for a caller that is not privileged.
    pub fn lose_privileges(&mut self, set_id: bool) {
        self.lose(if set_id { SET_USER_ID | SET_GROUP_ID } else { 0 });
    }

    /// Drops privileges because the owner changes. The set-group-id bit of a file that the group
    /// may not execute has another meaning and stays.
    pub fn lose_owners_privileges(&mut self, set_id: bool) {
        let group = if self.mode & GROUP_MAY_RUN == 0 { 0 } else { SET_GROUP_ID };
        self.lose(if set_id { SET_USER_ID | group } else { 0 });
    }

    fn lose(&mut self, bits: u32) {
        if self.rare.is_some() {
            self.remove_xattr(CAPABILITY);
        }
        if self.kind() != Kind::Directory {
            self.mode &= !bits;
        }
    }
}
