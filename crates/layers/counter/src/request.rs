//! The wire format: a line in, a line out.

use crate::REQUEST_BYTES_MAX;
use bytes::BytesMut;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    Add { name: String, amount: i64 },
    Get { name: String },
}

/// Takes the first line off `buffer`; `None` until it is whole.
///
/// # Errors
/// `Err` without a line: the request is too long, and the connection must end. `Ok(Some(Err(why)))`: the line is not a
/// request; the next one may be.
pub fn parse(buffer: &mut BytesMut) -> Result<Option<Result<Request, &'static str>>, &'static str> {
    let Some(end) = buffer.iter().position(|byte| *byte == b'\n') else {
        let is_too_long = buffer.len() > REQUEST_BYTES_MAX.get();
        return if is_too_long {
            Err("the line is too long")
        } else {
            Ok(None)
        };
    };
    if end > REQUEST_BYTES_MAX.get() {
        return Err("the line is too long");
    }
    let line = buffer.split_to(end + 1);
    Ok(Some(parse_line(&line[..end])))
}

fn parse_line(line: &[u8]) -> Result<Request, &'static str> {
    let line = std::str::from_utf8(line).map_err(|_| "the line is not UTF-8")?;
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    match words[..] {
        ["add", name, amount] => Ok(Request::Add {
            name: name.into(),
            amount: amount
                .parse()
                .map_err(|_| "the amount is not a whole number")?,
        }),
        ["get", name] => Ok(Request::Get { name: name.into() }),
        _ => Err("expected `add <name> <amount>' or `get <name>'"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_core::testing::fuzz;

    #[test]
    fn a_line_is_taken_when_it_is_whole() {
        let mut buffer = BytesMut::from("add a -3\nget");
        let add = Request::Add {
            name: "a".into(),
            amount: -3,
        };
        assert_eq!(parse(&mut buffer), Ok(Some(Ok(add))));
        assert_eq!(parse(&mut buffer), Ok(None));
        buffer.extend_from_slice(b" a\r\n");
        assert_eq!(
            parse(&mut buffer),
            Ok(Some(Ok(Request::Get { name: "a".into() })))
        );
        assert!(buffer.is_empty());
    }

    #[test]
    fn damaged_lines_are_refused_or_mean_what_they_say() {
        let corpus = ["add apples 3\nget apples\n", "add a -1\n", "get b\n"];
        let corpus = corpus.map(|lines| lines.as_bytes().to_vec());
        fuzz("counter requests", 1, corpus, |input| {
            let mut buffer = BytesMut::from(input);
            let mut taken = 0;
            while let Ok(Some(request)) = parse(&mut buffer) {
                taken += 1;
                if let Ok(Request::Add { name, .. } | Request::Get { name }) = request {
                    assert!(!name.is_empty() && !name.contains(char::is_whitespace));
                }
            }
            assert!(buffer.len() <= input.len());
            taken > 0
        });
    }

    #[test]
    fn hostile_lines_are_refused_and_long_ones_end_the_connection() {
        for line in [
            "",
            "add",
            "add a",
            "add a b",
            "add a 99999999999999999999",
            "\u{0}",
            "get a b",
        ] {
            let mut buffer = BytesMut::from(format!("{line}\n").as_bytes());
            assert!(matches!(parse(&mut buffer), Ok(Some(Err(_)))), "{line:?}");
        }
        let mut buffer = BytesMut::from(&b"\xff\xfe\n"[..]);
        assert!(matches!(parse(&mut buffer), Ok(Some(Err(_)))));
        let mut long = BytesMut::from(&vec![b'a'; REQUEST_BYTES_MAX.get() + 1][..]);
        assert!(parse(&mut long).is_err());
        long.extend_from_slice(b"\n");
        assert!(parse(&mut long).is_err());
    }
}
