//! Redis's protocol, as far as GET and SET need it; one request at a time.

use bytes::{BufMut, Bytes, BytesMut};
use plinth_runtime::net::{self, Writer};
use plinth_runtime::serve::Inbox;
use plinth_terminal::Outcome;
use std::net::SocketAddr;

/// A longer answer is none of ours.
const ANSWER_BYTES_MAX: usize = 1 << 20;
const END: &[u8] = b"\r\n";

pub struct Redis {
    inbox: Inbox,
    writer: Writer,
}

/// The first line of the buffer, without its end, and the bytes that it takes.
fn line(buffer: &[u8]) -> Option<(&[u8], usize)> {
    let end = buffer.windows(2).position(|two| two == END)?;
    Some((&buffer[..end], end + 2))
}

/// The answer at the front of the buffer, if it is whole.
fn take(buffer: &mut BytesMut) -> Outcome<Option<Option<Bytes>>> {
    let Some((first, head)) = line(buffer) else {
        return Ok(None);
    };
    let text = String::from_utf8_lossy(first).into_owned();
    let (kind, rest) = text.split_at_checked(1).unwrap_or_default();
    match (kind, rest) {
        ("+", _) | ("$", "-1") => {
            let _ = buffer.split_to(head);
            Ok(Some(None))
        }
        ("$", length) => {
            let length = length.parse::<usize>().ok();
            let length = length.filter(|length| *length <= ANSWER_BYTES_MAX);
            let length = length.ok_or("redis: an answer of no possible length")?;
            if buffer.len() < head + length + END.len() {
                return Ok(None);
            }
            let _ = buffer.split_to(head);
            let value = buffer.split_to(length).freeze();
            let _ = buffer.split_to(END.len());
            Ok(Some(Some(value)))
        }
        _ => Err(format!("redis says: {text}")),
    }
}

impl Redis {
    pub async fn connect(at: SocketAddr) -> Outcome<Redis> {
        let opened = net::connect(at).await;
        let (reader, writer) = opened.map_err(|error| format!("redis at {at}: {error}"))?;
        let inbox = Inbox::new(reader);
        Ok(Redis { inbox, writer })
    }

    async fn ask(&mut self, words: &[&[u8]]) -> Outcome<Option<Bytes>> {
        let mut out = BytesMut::new();
        out.put_slice(format!("*{}\r\n", words.len()).as_bytes());
        for word in words {
            out.put_slice(format!("${}\r\n", word.len()).as_bytes());
            out.put_slice(word);
            out.put_slice(END);
        }
        let written = self.writer.write_all(out.freeze()).await;
        written.map_err(|error| format!("redis: {error}"))?;
        loop {
            if let Some(answer) = take(&mut self.inbox.buffer)? {
                return Ok(answer);
            }
            let read = self.inbox.read().await;
            read.ok_or("redis: the connection is lost")?;
        }
    }

    pub async fn get(&mut self, key: &[u8]) -> Outcome<Option<Bytes>> {
        self.ask(&[b"GET", key]).await
    }

    pub async fn set(&mut self, key: &[u8], value: &[u8]) -> Outcome {
        self.ask(&[b"SET", key, value]).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_when_they_are_whole_and_errors_are_told() {
        let take = |text: &str| take(&mut BytesMut::from(text));
        assert_eq!(take("+OK\r\n"), Ok(Some(None)));
        assert_eq!(take("$-1\r\n"), Ok(Some(None)));
        assert_eq!(take("$3\r\nabc\r\n"), Ok(Some(Some("abc".into()))));
        for part in ["", "$3", "$3\r\nab", "$3\r\nabc\r"] {
            assert_eq!(take(part), Ok(None), "{part:?}");
        }
        for wrong in [
            "-ERR no\r\n",
            "$99999999999\r\n",
            "$x\r\n",
            ":1\r\n",
            "\r\n",
        ] {
            assert!(take(wrong).is_err(), "{wrong:?}");
        }
    }
}
