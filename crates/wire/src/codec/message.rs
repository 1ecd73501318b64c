//! What came, decoded by the side where it came.

use super::{
    Bay, Borrow, Goodbye, Obtain, Placed, Publish, RECALLS_MAX, RETURNED_MAX, Recalls, Segment, decode_answer,
    decode_failure, decode_request, meta::parse,
};
use crate::{
    Answer, Failure, Mark, OpenFlags, Recall, Request, Session,
    frame::{Frame, Garbled, Kind, Phase, Side},
};

/// What comes to a node behind the handshake.
#[derive(Debug, PartialEq)]
pub enum ToNode {
    /// A request. Ids grow: one that does not is to be treated as garbled.
    Request {
        /// What its answer is sent under.
        id: u64,
        /// It.
        request: Request,
    },
    /// Nobody waits for this request any more: if it still waits for something, it may end.
    Cancel {
        /// Its id, maybe of one that was answered.
        id: u64,
    },
    /// The session keeps what it is answered. To be answered like a request.
    Watch {
        /// What the answer is sent under.
        id: u64,
        /// Who.
        session: Session,
    },
    /// The session is told nothing any more.
    Unwatch {
        /// Who.
        session: Session,
    },
    /// The session, which watches, is told of what others remove.
    Prunes {
        /// Who.
        session: Session,
    },
    /// A batch of recalls is forgotten.
    Heard {
        /// Which.
        batch: u64,
    },
    /// To be answered by a pong with this id.
    Ping(u64),
    /// To a ping of ours.
    Pong(u64),
    /// The client ends the connection.
    Goodbye(String),
    /// A descriptor is wanted. To be answered like a request, or by `lent`.
    Borrow {
        /// What the answer is sent under, and the loan is named by.
        id: u64,
        /// Whose, and for what.
        borrow: Borrow,
    },
    /// A descriptor of its own is wanted. To be answered like a request, or by `given`.
    Obtain {
        /// What the answer is sent under.
        id: u64,
        /// For what.
        obtain: Obtain,
    },
    /// The same for what the request behind it opens.
    Attach {
        /// What the answer is sent under.
        id: u64,
        /// How it was to be opened.
        flags: OpenFlags,
    },
    /// These loans are used no more.
    Returned(Vec<u64>),
    /// Descriptors with these marks were closed.
    Closed(Vec<Mark>),
    /// Answers may be `placed` in this part from now on.
    Mapped {
        /// Which.
        number: u64,
    },
    /// A request whose bytes are in the client's bay. Ids grow with those of requests.
    Publish {
        /// What its answer is sent under.
        id: u64,
        /// It.
        publish: Box<Publish>,
    },
}

/// What comes to a client behind the handshake.
#[derive(Debug, PartialEq)]
pub enum ToClient {
    /// What a request or watch brought; to be dropped when nobody waits for that id.
    Reply {
        /// The request's.
        id: u64,
        /// It.
        reply: Result<Answer, Failure>,
    },
    /// To be forgotten, then said to be heard.
    Recall {
        /// What `heard` is said under.
        batch: u64,
        /// Whose kernel.
        session: Session,
        /// What.
        recalls: Vec<Recall>,
    },
    /// To be answered by a pong with this id.
    Ping(u64),
    /// To a ping of ours.
    Pong(u64),
    /// The node ends the connection.
    Goodbye(String),
    /// Descriptors can be lent; one came with this.
    Near,
    /// A descriptor came with this.
    Lent {
        /// The id of its `borrow`.
        id: u64,
    },
    /// A descriptor of the asker's own came with this.
    Given {
        /// The id of its `obtain`.
        id: u64,
        /// Its open.
        mark: Mark,
    },
    /// A part of the node's memory, whose descriptor came with this.
    Segment {
        /// Which.
        number: u64,
        /// It.
        segment: Segment,
    },
    /// What a request brought is there, until the loan of this id is returned.
    Placed {
        /// The request's.
        id: u64,
        /// Where.
        placed: Placed,
    },
    /// A part of the node's memory that is no more.
    Hidden {
        /// Which.
        number: u64,
    },
    /// Memory to write into, whose descriptor came with this.
    Bay(Bay),
}

fn misplaced(kind: Kind, side: Side) -> Garbled {
    Garbled::Unexpected { kind, side, phase: Phase::Open }
}

fn goodbye(meta: &[u8]) -> Result<String, Garbled> {
    Ok(parse::<Goodbye<'_>>(Kind::Goodbye, meta)?.why.into_owned())
}

impl ToNode {
    /// Decodes a frame that came to a node.
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
    /// Decodes a frame that came to a client.
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
