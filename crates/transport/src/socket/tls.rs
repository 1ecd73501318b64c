//! TLS around a socket. A peer that speaks without TLS where it is needed, or the reverse, gets an
//! explanation.

use crate::{identity::NAME, socket::stream::Stream};
use rustls::{ClientConfig, Error, pki_types::ServerName};
use std::{io, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use wire::handshake::{HandshakeFailed, encode_refusal};

/// Time for the first byte of a client. TLS clients speak first and at once; one that is silent for
/// this long waits for our challenge, as a client without TLS does.
const FIRST_WORD_WAIT: Duration = Duration::from_secs(2);
/// First byte of TLS: the type of a handshake record.
const HANDSHAKE_RECORD: u8 = 22;

/// Connection that was accepted, maybe with its TLS handshake still to come.
pub enum AcceptedConnection {
    Open(Stream),
    Tls(TcpStream, TlsAcceptor),
}

impl AcceptedConnection {
    /// Does the node's part of the TLS handshake. A client without TLS is told that it is needed.
    pub async fn handshake(self) -> io::Result<Stream> {
        let (mut stream, tls) = match self {
            Self::Open(stream) => return Ok(stream),
            Self::Tls(stream, tls) => (stream, tls),
        };
        let mut first = [0];
        let spoken = timeout(FIRST_WORD_WAIT, stream.peek(&mut first)).await;
        let plain = match spoken {
            Ok(Ok(0)) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(spoken) => spoken.map(|_| first[0] != HANDSHAKE_RECORD)?,
            Err(_) => true,
        };
        if plain {
            stream.write_all(&encode_refusal(&HandshakeFailed::OnlyTls)).await?;
            stream.shutdown().await?;
            return Err(io::Error::other("it spoke plainly where only TLS is spoken"));
        }
        Ok(Stream::Tls(Box::new(TlsStream::Server(tls.accept(stream).await?))))
    }
}

/// Does the client's part of the TLS handshake. The error says what is wrong with the other side.
pub async fn connect<T, U>(stream: T, config: Arc<ClientConfig>) -> Result<Stream<T, U>, TlsError>
where
    T: AsyncRead + AsyncWrite + Unpin,
{
    let name = ServerName::try_from(NAME).expect("it is a name");
    match TlsConnector::from(config).connect(name, stream).await {
        Ok(stream) => Ok(Stream::Tls(Box::new(TlsStream::Client(stream)))),
        Err(error) => Err(why(error)),
    }
}

/// Reason why the TLS handshake failed.
#[derive(Debug)]
pub enum TlsError {
    /// The next try would fail as well.
    Refused(&'static str),
    /// The connection broke.
    Broken(io::Error),
}

fn why(error: io::Error) -> TlsError {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
        Some(Error::InvalidCertificate(_)) => TlsError::Refused(
            "it shows another certificate than the pool's: see that the address is the pool's, and the certificate of now",
        ),
        Some(Error::InvalidMessage(_)) => {
            TlsError::Refused("no TLS is spoken there: reach it as tcp:HOST:PORT, if it is the pool's")
        }
        _ => TlsError::Broken(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Identity, Listener, Remote, ServerLimits};
    use client::{Client, RetryPolicy};
    use tokio::io::AsyncReadExt;
    use wire::handshake::Token;

    #[tokio::test]
    async fn garbage_within_tls_and_around_it_ends_its_connection_and_no_other() {
        let settings = node::NodeSettings { partitions: 16, stripe_bytes: 65_536, ..node::NodeSettings::default() };
        let node = node::embedded(settings, Arc::new(store::ModelEngine::new(1 << 20, 65_536)));
        let (token, identity) =
            (Token::new(b"a token of the tests, not guessed").unwrap(), Identity::generate().unwrap());
        let listener = Listener::bind_tls(&"tls:127.0.0.1:0".parse().unwrap(), &identity).unwrap();
        let server = crate::serve(node, listener, &token, ServerLimits::default()).unwrap();
        let crate::Address::Tls { port, .. } = *server.address() else { panic!("it is served within TLS") };
        let remote = Remote::with_certificate(server.address().clone(), &token, identity.certificate()).unwrap();
        let healthy = Client::connect(Arc::new(remote), RetryPolicy::default()).await.unwrap();
        for round in 0..8_u8 {
            let mut plain = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
            let garbage: Vec<u8> = (0..200_u8).map(|at| at.wrapping_mul(37).wrapping_add(round)).collect();
            if round % 2 == 0 {
                let record = if round % 4 == 0 { HANDSHAKE_RECORD } else { round };
                plain.write_all(&[&[record], &*garbage].concat()).await.unwrap();
                drop(plain.read_to_end(&mut Vec::new()).await);
            } else {
                let mut within: Stream = connect(plain, identity.certificate().config().unwrap()).await.unwrap();
                within.write_all(&garbage).await.unwrap();
                within.flush().await.unwrap();
                drop(within.read_to_end(&mut Vec::new()).await);
            }
            assert!(healthy.usages().await.iter().all(|(_, usage)| usage.is_ok()));
        }
        server.stop().await;
    }
}
