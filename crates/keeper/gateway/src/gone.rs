//! Trees that somebody who is no gateway has changed.
//!
//! A tree's rows lie among the keys of the database's clients, and any of them can clear them. A gateway then must
//! not go on from what it remembers, and nobody must take what is left for a tree. This is how it is noticed:
//!
//! - Each commit relies on the tree's record (commit.rs).
//! - A replica that moves on without a commit of its own reads the record at the version that it moves on to
//!   (pipeline/catch_up.rs). So at each version at which something is written or read, the record was there.
//! - At every third beat a gateway asks whether anybody has written to the tree's rows at all (pipeline/guard.rs).
//! - A tree is opened only with its record, its root and its stream, and made only where nothing is left of one.
//!
//! A gateway that finds its tree gone stops for good: to go on with an empty tree is for an operator to say.

/// What is wrong with a tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gone {
    /// There is no record, but something else of a tree.
    Record,
    /// There was a tree, and nothing is left.
    All,
    /// There is a record, and the root is missing.
    Root,
    /// There are rows, and the stream was dropped.
    Stream,
    /// The tree has another record than before.
    Other,
    /// The record, or a node, is of a version that the database has not reached.
    Foreign,
}

impl Gone {
    /// The line for the operator.
    pub fn line(self, tree: &str) -> String {
        let what = match self {
            Gone::Record => {
                "is gone: somebody who is no gateway has removed its record, and other parts of it are left"
            }
            Gone::All => "is gone: somebody who is no gateway has removed it",
            Gone::Root => {
                "is gone: somebody who is no gateway has removed rows, the root node among them"
            }
            Gone::Stream => "cannot be opened: somebody has dropped its stream of changes",
            Gone::Other => "is gone: another tree stands in its place",
            Gone::Foreign => {
                "cannot be opened: its rows are damaged, or were copied from another cluster, and new zxids would be \
                 below theirs"
            }
        };
        format!(
            "tree `{tree}' {what}; `plinth keeper status --tree {tree}' shows what is left and what to do"
        )
    }
}
