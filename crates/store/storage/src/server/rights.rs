//! Whether the caller of a request may read what it asks for.

use super::Server;
use plinth_access::{Refused, Right};
use plinth_core::Error;
use plinth_identity::Identity;
use plinth_protocol::storage::{Get, GetKey, GetRange, GetRangeSummary, GetValues, Watch};
use plinth_protocol::token::Token;
use plinth_rpc::{Request, Responder};

/// What a read touches, and the token that it shows.
pub(super) trait Touches: Request {
    fn is_within(&self, right: &Right) -> bool;
    fn token(&self) -> &Token;
}

/// The empty range at a key stands for this key.
fn may_read_key(right: &Right, key: &[u8]) -> bool {
    right.may_read(key, key)
}

impl Touches for Get {
    fn is_within(&self, right: &Right) -> bool {
        may_read_key(right, &self.key)
    }
    fn token(&self) -> &Token {
        &self.token
    }
}

impl Touches for GetValues {
    fn is_within(&self, right: &Right) -> bool {
        self.keys.iter().all(|key| may_read_key(right, key))
    }
    fn token(&self) -> &Token {
        &self.token
    }
}

impl Touches for Watch {
    fn is_within(&self, right: &Right) -> bool {
        may_read_key(right, &self.key)
    }
    fn token(&self) -> &Token {
        &self.token
    }
}

impl Touches for GetRange {
    fn is_within(&self, right: &Right) -> bool {
        right.may_read(&self.begin, &self.end)
    }
    fn token(&self) -> &Token {
        &self.token
    }
}

impl Touches for GetKey {
    fn is_within(&self, right: &Right) -> bool {
        right.may_read(&self.begin, &self.end)
    }
    fn token(&self) -> &Token {
        &self.token
    }
}

impl Touches for GetRangeSummary {
    fn is_within(&self, right: &Right) -> bool {
        right.may_read(&self.begin, &self.end)
    }
    /// It is for operators, who need none.
    fn token(&self) -> &Token {
        &Token::NONE
    }
}

impl Server {
    /// Gives the responder back with the caller's right, if it may read what it asks for. Otherwise answers.
    #[inline]
    pub(super) fn allowed<R: Touches>(
        &self,
        request: &R,
        responder: Responder<R>,
    ) -> Option<(Responder<R>, Right)> {
        match responder.caller() >= Identity::Operator {
            true => Some((responder, Right::Everything)),
            false => self.allowed_by_rows(request, responder),
        }
    }

    fn allowed_by_rows<R: Touches>(
        &self,
        request: &R,
        responder: Responder<R>,
    ) -> Option<(Responder<R>, Right)> {
        let Some(access) = self.role.access.get() else {
            // The client asks again, here or at another server.
            responder.fail(Error::server_request_queue_full);
            return None;
        };
        let right = self
            .guard
            .to_read(&access, responder.caller(), request.token());
        let right = right.and_then(|right| match request.is_within(&right) {
            true => Ok(right),
            false => Err(Refused::Beyond),
        });
        match right {
            Ok(right) => Some((responder, right)),
            Err(why) => {
                responder.deny(&why.to_string());
                None
            }
        }
    }
}
