//! The status document: one JSON object that says what runs where and how far it is.

use crate::controller::Controller;
use plinth_protocol::log::GetLogStatus;
use plinth_protocol::storage::GetStorageStatus;
use plinth_rpc::Interface;
use plinth_runtime::Duration;
use std::fmt::Write;

const ANSWER_LIMIT: Duration = Duration::from_secs(1);

pub(crate) async fn document(controller: &Controller) -> String {
    let info = controller.info.get();
    let workers = controller.context.workers.get();
    let mut json = String::from("{\"cluster\":{");
    write_field(&mut json, "epoch", &info.epoch.to_string());
    json.push(',');
    write_field(
        &mut json,
        "recovery_state",
        &quoted(controller.context.phase.get()),
    );
    json.push(',');
    write_field(
        &mut json,
        "database_available",
        if info.accepting { "true" } else { "false" },
    );
    json.push(',');
    write_field(
        &mut json,
        "controller",
        &quoted(&info.controller.address.to_string()),
    );
    json.push_str(",\"processes\":[");
    let processes: Vec<String> = workers
        .values()
        .map(|worker| {
            format!(
                "{{\"address\":{},\"class\":{},\"zone\":{},\"process_id\":{}}}",
                quoted(&worker.worker.address.to_string()),
                quoted(worker.class.name()),
                quoted(&worker.locality.zone),
                quoted(&worker.locality.process.to_string())
            )
        })
        .collect();
    json.push_str(&processes.join(","));
    json.push_str("],\"logs\":[");
    json.push_str(&logs(controller, &info).await.join(","));
    json.push_str("],\"storage\":[");
    json.push_str(&storage(controller, &workers, &info).await.join(","));
    json.push_str("],");
    let addresses = |roles: &[Interface]| {
        roles
            .iter()
            .map(|r| quoted(&r.address.to_string()))
            .collect::<Vec<_>>()
            .join(",")
    };
    write_field(
        &mut json,
        "commit_proxies",
        &format!("[{}]", addresses(&info.client.commit_proxies)),
    );
    json.push(',');
    write_field(
        &mut json,
        "grv_proxies",
        &format!("[{}]", addresses(&info.client.grv_proxies)),
    );
    json.push(',');
    write_field(
        &mut json,
        "log_generations",
        &info.log_system.generations.len().to_string(),
    );
    json.push_str("}}");
    json
}

async fn logs(
    controller: &Controller,
    info: &plinth_protocol::control::ClusterInfo,
) -> Vec<String> {
    let current = info
        .log_system
        .current()
        .map(|g| g.logs.clone())
        .unwrap_or_default();
    let asked = current.iter().map(|log| async move {
        let call = controller.context.transport.call(&log.endpoint::<GetLogStatus>(), GetLogStatus {});
        let address = quoted(&log.address.to_string());
        match plinth_runtime::timeout(ANSWER_LIMIT, call).await {
            Some(Ok(s)) => format!(
                "{{\"address\":{address},\"epoch\":{},\"version\":{},\"durable_version\":{},\"queue_bytes\":{},\"memory_bytes\":{},\"disk_full\":{}}}",
                s.epoch, s.version, s.durable, s.queue_bytes, s.memory_bytes, s.disk_full
            ),
            _ => format!("{{\"address\":{address},\"unreachable\":true}}"),
        }
    });
    plinth_runtime::join_all(asked).await
}

async fn storage(
    controller: &Controller,
    workers: &std::collections::BTreeMap<
        plinth_core::Uid,
        plinth_protocol::control::RegisterWorker,
    >,
    info: &plinth_protocol::control::ClusterInfo,
) -> Vec<String> {
    let place = |id: plinth_core::Uid| {
        workers
            .values()
            .find(|w| w.storage.iter().any(|(s, _)| *s == id))
    };
    let asked = info.servers.iter().map(|(id, tag)| async move {
        let Some(worker) = place(*id) else {
            return format!("{{\"id\":{},\"tag\":{},\"unreachable\":true}}", quoted(&id.to_string()), tag.0);
        };
        let interface = Interface::new(worker.worker.address, *id);
        let call = controller.context.transport.call(&interface.endpoint::<GetStorageStatus>(), GetStorageStatus {});
        let address = quoted(&interface.address.to_string());
        match plinth_runtime::timeout(ANSWER_LIMIT, call).await {
            Some(Ok(s)) => format!(
                "{{\"address\":{address},\"id\":{},\"tag\":{},\"version\":{},\"durable_version\":{},\"window_bytes\":{},\"disk_bytes\":{},\"watches\":{},\"disk_full\":{}}}",
                quoted(&id.to_string()), s.tag.0, s.version, s.durable, s.window_bytes, s.disk_bytes, s.watches, s.disk_full
            ),
            _ => format!("{{\"address\":{address},\"unreachable\":true}}"),
        }
    });
    plinth_runtime::join_all(asked).await
}

fn write_field(json: &mut String, name: &str, value: &str) {
    write!(json, "\"{name}\":{value}").expect("writing to a string");
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if (c as u32) < 0x20 => {
                write!(out, "\\u{:04x}", c as u32).expect("writing to a string")
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
