//! `\xff\xff/global_config/`: settings for all clients, kept in the system keyspace. A value is written as a packed
//! tuple of one element and read as text, as in FoundationDB.

use super::{MODULES, Module, Rows, SpecialWrite, Writable};
use crate::system_rows;
use crate::transaction::Transaction;
use bytes::Bytes;
use plinth_core::key::KeyRange;
use plinth_core::tuple::{self, Element};
use plinth_core::{Error, Key, Result, Value};

const GLOBAL_CONFIG: &[u8] = b"\xff\xff/global_config/";
const GLOBAL_CONFIG_END: &[u8] = b"\xff\xff/global_config0";
const STORED: &[u8] = b"\xff/globalConfig/k/";

#[linkme::distributed_slice(MODULES)]
static OF_GLOBAL_CONFIG: Module = Module {
    begin: GLOBAL_CONFIG,
    end: GLOBAL_CONFIG_END,
    rows: |transaction, asked| Box::pin(rows(transaction, &asked.within)),
    writable: &[Writable {
        begin: GLOBAL_CONFIG,
        end: GLOBAL_CONFIG_END,
        apply: |transaction, write| Box::pin(apply(transaction, write)),
    }],
};

fn stored(key: &[u8]) -> Key {
    Bytes::from([STORED, key.get(GLOBAL_CONFIG.len()..).unwrap_or_default()].concat())
}

fn stored_range(range: &KeyRange) -> KeyRange {
    let end = if range.end.starts_with(GLOBAL_CONFIG) {
        stored(&range.end)
    } else {
        Bytes::from_static(b"\xff/globalConfig/k0")
    };
    KeyRange::new(stored(&range.begin), end)
}

async fn rows(transaction: &Transaction, within: &KeyRange) -> Result<Rows> {
    let begins_below = within.begin[..] < *GLOBAL_CONFIG;
    let within = KeyRange {
        begin: if begins_below {
            GLOBAL_CONFIG.into()
        } else {
            within.begin.clone()
        },
        end: within.end.clone(),
    };
    let found = system_rows::read(transaction, stored_range(&within), usize::MAX).await?;
    let row = |(key, value): (Key, Value)| {
        let key = Bytes::from([GLOBAL_CONFIG, &key[STORED.len()..]].concat());
        (key, text_of(&value))
    };
    Ok(found.into_iter().map(row).collect())
}

fn text_of(value: &Value) -> Value {
    match tuple::unpack(value).as_deref() {
        Ok([Element::Bytes(bytes)]) => bytes.clone(),
        Ok([Element::Text(text)]) => Value::from(text.to_string()),
        Ok([Element::Float(number)]) => Value::from(number.to_string()),
        Ok([Element::Double(number)]) => Value::from(number.to_string()),
        Ok([Element::Bool(truth)]) => Value::from(if *truth { "1" } else { "0" }),
        Ok([other]) => other
            .as_i64()
            .map_or_else(|| value.clone(), |number| Value::from(number.to_string())),
        _ => value.clone(),
    }
}

async fn apply(transaction: &Transaction, write: SpecialWrite) -> Result<()> {
    match write {
        SpecialWrite::Set(key, value) => {
            let well_formed = tuple::unpack(&value).is_ok_and(|elements| elements.len() == 1);
            if !well_formed {
                return Err(Error::special_keys_api_failure);
            }
            system_rows::set(transaction, &stored(&key), &value)
        }
        SpecialWrite::Clear(range) => system_rows::clear(transaction, &stored_range(&range)),
    }
}
