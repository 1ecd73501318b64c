//! The pool file: where a pool is, and what lets one in. Format: docs/formats/pool.md.

use crate::{
    connect::{Key, NoWay},
    process::Process,
    trusted::{self, NotOpened},
};
use base::Problem;
use link::{Address, Certificate, Identity};
use rustix::io::Errno;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};
use wire::handshake::Token;

/// The format's version.
const VERSION: u32 = 2;
/// Longer files are not ours: a node takes a few hundred bytes.
const BYTES_MAX: u64 = 64 << 20;

/// Where a pool is, and what lets one in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolFile {
    /// The format.
    #[serde(rename = "tidemill_pool")]
    version: u32,
    /// When its start was done, seconds after 1970 in UTC.
    pub started: u64,
    /// The pool's id, which no other pool has. It is no secret.
    id: String,
    /// The token, as text.
    token: String,
    /// The pool's certificate (PEM), if nodes of other hosts speak within TLS: who has another is none of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    certificate: Option<String>,
    /// How many partitions it has for its life.
    pub partitions: u32,
    /// So many nodes may it have.
    pub max_nodes: u32,
    /// Its nodes, by ascending ids.
    pub nodes: Vec<NodeEntry>,
}

/// A node of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEntry {
    /// From 1.
    pub id: u32,
    /// The host, as it was named at the start.
    pub host: String,
    /// Its process there.
    #[serde(flatten)]
    pub(crate) process: Process,
    /// Where it is reached, the best way first.
    #[serde(serialize_with = "as_texts", deserialize_with = "from_texts")]
    pub addresses: Vec<Address>,
    /// What it may hold, bytes; 0 for one that only computes.
    pub memory: u64,
    /// How many one-processor tasks it runs at once; 0 for one that only stores.
    pub slots: u32,
    /// What it logs, a file of its host.
    pub log: PathBuf,
}

impl NodeEntry {
    /// The number of its process, on its host.
    pub fn pid(&self) -> u32 {
        self.process.pid
    }
}

impl PoolFile {
    /// The name of the pool file of a user who names none, in the folder of what runs.
    pub const USUAL_NAME: &str = "pool";

    /// Of a pool that has just started.
    pub(crate) fn new(
        started: u64,
        (id, token): (String, String),
        identity: Option<&Identity>,
        partitions: u32,
        max_nodes: u32,
        nodes: Vec<NodeEntry>,
    ) -> Self {
        let certificate = identity.map(|identity| identity.certificate().to_pem().to_owned());
        Self { version: VERSION, started, id, token, certificate, partitions, max_nodes, nodes }
    }

    /// Reads one. Whoever may not read it may not use the pool.
    pub fn read(path: &Path) -> Result<Self, Problem> {
        Ok(Self::find(path)?)
    }

    /// The same, with what a program is told.
    pub(crate) fn find(path: &Path) -> Result<Self, NoWay> {
        let text = read_text(path).map_err(|why| match why {
            NotOpened::Distrusted(problem) => NoWay { errno: Errno::ACCESS, problem },
            NotOpened::Io(error) => {
                NoWay { errno: Errno::from_io_error(&error).unwrap_or(Errno::INVAL), problem: unreadable(path, &error) }
            }
        })?;
        Self::parse(path, &text).map_err(|(errno, problem)| NoWay { problem, errno })
    }

    fn parse(path: &Path, text: &str) -> Result<Self, (Errno, Problem)> {
        let shown = path.display();
        if text.trim().is_empty() {
            let problem = Problem::new(format!("the pool of {shown} is just being started, or its start was cut off"));
            return Err((Errno::NOTCONN, problem.hint("try again; `tidemill pool start` takes over what was cut off")));
        }
        let none = |why: &dyn std::fmt::Display| {
            let problem = Problem::new(format!("{shown} is no pool file: {why}"));
            (Errno::INVAL, problem.hint("give one that `tidemill pool start` wrote"))
        };
        let is_ours = |error: serde_json::Error| none(&error);
        let read: serde_json::Value = serde_json::from_str(text).map_err(is_ours)?;
        match read.get("tidemill_pool").and_then(serde_json::Value::as_u64) {
            Some(version) if version == u64::from(VERSION) => serde_json::from_value(read).map_err(is_ours),
            Some(other) => {
                let problem = Problem::new(format!("{shown} is a pool file of version {other}, this reads {VERSION}"));
                Err((Errno::PROTO, problem.hint("use the tidemill that started the pool")))
            }
            None => Err(none(&"it has no `tidemill_pool`")),
        }
    }

    /// Puts it in the place of `path`, whole or not at all, readable for its owner alone.
    pub(crate) fn write(&self, path: &Path) -> io::Result<()> {
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let written = self.write_new(&part).and_then(|()| fs::rename(&part, path));
        if written.is_err() {
            fs::remove_file(&part).ok();
        }
        written
    }

    fn write_new(&self, part: &Path) -> io::Result<()> {
        fs::remove_file(part)
            .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(part)?;
        let text = serde_json::to_string_pretty(self).map_err(io::Error::other)?;
        file.write_all(text.as_bytes())?;
        file.write_all(b"\n")
    }

    /// What lets one in.
    pub(crate) fn key(&self, path: &Path) -> Result<Key, Problem> {
        let wrong = |error: &dyn std::fmt::Display| Problem::new(format!("{}: {error}", path.display()));
        let certificate = self.certificate.as_deref().map(Certificate::from_pem).transpose();
        Ok(Key {
            token: Token::new(self.token.as_bytes()).map_err(|error| wrong(&error))?,
            certificate: certificate.map_err(|error| wrong(&error))?,
            pool: self.id.clone(),
        })
    }
}

fn read_text(path: &Path) -> Result<String, NotOpened> {
    let (file, mut text) = (trusted::open(path)?, String::new());
    let length = file.metadata()?.len();
    if length > BYTES_MAX {
        return Err(io::Error::other(format!("it is no pool file: it has {length} bytes")).into());
    }
    file.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn unreadable(path: &Path, error: &io::Error) -> Problem {
    let shown = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => Problem::new(format!("there is no pool file {shown}"))
            .hint("`tidemill pool start` starts a pool; --pool FILE or TIDEMILL_POOL says where another is"),
        io::ErrorKind::PermissionDenied => {
            Problem::new(format!("the pool file {shown} may not be read: {error}")).hint("a pool is its owner's alone")
        }
        _ => Problem::new(format!("the pool file {shown} cannot be read: {error}")),
    }
}

fn as_texts<S: Serializer>(addresses: &[Address], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(addresses.iter().map(ToString::to_string))
}

fn from_texts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Address>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    texts.iter().map(|text| text.parse().map_err(serde::de::Error::custom)).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    pub fn sample() -> PoolFile {
        let process = Process { pid: 7, began: 8, boot: "b".into(), net: 9 };
        let entry = |id| NodeEntry {
            id,
            host: "here".into(),
            process: process.clone(),
            addresses: vec!["tcp:127.0.0.1:1".parse().unwrap()],
            memory: 1 << 30,
            slots: 2,
            log: "/run/log".into(),
        };
        PoolFile::new(
            0,
            ("fedcba9876543210".into(), "0123456789abcdef".into()),
            Some(&Identity::generate().unwrap()),
            64,
            8,
            vec![entry(1), entry(2)],
        )
    }

    #[test]
    fn a_pool_file_is_read_as_it_was_written_and_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pool");
        fs::write(folder.path().join("pool.part"), "of a start that was killed").unwrap();
        let sample = sample();
        sample.write(&path).unwrap();
        assert_eq!(PoolFile::read(&path).unwrap(), sample);
        assert!(sample.key(&path).unwrap().certificate.is_some());
        assert!(!fs::read_to_string(&path).unwrap().contains("PRIVATE"), "the key is the nodes' alone");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no part is left");
    }

    #[test]
    fn what_is_no_pool_file_is_refused_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pool");
        assert!(PoolFile::read(&path).unwrap_err().to_string().contains("there is no pool file"));
        let good = serde_json::to_string(&sample()).unwrap();
        let cases = [
            (String::new(), "being started"),
            ("{".into(), "no pool file"),
            ("{}".into(), "no `tidemill_pool`"),
            (r#"{"tidemill_pool": 1}"#.into(), "version 1"),
            (r#"{"tidemill_pool": 2}"#.into(), "missing field"),
            (good.replace("tcp:127.0.0.1:1", "tcp:127.0.0.1"), "no port"),
        ];
        for (text, why) in cases {
            fs::write(&path, &text).unwrap();
            let refused = PoolFile::read(&path).unwrap_err().to_string();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
