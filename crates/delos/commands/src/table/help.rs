//! What `help` says of the statements about tables.

use plinth_terminal::Outcome;
use plinth_terminal::shell::help::{Help, page};

#[rustfmt::skip]
pub const HELP: Help = Help {
    groups: &[
        ("Reading", &[
            page("select", "*|COLUMN, ... from TABLE [where FILTER] [order by COLUMN [desc], ...] [limit N] \
                [using INDEX]",
                "show rows; without a limit, up to 1000; using says which index to go by",
                "select name, born from people where born < 1900 order by name limit 10"),
        ]),
        ("Writing", &[
            page("insert", "into TABLE (COLUMN, ...) values (VALUE, ...), ...",
                "add rows; one whose key is there is refused", "insert into people (id, name) values (1, 'Ada')"),
            page("upsert", "into TABLE (COLUMN, ...) values (VALUE, ...), ...",
                "add rows, in place of those with the same keys", "upsert into people (id, name) values (1, 'Ada')"),
            page("update", "TABLE set COLUMN = VALUE, COLUMN = COLUMN + N where FILTER|all",
                "change rows, or all of them; a number may be added to what a column has",
                "update people set born = 1815 where id = 1"),
            page("delete", "from TABLE where FILTER|all", "remove rows, or all of them",
                "delete from people where born is null"),
        ]),
        ("Transactions", &[
            page("begin", "",
                "start a transaction, which the statements up to commit or rollback belong to; it only changes rows",
                "begin; delete from a where id = 1; delete from b where id = 1; commit"),
            page("require", "[missing] TABLE (COLUMN = VALUE, ...) [where FILTER]",
                "let the transaction commit only if the row with this key is there and passes the filter, or with \
                missing is not there",
                "begin; require people (id = 1); delete from b where id = 1; commit"),
            page("commit", "", "commit the transaction", "begin; delete from people where id = 1; commit"),
            page("rollback", "", "end the transaction without a commit",
                "begin; delete from people where id = 1; rollback"),
        ]),
        ("Schemas", &[
            page("create table", "TABLE (COLUMN KIND [null] [default VALUE], ..., primary key (COLUMN, ...), \
                [unique] index INDEX (COLUMN, ...), ...)",
                "make a table; kinds are bool, int, float, text, bytes, timestamp",
                "create table people (id int, name text, primary key (id))"),
            page("drop table", "TABLE", "remove a table with its rows", "drop table people"),
            page("alter table", "TABLE add column COLUMN KIND [null] [default VALUE] | TABLE drop column COLUMN",
                "add or remove a column", "alter table people add column email text null"),
            page("create index", "INDEX on TABLE (COLUMN, ...)",
                "make an index, or with create unique index one that no two rows may have the same values in; it can \
                be used when the statement ends",
                "create index by_born on people (born, name)"),
            page("drop index", "INDEX on TABLE", "remove an index", "drop index by_born on people"),
            page("tables", "", "show the schemas of all tables", "tables"),
            page("describe", "TABLE", "show the schema of a table", "describe people"),
        ]),
        ("The shell", &[
            page("help", "[STATEMENT|filters|values]", "explain a statement, filters or values", "help create table"),
            page("exit", "", "leave; quit does so, too", "exit"),
        ]),
    ],
    topics: &[
        ("filters", "what stands behind `where'"),
        ("values", "how values and names are written"),
        ("lines", "where a statement of several lines ends"),
    ],
};

const FILTERS: &str = "\
A filter compares columns with values:

  A = 1, !=, <, <=, >, >=     false if the row has null there
  A is null, A is not null
  A in (1, 2)                 one of these values
  A starts with 'x'           the value begins so
  not, and, or, (...)         filters of filters";

const VALUES: &str = "\
null, true, false           for any column that may be null, and for bool
12, -1.5, nan, infinity     int, float
'text'                      text; a quote in it is written twice
x'00ff'                     bytes, by hexadecimal digits
timestamp '2026-01-31 12:00:00.5'

Words are in any case. In double quotes stand names, not texts: of tables and
columns with other characters than letters, digits and `_'.";

const LINES: &str = "\
A statement may take up several lines. It ends with a `;' at the end of a line,
or before an empty line:

  select *
  from accounts
  where owner = 'ann';

A line that is a statement itself needs no `;'. It is one, unless the line
behind it is there already, as in a file or a paste, and only goes on:
`and ...'. Ctrl-C gives up what was begun. Lines that begin with `#' are
comments.";

/// What there is to say about a statement, or about something else; about all, if nothing is named.
///
/// # Errors
/// There is nothing to say about it.
pub fn help(of: &str) -> Outcome<String> {
    let of = match of {
        "create unique index" => "create index",
        of => of,
    };
    match of {
        "" => return Ok(HELP.screen()),
        "filters" | "where" => return Ok(FILTERS.into()),
        "values" => return Ok(VALUES.into()),
        "lines" => return Ok(LINES.into()),
        _ => {}
    }
    // `help create` is about all that is created.
    let is_asked = |name: &&str| *name == of || name.split(' ').next() == Some(of);
    let names = HELP.names().filter(is_asked);
    let pages: Vec<String> = names.filter_map(|name| HELP.page(name)).collect();
    match pages.is_empty() {
        true => Err(HELP.unexplained(of)),
        false => Ok(pages.join("\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_table::language::{Statement, parse};
    use plinth_terminal::shell::help::check;

    #[test]
    fn every_statement_is_in_a_group_on_one_screen_and_has_a_page_and_an_example() {
        check(&HELP, help);
        for subject in HELP.subjects() {
            let asked = parse(&format!("help {subject}")).expect("parses");
            let [Statement::Help(of)] = &asked[..] else {
                panic!("{asked:?}");
            };
            assert_eq!(of, subject);
        }
        for page in HELP.pages() {
            let found = parse(page.example);
            assert!(found.is_ok(), "{}: {found:?}", page.example);
        }
    }

    #[test]
    fn a_word_that_is_no_statement_is_answered_with_the_one_that_is_most_like_it() {
        let both = help("create").expect("two statements");
        assert!(both.contains("create table TABLE") && both.contains("create index INDEX"));
        assert_eq!(help("where"), help("filters"));
        let line = help("slect").expect_err("there is none");
        assert_eq!(
            line,
            "there is no help about `slect'; did you mean `select'?"
        );
    }
}
