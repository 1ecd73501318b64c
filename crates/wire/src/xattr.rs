//! Extended attributes: names to bytes, with the limits of Linux.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// The longest name of an extended attribute, bytes (`XATTR_NAME_MAX`).
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// The longest value of an extended attribute, bytes (`XATTR_SIZE_MAX`).
pub const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;
/// The longest list of all names of an inode, each with its NUL, bytes (`XATTR_LIST_MAX`).
pub const XATTR_LIST_BYTES_MAX: usize = 64 << 10;
/// The attribute that holds who may use a file, as the kernel encodes it.
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute of a directory that holds what it hands down to what is made in it.
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

/// The attribute that says where bytes lie: a [`placement::Policy`] as text.
pub const PLACEMENT: &[u8] = b"user.tidemill.placement";
/// The attribute that says how long stripes are: a [`placement::StripeSize`] as text.
pub const STRIPE_SIZE: &[u8] = b"user.tidemill.stripe_size";
/// The attribute in which a client shows where the bytes of a file are. No partition has it.
pub const LOCATE: &[u8] = b"user.tidemill.locate";
/// The element type of an object that was put as an array: `NumPy`'s description of a dtype, as JSON.
pub const DTYPE: &[u8] = b"user.tidemill.dtype";
/// The shape of an object that was put as an array: a JSON list of lengths.
pub const SHAPE: &[u8] = b"user.tidemill.shape";
/// The names of [`OWN_NAMES`] that describe bytes, and that anybody who may write the file may set.
pub const DESCRIPTIONS: [&[u8]; 2] = [DTYPE, SHAPE];
/// How names begin that only we give a meaning.
pub const OWN_NAMES: &[u8] = b"user.tidemill.";

/// Attributes that an object is put with: names, with their namespace, and values.
pub type ObjectAttributes = Box<[(Bytes, Bytes)]>;
/// An object is put with at most so many attributes.
pub const OBJECT_ATTRIBUTES_MAX: usize = 16;

/// What setting an extended attribute does with one that is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum XattrMode {
    /// Makes or replaces it.
    #[default]
    Set,
    /// Refuses with `Exists` (`XATTR_CREATE`).
    Create,
    /// Refuses with `NoAttribute` where there is none (`XATTR_REPLACE`).
    Replace,
}
