//! The C library's functions as we give them to programs: the only place where C's types are met.
//!
//! Each asks first, without memory and without a lock, whether what it is given is ours: a path below the prefix, or one of our
//! descriptors. If not, the next library's function does it, as if we were not there.

mod asynchronous;
mod attributes;
mod bytes;
mod descriptors;
mod folders;
mod listed;
mod names;
mod opens;
mod printed;
mod processes;
mod raw;
mod rings;
mod sockets;
mod streams;
mod walks;

/// Gives functions to programs. In each body `next` is the function that would have been called without us, of the same arguments; names
/// behind `|` are the same function under another name, as `open64` is for `open` where file sizes have 64 bits.
macro_rules! symbols {
    ($($(#[$doc:meta])* fn $name:ident $args:tt -> $returned:ty $(| $alias:ident)* $body:block)*) => {$(
        $crate::symbols::symbol! { $(#[$doc])* $name $args -> $returned $body }
        $($crate::symbols::alias! { $alias = $name $args -> $returned })*
    )*};
}
pub(crate) use symbols;

/// One of them.
macro_rules! symbol {
    ($(#[$doc:meta])* $name:ident ($($arg:ident: $type:ty),* $(,)?) -> $returned:ty $body:block) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $returned {
            #[allow(dead_code, reason = "some are always ours")]
            unsafe fn next($($arg: $type),*) -> $returned {
                static NEXT: $crate::next::Next = $crate::next::Next::new(
                    match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => unreachable!(),
                    },
                );
                let next = NEXT.address();
                assert!(!next.is_null(), concat!("the C library has no ", stringify!($name)));
                // SAFETY: it is the C library's function of this name, whose type this is.
                let next: unsafe extern "C" fn($($type),*) -> $returned = unsafe { std::mem::transmute(next) };
                // SAFETY: what the program gave us.
                unsafe { next($($arg),*) }
            }
            $body
        }
    };
}
pub(crate) use symbol;

/// One of them under another name.
macro_rules! alias {
    ($alias:ident = $name:ident ($($arg:ident: $type:ty),* $(,)?) -> $returned:ty) => {
        /// The same.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $alias($($arg: $type),*) -> $returned {
            // SAFETY: what the program gave us.
            unsafe { $name($($arg),*) }
        }
    };
}
pub(crate) use alias;

/// Functions that name a file: what is done where the path is ours, as `said`. Else it is the next library's.
macro_rules! named {
    ($($(#[$doc:meta])* fn $name:ident ($($arg:ident: $type:ty),* $(,)?) -> $returned:ty $(| $alias:ident)*,
        $said:ident = $find:ident($($given:expr),*): $ours:expr;)*) => {
        $crate::symbols::symbols! {$(
            $(#[$doc])*
            fn $name ($($arg: $type),*) -> $returned $(| $alias)* {
                // SAFETY: what the program gave us is as the function's manual page says.
                unsafe {
                    match $crate::ours::$find($($given),*) {
                        Some($said) => $ours,
                        None => next($($arg),*),
                    }
                }
            }
        )*}
    };
}
pub(crate) use named;

/// Functions of a descriptor: what is done where it is ours. Else it is the next library's.
macro_rules! held {
    ($($(#[$doc:meta])* fn $name:ident ($($arg:ident: $type:ty),* $(,)?) -> $returned:ty $(| $alias:ident)*,
        $descriptor:expr => $ours:expr;)*) => {
        $crate::symbols::symbols! {$(
            $(#[$doc])*
            fn $name ($($arg: $type),*) -> $returned $(| $alias)* {
                // SAFETY: what the program gave us is as the function's manual page says.
                unsafe {
                    match $crate::ours::kind($descriptor) {
                        Some(_) => $ours,
                        None => next($($arg),*),
                    }
                }
            }
        )*}
    };
}
pub(crate) use held;

/// Functions of a descriptor's bytes: what is done where they are ours to move. Else the kernel has them, and the next library asks it.
macro_rules! moved {
    ($($(#[$doc:meta])* fn $name:ident ($($arg:ident: $type:ty),* $(,)?) -> $returned:ty $(| $alias:ident)*,
        $($descriptor:expr),+ => $ours:expr;)*) => {
        $crate::symbols::symbols! {$(
            $(#[$doc])*
            fn $name ($($arg: $type),*) -> $returned $(| $alias)* {
                // SAFETY: what the program gave us is as the function's manual page says.
                unsafe { if $($crate::ours::is_remote($descriptor))||+ { $ours } else { next($($arg),*) } }
            }
        )*}
    };
}
pub(crate) use moved;

pub(crate) use attributes::{lstat, stat};
pub(crate) use bytes::{lseek, read, write};
pub(crate) use descriptors::{close, dup3};
pub(crate) use folders::{closedir, opendir, readdir};
pub(crate) use names::{chdir, getcwd};
pub(crate) use opens::open;
