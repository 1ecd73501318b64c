//! Frames: the unit of the byte stream. A frame is a header of 32 bytes, the meta (small, encoded),
//! and the payload (bulk bytes as they are).
//!
//! [`Frames`] parses frames from the bytes that were read, in pieces of any size. [`WriteQueue`]
//! queues frames to write. Neither does I/O. [`codec`](crate::codec) decodes meta and payload.

mod frames;
mod header;
mod kind;
mod payload_buffers;
mod write_queue;

pub use frames::{Frame, Frames};
pub use header::{HEADER_BYTES, Header, MAGIC};
pub use kind::{
    FrameKind, HANDSHAKE_META_BYTES_MAX, KINDS, LARGE_META_BYTES_MAX, META_BYTES_MAX, PAYLOAD_BYTES_MAX, Phase, Side,
};
pub use write_queue::WriteQueue;

/// Protocol violation in the received bytes. The side that finds it sends this text in a goodbye
/// and closes the connection: the bytes that follow cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes do not start with [`MAGIC`].
    #[error("a frame does not start with `tide` but with {0:02x?}: see that the address is one of a Tidemill pool")]
    Magic([u8; 4]),
    /// The header is corrupt: its checksum is wrong.
    #[error("the header of a frame is damaged: see whether the network changes bytes, or the sender is broken")]
    HeaderCheck,
    /// Flags that this version does not define.
    #[error(
        "a frame of kind {0} has flags that this version does not know: use the same release of Tidemill on both sides"
    )]
    Flags(u8),
    /// Unknown kind of frame.
    #[error("there is no frame of kind {0} in this version: use the same release of Tidemill on both sides")]
    Kind(u8),
    /// The frame may not be sent to this side, or not in this phase.
    #[error("a frame `{kind}` came to the {side} {phase}, where none belongs")]
    Unexpected {
        /// Kind of the frame.
        kind: FrameKind,
        /// The side that received it.
        side: Side,
        /// Phase of the connection.
        phase: Phase,
    },
    /// The header announces more than frames of its kind may hold.
    #[error("a frame `{kind}` announces {part} of {bytes} bytes, at most {max} are allowed")]
    TooLong {
        /// Kind of the frame.
        kind: FrameKind,
        /// `meta` or `payload`.
        part: &'static str,
        /// Announced length.
        bytes: u32,
        /// Maximum length.
        max: u32,
    },
    /// The meta is corrupt: its checksum is wrong.
    #[error(
        "the meta of a frame `{kind}` (id {id}) is damaged: see whether the network changes bytes, or the sender is broken"
    )]
    MetaCheck {
        /// Kind of the frame.
        kind: FrameKind,
        /// Id of the frame.
        id: u64,
    },
    /// The meta arrived intact but does not decode to a valid value.
    #[error("the meta of a frame `{kind}` makes no sense: {why}")]
    Meta {
        /// Kind of the frame.
        kind: FrameKind,
        /// The problem.
        why: String,
    },
}

/// The message exceeds the bounds of its frame. Nothing was encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame `{kind}` would have {part} of more than {max} bytes: ask for less at once")]
pub struct TooLong {
    /// Kind of the frame.
    pub kind: FrameKind,
    /// `meta` or `payload`.
    pub part: &'static str,
    /// Maximum length, bytes.
    pub max: u32,
}
