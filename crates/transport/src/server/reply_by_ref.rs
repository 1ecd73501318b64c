//! Replies by reference: they tell where their bytes are in the node's memory instead of carrying
//! them.

use bytes::Bytes;
use std::slice::from_ref;
use wire::{Answer, Content, FoundObject, codec::ShmRange};

/// Message in place of a reply.
pub enum ReplyRef {
    /// Place of the bytes, and nothing else.
    Placed(ShmRange),
    Answer(Answer),
}

/// Converts a reply into one by reference, if its bytes can be viewed. `place` exports bytes to the
/// client and returns their places.
pub fn reply_by_ref(answer: &Answer, place: impl FnOnce(&[Bytes]) -> Option<Vec<ShmRange>>) -> Option<ReplyRef> {
    match answer {
        Answer::Bytes(bytes) => place(from_ref(bytes))?.pop().map(ReplyRef::Placed),
        Answer::Object(FoundObject { head, striped, length, content }) => {
            let content = match content {
                Content::Bytes(bytes) => Content::Shm(place(from_ref(bytes))?),
                // A client that does not view the pieces asks for them one by one.
                Content::Pieces(pieces) => place(pieces).map_or(Content::Striped((*striped)?), Content::Shm),
                _ => return None,
            };
            Some(ReplyRef::Answer(Answer::Object(FoundObject {
                head: *head,
                striped: *striped,
                length: *length,
                content,
            })))
        }
        _ => None,
    }
}
