//! Client side of the handshake.

use super::{
    HandshakeFailed, Nonce, Step, Token, Versions,
    message::{Challenge, Hello, Refused, Welcome, frame, what},
    token::{Said, proves},
};
use crate::{
    codec::parse_short,
    frame::{Frame, Kind},
};

/// Handshake of a client with one node.
#[derive(Debug)]
pub struct ClientHandshake {
    token: Token,
    versions: Versions,
    nonce: Nonce,
    address: String,
    about: String,
    brief: bool,
    /// The node's challenge, once it is answered.
    challenged: Option<Challenged>,
}

#[derive(Debug)]
struct Challenged {
    nonce: Nonce,
    versions: Versions,
    what: String,
}

impl ClientHandshake {
    /// Creates the handshake of one connection, with a fresh nonce. `about` describes the client
    /// for the node's log.
    pub fn new(token: Token, versions: Versions, nonce: Nonce, about: &str) -> Self {
        Self {
            token,
            versions,
            nonce,
            address: String::new(),
            about: what(about).into_owned(),
            brief: false,
            challenged: None,
        }
    }

    /// Sets the address of the node, as the pool file writes it: a node at any other address cannot
    /// prove itself.
    #[must_use]
    pub fn at(self, address: &str) -> Self {
        Self { address: address.to_owned(), ..self }
    }

    /// Declares that the client may end soon: a node of its host shows it no shared memory until it
    /// reads bytes.
    #[must_use]
    pub fn brief(self) -> Self {
        Self { brief: true, ..self }
    }

    /// Processes a received frame. None may follow after `Done` or `Close`.
    pub fn on(&mut self, came: &Frame<'_>) -> Step {
        let step = match (came.header.kind, self.challenged.take()) {
            (Kind::Refused, _) => Err(refusal(came)),
            (Kind::Challenge, None) => self.hello(came),
            (Kind::Welcome, Some(challenged)) => self.done(came, challenged),
            (kind, _) => Err(HandshakeFailed::Misplaced(kind)),
        };
        step.unwrap_or_else(|why| Step::Close { send: Vec::new(), why })
    }

    /// Answers the challenge, even if no version is shared: the node can then log the client, and
    /// rejects it.
    fn hello(&mut self, came: &Frame<'_>) -> Result<Step, HandshakeFailed> {
        let Challenge { versions, nonce, what: node } = parse_short(Kind::Challenge, came.meta)?;
        let challenged = Challenged { nonce, versions, what: what(&node).into_owned() };
        let proof = self.token.client_proof(&self.said(&challenged));
        self.challenged = Some(challenged);
        let hello = Hello {
            versions: self.versions,
            nonce: self.nonce,
            proof,
            brief: self.brief,
            what: self.about.as_str().into(),
        };
        Ok(Step::Send(frame(Kind::Hello, &hello)))
    }

    fn done(&self, came: &Frame<'_>, challenged: Challenged) -> Result<Step, HandshakeFailed> {
        let Welcome { version, proof } = parse_short(Kind::Welcome, came.meta)?;
        if !proves(proof, self.token.node_proof(&self.said(&challenged), version)) {
            return Err(HandshakeFailed::NotProven);
        }
        if self.versions.agree(challenged.versions) != Some(version) {
            return Err(HandshakeFailed::WrongVersion { chosen: version, offered: self.versions });
        }
        Ok(Step::Done { send: Vec::new(), version, brief: false, what: challenged.what })
    }

    fn said(&self, challenged: &Challenged) -> Said<'_> {
        Said {
            address: &self.address,
            node_nonce: challenged.nonce,
            client_nonce: self.nonce,
            node_versions: challenged.versions,
            client_versions: self.versions,
        }
    }
}

/// Decodes a rejection.
fn refusal(came: &Frame<'_>) -> HandshakeFailed {
    match parse_short::<Refused<'_>>(Kind::Refused, came.meta) {
        Ok(Refused { reason, why }) => HandshakeFailed::Refused { reason, why: why.into_owned() },
        Err(garbled) => garbled.into(),
    }
}
