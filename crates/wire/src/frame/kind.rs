//! Kinds of frames: their sender, their phase and their maximum length.

use std::fmt;

/// Maximum length of most kinds' meta, bytes.
pub const META_BYTES_MAX: u32 = 64 << 10;
/// Maximum length of the meta of requests, answers and failures, bytes. A listing of 4,096 names of
/// 255 bytes has about 1.2 MiB, a map of 65,536 partitions at most 0.4 MiB.
pub const LARGE_META_BYTES_MAX: u32 = 4 << 20;
/// Maximum length of a meta before the handshake is done, bytes: an unknown peer gets no more
/// memory than this.
pub const HANDSHAKE_META_BYTES_MAX: u32 = 1 << 10;
/// Maximum length of a payload, bytes: the longest stripe plus a page.
pub const PAYLOAD_BYTES_MAX: u32 = (16 << 20) + 4096;

/// Kind of a frame. The values are those on the wire and are never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameKind {
    /// First frame of the node: its versions and a fresh nonce.
    Challenge = 1,
    /// First frame of the client: its versions, and the proof that it knows the token.
    Hello = 2,
    /// The node's proof, and the chosen version.
    Welcome = 3,
    /// Rejection: the reason and the remedy. The node closes the connection after it.
    Refused = 4,
    /// A request. The client chooses the id, which must be greater than all before.
    Request = 5,
    /// Answer to the request of this id.
    Answer = 6,
    /// Failure of the request of this id.
    Failure = 7,
    /// Cancels the request of this id.
    Cancel = 8,
    /// Subscribes a session to cache invalidations. Answered like a request.
    Subscribe = 9,
    /// Ends a session's subscription. Not answered.
    Unsubscribe = 10,
    /// Cache invalidations for a subscribed session. The id is the batch's number.
    Recall = 11,
    /// Acks the batch of this number.
    Ack = 12,
    /// Liveness probe.
    Ping = 13,
    /// Reply to the ping of this id.
    Pong = 14,
    /// Last frame: the reason why the connection ends.
    Goodbye = 15,
    /// Descriptors can be leased over this connection. One comes with it, the client's end of the
    /// liveness pipe: while it is open, the client may use its leases.
    FdPassing = 16,
    /// Requests a leased descriptor of an extent. Answered like a request, or by `leased_fd`.
    LeaseFd = 17,
    /// A leased descriptor comes with this. The id is that of its `lease_fd`, and names the lease.
    LeasedFd = 18,
    /// Returns these leases.
    LeasesReturned = 19,
    /// The subscribed session supports prune notices for inodes that others delete. Not answered.
    SupportsPrune = 20,
    /// A segment of the node's memory comes with this, for reading. The id is its number.
    Segment = 21,
    /// The client has mapped the segment of this number: answers may refer to it with
    /// `reply_in_shm` from now on.
    SegmentMapped = 22,
    /// Reply by reference: the range in the node's memory that holds the bytes. The id is the
    /// request's, and names a lease.
    ReplyInShm = 23,
    /// The segment of this number no longer exists: the client must unmap it.
    SegmentRemoved = 24,
    /// A write segment for the client comes with this.
    WriteSegment = 25,
    /// A request whose bulk bytes are in the write segment. The id is counted with those of
    /// requests.
    RequestInShm = 26,
    /// Requests a program's own descriptor of a file that a session has open. Answered like a
    /// request, or by `granted_fd`.
    ProgramFd = 27,
    /// A program's own descriptor comes with this. The id is that of its request; the meta is the
    /// open lease.
    GrantedFd = 28,
    /// As `program_fd`, for the file that the next request opens. The meta holds the open flags.
    OpenWithFd = 29,
    /// This process has closed its last copies of the descriptors of these open leases. Not
    /// answered.
    LeasesClosed = 30,
}

/// All kinds.
pub const KINDS: [FrameKind; 30] = [
    FrameKind::Challenge,
    FrameKind::Hello,
    FrameKind::Welcome,
    FrameKind::Refused,
    FrameKind::Request,
    FrameKind::Answer,
    FrameKind::Failure,
    FrameKind::Cancel,
    FrameKind::Subscribe,
    FrameKind::Unsubscribe,
    FrameKind::Recall,
    FrameKind::Ack,
    FrameKind::Ping,
    FrameKind::Pong,
    FrameKind::Goodbye,
    FrameKind::FdPassing,
    FrameKind::LeaseFd,
    FrameKind::LeasedFd,
    FrameKind::LeasesReturned,
    FrameKind::SupportsPrune,
    FrameKind::Segment,
    FrameKind::SegmentMapped,
    FrameKind::ReplyInShm,
    FrameKind::SegmentRemoved,
    FrameKind::WriteSegment,
    FrameKind::RequestInShm,
    FrameKind::ProgramFd,
    FrameKind::GrantedFd,
    FrameKind::OpenWithFd,
    FrameKind::LeasesClosed,
];

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The end that sends requests.
    Client,
    /// The end that answers them.
    Node,
}

/// Phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Neither side has authenticated the other yet.
    Handshake,
    /// Both sides have proved that they know the token, and have agreed on a version.
    Open,
}

impl FrameKind {
    /// Returns the kind with this number.
    pub fn from_number(number: u8) -> Option<Self> {
        KINDS.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// Returns its number.
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Maximum length of its meta, bytes.
    pub const fn meta_bytes_max(self) -> u32 {
        match self {
            Self::Challenge | Self::Hello | Self::Welcome | Self::Refused | Self::Goodbye => HANDSHAKE_META_BYTES_MAX,
            Self::Request | Self::Answer | Self::Failure | Self::RequestInShm => LARGE_META_BYTES_MAX,
            Self::Subscribe
            | Self::Unsubscribe
            | Self::Recall
            | Self::LeaseFd
            | Self::LeasesReturned
            | Self::SupportsPrune
            | Self::Segment
            | Self::ReplyInShm
            | Self::WriteSegment
            | Self::ProgramFd
            | Self::GrantedFd
            | Self::OpenWithFd
            | Self::LeasesClosed => META_BYTES_MAX,
            Self::Cancel
            | Self::Ack
            | Self::Ping
            | Self::Pong
            | Self::FdPassing
            | Self::LeasedFd
            | Self::SegmentMapped
            | Self::SegmentRemoved => 0,
        }
    }

    /// Maximum length of its payload, bytes.
    pub const fn payload_bytes_max(self) -> u32 {
        match self {
            Self::Request | Self::Answer => PAYLOAD_BYTES_MAX,
            _ => 0,
        }
    }

    /// Returns true if the frame may be sent to this side in this phase.
    pub const fn may_arrive(self, side: Side, phase: Phase) -> bool {
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
                    | Self::FdPassing
                    | Self::LeasedFd
                    | Self::Segment
                    | Self::ReplyInShm
                    | Self::SegmentRemoved
                    | Self::WriteSegment
                    | Self::GrantedFd
            ),
            (Phase::Open, Side::Node) => matches!(
                self,
                Self::Request
                    | Self::Cancel
                    | Self::Subscribe
                    | Self::Unsubscribe
                    | Self::SupportsPrune
                    | Self::Ack
                    | Self::Ping
                    | Self::Pong
                    | Self::Goodbye
                    | Self::LeaseFd
                    | Self::LeasesReturned
                    | Self::SegmentMapped
                    | Self::RequestInShm
                    | Self::ProgramFd
                    | Self::OpenWithFd
                    | Self::LeasesClosed
            ),
        }
    }
}

impl fmt::Display for FrameKind {
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
            Self::Subscribe => "subscribe",
            Self::Unsubscribe => "unsubscribe",
            Self::Recall => "recall",
            Self::Ack => "ack",
            Self::Ping => "ping",
            Self::Pong => "pong",
            Self::Goodbye => "goodbye",
            Self::FdPassing => "fd_passing",
            Self::LeaseFd => "lease_fd",
            Self::LeasedFd => "leased_fd",
            Self::LeasesReturned => "leases_returned",
            Self::SupportsPrune => "supports_prune",
            Self::Segment => "segment",
            Self::SegmentMapped => "segment_mapped",
            Self::ReplyInShm => "reply_in_shm",
            Self::SegmentRemoved => "segment_removed",
            Self::WriteSegment => "write_segment",
            Self::RequestInShm => "request_in_shm",
            Self::ProgramFd => "program_fd",
            Self::GrantedFd => "granted_fd",
            Self::OpenWithFd => "open_with_fd",
            Self::LeasesClosed => "leases_closed",
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
