//! Frames: what travels over a stream of bytes. A header of 32 bytes, the meta (small, encoded), the payload (bulk bytes as they are).
//!
//! [`Frames`] makes frames of what is read, however it was cut; [`Outgoing`] holds what is to be written. Neither reads or writes.
//! What meta and payload mean is [`codec`](crate::codec)'s.

mod frames;
mod header;
mod kind;
mod outgoing;
mod room;

pub use frames::{Frame, Frames};
pub use header::{HEADER_BYTES, Header, MAGIC};
pub use kind::{
    HANDSHAKE_META_BYTES_MAX, KINDS, Kind, LARGE_META_BYTES_MAX, META_BYTES_MAX, PAYLOAD_BYTES_MAX, Phase, Side,
};
pub use outgoing::Outgoing;

/// Why bytes are not what the protocol says. Whoever sees it says goodbye with this text, and closes: behind it nothing can be
/// understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Garbled {
    /// It does not begin as a frame does.
    #[error("a frame does not start with `tide` but with {0:02x?}: see that the address is one of a Tidemill pool")]
    Magic([u8; 4]),
    /// The header is damaged.
    #[error("the header of a frame is damaged: see whether the network changes bytes, or the sender is broken")]
    HeaderCheck,
    /// Bits that mean nothing in this version.
    #[error(
        "a frame of kind {0} has flags that this version does not know: use the same release of Tidemill on both sides"
    )]
    Flags(u8),
    /// No kind of frame has this number.
    #[error("there is no frame of kind {0} in this version: use the same release of Tidemill on both sides")]
    Kind(u8),
    /// Not to be sent to this side, or not now.
    #[error("a frame `{kind}` came to the {side} {phase}, where none belongs")]
    Unexpected {
        /// What came.
        kind: Kind,
        /// Where it came.
        side: Side,
        /// When.
        phase: Phase,
    },
    /// More is announced than frames of the kind may hold.
    #[error("a frame `{kind}` announces {what} of {bytes} bytes, at most {max} are allowed")]
    TooLong {
        /// What came.
        kind: Kind,
        /// `meta` or `payload`.
        what: &'static str,
        /// So much.
        bytes: u32,
        /// The most.
        max: u32,
    },
    /// The meta is damaged.
    #[error(
        "the meta of a frame `{kind}` (id {id}) is damaged: see whether the network changes bytes, or the sender is broken"
    )]
    MetaCheck {
        /// What came.
        kind: Kind,
        /// Its id.
        id: u64,
    },
    /// The meta came as it was sent, and means nothing.
    #[error("the meta of a frame `{kind}` makes no sense: {why}")]
    Meta {
        /// What came.
        kind: Kind,
        /// What is wrong with it.
        why: String,
    },
}

/// What was to be sent is more than a frame may hold. Nothing was encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a frame `{kind}` would have {what} of more than {max} bytes: ask for less at once")]
pub struct TooLong {
    /// What was to be sent.
    pub kind: Kind,
    /// `meta` or `payload`.
    pub what: &'static str,
    /// The most, bytes.
    pub max: u32,
}
