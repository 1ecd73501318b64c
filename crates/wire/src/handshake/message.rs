//! The frames of the handshake. They are the same in every version, so that even versions that do not meet can say so.

use super::{Nonce, Reason, Version, Versions, WHAT_BYTES_MAX, token::Proof};
use crate::{
    codec::{cut, short},
    frame::Kind,
};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// Longer reasons are cut, bytes: they fit into a frame of the handshake.
const WHY_BYTES_MAX: usize = 900;

/// The node's first.
#[derive(Serialize, Deserialize)]
pub struct Challenge<'a> {
    pub versions: Versions,
    pub nonce: Nonce,
    pub what: Cow<'a, str>,
}

/// The client's first.
#[derive(Serialize, Deserialize)]
pub struct Hello<'a> {
    pub versions: Versions,
    pub nonce: Nonce,
    pub proof: Proof,
    pub brief: bool,
    pub what: Cow<'a, str>,
}

/// The node lets the client in.
#[derive(Serialize, Deserialize)]
pub struct Welcome {
    pub version: Version,
    pub proof: Proof,
}

/// The node does not.
#[derive(Serialize, Deserialize)]
pub struct Refused<'a> {
    pub reason: Reason,
    pub why: Cow<'a, str>,
}

/// A frame of the handshake.
pub fn frame<T: Serialize>(kind: Kind, meta: &T) -> Vec<u8> {
    let mut out = Vec::new();
    short(kind, 0, meta, &mut out);
    out
}

/// No, and why.
pub fn refused(reason: Reason, why: &str) -> Vec<u8> {
    frame(Kind::Refused, &Refused { reason, why: cut(why, WHY_BYTES_MAX).into() })
}

/// What a side says about itself, as long as it may be.
pub fn what(text: &str) -> Cow<'_, str> {
    cut(text, WHAT_BYTES_MAX).into()
}
