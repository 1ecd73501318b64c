//! Received messages, decoded for one side.

use super::{
    Bay, Borrow, Goodbye, Obtain, Placed, Publish, RECALLS_MAX, RETURNED_MAX, Recalls, Segment, decode_answer,
    decode_failure, decode_request, meta::parse,
};
use crate::{
    Answer, Failure, Mark, OpenFlags, Recall, Request, Session,
    frame::{Frame, Garbled, Kind, Phase, Side},
};

/// A message to a node after the handshake.
#[derive(Debug, PartialEq)]
pub enum ToNode {
    /// A request. Ids must increase: a node treats one that does not as garbled.
    Request {
        /// Id of the answer's frame.
        id: u64,
        /// The request.
        request: Request,
    },
    /// The client waits for this request no more. A request that still waits for something may end.
    Cancel {
        /// Id of the request, which may have been answered already.
        id: u64,
    },
    /// Subscribes a session to cache invalidations. The node replies as to a request.
    Watch {
        /// Id of the reply.
        id: u64,
        /// The session.
        session: Session,
    },
    /// Ends a session's subscription.
    Unwatch {
        /// The session.
        session: Session,
    },
    /// The subscribed session supports prune notices for inodes that others delete.
    Prunes {
        /// The session.
        session: Session,
    },
    /// Acks a batch of cache invalidations.
    Heard {
        /// Number of the batch.
        batch: u64,
    },
    /// A ping; the node replies with a pong of this id.
    Ping(u64),
    /// Reply to a ping of the node.
    Pong(u64),
    /// The client ends the connection.
    Goodbye(String),
    /// Requests a leased descriptor. The node replies as to a request, or with `lent`.
    Borrow {
        /// Id of the reply, and of the lease.
        id: u64,
        /// The extent and the intended use.
        borrow: Borrow,
    },
    /// Requests a program's own descriptor. The node replies as to a request, or with `given`.
    Obtain {
        /// Id of the reply.
        id: u64,
        /// The open file.
        obtain: Obtain,
    },
    /// Requests a program's own descriptor of the file that the next request opens.
    Attach {
        /// Id of the reply.
        id: u64,
        /// Flags of that open.
        flags: OpenFlags,
    },
    /// Returns these leases.
    Returned(Vec<u64>),
    /// The client closed its descriptors of these open leases.
    Closed(Vec<Mark>),
    /// The client has mapped this segment: the node may reply by reference to it.
    Mapped {
        /// Number of the segment.
        number: u64,
    },
    /// A request whose bytes are in the client's write segment. Its id is counted with those of
    /// requests.
    Publish {
        /// Id of the answer's frame.
        id: u64,
        /// The request and the location of its bytes.
        publish: Box<Publish>,
    },
}

/// A message to a client after the handshake.
#[derive(Debug, PartialEq)]
pub enum ToClient {
    /// Answer to a request or subscription. Dropped if nobody waits for this id.
    Reply {
        /// Id of the request.
        id: u64,
        /// The answer or failure.
        reply: Result<Answer, Failure>,
    },
    /// Cache invalidations. The client applies them, then acks them.
    Recall {
        /// Number of the batch, for the ack.
        batch: u64,
        /// The subscribed session.
        session: Session,
        /// The invalidations.
        recalls: Vec<Recall>,
    },
    /// A ping; the client replies with a pong of this id.
    Ping(u64),
    /// Reply to a ping of the client.
    Pong(u64),
    /// The node ends the connection.
    Goodbye(String),
    /// Descriptors can be leased over this connection. The client's end of the liveness pipe came
    /// with it.
    Near,
    /// A leased descriptor came with this.
    Lent {
        /// Id of its `borrow`, and of the lease.
        id: u64,
    },
    /// A program's own descriptor came with this.
    Given {
        /// Id of its `obtain` or `attach`.
        id: u64,
        /// The open lease.
        mark: Mark,
    },
    /// A segment of the node's memory; its descriptor came with this.
    Segment {
        /// Number of the segment.
        number: u64,
        /// Its length.
        segment: Segment,
    },
    /// Reply by reference: the range with the requested bytes. They stay unchanged until the client
    /// returns the lease of this id.
    Placed {
        /// Id of the request, and of the lease.
        id: u64,
        /// The range.
        placed: Placed,
    },
    /// A segment of the node's memory no longer exists.
    Hidden {
        /// Number of the segment.
        number: u64,
    },
    /// A write segment; its descriptor came with this.
    Bay(Bay),
}

fn misplaced(kind: Kind, side: Side) -> Garbled {
    Garbled::Unexpected { kind, side, phase: Phase::Open }
}

fn goodbye(meta: &[u8]) -> Result<String, Garbled> {
    Ok(parse::<Goodbye<'_>>(Kind::Goodbye, meta)?.why.into_owned())
}

impl ToNode {
    /// Decodes a frame that a node received.
    pub fn decode(frame: Frame<'_>) -> Result<Self, Garbled> {
        let Frame { header, meta, payload } = frame;
        let (kind, id) = (header.kind, header.id);
        Ok(match kind {
            Kind::Request => Self::Request { id, request: decode_request(meta, payload)? },
            Kind::Cancel => Self::Cancel { id },
            Kind::Watch => Self::Watch { id, session: parse(kind, meta)? },
            Kind::Unwatch => Self::Unwatch { session: parse(kind, meta)? },
            Kind::Prunes => Self::Prunes { session: parse(kind, meta)? },
            Kind::Heard => Self::Heard { batch: id },
            Kind::Ping => Self::Ping(id),
            Kind::Pong => Self::Pong(id),
            Kind::Goodbye => Self::Goodbye(goodbye(meta)?),
            Kind::Borrow => Self::Borrow { id, borrow: parse(kind, meta)? },
            Kind::Obtain => Self::Obtain { id, obtain: parse(kind, meta)? },
            Kind::Attach => Self::Attach { id, flags: parse(kind, meta)? },
            Kind::Returned => {
                let loans: Vec<u64> = parse(kind, meta)?;
                if loans.len() > RETURNED_MAX {
                    return Err(Garbled::Meta { kind, why: format!("more than {RETURNED_MAX} loans") });
                }
                Self::Returned(loans)
            }
            Kind::Closed => {
                let marks: Vec<Mark> = parse(kind, meta)?;
                if marks.len() > RETURNED_MAX {
                    return Err(Garbled::Meta { kind, why: format!("more than {RETURNED_MAX} marks") });
                }
                Self::Closed(marks)
            }
            Kind::Mapped => Self::Mapped { number: id },
            Kind::Publish => Self::Publish { id, publish: Box::new(parse(kind, meta)?) },
            Kind::Answer
            | Kind::Failure
            | Kind::Recall
            | Kind::Near
            | Kind::Lent
            | Kind::Given
            | Kind::Segment
            | Kind::Placed
            | Kind::Hidden
            | Kind::Bay
            | Kind::Challenge
            | Kind::Hello
            | Kind::Welcome
            | Kind::Refused => return Err(misplaced(kind, Side::Node)),
        })
    }
}

impl ToClient {
    /// Decodes a frame that a client received.
    pub fn decode(frame: Frame<'_>) -> Result<Self, Garbled> {
        let Frame { header, meta, payload } = frame;
        let (kind, id) = (header.kind, header.id);
        Ok(match kind {
            Kind::Answer => Self::Reply { id, reply: Ok(decode_answer(meta, payload)?) },
            Kind::Failure => Self::Reply { id, reply: Err(decode_failure(meta)?) },
            Kind::Recall => {
                let Recalls { session, recalls } = parse(kind, meta)?;
                if recalls.len() > RECALLS_MAX {
                    return Err(Garbled::Meta { kind, why: format!("more than {RECALLS_MAX} recalls") });
                }
                Self::Recall { batch: id, session, recalls: recalls.into_owned() }
            }
            Kind::Ping => Self::Ping(id),
            Kind::Pong => Self::Pong(id),
            Kind::Goodbye => Self::Goodbye(goodbye(meta)?),
            Kind::Near => Self::Near,
            Kind::Lent => Self::Lent { id },
            Kind::Given => Self::Given { id, mark: parse(kind, meta)? },
            Kind::Segment => Self::Segment { number: id, segment: parse(kind, meta)? },
            Kind::Placed => Self::Placed { id, placed: parse(kind, meta)? },
            Kind::Hidden => Self::Hidden { number: id },
            Kind::Bay => Self::Bay(parse(kind, meta)?),
            Kind::Request
            | Kind::Publish
            | Kind::Cancel
            | Kind::Mapped
            | Kind::Borrow
            | Kind::Obtain
            | Kind::Attach
            | Kind::Closed
            | Kind::Returned
            | Kind::Watch
            | Kind::Unwatch
            | Kind::Prunes
            | Kind::Heard
            | Kind::Challenge
            | Kind::Hello
            | Kind::Welcome
            | Kind::Refused => {
                return Err(misplaced(kind, Side::Client));
            }
        })
    }
}
