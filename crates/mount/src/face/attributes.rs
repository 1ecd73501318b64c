//! Operations on attributes: getattr, setattr, statx.

use fuse_transport::{FuseOp, FuseReply, Statx};
use wire::Attributes;

use super::{Caller, Face};
use crate::translate;

impl Face {
    pub(super) fn attributes(&self, caller: Caller, operation: &FuseOp<'_>, reply: FuseReply) {
        let manners = self.manners;
        match *operation {
            FuseOp::Getattr { .. } => {
                self.serve("stat", self.vfs.stat(caller.inode), reply, move |reply, found| {
                    reply.attributes(&translate::attributes(&found), manners.attributes_valid(&found));
                });
            }
            FuseOp::Setattr(wanted) => {
                let changed = self.vfs.change(caller.inode, translate::changes(&wanted));
                self.carry_through("change", changed, reply, move |reply, found| {
                    reply.attributes(&translate::attributes(&found), manners.attributes_valid(&found));
                });
            }
            FuseOp::Statx { .. } => {
                self.serve("stat", self.vfs.stat(caller.inode), reply, move |reply, found| {
                    reply.statx(&statx(&found), manners.attributes_valid(&found));
                });
            }
            _ => unreachable!("only operations on attributes come here"),
        }
    }
}

fn statx(found: &Attributes) -> Statx {
    Statx { attributes: translate::attributes(found), born: Some(translate::time(found.created)), ..Statx::default() }
}
