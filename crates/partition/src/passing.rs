//! Whether a directory lets a user through, and what a name that is to be opened refers to, as far as that is sure here.

use crate::{
    Partition,
    inode::{Body, Inode},
};
use placement::FileId;
use wire::{
    ACL_ACCESS, Command, Credentials, Needs,
    credentials::{READ, WRITE},
};

impl Partition {
    /// Whether a directory of this partition surely lets a user do in it what is needed there.
    pub fn lets(&self, directory: FileId, who: &Credentials, needs: Needs) -> bool {
        let inode = self.inode(directory).ok().filter(|inode| matches!(inode.body, Body::Directory(_)));
        inode.is_some_and(|inode| who.surely_does(needs, (inode.mode, inode.owner), has_acl(inode)))
    }

    /// The open that a name leads to, where that is a file, here, and surely open to the user, if one is to be asked for; else the look at it. Any other
    /// command is what it was.
    pub fn resolved(&self, command: Command, who: Option<&Credentials>) -> Command {
        let Command::OpenName { parent, name, flags, whole } = command else { return command };
        let wants = if flags.read { READ } else { 0 } | if flags.write || flags.truncate { WRITE } else { 0 };
        let found = self.entry(parent, &name).map(|entry| entry.file);
        let opened = found.ok().filter(|file| {
            let inode = self.inode(*file).ok().filter(|inode| matches!(inode.body, Body::File(_)));
            let is_open_to =
                |inode: &Inode, who: &Credentials| who.surely_may(wants, (inode.mode, inode.owner), has_acl(inode));
            inode.is_some_and(|inode| who.is_none_or(|who| is_open_to(inode, who)))
        });
        match opened {
            Some(file) if self.intents.is_empty() => Command::Open { file, flags, whole },
            _ => Command::Lookup { parent, name },
        }
    }
}

fn has_acl(inode: &Inode) -> bool {
    inode.xattr(ACL_ACCESS).is_some()
}
