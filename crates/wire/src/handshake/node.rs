//! The node's side of the handshake.

use super::{
    HandshakeFailed, Nonce, Step, Token, Versions,
    message::{Challenge, Hello, Welcome, frame, refused, what},
    token::{Said, proves},
};
use crate::{
    codec::parse_short,
    frame::{Frame, Garbled, Kind},
};

/// A node that does not know yet who has connected.
#[derive(Debug)]
pub struct NodeHandshake {
    token: Token,
    versions: Versions,
    nonce: Nonce,
    address: String,
}

impl NodeHandshake {
    /// For one connection, with a nonce that no other had.
    pub fn new(token: Token, versions: Versions, nonce: Nonce) -> Self {
        Self { token, versions, nonce, address: String::new() }
    }

    /// The same, at the endpoint where the connection came in, as the pool file writes it: who meant another is refused.
    #[must_use]
    pub fn at(self, address: &str) -> Self {
        Self { address: address.to_owned(), ..self }
    }

    /// What the node sends first; `about` says what it is, for the client's log.
    pub fn challenge(&self, about: &str) -> Vec<u8> {
        let challenge = Challenge { versions: self.versions, nonce: self.nonce, what: what(about) };
        frame(Kind::Challenge, &challenge)
    }

    /// What to do about the first frame that came. Never [`Step::Send`]: the node's part ends with it.
    pub fn on(self, came: &Frame<'_>) -> Step {
        match self.welcome(came) {
            Ok(done) => done,
            Err(why) => close(why),
        }
    }

    /// What to do when no frame came but what `Frames` calls garbled.
    pub fn on_garbled(self, garbled: Garbled) -> Step {
        close(garbled.into())
    }

    fn welcome(self, came: &Frame<'_>) -> Result<Step, HandshakeFailed> {
        if came.header.kind != Kind::Hello {
            return Err(HandshakeFailed::Misplaced(came.header.kind));
        }
        let hello: Hello<'_> = parse_short(Kind::Hello, came.meta)?;
        let (node, client) = (self.versions, hello.versions);
        // First: what a proof is made of may differ between versions.
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
