//! `execl(3)`, `execlp(3)` and `execle(3)`, which take the new program's arguments as their own
//! variable arguments. Each stores the arguments that came in registers in front of those on the
//! stack, so that all form one list, and calls the function that takes a list.

use super::processes::{execv, execve, execvp};
use crate::launch::StringList;
use libc::{c_char, c_int};
use std::arch::naked_asm;

/// `execle(3)`: the environment follows the null that ends the arguments.
unsafe extern "C" fn execle_list(path: *const c_char, argv: StringList) -> c_int {
    let mut end = argv;
    // SAFETY: the caller has passed a null after the arguments, and the environment after it.
    unsafe {
        while !(*end).is_null() {
            end = end.add(1);
        }
        execve(path, argv, (*end.add(1)).cast())
    }
}

/// Defines the functions.
macro_rules! variadic {
    ($($(#[$doc:meta])* $name:ident => $then:path;)*) => {$(
        $(#[$doc])*
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, word: *const c_char) -> c_int {
            naked_asm!(
                // The arguments in registers replace the return address, which moves below them.
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push rax",
                "call {then}",
                "pop rcx",
                "add rsp, 40",
                "push rcx",
                "ret",
                then = sym $then,
            )
        }

        $(#[$doc])*
        #[cfg(target_arch = "aarch64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, word: *const c_char) -> c_int {
            naked_asm!(
                "sub sp, sp, #64",
                "str x30, [sp]",
                "stp x1, x2, [sp, #8]",
                "stp x3, x4, [sp, #24]",
                "stp x5, x6, [sp, #40]",
                "str x7, [sp, #56]",
                "add x1, sp, #8",
                "bl {then}",
                "ldr x30, [sp]",
                "add sp, sp, #64",
                "ret",
                then = sym $then,
            )
        }
    )*};
}

variadic! {
    /// execl(3).
    execl => execv;
    /// execlp(3).
    execlp => execvp;
    /// execle(3).
    execle => execle_list;
}
