//! Targets of benchmarks.

use base::Problem;
use serde::{Deserialize, Serialize};
use std::{fmt, path::PathBuf, str::FromStr};

/// Storage that a benchmark works on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BenchTarget {
    /// A pool, by its pool file; without one, a pool is started for each case.
    Pool(Option<PathBuf>),
    /// A directory: on a disk, in a tmpfs, in a mount of a pool.
    Directory(PathBuf),
    /// A redis at HOST:PORT.
    Redis(String),
    /// A memcached at HOST:PORT; its item size limit (`-I`) must be at least a chunk.
    Memcached(String),
}

impl BenchTarget {
    /// Returns whether the target has directories, names and attributes.
    pub fn is_file_system(&self) -> bool {
        matches!(self, Self::Pool(_) | Self::Directory(_))
    }
}

impl fmt::Display for BenchTarget {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(_) => out.write_str("pool"),
            Self::Directory(path) => write!(out, "dir:{}", path.display()),
            Self::Redis(address) => write!(out, "redis:{address}"),
            Self::Memcached(address) => write!(out, "memcached:{address}"),
        }
    }
}

impl FromStr for BenchTarget {
    type Err = Problem;

    /// Parses `pool`, `dir:PATH`, `redis:HOST:PORT` or `memcached:HOST:PORT`.
    fn from_str(text: &str) -> Result<Self, Problem> {
        let wrong = || {
            Problem::new(format!("`{text}` is not a target"))
                .hint("pool, dir:PATH, redis:HOST:PORT or memcached:HOST:PORT")
        };
        match text.split_once(':') {
            None if text == "pool" => Ok(Self::Pool(None)),
            Some(("dir", path)) if !path.is_empty() => Ok(Self::Directory(path.into())),
            Some(("redis", address)) if address.contains(':') => Ok(Self::Redis(address.into())),
            Some(("memcached", address)) if address.contains(':') => Ok(Self::Memcached(address.into())),
            _ => Err(wrong()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_read_as_it_is_written() {
        for text in ["pool", "dir:/tmp/a:b", "redis:127.0.0.1:6379", "memcached:[::1]:11211"] {
            assert_eq!(text.parse::<BenchTarget>().expect(text).to_string(), text);
        }
        for text in ["", "pool:", "dir:", "redis:6379", "disk:/tmp", "/tmp"] {
            let refused = text.parse::<BenchTarget>().expect_err(text).to_string();
            assert!(refused.contains(&format!("`{text}`")) && refused.contains("dir:PATH"), "{refused}");
        }
    }
}
