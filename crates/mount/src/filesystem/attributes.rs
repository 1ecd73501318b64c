//! Operations on attributes: getattr, setattr, statx.

use fuse_transport::{FuseOp, FuseReply, Statx};
use wire::Attributes;

use super::{FuseFs, RequestContext};
use crate::translate;

impl FuseFs {
    pub(super) fn attributes(&self, context: RequestContext, operation: &FuseOp<'_>, reply: FuseReply) {
        let cache_policy = self.cache_policy;
        match *operation {
            FuseOp::Getattr { .. } => {
                self.serve("stat", self.vfs.stat(context.inode), reply, move |reply, found| {
                    reply.attributes(&translate::attributes(&found), cache_policy.attributes_valid(&found));
                });
            }
            FuseOp::Setattr(wanted) => {
                let changed = self.vfs.change(context.inode, translate::changes(&wanted));
                self.serve_to_completion("change", changed, reply, move |reply, found| {
                    reply.attributes(&translate::attributes(&found), cache_policy.attributes_valid(&found));
                });
            }
            FuseOp::Statx { .. } => {
                self.serve("stat", self.vfs.stat(context.inode), reply, move |reply, found| {
                    reply.statx(&statx(&found), cache_policy.attributes_valid(&found));
                });
            }
            _ => unreachable!("only operations on attributes come here"),
        }
    }
}

fn statx(found: &Attributes) -> Statx {
    Statx { attributes: translate::attributes(found), born: Some(translate::time(found.created)), ..Statx::default() }
}
