//! Removed inodes and the kernels that know them, with messages interleaved by a seed. A kernel can
//! use every inode that it knows until it forgets the inode. When all kernels have forgotten it,
//! nothing is left.

use crate::{clients::RETRY_WITHOUT_PAUSES, pool::*, replicas::Replicas};
use client::{InProcessConnection, testing::SteppedConnection};
use node::{Node, NodeSettings};
use parking_lot::Mutex;
use placement::FileId;
use std::{
    collections::BTreeMap,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    thread,
    time::Duration,
};
use store::ModelEngine;
use test_support::Random;
use vfs::Vfs;
use wire::{Kind, OpenFlags, Recall, Refusal, RenameMode};

/// Poll limit; a call that needs more never ends.
const POLLS_MAX: u32 = 2_000_000;
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const DIRECTORIES: usize = 3;

/// Inodes that one kernel knows and has not forgotten. `None` marks an inode that may be gone: a
/// directory that others can remove before its creator gets the reply.
type KnownInodes = Arc<Mutex<BTreeMap<FileId, Option<Kind>>>>;

struct PruningKernel {
    vfs: Vfs,
    known: KnownInodes,
    /// Removals that were reported to it.
    removals: Arc<Mutex<Vec<FileId>>>,
}

/// A request in flight.
struct KernelRequest {
    kernel: usize,
    number: u64,
    future: Pin<Box<dyn Future<Output = ()>>>,
}

struct PruningKernels {
    node: Arc<Node>,
    /// They decide nothing themselves, and stay equal.
    replicas: Arc<Replicas>,
    truth: Vfs,
    /// Inodes of the root, which may be split.
    files: u64,
    kernels: Vec<PruningKernel>,
    directories: Vec<FileId>,
    requests: Vec<KernelRequest>,
    begun: u64,
    /// Inodes to forget once all requests of the kernel with smaller numbers have ended: kernel,
    /// number of the latest request, inode.
    removed: Vec<(usize, u64, FileId)>,
    rng: Random,
}

fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    for _ in 0..POLLS_MAX {
        if let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return done;
        }
        thread::yield_now();
    }
    panic!("it never ends");
}

impl PruningKernels {
    fn new(seed: u64, split_entries: u32) -> Self {
        let (settings, replicas) = Replicas::logged(split_entries);
        let settings = NodeSettings { partitions: 16, space_wait: Duration::ZERO, ..settings };
        let node = node::embedded(settings, Arc::new(ModelEngine::new(64 << 20, STRIPE)));
        let truth = now(over(direct(&node), RETRY_WITHOUT_PAUSES));
        let directories = NAMES[..DIRECTORIES]
            .iter()
            .map(|name| now(truth.make_directory(FileId::ROOT, name.as_bytes(), 0o755, OWNER)));
        let directories: Vec<FileId> = directories.map(|made| made.unwrap().file).collect();
        let kernels = (0..3).map(|_| PruningKernel::mount(&node)).collect();
        let (files, requests, removed) = (node.usage().files - DIRECTORIES as u64, Vec::new(), Vec::new());
        let rng = Random::new(seed);
        Self { node, replicas, truth, files, kernels, directories, requests, begun: 0, removed, rng }
    }

    fn begin(&mut self, kernel: usize, future: impl Future<Output = ()> + 'static) {
        self.begun += 1;
        self.requests.push(KernelRequest { kernel, number: self.begun, future: Box::pin(future) });
    }

    /// One random step: starts a request, or polls one in flight.
    fn step(&mut self) {
        let kernel = self.rng.below(self.kernels.len());
        if self.requests.len() < 8 && self.rng.below(4) == 0 {
            self.begin_random(kernel);
        } else if !self.requests.is_empty() {
            let at = self.rng.below(self.requests.len());
            self.poll(at);
        }
        self.forget_removed();
    }

    fn poll(&mut self, at: usize) {
        if self.requests[at].future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            drop(self.requests.swap_remove(at));
        }
    }

    fn begin_random(&mut self, kernel: usize) {
        let mut place = || (self.rng.pick(&self.directories), self.rng.pick(&NAMES));
        let ((one, name), (other, target)) = (place(), place());
        let verb = self.rng.below(11);
        let PruningKernel { vfs, known, .. } = &self.kernels[kernel];
        let (vfs, known) = (vfs.clone(), known.clone());
        // A kernel starts nothing with an inode that it is about to forget.
        let is_removed = |file: &FileId| self.removed.iter().any(|(who, _, gone)| (*who, gone) == (kernel, file));
        let some: Vec<(FileId, Kind)> = known
            .lock()
            .iter()
            .filter(|(file, _)| !is_removed(file))
            .filter_map(|(file, kind)| Some((*file, (*kind)?)))
            .collect();
        let some = (!some.is_empty()).then(|| some[self.rng.below(some.len())]);
        match (verb, some) {
            (0 | 1, _) => self.begin(kernel, async move {
                if let Ok(made) = vfs.make_node(one, name.as_bytes(), Kind::File, 0o644, OWNER).await {
                    known.lock().insert(made.file, Some(made.kind));
                }
            }),
            (2, _) => self.begin(kernel, async move {
                if let Ok(made) = vfs.make_directory(one, name.as_bytes(), 0o755, OWNER).await {
                    known.lock().insert(made.file, None);
                }
            }),
            (3, _) => self.begin(kernel, async move {
                if let Err(Refusal::IsDirectory(_)) = vfs.unlink(one, name.as_bytes()).await {
                    drop(vfs.remove_directory(one, name.as_bytes()).await);
                }
            }),
            (4 | 5, _) => self.begin(kernel, async move {
                drop(vfs.rename(from(one, name), to(other, target), RenameMode::Replace).await);
            }),
            (6, Some((file, _))) => self.begin(kernel, async move {
                drop(vfs.link(file, one, name.as_bytes()).await);
            }),
            (7, Some((file, kind))) => self.begin(kernel, async move { use_inode(&vfs, file, kind).await }),
            _ => self.begin(kernel, async move {
                if let Ok(found) = vfs.lookup(one, name.as_bytes()).await {
                    known.lock().insert(found.file, Some(found.kind));
                    use_inode(&vfs, found.file, found.kind).await;
                }
            }),
        }
    }

    /// Forgets removed inodes of which no request in flight can tell the kernel again.
    fn forget_removed(&mut self) {
        for (number, kernel) in self.kernels.iter().enumerate() {
            let removals = std::mem::take(&mut *kernel.removals.lock());
            self.removed.extend(removals.into_iter().map(|file| (number, self.begun, file)));
        }
        let is_free = |(kernel, begun, _): &(usize, u64, FileId)| {
            !self.requests.iter().any(|request| request.kernel == *kernel && request.number <= *begun)
        };
        let (free, removed) = std::mem::take(&mut self.removed).into_iter().partition(is_free);
        self.removed = removed;
        let free: Vec<_> = free;
        for (kernel, _, file) in free {
            self.forget(kernel, file);
        }
    }

    fn forget(&mut self, kernel: usize, file: FileId) {
        self.kernels[kernel].known.lock().remove(&file);
        let vfs = self.kernels[kernel].vfs.clone();
        self.begin(kernel, async move { vfs.report_forgotten(file).await.unwrap() });
    }

    fn finish(&mut self) {
        for _ in 0..POLLS_MAX {
            self.forget_removed();
            if self.requests.is_empty() && self.removed.is_empty() {
                return;
            }
            if !self.requests.is_empty() {
                self.poll(0);
            }
            thread::yield_now();
        }
        panic!("it never ends");
    }

    /// Removes every named file, and makes the kernels forget all others.
    fn end(&mut self) {
        self.finish();
        now(clear(self.truth.clone(), FileId::ROOT));
        self.finish();
        for kernel in 0..self.kernels.len() {
            let known: Vec<FileId> = self.kernels[kernel].known.lock().keys().copied().collect();
            for file in known {
                self.forget(kernel, file);
            }
        }
        self.finish();
        let left = self.node.usage();
        // Invalidations on the node's threads may arrive a moment later.
        for _ in 0..POLLS_MAX {
            if self.node.usage().files == self.files {
                return;
            }
            thread::yield_now();
            self.finish();
        }
        panic!("inodes are left: {left:?}");
    }
}

impl PruningKernel {
    fn mount(node: &Arc<Node>) -> Self {
        let vfs = now(over(SteppedConnection::new(InProcessConnection(node.clone())), RETRY_WITHOUT_PAUSES));
        let removals = Arc::new(Mutex::new(Vec::new()));
        let target = removals.clone();
        let on_invalidate = move |recalls: &[Recall]| {
            let removed = recalls.iter().filter_map(|recall| match recall {
                Recall::Removed(file) => Some(*file),
                _ => None,
            });
            target.lock().extend(removed);
        };
        now(vfs.subscribe(Arc::new(on_invalidate))).unwrap();
        vfs.declare_prune_support();
        Self { vfs, known: KnownInodes::default(), removals }
    }
}

/// The calls that a kernel may make on an inode that it knows.
async fn use_inode(vfs: &Vfs, file: FileId, kind: Kind) {
    vfs.stat(file).await.expect("the kernel knows the inode and has not forgotten it");
    if kind == Kind::File {
        let handle = vfs.open(file, OpenFlags::READ).await.expect("as before");
        vfs.close(handle).await.unwrap();
    }
}

/// Removes everything in a directory.
fn clear(vfs: Vfs, directory: FileId) -> Pin<Box<dyn Future<Output = ()>>> {
    Box::pin(async move {
        for entry in all(&vfs, directory).await {
            if entry.kind == Kind::Directory {
                clear(vfs.clone(), entry.file).await;
                vfs.remove_directory(directory, entry.name.as_bytes()).await.unwrap();
            } else {
                vfs.unlink(directory, entry.name.as_bytes()).await.unwrap();
            }
        }
    })
}

#[test]
fn a_kernel_can_use_what_it_knows_until_it_forgets_it_and_then_nothing_is_left() {
    let mut decided = 0;
    for (seeds, split) in [(0..60, 4096), (100..130, 2)] {
        for seed in seeds {
            let mut kernels = PruningKernels::new(seed, split);
            for _ in 0..1200 {
                kernels.step();
            }
            let replicas = kernels.replicas.clone();
            kernels.end();
            decided += replicas.entries().unlinked;
        }
    }
    assert!(decided > 1000, "{decided} entries of kept and released inodes");
}

/// The name is in one partition and the inode in another, so a lookup takes two steps. The name is
/// removed between any two polls.
#[test]
fn a_lookup_finds_nothing_whose_last_name_has_gone_though_somebody_has_it_open() {
    let mut late = 0;
    for polls in 0..12 {
        let kernels = PruningKernels::new(0, 4096);
        let (truth, kernel) = (&kernels.truth, &kernels.kernels[0].vfs);
        let (one, other) = (kernels.directories[0], kernels.directories[1]);
        assert_ne!(one.partition(), other.partition());
        let (_, open) = now(truth.create(one, b"x", 0o644, OWNER, OpenFlags::READ_WRITE)).unwrap();
        now(truth.rename(from(one, "x"), to(other, "x"), RenameMode::Replace)).unwrap();
        let mut lookup = Box::pin(kernel.lookup(other, b"x"));
        let mut polled = (0..polls).map(|_| lookup.as_mut().poll(&mut Context::from_waker(Waker::noop())));
        let found = polled.find_map(|poll| if let Poll::Ready(found) = poll { Some(found) } else { None });
        drop(polled);
        now(truth.unlink(other, b"x")).unwrap();
        late += usize::from(found.is_none());
        match found.unwrap_or_else(|| now(lookup)) {
            Ok(found) => assert!(found.links > 0, "after {polls} polls"),
            Err(refusal) => assert!(matches!(refusal, Refusal::NotFound(_)), "{refusal}"),
        }
        now(truth.close(open)).unwrap();
    }
    assert!(late > 2, "the name never went while it was looked for");
}
