// Written by the test `generated` from `proto/table.proto`.

use bytes::Bytes;

messages! {
    /// Null if nothing is set. Null is below all others.
    Value {
        is: Option<value::Is> = (oneof = "value::Is", tags = "1, 2, 3, 4, 5, 6"),
    }
    Cell {
        column: String = (string, tag = "1"),
        value: Option<Value> = (message, optional, tag = "2"),
    }
    Column {
        name: String = (string, tag = "1"),
        kind: i32 = (enumeration = "Kind", tag = "2"),
        nullable: bool = (bool, tag = "3"),
        /// what an insert that leaves the column out gets
        default: Option<Value> = (message, optional, tag = "4"),
    }
    Index {
        name: String = (string, tag = "1"),
        columns: Vec<String> = (string, repeated, tag = "2"),
        /// a row with a null in one of the columns is never like another
        unique: bool = (bool, tag = "3"),
        /// Filled in by `Describe`; ignored in requests.
        building: bool = (bool, tag = "4"),
        /// why it cannot be used, if it cannot
        failed: String = (string, tag = "5"),
    }
    Table {
        name: String = (string, tag = "1"),
        columns: Vec<Column> = (message, repeated, tag = "2"),
        /// columns of the primary key, in order
        key: Vec<String> = (string, repeated, tag = "3"),
        indexes: Vec<Index> = (message, repeated, tag = "4"),
    }
    Request {
        what: Option<request::What> = (oneof = "request::What", tags = "1, 2, 3, 4, 5, 6, 7, 8"),
    }
    DropTable {
        table: String = (string, tag = "1"),
    }
    AddColumn {
        table: String = (string, tag = "1"),
        /// with a default, if it is not nullable: the rows that are there get it
        column: Option<Column> = (message, optional, tag = "2"),
    }
    DropColumn {
        table: String = (string, tag = "1"),
        column: String = (string, tag = "2"),
    }
    CreateIndex {
        table: String = (string, tag = "1"),
        index: Option<Index> = (message, optional, tag = "2"),
    }
    DropIndex {
        table: String = (string, tag = "1"),
        index: String = (string, tag = "2"),
    }
    /// Goes on with what is still to be done: an index to fill, rows of dropped tables to remove.
    Step {}
    Transaction {
        conditions: Vec<Condition> = (message, repeated, tag = "1"),
        /// in this order; each sees those before it
        operations: Vec<Operation> = (message, repeated, tag = "2"),
    }
    Condition {
        table: String = (string, tag = "1"),
        key: Vec<Cell> = (message, repeated, tag = "2"),
        expect: Option<condition::Expect> = (oneof = "condition::Expect", tags = "3, 4"),
    }
    Operation {
        what: Option<operation::What> = (oneof = "operation::What", tags = "1, 2, 3, 4, 5, 6"),
    }
    Insert {
        table: String = (string, tag = "1"),
        row: Vec<Cell> = (message, repeated, tag = "2"),
    }
    Assignment {
        column: String = (string, tag = "1"),
        to: Option<assignment::To> = (oneof = "assignment::To", tags = "2, 3"),
    }
    Update {
        table: String = (string, tag = "1"),
        key: Vec<Cell> = (message, repeated, tag = "2"),
        set: Vec<Assignment> = (message, repeated, tag = "3"),
    }
    UpdateWhere {
        table: String = (string, tag = "1"),
        filter: Option<Filter> = (message, optional, tag = "2"),
        set: Vec<Assignment> = (message, repeated, tag = "3"),
    }
    Delete {
        table: String = (string, tag = "1"),
        key: Vec<Cell> = (message, repeated, tag = "2"),
    }
    DeleteWhere {
        table: String = (string, tag = "1"),
        filter: Option<Filter> = (message, optional, tag = "2"),
    }
    Answer {
        /// of the request in the log
        position: u64 = (uint64, tag = "1"),
        /// rows, by each operation of a transaction
        changed: Vec<u64> = (uint64, repeated, tag = "2"),
        /// there is something for `Step` to do
        working: bool = (bool, tag = "3"),
    }
    /// A comparison with a null in the row is false, except for `EQUAL` and `NOT_EQUAL` to null.
    Compare {
        column: String = (string, tag = "1"),
        comparison: i32 = (enumeration = "Comparison", tag = "2"),
        value: Option<Value> = (message, optional, tag = "3"),
    }
    Filters {
        filters: Vec<Filter> = (message, repeated, tag = "1"),
    }
    Filter {
        is: Option<filter::Is> = (oneof = "filter::Is", tags = "1, 2, 3, 4"),
    }
    Order {
        column: String = (string, tag = "1"),
        descending: bool = (bool, tag = "2"),
    }
    Query {
        table: String = (string, tag = "1"),
        /// all of them, if there is none
        columns: Vec<String> = (string, repeated, tag = "2"),
        /// all rows, if it is left out
        filter: Option<Filter> = (message, optional, tag = "3"),
        /// then by the primary key, in the direction of the last of these
        order: Vec<Order> = (message, repeated, tag = "4"),
        /// of rows in this page; 100 if it is 0
        limit: u32 = (uint32, tag = "5"),
        /// from the page before, of the same query
        continuation: Bytes = (bytes = "bytes", tag = "6"),
        /// use this one; `primary` is the primary key
        index: String = (string, tag = "7"),
    }
    Row {
        values: Vec<Value> = (message, repeated, tag = "1"),
    }
    Page {
        columns: Vec<String> = (string, repeated, tag = "1"),
        rows: Vec<Row> = (message, repeated, tag = "2"),
        /// of the next page; empty after the last one
        continuation: Bytes = (bytes = "bytes", tag = "3"),
        /// that was used; `primary` is the primary key
        index: String = (string, tag = "4"),
        /// rows did not come in order, and all that match were looked at
        sorted: bool = (bool, tag = "5"),
        /// rows that were looked at
        scanned: u64 = (uint64, tag = "6"),
        /// of the log, up to which the rows are
        position: u64 = (uint64, tag = "7"),
    }
    Description {
        /// only this one; all, if it is empty
        table: String = (string, tag = "1"),
        /// only those with later names
        after: String = (string, tag = "2"),
    }
    Described {
        tables: Vec<Table> = (message, repeated, tag = "1"),
        /// ask again, after the last name
        more: bool = (bool, tag = "2"),
        position: u64 = (uint64, tag = "3"),
    }
}

choices! {
    value::Is {
        Bool(bool) = (bool, tag = "1"),
        Int(i64) = (sint64, tag = "2"),
        Float(f64) = (double, tag = "3"),
        Text(String) = (string, tag = "4"),
        Bytes(Bytes) = (bytes = "bytes", tag = "5"),
        Timestamp(i64) = (sint64, tag = "6"),
    }
    request::What {
        Transaction(Transaction) = (message, tag = "1"),
        CreateTable(Table) = (message, tag = "2"),
        DropTable(DropTable) = (message, tag = "3"),
        AddColumn(AddColumn) = (message, tag = "4"),
        DropColumn(DropColumn) = (message, tag = "5"),
        CreateIndex(CreateIndex) = (message, tag = "6"),
        DropIndex(DropIndex) = (message, tag = "7"),
        Step(Step) = (message, tag = "8"),
    }
    condition::Expect {
        /// or not, if it is false
        Exists(bool) = (bool, tag = "3"),
        /// exists, and matches
        Matches(Filter) = (message, tag = "4"),
    }
    operation::What {
        Insert(Insert) = (message, tag = "1"),
        Upsert(Insert) = (message, tag = "2"),
        Update(Update) = (message, tag = "3"),
        UpdateWhere(UpdateWhere) = (message, tag = "4"),
        Delete(Delete) = (message, tag = "5"),
        DeleteWhere(DeleteWhere) = (message, tag = "6"),
    }
    assignment::To {
        Value(Value) = (message, tag = "2"),
        /// to what is there
        Add(Value) = (message, tag = "3"),
    }
    filter::Is {
        Compare(Compare) = (message, tag = "1"),
        All(Filters) = (message, tag = "2"),
        Any(Filters) = (message, tag = "3"),
        Not(Box<Filter>) = (message, tag = "4"),
    }
}

enumerations! {
    Kind {
        Unknown = 0,
        Bool = 1,
        /// 64 bits, signed
        Int = 2,
        /// 64 bits; one zero, one NaN, which is above all
        Float = 3,
        /// in the order of its bytes in UTF-8
        Text = 4,
        Bytes = 5,
        /// microseconds since 1970-01-01 00:00 UTC
        Timestamp = 6,
    }
    Comparison {
        None = 0,
        Equal = 1,
        NotEqual = 2,
        Less = 3,
        LessOrEqual = 4,
        Greater = 5,
        GreaterOrEqual = 6,
        /// of texts and bytes
        Prefix = 7,
    }
}
