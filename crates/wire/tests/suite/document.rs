//! Checks `docs/formats/wire.md` against the code: shapes, numbers, bounds, examples. Also checks
//! that every variant has a sample.
//!
//! `FIX=1 cargo test -p wire --test suite document` writes these parts of the page.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use crate::samples::{EXTENT, FILE, SESSION, never_from_clients, recalls, replies, requests};
use placement::{Epoch, PartitionId};
use std::collections::BTreeMap;
use test_support::{FormatPage, Shapes, Type, fenced, variants};
use wire::{
    Answer, Body, Command, LeaseKind, OpenFlags, Request,
    codec::{self, LeaseFd, ProgramFd, Recalls, RequestInShm, Segment, ShmPayload, ShmRange, WriteSegmentInfo},
    frame::{KINDS, Phase, Side},
    handshake::VERSIONS,
};

/// Collects the shapes of all messages after the handshake.
fn shapes() -> Shapes {
    let mut shapes = Shapes::default();
    for request in requests() {
        shapes.add(&request);
    }
    for command in never_from_clients() {
        shapes.add(&command);
    }
    for reply in replies() {
        match reply {
            Ok(answer) => shapes.add(&answer),
            Err(failure) => shapes.add(&failure),
        }
    }
    shapes.add(&LeaseFd { extent: EXTENT, flags: OpenFlags::READ_WRITE });
    let kind = LeaseKind::Extent(EXTENT);
    shapes.add(&ProgramFd { session: SESSION, file: FILE, flags: OpenFlags::READ_WRITE, kind });
    shapes.add(&Segment { length: 4096 });
    shapes.add(&WriteSegmentInfo { length: 1 << 20, block_bytes: 4096, least_bytes: 4096 });
    for request in requests() {
        shapes.add(&RequestInShm::new(ShmPayload { slot: 1, length: 4096 }, request));
    }
    shapes.add(&ShmRange { segment: 0, offset: 0, length: 4096 });
    shapes.add(&Recalls { session: SESSION, recalls: recalls().into() });
    shapes
}

/// Lists every enum of the messages.
fn enums() -> BTreeMap<&'static str, &'static [&'static str]> {
    [
        variants::<wire::AllocateMode>(),
        variants::<Answer>(),
        variants::<Body>(),
        variants::<Command>(),
        variants::<wire::Condition>(),
        variants::<wire::Content>(),
        variants::<wire::Contents>(),
        variants::<wire::Decision>(),
        variants::<wire::ExtentAction>(),
        variants::<wire::Failure>(),
        variants::<wire::Kind>(),
        variants::<LeaseKind>(),
        variants::<wire::MoveStep>(),
        variants::<wire::LockKind>(),
        variants::<wire::LockOwner>(),
        variants::<wire::LockStyle>(),
        variants::<wire::LeaseStatus>(),
        variants::<wire::DirAccess>(),
        variants::<wire::NewKind>(),
        variants::<wire::Object>(),
        variants::<wire::Part>(),
        variants::<placement::Policy>(),
        variants::<wire::Recall>(),
        variants::<wire::Refusal>(),
        variants::<placement::ReplicaState>(),
        variants::<wire::RenameMode>(),
        variants::<wire::SeekTo>(),
        variants::<placement::Distribution>(),
        variants::<wire::StripeAction>(),
        variants::<wire::TimeChange>(),
        variants::<wire::ExtentRequest>(),
        variants::<wire::WritePlace>(),
        variants::<wire::XattrMode>(),
    ]
    .into()
}

/// Renders the version, with the hash of its shapes.
fn version() -> String {
    let hash = &blake3::hash(shapes().text().as_bytes()).to_hex()[..16];
    format!("Version {}; the shapes have the hash `{hash}`.\n", VERSIONS.agree(VERSIONS).unwrap())
}

#[test]
fn every_variant_has_a_sample() {
    let (Shapes(shapes), enums) = (shapes(), enums());
    for (name, shape) in shapes {
        let Type::Enum(met) = shape else { continue };
        let all = enums.get(name).unwrap_or_else(|| panic!("`{name}` is to be added to `enums`"));
        let met: Vec<_> = met.values().map(|(variant, _)| *variant).collect();
        let missing: Vec<_> = all.iter().filter(|variant| !met.contains(variant)).collect();
        assert!(missing.is_empty(), "samples of `{name}` lack {missing:?}");
    }
}

#[test]
fn every_field_is_shown_by_some_sample() {
    let text = shapes().text();
    let unknown: Vec<_> = text.lines().filter(|line| line.contains("_?") || line.contains("[_]")).collect();
    assert!(unknown.is_empty(), "no sample has something in {unknown:?}");
}

/// Renders the table of commands.
fn commands() -> String {
    let head = ["| number | command | kind | answer | what it does |", "|---|---|---|---|---|"];
    let mut lines = head.map(str::to_owned).to_vec();
    for (number, row) in Command::ROWS.iter().enumerate() {
        let (name, kind, answer) = (row.name, row.kind, row.answer.replace(' ', ""));
        let doc: Vec<_> = row.doc.split_whitespace().collect();
        let doc = doc.join(" ").replace("[`", "`").replace("`]", "`");
        lines.push(format!("| {number} | {name} | {kind} | `{answer}` | {doc} |"));
    }
    lines.join("\n") + "\n"
}

/// Renders the table of kinds.
fn kinds() -> String {
    let head = ["| number | kind | to | meta, bytes | payload, bytes |", "|---|---|---|---|---|"];
    let mut lines = head.map(str::to_owned).to_vec();
    for kind in KINDS {
        let comes = |side| kind.may_arrive(side, Phase::Handshake) || kind.may_arrive(side, Phase::Open);
        let to = match (comes(Side::Node), comes(Side::Client)) {
            (true, true) => "both",
            (true, false) => "node",
            _ => "client",
        };
        let (meta, payload) = (kind.meta_bytes_max(), kind.payload_bytes_max());
        lines.push(format!("| {} | {kind} | {to} | {meta} | {payload} |", kind.number()));
    }
    lines.join("\n") + "\n"
}

/// Renders encoded frames as examples.
fn examples() -> String {
    let request = Request {
        epoch: Epoch(3),
        session: SESSION,
        skip_ack: false,
        partition: PartitionId(2748),
        body: Body::Meta { request_id: None, command: Command::Stat { file: FILE } },
    };
    let mut lines = Vec::new();
    let mut show = |what: &str, encode: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        encode(&mut bytes);
        lines.push(what.to_owned());
        for row in bytes.chunks(16) {
            let row: Vec<_> = row.iter().map(|byte| format!("{byte:02x}")).collect();
            lines.push(format!("  {}", row.join(" ")));
        }
    };
    show("request 1, epoch 3, session 7, partition 2748: stat of file 773473785425880696", &|out| {
        codec::encode_request(&request, 1, out).unwrap();
    });
    show("answer to request 1: done", &|out| {
        codec::encode_reply(&Ok(Answer::Done), 1, out).unwrap();
    });
    show("answer to request 2: 5 bytes of a stripe", &|out| {
        codec::encode_reply(&Ok(Answer::Bytes("Hello".into())), 2, out).unwrap();
    });
    show("cancel request 3", &|out| codec::encode_cancel(3, out));
    fenced(&lines.join("\n"))
}

#[test]
fn the_page_has_what_is_spoken() {
    let page = FormatPage::new("wire");
    page.check_version("version", &version(), "raise PROTOCOL_VERSION");
    page.check("version", &version());
    page.check("commands", &commands());
    page.check("kinds", &kinds());
    page.check("examples", &examples());
    page.check("shapes", &fenced(&shapes().text()));
}
