//! Node's side of a connection before it is open: the handshake, and its limits.

use super::{Guest, House};
use crate::{
    admission::{Entrance, Stranger},
    framed::{Pipe, nonce},
    tls::Arrived,
};
use std::{io, sync::Arc};
use tokio::{sync::OwnedSemaphorePermit, time::timeout};
use wire::{
    frame::Side,
    handshake::{HandshakeFailed, NodeHandshake, Step, VERSIONS, refusal},
};

/// Serves one connection from its first byte to its last.
pub async fn receive(arrived: Arrived, stranger: Stranger, house: Arc<House>) {
    let mut stopping = house.stopping.clone();
    let met = tokio::select! {
        _ = stopping.wait_for(|stop| *stop) => return,
        () = stranger.goes() => return tracing::debug!("a connection made way for others before its handshake"),
        met = timeout(house.limits.handshake, meet(arrived, &stranger, &house)) => met,
    };
    drop(stranger);
    match met {
        Ok(Ok((pipe, Ok(inside)))) => {
            Guest::new(house, pipe, inside.brief).stay().await;
            drop(inside.room);
        }
        Ok(Ok((pipe, Err(why)))) => {
            house.rare.warn(|| tracing::warn!(%why, "a connection was refused"));
            pipe.close().await;
        }
        Ok(Err(error)) => tracing::debug!(%error, "a connection ended before its handshake"),
        Err(_) => tracing::debug!("a connection did not finish its handshake in time"),
    }
}

/// Authenticated connection.
struct Inside {
    /// True if the client may end soon.
    brief: bool,
    room: OwnedSemaphorePermit,
}

async fn meet(
    arrived: Arrived,
    stranger: &Stranger,
    house: &House,
) -> io::Result<(Pipe, Result<Inside, HandshakeFailed>)> {
    let mut pipe = Pipe::new(arrived.open().await?, Side::Node);
    let greeted = greet(&mut pipe, house, stranger.entrance()).await?;
    Ok((pipe, greeted))
}

/// Does the handshake. Returns the authenticated connection, or the reason of a refusal, whose
/// message is still to be flushed.
async fn greet(pipe: &mut Pipe, house: &House, entrance: &Entrance) -> io::Result<Result<Inside, HandshakeFailed>> {
    let handshake = NodeHandshake::new(house.token.clone(), VERSIONS, nonce()?).at(&entrance.called);
    pipe.out.short().extend(handshake.challenge(concat!("Tidemill ", env!("CARGO_PKG_VERSION"))));
    pipe.flush().await?;
    let step = loop {
        match pipe.frames.next() {
            Err(garbled) => break handshake.on_garbled(garbled),
            Ok(Some(frame)) => break handshake.on(&frame),
            Ok(None) => {}
        }
        if pipe.fill().await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    let (send, greeted) = match step {
        Step::Done { send, version, brief, what } => {
            if let Some(room) = entrance.room() {
                tracing::debug!(%version, what, "a client has come");
                pipe.frames.open();
                (send, Ok(Inside { brief, room }))
            } else {
                let full = HandshakeFailed::Full(house.limits.connections);
                (refusal(&full), Err(full))
            }
        }
        Step::Close { send, why } => (send, Err(why)),
        Step::Send(send) => (send, Err(HandshakeFailed::TimedOut)),
    };
    pipe.out.short().extend(send);
    Ok(greeted)
}
