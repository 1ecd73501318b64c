//! Mounts an embedded pool in the foreground until it is unmounted: `cargo run -p mount --example
//! mount -- DIR [MEBIBYTES]`.
#![expect(clippy::print_stdout, reason = "a program for people")]

use std::{env, error::Error, path::PathBuf, sync::Arc};

use arena::Arena;
use base::ByteSize;
use client::Client;
use mount::{Mount, MountOptions};
use node::NodeSettings;
use vfs::Vfs;

/// Default memory of the pool, MiB.
const MEMORY_MIB: u64 = 1024;

fn main() -> Result<(), Box<dyn Error>> {
    let mut words = env::args_os().skip(1);
    let point = words.next().map(PathBuf::from).ok_or("say where to mount: mount DIR [MEBIBYTES]")?;
    let mebibytes = words.next().map_or(Ok(MEMORY_MIB), |word| word.to_string_lossy().parse())?;
    let vfs = pool(ByteSize::mib(mebibytes))?;
    let mount = Mount::new(&vfs, &point, &MountOptions::default())?;
    println!("mounted at {}; end it with: umount {}", mount.point().display(), point.display());
    mount.wait();
    println!("{:#?}", mount.traffic());
    Ok(())
}

fn pool(memory: ByteSize) -> Result<Vfs, Box<dyn Error>> {
    let arena = Arena::new(arena::ArenaOptions::with_capacity(memory.0))?;
    Ok(Vfs::new(Client::embedded(node::embedded(NodeSettings::new(memory), Arc::new(arena)))))
}
