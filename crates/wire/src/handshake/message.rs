//! Handshake frames. They are the same in every protocol version, so that sides without a common
//! version can report that.

use super::{Nonce, Reason, Version, Versions, WHAT_BYTES_MAX, token::Proof};
use crate::{
    codec::{cut, short},
    frame::Kind,
};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Maximum length of a rejection's text, bytes: it fits into a handshake frame. Longer ones are
/// truncated.
const WHY_BYTES_MAX: usize = 900;

/// First frame of the node.
#[derive(Serialize, Deserialize)]
pub struct Challenge<'a> {
    pub versions: Versions,
    pub nonce: Nonce,
    pub what: Cow<'a, str>,
}

/// First frame of the client.
#[derive(Serialize, Deserialize)]
pub struct Hello<'a> {
    pub versions: Versions,
    pub nonce: Nonce,
    pub proof: Proof,
    pub brief: bool,
    pub what: Cow<'a, str>,
}

/// Acceptance by the node.
#[derive(Serialize, Deserialize)]
pub struct Welcome {
    pub version: Version,
    pub proof: Proof,
}

/// Rejection by the node.
#[derive(Serialize, Deserialize)]
pub struct Refused<'a> {
    pub reason: Reason,
    pub why: Cow<'a, str>,
}

/// Encodes a handshake frame.
pub fn frame<T: Serialize>(kind: Kind, meta: &T) -> Vec<u8> {
    let mut out = Vec::new();
    short(kind, 0, meta, &mut out);
    out
}

/// Encodes a rejection.
pub fn refused(reason: Reason, why: &str) -> Vec<u8> {
    frame(Kind::Refused, &Refused { reason, why: cut(why, WHY_BYTES_MAX).into() })
}

/// Truncates a side's description of itself.
pub fn what(text: &str) -> Cow<'_, str> {
    cut(text, WHAT_BYTES_MAX).into()
}
