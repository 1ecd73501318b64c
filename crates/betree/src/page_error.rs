//! Damage of a page that was read.

/// The first thing that is wrong with a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PageError {
    /// Its first bytes are those of something else.
    #[error("there is no such page")]
    OtherKind,
    /// It says that it is longer than what was read, or shorter than its header.
    #[error("its length is wrong")]
    Length,
    /// Its bytes are not those that were written.
    #[error("its checksum is wrong")]
    Checksum,
    /// Parts of it lie outside it.
    #[error("parts of it lie outside it")]
    Parts,
    /// Its keys do not ascend.
    #[error("its keys are not in order")]
    Order,
}
