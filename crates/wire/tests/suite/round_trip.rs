//! Round trips: messages decode to what was encoded, and invalid messages are rejected.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use crate::samples::{self, SESSION, never_from_clients, recalls, replies, requests};
use bytes::Bytes;
use placement::Epoch;
use std::collections::{BTreeMap, BTreeSet};
use wire::{
    Answer, Body, Command, Content, Failure, FoundObject, LeaseKind, NOT_FOR_CLIENTS, OpenFlags, OpenLeaseId,
    RangeContent, Refusal, Request, RequestId, RequestKind,
    codec::{self, LeaseFd, ProgramFd, Segment, ShmPayload, ShmRange, ToClient, ToNode, WriteSegmentInfo},
    frame::{DecodeError, FrameKind, Frames, LARGE_META_BYTES_MAX, PAYLOAD_BYTES_MAX, Side},
};

/// Returns the encoded frame with its payload.
fn encoded<E: std::fmt::Debug>(encode: impl FnOnce(&mut Vec<u8>) -> Result<Bytes, E>) -> Vec<u8> {
    let mut out = Vec::new();
    let payload = encode(&mut out).unwrap();
    out.extend_from_slice(&payload);
    out
}

fn open(side: Side) -> Frames {
    let mut frames = Frames::new(side);
    frames.open();
    frames
}

fn to_node(bytes: &[u8]) -> Result<ToNode, DecodeError> {
    let mut frames = open(Side::Node);
    feed_all(&mut frames, bytes);
    ToNode::decode(frames.next()?.expect("a whole frame"))
}

fn to_client(bytes: &[u8]) -> Result<ToClient, DecodeError> {
    let mut frames = open(Side::Client);
    feed_all(&mut frames, bytes);
    ToClient::decode(frames.next()?.expect("a whole frame"))
}

/// Feeds all bytes of one frame. The parser allocates the payload only in `next`.
fn feed_all(frames: &mut Frames, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        frames.feed(&mut bytes);
        if !bytes.is_empty() {
            assert!(frames.next().unwrap().is_none(), "one frame");
        }
    }
}

#[test]
fn every_request_comes_as_it_was_sent() {
    for (id, request) in (1..).zip(requests()) {
        let bytes = encoded(|out| codec::encode_request(&request, id, out));
        assert_eq!(to_node(&bytes).unwrap(), ToNode::Request { id, request });
    }
}

#[test]
fn every_answer_and_failure_comes_as_it_was_sent() {
    for (id, reply) in (1..).zip(replies()) {
        let bytes = encoded(|out| codec::encode_reply(&reply, id, out));
        assert_eq!(to_client(&bytes).unwrap(), ToClient::Reply { id, reply });
    }
}

/// Length of the payload, as the header of a frame has it.
fn payload_length(frame: &[u8]) -> usize {
    u32::from_le_bytes(frame[12..16].try_into().unwrap()) as usize
}

#[test]
fn the_bulk_bytes_of_a_message_are_counted_as_its_frame_counts_them() {
    for request in requests() {
        let frame = encoded(|out| codec::encode_request(&request, 1, out));
        let counted = codec::body_bulk(&request.body).map_or(0, Bytes::len);
        assert_eq!(counted, payload_length(&frame), "{request:?}");
    }
    for reply in replies() {
        let Ok(answer) = &reply else { continue };
        let frame = encoded(|out| codec::encode_reply(&reply, 1, out));
        let pieces = match answer {
            Answer::Object(FoundObject { content: Content::Pieces(pieces), .. }) => pieces.iter().map(Bytes::len).sum(),
            _ => 0,
        };
        assert_eq!(codec::answer_bulk_bytes(answer), payload_length(&frame) + pieces, "{answer:?}");
    }
}

#[test]
fn every_kind_of_request_has_a_name_of_its_own() {
    let internal = never_from_clients().into_iter().map(|command| Body::Meta { request_id: None, command });
    let kinds = requests().into_iter().map(|request| request.body).chain(internal).map(|body| body.kind());
    let names: BTreeMap<usize, &str> = kinds.map(|kind| (kind.index(), kind.name())).collect();
    let own: BTreeSet<&str> = names.values().copied().collect();
    assert_eq!(own.len(), names.len(), "no name stands for two kinds: {names:?}");
    assert!(names.keys().copied().eq(0..RequestKind::COUNT), "{names:?}");
    let stat = Body::Meta { request_id: None, command: Command::Stat { file: samples::FILE } };
    assert_eq!((stat.kind().name(), Body::Usage.kind().name()), ("Stat", "Usage"));
}

#[test]
fn the_other_frames_come_as_they_were_sent() {
    let mut out = Vec::new();
    let mut decoded = |encode: &dyn Fn(&mut Vec<u8>)| {
        out.clear();
        encode(&mut out);
        to_node(&out).unwrap()
    };
    assert_eq!(decoded(&|out| codec::encode_cancel(u64::MAX, out)), ToNode::Cancel { id: u64::MAX });
    assert_eq!(decoded(&|out| codec::encode_subscribe(SESSION, 5, out)), ToNode::Subscribe { id: 5, session: SESSION });
    assert_eq!(decoded(&|out| codec::encode_unsubscribe(SESSION, out)), ToNode::Unsubscribe { session: SESSION });
    assert_eq!(decoded(&|out| codec::encode_supports_prune(SESSION, out)), ToNode::SupportsPrune { session: SESSION });
    assert_eq!(decoded(&|out| codec::encode_ack(6, out)), ToNode::Ack { batch: 6 });
    assert_eq!(decoded(&|out| codec::encode_ping(7, out)), ToNode::Ping(7));
    assert_eq!(decoded(&|out| codec::encode_pong(8, out)), ToNode::Pong(8));
    assert_eq!(decoded(&|out| codec::encode_goodbye("over", out)), ToNode::Goodbye("over".into()));
    let lease_fd = LeaseFd { extent: samples::EXTENT, flags: OpenFlags::READ_WRITE };
    assert_eq!(decoded(&|out| codec::encode_lease_fd(lease_fd, 9, out)), ToNode::LeaseFd { id: 9, request: lease_fd });
    let (session, file, flags) = (SESSION, samples::FILE, OpenFlags::APPEND);
    let program_fd = ProgramFd { session, file, flags, kind: LeaseKind::Directory };
    assert_eq!(
        decoded(&|out| codec::encode_program_fd(program_fd, 9, out)),
        ToNode::ProgramFd { id: 9, request: program_fd }
    );
    assert_eq!(decoded(&|out| codec::encode_open_with_fd(flags, 9, out)), ToNode::OpenWithFd { id: 9, flags });
    let leases = [samples::LEASE, OpenLeaseId(u64::MAX)];
    assert_eq!(decoded(&|out| codec::encode_leases_closed(&leases, out)), ToNode::LeasesClosed(leases.into()));
    assert_eq!(
        decoded(&|out| codec::encode_leases_returned(&[9, u64::MAX], out)),
        ToNode::LeasesReturned(vec![9, u64::MAX])
    );
    assert_eq!(decoded(&|out| codec::encode_segment_mapped(5, out)), ToNode::SegmentMapped { number: 5 });
    let mut decoded = |encode: &dyn Fn(&mut Vec<u8>)| {
        out.clear();
        encode(&mut out);
        to_client(&out).unwrap()
    };
    assert_eq!(decoded(&|out| codec::encode_fd_passing(out)), ToClient::FdPassing);
    assert_eq!(decoded(&|out| codec::encode_leased_fd(9, out)), ToClient::LeasedFd { id: 9 });
    let lease = samples::LEASE;
    assert_eq!(decoded(&|out| codec::encode_granted_fd(lease, 9, out)), ToClient::GrantedFd { id: 9, lease });
    let segment = Segment { length: u64::MAX };
    assert_eq!(decoded(&|out| codec::encode_segment(segment, 9, out)), ToClient::Segment { number: 9, segment });
    let placed = ShmRange { segment: 15, offset: u64::MAX, length: u32::MAX };
    assert_eq!(
        decoded(&|out| codec::encode_reply_in_shm(placed, 9, out)),
        ToClient::ReplyInShm { id: 9, range: placed }
    );
    assert_eq!(decoded(&|out| codec::encode_segment_removed(5, out)), ToClient::SegmentRemoved { number: 5 });
    let info = WriteSegmentInfo { length: u64::MAX, block_bytes: 1 << 20, least_bytes: 4096 };
    assert_eq!(decoded(&|out| codec::encode_write_segment(info, out)), ToClient::WriteSegment(info));
    let mut out = Vec::new();
    codec::encode_recalls(SESSION, &recalls(), 9, &mut out);
    assert_eq!(to_client(&out).unwrap(), ToClient::Recall { batch: 9, session: SESSION, recalls: recalls() });
}

#[test]
fn a_request_whose_bytes_are_elsewhere_has_them_once_they_are_given() {
    for request in requests() {
        let bytes = match codec::begins_stripe(&request.body) {
            Some(bytes) if !bytes.is_empty() => bytes.clone(),
            _ => continue,
        };
        let filled = ShmPayload { slot: 63, length: u32::try_from(bytes.len()).unwrap() };
        let mut out = Vec::new();
        codec::encode_request_in_shm(&request, filled, 9, &mut out).unwrap();
        let Ok(ToNode::RequestInShm { id: 9, request: in_shm }) = to_node(&out) else {
            panic!("the request that was sent")
        };
        assert_eq!(in_shm.filled, filled);
        assert_eq!(in_shm.into_request(bytes), Ok(request));
    }
}

#[test]
fn what_has_no_bulk_bytes_cannot_be_sent_through_shared_memory() {
    let filled = ShmPayload { slot: 0, length: 5 };
    let in_shm = codec::RequestInShm::new(filled, request(Body::Usage));
    let decoded = in_shm.into_request(Bytes::from_static(b"bytes"));
    assert!(matches!(decoded, Err(DecodeError::Meta { .. })), "{decoded:?}");
}

#[test]
fn a_long_reason_is_cut_between_characters() {
    let mut out = Vec::new();
    codec::encode_goodbye(&"\u{e9}".repeat(5000), &mut out);
    let ToNode::Goodbye(why) = to_node(&out).unwrap() else { panic!("a goodbye") };
    assert!(why.len() <= 900 && why.chars().all(|letter| letter == '\u{e9}'));
}

#[test]
fn a_payload_is_not_copied_but_given_and_a_short_one_is_appended() {
    let data = Bytes::from(vec![1; 1 << 20]);
    let reply = Ok(Answer::Bytes(data.clone()));
    let mut out = Vec::new();
    let given = codec::encode_reply(&reply, 1, &mut out).unwrap();
    assert_eq!(given.as_ptr(), data.as_ptr());
    assert!(out.len() < 64, "the bulk is not among the {} bytes", out.len());
    let short = Ok(Answer::Bytes(Bytes::from_static(b"short")));
    let given = codec::encode_reply(&short, 1, &mut out).unwrap();
    assert!(given.is_empty() && out.ends_with(b"short"));
}

fn request(body: Body) -> Request {
    Request { body, epoch: Epoch::FIRST, session: SESSION, skip_ack: false, partition: placement::PartitionId(0) }
}

#[test]
fn what_only_nodes_send_is_not_taken_from_clients() {
    let request_id = Some(RequestId { session: SESSION, number: 1, settled: 1 });
    for command in never_from_clients() {
        let request = request(Body::Meta { request_id, command });
        let bytes = encoded(|out| codec::encode_request(&request, 1, out));
        let refused = to_node(&bytes).unwrap_err();
        assert!(refused.to_string().contains(NOT_FOR_CLIENTS), "{refused}");
    }
}

/// Checks that this request encodes, and that decoding rejects it with this word.
#[track_caller]
fn refused_for(request: &Request, word: &str) {
    let bytes = encoded(|out| codec::encode_request(request, 1, out));
    let refused = to_node(&bytes).expect_err("a request that makes no sense").to_string();
    assert!(refused.contains(word), "{refused}");
}

#[test]
fn a_change_has_a_number_of_its_session_and_what_only_asks_has_none() {
    use wire::{Command, Session};
    let (change, ask) = (Command::UpdateCtime { file: samples::FILE }, Command::Stat { file: samples::FILE });
    let request_id = |session, number, settled| Some(RequestId { session, number, settled });
    let meta = |request_id, command: &Command| request(Body::Meta { request_id, command: command.clone() });
    refused_for(&meta(None, &change), "needs a number");
    refused_for(&meta(request_id(SESSION, 1, 1), &ask), "needs a number");
    refused_for(&meta(request_id(Session(8), 1, 1), &change), "another session");
    refused_for(&meta(request_id(SESSION, 0, 0), &change), "numbered from 1");
    refused_for(&meta(request_id(SESSION, 4, 5), &change), "numbered from 1");
}

#[test]
fn a_small_write_brings_its_bytes_and_a_long_one_does_not() {
    use wire::{Command, WritePlace};
    let request_id = Some(RequestId { session: SESSION, number: 1, settled: 1 });
    for (length, bytes) in [(5, 4), (4096, 0), (4097, 4097), (1 << 20, 1)] {
        let data = Bytes::from(vec![0; bytes]);
        let command = Command::Write { file: samples::FILE, place: WritePlace::End, length, data, kill_set_id: false };
        refused_for(&request(Body::Meta { request_id, command }), "a write comes with its bytes");
    }
}

#[test]
fn inodes_that_cannot_be_are_refused_wherever_they_stand() {
    use wire::{Command, HostFile, Kind, NewKind, Part};
    let request_id = Some(RequestId { session: SESSION, number: 1, settled: 1 });
    let relative = HostFile { path: "data/x".into(), ..samples::host() };
    for (kind, word) in [
        (NewKind::Symlink(Bytes::new()), "target"),
        (NewKind::Symlink(Bytes::from(vec![b'x'; 4096])), "target"),
        (NewKind::Node(Kind::Directory), "fifo"),
        (NewKind::Node(Kind::File), "fifo"),
        (NewKind::Bound(Box::new(relative)), "absolute"),
    ] {
        let (parent, inode) = (samples::DIRECTORY, samples::inode(kind));
        let unnamed = Command::CreateTmpfile { parent, name: None, inode: inode.clone(), linkable: false };
        refused_for(&request(Body::Meta { request_id, command: unnamed }), word);
        let part = Part::CreateDirectory { parent, inode, inherited: samples::inherited() };
        let prepare = Command::Prepare { intent: samples::INTENT, parts: vec![part] };
        refused_for(&request(Body::Meta { request_id, command: prepare }), word);
    }
}

#[test]
fn more_parts_than_any_change_has_are_refused() {
    use wire::{Command, Part};
    let request_id = Some(RequestId { session: SESSION, number: 1, settled: 1 });
    let prepare = |count| {
        let parts = vec![Part::MoveLease; count];
        request(Body::Meta { request_id, command: Command::Prepare { intent: samples::INTENT, parts } })
    };
    let most = prepare(256);
    let bytes = encoded(|out| codec::encode_request(&most, 1, out));
    assert_eq!(to_node(&bytes).unwrap(), ToNode::Request { id: 1, request: most });
    let bytes = encoded(|out| codec::encode_request(&prepare(257), 1, out));
    assert!(matches!(to_node(&bytes), Err(DecodeError::Meta { kind: FrameKind::Request, .. })));
}

#[test]
fn an_answer_with_more_bytes_than_it_says_is_refused() {
    let content = Content::Bytes(Bytes::from_static(b"four"));
    let reply = Ok(Answer::Content(RangeContent { length: 3, content }));
    let bytes = encoded(|out| codec::encode_reply(&reply, 1, out));
    assert!(to_client(&bytes).is_err());
}

#[test]
fn what_is_too_long_leaves_nothing_behind_and_becomes_a_refusal() {
    let mut out = b"before".to_vec();
    let long_payload = Ok(Answer::Bytes(Bytes::from(vec![0; PAYLOAD_BYTES_MAX as usize + 1])));
    let too_long = codec::encode_reply(&long_payload, 1, &mut out).unwrap_err();
    assert_eq!((too_long.part, too_long.max), ("payload", PAYLOAD_BYTES_MAX));
    let long_meta = Ok(Answer::Target(Bytes::from(vec![0; LARGE_META_BYTES_MAX as usize])));
    let too_long = codec::encode_reply(&long_meta, 1, &mut out).unwrap_err();
    assert_eq!((too_long.part, too_long.max), ("meta", LARGE_META_BYTES_MAX));
    assert_eq!(out, b"before");
    assert!(matches!(Failure::from(too_long), Failure::Refused(Refusal::TooLarge { .. })));
}

#[test]
fn the_longest_payload_passes() {
    let reply = Ok(Answer::Bytes(Bytes::from(vec![0xee; PAYLOAD_BYTES_MAX as usize])));
    let bytes = encoded(|out| codec::encode_reply(&reply, 1, out));
    assert_eq!(to_client(&bytes).unwrap(), ToClient::Reply { id: 1, reply });
}
