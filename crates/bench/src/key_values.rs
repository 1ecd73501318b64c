//! Redis and memcached as stores of files: chunk i of a file is the value of the key `PATH#i`.
//!
//! Their protocols as far as that needs them: RESP 2 (redis.io, "Redis serialization protocol") and memcached's text protocol
//! (protocol.txt of its sources).

use crate::stores::{Chunks, Store, Take};
use base::Problem;
use std::{
    cell::RefCell,
    io::{self, BufRead, BufReader, Read, Write},
    net::TcpStream,
};

/// A value that is longer is no answer of these servers.
const VALUE_BYTES_MAX: usize = 1 << 30;

#[derive(Clone, Copy)]
enum Speaks {
    Resp,
    Memcached,
}

/// One connection to a server.
pub struct Server {
    speaks: Speaks,
    name: String,
    line: RefCell<BufReader<TcpStream>>,
}

impl Server {
    /// A redis at HOST:PORT.
    pub fn redis(address: &str) -> Result<Self, Problem> {
        Self::connect(Speaks::Resp, "redis", address)
    }

    /// A memcached at HOST:PORT.
    pub fn memcached(address: &str) -> Result<Self, Problem> {
        Self::connect(Speaks::Memcached, "memcached", address)
    }

    fn connect(speaks: Speaks, kind: &str, address: &str) -> Result<Self, Problem> {
        let name = format!("{kind} at {address}");
        let connected = TcpStream::connect(address).and_then(|line| line.set_nodelay(true).map(|()| line));
        let line = connected
            .map_err(|error| Problem::new(format!("{name}: {error}")).hint("start it there, or name another target"))?;
        Ok(Self { speaks, name, line: RefCell::new(BufReader::with_capacity(1 << 20, line)) })
    }

    fn told<T>(&self, what: io::Result<T>) -> Result<T, Problem> {
        what.map_err(|error| Problem::new(format!("{}: {error}", self.name)))
    }

    fn set(&self, key: &str, value: &[u8]) -> io::Result<()> {
        let mut line = self.line.borrow_mut();
        let (head, done) = match self.speaks {
            Speaks::Resp => (format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n", key.len(), value.len()), "+OK"),
            Speaks::Memcached => (format!("set {key} 0 0 {}\r\n", value.len()), "STORED"),
        };
        let to = line.get_mut();
        to.write_all(head.as_bytes())?;
        to.write_all(value)?;
        to.write_all(b"\r\n")?;
        expect(&answer(&mut *line)?, done)
    }

    /// Reads a value into `buffer`; false where there is none.
    fn get(&self, key: &str, buffer: &mut Vec<u8>) -> io::Result<bool> {
        let mut line = self.line.borrow_mut();
        let asked = match self.speaks {
            Speaks::Resp => format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()),
            Speaks::Memcached => format!("get {key}\r\n"),
        };
        line.get_mut().write_all(asked.as_bytes())?;
        let said = answer(&mut *line)?;
        let length = match self.speaks {
            Speaks::Resp if said == "$-1" => return Ok(false),
            Speaks::Memcached if said == "END" => return Ok(false),
            Speaks::Resp => said.strip_prefix('$'),
            Speaks::Memcached => said.strip_prefix("VALUE ").and_then(|rest| rest.rsplit(' ').next()),
        };
        let length = length.and_then(|text| text.parse().ok()).filter(|length| *length <= VALUE_BYTES_MAX);
        buffer.resize(length.ok_or_else(|| io::Error::other(said))?, 0);
        line.read_exact(buffer)?;
        expect(&answer(&mut *line)?, "")?;
        if let Speaks::Memcached = self.speaks {
            expect(&answer(&mut *line)?, "END")?;
        }
        Ok(true)
    }

    fn delete(&self, key: &str) -> io::Result<bool> {
        let mut line = self.line.borrow_mut();
        let (asked, done, none) = match self.speaks {
            Speaks::Resp => (format!("*2\r\n$3\r\nDEL\r\n${}\r\n{key}\r\n", key.len()), ":1", ":0"),
            Speaks::Memcached => (format!("delete {key}\r\n"), "DELETED", "NOT_FOUND"),
        };
        line.get_mut().write_all(asked.as_bytes())?;
        let said = answer(&mut *line)?;
        if said == none { Ok(false) } else { expect(&said, done).map(|()| true) }
    }

    fn has_none<T>(&self) -> Result<T, Problem> {
        Err(Problem::new(format!("{} has no attributes of files", self.name)))
    }
}

/// One line of an answer, without its end.
fn answer(line: &mut impl BufRead) -> io::Result<String> {
    let mut said = String::new();
    line.read_line(&mut said)?;
    match said.strip_suffix("\r\n") {
        Some(whole) => Ok(whole.to_owned()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn expect(said: &str, wanted: &str) -> io::Result<()> {
    if said == wanted { Ok(()) } else { Err(io::Error::other(format!("it answers `{said}`"))) }
}

fn part(path: &str, number: usize) -> String {
    format!("{path}#{number}")
}

impl Store for Server {
    fn make_folder(&self, _: &str) -> Result<(), Problem> {
        Ok(())
    }

    fn place(&self, _: &str, _: &str) -> Result<(), Problem> {
        self.has_none()
    }

    /// Values go with their files: a worker removes what it has written.
    fn remove_folder(&self, _: &str) -> Result<(), Problem> {
        Ok(())
    }

    fn write(&self, path: &str, chunks: Chunks<'_>) -> Result<(), Problem> {
        for number in 0.. {
            let Some(chunk) = chunks() else { break };
            self.told(self.set(&part(path, number), &chunk))?;
        }
        Ok(())
    }

    fn read(&self, path: &str, _: u64, take: Take<'_>) -> Result<(), Problem> {
        let mut buffer = Vec::new();
        for number in 0.. {
            if !self.told(self.get(&part(path, number), &mut buffer))? {
                break;
            }
            take(&buffer)?;
        }
        Ok(())
    }

    fn create(&self, _: &str) -> Result<(), Problem> {
        self.has_none()
    }

    fn stat(&self, _: &str) -> Result<u64, Problem> {
        self.has_none()
    }

    fn rename(&self, _: &str, _: &str) -> Result<(), Problem> {
        self.has_none()
    }

    fn remove(&self, path: &str) -> Result<(), Problem> {
        for number in 0.. {
            if !self.told(self.delete(&part(path, number)))? {
                break;
            }
        }
        Ok(())
    }
}
