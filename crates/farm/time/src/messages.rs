//! What servers say to each other (FaRMv2 Figure 6, and the handshake of leases that carries the time).
//!
//! Each message of a master to a member has the master's reading when it was sent (`asked`), and the member's answer
//! returns it: from then on, for as long as a lease lasts, the member will not take the master's place.
//!
//! The transport may lose, delay, repeat and reorder messages. It says truly who has sent one.

use crate::configuration::Configuration;
use crate::interval::Interval;
use bytes::Bytes;
use plinth_core::codec::{Codec, Source};
use plinth_core::output::Output;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// The configuration in which it was sent.
    pub number: u64,
    pub body: Body,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    /// The configuration has been taken.
    NewConfig {
        configuration: Configuration,
        asked: u64,
    },
    /// `forward` is the highest time that the master's may have had here, `FF` in the paper. The sender's clock is
    /// disabled if the era is new.
    NewConfigAck {
        forward: Option<u64>,
        asked: u64,
    },
    /// All members have acknowledged, and those that were removed have stopped.
    ConfigCommit,
    /// The time will continue at `time` or less, when all members have acknowledged.
    Advance {
        time: u64,
        asked: u64,
    },
    AdvanceAck {
        asked: u64,
    },
    /// Asks for the time and a lease. `sent` is the member's reading. Until the member knows that the configuration
    /// is committed, the master repeats it.
    TimeRequest {
        sent: u64,
        is_committed: bool,
    },
    /// No interval and no lease while the master's clock is disabled.
    Time {
        sent: u64,
        interval: Option<Interval>,
        asked: u64,
    },
    /// The third leg: the member renews the master's lease.
    Grant {
        asked: u64,
    },
    /// The message was of an older configuration than the receiver's, whose number this is.
    Outdated,
}

impl Body {
    fn kind(&self) -> u8 {
        match self {
            Body::NewConfig { .. } => 0,
            Body::NewConfigAck { .. } => 1,
            Body::ConfigCommit => 2,
            Body::Advance { .. } => 3,
            Body::AdvanceAck { .. } => 4,
            Body::TimeRequest { .. } => 5,
            Body::Time { .. } => 6,
            Body::Grant { .. } => 7,
            Body::Outdated => 8,
        }
    }
}

impl Codec for Message {
    fn put(&self, out: &mut Output) {
        self.number.put(out);
        self.body.kind().put(out);
        match &self.body {
            Body::NewConfig {
                configuration,
                asked,
            } => {
                configuration.put(out);
                asked.put(out);
            }
            Body::NewConfigAck { forward, asked } => (*forward, *asked).put(out),
            Body::Advance { time, asked } => (*time, *asked).put(out),
            Body::AdvanceAck { asked } | Body::Grant { asked } => asked.put(out),
            Body::TimeRequest { sent, is_committed } => (*sent, *is_committed).put(out),
            Body::Time {
                sent,
                interval,
                asked,
            } => ((*sent, *interval), *asked).put(out),
            Body::ConfigCommit | Body::Outdated => (),
        }
    }

    fn take(input: &mut Bytes) -> Option<Message> {
        let number = u64::take(input)?;
        let body = match u8::take(input)? {
            0 => Body::NewConfig {
                configuration: Codec::take(input)?,
                asked: u64::take(input)?,
            },
            1 => Body::NewConfigAck {
                forward: Codec::take(input)?,
                asked: u64::take(input)?,
            },
            2 => Body::ConfigCommit,
            3 => Body::Advance {
                time: u64::take(input)?,
                asked: u64::take(input)?,
            },
            4 => Body::AdvanceAck {
                asked: u64::take(input)?,
            },
            5 => Body::TimeRequest {
                sent: u64::take(input)?,
                is_committed: bool::take(input)?,
            },
            6 => Body::Time {
                sent: u64::take(input)?,
                interval: Codec::take(input)?,
                asked: u64::take(input)?,
            },
            7 => Body::Grant {
                asked: u64::take(input)?,
            },
            8 => Body::Outdated,
            _ => return None,
        };
        Some(Message { number, body })
    }

    fn draw(source: &mut dyn Source) -> Message {
        let asked = u64::draw(source);
        let body = match source.below(9) {
            0 => Body::NewConfig {
                configuration: Codec::draw(source),
                asked,
            },
            1 => Body::NewConfigAck {
                forward: Codec::draw(source),
                asked,
            },
            2 => Body::ConfigCommit,
            3 => Body::Advance {
                time: u64::draw(source),
                asked,
            },
            4 => Body::AdvanceAck { asked },
            5 => Body::TimeRequest {
                sent: asked,
                is_committed: bool::draw(source),
            },
            6 => Body::Time {
                sent: u64::draw(source),
                interval: Codec::draw(source),
                asked,
            },
            7 => Body::Grant { asked },
            _ => Body::Outdated,
        };
        Message {
            number: u64::draw(source),
            body,
        }
    }
}
