//! Lists with more than names, or with some of the children.

use super::jute::{
    Malformed, STRING_BYTES_MIN, Taken, put_buffer, put_list, put_texts, take_buffer, take_byte,
    take_list, take_texts,
};
use super::record::Stat;
use super::text::Text;
use bytes::Bytes;
use plinth_core::output::Output;

/// Which children a list has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filter {
    All = 0,
    Persistent = 1,
    Ephemeral = 2,
}

impl Filter {
    pub fn has(self, stat: &Stat) -> bool {
        match self {
            Filter::All => true,
            Filter::Persistent => stat.ephemeral_owner == 0,
            Filter::Ephemeral => stat.ephemeral_owner != 0,
        }
    }

    pub(super) fn take(input: &mut Bytes) -> Taken<Filter> {
        match take_byte(input)? {
            0 => Ok(Filter::All),
            1 => Ok(Filter::Persistent),
            2 => Ok(Filter::Ephemeral),
            _ => Err(Malformed),
        }
    }
}

/// What a list has of each child besides its name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Details {
    pub stat: bool,
    pub data: bool,
}

/// A list with details.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Listed {
    pub names: Vec<Text>,
    pub stat: Stat,
    /// Of the children, in the order of their names. Empty if nobody has asked for them, as is `data`.
    pub stats: Vec<Stat>,
    pub data: Vec<Option<Bytes>>,
}

impl Listed {
    pub(super) fn put(&self, out: &mut Output) {
        put_texts(out, &self.names);
        self.stat.put(out);
        put_list(out, &self.stats, |out, stat| stat.put(out));
        put_list(out, &self.data, |out, data| put_buffer(out, data.as_ref()));
    }

    pub(super) fn take(input: &mut Bytes) -> Taken<Listed> {
        Ok(Listed {
            names: take_texts(input)?,
            stat: Stat::take(input)?,
            stats: take_list(input, Stat::BYTES, Stat::take)?,
            data: take_list(input, STRING_BYTES_MIN, take_buffer)?,
        })
    }
}
