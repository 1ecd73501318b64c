//! Definitions of the C library's functions that programs call. Only this module handles C types.
//!
//! Each function first decides, without allocation and without a lock, whether its arguments belong
//! to the pool: a path below the prefix, or a descriptor of the pool. If not, it calls the next
//! library's function.

mod asynchronous;
mod attributes;
mod descriptors;
mod dir;
mod execl;
mod glob_ftw;
mod names;
mod open;
mod printed;
mod processes;
mod read_write;
mod rings;
mod sockets;
mod streams;
mod syscall;

/// Exports functions to programs. In each body, `next` calls the next library's function of the
/// same name. Names after `|` are aliases, such as `open64` for `open`, which are the same if file
/// sizes have 64 bits.
macro_rules! symbols {
    ($($(#[$doc:meta])* fn $name:ident $args:tt -> $returned:ty $(| $alias:ident)* $body:block)*) => {$(
        $crate::symbols::symbol! { $(#[$doc])* $name $args -> $returned $body }
        $($crate::symbols::alias! { $alias = $name $args -> $returned })*
    )*};
}
pub(crate) use symbols;

/// Exports one function.
macro_rules! symbol {
    ($(#[$doc:meta])* $name:ident ($($arg:ident: $type:ty),* $(,)?) -> $returned:ty $body:block) => {
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> $returned {
            #[allow(dead_code, reason = "some are always ours")]
            unsafe fn next($($arg: $type),*) -> $returned {
                static NEXT: $crate::real_symbol::RealSymbol = $crate::real_symbol::RealSymbol::new(
                    match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => unreachable!(),
                    },
                );
                let next = NEXT.address();
                assert!(!next.is_null(), concat!("the C library has no ", stringify!($name)));
                // SAFETY: the C library's function of this name, which has this type.
                let next: unsafe extern "C" fn($($type),*) -> $returned = unsafe { std::mem::transmute(next) };
                // SAFETY: the program's own arguments.
                unsafe { next($($arg),*) }
            }
            $body
        }
    };
}
pub(crate) use symbol;

/// Exports an alias of a function.
macro_rules! alias {
    ($alias:ident = $name:ident ($($arg:ident: $type:ty),* $(,)?) -> $returned:ty) => {
        /// Alias: forwards to the function of the primary name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $alias($($arg: $type),*) -> $returned {
            // SAFETY: the program's own arguments.
            unsafe { $name($($arg),*) }
        }
    };
}
pub(crate) use alias;

/// Exports functions that name a file. The expression runs if the path is of the pool, as
/// `$pool_path`; else the next library's function runs.
macro_rules! on_path {
    ($($(#[$doc:meta])* fn $name:ident ($($arg:ident: $type:ty),* $(,)?) -> $returned:ty $(| $alias:ident)*,
        $pool_path:ident = $find:ident($($given:expr),*): $then:expr;)*) => {
        $crate::symbols::symbols! {$(
            $(#[$doc])*
            fn $name ($($arg: $type),*) -> $returned $(| $alias)* {
                // SAFETY: the program's arguments fulfil the contract in the function's manual
                // page.
                unsafe {
                    match $crate::classify::$find($($given),*) {
                        Some($pool_path) => $then,
                        None => next($($arg),*),
                    }
                }
            }
        )*}
    };
}
pub(crate) use on_path;

/// Exports functions of a descriptor. The expression runs if the descriptor is of the pool; else
/// the next library's function runs.
macro_rules! on_descriptor {
    ($($(#[$doc:meta])* fn $name:ident ($($arg:ident: $type:ty),* $(,)?) -> $returned:ty $(| $alias:ident)*,
        $descriptor:expr => $then:expr;)*) => {
        $crate::symbols::symbols! {$(
            $(#[$doc])*
            fn $name ($($arg: $type),*) -> $returned $(| $alias)* {
                // SAFETY: the program's arguments fulfil the contract in the function's manual
                // page.
                unsafe {
                    match $crate::classify::kind($descriptor) {
                        Some(_) => $then,
                        None => next($($arg),*),
                    }
                }
            }
        )*}
    };
}
pub(crate) use on_descriptor;

/// Exports functions that move a descriptor's bytes. The expression runs if the descriptor is a
/// placeholder; else the next library's function runs, and the kernel moves the bytes.
macro_rules! on_placeholder {
    ($($(#[$doc:meta])* fn $name:ident ($($arg:ident: $type:ty),* $(,)?) -> $returned:ty $(| $alias:ident)*,
        $($descriptor:expr),+ => $then:expr;)*) => {
        $crate::symbols::symbols! {$(
            $(#[$doc])*
            fn $name ($($arg: $type),*) -> $returned $(| $alias)* {
                // SAFETY: the program's arguments fulfil the contract in the function's manual
                // page.
                unsafe { if $($crate::classify::is_remote($descriptor))||+ { $then } else { next($($arg),*) } }
            }
        )*}
    };
}
pub(crate) use on_placeholder;

pub(crate) use attributes::{lstat, stat};
pub(crate) use descriptors::{close, dup3};
pub(crate) use dir::{closedir, opendir, readdir};
pub(crate) use names::{chdir, getcwd};
pub(crate) use open::open;
pub(crate) use read_write::{lseek, read, write};
