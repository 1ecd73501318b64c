//! Token of a pool, and proofs of knowing it.

use super::{ProtocolVersion, ProtocolVersions};
use placement::NodeId;
use std::fmt;

/// Minimum length of a token, bytes. An eavesdropper on a proof can test guesses offline, so a
/// token must not be guessable.
pub const TOKEN_BYTES_MIN: usize = 16;
/// Maximum length of a token, bytes.
pub const TOKEN_BYTES_MAX: usize = 4096;
/// Context of the key derivation: a token that is also used elsewhere gives another key there.
const KEY_CONTEXT: &str = "Tidemill 2026 pool token";

/// A number that is used once: 32 bytes from the system's random source.
pub type Nonce = [u8; 32];
/// Proof of knowing the token, for one connection.
pub(super) type Proof = [u8; 32];

/// The key that is derived from a pool's token. It is neither printed nor sent. [`Self::of_node`]
/// derives the key for the handshakes of one node.
#[derive(Clone)]
pub struct Token([u8; 32]);

/// The bytes are not a valid token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a pool token has {TOKEN_BYTES_MIN} to {TOKEN_BYTES_MAX} bytes, this one has {bytes}: \
     make one from the system's random source, for example with `openssl rand -hex 32`"
)]
pub struct InvalidToken {
    /// Their number, without surrounding whitespace.
    pub bytes: usize,
}

/// The input of both proofs: a proof is valid only for these nonces and versions, and for one
/// endpoint.
pub(super) struct ProofInput<'a> {
    /// The endpoint, as the pool file writes it.
    pub address: &'a str,
    pub node_nonce: Nonce,
    pub client_nonce: Nonce,
    pub node_versions: ProtocolVersions,
    pub client_versions: ProtocolVersions,
}

impl Token {
    /// Creates the token of a file's bytes; ignores surrounding whitespace.
    pub fn new(bytes: &[u8]) -> Result<Self, InvalidToken> {
        let bytes = bytes.trim_ascii();
        match bytes.len() {
            TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX => Ok(Self(blake3::derive_key(KEY_CONTEXT, bytes))),
            bytes => Err(InvalidToken { bytes }),
        }
    }

    /// Derives the key for the handshakes of one node of one pool. A proof made with it is invalid
    /// at any other node, so a relay of the handshake gains nothing.
    #[must_use]
    pub fn of_node(&self, pool: &str, node: NodeId) -> Self {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(b"key of node").update(&node.0.to_le_bytes()).update(pool.as_bytes());
        Self(hasher.finalize().into())
    }

    /// Computes the client's proof.
    pub(super) fn client_proof(&self, proof_input: &ProofInput<'_>) -> Proof {
        self.proof(b"client", proof_input, &[])
    }

    /// Computes the node's proof, which covers the chosen version too.
    pub(super) fn node_proof(&self, proof_input: &ProofInput<'_>, version: ProtocolVersion) -> Proof {
        self.proof(b"node", proof_input, &version.0.to_le_bytes())
    }

    fn proof(&self, who: &[u8], proof_input: &ProofInput<'_>, more: &[u8]) -> Proof {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(who).update(&proof_input.node_nonce).update(&proof_input.client_nonce);
        hasher.update(&proof_input.node_versions.encode()).update(&proof_input.client_versions.encode()).update(more);
        hasher.update(proof_input.address.as_bytes());
        hasher.finalize().into()
    }
}

/// Compares proofs in constant time.
pub(super) fn proves(given: Proof, right: Proof) -> bool {
    blake3::Hash::from_bytes(given) == blake3::Hash::from_bytes(right)
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_long_enough_not_to_be_guessed_and_its_line_end_does_not_count() {
        assert_eq!(Token::new(b"short\n").unwrap_err(), InvalidToken { bytes: 5 });
        assert!(Token::new(&[b'x'; TOKEN_BYTES_MAX + 1]).is_err());
        let key = |token: &[u8]| Token::new(token).unwrap().0;
        assert_eq!(key(b"0123456789abcdef"), key(b" 0123456789abcdef\r\n"));
        assert_ne!(key(b"0123456789abcdef"), key(b"0123456789abcdeg"));
    }

    #[test]
    fn a_token_is_not_shown() {
        let shown = format!("{:?}", Token::new(b"0123456789abcdef").unwrap());
        assert_eq!(shown, "Token(..)");
    }
}
