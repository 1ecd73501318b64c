//! `tidemill mount` and `tidemill umount`: a pool to try out with any program.

use crate::args::{MountArgs, UmountArgs};
use crate::{run_command, signals};
use base::Problem;
use fuse::{Mount, RuntimeDir};
use run::PoolSize;

/// Mounts an empty pool and waits until it is unmounted or a signal comes.
pub fn mount(args: &MountArgs) -> Result<u8, Vec<Problem>> {
    let PoolSize { size: memory, lowered } = run::Limits::read().pool(args.memory).map_err(|problem| vec![problem])?;
    let told = |error: fuse::MountError| vec![Problem::from(error)];
    let runtime = RuntimeDir::of_user().map_err(told)?;
    runtime.sweep().map_err(told)?;
    let mut claim = runtime.claim(&format!("mount-{}", std::process::id())).map_err(told)?;
    let space_wait = run_command::space_wait().map_err(|problem| vec![problem])?;
    let pool = run::embedded_pool(memory, space_wait).map_err(|problem| vec![problem])?;
    claim.also_mounts(&args.dir).map_err(told)?;
    let mount = Mount::new(pool, &args.dir, &fuse::Options::named(claim.name())).map_err(told)?;
    let (first, last) = (mount.unmounter(), mount.unmounter());
    let received = signals::watch(move || end(&first), move || drop(last.unmount()))
        .map_err(|error| vec![Problem::new(format!("cannot start: {error}"))])?;
    if !args.quiet {
        if let Some(line) = lowered {
            eprintln!("warning: {line}");
        }
        eprintln!("a pool of {memory} is mounted at {}; `tidemill umount {0}` or Ctrl-C ends it", args.dir.display());
    }
    mount.wait();
    drop(claim);
    Ok(received.exit_code().unwrap_or(0))
}

/// Unmounting ends the wait of `mount`.
fn end(unmounter: &fuse::Unmounter) {
    match unmounter.unmount() {
        Ok(fuse::Unmounted::Detached) => eprintln!("the pool is in use: it is detached, and ends with its last user"),
        Ok(_) => {}
        Err(error) => tracing::error!("{error}"),
    }
}

/// Unmounts what `mount` mounted.
pub fn umount(args: &UmountArgs) -> Result<u8, Vec<Problem>> {
    let told = |error: fuse::MountError| vec![Problem::from(error)];
    let unmounted = fuse::unmount_path(&args.dir).map_err(told)?;
    if unmounted == fuse::Unmounted::Detached {
        eprintln!("{} is in use: it is detached, and gone with its last user", args.dir.display());
    }
    Ok(0)
}
