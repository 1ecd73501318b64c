//! The pool file: addresses of a pool's nodes, and the credentials. Format: docs/formats/pool.md.

use crate::{
    connect::{ConnectError, PoolSecret},
    ownership::{self, OpenError},
    process::Process,
};
use base::Problem;
use rustix::io::Errno;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    net::SocketAddr,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};
use transport::{Address, Certificate, Identity};
use wire::handshake::Token;

/// Version of the format.
const VERSION: u32 = 2;
/// Size limit, bytes; a node takes a few hundred. A longer file is not a pool file.
const BYTES_MAX: u64 = 64 << 20;

/// Pool file: addresses of the nodes, and the credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolFile {
    /// Version of the format.
    #[serde(rename = "tidemill_pool")]
    version: u32,
    /// Time at which the start was complete, seconds after 1970 in UTC.
    pub started: u64,
    /// Unique id of the pool; not a secret.
    id: String,
    /// The token, as text.
    token: String,
    /// The pool's certificate (PEM), if traffic between hosts is encrypted; a server with any other
    /// certificate is not a node of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    certificate: Option<String>,
    /// Number of partitions, fixed for the pool's life.
    pub partitions: u32,
    /// Largest number of nodes that the pool may have.
    pub max_nodes: u32,
    /// Nodes of the pool, by ascending ids.
    pub nodes: Vec<NodeEntry>,
}

/// A node of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEntry {
    /// Node id, from 1.
    pub id: u32,
    /// Host of the node: the name given at the start, else the host's own name.
    pub host: String,
    /// Process of the node on that host.
    #[serde(flatten)]
    pub(crate) process: Process,
    /// Addresses of the node, the preferred one first.
    #[serde(serialize_with = "as_texts", deserialize_with = "from_texts")]
    pub addresses: Vec<Address>,
    /// Capacity of the node, bytes; 0 for a node that only computes.
    pub memory: u64,
    /// Number of one-processor tasks that the node runs at once; 0 for a node that only stores.
    pub slots: u32,
    /// Log of the node, a file of its host.
    pub log: PathBuf,
    /// The name that its starter has given it, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The node's own certificate (PEM), if it has joined later and traffic between hosts is
    /// encrypted; else the pool's counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) certificate: Option<String>,
    /// Address of the node's metrics, if they are served.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<SocketAddr>,
}

impl NodeEntry {
    /// Process id of the node, on its host.
    pub fn pid(&self) -> u32 {
        self.process.pid
    }
}

impl PoolFile {
    /// Name of a user's default pool file, in the runtime directory.
    pub const DEFAULT_NAME: &str = "pool";

    /// The file of a pool that has just started.
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

    /// Reads a pool file. A user who may not read it cannot use the pool.
    pub fn read(path: &Path) -> Result<Self, Problem> {
        Ok(Self::load(path)?)
    }

    /// Like [`Self::read`], and its error has an errno for a program.
    pub(crate) fn load(path: &Path) -> Result<Self, ConnectError> {
        let text = read_text(path).map_err(|why| match why {
            OpenError::Distrusted(problem) => ConnectError { errno: Errno::ACCESS, problem },
            OpenError::Io(error) => ConnectError {
                errno: Errno::from_io_error(&error).unwrap_or(Errno::INVAL),
                problem: unreadable(path, &error),
            },
        })?;
        Self::parse(path, &text).map_err(|(errno, problem)| ConnectError { problem, errno })
    }

    fn parse(path: &Path, text: &str) -> Result<Self, (Errno, Problem)> {
        let shown = path.display();
        if text.trim().is_empty() {
            let problem = Problem::new(format!("the pool of {shown} is being started, or its start was interrupted"));
            return Err((
                Errno::NOTCONN,
                problem.hint("try again; `tidemill pool start` replaces an interrupted start"),
            ));
        }
        let none = |why: &dyn std::fmt::Display| {
            let problem = Problem::new(format!("{shown} is not a pool file: {why}"));
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

    /// Replaces the file at `path` atomically; only the owner may read it.
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

    /// The certificate (PEM) of the nodes that the pool began with, if traffic between hosts is
    /// encrypted.
    pub(crate) fn certificate(&self) -> Option<String> {
        self.certificate.clone()
    }

    /// The id and the token, for nodes that join.
    pub(crate) fn credentials(&self) -> (String, String) {
        (self.id.clone(), self.token.clone())
    }

    /// Credentials for the pool, and the certificate of its nodes.
    pub(crate) fn secret(&self, path: &Path) -> Result<PoolSecret, Problem> {
        let wrong = |error: &dyn std::fmt::Display| Problem::new(format!("{}: {error}", path.display()));
        let certificate = self.certificate.as_deref().map(Certificate::from_pem).transpose();
        Ok(PoolSecret {
            token: Token::new(self.token.as_bytes()).map_err(|error| wrong(&error))?,
            certificate: certificate.map_err(|error| wrong(&error))?,
            pool: self.id.clone(),
        })
    }
}

fn read_text(path: &Path) -> Result<String, OpenError> {
    let (file, mut text) = (ownership::open(path)?, String::new());
    let length = file.metadata()?.len();
    if length > BYTES_MAX {
        return Err(io::Error::other(format!("it is not a pool file: it has {length} bytes")).into());
    }
    file.take(BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn unreadable(path: &Path, error: &io::Error) -> Problem {
    let shown = path.display();
    match error.kind() {
        io::ErrorKind::NotFound => Problem::new(format!("there is no pool file {shown}"))
            .hint("`tidemill pool start` starts a pool; --pool FILE or TIDEMILL_POOL says where another is"),
        io::ErrorKind::PermissionDenied => Problem::new(format!("the pool file {shown} may not be read: {error}"))
            .hint("only its owner can use a pool"),
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
            name: None,
            certificate: None,
            metrics: None,
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
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool");
        fs::write(directory.path().join("pool.part"), "of a start that was killed").unwrap();
        let sample = sample();
        sample.write(&path).unwrap();
        assert_eq!(PoolFile::read(&path).unwrap(), sample);
        assert!(sample.secret(&path).unwrap().certificate.is_some());
        assert!(!fs::read_to_string(&path).unwrap().contains("PRIVATE"), "the key is the nodes' alone");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no part is left");
    }

    #[test]
    fn what_is_no_pool_file_is_refused_with_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool");
        assert!(PoolFile::read(&path).unwrap_err().to_string().contains("there is no pool file"));
        let good = serde_json::to_string(&sample()).unwrap();
        let cases = [
            (String::new(), "being started"),
            ("{".into(), "not a pool file"),
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
