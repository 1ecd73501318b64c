//! `dprintf(3)` and `vdprintf(3)` to a file that is not local: the C library makes the text, and it is written here, for it would write past us.
//!
//! What it does not do: `dprintf` on other processors than x86-64, where a list of arguments has another form: that is the C library's own.

use super::symbols;
use crate::ours::is_remote;
use libc::{c_char, c_int, c_void};

unsafe extern "C" {
    fn vasprintf(into: *mut *mut c_char, format: *const c_char, words: *mut c_void) -> c_int;
    fn __vasprintf_chk(into: *mut *mut c_char, flag: c_int, format: *const c_char, words: *mut c_void) -> c_int;
}

/// Writes the text that `print` makes, in memory of the C library's. Returns its length, or -1 and `errno`.
fn printed(descriptor: c_int, print: impl FnOnce(*mut *mut c_char) -> c_int) -> c_int {
    let mut text = std::ptr::null_mut();
    let length = print(&raw mut text);
    let Ok(bytes) = usize::try_from(length) else { return length };
    let (mut written, mut outcome) = (0, length);
    while written < bytes {
        // SAFETY: the text has so many bytes.
        let more = unsafe { super::write(descriptor, text.add(written).cast(), bytes - written) };
        let Ok(more) = usize::try_from(more) else {
            outcome = -1;
            break;
        };
        written += more;
    }
    // SAFETY: the C library's memory, which nobody else has.
    unsafe { libc::free(text.cast()) };
    outcome
}

symbols! {
    /// vdprintf(3).
    fn vdprintf(descriptor: c_int, format: *const c_char, words: *mut c_void) -> c_int {
        if is_remote(descriptor) {
            // SAFETY: the program's format and words.
            return printed(descriptor, |into| unsafe { vasprintf(into, format, words) });
        }
        // SAFETY: as the program called us.
        unsafe { next(descriptor, format, words) }
    }

    /// vdprintf(3) of programs that are compiled with checks.
    fn __vdprintf_chk(descriptor: c_int, flag: c_int, format: *const c_char, words: *mut c_void) -> c_int {
        if is_remote(descriptor) {
            // SAFETY: the program's format and words.
            return printed(descriptor, |into| unsafe { __vasprintf_chk(into, flag, format, words) });
        }
        // SAFETY: as the program called us.
        unsafe { next(descriptor, flag, format, words) }
    }
}

/// Defines a function of any words by the one of a list of them: puts those that came in registers where lists have them, behind them the list itself
/// (System V ABI, AMD64, 3.5.7), in the register that comes behind the named ones, of which there are `named` bytes there.
#[cfg(target_arch = "x86_64")]
macro_rules! of_words {
    ($($(#[$doc:meta])* $name:ident ($($argument:ident: $type:ty),*), $named:literal, $list:literal => $then:path;)*) => {$(
        $(#[$doc])*
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> c_int {
            std::arch::naked_asm!(
                "sub rsp, 216",
                "mov [rsp + 16], rdx",
                "mov [rsp + 24], rcx",
                "mov [rsp + 32], r8",
                "mov [rsp + 40], r9",
                "test al, al",
                "je 2f",
                "movaps [rsp + 48], xmm0",
                "movaps [rsp + 64], xmm1",
                "movaps [rsp + 80], xmm2",
                "movaps [rsp + 96], xmm3",
                "movaps [rsp + 112], xmm4",
                "movaps [rsp + 128], xmm5",
                "movaps [rsp + 144], xmm6",
                "movaps [rsp + 160], xmm7",
                "2:",
                // How far the registers of both kinds were used up, where the words on the stack are, and where the registers are.
                concat!("mov dword ptr [rsp + 184], ", $named),
                "mov dword ptr [rsp + 188], 48",
                "lea rax, [rsp + 224]",
                "mov [rsp + 192], rax",
                "mov [rsp + 200], rsp",
                concat!("lea ", $list, ", [rsp + 184]"),
                "call {then}",
                "add rsp, 216",
                "ret",
                then = sym $then,
            )
        }
    )*};
}

#[cfg(target_arch = "x86_64")]
of_words! {
    /// dprintf(3).
    dprintf(descriptor: c_int, format: *const c_char), "16", "rdx" => vdprintf;
    /// dprintf(3) of programs that are compiled with checks.
    __dprintf_chk(descriptor: c_int, flag: c_int, format: *const c_char), "24", "rcx" => __vdprintf_chk;
}
