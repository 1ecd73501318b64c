//! Environment variables of the library, for this program and for the programs that it starts.
//!
//! The values from the start of the program are kept separately, because it may change or overwrite
//! its environment.

use crate::classify;
use crate::signal_safe::{SignalSafe, SignalSafeGuard};
use std::ffi::{CStr, CString, c_char};
use std::sync::OnceLock;

/// Libraries to preload, this one among them.
const LIBRARIES: &CStr = c"LD_PRELOAD";
/// Path of the pool file.
pub const POOL: &CStr = c"TIDEMILL_POOL";
/// Prefix of the paths that stand for the pool.
pub const PREFIX: &CStr = c"TIDEMILL_PREFIX";
/// Working directory, if it is in the pool: its path, perhaps preceded by its file id and a colon.
pub const DIRECTORY: &CStr = c"TIDEMILL_CWD";
/// Devices on which descriptors of the pool lie: numbers separated by commas.
pub const DEVICES: &CStr = c"TIDEMILL_DEVICES";

/// Values that hold for the whole life of a program.
#[derive(Debug, Default)]
struct StartEnv {
    library: Vec<u8>,
    pool: Vec<u8>,
    prefix: Vec<u8>,
}

static START_ENV: OnceLock<StartEnv> = OnceLock::new();

/// Values that change.
#[derive(Debug)]
pub struct CurrentEnv {
    directory: Option<Vec<u8>>,
    devices: Vec<u8>,
}

static CURRENT_ENV: SignalSafe<CurrentEnv> = SignalSafe::new(CurrentEnv { directory: None, devices: Vec::new() });

/// Returns a variable of the environment; `None` if it is unset or empty.
pub fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: a nul-terminated name; called before the program's code and, later, under the rules
    // of getenv(3).
    let value: *const c_char = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: nul-terminated.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) }.to_bytes()).filter(|value| !value.is_empty())
}

/// Keeps the values from the start of the program, or from the first use of the pool if none was
/// set at the start.
pub fn set_start_env(pool: &[u8]) {
    let library = library_path().unwrap_or_default();
    // A second call would set the same values.
    let _ = START_ENV.set(StartEnv { library, pool: pool.to_vec(), prefix: classify::prefix().to_vec() });
}

/// Returns the path of this library's own file.
fn library_path() -> Option<Vec<u8>> {
    let mut found = std::mem::MaybeUninit::<libc::Dl_info>::uninit();
    // SAFETY: an address within this library; if the result is not 0, the structure is filled with
    // strings that last as long as the library is loaded.
    unsafe {
        let known = libc::dladdr((library_path as *const ()).cast(), found.as_mut_ptr()) != 0;
        known.then(|| CStr::from_ptr(found.assume_init().dli_fname).to_bytes().to_vec())
    }
}

/// Publishes the working directory for new programs: a path below the prefix, or `None` if it is
/// not in the pool.
pub fn set_directory(path: Option<&[u8]>) {
    lock_current().directory = path.map(<[u8]>::to_vec);
    export(DIRECTORY, path);
}

/// Publishes the devices on which descriptors lie for new programs.
pub fn set_devices(devices: &[u8]) {
    lock_current().devices = devices.to_vec();
    export(DEVICES, Some(devices));
}

/// Records the devices that the program inherited.
pub fn inherit_devices(devices: &[u8]) {
    lock_current().devices = devices.to_vec();
}

/// Records the working directory that the program inherited.
pub fn inherit_directory(path: &[u8]) {
    lock_current().directory = Some(path.to_vec());
}

/// Sets a variable in this process, for programs that the C library starts by itself: `system`,
/// `popen`.
fn export(name: &CStr, value: Option<&[u8]>) {
    let value = value.and_then(|value| CString::new(value).ok());
    // SAFETY: nul-terminated strings. A program that changes its environment in two threads at once
    // is at fault itself.
    unsafe {
        match value {
            Some(value) => libc::setenv(name.as_ptr(), value.as_ptr(), 1),
            None => libc::unsetenv(name.as_ptr()),
        };
    }
}

/// Required value of an environment variable of a new program.
#[derive(Debug)]
pub struct ChildVariable {
    /// Name.
    pub name: &'static [u8],
    value: RequiredValue,
}

#[derive(Debug)]
enum RequiredValue {
    /// This value, whatever was given.
    Exactly(Vec<u8>),
    /// Unset.
    Unset,
    /// This value, if none was given.
    Default(Vec<u8>),
    /// A list that contains this entry.
    Contains(Vec<u8>),
}

/// Returns the variables that a new program needs. It starts in `start_directory`, or in this
/// program's working directory. Returns none if this program has no pool.
pub fn child_variables(start_directory: Option<&[u8]>) -> Vec<ChildVariable> {
    let Some(start) = START_ENV.get() else { return Vec::new() };
    let current = lock_current();
    let directory = match start_directory {
        Some(start_directory) => {
            posix::strip_prefix(classify::prefix(), start_directory).map(|_| start_directory.to_vec())
        }
        None => current.directory.clone(),
    };
    let directory = directory.map_or(RequiredValue::Unset, RequiredValue::Exactly);
    let devices =
        if current.devices.is_empty() { RequiredValue::Unset } else { RequiredValue::Exactly(current.devices.clone()) };
    vec![
        ChildVariable { name: LIBRARIES.to_bytes(), value: RequiredValue::Contains(start.library.clone()) },
        ChildVariable { name: POOL.to_bytes(), value: RequiredValue::Default(start.pool.clone()) },
        ChildVariable { name: PREFIX.to_bytes(), value: RequiredValue::Default(start.prefix.clone()) },
        ChildVariable { name: DIRECTORY.to_bytes(), value: directory },
        ChildVariable { name: DEVICES.to_bytes(), value: devices },
    ]
}

impl ChildVariable {
    /// Returns whether the given value is the required one.
    pub fn fits(&self, given: Option<&[u8]>) -> bool {
        match (&self.value, given) {
            (RequiredValue::Exactly(value), Some(given)) => value == given,
            (RequiredValue::Default(_), Some(_)) | (RequiredValue::Unset, None) => true,
            (RequiredValue::Contains(value), Some(given)) => parts(given).any(|part| part == value.as_slice()),
            _ => false,
        }
    }

    /// Returns the environment entry; `None` if the variable is to be unset.
    pub fn entry(&self, given: Option<&[u8]>) -> Option<CString> {
        let value = match (&self.value, given) {
            (RequiredValue::Unset, _) => return None,
            (RequiredValue::Default(_) | RequiredValue::Contains(_), Some(given)) if self.fits(Some(given)) => {
                given.to_vec()
            }
            (RequiredValue::Contains(value), Some(given)) if !given.is_empty() => {
                [value.as_slice(), b":", given].concat()
            }
            (RequiredValue::Exactly(value) | RequiredValue::Default(value) | RequiredValue::Contains(value), _) => {
                value.clone()
            }
        };
        CString::new([self.name, b"=", &value].concat()).ok()
    }
}

/// Splits `LD_PRELOAD`, whose separators are colons and spaces.
fn parts(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    list.split(|byte| b": ".contains(byte))
}

/// Locks the changing values, also over a fork.
pub fn lock_current() -> SignalSafeGuard<'static, CurrentEnv> {
    CURRENT_ENV.lock()
}
