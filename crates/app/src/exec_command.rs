//! `exec`: runs a program that sees a pool below a prefix by the preload library, without a mount.

use crate::args::ExecArgs;
use crate::pool_command;
use base::Problem;
use client::RetryPolicy;
use exec::{PreloadObstacle, ProgramNotFound, preload_obstacle, search_dirs, which};
use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::os::unix::process::CommandExt;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// Default path that stands for the pool's root.
const PREFIX: &str = "/tidemill";
/// Exit codes of shells for a program that does not exist, or cannot be run.
const EXIT_NOT_FOUND: u8 = 127;
const EXIT_NOT_EXECUTABLE: u8 = 126;

/// Replaces this process by the program; returns only if that fails.
pub fn exec(args: &ExecArgs) -> Result<u8, Vec<Problem>> {
    let one = |problem| vec![problem];
    let prefix = &check_prefix(&args.prefix).map_err(one)?;
    let library = exec::preload_library().map_err(|none| one(Problem::new(none.to_string()).hint(none.hint())))?;
    let pool = connected_pool_file(args, prefix).map_err(one)?;
    let (program, words) = args.command.split_first().expect("clap asks for one");
    let mut command = match locate(program, prefix) {
        ProgramLocation::Pool(program) => {
            // The kernel cannot find a program in the pool, but a shell with the preload library
            // can run it.
            let mut shell = Command::new("/bin/sh");
            shell.args([OsStr::new("-c"), OsStr::new("exec \"$0\" \"$@\""), &program]);
            shell
        }
        ProgramLocation::Host(Err(missing)) => {
            let is_there =
                matches!(missing, ProgramNotFound::NotExecutable { .. } | ProgramNotFound::IsDirectory { .. });
            return Ok(report_not_run(&missing, !is_there));
        }
        ProgramLocation::Host(Ok((path, why))) => {
            if let Some(code) = why.and_then(|why| report_obstacle(&why, prefix, args.strict)) {
                return Ok(code);
            }
            let mut command = Command::new(path);
            command.arg0(program);
            command
        }
    };
    command
        .args(words)
        .envs([exec::preload_variable(&library, env::var_os("LD_PRELOAD").as_deref())])
        .env("TIDEMILL_POOL", pool)
        .env("TIDEMILL_PREFIX", prefix);
    let error = command.exec();
    Ok(report_not_run(
        &format_args!("`{}` cannot be started: {error}", program.display()),
        error.kind() == ErrorKind::NotFound,
    ))
}

/// Location of a program.
enum ProgramLocation {
    /// The program or its interpreter is below the prefix.
    Pool(OsString),
    /// The program is on this host; with a reason why the preload library would not reach it, if
    /// any.
    Host(Result<(PathBuf, Option<PreloadObstacle>), ProgramNotFound>),
}

fn locate(program: &OsStr, prefix: &Path) -> ProgramLocation {
    if Path::new(program).starts_with(prefix) {
        return ProgramLocation::Pool(program.to_owned());
    }
    let current_dir = env::current_dir().unwrap_or_default();
    let dirs = search_dirs(&[], &current_dir, env::var_os("PATH").as_deref());
    let path = match which(program, &dirs, &current_dir) {
        Ok(path) => path,
        Err(missing) => return ProgramLocation::Host(Err(missing)),
    };
    // A program that cannot be read may still be executable; the loader will report errors.
    match preload_obstacle(&path, &dirs).ok().flatten() {
        Some(PreloadObstacle::NoInterpreter { interpreter, .. }) if interpreter.starts_with(prefix) => {
            ProgramLocation::Pool(path.into_os_string())
        }
        why => ProgramLocation::Host(Ok((path, why))),
    }
}

/// Checks the prefix. It is compared as text, so it must be a plain absolute path, and not the
/// root. An empty one means the default.
fn check_prefix(prefix: &Path) -> Result<PathBuf, Problem> {
    if prefix.as_os_str().is_empty() {
        return Ok(PathBuf::from(PREFIX));
    }
    let plain = prefix.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if prefix.is_absolute() && plain && prefix.parent().is_some() {
        return Ok(prefix.components().collect());
    }
    let why = format!("`{}` cannot be the prefix of a pool", prefix.display());
    Err(Problem::new(why).hint("--prefix takes an absolute path without `..`, such as /tidemill"))
}

/// The absolute path of the pool file, once the pool has answered.
fn connected_pool_file(args: &ExecArgs, prefix: &Path) -> Result<PathBuf, Problem> {
    let file = pool_command::file(&args.pool_arg)?;
    if file.starts_with(prefix) {
        let why = format!("`{}` cannot be the prefix of a pool whose file is {}", prefix.display(), file.display());
        return Err(Problem::new(why).hint("--prefix takes a path that the pool's own files are not below"));
    }
    pool::runtime()?.block_on(pool::connect(&file, RetryPolicy::default()))?;
    std::path::absolute(&file).map_err(|error| Problem::new(format!("{}: {error}", file.display())))
}

/// Prints why the preload library would not reach the program. Returns an exit code if the program
/// must not be started.
fn report_obstacle(why: &PreloadObstacle, prefix: &Path, strict: bool) -> Option<u8> {
    let mut out = std::io::stderr().lock();
    let cannot_start = matches!(why, PreloadObstacle::NoLoader { .. } | PreloadObstacle::NoInterpreter { .. });
    if cannot_start {
        let _ = writeln!(out, "error: {why}");
        return Some(EXIT_NOT_FOUND);
    }
    let _ = writeln!(out, "{}: {} is not seen: {why}", if strict { "error" } else { "warning" }, prefix.display());
    strict.then_some(crate::REFUSED)
}

/// Prints why a program cannot be run; returns the exit code that shells use for it.
fn report_not_run(why: &dyn Display, is_missing: bool) -> u8 {
    let _ = writeln!(std::io::stderr().lock(), "error: {why}");
    if is_missing { EXIT_NOT_FOUND } else { EXIT_NOT_EXECUTABLE }
}

#[cfg(test)]
#[path = "exec_command_test.rs"]
mod exec_command_test;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_a_plain_path_below_the_root() {
        for good in ["/tidemill", "/mnt/pool", "/a/"] {
            assert!(check_prefix(Path::new(good)).is_ok(), "{good}");
        }
        assert_eq!(check_prefix(Path::new("/a//b/./c/")).ok().as_deref(), Some(Path::new("/a/b/c")));
        assert_eq!(check_prefix(Path::new("")).ok().as_deref(), Some(Path::new(PREFIX)));
        for bad in ["/", "tidemill", "/a/../b", "./a"] {
            assert!(check_prefix(Path::new(bad)).is_err(), "{bad}");
        }
    }
}
