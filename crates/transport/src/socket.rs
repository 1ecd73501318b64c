//! Sockets of all kinds, the frames on them and the descriptors that travel beside.

pub mod framed;
pub mod scm_rights;
pub mod stream;
pub mod tls;
pub mod unix_socket;
