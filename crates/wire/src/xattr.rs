//! Extended attributes and their limits in Linux.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Maximum length of an extended attribute's name, bytes (`XATTR_NAME_MAX`).
pub const XATTR_NAME_BYTES_MAX: usize = 255;
/// Maximum length of an extended attribute's value, bytes (`XATTR_SIZE_MAX`).
pub const XATTR_VALUE_BYTES_MAX: usize = 64 << 10;
/// Maximum length of the list of an inode's names, each with its NUL, bytes (`XATTR_LIST_MAX`).
pub const XATTR_LIST_BYTES_MAX: usize = 64 << 10;
/// The access ACL of a file, in the kernel's encoding.
pub const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// The default ACL of a directory, which new inodes in it inherit.
pub const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

/// Placement of the bytes: a [`placement::Policy`] as text.
pub const PLACEMENT: &[u8] = b"user.tidemill.placement";
/// Stripe size: a [`placement::StripeSize`] as text.
pub const STRIPE_SIZE: &[u8] = b"user.tidemill.stripe_size";
/// Virtual attribute in which a client shows the location of a file's bytes. No partition stores
/// it.
pub const LOCATE: &[u8] = b"user.tidemill.locate";
/// Virtual attribute in which a client shows what is below a directory. No partition stores it.
pub const USAGE: &[u8] = b"user.tidemill.usage";
/// Element type of an object that was put as an array: `NumPy`'s description of a dtype, as JSON.
pub const DTYPE: &[u8] = b"user.tidemill.dtype";
/// Shape of an object that was put as an array: a JSON list of lengths.
pub const SHAPE: &[u8] = b"user.tidemill.shape";
/// The attributes within [`OWN_NAMES`] that describe bytes. Any user who may write the file may set
/// them.
pub const DESCRIPTIONS: [&[u8]; 2] = [DTYPE, SHAPE];
/// Name prefix of the attributes that Tidemill interprets.
pub const OWN_NAMES: &[u8] = b"user.tidemill.";

/// Extended attributes of a new object: names, with their namespace, and values.
pub type ObjectAttributes = Box<[(Bytes, Bytes)]>;
/// Maximum number of extended attributes in a put.
pub const OBJECT_ATTRIBUTES_MAX: usize = 16;

/// Behavior of a set if the attribute exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum XattrMode {
    /// Creates or replaces it.
    #[default]
    Set,
    /// Refuses with `Exists` if it exists (`XATTR_CREATE`).
    Create,
    /// Refuses with `NoAttribute` if it does not exist (`XATTR_REPLACE`).
    Replace,
}
