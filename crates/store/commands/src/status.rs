//! `plinth status`: a [summary](summary()) of the cluster, or the whole document.

pub mod page;
mod summary;

use plinth_protocol::status::GetStatus;
use plinth_rpc::Place;
use plinth_runtime::Duration;
use plinth_terminal::Outcome;
use plinth_terminal::connect::{self, ClusterArguments, Connection};
use plinth_terminal::status::{ERROR, available, unread_data, with_verdict};
use plinth_terminal::wrap;
use serde_json::{Value, json};
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
        if arguments.json {
            let document = connection.telling(fetch_or_known(&connection)).await;
            println!("{:#}", with_verdict(document.clone()));
            return available(&document);
        }
        let document = connection.telling(fetch(&connection)).await?;
        let path = connection.path.display().to_string();
        wrap::print(&summary(&document, &path));
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

/// The same for programs: if no controller tells its report, what this client knows, with the reason.
pub async fn fetch_or_known(connection: &Connection) -> Value {
    match fetch(connection).await {
        Ok(document) => document,
        Err(line) => known(connection, line).await,
    }
}

/// What is known without a controller: the coordinators of the cluster file, which of them answer, why there is no
/// more, and what to do.
async fn known(connection: &Connection, line: String) -> Value {
    let (transport, coordinators) = (&connection.transport, &connection.coordinators);
    let client = plinth_client::status_of_client(transport, coordinators, None).await;
    let (file, listed) = (coordinators.file(), &client["coordinators"]["coordinators"]);
    let is_away =
        |(place, of): &(&Place, &Value)| of["reachable"] == false && !transport.is_denied(place);
    let listed = listed.as_array().into_iter().flatten();
    let away: Vec<String> = (file.coordinators.iter().zip(listed))
        .filter(is_away)
        .map(|(place, _)| place.to_string())
        .collect();
    let (all, majority) = (file.coordinators.len(), file.majority());
    let advice = (all - away.len() < majority).then(|| {
        format!(
            "start the servers at {}: of {all} coordinators {majority} must answer",
            away.join(", ")
        )
    });
    json!({
        "client": client, "cluster": {"database_available": false, "layers": {"_valid": false}}, ERROR: line,
        "advice": advice.as_slice(),
    })
}
