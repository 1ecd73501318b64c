//! Kinds of frames: who may send them, when, and how long they may be.

use std::fmt;

/// The longest meta of most kinds, bytes.
pub const META_BYTES_MAX: u32 = 64 << 10;
/// The longest meta of requests, answers and failures, bytes. A listing of 4,096 names of 255 bytes has about 1.2 MiB, a map of
/// 65,536 partitions at most 0.4 MiB.
pub const LARGE_META_BYTES_MAX: u32 = 4 << 20;
/// The longest meta before the handshake is done, bytes: strangers get no more memory than this.
pub const HANDSHAKE_META_BYTES_MAX: u32 = 1 << 10;
/// The longest payload, bytes: the longest stripe, and a page.
pub const PAYLOAD_BYTES_MAX: u32 = (16 << 20) + 4096;

/// What a frame is. The numbers are those on the wire; they are never given to another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// The node's first: its versions, and a number that no connection had before.
    Challenge = 1,
    /// The client's first: its versions, and the proof that it knows the token.
    Hello = 2,
    /// The node's proof, and the version that is spoken from here on.
    Welcome = 3,
    /// No: why not, and what to do. The connection is closed behind it.
    Refused = 4,
    /// A request; its id is the client's, greater than all before.
    Request = 5,
    /// What a request brought, under its id.
    Answer = 6,
    /// Why a request brought nothing, under its id.
    Failure = 7,
    /// Nobody waits for the request of this id any more.
    Cancel = 8,
    /// The session keeps what it is answered from now on; answered like a request.
    Watch = 9,
    /// The session is told nothing any more. It is not answered.
    Unwatch = 10,
    /// What a watching session must forget. The id is the batch's.
    Recall = 11,
    /// The batch of this id is forgotten.
    Heard = 12,
    /// Are you there?
    Ping = 13,
    /// Yes: the id is the ping's.
    Pong = 14,
    /// Why the connection ends; nothing follows.
    Goodbye = 15,
    /// Descriptors can be lent over this connection. One comes with it: as long as that is open, the client may use what it was lent.
    Near = 16,
    /// The descriptor of an extent is wanted; answered like a request, or by `lent`.
    Borrow = 17,
    /// The descriptor comes with this, under the id of its `borrow`, which names the loan.
    Lent = 18,
    /// These loans are used no more.
    Returned = 19,
    /// The session, which watches, is told of what others remove. It is not answered.
    Prunes = 20,
    /// A part of the node's memory comes with this, for reading. The id is its number.
    Segment = 21,
    /// The part of this number is mapped: from now on answers may be `placed` there.
    Mapped = 22,
    /// In place of an answer with bytes, under the request's id: where in the node's memory they are. The id names a loan.
    Placed = 23,
    /// The part of this number is no more: it is to be unmapped.
    Hidden = 24,
    /// Memory for the client to write into comes with this.
    Bay = 25,
    /// A request whose bulk bytes are in the bay. The id is counted with those of requests.
    Publish = 26,
    /// A descriptor of its own is wanted for something that a session has open; answered like a request, or by `given`.
    Obtain = 27,
    /// The descriptor comes with this, under the id of its `obtain`; the meta is its mark.
    Given = 28,
    /// The same as `obtain`, for what the request right behind it opens; the meta says how.
    Attach = 29,
    /// The last copies in this process of descriptors with these marks are closed. It is not answered.
    Closed = 30,
}

/// Every kind.
pub const KINDS: [Kind; 30] = [
    Kind::Challenge,
    Kind::Hello,
    Kind::Welcome,
    Kind::Refused,
    Kind::Request,
    Kind::Answer,
    Kind::Failure,
    Kind::Cancel,
    Kind::Watch,
    Kind::Unwatch,
    Kind::Recall,
    Kind::Heard,
    Kind::Ping,
    Kind::Pong,
    Kind::Goodbye,
    Kind::Near,
    Kind::Borrow,
    Kind::Lent,
    Kind::Returned,
    Kind::Prunes,
    Kind::Segment,
    Kind::Mapped,
    Kind::Placed,
    Kind::Hidden,
    Kind::Bay,
    Kind::Publish,
    Kind::Obtain,
    Kind::Given,
    Kind::Attach,
    Kind::Closed,
];

/// An end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// Who asks.
    Client,
    /// Who is asked.
    Node,
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Neither knows the other yet.
    Handshake,
    /// Both know the token, and speak one version.
    Open,
}

impl Kind {
    /// The kind with this number.
    pub fn of(number: u8) -> Option<Self> {
        KINDS.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// The longest meta, bytes.
    pub const fn meta_bytes_max(self) -> u32 {
        match self {
            Self::Challenge | Self::Hello | Self::Welcome | Self::Refused | Self::Goodbye => HANDSHAKE_META_BYTES_MAX,
            Self::Request | Self::Answer | Self::Failure | Self::Publish => LARGE_META_BYTES_MAX,
            Self::Watch
            | Self::Unwatch
            | Self::Recall
            | Self::Borrow
            | Self::Returned
            | Self::Prunes
            | Self::Segment
            | Self::Placed
            | Self::Bay
            | Self::Obtain
            | Self::Given
            | Self::Attach
            | Self::Closed => META_BYTES_MAX,
            Self::Cancel
            | Self::Heard
            | Self::Ping
            | Self::Pong
            | Self::Near
            | Self::Lent
            | Self::Mapped
            | Self::Hidden => 0,
        }
    }

    /// The longest payload, bytes.
    pub const fn payload_bytes_max(self) -> u32 {
        match self {
            Self::Request | Self::Answer => PAYLOAD_BYTES_MAX,
            _ => 0,
        }
    }

    /// Whether it may come to this side in this phase.
    pub const fn may_come(self, side: Side, phase: Phase) -> bool {
        match (phase, side) {
            (Phase::Handshake, Side::Client) => matches!(self, Self::Challenge | Self::Welcome | Self::Refused),
            (Phase::Handshake, Side::Node) => matches!(self, Self::Hello),
            (Phase::Open, Side::Client) => matches!(
                self,
                Self::Answer
                    | Self::Failure
                    | Self::Recall
                    | Self::Ping
                    | Self::Pong
                    | Self::Goodbye
                    | Self::Near
                    | Self::Lent
                    | Self::Segment
                    | Self::Placed
                    | Self::Hidden
                    | Self::Bay
                    | Self::Given
            ),
            (Phase::Open, Side::Node) => matches!(
                self,
                Self::Request
                    | Self::Cancel
                    | Self::Watch
                    | Self::Unwatch
                    | Self::Prunes
                    | Self::Heard
                    | Self::Ping
                    | Self::Pong
                    | Self::Goodbye
                    | Self::Borrow
                    | Self::Returned
                    | Self::Mapped
                    | Self::Publish
                    | Self::Obtain
                    | Self::Attach
                    | Self::Closed
            ),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Challenge => "challenge",
            Self::Hello => "hello",
            Self::Welcome => "welcome",
            Self::Refused => "refused",
            Self::Request => "request",
            Self::Answer => "answer",
            Self::Failure => "failure",
            Self::Cancel => "cancel",
            Self::Watch => "watch",
            Self::Unwatch => "unwatch",
            Self::Recall => "recall",
            Self::Heard => "heard",
            Self::Ping => "ping",
            Self::Pong => "pong",
            Self::Goodbye => "goodbye",
            Self::Near => "near",
            Self::Borrow => "borrow",
            Self::Lent => "lent",
            Self::Returned => "returned",
            Self::Prunes => "prunes",
            Self::Segment => "segment",
            Self::Mapped => "mapped",
            Self::Placed => "placed",
            Self::Hidden => "hidden",
            Self::Bay => "bay",
            Self::Publish => "publish",
            Self::Obtain => "obtain",
            Self::Given => "given",
            Self::Attach => "attach",
            Self::Closed => "closed",
        })
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Client { "client" } else { "node" })
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Handshake { "before the handshake was done" } else { "after the handshake" })
    }
}
