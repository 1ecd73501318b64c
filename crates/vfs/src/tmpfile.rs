//! Files without a name (`O_TMPFILE`).

use crate::{
    Handle, Vfs,
    open::{HandleReservation, lease_fd},
};
use placement::{FileId, PlacementSpec};
use wire::{Attributes, Mode, Name, NewInode, NewKind, Object, OpenFlags, Outcome, Owner};

impl Vfs {
    /// Creates and opens a file without a name, which is removed with its last close unless it is
    /// linked before; `linkable` allows the link. The file inherits from `parent` like a file
    /// created there.
    pub fn create_unnamed<M: Into<Mode>>(
        &self,
        parent: FileId,
        mode: M,
        owner: Owner,
        flags: OpenFlags,
        linkable: bool,
    ) -> impl Future<Output = Outcome<(Attributes, Handle)>> + Send + use<M> {
        self.create_for(parent, Ok(None), NewInode::new(NewKind::File, mode, owner), flags, linkable)
    }

    /// Like [`Self::create_unnamed`], for a file that will be linked in `parent` under this name.
    /// Its bytes are placed as if it were created there, or by `placing`.
    pub fn create_to_be_named<M: Into<Mode>>(
        &self,
        parent: FileId,
        name: &[u8],
        mode: M,
        owner: Owner,
        placing: PlacementSpec,
    ) -> impl Future<Output = Outcome<(Attributes, Handle)>> + Send + use<M> {
        let inode = NewInode { placing: placing.boxed(), ..NewInode::new(NewKind::File, mode, owner) };
        self.create_for(parent, Name::new(name).map(Some), inode, OpenFlags::READ_WRITE, true)
    }

    fn create_for(
        &self,
        parent: FileId,
        name: Outcome<Option<Name>>,
        inode: NewInode,
        flags: OpenFlags,
        linkable: bool,
    ) -> impl Future<Output = Outcome<(Attributes, Handle)>> + Send + use<> {
        let vfs = self.clone();
        async move {
            let name = name?;
            let reservation = HandleReservation::new(&vfs.handles, || Object::File(parent))?;
            let (opened, client) = vfs
                .client
                .run_in_session(|client| {
                    let (name, inode) = (name.clone(), inode.clone());
                    async move { Ok((client.create_unnamed(parent, name, inode, linkable).await?, client)) }
                })
                .await?;
            let leased = lease_fd(&client, &opened, flags).await;
            Ok((opened.attributes, reservation.fill(&opened, flags, client, leased)))
        }
    }
}
