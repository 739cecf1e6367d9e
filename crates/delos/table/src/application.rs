//! The tables as the application of a stack.

use crate::request::Request;
use crate::{Ended, Refused, alter, transaction, work};
use bytes::Bytes;
use plinth_delos::log::LogPos;
use plinth_delos::stack::{Application, Failure};
use plinth_delos::store::RwTx;

/// See the crate.
pub struct Tables;

/// What a request has led to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Of the entry in the log.
    pub pos: LogPos,
    /// Rows, by each operation of a transaction.
    pub changed: Vec<u64>,
    /// There is something for [`Request::Step`] to do.
    pub is_working: bool,
}

fn execute(tx: &mut RwTx, request: Request) -> Result<Vec<u64>, Ended> {
    match request {
        Request::Transaction(asked) => return transaction::execute(tx, asked),
        Request::CreateTable(table) => alter::create_table(tx, table)?,
        Request::DropTable(table) => alter::drop_table(tx, &table)?,
        Request::AddColumn(table, column) => alter::add_column(tx, &table, column)?,
        Request::DropColumn(table, column) => alter::drop_column(tx, &table, &column)?,
        Request::CreateIndex(table, index) => alter::create_index(tx, &table, index)?,
        Request::DropIndex(table, index) => alter::drop_index(tx, &table, &index)?,
        Request::Step => work::step(tx, work::LARGE)?,
    }
    Ok(Vec::new())
}

impl Application for Tables {
    type Return = Answer;
    type Refusal = Refused;

    fn execute(
        &self,
        tx: &mut RwTx,
        payload: &Bytes,
        pos: LogPos,
    ) -> Result<Answer, Failure<Refused>> {
        let request = Request::parse(payload)?;
        work::step(tx, work::SMALL)?;
        let changed = execute(tx, request)?;
        Ok(Answer {
            pos,
            changed,
            is_working: work::is_left(tx)?,
        })
    }
}
