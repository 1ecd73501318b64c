//! Permission checks on a path: decides whether a directory certainly lets a user through, and
//! resolves an open by name if it is certainly allowed.

use crate::{
    Partition,
    inode::{Inode, InodeBody},
};
use placement::FileId;
use wire::{
    ACL_ACCESS, Command, Credentials, DirAccess,
    credentials::{READ, WRITE},
};

impl Partition {
    /// Returns true if a directory of this partition certainly grants a user the needed access.
    pub fn permits(&self, directory: FileId, who: &Credentials, needs: DirAccess) -> bool {
        let inode = self.inode(directory).ok().filter(|inode| matches!(inode.body, InodeBody::Directory(_)));
        inode.is_some_and(|inode| who.mode_allows(needs, (inode.mode, inode.owner), has_acl(inode)))
    }

    /// Replaces an open by name with the open of the file, if it is a regular file here and
    /// certainly open to the user (if one is given), else with a lookup. Returns any other command
    /// unchanged.
    pub fn resolve_open(&self, command: Command, who: Option<&Credentials>) -> Command {
        let Command::OpenName { parent, name, flags, extent } = command else { return command };
        let wants = if flags.read { READ } else { 0 } | if flags.write || flags.truncate { WRITE } else { 0 };
        let found = self.entry(parent, &name).map(|entry| entry.file);
        let opened = found.ok().filter(|file| {
            let inode = self.inode(*file).ok().filter(|inode| matches!(inode.body, InodeBody::File(_)));
            let is_open_to =
                |inode: &Inode, who: &Credentials| who.mode_grants(wants, (inode.mode, inode.owner), has_acl(inode));
            inode.is_some_and(|inode| who.is_none_or(|who| is_open_to(inode, who)))
        });
        match opened {
            Some(file) if self.intents.is_empty() => Command::Open { file, flags, extent },
            _ => Command::Lookup { parent, name },
        }
    }
}

fn has_acl(inode: &Inode) -> bool {
    inode.xattr(ACL_ACCESS).is_some()
}
