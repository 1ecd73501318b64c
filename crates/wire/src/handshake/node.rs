//! Node side of the handshake.

use super::{
    HandshakeFailed, Nonce, ProtocolVersions, Step, Token,
    message::{Challenge, Hello, Welcome, description, encode_rejection, frame},
    token::{ProofInput, proves},
};
use crate::{
    codec::parse_short,
    frame::{DecodeError, Frame, FrameKind},
};

/// Handshake of a node with one client.
#[derive(Debug)]
pub struct NodeHandshake {
    token: Token,
    versions: ProtocolVersions,
    nonce: Nonce,
    address: String,
}

impl NodeHandshake {
    /// Creates the handshake of one connection, with a fresh nonce.
    pub fn new(token: Token, versions: ProtocolVersions, nonce: Nonce) -> Self {
        Self { token, versions, nonce, address: String::new() }
    }

    /// Sets the endpoint of the connection, as the pool file writes it: a client that meant another
    /// one is rejected.
    #[must_use]
    pub fn with_address(self, address: &str) -> Self {
        Self { address: address.to_owned(), ..self }
    }

    /// Encodes the node's first frame. `text` describes the node for the client's log.
    pub fn challenge(&self, text: &str) -> Vec<u8> {
        let challenge = Challenge { versions: self.versions, nonce: self.nonce, description: description(text) };
        frame(FrameKind::Challenge, &challenge)
    }

    /// Processes the first received frame. Never returns [`Step::Send`]: this is the node's only
    /// step.
    pub fn on_frame(self, received: &Frame<'_>) -> Step {
        match self.welcome(received) {
            Ok(done) => done,
            Err(why) => close(why),
        }
    }

    /// Rejects a connection whose bytes `Frames` found garbled.
    pub fn on_decode_error(self, error: DecodeError) -> Step {
        close(error.into())
    }

    fn welcome(self, received: &Frame<'_>) -> Result<Step, HandshakeFailed> {
        if received.header.kind != FrameKind::Hello {
            return Err(HandshakeFailed::Misplaced(received.header.kind));
        }
        let hello: Hello<'_> = parse_short(FrameKind::Hello, received.meta)?;
        let (node, client) = (self.versions, hello.versions);
        // Versions come first: a later version may compute proofs differently.
        let version = node.agree(client).ok_or(HandshakeFailed::NoVersion { node, client })?;
        let proof_input = ProofInput {
            address: &self.address,
            node_nonce: self.nonce,
            client_nonce: hello.nonce,
            node_versions: self.versions,
            client_versions: hello.versions,
        };
        if !proves(hello.proof, self.token.client_proof(&proof_input)) {
            return Err(HandshakeFailed::WrongToken);
        }
        let welcome = Welcome { version, proof: self.token.node_proof(&proof_input, version) };
        let (short_lived, description) = (hello.short_lived, description(&hello.description).into_owned());
        Ok(Step::Done { send: frame(FrameKind::Welcome, &welcome), version, short_lived, description })
    }
}

fn close(why: HandshakeFailed) -> Step {
    Step::Close { send: encode_rejection(why.reason(), &why.to_string()), why }
}
