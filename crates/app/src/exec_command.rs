//! `exec`: a program that sees a pool below a prefix, without a mount: the preload library is put before it.

use crate::args::ExecArgs;
use crate::pool_command;
use base::Problem;
use client::Patience;
use exec::{NotFound, Unreached, search_dirs, unreached, which};
use std::env;
use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// As shells tell it: the program is not there, or cannot be run.
const NOT_THERE: u8 = 127;
const NOT_RUN: u8 = 126;

/// Starts the program in this one's place; comes back only where that cannot be.
pub fn exec(args: &ExecArgs) -> Result<u8, Vec<Problem>> {
    let one = |problem| vec![problem];
    let prefix = checked(&args.prefix).map_err(one)?;
    let library = exec::library().map_err(|none| one(Problem::new(none.to_string()).hint(none.hint())))?;
    let pool = answering(args).map_err(one)?;
    let (program, words) = args.command.split_first().expect("clap asks for one");
    let mut command = match place(program, prefix) {
        Place::Pool => {
            // The system finds nothing there; a shell with the library does.
            let mut shell = Command::new("/bin/sh");
            shell.args([OsStr::new("-c"), OsStr::new("exec \"$0\" \"$@\""), program]);
            shell
        }
        Place::Host(Err(missing)) => return Ok(said(&missing, !matches!(missing, NotFound::NotExecutable { .. }))),
        Place::Host(Ok((path, dirs))) => {
            if let Some(code) = judged(&path, &dirs, args) {
                return Ok(code);
            }
            let mut command = Command::new(path);
            command.arg0(program);
            command
        }
    };
    command
        .args(words)
        .envs([exec::preloading(&library, env::var_os("LD_PRELOAD").as_deref())])
        .env("TIDEMILL_POOL", pool)
        .env("TIDEMILL_PREFIX", prefix);
    let error = command.exec();
    Ok(said(&format_args!("`{}` cannot be started: {error}", program.display()), error.kind() == ErrorKind::NotFound))
}

/// Where a program is.
enum Place {
    /// Below the prefix.
    Pool,
    /// On this host, with the folders that were searched.
    Host(Result<(PathBuf, Vec<PathBuf>), NotFound>),
}

fn place(program: &OsStr, prefix: &Path) -> Place {
    if Path::new(program).starts_with(prefix) {
        return Place::Pool;
    }
    let here = env::current_dir().unwrap_or_default();
    let dirs = search_dirs(&[], &here, env::var_os("PATH").as_deref());
    Place::Host(which(program, &dirs, &here).map(|path| (path, dirs)))
}

/// A prefix stands for the pool as text, so it is a plain absolute path, and not the root.
fn checked(prefix: &Path) -> Result<&Path, Problem> {
    let plain = prefix.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if prefix.is_absolute() && plain && prefix.parent().is_some() {
        return Ok(prefix);
    }
    let why = format!("`{}` cannot stand for a pool", prefix.display());
    Err(Problem::new(why).hint("--prefix takes an absolute path without `..`, such as /tidemill"))
}

/// The pool file's absolute path, once the pool has answered.
fn answering(args: &ExecArgs) -> Result<PathBuf, Problem> {
    let file = pool_command::file(&args.which)?;
    pool::runtime()?.block_on(pool::connect(&file, Patience::default()))?;
    std::path::absolute(&file).map_err(|error| Problem::new(format!("{}: {error}", file.display())))
}

/// Says what the library would not reach; a code where the program is not to be started then.
fn judged(program: &Path, dirs: &[PathBuf], args: &ExecArgs) -> Option<u8> {
    // One that cannot be read can perhaps be run; the loader will see.
    let why = unreached(program, dirs).ok()??;
    let mut out = std::io::stderr().lock();
    let refused = args.strict || matches!(why, Unreached::NoLoader { .. });
    let weight = if refused { "error" } else { "warning" };
    let _ = writeln!(out, "{weight}: {} is not seen: {why}", args.prefix.display());
    match why {
        Unreached::NoLoader { .. } => Some(NOT_THERE),
        _ if args.strict => Some(crate::REFUSED),
        _ => None,
    }
}

/// Says why a program does not run; the code that shells end with then.
fn said(why: &dyn Display, is_missing: bool) -> u8 {
    let _ = writeln!(std::io::stderr().lock(), "error: {why}");
    if is_missing { NOT_THERE } else { NOT_RUN }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_plain_path_below_the_root() {
        for good in ["/tidemill", "/mnt/pool", "/a/"] {
            assert!(checked(Path::new(good)).is_ok(), "{good}");
        }
        for bad in ["/", "", "tidemill", "/a/../b", "./a"] {
            assert!(checked(Path::new(bad)).is_err(), "{bad}");
        }
    }
}
