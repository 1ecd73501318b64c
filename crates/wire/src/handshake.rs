//! The handshake: both sides prove that they know the pool's token, without saying it, and agree on a version.
//!
//! ```text
//!   client                                            node
//!     | <-- challenge { versions, nonce, what } ------ |    a nonce that no connection had before
//!     | - hello { versions, nonce, proof, brief, what }|->  proof = keyed hash of nonces, versions and address
//!     | <-- welcome { version, proof } --------------- |    the node's own: it knows the token too
//!     | <- refused { reason, why }, and it ends ------ |    or this
//! ```
//!
//! [`NodeHandshake`] and [`ClientHandshake`] decide: frame in, step out. Nonces are arguments, from the system's random source;
//! how long a side waits for the other ([`HANDSHAKE_WAIT`]) is the transport's to count. The frames of the handshake are the
//! same in every version.
//!
//! A proof holds for one node of one pool ([`Token::of_node`]) at one address, so that it cannot be passed on to another.
//!
//! What it does not do: hide or sign what is said afterwards. Who can change bytes on the way is kept out by TLS.

mod client;
mod message;
mod node;
mod token;
mod version;

pub use client::ClientHandshake;
pub use node::NodeHandshake;
pub use token::{Nonce, TOKEN_BYTES_MAX, TOKEN_BYTES_MIN, Token, TokenRefused};
pub use version::{VERSIONS, Version, Versions, VersionsRefused};

use crate::frame::{Garbled, Kind};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Who has not done its part of the handshake by then is cut off: far more than the slowest network takes.
pub const HANDSHAKE_WAIT: Duration = Duration::from_secs(10);
/// Longer texts about oneself are cut, bytes.
pub const WHAT_BYTES_MAX: usize = 256;

/// What to do after a frame of the handshake.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Send this, and wait for the next frame.
    Send(Vec<u8>),
    /// Send this, if anything; the connection is open (`Frames::open`).
    Done {
        /// A frame, or nothing.
        send: Vec<u8>,
        /// What is spoken from here on.
        version: Version,
        /// Of a client: it may be over soon, and is shown no memory until it asks for bytes.
        brief: bool,
        /// What the other side says that it is, for logs; empty when it says nothing. It is no proof of anything.
        what: String,
    },
    /// Send this, if anything, and close.
    Close {
        /// A frame, or nothing.
        send: Vec<u8>,
        /// Why.
        why: HandshakeFailed,
    },
}

/// The frame by which a node refuses a connection for a reason that is the transport's to say; then it closes.
pub fn refusal(why: &HandshakeFailed) -> Vec<u8> {
    message::refused(why.reason(), &why.to_string())
}

/// What kind of no a node says: what the client makes of it, whatever the words are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reason {
    /// Any other.
    Other,
    /// The token is not the pool's.
    Token,
    /// No version of the protocol is spoken by both.
    Version,
    /// Not now, later perhaps.
    Busy,
}

/// Why a connection was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeFailed {
    /// The client does not know the token, or meant another node or address.
    #[error(
        "the pool token is wrong, or the pool file names another pool, node or address: use the pool file of the pool that runs here"
    )]
    WrongToken,
    /// The node does not know the token, although it lets clients in.
    #[error(
        "the node could not prove that it knows the pool token: see that the address is the pool's, and trust nothing there"
    )]
    NotProven,
    /// There is no version that both speak.
    #[error(
        "the node speaks versions {node} of the protocol, the client {client}: use the same release of Tidemill on both sides"
    )]
    NoVersion {
        /// The node's.
        node: Versions,
        /// The client's.
        client: Versions,
    },
    /// The node agreed to a version that it was not offered.
    #[error(
        "the node chose version {chosen} of the protocol, of {offered}: use the same release of Tidemill on both sides"
    )]
    WrongVersion {
        /// The node's choice.
        chosen: Version,
        /// What there was to choose from.
        offered: Versions,
    },
    /// The node said no.
    #[error("the node refused the connection: {why}")]
    Refused {
        /// What kind of no.
        reason: Reason,
        /// Its words.
        why: String,
    },
    /// What came is no frame of the handshake.
    #[error(transparent)]
    Garbled(#[from] Garbled),
    /// What came belongs to another step of it.
    #[error("a frame `{0}` came in the wrong step of the handshake")]
    Misplaced(Kind),
    /// The node has as many connections as it takes; the transport's to say.
    #[error("the node has {0} connections and takes no more: end some, or try again later")]
    Full(usize),
    /// The client speaks plainly where TLS is spoken; the transport's to say.
    #[error("only TLS is spoken at this address: reach it as tls:HOST:PORT, with the pool's certificate")]
    OnlyTls,
    /// The other side did not do its part within [`HANDSHAKE_WAIT`]; the transport's to say.
    #[error("the other side did not finish the handshake in {} s", HANDSHAKE_WAIT.as_secs())]
    TimedOut,
}

impl HandshakeFailed {
    /// What kind of no that is: of one that this side says, or that it was told.
    pub const fn reason(&self) -> Reason {
        match self {
            Self::WrongToken | Self::NotProven => Reason::Token,
            Self::NoVersion { .. } | Self::WrongVersion { .. } => Reason::Version,
            Self::Full(_) | Self::TimedOut => Reason::Busy,
            Self::Refused { reason, .. } => *reason,
            Self::Garbled(_) | Self::Misplaced(_) | Self::OnlyTls => Reason::Other,
        }
    }
}
