//! Requests, as they were understood; the payload of an entry.
//!
//! ```text
//!   version u8 | Request of proto/table.proto
//! ```

use crate::filter::Filter;
use crate::proto::{self, operation, request};
use crate::value::Value;
use crate::{Ended, Refused, limits};
use bytes::{BufMut, Bytes, BytesMut};
use plinth_core::Error;
use prost::Message;

/// Raised when a request can lead to something that an earlier release would not do; also when a limit changes.
const VERSION: u8 = 1;

/// Names and values of some columns.
pub type Cells = Vec<(String, Value)>;

#[derive(Clone, PartialEq, Debug)]
pub enum Request {
    Transaction(Transaction),
    CreateTable(proto::Table),
    DropTable(String),
    AddColumn(String, proto::Column),
    DropColumn(String, String),
    CreateIndex(String, proto::Index),
    DropIndex(String, String),
    /// Goes on with what is still to be done.
    Step,
}

#[derive(Clone, PartialEq, Debug, Default)]
pub struct Transaction {
    pub conditions: Vec<Condition>,
    pub operations: Vec<Operation>,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Condition {
    pub table: String,
    pub key: Cells,
    pub expect: Expect,
}

#[derive(Clone, PartialEq, Debug)]
pub enum Expect {
    Exists,
    Missing,
    Matches(Filter),
}

#[derive(Clone, PartialEq, Debug)]
pub enum Operation {
    Insert {
        table: String,
        row: Cells,
    },
    Upsert {
        table: String,
        row: Cells,
    },
    Update {
        table: String,
        key: Cells,
        set: Vec<Assignment>,
    },
    UpdateWhere {
        table: String,
        filter: Filter,
        set: Vec<Assignment>,
    },
    Delete {
        table: String,
        key: Cells,
    },
    DeleteWhere {
        table: String,
        filter: Filter,
    },
}

#[derive(Clone, PartialEq, Debug)]
pub struct Assignment {
    pub column: String,
    pub to: To,
}

#[derive(Clone, PartialEq, Debug)]
pub enum To {
    Value(Value),
    /// More than what is there.
    Add(Value),
}

fn cells(asked: Vec<proto::Cell>) -> Cells {
    let cell = |cell: proto::Cell| (cell.column, cell.value.map_or(Value::Null, Value::from));
    asked.into_iter().map(cell).collect()
}

fn told(cells: Cells) -> Vec<proto::Cell> {
    let cell = |(column, value): (String, Value)| proto::Cell {
        column,
        value: Some(value.into()),
    };
    cells.into_iter().map(cell).collect()
}

fn at_most<T>(asked: &[T], limit: usize, what: &str) -> Result<(), Refused> {
    match asked.len() <= limit {
        true => Ok(()),
        false => refuse!(
            TooLarge,
            "there are {} {what}; at most {limit} are taken",
            asked.len()
        ),
    }
}

fn incomplete<T>(what: &str) -> Result<T, Refused> {
    refuse!(
        BadRequest,
        "{what} is empty, or of a kind that this release does not know"
    )
}

impl Request {
    /// # Errors
    /// It is not understood, or too large.
    pub fn understand(asked: proto::Request) -> Result<Request, Refused> {
        use request::What;
        Ok(match asked.what {
            Some(What::Transaction(asked)) => Request::Transaction(Transaction::understand(asked)?),
            Some(What::CreateTable(asked)) => Request::CreateTable(asked),
            Some(What::DropTable(asked)) => Request::DropTable(asked.table),
            Some(What::AddColumn(asked)) => {
                Request::AddColumn(asked.table, asked.column.unwrap_or_default())
            }
            Some(What::DropColumn(asked)) => Request::DropColumn(asked.table, asked.column),
            Some(What::CreateIndex(asked)) => {
                Request::CreateIndex(asked.table, asked.index.unwrap_or_default())
            }
            Some(What::DropIndex(asked)) => Request::DropIndex(asked.table, asked.index),
            Some(What::Step(_)) => Request::Step,
            None => return incomplete("the request"),
        })
    }

    /// The payload of an entry that asks for this.
    pub fn payload(self) -> Bytes {
        let asked: proto::Request = self.into();
        let mut payload = BytesMut::with_capacity(1 + asked.encoded_len());
        payload.put_u8(VERSION);
        asked.encode(&mut payload).expect("a buffer grows");
        payload.freeze()
    }

    /// # Errors
    /// It is refused because it makes no sense. Fails if it is of a later release: who cannot do what others do must
    /// not go on.
    pub fn parse(payload: &Bytes) -> Result<Request, Ended> {
        match payload.first() {
            Some(&VERSION) => {}
            None | Some(0) => return refuse!(BadRequest, "the request is empty"),
            Some(_) => return Err(Error::incompatible_software_version.into()),
        }
        match proto::Request::decode(payload.slice(1..)) {
            Ok(asked) => Ok(Request::understand(asked)?),
            Err(error) => refuse!(BadRequest, "the request is damaged: {error}"),
        }
    }
}

impl Transaction {
    fn understand(asked: proto::Transaction) -> Result<Transaction, Refused> {
        at_most(&asked.conditions, limits::CONDITIONS, "conditions")?;
        at_most(&asked.operations, limits::OPERATIONS, "operations")?;
        let conditions = asked.conditions.into_iter();
        let operations = asked.operations.into_iter();
        Ok(Transaction {
            conditions: conditions.map(condition).collect::<Result<_, _>>()?,
            operations: operations.map(operation).collect::<Result<_, _>>()?,
        })
    }
}

fn condition(asked: proto::Condition) -> Result<Condition, Refused> {
    use proto::condition::Expect::{Exists, Matches};
    Ok(Condition {
        table: asked.table,
        key: cells(asked.key),
        expect: match asked.expect {
            Some(Exists(true)) => Expect::Exists,
            Some(Exists(false)) => Expect::Missing,
            Some(Matches(filter)) => Expect::Matches(Filter::understand(Some(filter))?),
            None => return incomplete("a condition"),
        },
    })
}

fn operation(asked: proto::Operation) -> Result<Operation, Refused> {
    use operation::What;
    Ok(match asked.what {
        Some(What::Insert(asked)) => Operation::Insert {
            table: asked.table,
            row: cells(asked.row),
        },
        Some(What::Upsert(asked)) => Operation::Upsert {
            table: asked.table,
            row: cells(asked.row),
        },
        Some(What::Update(asked)) => Operation::Update {
            table: asked.table,
            key: cells(asked.key),
            set: assignments(asked.set)?,
        },
        Some(What::UpdateWhere(asked)) => Operation::UpdateWhere {
            table: asked.table,
            filter: Filter::understand(asked.filter)?,
            set: assignments(asked.set)?,
        },
        Some(What::Delete(asked)) => Operation::Delete {
            table: asked.table,
            key: cells(asked.key),
        },
        Some(What::DeleteWhere(asked)) => Operation::DeleteWhere {
            table: asked.table,
            filter: Filter::understand(asked.filter)?,
        },
        None => return incomplete("an operation"),
    })
}

fn assignments(asked: Vec<proto::Assignment>) -> Result<Vec<Assignment>, Refused> {
    use proto::assignment::To as Asked;
    let understand = |asked: proto::Assignment| {
        let to = match asked.to {
            Some(Asked::Value(value)) => To::Value(value.into()),
            Some(Asked::Add(value)) => To::Add(value.into()),
            None => return incomplete("an assignment"),
        };
        Ok(Assignment {
            column: asked.column,
            to,
        })
    };
    asked.into_iter().map(understand).collect()
}

impl From<Request> for proto::Request {
    fn from(request: Request) -> Self {
        use request::What;
        let what = match request {
            Request::Transaction(asked) => What::Transaction(proto::Transaction {
                conditions: asked.conditions.into_iter().map(Into::into).collect(),
                operations: asked.operations.into_iter().map(Into::into).collect(),
            }),
            Request::CreateTable(table) => What::CreateTable(table),
            Request::DropTable(table) => What::DropTable(proto::DropTable { table }),
            Request::AddColumn(table, column) => What::AddColumn(proto::AddColumn {
                table,
                column: Some(column),
            }),
            Request::DropColumn(table, column) => {
                What::DropColumn(proto::DropColumn { table, column })
            }
            Request::CreateIndex(table, index) => What::CreateIndex(proto::CreateIndex {
                table,
                index: Some(index),
            }),
            Request::DropIndex(table, index) => What::DropIndex(proto::DropIndex { table, index }),
            Request::Step => What::Step(proto::Step {}),
        };
        proto::Request { what: Some(what) }
    }
}

impl From<Condition> for proto::Condition {
    fn from(condition: Condition) -> Self {
        use proto::condition::Expect::{Exists, Matches};
        proto::Condition {
            table: condition.table,
            key: told(condition.key),
            expect: Some(match condition.expect {
                Expect::Exists => Exists(true),
                Expect::Missing => Exists(false),
                Expect::Matches(filter) => Matches(filter.into()),
            }),
        }
    }
}

impl From<Operation> for proto::Operation {
    fn from(operation: Operation) -> Self {
        use operation::What;
        let all = |set: Vec<Assignment>| set.into_iter().map(Into::into).collect();
        let insert = |table, row| proto::Insert {
            table,
            row: told(row),
        };
        let what = match operation {
            Operation::Insert { table, row } => What::Insert(insert(table, row)),
            Operation::Upsert { table, row } => What::Upsert(insert(table, row)),
            Operation::Update { table, key, set } => What::Update(proto::Update {
                table,
                key: told(key),
                set: all(set),
            }),
            Operation::UpdateWhere { table, filter, set } => {
                What::UpdateWhere(proto::UpdateWhere {
                    table,
                    filter: Some(filter.into()),
                    set: all(set),
                })
            }
            Operation::Delete { table, key } => What::Delete(proto::Delete {
                table,
                key: told(key),
            }),
            Operation::DeleteWhere { table, filter } => What::DeleteWhere(proto::DeleteWhere {
                table,
                filter: Some(filter.into()),
            }),
        };
        proto::Operation { what: Some(what) }
    }
}

impl From<Assignment> for proto::Assignment {
    fn from(assignment: Assignment) -> Self {
        use proto::assignment::To as Asked;
        proto::Assignment {
            column: assignment.column,
            to: Some(match assignment.to {
                To::Value(value) => Asked::Value(value.into()),
                To::Add(value) => Asked::Add(value.into()),
            }),
        }
    }
}
