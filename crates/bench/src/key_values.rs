//! Redis and memcached as stores of files: chunk i of a file is the value of the key `PATH#i`.
//!
//! Implements the needed parts of their protocols: RESP 2 (redis.io, "Redis serialization
//! protocol") and memcached's text protocol (protocol.txt of its sources).

use crate::stores::{BenchStore, ByteSink, ChunkIter};
use base::Problem;
use bytes::Bytes;
use std::{
    cell::RefCell,
    io::{self, BufRead, BufReader, BufWriter, Read, Write},
    net::TcpStream,
};

/// Upper bound of a value; a longer one is no valid reply of these servers.
const VALUE_BYTES_MAX: usize = 1 << 30;

#[derive(Clone, Copy)]
enum Protocol {
    Resp,
    Memcached,
}

/// One connection to a server.
pub struct KeyValueServer {
    protocol: Protocol,
    name: String,
    line: RefCell<BufReader<TcpStream>>,
    /// Buffer of requests: sent when a reply is awaited, or when it is full.
    out: RefCell<BufWriter<TcpStream>>,
}

impl KeyValueServer {
    /// Connects to a redis at HOST:PORT.
    pub fn redis(address: &str) -> Result<Self, Problem> {
        Self::connect(Protocol::Resp, "redis", address)
    }

    /// Connects to a memcached at HOST:PORT.
    pub fn memcached(address: &str) -> Result<Self, Problem> {
        Self::connect(Protocol::Memcached, "memcached", address)
    }

    fn connect(protocol: Protocol, kind: &str, address: &str) -> Result<Self, Problem> {
        let name = format!("{kind} at {address}");
        let connected = TcpStream::connect(address).and_then(|line| {
            line.set_nodelay(true)?;
            Ok((line.try_clone()?, line))
        });
        let (out, line) = connected
            .map_err(|error| Problem::new(format!("{name}: {error}")).hint("start it there, or name another target"))?;
        let (line, out) = (BufReader::with_capacity(1 << 20, line), BufWriter::with_capacity(64 << 10, out));
        Ok(Self { protocol, name, line: RefCell::new(line), out: RefCell::new(out) })
    }

    fn with_name<T>(&self, outcome: io::Result<T>) -> Result<T, Problem> {
        outcome.map_err(|error| Problem::new(format!("{}: {error}", self.name)))
    }

    fn set(&self, key: &str, value: &[u8]) -> io::Result<()> {
        self.send_set(key, value)?;
        self.receive_set()
    }

    fn send_set(&self, key: &str, value: &[u8]) -> io::Result<()> {
        let head = match self.protocol {
            Protocol::Resp => format!("*3\r\n$3\r\nSET\r\n${}\r\n{key}\r\n${}\r\n", key.len(), value.len()),
            Protocol::Memcached => format!("set {key} 0 0 {}\r\n", value.len()),
        };
        let mut to = self.out.borrow_mut();
        to.write_all(head.as_bytes())?;
        to.write_all(value)?;
        to.write_all(b"\r\n")
    }

    fn receive_set(&self) -> io::Result<()> {
        let done = match self.protocol {
            Protocol::Resp => "+OK",
            Protocol::Memcached => "STORED",
        };
        expect(&self.read_reply()?, done)
    }

    /// Reads a value into `buffer`; false if there is none.
    fn get(&self, key: &str, buffer: &mut Vec<u8>) -> io::Result<bool> {
        self.send_get(key)?;
        self.receive_get(buffer)
    }

    fn send_get(&self, key: &str) -> io::Result<()> {
        let request = match self.protocol {
            Protocol::Resp => format!("*2\r\n$3\r\nGET\r\n${}\r\n{key}\r\n", key.len()),
            Protocol::Memcached => format!("get {key}\r\n"),
        };
        self.out.borrow_mut().write_all(request.as_bytes())
    }

    fn receive_get(&self, buffer: &mut Vec<u8>) -> io::Result<bool> {
        let reply = self.read_reply()?;
        let length = match self.protocol {
            Protocol::Resp if reply == "$-1" => return Ok(false),
            Protocol::Memcached if reply == "END" => return Ok(false),
            Protocol::Resp => reply.strip_prefix('$'),
            Protocol::Memcached => reply.strip_prefix("VALUE ").and_then(|rest| rest.rsplit(' ').next()),
        };
        let length = length.and_then(|text| text.parse().ok()).filter(|length| *length <= VALUE_BYTES_MAX);
        buffer.resize(length.ok_or_else(|| io::Error::other(reply))?, 0);
        self.line.borrow_mut().read_exact(buffer)?;
        expect(&self.read_reply()?, "")?;
        if let Protocol::Memcached = self.protocol {
            expect(&self.read_reply()?, "END")?;
        }
        Ok(true)
    }

    /// Sends all buffered requests and reads the next line of a reply.
    fn read_reply(&self) -> io::Result<String> {
        self.out.borrow_mut().flush()?;
        read_reply(&mut *self.line.borrow_mut())
    }

    fn delete(&self, key: &str) -> io::Result<bool> {
        let (request, done, none) = match self.protocol {
            Protocol::Resp => (format!("*2\r\n$3\r\nDEL\r\n${}\r\n{key}\r\n", key.len()), ":1", ":0"),
            Protocol::Memcached => (format!("delete {key}\r\n"), "DELETED", "NOT_FOUND"),
        };
        self.out.borrow_mut().write_all(request.as_bytes())?;
        let reply = self.read_reply()?;
        if reply == none { Ok(false) } else { expect(&reply, done).map(|()| true) }
    }

    fn has_none<T>(&self) -> Result<T, Problem> {
        Err(Problem::new(format!("{} has no attributes of files", self.name)))
    }
}

/// Reads one line of a reply, without its end.
fn read_reply(line: &mut impl BufRead) -> io::Result<String> {
    let mut reply = String::new();
    line.read_line(&mut reply)?;
    match reply.strip_suffix("\r\n") {
        Some(whole) => Ok(whole.to_owned()),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

fn expect(reply: &str, wanted: &str) -> io::Result<()> {
    if reply == wanted { Ok(()) } else { Err(io::Error::other(format!("it answers `{reply}`"))) }
}

fn part(path: &str, number: usize) -> String {
    format!("{path}#{number}")
}

impl BenchStore for KeyValueServer {
    fn make_directory(&self, _: &str) -> Result<(), Problem> {
        Ok(())
    }

    /// Nothing to do: a worker removes the values that it wrote.
    fn remove_directory(&self, _: &str) -> Result<(), Problem> {
        Ok(())
    }

    fn write(&self, path: &str, chunks: ChunkIter<'_>) -> Result<(), Problem> {
        for number in 0.. {
            let Some(chunk) = chunks() else { break };
            self.with_name(self.set(&part(path, number), &chunk))?;
        }
        Ok(())
    }

    fn read(&self, path: &str, _: u64, take: ByteSink<'_>) -> Result<(), Problem> {
        let mut buffer = Vec::new();
        for number in 0.. {
            if !self.with_name(self.get(&part(path, number), &mut buffer))? {
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
            if !self.with_name(self.delete(&part(path, number)))? {
                break;
            }
        }
        Ok(())
    }

    fn put_values(&self, keys: &[String], value: &Bytes) -> Result<(), Problem> {
        self.with_name(keys.iter().try_for_each(|key| self.send_set(key, value)))?;
        self.with_name(keys.iter().try_for_each(|_| self.receive_set()))
    }

    fn get_values(&self, keys: &[String], take: ByteSink<'_>) -> Result<(), Problem> {
        self.with_name(keys.iter().try_for_each(|key| self.send_get(key)))?;
        let mut buffer = Vec::new();
        keys.iter().try_for_each(|key| {
            if !self.with_name(self.receive_get(&mut buffer))? {
                return Err(Problem::new(format!("{}: {key} is not there", self.name)));
            }
            take(&buffer)
        })
    }

    fn remove_values(&self, keys: &[String]) -> Result<(), Problem> {
        keys.iter().try_for_each(|key| self.with_name(self.delete(key)).map(drop))
    }
}
