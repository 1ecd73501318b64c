//! Handshake frames. They are the same in every protocol version, so that sides without a common
//! version can report that.

use super::{DESCRIPTION_BYTES_MAX, Nonce, ProtocolVersion, ProtocolVersions, Reason, token::Proof};
use crate::{
    codec::{cut, short},
    frame::FrameKind,
};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Maximum length of a rejection's text, bytes: it fits into a handshake frame. Longer ones are
/// truncated.
const WHY_BYTES_MAX: usize = 900;

/// First frame of the node.
#[derive(Serialize, Deserialize)]
pub struct Challenge<'a> {
    pub versions: ProtocolVersions,
    pub nonce: Nonce,
    pub description: Cow<'a, str>,
}

/// First frame of the client.
#[derive(Serialize, Deserialize)]
pub struct Hello<'a> {
    pub versions: ProtocolVersions,
    pub nonce: Nonce,
    pub proof: Proof,
    pub short_lived: bool,
    pub description: Cow<'a, str>,
}

/// Acceptance by the node.
#[derive(Serialize, Deserialize)]
pub struct Welcome {
    pub version: ProtocolVersion,
    pub proof: Proof,
}

/// Rejection by the node.
#[derive(Serialize, Deserialize)]
pub struct Rejection<'a> {
    pub reason: Reason,
    pub why: Cow<'a, str>,
}

/// Encodes a handshake frame.
pub fn frame<T: Serialize>(kind: FrameKind, meta: &T) -> Vec<u8> {
    let mut out = Vec::new();
    short(kind, 0, meta, &mut out);
    out
}

/// Encodes a rejection.
pub fn encode_rejection(reason: Reason, why: &str) -> Vec<u8> {
    frame(FrameKind::Refused, &Rejection { reason, why: cut(why, WHY_BYTES_MAX).into() })
}

/// Truncates a side's description of itself.
pub fn description(text: &str) -> Cow<'_, str> {
    cut(text, DESCRIPTION_BYTES_MAX).into()
}
