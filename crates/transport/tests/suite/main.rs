//! Tests of served nodes and their clients, all in one binary, which is linked once.

mod common;
mod hostile;
mod killed;
mod long_objects;
mod messages;
mod messages_tls;
mod mounted;
mod moved;
mod programs;
mod puts;
mod reconnect;
mod recv_buffers;
mod same_host;
mod session_ends;
mod tls;
mod two_clients;
mod values;
mod views;
mod with_reactor;
