//! The token that a client shows with a request.

use bytes::Bytes;
use plinth_core::codec::{Codec, Source};
use plinth_core::output::Output;

/// A longer token is refused before it is looked at.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;

/// A token, or none. It is the last field of a request, and none takes no byte: whoever shows no token sends what was
/// sent before there were any.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Token(Option<Bytes>);

impl Token {
    pub const NONE: Token = Token(None);

    /// `None` if it is empty or too long.
    pub fn new(text: Bytes) -> Option<Token> {
        let fits = (1..=TOKEN_BYTES_MAX).contains(&text.len());
        fits.then_some(Token(Some(text)))
    }

    pub fn shown(&self) -> Option<&Bytes> {
        self.0.as_ref()
    }
}

impl Codec for Token {
    #[inline]
    fn put(&self, out: &mut Output) {
        if let Some(text) = &self.0 {
            text.put(out);
        }
    }
    #[inline]
    fn take(input: &mut Bytes) -> Option<Self> {
        if input.is_empty() {
            return Some(Token::NONE);
        }
        Token::new(Bytes::take(input)?)
    }
    fn draw(_: &mut dyn Source) -> Self {
        Token::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_takes_no_byte_and_what_is_shown_comes_back() {
        assert!(Token::NONE.to_bytes().is_empty());
        assert_eq!(Token::from_bytes(Bytes::new()), Some(Token::NONE));
        let longest = Token::new(vec![7; TOKEN_BYTES_MAX].into()).expect("it fits");
        assert_eq!(Token::from_bytes(longest.to_bytes()), Some(longest));
        for wrong in [vec![], vec![7; TOKEN_BYTES_MAX + 1]] {
            assert_eq!(Token::new(wrong.clone().into()), None);
            assert_eq!(Token::from_bytes(Bytes::from(wrong).to_bytes()), None);
        }
    }
}
