//! Names of temporary files: six letters replace the six X before a template's suffix (mkstemp(3)).

use crate::classify::{self, PoolPath};
use rustix::io::Errno;
use std::ffi::{CStr, c_char, c_int};

const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const WILD: &[u8; 6] = b"XXXXXX";
/// Number of names that are tried, as in the C library.
const TRIES: usize = 62 * 62 * 62;

/// Fills a template with random letters until `create` creates a file of that name.
///
/// # Errors
/// `EINVAL` for a template without its six X, `EEXIST` if all names that were tried exist, and
/// those of `create`.
///
/// # Safety
/// The template is nul-terminated, writable, and a path of the pool.
pub unsafe fn create_unique<T>(
    template: *mut c_char,
    suffix: c_int,
    mut create: impl FnMut(PoolPath<'_>) -> Result<T, Errno>,
) -> Result<T, Errno> {
    // SAFETY: guaranteed by the caller.
    let length = unsafe { CStr::from_ptr(template) }.count_bytes();
    let wild = usize::try_from(suffix).ok().and_then(|suffix| length.checked_sub(suffix + WILD.len()));
    let at = wild.ok_or(Errno::INVAL)?;
    // SAFETY: six bytes before the suffix, within the string.
    let letters = unsafe { std::slice::from_raw_parts_mut(template.add(at).cast::<u8>(), WILD.len()) };
    if letters != WILD {
        return Err(Errno::INVAL);
    }
    for _ in 0..TRIES {
        fill(letters);
        // SAFETY: a path of the pool, whatever its last letters are.
        let Some(arg) = (unsafe { classify::path(template) }) else { return Err(Errno::INVAL) };
        match create(arg) {
            Err(Errno::EXIST) => {}
            created => return created,
        }
    }
    Err(Errno::EXIST)
}

/// Fills in random letters that other processes cannot predict.
fn fill(letters: &mut [u8]) {
    let mut random = 0_u64;
    // SAFETY: a local buffer of eight bytes. If the kernel's generator is not ready, during boot,
    // the clock serves as seed.
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
