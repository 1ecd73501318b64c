//! Samples of every variant in messages. The test `every_variant_has_a_sample` checks that none is
//! missing.
#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    reason = "each binary uses its own part; in a test a panic is the failure"
)]

/// Samples of the fields of commands and answers.
pub struct Fields;

macro_rules! samples {
    ($($field:ty: $samples:expr,)*) => {
        $(impl FieldSamples<$field> for Fields {
            fn samples() -> Vec<$field> {
                $samples.into()
            }
        })*
    };
}

pub(crate) use samples;

mod answers;
mod requests;

pub use answers::replies;
pub use requests::{never_from_clients, requests};

use bytes::Bytes;
use placement::{FileId, Layout, NodeId, PartitionId, PlacementSpec, Policy, StripeSize};
use wire::{
    Acls, Extent, HostFile, InheritedAttributes, Intent, Kind, Mode, Name, NewInode, NewKind, OpenLeaseId, Owner,
    Recall, Session, Times, Timestamp,
};

pub const FILE: FileId = FileId::new(PartitionId(0x0abc), 0x1234_5678);
pub const DIRECTORY: FileId = FileId::ROOT;
pub const SESSION: Session = Session(7);
pub const EXTENT: Extent = Extent { node: NodeId(3), slot: 70_000, generation: 9 };
pub const LEASE: OpenLeaseId = OpenLeaseId(3 << 48 | 0x12c);
pub const INTENT: Intent = Intent { number: 300, session: SESSION, coordinator: PartitionId(65_535) };
pub const OWNER: Owner = Owner { uid: 1000, gid: 65_534 };
pub const TIME: Timestamp = Timestamp { secs: -3, nanos: 999_999_999 };
pub const TIMES: Times = Times { accessed: TIME, modified: TIME, changed: TIME };

pub const KINDS: [Kind; 7] = [
    Kind::File,
    Kind::Directory,
    Kind::Symlink,
    Kind::Fifo,
    Kind::Socket,
    Kind::CharDevice(0x0105),
    Kind::BlockDevice(u32::MAX),
];

pub fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

pub fn inherited() -> InheritedAttributes {
    InheritedAttributes { group: Some(5), default_acl: Bytes::from_static(b"an acl"), placing: placing(Policy::Here) }
}

pub fn placing(policy: Policy) -> PlacementSpec {
    PlacementSpec { policy: Some(policy), stripe_size: StripeSize::new(1 << 26).ok() }
}

pub fn layout() -> Layout {
    Layout::sized(1 << 20, StripeSize::new(1 << 22).unwrap())
}

pub fn host() -> HostFile {
    HostFile { node: NodeId(7), path: "/data/in.csv".into(), size: 1 << 40, modified: TIME, executable: true }
}

pub fn inode(kind: NewKind) -> NewInode {
    let acls = Acls { access: Bytes::from_static(b"a"), default: Bytes::new() };
    let (acls, placing) = (Some(Box::new(acls)), Some(Box::new(placing(Policy::At(NodeId(300))))));
    NewInode { kind, mode: Mode { bits: 0o7777, umask: 0o022 }, owner: OWNER, acls, placing }
}

pub fn recalls() -> Vec<Recall> {
    vec![
        Recall::Attributes(FILE),
        Recall::Bytes(FILE),
        Recall::Names(DIRECTORY),
        Recall::Removed(FILE),
        Recall::Greet(NodeId(3)),
        Recall::All,
    ]
}
