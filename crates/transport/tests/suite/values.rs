//! Well-formed requests with values that no honest client sends: the node survives, and another
//! client notices nothing.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use super::common::*;
use bytes::Bytes;
use client::{Client, Connection, RetryPolicy};
use placement::{Epoch, FileId, NodeId, PartitionId, StripeNo};
use std::sync::Arc;
use test_support::Random;
use transport::{Address, Remote, ServerLimits};
use vfs::Vfs;
use wire::{
    AllocateMode, Answer, Body, Changes, Command, Extent, ExtentAction, ExtentRequest, Failure, HelloReply, HostFile,
    Intent, Kind, Lock, LockKind, LockOwner, LockStyle, Mode, Name, NewInode, NewKind, OpenFlags, Part, Refusal,
    RenameFrom, RenameMode, RenameTo, Request, RequestId, SeekTo, Session, StripeAction, TimeChange, Timestamp,
    WritePlace, XattrMode,
};

const LONGS: [u64; 12] =
    [0, 1, 4095, 4096, 65_536, 1 << 31, 1 << 40, 1 << 62, (1 << 63) - 1, 1 << 63, u64::MAX - 1, u64::MAX];

/// Random values of requests.
trait Values {
    /// A number near one of the limits.
    fn long(&mut self) -> u64;
    /// The lower half of such a number.
    fn int(&mut self) -> u32;
    /// One of few names.
    fn name(&mut self) -> Name;
}

impl Values for Random {
    fn long(&mut self) -> u64 {
        self.pick(&LONGS)
    }

    fn int(&mut self) -> u32 {
        u32::try_from(self.long() & 0xffff_ffff).unwrap()
    }

    fn name(&mut self) -> Name {
        Name::new(format!("n{}", self.below(6)).as_bytes()).unwrap()
    }
}

/// Client that sends arbitrary requests about files of its own, and files that do not exist.
struct Hostile {
    remote: Remote,
    welcome: HelloReply,
    random: Random,
    /// Files that it may spoil: never those of others.
    files: Vec<FileId>,
    numbers: u64,
}

impl Hostile {
    async fn new(address: &Address, seed: u64, files: Vec<FileId>) -> Self {
        let remote = remote(address);
        let (epoch, session, partition) = (Epoch::FIRST, Session::NONE, PartitionId(0));
        let hello = Request { epoch, session, skip_ack: false, partition, body: Body::Hello };
        let Ok(Answer::Hello(welcome)) = remote.call(hello).await else { panic!("no welcome") };
        Self { remote, welcome, random: Random::new(seed), files, numbers: 0 }
    }

    fn file(&mut self) -> FileId {
        match self.random.below(8) {
            // An id far above those that were assigned.
            0 => FileId::new(PartitionId(self.random.below(16)), (1 << 47) + self.random.long() % 9),
            _ => self.random.pick(&self.files),
        }
    }

    fn intent(&mut self) -> Intent {
        let session = if self.random.one_in(2) { self.welcome.session } else { Session(self.random.long()) };
        Intent { number: self.random.long(), session, coordinator: PartitionId(self.random.below(20)) }
    }

    fn inode(&mut self) -> NewInode {
        let kind = [NewKind::File, NewKind::Directory, NewKind::Node(Kind::CharDevice(u32::MAX))][self.random.below(3)]
            .clone();
        NewInode::new(kind, Mode { bits: self.random.int(), umask: self.random.int() }, OWNER)
    }

    fn part(&mut self) -> Part {
        let (file, name) = (self.file(), self.random.name());
        match self.random.below(9) {
            0 => Part::Entry { directory: file, name, before: None, after: Some((self.file(), Kind::File)) },
            1 => Part::AddLink { file },
            2 => Part::DropLink { file },
            3 => Part::Remove { directory: file, fragments: vec![self.file()] },
            4 => Part::Moved { file, parent: self.file() },
            5 => Part::LockEntries { directory: file },
            6 => Part::Split { directory: file, fragments: vec![self.file(); self.random.below(20)] },
            7 => Part::Fragment { directory: file, inode: self.inode(), entries: Vec::new() },
            _ => Part::Change { directory: file, changes: self.changes() },
        }
    }

    fn changes(&mut self) -> Changes {
        let time = Timestamp { secs: self.random.long().cast_signed(), nanos: 999_999_999 };
        Changes {
            mode: Some(self.random.int()),
            size: self.random.one_in(2).then(|| self.random.long()),
            modified: Some(TimeChange::At(time)),
            ..Changes::default()
        }
    }

    fn lock(&mut self) -> Lock {
        let (one, other) = (self.random.long(), self.random.long());
        let style = LockStyle::Range { start: one.min(other), end: one.max(other) };
        let kind = self.random.pick(&[LockKind::Read, LockKind::Write, LockKind::Unlock]);
        Lock { owner: LockOwner::Session(self.random.long()), kind, style, pid: self.random.int() }
    }

    fn command(&mut self) -> Command {
        let (file, generation, offset) = (self.file(), self.random.int(), self.random.long());
        match self.random.below(28) {
            0 => Command::List { directory: file, after: offset, max: self.random.int() },
            1 => Command::Read { file, offset, length: self.random.int() },
            2 => Command::Seek { file, offset, to: if self.random.one_in(2) { SeekTo::Data } else { SeekTo::Hole } },
            3 => Command::Status { intent: self.intent() },
            4 => Command::Open {
                file,
                flags: OpenFlags { truncate: self.random.one_in(2), ..OpenFlags::WRITE },
                extent: ExtentRequest::Any,
            },
            5 => Command::Close { file },
            6 => Command::Change { file, changes: self.changes() },
            7 => Command::Write {
                file,
                place: WritePlace::At(offset),
                length: 3,
                data: Bytes::from_static(b"abc"),
                kill_set_id: true,
            },
            8 => {
                let length = 4097_u32.saturating_add(self.random.int());
                let place = if self.random.one_in(2) { WritePlace::End } else { WritePlace::At(offset) };
                Command::Write { file, place, length, data: Bytes::new(), kill_set_id: false }
            }
            9 => Command::PublishSize { file, generation, end: offset },
            10 => Command::Abandon { file, generation, offset, length: self.random.int() },
            11 => Command::SpillDone { file, generation },
            12 => Command::TruncateDone { file, generation },
            13 => Command::PurgeDone { file },
            14 => Command::UpdateCtime { file },
            15 => Command::Prepare { intent: self.intent(), parts: vec![self.part(), self.part()] },
            16 => {
                Command::Commit { intent: self.intent(), parts: vec![self.part()], others: vec![PartitionId(60_000)] }
            }
            17 => Command::Settle { intent: self.intent(), commit: self.random.one_in(2) },
            18 => Command::Decide { intent: self.intent() },
            19 => Command::Lock { file, lock: self.lock(), wait: false },
            20 => Command::PunchDone { file, generation },
            21 => Command::AllocationFailed { file, generation, stripe: offset },
            22 | 23 => {
                let modes =
                    [AllocateMode::Extend, AllocateMode::KeepSize, AllocateMode::PunchHole, AllocateMode::ZeroRange];
                Command::Allocate { file, offset, length: self.random.long(), mode: self.random.pick(&modes) }
            }
            24 => Command::SetXattr {
                file,
                name: Bytes::from_static(b"user.x"),
                value: Bytes::from(vec![7; self.random.below(70_000)]),
                mode: XattrMode::Set,
                kill_set_group_id: false,
            },
            25 => Command::Create {
                parent: file,
                name: self.random.name(),
                inode: self.inode(),
                open: self.random.one_in(2),
                extent: ExtentRequest::None,
            },
            26 => Command::Link { file, parent: self.file(), name: self.random.name() },
            _ => Command::Rename {
                from: RenameFrom { parent: file, name: self.random.name() },
                to: RenameTo { parent: self.file(), name: self.random.name() },
                mode: RenameMode::Exchange,
            },
        }
    }

    fn body(&mut self) -> (FileId, Body) {
        let (file, generation) = (self.file(), self.random.int());
        let (offset, length) = (self.random.int(), self.random.int());
        let data = Bytes::from(vec![7; self.random.below(100_000)]);
        let action = match self.random.below(20) {
            0 => StripeAction::Write { generation, offset, ends: false, data },
            1 => StripeAction::Read { offset, length },
            2 => StripeAction::Truncate { generation, length },
            3 => StripeAction::Zero { generation, offset, length },
            4 => StripeAction::Extend { generation, length },
            5 => {
                let extent = Extent { node: self.welcome.node, slot: self.random.int(), generation: self.random.int() };
                return (
                    file,
                    Body::Extent {
                        request_id: None,
                        file,
                        extent,
                        action: ExtentAction::Write { offset: self.random.long(), data },
                    },
                );
            }
            _ => {
                let command = self.command();
                self.numbers += 1;
                let (session, number) = (self.welcome.session, self.numbers);
                let request_id = command.is_mutation().then_some(RequestId { session, number, settled: number });
                return (file, Body::Meta { request_id, command });
            }
        };
        (file, Body::Stripe { file, stripe: StripeNo(self.random.long()), action })
    }

    /// Sends one request; the node must answer it.
    async fn say(&mut self) {
        let (file, body) = self.body();
        let said = format!("{body:?}").chars().take(300).collect::<String>();
        // The partition of the file's id, or any.
        let elsewhere = PartitionId(self.random.below(16));
        let partition = if self.random.below(4) > 0 { file.partition() } else { elsewhere };
        let (epoch, session) = (Epoch::FIRST, self.welcome.session);
        let reply = self.remote.call(Request { epoch, session, skip_ack: true, partition, body }).await;
        assert!(!matches!(reply, Err(Failure::Lost(_) | Failure::Unreachable(_))), "{said}: {reply:?}");
    }
}

#[tokio::test]
async fn no_value_in_a_request_ends_the_node_or_shows_to_another_client() {
    for seed in 0..6 {
        let settings = node::NodeSettings {
            partitions: 16,
            stripe_bytes: STRIPE,
            space_wait: std::time::Duration::ZERO,
            owner: OWNER,
            ..node::NodeSettings::default()
        };
        let arena = arena::ArenaOptions { stripe_bytes: STRIPE, ..arena::ArenaOptions::with_capacity(64 << 20) };
        let node = node::embedded(settings, Arc::new(arena::Arena::new(arena).unwrap()));
        let server = serve(&node, &any_port());
        let healthy = vfs(server.address()).await;
        let (mut spoiled, mut theirs) = (Vec::new(), Vec::new());
        for number in 0..8 {
            let directory = healthy.make_directories(format!("hostile/d{number}").as_bytes()).await.unwrap().file;
            let path = format!("hostile/d{number}/n{number}");
            spoiled.extend([
                directory,
                healthy.write_file(path.as_bytes(), &vec![1; 30_000 * number]).await.unwrap().file,
            ]);
            let path = format!("healthy{number}");
            let bytes = vec![u8::try_from(number).unwrap(); 40_000 * number];
            healthy.write_file(path.as_bytes(), &bytes).await.unwrap();
            theirs.push((path, bytes));
        }
        let mut hostile = Hostile::new(server.address(), seed, spoiled).await;
        for round in 0..600 {
            hostile.say().await;
            if round % 60 == 0 {
                for (path, bytes) in &theirs {
                    assert!(healthy.read_file(path.as_bytes()).await.unwrap() == *bytes, "seed {seed}, round {round}");
                }
                healthy.write_file(b"new", b"bytes").await.unwrap();
                healthy.unlink(Vfs::root(), b"new").await.unwrap();
            }
        }
        server.stop().await;
    }
}

/// Binds a file of the host, as a client at this address.
async fn bound(address: &Address) -> Result<(), Refusal> {
    let remote = Arc::new(remote(address));
    let client = Client::connect(remote, RetryPolicy::default()).await.unwrap();
    let modified = Timestamp { secs: 0, nanos: 0 };
    let host = HostFile { node: NodeId(1), path: "/etc/hostname".into(), size: 1, modified, executable: false };
    let inode = NewInode::new(NewKind::Bound(Box::new(host)), 0o444, OWNER);
    client.create(FileId::ROOT, &Name::new(b"bound").unwrap(), inode, false, ExtentRequest::None).await.map(drop)
}

#[tokio::test]
async fn files_of_the_host_are_bound_by_its_own_user_only_unless_others_are_let() {
    let directory = tempfile::tempdir().unwrap();
    let near = Address::Unix(directory.path().join("pool"));
    let refused = bound(serve(&node(), &any_port()).address()).await;
    assert!(matches!(refused, Err(Refusal::NotPermitted(_))), "{refused:?}");
    bound(serve(&node(), &near).address()).await.unwrap();
    let limits = ServerLimits { host_files: true, ..ServerLimits::default() };
    bound(serve_with(&node(), &any_port(), limits).address()).await.unwrap();
}

#[tokio::test]
async fn a_node_is_reached_at_each_of_its_addresses_and_a_session_over_one_connection_at_a_time() {
    let (node, directory) = (node(), tempfile::tempdir().unwrap());
    let mut server = serve(&node, &any_port());
    let near = Address::Unix(directory.path().join("pool"));
    server.add_listener(transport::Listener::bind(&near).unwrap()).unwrap();
    assert_eq!(server.addresses().len(), 2);
    let (one, other) = (vfs(server.address()).await, vfs(&near).await);
    one.write_file(b"f", b"bytes").await.unwrap();
    assert_eq!(other.read_file(b"f").await.unwrap(), &b"bytes"[..]);
    let far = Arc::new(remote(server.address()));
    let client = Client::connect(far, RetryPolicy::default()).await.unwrap();
    let (epoch, session, partition) = (Epoch::FIRST, client.session(), PartitionId(0));
    let hello = Request { epoch, session, skip_ack: false, partition, body: Body::Hello };
    let taken = remote(&near).call(hello).await;
    assert!(matches!(taken, Err(Failure::Unreachable(_))), "{taken:?}");
    server.stop().await;
    assert!(!near.to_string().is_empty() && !directory.path().join("pool").exists());
}
