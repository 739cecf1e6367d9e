//! Numbers of the whole cluster, from its status: in the words of `plinth status`, and from the process that has the
//! controller, so that there is one of each.

use plinth_protocol::status::GetStatus;
use plinth_rpc::{Interface, Transport};
use plinth_runtime::metric::page::{Page, Samples};
use plinth_runtime::{Duration, metric, now, sleep, timeout};
use serde_json::Value;
use std::cell::RefCell;
use std::convert::Infallible;

/// Between two looks: what is late by so much is no matter for an alert.
const INTERVAL: Duration = Duration::from_secs(5);
/// The same while a person looks at the page.
const LOOKED_AT: Duration = Duration::from_secs(1);
/// Until it is known that somebody looks.
const PAUSE: Duration = Duration::from_millis(250);

metric! {
    AVAILABLE: Gauge = "plinth_available", "1 if `plinth status' says that the database is available";
    TOLERANCE: Gauge = "plinth_fault_tolerance",
        "zones that may fail, whichever they are, without a loss of data or availability";
    REPLICAS_WANTED: Gauge = "plinth_replicas_wanted", "copies of each shard that are configured";
    REPLICAS_LOST: Gauge = "plinth_replicas_lost", "copies that the shard lacks that has the fewest";
    MOVING_BYTES: Gauge = "plinth_moving_bytes", "bytes of shards that are on their way to other servers";
    STORAGE_LAG: Gauge = "plinth_storage_lag_seconds",
        "how far the storage server that is furthest behind is behind the logs";
    MESSAGE: Gauge = "plinth_message", "1 for each kind of message that `plinth status' shows";
    PROCESSES: Gauge = "plinth_processes", "processes that the controller knows";
}

/// The status document, while the controller is here.
#[derive(Default)]
pub struct Whole(RefCell<Option<Value>>);

impl Whole {
    /// Keeps it up to date, for ever. `controller` gives the cluster's, if that is known.
    pub async fn keep(
        &self,
        transport: &Transport,
        page: &Page,
        controller: impl Fn() -> Option<Interface>,
    ) -> Infallible {
        loop {
            let at = controller();
            let is_here = at.is_some_and(|at| transport.address() == Some(at.address));
            let is_looked_at = page.is_looked_at();
            let json = match at.filter(|_| is_here || is_looked_at) {
                Some(controller) => look(transport, controller).await,
                None => None,
            };
            if let Some(json) = json.as_ref().filter(|_| is_looked_at) {
                page.set_status(json);
            }
            let own = json.filter(|_| is_here);
            self.0
                .replace(own.and_then(|json| serde_json::from_str(&json).ok()));
            let (pause, began) = (if is_looked_at { LOOKED_AT } else { INTERVAL }, now());
            while began.elapsed() < pause && is_looked_at == page.is_looked_at() {
                sleep(PAUSE).await;
            }
        }
    }

    pub fn add_to(&self, out: &mut Samples) {
        if let Some(document) = &*self.0.borrow() {
            add(out, &document["cluster"]);
        }
    }
}

async fn look(transport: &Transport, controller: Interface) -> Option<String> {
    let call = transport.call(&controller.endpoint::<GetStatus>(), GetStatus {});
    let reply = timeout(INTERVAL, call).await?.ok()?;
    Some(reply.json)
}

fn add(out: &mut Samples, cluster: &Value) {
    let data = &cluster["data"];
    let is_damaged = data["unreadable"]["ranges"].get(0).is_some();
    let is_whole = data["state"]["name"] != "missing_data" && !is_damaged;
    let available = cluster["database_available"] == true && is_whole;
    out.add(&AVAILABLE, &[], f64::from(u8::from(available)));
    let tolerance = &cluster["fault_tolerance"];
    for of in ["data", "availability"] {
        let name = format!("max_zone_failures_without_losing_{of}");
        if let Some(zones) = tolerance[name].as_f64() {
            out.add(&TOLERANCE, &[("of", of.to_owned())], zones);
        }
    }
    let wanted = cluster["configuration"]["storage_replicas"].as_f64();
    let least = cluster["data"]["state"]["min_replicas_remaining"].as_f64();
    if let (Some(wanted), Some(least)) = (wanted, least) {
        out.add(&REPLICAS_WANTED, &[], wanted);
        out.add(&REPLICAS_LOST, &[], (wanted - least).max(0.0));
    }
    if let Some(bytes) = cluster["data"]["moving_data"]["in_flight_bytes"].as_f64() {
        out.add(&MOVING_BYTES, &[], bytes);
    }
    let servers = cluster["storage_servers"].as_array().into_iter().flatten();
    let lags = servers.filter_map(|server| server["lag_seconds"].as_f64());
    if let Some(most) = lags.reduce(f64::max) {
        out.add(&STORAGE_LAG, &[], most);
    }
    let processes = cluster["processes"].as_object().map_or(0, |all| all.len());
    out.add(&PROCESSES, &[], processes as f64);
    let messages = cluster["messages"].as_array().into_iter().flatten();
    let mut names: Vec<&str> = messages
        .filter_map(|message| message["name"].as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        out.add(&MESSAGE, &[("name", name.to_owned())], 1.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_runtime::metric::page::text;
    use serde_json::json;

    #[test]
    fn a_status_gives_the_numbers_of_the_cluster() {
        let cluster = json!({
            "database_available": true,
            "configuration": {"storage_replicas": 2},
            "data": {"state": {"min_replicas_remaining": 1}, "moving_data": {"in_flight_bytes": 77}},
            "fault_tolerance": {
                "max_zone_failures_without_losing_data": 0,
                "max_zone_failures_without_losing_availability": 0,
            },
            "messages": [{"name": "full_disk"}, {"name": "full_disk"}, {"name": "io_error"}],
            "processes": {"a": {}, "b": {}},
            "storage_servers": [{"lag_seconds": 1.5}, {"unreachable": true}, {"lag_seconds": 0.25}],
        });
        let mut out = Samples::of_process(([10, 0, 0, 1], 1).into());
        add(&mut out, &cluster);
        let page = text(out.into_list());
        for line in [
            r#"plinth_available{process="10.0.0.1:1"} 1"#,
            r#"plinth_fault_tolerance{process="10.0.0.1:1",of="data"} 0"#,
            r#"plinth_message{process="10.0.0.1:1",name="full_disk"} 1"#,
            r#"plinth_moving_bytes{process="10.0.0.1:1"} 77"#,
            r#"plinth_storage_lag_seconds{process="10.0.0.1:1"} 1.5"#,
            r#"plinth_processes{process="10.0.0.1:1"} 2"#,
            r#"plinth_replicas_lost{process="10.0.0.1:1"} 1"#,
        ] {
            assert_eq!(
                page.lines().filter(|found| *found == line).count(),
                1,
                "{page}"
            );
        }
        let mut out = Samples::of_process(([10, 0, 0, 1], 1).into());
        add(&mut out, &json!({}));
        assert!(text(out.into_list()).contains("plinth_available{process=\"10.0.0.1:1\"} 0"));
    }
}
