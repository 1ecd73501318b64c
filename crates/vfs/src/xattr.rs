//! Extended attributes, including ACLs, in the kernel's encoding.

use crate::Vfs;
use bytes::Bytes;
use placement::FileId;
use wire::{Outcome, XattrMode};

impl Vfs {
    /// Value of an extended attribute. Refused with `NoAttribute` if it does not exist.
    pub fn xattr(&self, file: FileId, name: &[u8]) -> impl Future<Output = Outcome<Bytes>> + Send + use<> {
        let (client, name) = (self.client.clone(), Bytes::copy_from_slice(name));
        async move { client.xattr(file, name).await }
    }

    /// Names of all extended attributes.
    pub fn xattrs(&self, file: FileId) -> impl Future<Output = Outcome<Vec<Bytes>>> + Send + use<> {
        let client = self.client.clone();
        async move { client.xattrs(file).await }
    }

    /// Sets an extended attribute of the namespaces `user.`, `trusted.` and `security.`, or an ACL.
    /// An access ACL sets the permission bits too; with `kill_set_group_id` it also clears the
    /// set-group-id bit, for a caller who is not in the file's group.
    pub fn set_xattr(
        &self,
        file: FileId,
        name: &[u8],
        value: Bytes,
        mode: XattrMode,
        kill_set_group_id: bool,
    ) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let (client, name) = (self.client.clone(), Bytes::copy_from_slice(name));
        async move { client.set_xattr(file, name, value, mode, kill_set_group_id).await }
    }

    /// Removes an extended attribute. Refused with `NoAttribute` if it does not exist.
    pub fn remove_xattr(&self, file: FileId, name: &[u8]) -> impl Future<Output = Outcome<()>> + Send + use<> {
        let (client, name) = (self.client.clone(), Bytes::copy_from_slice(name));
        async move { client.remove_xattr(file, name).await }
    }
}
