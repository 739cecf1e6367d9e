//! ZooKeeper's files, as bytes: jute records behind a running checksum.
//!
//! Input is hostile: a length is compared with what there is before it costs memory.

use bytes::Bytes;
use plinth_core::texts;
use plinth_keeper::wire::{Acl, Text};
use std::fmt::{Display, Formatter};
use std::io::{Read, Write};

/// Longest string or buffer. ZooKeeper's own limit, `jute.maxbuffer`, is 1 MiB unless it was raised.
const BUFFER_BYTES_MAX: usize = 256 << 20;
/// Memory is taken in such steps while a buffer comes, so a length that lies costs nothing.
const STEP_BYTES: u64 = 1 << 20;

texts! {
    /// Why bytes are no record.
    #[derive(Clone, PartialEq, Eq, Debug)]
    pub enum Fault {
        /// There are no more bytes.
        End = "it ends too early";
        Damaged(what: &'static str) = "{what}";
        Io(error: String) = "{error}";
    }
}

pub type Taken<T> = Result<T, Fault>;

/// A fault, and where it was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damage {
    pub fault: Fault,
    /// Where the record begins that cannot be taken.
    pub offset: u64,
    /// The node that it is about.
    pub node: Option<Text>,
}

impl Display for Damage {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        write!(out, "at byte {}", self.offset)?;
        if let Some(node) = &self.node {
            write!(out, ", node {node}")?;
        }
        write!(out, ": {}", self.fault)
    }
}

/// Adler-32, the checksum of all of ZooKeeper's files.
#[derive(Clone, Copy, Debug)]
pub struct Adler {
    low: u32,
    high: u32,
}

impl Adler {
    /// Largest prime below 2^16.
    const MODULUS: u32 = 65_521;
    /// So many bytes cannot make a sum overflow.
    const STEP: usize = 5552;

    pub fn new() -> Adler {
        Adler { low: 1, high: 0 }
    }

    pub fn add(&mut self, bytes: &[u8]) {
        for step in bytes.chunks(Adler::STEP) {
            for byte in step {
                self.low += u32::from(*byte);
                self.high += self.low;
            }
            self.low %= Adler::MODULUS;
            self.high %= Adler::MODULUS;
        }
    }

    pub fn sum(self) -> i64 {
        i64::from(self.high << 16 | self.low)
    }
}

/// Takes records from a file.
pub struct Input<R> {
    inner: R,
    pub adler: Adler,
    /// Bytes that were taken.
    pub offset: u64,
}

impl<R: Read> Input<R> {
    pub fn new(inner: R) -> Self {
        Input {
            inner,
            adler: Adler::new(),
            offset: 0,
        }
    }

    fn take<const N: usize>(&mut self) -> Taken<[u8; N]> {
        let mut bytes = [0; N];
        self.inner.read_exact(&mut bytes).map_err(fault)?;
        self.adler.add(&bytes);
        self.offset += N as u64;
        Ok(bytes)
    }

    pub fn byte(&mut self) -> Taken<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub fn int(&mut self) -> Taken<i32> {
        self.take().map(i32::from_be_bytes)
    }

    pub fn long(&mut self) -> Taken<i64> {
        self.take().map(i64::from_be_bytes)
    }

    /// `None` if the length is -1.
    pub fn buffer(&mut self) -> Taken<Option<Vec<u8>>> {
        let len = self.int()?;
        if len == -1 {
            return Ok(None);
        }
        let len = usize::try_from(len).map_err(|_| Fault::Damaged("a negative length"))?;
        if len > BUFFER_BYTES_MAX {
            return Err(Fault::Damaged("a length of more than 256 MiB"));
        }
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let step = STEP_BYTES.min((len - bytes.len()) as u64);
            let mut some = (&mut self.inner).take(step);
            if some.read_to_end(&mut bytes).map_err(fault)? == 0 {
                return Err(Fault::End);
            }
        }
        self.adler.add(&bytes);
        self.offset += len as u64;
        Ok(Some(bytes))
    }

    pub fn data(&mut self) -> Taken<Option<Bytes>> {
        Ok(self.buffer()?.map(Bytes::from))
    }

    pub fn text(&mut self) -> Taken<Text> {
        let bytes = self.buffer()?.ok_or(Fault::Damaged("a text is missing"))?;
        let text = String::from_utf8(bytes);
        text.map(Text::from)
            .map_err(|_| Fault::Damaged("a text is not UTF-8"))
    }

    pub fn acl(&mut self) -> Taken<Vec<Acl>> {
        let mut acl = Vec::new();
        for _ in 0..self.int()? {
            acl.push(Acl {
                perms: self.int()?,
                scheme: self.text()?,
                id: self.text()?,
            });
        }
        Ok(acl)
    }

    /// All that is left.
    ///
    /// # Errors
    /// It is more than `bytes_max`.
    pub fn rest(&mut self, bytes_max: usize) -> Taken<Vec<u8>> {
        let mut rest = Vec::new();
        let mut some = (&mut self.inner).take(bytes_max as u64 + 1);
        some.read_to_end(&mut rest).map_err(fault)?;
        match rest.len() <= bytes_max {
            true => Ok(rest),
            false => Err(Fault::Damaged("more bytes follow than can belong to it")),
        }
    }

    /// True if all that is left is zeros.
    pub fn is_blank(&mut self) -> Taken<bool> {
        let mut some = vec![0; STEP_BYTES as usize];
        loop {
            match self.inner.read(&mut some).map_err(fault)? {
                0 => return Ok(true),
                len if some[..len].iter().any(|byte| *byte != 0) => return Ok(false),
                _ => {}
            }
        }
    }
}

fn fault(error: std::io::Error) -> Fault {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => Fault::End,
        _ => Fault::Io(error.to_string()),
    }
}

/// Writes records to a file.
pub struct Output<W> {
    inner: W,
    pub adler: Adler,
}

impl<W: Write> Output<W> {
    pub fn new(inner: W) -> Self {
        Output {
            inner,
            adler: Adler::new(),
        }
    }

    fn put(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.adler.add(bytes);
        self.inner.write_all(bytes)
    }

    pub fn int(&mut self, number: i32) -> std::io::Result<()> {
        self.put(&number.to_be_bytes())
    }

    pub fn long(&mut self, number: i64) -> std::io::Result<()> {
        self.put(&number.to_be_bytes())
    }

    pub fn buffer(&mut self, bytes: Option<&[u8]>) -> std::io::Result<()> {
        let Some(bytes) = bytes else {
            return self.int(-1);
        };
        self.int(i32::try_from(bytes.len()).expect("the keeper bounds all data"))?;
        self.put(bytes)
    }

    pub fn text(&mut self, text: &str) -> std::io::Result<()> {
        self.buffer(Some(text.as_bytes()))
    }

    pub fn acl(&mut self, acl: &[Acl]) -> std::io::Result<()> {
        self.int(i32::try_from(acl.len()).expect("the keeper bounds access lists"))?;
        for entry in acl {
            self.int(entry.perms)?;
            self.text(&entry.scheme)?;
            self.text(&entry.id)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_adler_32() {
        let mut adler = Adler::new();
        adler.add(b"Wikipedia");
        assert_eq!(adler.sum(), 0x11e6_0398);
        let mut long = Adler::new();
        long.add(&vec![0xff; 1 << 20]);
        // As zlib.adler32(b"\xff" * (1 << 20)) says.
        assert_eq!(long.sum(), LONG_SUM);
    }

    const LONG_SUM: i64 = 0x8e88_ef11;

    #[test]
    fn a_length_that_lies_is_refused_and_costs_no_memory() {
        for (bytes, fault) in [
            (&[0x0f, 0, 0, 0, 1, 2][..], Fault::End),
            (
                &[0x7f, 0, 0, 0],
                Fault::Damaged("a length of more than 256 MiB"),
            ),
            (&[0xff, 0, 0, 0], Fault::Damaged("a negative length")),
            (&[0, 0], Fault::End),
        ] {
            assert_eq!(Input::new(bytes).buffer(), Err(fault));
        }
        assert_eq!(Input::new(&[0xff; 4][..]).buffer(), Ok(None));
    }

    #[test]
    fn what_is_written_is_read() {
        let mut bytes = Vec::new();
        let mut out = Output::new(&mut bytes);
        out.text("/a").expect("memory");
        out.buffer(None).expect("memory");
        out.acl(&Acl::open()).expect("memory");
        let sum = out.adler.sum();
        let mut input = Input::new(&bytes[..]);
        assert_eq!(input.text(), Ok("/a".into()));
        assert_eq!(input.data(), Ok(None));
        assert_eq!(input.acl(), Ok(Acl::open()));
        assert_eq!(input.adler.sum(), sum);
        assert_eq!(input.is_blank(), Ok(true));
    }
}
