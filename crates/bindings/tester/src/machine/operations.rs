//! Instructions for data, transactions and tuples.

use super::{Item, Machine, On, Outcome, senseless};
use crate::program::{bytes, pack, pack_rows};
use bytes::Bytes;
use plinth_client::{RangeOptions, StreamingMode, Transaction, TransactionOption};
use plinth_core::tuple::{self, Element};
use plinth_core::{Error, KeyRange, KeySelector, MutationKind, Value};

/// The mutation kind with this name in the specification.
fn mutation_kind(name: &str) -> Option<MutationKind> {
    let name = match name {
        "AND" | "OR" | "XOR" => format!("bit_{name}"),
        name => name.to_owned(),
    };
    let mut atomic = MutationKind::ALL.iter().filter(|kind| kind.is_atomic());
    let found = atomic.find(|kind| kind.name().eq_ignore_ascii_case(&name));
    found.copied()
}

fn or_absent(value: Option<Value>) -> Element {
    value.map_or_else(|| bytes("RESULT_NOT_PRESENT"), Element::Bytes)
}

impl Machine {
    pub(super) async fn operation(
        &mut self,
        name: &str,
        on: On,
        operand: Option<Element>,
    ) -> Outcome<()> {
        match name {
            "PUSH" | "DUP" | "EMPTY_STACK" | "SWAP" | "POP" | "SUB" | "CONCAT" => {
                self.data(name, operand).await
            }
            "LOG_STACK" => self.log_stack().await,
            _ if name.starts_with("TUPLE_") => self.tuples(name).await,
            _ if name.starts_with("ENCODE_") || name.starts_with("DECODE_") => {
                self.floats(name).await
            }
            _ if name.starts_with("GET") => self.reads(name, on).await,
            "SET" | "CLEAR" | "CLEAR_RANGE" | "CLEAR_RANGE_STARTS_WITH" | "ATOMIC_OP" => {
                self.writes(name, on).await
            }
            _ => self.transactions(name).await,
        }
    }

    async fn data(&mut self, name: &str, operand: Option<Element>) -> Outcome<()> {
        match name {
            "PUSH" => match operand {
                Some(item) => self.push(item),
                None => return senseless("there is nothing to push"),
            },
            "DUP" => {
                let (item, at) = self.pop_with_place().await?;
                self.stack.push((Item::Value(item.clone()), at));
                self.stack.push((Item::Value(item), at));
            }
            "EMPTY_STACK" => self.stack.clear(),
            "SWAP" => {
                let depth = self.pop_int().await? as usize;
                let Some(top) = self.stack.len().checked_sub(1).filter(|top| *top >= depth) else {
                    return senseless("the stack is not as deep");
                };
                self.stack.swap(top, top - depth);
            }
            "POP" => drop(self.stack.pop()),
            "SUB" => {
                let difference = self.pop_int().await?.checked_sub(self.pop_int().await?);
                match difference {
                    Some(difference) => self.push(Element::Int(difference)),
                    None => return senseless("the difference is too large"),
                }
            }
            _ => match (self.pop().await?, self.pop().await?) {
                (Element::Bytes(a), Element::Bytes(b)) => self.push(bytes([a, b].concat())),
                (Element::Text(a), Element::Text(b)) => self.push(Element::Text(a + &b)),
                (a, b) => return senseless(format!("{a:?} and {b:?} are not of one kind")),
            },
        }
        Ok(())
    }

    /// The range of an instruction, which names a prefix or both ends.
    async fn pop_range(&mut self, name: &str) -> Outcome<KeyRange> {
        if name.ends_with("_STARTS_WITH") {
            return self.pop_prefix_range().await;
        }
        Ok(KeyRange::new(
            self.pop_bytes().await?,
            self.pop_bytes().await?,
        ))
    }

    async fn pop_range_options(&mut self) -> Outcome<RangeOptions> {
        let limit = self.pop_int().await? as i32;
        let reverse = self.pop_bool().await?;
        let mode = StreamingMode::from_code(self.pop_int().await? as i32)?;
        Ok(RangeOptions {
            limit,
            reverse,
            mode,
            ..RangeOptions::default()
        })
    }

    async fn get_range(
        &mut self,
        on: On,
        (begin, end): (KeySelector, KeySelector),
        options: RangeOptions,
        only: Option<Bytes>,
    ) -> Outcome<()> {
        let snapshot = on == On::Snapshot;
        let read = async |transaction: &Transaction| {
            let (begin, end) = (begin.clone(), end.clone());
            transaction
                .get_range_all(begin, end, options, snapshot)
                .await
        };
        let mut rows = self.with(on, read).await?;
        if let Some(prefix) = only {
            rows.retain(|(key, _)| key.starts_with(&prefix));
        }
        self.push(pack_rows(rows));
        Ok(())
    }

    async fn get(&mut self, on: On) -> Outcome<()> {
        let snapshot = on == On::Snapshot;
        let key = self.pop_bytes().await?;
        let read = async |transaction: &Transaction| transaction.get(&key, snapshot).await;
        let found = self.with(on, read).await?;
        self.push(or_absent(found));
        Ok(())
    }

    /// Finds the key of a selector, clamped to the range of a prefix.
    async fn get_key(&mut self, on: On) -> Outcome<()> {
        let snapshot = on == On::Snapshot;
        let selector = self.pop_selector().await?;
        let prefix = self.pop_bytes().await?;
        let read =
            async |transaction: &Transaction| transaction.get_key(selector.clone(), snapshot).await;
        let found = self.with(on, read).await?;
        let clamped = if found.starts_with(&prefix) {
            found
        } else if found < prefix {
            prefix
        } else {
            plinth_core::key::prefix_end(&prefix).unwrap_or_default()
        };
        self.push(Element::Bytes(clamped));
        Ok(())
    }

    async fn reads(&mut self, name: &str, on: On) -> Outcome<()> {
        match name {
            "GET" => self.get(on).await?,
            "GET_KEY" => self.get_key(on).await?,
            "GET_RANGE" | "GET_RANGE_STARTS_WITH" => {
                let range = self.pop_range(name).await?.selectors();
                let options = self.pop_range_options().await?;
                self.get_range(on, range, options, None).await?;
            }
            "GET_RANGE_SELECTOR" => {
                let range = (self.pop_selector().await?, self.pop_selector().await?);
                let options = self.pop_range_options().await?;
                let prefix = self.pop_bytes().await?;
                self.get_range(on, range, options, Some(prefix)).await?;
            }
            "GET_READ_VERSION" => {
                self.last_version = self.current().get_read_version().await?;
                self.push_text("GOT_READ_VERSION");
            }
            "GET_COMMITTED_VERSION" => {
                self.last_version = self.current().get_committed_version();
                self.push_text("GOT_COMMITTED_VERSION");
            }
            "GET_APPROXIMATE_SIZE" => {
                self.current().get_approximate_size();
                self.push_text("GOT_APPROXIMATE_SIZE");
            }
            "GET_VERSIONSTAMP" => {
                let stamp = self.current().get_versionstamp();
                let future = async move { Ok(bytes(stamp.await?.0)) };
                self.stack.push((Item::Future(Box::pin(future)), self.at));
            }
            "GET_ESTIMATED_RANGE_SIZE" => {
                let (begin, end) = (self.pop_bytes().await?, self.pop_bytes().await?);
                let asked = self.current().get_estimated_range_size_bytes(begin, end);
                asked.await?;
                self.push_text("GOT_ESTIMATED_RANGE_SIZE");
            }
            "GET_RANGE_SPLIT_POINTS" => {
                let (begin, end) = (self.pop_bytes().await?, self.pop_bytes().await?);
                let chunk_bytes = self.pop_int().await?;
                let asked = self
                    .current()
                    .get_range_split_points(begin, end, chunk_bytes);
                asked.await?;
                self.push_text("GOT_RANGE_SPLIT_POINTS");
            }
            _ => return senseless("there is no such read"),
        }
        Ok(())
    }

    async fn writes(&mut self, name: &str, on: On) -> Outcome<()> {
        match name {
            "SET" => {
                let (key, value) = (self.pop_bytes().await?, self.pop_bytes().await?);
                self.mutate(on, |transaction| transaction.set(&key, &value))
                    .await
            }
            "CLEAR" => {
                let key = self.pop_bytes().await?;
                self.mutate(on, |transaction| transaction.clear(&key)).await
            }
            "CLEAR_RANGE" | "CLEAR_RANGE_STARTS_WITH" => {
                let KeyRange { begin, end } = self.pop_range(name).await?;
                self.mutate(on, |transaction| transaction.clear_range(&begin, &end))
                    .await
            }
            _ => {
                let kind = match self.pop().await? {
                    Element::Text(name) => mutation_kind(&name),
                    _ => None,
                };
                let Some(kind) = kind else {
                    return senseless("there is no such atomic operation");
                };
                let (key, operand) = (self.pop_bytes().await?, self.pop_bytes().await?);
                let operate =
                    |transaction: &Transaction| transaction.atomic_op(kind, &key, &operand);
                self.mutate(on, operate).await
            }
        }
    }

    async fn transactions(&mut self, name: &str) -> Outcome<()> {
        match name {
            "NEW_TRANSACTION" => {
                let new = self.shared.database.create_transaction();
                let name = self.transaction.clone();
                self.shared.transactions.borrow_mut().insert(name, new);
            }
            "USE_TRANSACTION" => {
                self.transaction = self.pop_bytes().await?;
                self.current();
            }
            "ON_ERROR" => {
                let code = self.pop_int().await?;
                let code = u16::try_from(code).map_err(|_| Error::client_invalid_operation)?;
                self.current().on_error(Error(code)).await?;
                self.push_text("RESULT_NOT_PRESENT");
            }
            "SET_READ_VERSION" => self.current().set_read_version(self.last_version),
            "COMMIT" => {
                self.current().commit().await?;
                self.push_text("RESULT_NOT_PRESENT");
            }
            "RESET" => self.current().reset(),
            "CANCEL" => self.current().cancel(),
            "DISABLE_WRITE_CONFLICT" => {
                let option = TransactionOption::NextWriteNoWriteConflictRange;
                self.current().set_option(option)?;
            }
            "READ_CONFLICT_RANGE" | "WRITE_CONFLICT_RANGE" => {
                let (begin, end) = (self.pop_bytes().await?, self.pop_bytes().await?);
                if name.starts_with("READ") {
                    self.current().add_read_conflict_range(begin, end);
                } else {
                    self.current().add_write_conflict_range(begin, end);
                }
                self.push_text("SET_CONFLICT_RANGE");
            }
            "READ_CONFLICT_KEY" | "WRITE_CONFLICT_KEY" => {
                let key = self.pop_bytes().await?;
                if name.starts_with("READ") {
                    self.current().add_read_conflict_key(key);
                } else {
                    self.current().add_write_conflict_key(key);
                }
                self.push_text("SET_CONFLICT_KEY");
            }
            "WAIT_FUTURE" => {
                let (item, at) = self.pop_with_place().await?;
                self.stack.push((Item::Value(item), at));
            }
            "START_THREAD" => {
                let prefix = self.pop_bytes().await?;
                self.start_thread(prefix);
            }
            "WAIT_EMPTY" => self.wait_empty().await?,
            // Nothing to do: options, watches, cancellation and limits have their own tests.
            "UNIT_TESTS" => {}
            _ => return senseless("there is no such instruction"),
        }
        Ok(())
    }

    async fn wait_empty(&mut self) -> Outcome<()> {
        let all = self.pop_prefix_range().await?;
        let database = self.shared.database.clone();
        let waited = database.run(async |transaction| {
            let rows = transaction.get_rows(all.clone(), RangeOptions::limit(1), false);
            match rows.await?.is_empty() {
                true => Ok(()),
                false => Err(Error::not_committed),
            }
        });
        waited.await?;
        self.push_text("WAITED_FOR_EMPTY");
        Ok(())
    }

    async fn tuples(&mut self, name: &str) -> Outcome<()> {
        match name {
            "TUPLE_PACK" => {
                let items = self.pop_many().await?;
                self.push(bytes(tuple::pack(&items)?));
            }
            "TUPLE_PACK_WITH_VERSIONSTAMP" => {
                let prefix = self.pop_bytes().await?;
                let items = self.pop_many().await?;
                let incomplete = tuple::pack(&items).is_err();
                match tuple::pack_with_versionstamp(&prefix, &items) {
                    Ok(packed) => {
                        self.push_text("OK");
                        self.push(bytes(packed));
                    }
                    Err(_) if incomplete => self.push_text("ERROR: MULTIPLE"),
                    Err(_) => self.push_text("ERROR: NONE"),
                }
            }
            "TUPLE_UNPACK" => {
                let packed = self.pop_bytes().await?;
                for element in tuple::unpack(&packed)? {
                    self.push(bytes(pack(&[element])));
                }
            }
            "TUPLE_RANGE" => {
                let range = tuple::range(&self.pop_many().await?)?;
                self.push(Element::Bytes(range.begin));
                self.push(Element::Bytes(range.end));
            }
            "TUPLE_SORT" => {
                let mut packed = Vec::new();
                for item in self.pop_many().await? {
                    let Element::Bytes(bytes) = item else {
                        return senseless("a tuple that is not packed");
                    };
                    packed.push(tuple::pack(&tuple::unpack(&bytes)?)?);
                }
                packed.sort();
                packed
                    .into_iter()
                    .for_each(|packed| self.push(Element::Bytes(packed)));
            }
            _ => return senseless("there is no such operation on tuples"),
        }
        Ok(())
    }

    async fn floats(&mut self, name: &str) -> Outcome<()> {
        let item = self.pop().await?;
        let result = match (name, item) {
            ("ENCODE_FLOAT", Element::Bytes(text)) => text[..]
                .try_into()
                .ok()
                .map(|b| Element::Float(f32::from_be_bytes(b))),
            ("ENCODE_DOUBLE", Element::Bytes(text)) => text[..]
                .try_into()
                .ok()
                .map(|b| Element::Double(f64::from_be_bytes(b))),
            ("DECODE_FLOAT", Element::Float(number)) => Some(bytes(number.to_be_bytes())),
            ("DECODE_DOUBLE", Element::Double(number)) => Some(bytes(number.to_be_bytes())),
            _ => None,
        };
        match result {
            Some(item) => self.push(item),
            None => return senseless("the wrong kind of item"),
        }
        Ok(())
    }
}
