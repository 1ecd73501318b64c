//! Address of a node: `tcp:HOST:PORT`, `tls:HOST:PORT` or `unix:PATH`.

use std::{borrow::Cow, fmt, path::PathBuf, str::FromStr};

/// Longest path of a Unix socket, bytes: the size of `sun_path`, less the final NUL.
const PATH_BYTES_MAX: usize = 107;

/// Address of a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// TCP.
    Tcp {
        /// A name or an address, without brackets.
        host: String,
        /// The port; 0 to listen at any that is free.
        port: u16,
    },
    /// TLS over TCP.
    Tls {
        /// A name or an address, without brackets.
        host: String,
        /// The port; 0 to listen at any that is free.
        port: u16,
    },
    /// Path of a Unix socket of this host.
    Unix(PathBuf),
}

/// Error for a text that is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The scheme is neither `tcp`, `tls` nor `unix`.
    #[error("`{0}` is not an address: write tcp:HOST:PORT, tls:HOST:PORT or unix:PATH")]
    Kind(String),
    /// `:PORT` is missing.
    #[error("`{0}` has no port: write tcp:HOST:PORT or tls:HOST:PORT")]
    NoPort(String),
    /// The port is not a number, or is above 65535.
    #[error("`{port}` in `{address}` is not a port: a port is a number from 0 to 65535")]
    Port {
        /// The full text.
        address: String,
        /// The part in the place of the port.
        port: String,
    },
    /// There is no host before the port.
    #[error("`{0}` has no host: write tcp:HOST:PORT, with 0.0.0.0 to listen at all addresses")]
    NoHost(String),
    /// An IPv6 host is not in brackets.
    #[error("`{0}`: an IPv6 address stands in brackets, as in tcp:[::1]:7000")]
    Brackets(String),
    /// The path after `unix:` is empty or contains a NUL.
    #[error("`{0}` has no path: write unix:PATH")]
    NoPath(String),
    /// The path is longer than `sun_path`.
    #[error("the path in `{0}` is too long for a socket: at most {PATH_BYTES_MAX} bytes")]
    LongPath(String),
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        match text.split_once(':') {
            Some(("tcp", rest)) => host_and_port(text, rest).map(|(host, port)| Self::Tcp { host, port }),
            Some(("tls", rest)) => host_and_port(text, rest).map(|(host, port)| Self::Tls { host, port }),
            Some(("unix", path)) => unix(text, path),
            _ => Err(AddressError::Kind(text.into())),
        }
    }
}

fn host_and_port(text: &str, rest: &str) -> Result<(String, u16), AddressError> {
    let whole = || text.to_owned();
    let (host, port) = rest.rsplit_once(':').ok_or_else(|| AddressError::NoPort(whole()))?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if bare.is_none() && host.contains([':', '[', ']']) {
        return Err(AddressError::Brackets(whole()));
    }
    let host = bare.unwrap_or(host).to_owned();
    if host.is_empty() {
        return Err(AddressError::NoHost(whole()));
    }
    let port = port.parse().map_err(|_| AddressError::Port { address: whole(), port: port.into() })?;
    Ok((host, port))
}

fn unix(text: &str, path: &str) -> Result<Address, AddressError> {
    if path.is_empty() || path.contains('\0') {
        return Err(AddressError::NoPath(text.into()));
    }
    if path.len() > PATH_BYTES_MAX {
        return Err(AddressError::LongPath(text.into()));
    }
    Ok(Address::Unix(path.into()))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } => write!(f, "tcp:{}:{port}", bracketed(host)),
            Self::Tls { host, port } => write!(f, "tls:{}:{port}", bracketed(host)),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

fn bracketed(host: &str) -> Cow<'_, str> {
    if host.contains(':') { format!("[{host}]").into() } else { host.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_as_it_is_written() {
        for text in
            ["tcp:localhost:7000", "tcp:[::1]:0", "tcp:10.0.0.1:65535", "tls:[::1]:7000", "unix:/run/pool", "unix:a:b"]
        {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_is_told_with_what_is_wrong_with_it() {
        let long = format!("unix:/{}", "x".repeat(PATH_BYTES_MAX));
        let wrong = [
            ("localhost:7000", "write tcp:HOST:PORT, tls:HOST:PORT or unix:PATH"),
            ("", "is not an address"),
            ("tcp:localhost", "no port"),
            ("tcp:localhost:http", "`http`"),
            ("tcp:localhost:65536", "`65536`"),
            ("tls:localhost", "no port"),
            ("tcp::7000", "no host"),
            ("tcp:[]:7000", "no host"),
            ("tcp:::1:7000", "brackets"),
            ("unix:", "no path"),
            ("unix:a\0b", "no path"),
            (&long, "too long"),
        ];
        for (text, why) in wrong {
            let refused = text.parse::<Address>().unwrap_err().to_string();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
