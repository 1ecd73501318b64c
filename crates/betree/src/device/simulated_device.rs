//! A device in memory that may lose power at any moment. Tests take images of it: of what a process
//! that is killed leaves, and of what is there after the loss of power.
#![expect(unsafe_code, reason = "mapped bytes, as of a file")]

use super::{MappedRange, StoreDevice};
use memmap2::{MmapOptions, MmapRaw};
use parking_lot::Mutex;
use std::{
    fmt, io, mem, slice,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};
use test_support::Random;

/// Length of a run that a device writes as a whole.
const SECTOR_BYTES: usize = 512;
/// Longest device.
const BYTES_MAX: u64 = 16 << 20;

/// A simulated device. Clones are the same device.
#[derive(Clone)]
pub struct SimulatedDevice(Arc<DeviceState>);

struct DeviceState {
    /// What the system shows.
    memory: MmapRaw,
    disk: Mutex<Disk>,
    /// Operations that have begun: writes, stores and syncs.
    operations: AtomicU64,
    /// Bytes up to which it may grow.
    capacity: AtomicU64,
    /// Writes fail from this operation on.
    fails_from: AtomicU64,
    hook: Mutex<Option<OperationHook>>,
}

/// Called before an operation, with its number.
type OperationHook = Box<dyn FnMut(u64, &SimulatedDevice) + Send>;

#[derive(Default)]
struct Disk {
    length: u64,
    /// What survives the loss of power for sure.
    synced: Vec<u8>,
}

impl SimulatedDevice {
    /// A device with these bytes, all of which are synced.
    pub fn new(bytes: &[u8]) -> Self {
        let memory = MmapOptions::new().len(usize::try_from(BYTES_MAX).unwrap()).map_anon().unwrap();
        let mut memory = memory;
        memory[..bytes.len()].copy_from_slice(bytes);
        let disk = Disk { length: bytes.len() as u64, synced: bytes.to_vec() };
        Self(Arc::new(DeviceState {
            memory: memory.into(),
            disk: Mutex::new(disk),
            operations: AtomicU64::new(0),
            capacity: AtomicU64::new(BYTES_MAX),
            fails_from: AtomicU64::new(u64::MAX),
            hook: Mutex::default(),
        }))
    }

    /// Calls a function before each operation.
    pub fn before_each(&self, hook: impl FnMut(u64, &Self) + Send + 'static) {
        *self.0.hook.lock() = Some(Box::new(hook));
    }

    /// Lets it grow to this length.
    pub fn set_capacity(&self, bytes: u64) {
        self.0.capacity.store(bytes, SeqCst);
    }

    /// Has writes and syncs fail from now on, or not.
    pub fn set_failing(&self, fails: bool) {
        self.0.fails_from.store(if fails { 0 } else { u64::MAX }, SeqCst);
    }

    /// The bytes as the system shows them: those that a killed process leaves.
    pub fn image(&self) -> Vec<u8> {
        let length = self.0.disk.lock().length;
        self.bytes()[..usize::try_from(length).unwrap()].to_vec()
    }

    /// The bytes that may be there after the loss of power: each sector as it was at the last sync,
    /// or as it is now.
    pub fn image_after_power_loss(&self, random: &mut Random) -> Vec<u8> {
        let (now, disk) = (self.image(), self.0.disk.lock());
        let mut image = if random.one_in(4) { disk.synced.clone() } else { now.clone() };
        let kept = random.below(5);
        for (at, sector) in image.chunks_mut(SECTOR_BYTES).enumerate() {
            let source = if random.below(5) < kept { &now } else { &disk.synced };
            for (offset, byte) in sector.iter_mut().enumerate() {
                *byte = source.get(at * SECTOR_BYTES + offset).copied().unwrap_or(0);
            }
        }
        image
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: tests use a device from one thread at a time.
        unsafe { slice::from_raw_parts(self.0.memory.as_ptr(), self.0.memory.len()) }
    }

    fn begin(&self) -> io::Result<()> {
        let number = self.0.operations.fetch_add(1, SeqCst) + 1;
        let hook = self.0.hook.lock().take();
        if let Some(mut hook) = hook {
            hook(number, self);
            *self.0.hook.lock() = Some(hook);
        }
        if number >= self.0.fails_from.load(SeqCst) { Err(io::Error::other("the device is gone")) } else { Ok(()) }
    }

    fn copy_in(&self, offset: u64, bytes: &[u8]) {
        let offset = usize::try_from(offset).unwrap();
        assert!(offset + bytes.len() <= self.0.memory.len());
        // SAFETY: within the memory; tests use a device from one thread at a time.
        unsafe { self.0.memory.as_mut_ptr().add(offset).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) }
    }
}

impl StoreDevice for SimulatedDevice {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.disk.lock().length)
    }

    fn reserve(&self, offset: u64, length: u64) -> io::Result<()> {
        self.begin()?;
        let end = offset + length;
        if end > self.0.capacity.load(SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let mut disk = self.0.disk.lock();
        disk.length = disk.length.max(end);
        Ok(())
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let at = usize::try_from(offset).unwrap();
        if offset + into.len() as u64 > self.length()? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        into.copy_from_slice(&self.bytes()[at..at + into.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.begin()?;
        let mut disk = self.0.disk.lock();
        disk.length = disk.length.max(offset + bytes.len() as u64);
        drop(disk);
        self.copy_in(offset, bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.begin()?;
        let image = self.image();
        self.0.disk.lock().synced = image;
        Ok(())
    }

    fn discard(&self, offset: u64, length: u64) -> io::Result<()> {
        // A reader of what is not used any more would see that.
        self.copy_in(offset, &vec![0xdd; usize::try_from(length).unwrap()]);
        Ok(())
    }

    fn map(&self, offset: u64, length: usize) -> io::Result<Arc<dyn MappedRange>> {
        assert!(offset + length as u64 <= self.length()?, "only what is reserved is mapped");
        Ok(Arc::new(SimulatedMapping { device: self.clone(), offset, length }))
    }
}

#[derive(Debug)]
struct SimulatedMapping {
    device: SimulatedDevice,
    offset: u64,
    length: usize,
}

impl MappedRange for SimulatedMapping {
    unsafe fn store(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.length);
        // Stores never fail.
        let _ = self.device.begin();
        self.device.copy_in(self.offset + at as u64, bytes);
    }

    unsafe fn bytes(&self, at: usize, length: usize) -> &[u8] {
        assert!(at + length <= self.length);
        let at = usize::try_from(self.offset).unwrap() + at;
        &self.device.bytes()[at..at + length]
    }
}

impl Drop for DeviceState {
    fn drop(&mut self) {
        // The hook may have the device.
        mem::take(&mut *self.hook.lock());
    }
}

impl fmt::Debug for SimulatedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedDevice").field("length", &self.0.disk.lock().length).finish_non_exhaustive()
    }
}
