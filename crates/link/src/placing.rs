//! Which answers say where their bytes are, in place of having them.

use bytes::Bytes;
use std::slice::from_ref;
use wire::{Answer, Content, codec::Placed};

/// What is said in place of an answer.
pub enum Said {
    /// Where its bytes are, and nothing else.
    Placed(Placed),
    Answer(Answer),
}

/// What is said in place of an answer, if another thing is; `place` tells where pieces are, for a client that looks at them there.
pub fn said(answer: &Answer, place: impl FnOnce(&[Bytes]) -> Option<Vec<Placed>>) -> Option<Said> {
    match answer {
        Answer::Bytes(bytes) => place(from_ref(bytes))?.pop().map(Said::Placed),
        Answer::Object { head, striped, length, content } => {
            let content = match content {
                Content::Here(bytes) => Content::Placed(place(from_ref(bytes))?),
                // Who does not look at them asks for them one by one.
                Content::Pieces(pieces) => place(pieces).map_or(Content::Striped((*striped)?), Content::Placed),
                _ => return None,
            };
            Some(Said::Answer(Answer::Object { head: *head, striped: *striped, length: *length, content }))
        }
        _ => None,
    }
}
