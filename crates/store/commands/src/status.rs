//! `plinth status`: a [summary](summary()) of the cluster, or the whole document.

pub mod page;
mod summary;

use plinth_protocol::status::GetStatus;
use plinth_runtime::Duration;
use plinth_terminal::Outcome;
use plinth_terminal::connect::{self, ClusterArguments, Connection};
use plinth_terminal::status::{available, unread_data};
use plinth_terminal::wrap;
use serde_json::Value;
pub use summary::{bytes, limit, rate, summary};

/// Pause before a status is asked for again that surprises.
const ASK_AGAIN: Duration = Duration::from_secs(1);

#[derive(clap::Args, Debug)]
#[command(after_help = plinth_terminal::examples(&[
    (
        "plinth status -C data/plinth.cluster",
        "What there is, what is lost, and what to do about it",
    ),
    ("plinth status --json | jq .cluster.qos", "The whole document, for programs"),
]))]
struct Arguments {
    #[command(flatten)]
    cluster: ClusterArguments,
    /// Print the whole status document as JSON
    #[arg(long)]
    json: bool,
}

plinth_terminal::command!(
    "status",
    "Show the state of a cluster",
    Arguments => run
);

fn run(arguments: Arguments) -> Outcome {
    connect::block_on(async {
        let connection = arguments.cluster.open().await?;
        let document = connection.telling(fetch(&connection)).await?;
        if arguments.json {
            println!("{document:#}");
        } else {
            wrap::print(&summary(&document, &connection.path.display().to_string()));
        }
        available(&document)
    })
}

/// Fetches the status document from the controller, and adds the view of this client.
pub async fn fetch(connection: &Connection) -> Outcome<Value> {
    let ask = async || {
        let told = connection.ask_controller(GetStatus {}, "tell its status");
        let document: Result<Value, _> = serde_json::from_str(&told.await?.json);
        document.map_err(|error| format!("the controller's status is not JSON: {error}"))
    };
    let mut document = ask().await?;
    if unread_data(&document).is_some() {
        // A controller that is new has not heard of all servers yet.
        plinth_runtime::sleep(ASK_AGAIN).await;
        document = ask().await?;
    }
    let (transport, coordinators) = (&connection.transport, &connection.coordinators);
    let client =
        plinth_client::status_of_client(transport, coordinators, Some(&document["cluster"]));
    document["client"] = client.await;
    Ok(document)
}
