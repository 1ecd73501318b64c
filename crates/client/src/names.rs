//! Names: looking up, listing, making and removing, also over two partitions.

use crate::{Client, client::unexpected, files::Opened, route::directory_partition};
use placement::{FileId, PartitionId};
use wire::{
    Answer, Attributes, Command, DirEntry, Heritage, Kind, LIST_ENTRIES_MAX, Mode, Name, NewInode, NewKind, Object,
    Outcome, Owner, Refusal, Wish,
};

impl Client {
    /// The attributes of an entry: one message, or two when the inode is in another partition.
    pub async fn lookup(&self, parent: FileId, name: &Name) -> Outcome<Attributes> {
        match self.find(parent, name).await? {
            (_, _, Some(attributes)) => Ok(attributes),
            (file, _, None) => self.stat(file).await.map_err(|refusal| named(refusal, parent, name)),
        }
    }

    /// What an entry refers to, with its attributes when they are in the same partition.
    pub(crate) async fn find(&self, parent: FileId, name: &Name) -> Outcome<(FileId, Kind, Option<Attributes>)> {
        match self.ask(parent.partition(), Command::Lookup { parent, name: name.clone() }).await? {
            Answer::Found { file, kind, attributes } => Ok((file, kind, attributes)),
            other => Err(unexpected(&other)),
        }
    }

    /// The attributes of a file.
    pub async fn stat(&self, file: FileId) -> Outcome<Attributes> {
        self.attributes(file.partition(), Command::Stat { file }).await
    }

    async fn attributes(&self, partition: PartitionId, command: Command) -> Outcome<Attributes> {
        match self.ask(partition, command).await? {
            Answer::Attributes(attributes) => Ok(attributes),
            other => Err(unexpected(&other)),
        }
    }

    /// Entries behind the cookie `after` (0: from the start), at most `max`; none at the end.
    pub async fn list(&self, directory: FileId, after: u64, max: usize) -> Outcome<Vec<DirEntry>> {
        let max = u32::try_from(max).unwrap_or(LIST_ENTRIES_MAX);
        match self.ask(directory.partition(), Command::List { directory, after, max }).await? {
            Answer::Entries(entries) => Ok(entries),
            other => Err(unexpected(&other)),
        }
    }

    /// The target of a symbolic link.
    pub async fn read_link(&self, file: FileId) -> Outcome<Vec<u8>> {
        match self.ask(file.partition(), Command::ReadLink { file }).await? {
            Answer::Target(target) => Ok(target.into()),
            other => Err(unexpected(&other)),
        }
    }

    /// The directory above a directory.
    pub async fn parent(&self, directory: FileId) -> Outcome<FileId> {
        match self.ask(directory.partition(), Command::Parent { directory }).await? {
            Answer::Parent(parent) => Ok(parent),
            other => Err(unexpected(&other)),
        }
    }

    /// Makes an inode beside its entry, and opens it if `open`. One message. For a directory use [`Self::make_directory`].
    pub async fn create(
        &self,
        parent: FileId,
        name: &Name,
        inode: NewInode,
        open: bool,
        whole: Wish,
    ) -> Outcome<Opened> {
        let command = Command::Create { parent, name: name.clone(), inode, open, whole };
        match self.change(parent.partition(), command).await? {
            Answer::Opened { attributes, host, shared, .. } => Ok(Opened { attributes, host, shared }),
            other => Err(unexpected(&other)),
        }
    }

    /// Makes a directory, in the partition that a hash of its place gives: the inode first, then the entry.
    pub async fn make_directory(&self, parent: FileId, name: &Name, mode: Mode, owner: Owner) -> Outcome<Attributes> {
        let home = directory_partition(self.0.seed, parent, name, self.0.partitions);
        let inode = NewInode::new(NewKind::Directory, mode, owner);
        if home == parent.partition() {
            return Ok(self.create(parent, name, inode, false, Wish::No).await?.attributes);
        }
        let probe = Command::Probe { parent, name: name.clone() };
        let heritage = match self.ask(parent.partition(), probe).await? {
            Answer::Heritage(heritage) => heritage,
            other => return Err(unexpected(&other)),
        };
        let made = self.make_inode(home, parent, inode, heritage).await?;
        let entered = Command::Enter { parent, name: name.clone(), file: made.file, kind: Kind::Directory };
        if let Err(refusal) = self.change(parent.partition(), entered).await {
            self.undo(&refusal, home, Command::DropDirectory { directory: made.file }).await;
            return Err(refusal);
        }
        Ok(made)
    }

    async fn make_inode(
        &self,
        home: PartitionId,
        parent: FileId,
        inode: NewInode,
        heritage: Heritage,
    ) -> Outcome<Attributes> {
        match self.change(home, Command::MakeDirectory { parent, inode, heritage }).await? {
            Answer::Attributes(attributes) => Ok(attributes),
            other => Err(unexpected(&other)),
        }
    }

    /// Gives a file one more name.
    #[expect(clippy::unused_async, reason = "it will ask its partitions")]
    pub async fn link(&self, file: FileId, parent: FileId, name: &Name) -> Outcome<Attributes> {
        let _ = (file, parent);
        Err(Refusal::Unsupported { object: Object::text(name.as_bytes()), what: "a hard link".into() })
    }

    /// Removes the entry of anything but a directory. One message, unless stripes or an inode elsewhere are to be removed.
    pub async fn unlink(&self, parent: FileId, name: &Name) -> Outcome<()> {
        match self.change(parent.partition(), Command::Unlink { parent, name: name.clone() }).await? {
            Answer::Removed { gone, elsewhere } => {
                self.purge(gone).await;
                if let Some(file) = elsewhere {
                    self.drop_elsewhere(file, Kind::File).await;
                }
                Ok(())
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Removes an empty directory: one message when its inode is beside its entry, else it is sealed first.
    pub async fn remove_directory(&self, parent: FileId, name: &Name) -> Outcome<()> {
        match self.change(parent.partition(), Command::RemoveDirectory { parent, name: name.clone() }).await? {
            Answer::Removed { .. } => Ok(()),
            Answer::Elsewhere(directory) => self.remove_sealed(parent, name, directory).await,
            other => Err(unexpected(&other)),
        }
    }

    /// The directory is sealed, its entry removed, then it is dropped; a refused step unseals it.
    async fn remove_sealed(&self, parent: FileId, name: &Name, directory: FileId) -> Outcome<()> {
        let mark = self.seal(directory).await.map_err(|refusal| named(refusal, parent, name))?;
        let command = Command::RemoveEntry { parent, name: name.clone(), directory };
        if let Err(refusal) = self.change(parent.partition(), command).await {
            self.undo(&refusal, directory.partition(), Command::Unseal { directory, mark }).await;
            return Err(refusal);
        }
        self.drop_elsewhere(directory, Kind::Directory).await;
        Ok(())
    }

    /// An empty directory takes no more entries.
    pub(crate) async fn seal(&self, directory: FileId) -> Outcome<u64> {
        match self.change(directory.partition(), Command::Seal { directory }).await? {
            Answer::Sealed { mark } => Ok(mark),
            other => Err(unexpected(&other)),
        }
    }
}

/// Names the entry in a refusal about the inode behind it: one that was removed between two messages, or holds entries.
pub(crate) fn named(refusal: Refusal, parent: FileId, name: &Name) -> Refusal {
    match refusal {
        Refusal::NotFound(_) => Refusal::NotFound(Object::entry(parent, name)),
        Refusal::NotEmpty(_) => Refusal::NotEmpty(Object::entry(parent, name)),
        other => other,
    }
}
