//! Operations on extended attributes, including ACLs. The kernel checks permissions and applies
//! ACLs.

use bytes::Bytes;
use fuse_transport::{FuseOp, FuseReply};
use rustix::{fs::XattrFlags, io::Errno};
use wire::XattrMode;

use super::{FuseFs, RequestContext};

/// Prefix of names that only the superuser may list.
const TRUSTED: &[u8] = b"trusted.";

impl FuseFs {
    pub(super) fn xattrs(&self, context: RequestContext, operation: &FuseOp<'_>, reply: FuseReply) {
        let (vfs, file) = (&self.vfs, context.inode);
        match *operation {
            FuseOp::Getxattr { name, size } => {
                self.serve("getxattr", vfs.xattr(file, name), reply, move |reply, value| send(reply, &value, size));
            }
            FuseOp::Listxattr { size } => {
                let trusted = context.owner.uid == 0;
                self.serve("listxattr", vfs.xattrs(file), reply, move |reply, names| {
                    send(reply, &joined(&names, trusted), size);
                });
            }
            FuseOp::Setxattr { name, value, flags, kill_set_group_id } => {
                let (value, mode) = (Bytes::copy_from_slice(value), mode(flags));
                let set = vfs.set_xattr(file, name, value, mode, kill_set_group_id);
                self.serve("setxattr", set, reply, |reply, ()| reply.done());
            }
            FuseOp::Removexattr { name } => self.complete("removexattr", vfs.remove_xattr(file, name), reply),
            _ => unreachable!("only operations on extended attributes come here"),
        }
    }
}

fn mode(flags: u32) -> XattrMode {
    match XattrFlags::from_bits_retain(flags) {
        flags if flags.contains(XattrFlags::CREATE) => XattrMode::Create,
        flags if flags.contains(XattrFlags::REPLACE) => XattrMode::Replace,
        _ => XattrMode::Set,
    }
}

/// Concatenated names, each with a final NUL.
fn joined(names: &[Bytes], trusted: bool) -> Vec<u8> {
    let shown = names.iter().filter(|name| trusted || !name.starts_with(TRUSTED));
    shown.flat_map(|name| name.iter().copied().chain([0])).collect()
}

/// Replies with the bytes, or with their number if the caller's buffer size is 0.
fn send(reply: FuseReply, bytes: &[u8], buffer_size: u32) {
    match usize::try_from(buffer_size).unwrap_or(usize::MAX) {
        0 => reply.xattr_size(u32::try_from(bytes.len()).unwrap_or(u32::MAX)),
        buffer_size if bytes.len() > buffer_size => reply.error(Errno::RANGE.raw_os_error()),
        _ => reply.data(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_superuser_are_not_listed_to_others() {
        let names = [Bytes::from_static(b"user.a"), Bytes::from_static(b"trusted.b")];
        assert_eq!(joined(&names, true), b"user.a\0trusted.b\0");
        assert_eq!(joined(&names, false), b"user.a\0");
    }

    #[test]
    fn flags_say_whether_it_must_be_new_or_there() {
        assert_eq!((mode(0), mode(1), mode(2)), (XattrMode::Set, XattrMode::Create, XattrMode::Replace));
    }
}
