//! Files without a name (`O_TMPFILE`).

use crate::{
    Handle, Vfs,
    open::{Room, borrow},
};
use placement::FileId;
use wire::{Attributes, Mode, NewInode, NewKind, Object, OpenFlags, Outcome, Owner};

impl Vfs {
    /// Makes and opens a file that has no name and is gone after its last close, unless it is given one before; `linkable`
    /// says whether it may be. It inherits from `parent` as a file made there would.
    pub fn create_unnamed<M: Into<Mode>>(
        &self,
        parent: FileId,
        mode: M,
        owner: Owner,
        flags: OpenFlags,
        linkable: bool,
    ) -> impl Future<Output = Outcome<(Attributes, Handle)>> + Send + use<M> {
        let vfs = self.clone();
        let inode = NewInode::new(NewKind::File, mode, owner);
        async move {
            let room = Room::take(&vfs.handles, || Object::File(parent))?;
            let (opened, client) = vfs
                .client
                .in_one_session(|client| {
                    let inode = inode.clone();
                    async move { Ok((client.create_unnamed(parent, inode, linkable).await?, client)) }
                })
                .await?;
            let lent = borrow(&client, &opened, flags).await;
            Ok((opened.attributes, room.fill(&opened, flags, client, lent)))
        }
    }
}
