//! Operations on one inode: extended attributes, locks, unnamed files. Each is one message to the
//! inode's partition.

use crate::{Client, client::unexpected_answer, files::OpenedInode};
use bytes::Bytes;
use placement::FileId;
use wire::{Answer, Command, LOCATE, Lock, Name, NewInode, Outcome, Refusal, XattrMode};

impl Client {
    /// The value of an extended attribute. [`LOCATE`] is computed: where the bytes of a file are;
    /// for a directory, where those of a new file would be.
    pub async fn xattr(&self, file: FileId, name: Bytes) -> Outcome<Bytes> {
        if name == LOCATE {
            return Ok(Box::pin(self.location_text(file)).await?.into());
        }
        match self.query(file.partition(), Command::Xattr { file, name }).await? {
            Answer::Xattr(value) => Ok(value),
            other => Err(unexpected_answer(&other)),
        }
    }

    /// The names of all extended attributes.
    pub async fn xattrs(&self, file: FileId) -> Outcome<Vec<Bytes>> {
        match self.query(file.partition(), Command::Xattrs { file }).await? {
            Answer::Xattrs(names) => Ok(names),
            other => Err(unexpected_answer(&other)),
        }
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
        let command = Command::SetXattr { file, name, value, mode, kill_set_group_id };
        match self.mutate(file.partition(), command).await {
            Err(Refusal::Split { directory, .. }) => {
                Box::pin(self.set_xattr_split(directory, attribute, Some(given), kill_set_group_id)).await
            }
            outcome => outcome.map(drop),
        }
    }

    /// Removes an extended attribute.
    pub async fn remove_xattr(&self, file: FileId, name: Bytes) -> Outcome<()> {
        match self.mutate(file.partition(), Command::RemoveXattr { file, name: name.clone() }).await {
            Err(Refusal::Split { directory, .. }) => Box::pin(self.set_xattr_split(directory, name, None, false)).await,
            outcome => outcome.map(drop),
        }
    }

    /// A lock that conflicts with this one, if any.
    pub async fn test_lock(&self, file: FileId, lock: Lock) -> Outcome<Option<Lock>> {
        let session = self.session();
        match self.query(file.partition(), Command::TestLock { file, session, lock }).await? {
            Answer::Conflict(lock) => Ok(lock),
            other => Err(unexpected_answer(&other)),
        }
    }

    /// Sets or removes a lock. With `wait` it waits until the lock can be set; dropped before that,
    /// it leaves nothing behind.
    pub async fn lock(&self, file: FileId, lock: Lock, wait: bool) -> Outcome<()> {
        self.mutate(file.partition(), Command::Lock { file, lock, wait }).await.map(drop)
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
        let command = Command::CreateTmpfile { parent, name, inode, linkable };
        match self.mutate(parent.partition(), command).await? {
            Answer::Opened { attributes, host, shared, .. } => Ok(OpenedInode { attributes, host, shared }),
            other => Err(unexpected_answer(&other)),
        }
    }
}
