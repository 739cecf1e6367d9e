//! Storage servers whose files are damaged: where, and which keys.

use super::workers::Workers;
use plinth_core::Uid;
use plinth_core::key::printable;
use plinth_protocol::control::{DamagedPart, DamagedStorage};
use serde_json::{Value, json};

/// Parts that the message names for each server. The document has all that are told.
const PARTS_NAMED: usize = 4;

/// What is known of the damage of a storage server.
pub fn of(workers: &Workers, id: Uid) -> Option<&DamagedStorage> {
    all(workers).find(|damaged| damaged.id == id)
}

pub fn all(workers: &Workers) -> impl Iterator<Item = &DamagedStorage> {
    workers.values().flat_map(|worker| &worker.damaged)
}

pub fn json(damaged: &DamagedStorage) -> Value {
    let parts = damaged.parts.iter().map(|part| {
        let keys = has_keys(part).then(|| (printable(&part.begin), printable(&part.end)));
        let (begin, end) = keys.unzip();
        json!({"offset": part.offset, "begin": begin, "end": end})
    });
    json!({
        "file": damaged.file,
        "parts": parts.collect::<Vec<_>>(),
        "more_parts": damaged.more,
    })
}

fn has_keys(part: &DamagedPart) -> bool {
    !part.end.is_empty()
}

/// A message about storage servers whose files are damaged, if there are any.
pub fn message(workers: &Workers) -> Option<Value> {
    let damaged = workers.values().flat_map(|worker| {
        let address = worker.worker.address;
        let files = worker.damaged.iter();
        files.map(move |damaged| format!("at {address} {}", line(damaged)))
    });
    let damaged: Vec<String> = damaged.collect();
    (!damaged.is_empty()).then(|| {
        json!({
            "name": "damaged_storage",
            "description": format!(
                "files of storage servers are damaged; what is intact is served, and others get it; keep these \
                 servers running, and see docs/operating.md, Damaged files: {}",
                damaged.join("; ")
            ),
        })
    })
}

/// The file, and what of it is known to be damaged.
pub fn line(damaged: &DamagedStorage) -> String {
    let mut parts: Vec<String> = damaged.parts.iter().take(PARTS_NAMED).map(named).collect();
    let more = damaged.parts.len().saturating_sub(PARTS_NAMED) + damaged.more as usize;
    if more > 0 {
        parts.push(format!("{more} more"));
    }
    match parts.is_empty() {
        true => format!("{}, which cannot be opened", damaged.file),
        false => format!("{}: {}", damaged.file, parts.join(", ")),
    }
}

fn named(part: &DamagedPart) -> String {
    let offset = part.offset;
    match has_keys(part) {
        true => {
            let (begin, end) = (printable(&part.begin), printable(&part.end));
            format!("keys from `{begin}' to before `{end}' (block at byte {offset})")
        }
        false => format!("the block at byte {offset}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;
    use plinth_protocol::control::{DAMAGED_KEY_MAX, ProcessClass};

    #[test]
    fn a_damaged_copy_is_named_with_its_keys_its_file_and_the_bytes() {
        let mut worker = testing::worker(1, ProcessClass::Unset, "a");
        assert_eq!(message(&[(Uid(1), worker.clone())].into()), None);
        let parts = (0..6).map(|i| DamagedPart::new(4096 * i, b"a\x00", &[b'b'; 300]));
        worker.damaged = vec![
            DamagedStorage {
                id: Uid(7),
                file: "/data/storage-7.redb".into(),
                parts: parts.chain([DamagedPart::new(9, b"", b"")]).collect(),
                more: 5,
            },
            DamagedStorage {
                id: Uid(8),
                file: "/data/storage-8".into(),
                parts: vec![],
                more: 0,
            },
        ];
        let address = worker.worker.address;
        let workers: Workers = [(Uid(1), worker)].into();
        let said = message(&workers).expect("some are damaged");
        let said = said["description"].as_str().expect("a text");
        let end = "b".repeat(DAMAGED_KEY_MAX);
        let first = format!(
            "at {address} /data/storage-7.redb: keys from `a\\x00' to before `{end}\\xff' (block at byte 0), keys"
        );
        assert!(said.contains(&first), "{said}");
        assert!(said.contains("(block at byte 12288), 8 more; at"), "{said}");
        assert!(
            said.ends_with("/data/storage-8, which cannot be opened"),
            "{said}"
        );
        let of_it = json(of(&workers, Uid(7)).expect("it is damaged"));
        assert_eq!(
            of_it["parts"][6],
            json!({"offset": 9, "begin": null, "end": null})
        );
        assert_eq!(
            (&of_it["more_parts"], of(&workers, Uid(9))),
            (&json!(5), None)
        );
    }
}
