//! Node side of the handshake.

use super::{
    HandshakeFailed, Nonce, Step, Token, Versions,
    message::{Challenge, Hello, Welcome, frame, refused, what},
    token::{Said, proves},
};
use crate::{
    codec::parse_short,
    frame::{Frame, Garbled, Kind},
};

/// Handshake of a node with one client.
#[derive(Debug)]
pub struct NodeHandshake {
    token: Token,
    versions: Versions,
    nonce: Nonce,
    address: String,
}

impl NodeHandshake {
    /// Creates the handshake of one connection, with a fresh nonce.
    pub fn new(token: Token, versions: Versions, nonce: Nonce) -> Self {
        Self { token, versions, nonce, address: String::new() }
    }

    /// Sets the endpoint of the connection, as the pool file writes it: a client that meant another
    /// one is rejected.
    #[must_use]
    pub fn at(self, address: &str) -> Self {
        Self { address: address.to_owned(), ..self }
    }

    /// Encodes the node's first frame. `about` describes the node for the client's log.
    pub fn challenge(&self, about: &str) -> Vec<u8> {
        let challenge = Challenge { versions: self.versions, nonce: self.nonce, what: what(about) };
        frame(Kind::Challenge, &challenge)
    }

    /// Processes the first received frame. Never returns [`Step::Send`]: this is the node's only
    /// step.
    pub fn on(self, came: &Frame<'_>) -> Step {
        match self.welcome(came) {
            Ok(done) => done,
            Err(why) => close(why),
        }
    }

    /// Rejects a connection whose bytes `Frames` found garbled.
    pub fn on_garbled(self, garbled: Garbled) -> Step {
        close(garbled.into())
    }

    fn welcome(self, came: &Frame<'_>) -> Result<Step, HandshakeFailed> {
        if came.header.kind != Kind::Hello {
            return Err(HandshakeFailed::Misplaced(came.header.kind));
        }
        let hello: Hello<'_> = parse_short(Kind::Hello, came.meta)?;
        let (node, client) = (self.versions, hello.versions);
        // Versions come first: a later version may compute proofs differently.
        let version = node.agree(client).ok_or(HandshakeFailed::NoVersion { node, client })?;
        let said = Said {
            address: &self.address,
            node_nonce: self.nonce,
            client_nonce: hello.nonce,
            node_versions: self.versions,
            client_versions: hello.versions,
        };
        if !proves(hello.proof, self.token.client_proof(&said)) {
            return Err(HandshakeFailed::WrongToken);
        }
        let welcome = Welcome { version, proof: self.token.node_proof(&said, version) };
        let (brief, what) = (hello.brief, what(&hello.what).into_owned());
        Ok(Step::Done { send: frame(Kind::Welcome, &welcome), version, brief, what })
    }
}

fn close(why: HandshakeFailed) -> Step {
    Step::Close { send: refused(why.reason(), &why.to_string()), why }
}
