//! `execl(3)`, `execlp(3)` and `execle(3)`: the words of the new program are their own arguments, as many as the caller has. Each puts those that came
//! in registers before those that lie on the stack, so that all are one list there, and goes on as the function that takes a list.

use super::processes::{execv, execve, execvp};
use libc::{c_char, c_int};
use std::arch::naked_asm;

type Words = *const *const c_char;

/// `execle(3)`: the variables stand behind the null that ends the words.
unsafe extern "C" fn with_variables(path: *const c_char, words: Words) -> c_int {
    let mut end = words;
    // SAFETY: the caller has put a null behind the words, and the variables behind that.
    unsafe {
        while !(*end).is_null() {
            end = end.add(1);
        }
        execve(path, words, (*end.add(1)).cast())
    }
}

/// Defines one.
macro_rules! listed {
    ($($(#[$doc:meta])* $name:ident => $then:path;)*) => {$(
        $(#[$doc])*
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, word: *const c_char) -> c_int {
            naked_asm!(
                // The words in registers take the place of the return address, which goes below them.
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

listed! {
    /// execl(3).
    execl => execv;
    /// execlp(3).
    execlp => execvp;
    /// execle(3).
    execle => with_variables;
}
