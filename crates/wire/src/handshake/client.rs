//! Client side of the handshake.

use super::{
    HandshakeFailed, Nonce, ProtocolVersions, Step, Token,
    message::{Challenge, Hello, Rejection, Welcome, description, frame},
    token::{ProofInput, proves},
};
use crate::{
    codec::parse_short,
    frame::{Frame, FrameKind},
};

/// Handshake of a client with one node.
#[derive(Debug)]
pub struct ClientHandshake {
    token: Token,
    versions: ProtocolVersions,
    nonce: Nonce,
    address: String,
    text: String,
    short_lived: bool,
    /// The node's challenge, once it is answered.
    challenged: Option<NodeChallenge>,
}

#[derive(Debug)]
struct NodeChallenge {
    nonce: Nonce,
    versions: ProtocolVersions,
    description: String,
}

impl ClientHandshake {
    /// Creates the handshake of one connection, with a fresh nonce. `text` describes the client
    /// for the node's log.
    pub fn new(token: Token, versions: ProtocolVersions, nonce: Nonce, text: &str) -> Self {
        Self {
            token,
            versions,
            nonce,
            address: String::new(),
            text: description(text).into_owned(),
            short_lived: false,
            challenged: None,
        }
    }

    /// Sets the address of the node, as the pool file writes it: a node at any other address cannot
    /// prove itself.
    #[must_use]
    pub fn with_address(self, address: &str) -> Self {
        Self { address: address.to_owned(), ..self }
    }

    /// Declares that the client may end soon: a node of its host shows it no shared memory until it
    /// reads bytes.
    #[must_use]
    pub fn short_lived(self) -> Self {
        Self { short_lived: true, ..self }
    }

    /// Processes a received frame. None may follow after `Done` or `Close`.
    pub fn on_frame(&mut self, received: &Frame<'_>) -> Step {
        let step = match (received.header.kind, self.challenged.take()) {
            (FrameKind::Refused, _) => Err(refusal(received)),
            (FrameKind::Challenge, None) => self.hello(received),
            (FrameKind::Welcome, Some(challenged)) => self.done(received, challenged),
            (kind, _) => Err(HandshakeFailed::Misplaced(kind)),
        };
        step.unwrap_or_else(|why| Step::Close { send: Vec::new(), why })
    }

    /// Answers the challenge, even if no version is shared: the node can then log the client, and
    /// rejects it.
    fn hello(&mut self, received: &Frame<'_>) -> Result<Step, HandshakeFailed> {
        let Challenge { versions, nonce, description: node } = parse_short(FrameKind::Challenge, received.meta)?;
        let challenged = NodeChallenge { nonce, versions, description: description(&node).into_owned() };
        let proof = self.token.client_proof(&self.proof_input(&challenged));
        self.challenged = Some(challenged);
        let hello = Hello {
            versions: self.versions,
            nonce: self.nonce,
            proof,
            short_lived: self.short_lived,
            description: self.text.as_str().into(),
        };
        Ok(Step::Send(frame(FrameKind::Hello, &hello)))
    }

    fn done(&self, received: &Frame<'_>, challenged: NodeChallenge) -> Result<Step, HandshakeFailed> {
        let Welcome { version, proof } = parse_short(FrameKind::Welcome, received.meta)?;
        if !proves(proof, self.token.node_proof(&self.proof_input(&challenged), version)) {
            return Err(HandshakeFailed::NotProven);
        }
        if self.versions.agree(challenged.versions) != Some(version) {
            return Err(HandshakeFailed::WrongVersion { chosen: version, offered: self.versions });
        }
        Ok(Step::Done { send: Vec::new(), version, short_lived: false, description: challenged.description })
    }

    fn proof_input(&self, challenged: &NodeChallenge) -> ProofInput<'_> {
        ProofInput {
            address: &self.address,
            node_nonce: challenged.nonce,
            client_nonce: self.nonce,
            node_versions: challenged.versions,
            client_versions: self.versions,
        }
    }
}

/// Decodes a rejection.
fn refusal(received: &Frame<'_>) -> HandshakeFailed {
    match parse_short::<Rejection<'_>>(FrameKind::Refused, received.meta) {
        Ok(Rejection { reason, why }) => HandshakeFailed::Refused { reason, why: why.into_owned() },
        Err(error) => error.into(),
    }
}
