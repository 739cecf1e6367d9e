//! Trees that gateways serve, for commands that write keys of the database.

use plinth_client::Database;
use plinth_keeper::left;
use plinth_keeper::tree::rows::Rows;
use plinth_runtime::Boxed;
use plinth_terminal::served::Served;

plinth_terminal::served!(look);

fn look(database: &Database) -> Boxed<'_, plinth_core::Result<Vec<Served>>> {
    Box::pin(async move {
        let mut served = Vec::new();
        for tree in left::trees(database).await? {
            let at = left::serving(database, &tree).await?;
            if !at.is_empty() {
                served.push(Served {
                    range: Rows::new(&tree).all(),
                    what: format!("tree `{tree}' of the keeper"),
                    at,
                });
            }
        }
        Ok(served)
    })
}
