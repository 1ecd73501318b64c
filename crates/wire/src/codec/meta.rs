//! Meta: values that serde encodes with postcard, and the frame around them.

use super::COPIED_BYTES_MAX;
use crate::frame::{DecodeError, FrameKind, HEADER_BYTES, Header, TooLong};
use bytes::Bytes;
use postcard::ser_flavors::Flavor;
use serde::{Deserialize, Serialize};

/// Postcard output that appends to a buffer, up to a limit.
struct LimitedBuf<'a> {
    out: &'a mut Vec<u8>,
    end: usize,
}

impl Flavor for LimitedBuf<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.try_extend(&[byte])
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        if self.out.len() + bytes.len() > self.end {
            return Err(postcard::Error::SerializeBufferFull);
        }
        self.out.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// Appends a frame. Returns the payload, unless it is short and was appended too. On error the
/// buffer stays as it was.
pub fn append<T: Serialize>(
    kind: FrameKind,
    id: u64,
    meta: &T,
    payload: &Bytes,
    out: &mut Vec<u8>,
) -> Result<Bytes, TooLong> {
    let start = out.len();
    let header =
        append_meta(kind, meta, out).and_then(|()| Header::new(kind, id, &out[start + HEADER_BYTES..], payload.len()));
    match header {
        Err(too_long) => {
            out.truncate(start);
            Err(too_long)
        }
        Ok(header) => {
            out[start..start + HEADER_BYTES].copy_from_slice(&header.encode());
            if payload.len() > COPIED_BYTES_MAX {
                return Ok(payload.clone());
            }
            out.extend_from_slice(payload);
            Ok(Bytes::new())
        }
    }
}

/// Appends the meta, after space for the header.
fn append_meta<T: Serialize>(kind: FrameKind, meta: &T, out: &mut Vec<u8>) -> Result<(), TooLong> {
    out.extend_from_slice(&[0; HEADER_BYTES]);
    let max = kind.meta_bytes_max();
    let end = out.len() + max as usize;
    match postcard::serialize_with_flavor(meta, LimitedBuf { out, end }) {
        Ok(()) => Ok(()),
        Err(postcard::Error::SerializeBufferFull) => Err(TooLong { kind, part: "meta", max }),
        Err(error) => panic!("a message that cannot be encoded: {error}"),
    }
}

/// Appends a frame without meta and payload.
pub fn append_bare(kind: FrameKind, id: u64, out: &mut Vec<u8>) {
    let header = Header::new(kind, id, &[], 0).expect("nothing is never too long");
    out.extend_from_slice(&header.encode());
}

/// Decodes a value that must take up the whole meta.
pub fn parse<'a, T: Deserialize<'a>>(kind: FrameKind, meta: &'a [u8]) -> Result<T, DecodeError> {
    match postcard::take_from_bytes(meta) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(DecodeError::Meta { kind, why: format!("{} bytes too many", rest.len()) }),
        Err(error) => Err(DecodeError::Meta { kind, why: error.to_string() }),
    }
}
