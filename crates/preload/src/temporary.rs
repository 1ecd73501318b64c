//! Names for temporary files: six letters in place of the six X that a template has before its suffix (mkstemp(3)).

use crate::ours::{self, Said};
use rustix::io::Errno;
use std::ffi::{CStr, c_char, c_int};

const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const WILD: &[u8; 6] = b"XXXXXX";
/// Names that are tried: as many as the C library does.
const TRIES: usize = 62 * 62 * 62;

/// Fills a template with letters until `make` makes something of that name.
///
/// # Errors
/// `EINVAL` for a template without its six X, `EEXIST` when all that were tried are there, and what `make` says.
///
/// # Safety
/// The template ends with a nul, may be written, and is a path of ours.
pub unsafe fn named<T>(
    template: *mut c_char,
    suffix: c_int,
    mut make: impl FnMut(Said<'_>) -> Result<T, Errno>,
) -> Result<T, Errno> {
    // SAFETY: the caller says so.
    let length = unsafe { CStr::from_ptr(template) }.count_bytes();
    let wild = usize::try_from(suffix).ok().and_then(|suffix| length.checked_sub(suffix + WILD.len()));
    let at = wild.ok_or(Errno::INVAL)?;
    // SAFETY: six bytes before the suffix, within the text.
    let letters = unsafe { std::slice::from_raw_parts_mut(template.add(at).cast::<u8>(), WILD.len()) };
    if letters != WILD {
        return Err(Errno::INVAL);
    }
    for _ in 0..TRIES {
        fill(letters);
        // SAFETY: a path of ours whatever its last letters are.
        let Some(said) = (unsafe { ours::path(template) }) else { return Err(Errno::INVAL) };
        match make(said) {
            Err(Errno::EXIST) => {}
            made => return made,
        }
    }
    Err(Errno::EXIST)
}

/// Letters that nobody can guess, so nobody takes them before.
fn fill(letters: &mut [u8]) {
    let mut random = 0_u64;
    // SAFETY: eight bytes of ours. They are there at once, or the machine is starting; then the clock must do.
    if unsafe { libc::getrandom((&raw mut random).cast(), size_of::<u64>(), libc::GRND_NONBLOCK) } < 0 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        random = (now.tv_sec.wrapping_mul(1_000_000_007) ^ now.tv_nsec).cast_unsigned();
    }
    let mut rest = random;
    for letter in letters {
        *letter = LETTERS[usize::try_from(rest % 62).unwrap_or(0)];
        rest /= 62;
    }
}
