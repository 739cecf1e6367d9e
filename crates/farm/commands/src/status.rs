//! `plinth farm status`.

use super::ClusterArgument;
use super::keeping::Backups;
use plinth_coordination::{ClusterFile, Look};
use plinth_farm_member::Cluster;
use plinth_farm_server::{MachineStatus, Seen, Survey, caller, survey};
use plinth_rpc::Transport;
use plinth_runtime::Duration;
use plinth_terminal::Outcome;
use plinth_terminal::connect::telling;
use plinth_terminal::numbers::seconds_within;
use plinth_terminal::pages::body::Body;
use plinth_terminal::pages::view::{Head, show_rows, texts};
use plinth_terminal::wording::counted;
use plinth_terminal::wrap::{folded, room};
use serde_json::{Value, json};

/// How long the coordinators are waited for before the page says that they do not answer.
const PAGE_LIMIT: Duration = Duration::from_secs(2);

#[derive(clap::Args, Debug)]
pub struct Arguments {
    #[command(flatten)]
    cluster: ClusterArgument,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Seconds to wait for the coordinators
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = seconds_within(1..=86_400))]
    timeout: u64,
}

pub async fn run(arguments: &Arguments) -> Outcome {
    let file = arguments.cluster.load_for_tool().await?;
    let limit = Duration::from_secs(arguments.timeout);
    let caller = caller(&file);
    let why = async { Some("not all answer".into()) };
    let seen = telling(survey(&caller, &file, limit), arguments.timeout, why).await;
    match arguments.json {
        true => println!("{:#}", as_json(&seen)),
        false => println!("{}", folded(&text(&seen), room().unwrap_or(usize::MAX))),
    }
    match seen.serves() {
        true => Ok(()),
        false => Err("the cluster does not serve".into()),
    }
}

fn us(ns: Option<u64>) -> Option<f64> {
    ns.map(|ns| ns as f64 / 1000.0)
}

fn mib(bytes: u64) -> u64 {
    bytes >> 20
}

fn number_of(seen: &Survey) -> u64 {
    seen.record.as_ref().map_or(0, |record| record.number())
}

fn line(survey: &Survey, seen: &Seen) -> String {
    let at = match (seen.address, seen.seat.place.socket) {
        (Some(at), _) => at.to_string(),
        (None, Some(socket)) => format!("{} (a shell)", socket.ip()),
        (None, None) => "a shell".into(),
    };
    let master = survey.record.as_ref().and_then(|record| record.master());
    let part = match () {
        () if !seen.is_member => "waits",
        () if master.is_some_and(|master| master.id == seen.seat.id) => "master",
        () => "member",
    };
    let said = match (&seen.status, seen.address) {
        (Some(status), _) => described(status),
        (None, Some(_)) => "does not answer".into(),
        (None, None) => "has no data".into(),
    };
    format!("  {:>4}  {at:<22} {part:<7} {said}", seen.seat.machine)
}

/// What the page of a machine shows, as [`show`] takes it.
pub async fn for_page(transport: &Transport, file: &ClusterFile) -> String {
    let seen = survey(transport, file, PAGE_LIMIT).await;
    let mut document = as_json(&seen);
    document["text"] = text(&seen).into();
    document.to_string()
}

/// Shows what [`for_page`] gives.
pub fn show(document: &Value, out: &mut Body) -> Head {
    let missing = texts(&document["missing"]);
    out.within("messages", |out| out.list(&missing));
    out.heading("Machines");
    show_rows(
        out,
        &document["machines"],
        &[
            ("machine", "machine"),
            ("address", "address"),
            ("member", "is_member"),
            ("master", "is_master"),
            ("answers", "answers"),
            ("waits for", "waits_for"),
            // Who has no lease may not use the time.
            ("lease: time within, us", "clock_uncertainty_us"),
            ("configuration", "configuration"),
        ],
    );
    out.heading("Regions");
    show_rows(
        out,
        &document["machines"],
        &[
            ("machine", "machine"),
            ("primary of", "primaries"),
            ("backup of", "backups"),
            ("not whole", "not_whole"),
            ("bytes of regions", "region_bytes"),
            ("of these free", "region_free_bytes"),
            ("committed", "committed"),
            ("aborted", "aborted"),
            ("disk full", "is_disk_full"),
        ],
    );
    out.heading("Coordinators");
    show_rows(
        out,
        &document["coordinators"],
        &[("address", "address"), ("state", "state")],
    );
    out.heading("plinth farm status");
    out.plain(document["text"].as_str().unwrap_or_default());
    let is_good = document["serves"] == true;
    let serves = if is_good { "serves" } else { "does not serve" };
    let lacks = match &missing[..] {
        [] => "nothing is missing.".to_owned(),
        [first] => format!("missing: {first}."),
        [first, rest @ ..] => format!("missing: {first}; and {} more.", rest.len()),
    };
    Head {
        is_good,
        line: format!("The cluster {serves}; {lacks}"),
    }
}

/// A time of so many microseconds.
fn in_unit(us: f64) -> String {
    match us {
        _ if us < 1e3 => format!("{us:.1} us"),
        _ if us < 1e6 => format!("{:.1} ms", us / 1e3),
        _ => format!("{:.1} s", us / 1e6),
    }
}

fn described(status: &MachineStatus) -> String {
    let known = |ns, shown: fn(String) -> String| {
        us(ns).map_or_else(|| "not known".into(), |us| shown(in_unit(us)))
    };
    format!(
        "primary of {}{}, backup of {}, not whole {}; clock {}; {} committed, {} aborted; regions use {} of {} MiB; \
         old versions {} of {} blocks; safe point {}",
        status.primaries,
        if status.is_loading {
            " (still loading)"
        } else {
            ""
        },
        status.backups,
        status.lacking,
        known(status.uncertainty_ns, |time| format!("within {time}")),
        status.committed,
        status.aborted,
        mib(status.region_bytes.saturating_sub(status.free_bytes)),
        mib(status.region_bytes),
        status.old_blocks.saturating_sub(status.old_blocks_free),
        status.old_blocks,
        known(status.safe_point_age_ns, |time| format!("{time} behind")),
    )
}

/// What is on disks.
fn kept(cluster: &Cluster) -> &'static str {
    match (cluster.is_durable, cluster.has_backups_on_disk) {
        (false, _) => "in memory only",
        (true, false) => "durable",
        (true, true) => "durable, with backups on disk only",
    }
}

pub fn text(survey: &Survey) -> String {
    let mut lines = vec![match &survey.record {
        Some(record) => format!(
            "cluster {}: configuration {}, {} of {} MiB, {} each, {}",
            survey.file.key(),
            number_of(survey),
            counted(record.cluster.regions, "region", "regions"),
            mib(record.cluster.region_bytes),
            counted(record.cluster.replication, "replica", "replicas"),
            kept(&record.cluster)
        ),
        None => format!("cluster {}", survey.file.key()),
    }];
    lines.push("coordinators".into());
    let looks = survey.coordinators.iter();
    lines.extend(looks.map(|(at, look)| format!("  {at:<22} {look}")));
    if !survey.machines.is_empty() {
        lines.push("machines".into());
    }
    lines.extend(survey.machines.iter().map(|seen| line(survey, seen)));
    let others = survey.others.iter();
    lines.extend(others.map(|(at, status)| match &status.waits_for[..] {
        "" => format!("  process at {at} says that it is a member"),
        what => format!("  process at {at} waits for {what}"),
    }));
    let missing = survey.missing();
    lines.push(match missing.is_empty() {
        true => "nothing is missing".into(),
        false => "missing".into(),
    });
    lines.extend(missing.iter().map(|line| format!("  {line}")));
    lines.join("\n")
}

fn machine_json(survey: &Survey, seen: &Seen) -> Value {
    let master = survey.record.as_ref().and_then(|record| record.master());
    let status = seen.status.as_ref();
    json!({
        "machine": seen.seat.machine,
        "address": seen.address.map(|at| at.to_string()),
        "is_member": seen.is_member,
        "is_master": master.is_some_and(|master| master.id == seen.seat.id),
        "has_data": seen.seat.slots > 0,
        "answers": status.is_some(),
        "waits_for": status.map(|of| of.waits_for.clone()),
        "configuration": status.map(|of| of.number),
        "clock_uncertainty_us": us(status.and_then(|of| of.uncertainty_ns)),
        "primaries": status.map(|of| of.primaries),
        "backups": status.map(|of| of.backups),
        "not_whole": status.map(|of| of.lacking),
        "committed": status.map(|of| of.committed),
        "aborted": status.map(|of| of.aborted),
        "memory_bytes": status.map(|of| of.memory_bytes),
        "region_bytes": status.map(|of| of.region_bytes),
        "region_free_bytes": status.map(|of| of.free_bytes),
        "old_blocks": status.map(|of| of.old_blocks),
        "old_blocks_free": status.map(|of| of.old_blocks_free),
        "is_disk_full": status.map(|of| of.is_disk_full),
        "is_loading": status.map(|of| of.is_loading),
        "safe_point_age_us": us(status.and_then(|of| of.safe_point_age_ns)),
    })
}

pub fn as_json(survey: &Survey) -> Value {
    let coordinators = survey.coordinators.iter().map(|(at, look)| {
        json!({
            "address": at.to_string(),
            "answers": matches!(look, Look::Answers { .. }),
            "state": look.to_string(),
        })
    });
    let machines = survey.machines.iter();
    let record = survey.record.as_ref();
    json!({
        "cluster": survey.file.key(),
        "serves": survey.serves(),
        "missing": survey.missing(),
        "configuration": number_of(survey),
        "regions": record.map(|record| record.cluster.regions),
        "replication": record.map(|record| record.cluster.replication),
        "durable": record.map(|record| record.cluster.is_durable),
        "backups": record.map(|record| Backups::of(record.cluster.has_backups_on_disk).name()),
        "coordinators": coordinators.collect::<Vec<_>>(),
        "machines": machines.map(|seen| machine_json(survey, seen)).collect::<Vec<_>>(),
        "processes_without_a_cluster": survey.others.iter().map(|(at, status)| {
            json!({ "address": at.to_string(), "waits_for": status.waits_for })
        }).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_what_is_missing_and_who_has_what() {
        let mut document = json!({
            "serves": true, "missing": [], "text": "nothing is missing",
            "machines": [{"machine": 3, "address": "10.0.0.1:1", "is_master": true, "primaries": 7}],
        });
        let mut out = Body::default();
        let head = show(&document, &mut out);
        assert_eq!(head.line, "The cluster serves; nothing is missing.");
        assert!(head.is_good && out.html().contains("<td>3</td><td>7</td>"));
        document["serves"] = false.into();
        document["missing"] = json!(["machine 3 at <b> does not answer", "a disk is full"]);
        let mut out = Body::default();
        let head = show(&document, &mut out);
        let line =
            "The cluster does not serve; missing: machine 3 at <b> does not answer; and 1 more.";
        assert_eq!((head.is_good, &*head.line), (false, line));
        assert!(
            out.html()
                .contains("machine 3 at &lt;b&gt; does not answer")
        );
    }
}
