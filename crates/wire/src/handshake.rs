//! Handshake: both sides prove that they know the pool's token, without sending it, and agree on a
//! version.
//!
//! ```text
//!   client                                              node
//!     | <-- challenge { versions, nonce, description } --- |   a nonce that no connection had
//!     | -- hello { versions, nonce, proof, ...             |   proof = keyed hash of nonces,
//!     |            short_lived, description } -----------> |           versions and address
//!     | <-- welcome { version, proof } ------------------- |   the node's own proof
//!     | <-- refused { reason, why }, and it closes ------- |   or this
//! ```
//!
//! [`NodeHandshake`] and [`ClientHandshake`] are state machines: a frame in, a step out. Nonces are
//! arguments, from the system's random source. The transport enforces the timeout
//! ([`HANDSHAKE_WAIT`]). The handshake's frames are the same in every protocol version.
//!
//! A proof is valid for one node of one pool ([`Token::of_node`]) at one address, so it cannot be
//! relayed to another.
//!
//! The handshake neither encrypts nor signs later frames. TLS protects from an attacker that can
//! change bytes on the way.

mod client;
mod message;
mod node;
mod token;
mod version;

pub use client::ClientHandshake;
pub use node::NodeHandshake;
pub use token::{InvalidToken, Nonce, TOKEN_BYTES_MAX, TOKEN_BYTES_MIN, Token};
pub use version::{InvalidVersionRange, ProtocolVersion, ProtocolVersions, VERSIONS};

use crate::frame::{DecodeError, FrameKind};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Timeout for the handshake of one side: far longer than the slowest network needs.
pub const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);
/// Maximum length of a side's description of itself, bytes. Longer ones are truncated.
pub const DESCRIPTION_BYTES_MAX: usize = 256;

/// Next action of a side.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Send this and wait for the next frame.
    Send(Vec<u8>),
    /// Send this, if it is not empty. The connection is now open (`Frames::open`).
    Done {
        /// A frame, or empty.
        send: Vec<u8>,
        /// The agreed version.
        version: ProtocolVersion,
        /// True for a client that may end soon: the node shows it no shared memory until it reads
        /// bytes.
        short_lived: bool,
        /// The other side's description of itself, for logs; may be empty. It proves nothing.
        description: String,
    },
    /// Send this, if it is not empty, and close the connection.
    Close {
        /// A frame, or empty.
        send: Vec<u8>,
        /// The reason.
        why: HandshakeFailed,
    },
}

/// Encodes the frame that rejects a connection for a reason that the transport found. The node
/// closes after it.
pub fn encode_refusal(why: &HandshakeFailed) -> Vec<u8> {
    message::encode_rejection(why.reason(), &why.to_string())
}

/// Category of a rejection, which decides the client's error whatever the text says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// Any other reason.
    Other,
    /// The client's token is not the pool's.
    Token,
    /// The two sides share no protocol version.
    Version,
    /// The node has no capacity now; a later try may succeed.
    Busy,
}

/// Why a handshake failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeFailed {
    /// The client does not know the token, or meant another node or address.
    #[error(
        "the pool token is wrong, or the pool file names another pool, node or address: use the pool file of the pool that runs here"
    )]
    WrongToken,
    /// The node accepted the client but did not prove that it knows the token.
    #[error(
        "the node could not prove that it knows the pool token: see that the address is the pool's, and trust nothing there"
    )]
    NotProven,
    /// The two sides share no protocol version.
    #[error(
        "the node speaks versions {node} of the protocol, the client {client}: use the same release of Tidemill on both sides"
    )]
    NoVersion {
        /// Versions of the node.
        node: ProtocolVersions,
        /// Versions of the client.
        client: ProtocolVersions,
    },
    /// The node chose a version that the client did not offer.
    #[error(
        "the node chose version {chosen} of the protocol, of {offered}: use the same release of Tidemill on both sides"
    )]
    WrongVersion {
        /// The version that the node chose.
        chosen: ProtocolVersion,
        /// The versions that the client offered.
        offered: ProtocolVersions,
    },
    /// The node rejected the connection.
    #[error("the node refused the connection: {why}")]
    Refused {
        /// Category of the rejection.
        reason: Reason,
        /// The node's text.
        why: String,
    },
    /// The received bytes are no valid handshake frame.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A frame of another step of the handshake.
    #[error("a frame `{0}` came in the wrong step of the handshake")]
    Misplaced(FrameKind),
    /// The node has its maximum number of connections. Found by the transport.
    #[error("the node has {0} connections and takes no more: end some, or try again later")]
    Full(usize),
    /// The client did not speak TLS at an address that requires it. Found by the transport.
    #[error("only TLS is spoken at this address: reach it as tls:HOST:PORT, with the pool's certificate")]
    OnlyTls,
    /// The other side did not finish within [`HANDSHAKE_WAIT`]. Found by the transport.
    #[error("the other side did not finish the handshake in {} s", HANDSHAKE_WAIT.as_secs())]
    TimedOut,
}

impl HandshakeFailed {
    /// Returns the category of the failure, found by this side or received from the other.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::WrongToken | Self::NotProven => Reason::Token,
            Self::NoVersion { .. } | Self::WrongVersion { .. } => Reason::Version,
            Self::Full(_) | Self::TimedOut => Reason::Busy,
            Self::Refused { reason, .. } => *reason,
            Self::Decode(_) | Self::Misplaced(_) | Self::OnlyTls => Reason::Other,
        }
    }
}
