//! Operations on one inode: extended attributes, locks, unnamed files. Each is one message to the
//! inode's partition.

use crate::{Client, files::OpenedInode};
use bytes::Bytes;
use placement::FileId;
use wire::{Command, LOCATE, Name, NewInode, OpenedFile, Outcome, Refusal, USAGE, XattrMode};

impl Client {
    /// The value of an extended attribute. [`LOCATE`] is computed: where the bytes of a file are;
    /// for a directory, where those of a new file would be. So is [`USAGE`]: what is below a
    /// directory.
    pub async fn xattr(&self, file: FileId, name: Bytes) -> Outcome<Bytes> {
        if name == LOCATE {
            return Ok(Box::pin(self.location_text(file)).await?.into());
        }
        if name == USAGE {
            return Ok(Box::pin(self.subtree_usage(file)).await?.text().into());
        }
        self.query(file.partition(), Command::xattr(file, name)).await
    }

    /// The names of all extended attributes.
    pub async fn xattrs(&self, file: FileId) -> Outcome<Vec<Bytes>> {
        self.query(file.partition(), Command::xattrs(file)).await
    }

    /// Sets an extended attribute; an access ACL sets the permission bits too.
    pub async fn set_xattr(
        &self,
        file: FileId,
        name: Bytes,
        value: Bytes,
        mode: XattrMode,
        kill_set_group_id: bool,
    ) -> Outcome<()> {
        self.check_nodes(file, &name, &value)?;
        let (attribute, given) = (name.clone(), value.clone());
        let set = Command::set_xattr(file, name, value, mode, kill_set_group_id);
        match self.mutate(file.partition(), set).await {
            Err(Refusal::Split { directory, .. }) => {
                Box::pin(self.set_xattr_split(directory, attribute, Some(given), kill_set_group_id)).await
            }
            outcome => outcome,
        }
    }

    /// Removes an extended attribute.
    pub async fn remove_xattr(&self, file: FileId, name: Bytes) -> Outcome<()> {
        match self.mutate(file.partition(), Command::remove_xattr(file, name.clone())).await {
            Err(Refusal::Split { directory, .. }) => Box::pin(self.set_xattr_split(directory, name, None, false)).await,
            outcome => outcome,
        }
    }

    /// Makes and opens an unnamed file that inherits from `parent`. `name` is the name that it will
    /// get, if that is known.
    pub async fn create_unnamed(
        &self,
        parent: FileId,
        name: Option<Name>,
        inode: NewInode,
        linkable: bool,
    ) -> Outcome<OpenedInode> {
        let create = Command::create_tmpfile(parent, name, inode, linkable);
        let OpenedFile { attributes, host, shared, .. } = self.mutate(parent.partition(), create).await?;
        Ok(OpenedInode { attributes, host, shared })
    }
}
