//! What stands in the environment for us, for this program and for those that it starts.
//!
//! The values that the program began with are kept apart: it may change its variables, or write over them.

use crate::ours;
use crate::shared::{Holding, Shared};
use std::ffi::{CStr, CString, c_char};
use std::sync::OnceLock;

/// Libraries that the loader puts before others, ours among them.
const LIBRARIES: &CStr = c"LD_PRELOAD";
/// Where the pool is: the path of its file.
pub const POOL: &CStr = c"TIDEMILL_POOL";
/// What paths stand for it.
pub const PREFIX: &CStr = c"TIDEMILL_PREFIX";
/// The working directory, where it is in the pool: its path, perhaps with its number and a colon in front.
pub const DIRECTORY: &CStr = c"TIDEMILL_CWD";
/// On which devices of the system descriptors of the pool lie, as numbers with a comma between them.
pub const DEVICES: &CStr = c"TIDEMILL_DEVICES";

/// What holds for the whole life of a program.
#[derive(Debug, Default)]
struct Begun {
    library: Vec<u8>,
    pool: Vec<u8>,
    prefix: Vec<u8>,
}

static BEGUN: OnceLock<Begun> = OnceLock::new();

/// What changes.
#[derive(Debug)]
pub struct Now {
    directory: Option<Vec<u8>>,
    devices: Vec<u8>,
}

static NOW: Shared<Now> = Shared::new(Now { directory: None, devices: Vec::new() });

/// A variable of the environment that the process began with, which nobody changes in place; none where it is empty.
pub fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: a name with its nul; before the program's code and, later, as any program asks.
    let value: *const c_char = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: it ends with a nul.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_bytes()).filter(|value| !value.is_empty())
}

/// Keeps what the program began with. Where no pool was named then, what it was at the first touch of it.
pub fn keep(pool: &[u8]) {
    let library = library().unwrap_or_default();
    // Set twice it would be the same.
    let _ = BEGUN.set(Begun { library, pool: pool.to_vec(), prefix: ours::prefix().to_vec() });
}

/// Our own file: that of the library which this function is in.
fn library() -> Option<Vec<u8>> {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: an address within us; the structure is filled where the answer is not 0, by texts that last as long as we are loaded.
    unsafe {
        let known = libc::dladdr((library as *const ()).cast(), found.as_mut_ptr()) != 0;
        known.then(|| CStr::from_ptr(found.assume_init().dli_fname).to_bytes().to_vec())
    }
}

/// Tells where the working directory is in the pool, a path below the prefix; none where it is not.
pub fn set_directory(path: Option<&[u8]>) {
    now().directory = path.map(<[u8]>::to_vec);
    tell(DIRECTORY, path);
}

/// Tells on which devices descriptors lie.
pub fn set_devices(devices: &[u8]) {
    now().devices = devices.to_vec();
    tell(DEVICES, Some(devices));
}

/// Notes the devices that the program was told when it began.
pub fn inherit_devices(devices: &[u8]) {
    now().devices = devices.to_vec();
}

/// Notes the working directory that the program was told when it began.
pub fn inherit_directory(path: &[u8]) {
    now().directory = Some(path.to_vec());
}

/// For what the C library itself starts, which comes to nobody: `system`, `popen`.
fn tell(name: &CStr, value: Option<&[u8]>) {
    let value = value.and_then(|value| CString::new(value).ok());
    // SAFETY: texts with their nul. A program that changes its variables in two threads at once has chosen so.
    unsafe {
        match value {
            Some(value) => libc::setenv(name.as_ptr(), value.as_ptr(), 1),
            None => libc::unsetenv(name.as_ptr()),
        };
    }
}

/// What a variable of a new program is to be.
#[derive(Debug)]
pub struct Wanted {
    /// Its name.
    pub name: &'static [u8],
    value: Value,
}

#[derive(Debug)]
enum Value {
    /// This, whatever was given.
    Is(Vec<u8>),
    /// Nothing.
    IsNot,
    /// This, if nothing was given.
    Unless(Vec<u8>),
    /// A list that has this in it.
    Has(Vec<u8>),
}

/// What new programs are to have, which begin in `folder`, or where this one is; nothing of a program for which no pool is named.
pub fn wanted(folder: Option<&[u8]>) -> Vec<Wanted> {
    let Some(begun) = BEGUN.get() else { return Vec::new() };
    let now = now();
    let directory = match folder {
        Some(folder) => posix::below(ours::prefix(), folder).map(|_| folder.to_vec()),
        None => now.directory.clone(),
    };
    let directory = directory.map_or(Value::IsNot, Value::Is);
    let devices = if now.devices.is_empty() { Value::IsNot } else { Value::Is(now.devices.clone()) };
    vec![
        Wanted { name: LIBRARIES.to_bytes(), value: Value::Has(begun.library.clone()) },
        Wanted { name: POOL.to_bytes(), value: Value::Unless(begun.pool.clone()) },
        Wanted { name: PREFIX.to_bytes(), value: Value::Unless(begun.prefix.clone()) },
        Wanted { name: DIRECTORY.to_bytes(), value: directory },
        Wanted { name: DEVICES.to_bytes(), value: devices },
    ]
}

impl Wanted {
    /// Whether what was given is that.
    pub fn fits(&self, given: Option<&[u8]>) -> bool {
        match (&self.value, given) {
            (Value::Is(value), Some(given)) => value == given,
            (Value::Unless(_), Some(_)) | (Value::IsNot, None) => true,
            (Value::Has(value), Some(given)) => parts(given).any(|part| part == value.as_slice()),
            _ => false,
        }
    }

    /// The entry that it is to be; none where there is to be none.
    pub fn entry(&self, given: Option<&[u8]>) -> Option<CString> {
        let value = match (&self.value, given) {
            (Value::IsNot, _) => return None,
            (Value::Unless(_) | Value::Has(_), Some(given)) if self.fits(Some(given)) => given.to_vec(),
            (Value::Has(value), Some(given)) if !given.is_empty() => [value.as_slice(), b":", given].concat(),
            (Value::Is(value) | Value::Unless(value) | Value::Has(value), _) => value.clone(),
        };
        CString::new([self.name, b"=", &value].concat()).ok()
    }
}

/// `LD_PRELOAD` is parted by colons and blanks.
fn parts(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| b": ".contains(byte))
}

/// The list itself: held over a fork.
pub fn now() -> Holding<'static, Now> {
    NOW.hold()
}
