//! `dprintf(3)` and `vdprintf(3)` to a placeholder: the C library formats the text, and this
//! library writes it. The C library would write it without calling this library.
//!
//! `dprintf` is supported only on x86-64. On other processors, where a `va_list` has another form,
//! it is the C library's own.

use super::symbols;
use crate::classify::is_remote;
use libc::{c_char, c_int, c_void};

unsafe extern "C" {
    fn vasprintf(into: *mut *mut c_char, format: *const c_char, words: *mut c_void) -> c_int;
    fn __vasprintf_chk(into: *mut *mut c_char, flag: c_int, format: *const c_char, words: *mut c_void) -> c_int;
}

/// Writes the text that `print` formats into memory of the C library. Returns its length, or -1
/// with `errno` set.
fn print_to(descriptor: c_int, print: impl FnOnce(*mut *mut c_char) -> c_int) -> c_int {
    let mut text = std::ptr::null_mut();
    let length = print(&raw mut text);
    let Ok(bytes) = usize::try_from(length) else { return length };
    let (mut written, mut outcome) = (0, length);
    while written < bytes {
        // SAFETY: the text has that many bytes.
        let more = unsafe { super::write(descriptor, text.add(written).cast(), bytes - written) };
        let Ok(more) = usize::try_from(more) else {
            outcome = -1;
            break;
        };
        written += more;
    }
    // SAFETY: a block of the C library that has no other user.
    unsafe { libc::free(text.cast()) };
    outcome
}

symbols! {
    /// vdprintf(3).
    fn vdprintf(descriptor: c_int, format: *const c_char, words: *mut c_void) -> c_int {
        if is_remote(descriptor) {
            // SAFETY: the program's format and arguments.
            return print_to(descriptor, |into| unsafe { vasprintf(into, format, words) });
        }
        // SAFETY: forwards the program's own arguments.
        unsafe { next(descriptor, format, words) }
    }

    /// vdprintf(3) in programs built with `_FORTIFY_SOURCE`.
    fn __vdprintf_chk(descriptor: c_int, flag: c_int, format: *const c_char, words: *mut c_void) -> c_int {
        if is_remote(descriptor) {
            // SAFETY: the program's format and arguments.
            return print_to(descriptor, |into| unsafe { __vasprintf_chk(into, flag, format, words) });
        }
        // SAFETY: forwards the program's own arguments.
        unsafe { next(descriptor, flag, format, words) }
    }
}

/// Defines variadic functions by the function that takes a `va_list`. Stores the register arguments
/// in a register save area and builds the `va_list` after it (System V ABI, AMD64, 3.5.7). `named`
/// is the size of the named arguments in that area, `list` the register for the `va_list`, which
/// follows those of the named arguments.
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
                // Fields of the `va_list`: offsets of the next register of each class, overflow
                // area, register save area.
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
    /// dprintf(3) in programs built with `_FORTIFY_SOURCE`.
    __dprintf_chk(descriptor: c_int, flag: c_int, format: *const c_char), "24", "rcx" => __vdprintf_chk;
}
