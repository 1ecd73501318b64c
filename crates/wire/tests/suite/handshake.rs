//! The handshake as a state machine: which peers it accepts and rejects, and the errors that they
//! get.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the failure")]

use placement::NodeId;
use wire::{
    frame::{DecodeError, Frame, FrameKind, Frames, Side},
    handshake::{
        ClientHandshake, HandshakeFailed, NodeHandshake, Nonce, ProtocolVersion, ProtocolVersions, Reason, Step, Token,
        VERSIONS, encode_refusal,
    },
};

const NODE_NONCE: Nonce = [1; 32];
const CLIENT_NONCE: Nonce = [2; 32];

fn token(text: &str) -> Token {
    Token::new(text.as_bytes()).unwrap()
}

fn right() -> Token {
    token("the token of this pool")
}

fn versions(lowest: u16, highest: u16) -> ProtocolVersions {
    ProtocolVersions::new(ProtocolVersion(lowest), ProtocolVersion(highest)).unwrap()
}

fn node(token: Token, versions: ProtocolVersions) -> NodeHandshake {
    NodeHandshake::new(token, versions, NODE_NONCE)
}

fn client(token: Token, versions: ProtocolVersions) -> ClientHandshake {
    ClientHandshake::new(token, versions, CLIENT_NONCE, "a test")
}

/// Parses the frame in `bytes`, which `side` received, and passes it to `on`.
fn framed<T>(side: Side, mut bytes: &[u8], on: impl FnOnce(&Frame<'_>) -> T) -> T {
    let mut frames = Frames::new(side);
    frames.feed(&mut bytes);
    assert!(bytes.is_empty());
    on(&frames.next().unwrap().expect("a whole frame"))
}

/// Runs a handshake; returns the last step of the node, then of the client.
fn shake(node: NodeHandshake, mut client: ClientHandshake) -> (Step, Step) {
    let challenge = node.challenge("a node");
    let Step::Send(hello) = framed(Side::Client, &challenge, |frame| client.on_frame(frame)) else {
        panic!("it says hello")
    };
    let nodes = framed(Side::Node, &hello, |frame| node.on_frame(frame));
    let (Step::Done { send, .. } | Step::Close { send, .. }) = &nodes else { panic!("the node's part is over") };
    let clients = framed(Side::Client, send, |frame| client.on_frame(frame));
    (nodes, clients)
}

#[test]
fn who_knows_the_token_comes_in_and_both_speak_the_highest_version_they_share() {
    let (nodes, clients) = shake(node(right(), versions(1, 4)), client(right(), versions(2, 7)));
    let Step::Done { version, description: what, .. } = nodes else { panic!("{nodes:?}") };
    assert_eq!((version, what.as_str()), (ProtocolVersion(4), "a test"));
    let Step::Done { send, version, description: what, .. } = clients else { panic!("{clients:?}") };
    assert_eq!((send.len(), version, what.as_str()), (0, ProtocolVersion(4), "a node"));
}

#[test]
fn who_has_another_token_is_refused_and_told_what_to_do() {
    let (nodes, clients) = shake(node(right(), VERSIONS), client(token("the token of another"), VERSIONS));
    assert!(matches!(nodes, Step::Close { why: HandshakeFailed::WrongToken, .. }), "{nodes:?}");
    let Step::Close { why: HandshakeFailed::Refused { reason, why }, .. } = clients else { panic!("{clients:?}") };
    assert!(reason == Reason::Token && why.contains("use the pool file of the pool"), "{why}");
}

/// A relay without the token forwards every frame unchanged between the two sides.
#[test]
fn a_proof_that_is_passed_on_holds_for_no_other_pool_node_or_address() {
    let endpoint = |pool: &str, id, address: &'static str| (right().of_node(pool, NodeId(id)), address);
    let meant = endpoint("a", 1, "tcp:127.0.0.1:7000");
    let relayed = |real: (Token, &str)| {
        let client = client(meant.0.clone(), VERSIONS).with_address(meant.1);
        shake(node(real.0, VERSIONS).with_address(real.1), client)
    };
    assert!(matches!(relayed(meant.clone()), (Step::Done { .. }, Step::Done { .. })), "the one that was meant");
    for other in [
        endpoint("b", 1, "tcp:127.0.0.1:7000"),
        endpoint("a", 2, "tcp:127.0.0.1:7000"),
        endpoint("a", 1, "tcp:127.0.0.1:7001"),
        endpoint("a", 1, "unix:/run/tidemill-0/socket"),
        (right(), "tcp:127.0.0.1:7000"),
    ] {
        let (nodes, clients) = relayed(other.clone());
        assert!(matches!(nodes, Step::Close { why: HandshakeFailed::WrongToken, .. }), "{other:?}: {nodes:?}");
        assert!(matches!(clients, Step::Close { .. }), "{other:?}: {clients:?}");
    }
}

#[test]
fn a_nodes_proof_that_is_passed_on_is_no_proof_of_another() {
    let bound = |id| right().of_node("a", NodeId(id));
    let mut client = client(bound(1), VERSIONS).with_address("tcp:a:1");
    let real = node(bound(2), VERSIONS).with_address("tcp:a:1");
    let Step::Send(_) = framed(Side::Client, &real.challenge(""), |frame| client.on_frame(frame)) else {
        panic!("a hello")
    };
    // A welcome that the other node made for a client of its own, with the same nonces.
    let (welcomes, _) = shake(real, self::client(bound(2), VERSIONS).with_address("tcp:a:1"));
    let Step::Done { send, .. } = welcomes else { panic!("{welcomes:?}") };
    let step = framed(Side::Client, &send, |frame| client.on_frame(frame));
    assert_eq!(step, Step::Close { send: Vec::new(), why: HandshakeFailed::NotProven });
}

#[test]
fn a_client_that_may_be_over_soon_says_so() {
    for short_lived in [false, true] {
        let client = client(right(), VERSIONS);
        let (nodes, _) = shake(node(right(), VERSIONS), if short_lived { client.short_lived() } else { client });
        assert!(matches!(nodes, Step::Done { short_lived: received, .. } if received == short_lived), "{nodes:?}");
    }
}

#[test]
fn a_node_that_has_no_room_says_so() {
    let step = framed(Side::Client, &encode_refusal(&HandshakeFailed::Full(2)), |frame| {
        client(right(), VERSIONS).on_frame(frame)
    });
    let Step::Close { why: HandshakeFailed::Refused { reason, why }, .. } = step else { panic!("{step:?}") };
    assert!(reason == Reason::Busy && why.contains("2 connections"), "{why}");
}

#[test]
fn versions_that_do_not_meet_are_named_on_both_sides() {
    let (nodes, clients) = shake(node(right(), versions(1, 2)), client(right(), versions(3, 5)));
    let Step::Close { why, .. } = nodes else { panic!("{nodes:?}") };
    assert_eq!(why, HandshakeFailed::NoVersion { node: versions(1, 2), client: versions(3, 5) });
    let Step::Close { why: HandshakeFailed::Refused { reason, why }, .. } = clients else { panic!("{clients:?}") };
    assert_eq!(reason, Reason::Version);
    assert!(why.contains("1 to 2") && why.contains("3 to 5") && why.contains("same release"), "{why}");
}

#[test]
fn the_token_is_never_sent_and_no_proof_serves_twice() {
    let hello_from = |nonce| {
        let node = NodeHandshake::new(right(), VERSIONS, nonce);
        let challenge = node.challenge("");
        let Step::Send(hello) = framed(Side::Client, &challenge, |frame| client(right(), VERSIONS).on_frame(frame))
        else {
            panic!("it says hello")
        };
        (node, challenge, hello)
    };
    let (_, challenge, hello) = hello_from([1; 32]);
    let secret = b"the token of this pool";
    assert!([&challenge, &hello].iter().all(|sent| !sent.windows(secret.len()).any(|part| part == secret)));
    let (other, _, _) = hello_from([9; 32]);
    let again = framed(Side::Node, &hello, |frame| other.on_frame(frame));
    assert!(matches!(again, Step::Close { why: HandshakeFailed::WrongToken, .. }), "{again:?}");
}

#[test]
fn a_node_that_does_not_know_the_token_is_found_out() {
    let mut client = client(right(), VERSIONS);
    let fake = node(token("what the fake believes"), VERSIONS);
    let Step::Send(_) = framed(Side::Client, &fake.challenge(""), |frame| client.on_frame(frame)) else {
        panic!("a hello")
    };
    // The fake node accepts any client: it sends a welcome that it made with its own token.
    let (welcomes, _) = shake(fake, self::client(token("what the fake believes"), VERSIONS));
    let Step::Done { send, .. } = welcomes else { panic!("{welcomes:?}") };
    let step = framed(Side::Client, &send, |frame| client.on_frame(frame));
    assert_eq!(step, Step::Close { send: Vec::new(), why: HandshakeFailed::NotProven });
}

#[test]
fn a_client_cannot_be_answered_with_its_own_proof() {
    let mut client = client(right(), VERSIONS);
    let challenge = node(right(), VERSIONS).challenge("");
    let Step::Send(hello) = framed(Side::Client, &challenge, |frame| client.on_frame(frame)) else { panic!("a hello") };
    let mut frames = Frames::new(Side::Client);
    frames.feed(&mut &hello[..]);
    let refused = frames.next().unwrap_err();
    assert!(matches!(refused, DecodeError::Unexpected { kind: FrameKind::Hello, .. }), "{refused}");
}

#[test]
fn steps_out_of_order_end_the_handshake() {
    let (nodes, _) = shake(node(right(), VERSIONS), client(right(), VERSIONS));
    let Step::Done { send: welcome, .. } = nodes else { panic!("{nodes:?}") };
    let step = framed(Side::Client, &welcome, |frame| client(right(), VERSIONS).on_frame(frame));
    let misplaced = |kind| Step::Close { send: Vec::new(), why: HandshakeFailed::Misplaced(kind) };
    assert_eq!(step, misplaced(FrameKind::Welcome));
    let mut twice = client(right(), VERSIONS);
    let challenge = node(right(), VERSIONS).challenge("");
    framed(Side::Client, &challenge, |frame| twice.on_frame(frame));
    assert_eq!(framed(Side::Client, &challenge, |frame| twice.on_frame(frame)), misplaced(FrameKind::Challenge));
}

#[test]
fn who_speaks_something_else_is_told_so_and_gets_no_memory() {
    let mut frames = Frames::new(Side::Node);
    frames.feed(&mut &b"GET / HTTP/1.1\r\nHost: tidemill.example.org\r\n\r\n"[..]);
    let error = frames.next().unwrap_err();
    assert_eq!(error, DecodeError::Magic(*b"GET "));
    let Step::Close { send, why } = node(right(), VERSIONS).on_decode_error(error.clone()) else { panic!("it closes") };
    assert_eq!(why, HandshakeFailed::Decode(error));
    let step = framed(Side::Client, &send, |frame| client(right(), VERSIONS).on_frame(frame));
    let Step::Close { why: HandshakeFailed::Refused { why, .. }, .. } = step else { panic!("{step:?}") };
    assert!(why.contains("does not start with `tide`"), "{why}");
}

#[test]
fn a_hello_that_makes_no_sense_is_refused() {
    let mut hello = Vec::new();
    let Step::Send(good) =
        framed(Side::Client, &node(right(), VERSIONS).challenge(""), |frame| client(right(), VERSIONS).on_frame(frame))
    else {
        panic!("a hello")
    };
    // The first two bytes of the meta are the versions: 0 to 1 is invalid.
    let mut meta = good[32..].to_vec();
    meta[0] = 0;
    let header = wire::frame::Header::new(FrameKind::Hello, 0, &meta, 0).unwrap();
    hello.extend_from_slice(&header.encode());
    hello.extend_from_slice(&meta);
    let step = framed(Side::Node, &hello, |frame| node(right(), VERSIONS).on_frame(frame));
    assert!(matches!(step, Step::Close { why: HandshakeFailed::Decode(DecodeError::Meta { .. }), .. }), "{step:?}");
}

#[test]
fn a_client_that_is_let_in_may_send_requests_behind_its_hello() {
    let node = node(right(), VERSIONS);
    let Step::Send(mut sent) =
        framed(Side::Client, &node.challenge(""), |frame| client(right(), VERSIONS).on_frame(frame))
    else {
        panic!("a hello")
    };
    wire::codec::encode_ping(3, &mut sent);
    let mut frames = Frames::new(Side::Node);
    frames.feed(&mut &sent[..]);
    let step = node.on_frame(&frames.next().unwrap().unwrap());
    assert!(matches!(step, Step::Done { .. }), "{step:?}");
    frames.open();
    assert_eq!(frames.next().unwrap().unwrap().header.kind, FrameKind::Ping);
    assert!(frames.is_between());
}
