//! Makes rows of a backup again.

use super::objects::{MANIFEST, Manifest, Origin, Page, SERVICE, Segment, chained, sum_of};
use super::{Outcome, Place};
use crate::base::stopped_at;
use crate::entry::Entry;
use crate::log::LogPos;
use crate::stack::{Applicator, Failure, Upper};
use crate::store::LocalStore;
use crate::store::copy::Copying;
use plinth_core::{Error, Uid};
use plinth_engine::KeyValueStore;
use plinth_runtime::Boxed;
use plinth_runtime::Pace;
use std::rc::Rc;

/// What to restore.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Plan {
    pub origin: Origin,
    pub manifest: Manifest,
    /// The last entry to apply.
    pub last: LogPos,
}

fn at(from: &dyn Place, name: &str, why: &str) -> String {
    format!("backup {}: {name} {why}", from.name())
}

/// The newest manifest of each session, the newest session first.
async fn manifests(from: &dyn Place, log: Uid) -> Outcome<Vec<Manifest>> {
    let mut names = from.list(MANIFEST).await?;
    names.sort_unstable();
    let mut found: Vec<Manifest> = Vec::new();
    for name in names.iter().rev() {
        let session = name.get(..MANIFEST.len() + 20);
        let is_known = |known: &Manifest| known.name().get(..MANIFEST.len() + 20) == session;
        if session.is_none() || found.iter().any(is_known) {
            continue;
        }
        let object = from.get(name).await?.unwrap_or_default();
        let manifest = Manifest::decode(object, log).map_err(|why| at(from, name, why))?;
        if manifest.name() != *name {
            return Err(at(from, name, "has the content of another one"));
        }
        found.push(manifest);
    }
    Ok(found)
}

/// Finds what there is up to position `to`, or to the end of the newest session.
///
/// # Errors
/// One line: it is no backup, it does not have that position, or the place cannot be read.
pub fn plan(from: &dyn Place, to: Option<LogPos>) -> Boxed<'_, Outcome<Plan>> {
    Box::pin(async move {
        let place = from.name();
        let Some(object) = from.get(SERVICE).await? else {
            return Err(format!(
                "backup {place}: no file {SERVICE:?} is there: it is no backup of a service"
            ));
        };
        let origin = Origin::decode(object).map_err(|why| at(from, SERVICE, why))?;
        let found = manifests(from, origin.log).await?;
        let Some(newest) = found.first() else {
            return Err(format!(
                "backup {place}: there is no manifest: the backup has begun, and nothing can be restored yet"
            ));
        };
        let Some(to) = to else {
            let (manifest, last) = (*newest, newest.range().1);
            return Ok(Plan {
                origin,
                manifest,
                last,
            });
        };
        let has = |manifest: &&Manifest| {
            let (begin, end) = manifest.range();
            (begin..=end).contains(&to)
        };
        match found.iter().find(has) {
            Some(manifest) => Ok(Plan {
                origin,
                manifest: *manifest,
                last: to,
            }),
            None => {
                let ranges = found.iter().rev().map(Manifest::range);
                let ranges = ranges.map(|(begin, end)| format!("{begin} to {end}"));
                Err(format!(
                    "backup {place}: it has positions {}, and position {to} was asked for",
                    ranges.collect::<Vec<_>>().join(", ")
                ))
            }
        }
    })
}

/// Makes an empty engine the store of `owner` with the rows of the copy.
///
/// # Errors
/// One line: what is missing or damaged, or the disk. What was written is marked as incomplete.
pub fn copy_rows<'a>(
    from: &'a dyn Place,
    plan: &'a Plan,
    engine: &'a Rc<dyn KeyValueStore>,
    owner: &'a str,
) -> Boxed<'a, Outcome> {
    Box::pin(async move {
        let Plan {
            origin, manifest, ..
        } = plan;
        let copy = manifest.copy;
        let disk = |error: Error| format!("the local store fails: {error}");
        let mut copying = Copying::new(engine);
        for number in 0..copy.pages {
            let name = copy.page_name(manifest.session, number);
            let Some(object) = from.get(&name).await? else {
                return Err(at(from, &name, "is missing: the backup is cut short"));
            };
            let page = Page::decode(object, origin.log).map_err(|why| at(from, &name, why))?;
            if (page.pos, page.number) != (copy.pos, number) {
                return Err(at(from, &name, "has rows of another place"));
            }
            copying.add(&page.rows).await.map_err(disk)?;
        }
        let done = copying.finish(owner, copy.pos, copy.checksum).await;
        done.map_err(|error| match error {
            Error::checksum_failed => format!(
                "backup {}: its rows at position {} are not those that were copied",
                from.name(),
                copy.pos
            ),
            error => disk(error),
        })
    })
}

/// Applies the entries of a backup to a store, after those that it has, up to the last one of the plan. The manifest's
/// chain is checked if all its segments are read.
///
/// # Errors
/// One line that says what is missing or damaged. What was applied before stays; the store is good at its position.
pub async fn play<A: Applicator>(
    from: &dyn Place,
    plan: &Plan,
    store: &Rc<LocalStore>,
    upper: &Upper<A>,
) -> Outcome {
    let place = from.name();
    let Plan {
        origin,
        manifest,
        last,
    } = plan;
    assert!(store.applied() + 1 >= manifest.first, "it has the copy");
    let (mut next, mut chain) = (manifest.first, 0);
    while next <= *last && next < manifest.next {
        let name = Segment::name(manifest.session, next);
        let Some(object) = from.get(&name).await? else {
            return Err(format!(
                "backup {place}: it is cut short: {name} is missing, and it should go on to position {}",
                manifest.next - 1
            ));
        };
        let sum = sum_of(&object);
        let segment = Segment::decode(object, origin.log).map_err(|why| at(from, &name, why))?;
        if segment.first != next || segment.entries.is_empty() {
            return Err(at(from, &name, "has entries of other positions"));
        }
        (next, chain) = (segment.end(), chained(chain, segment.end(), sum));
        if next > manifest.next || (next == manifest.next && chain != manifest.chain) {
            return Err(format!(
                "backup {place}: its segments are not those of its manifest"
            ));
        }
        apply(segment, *last, store, upper).await?;
    }
    store
        .flush()
        .await
        .map_err(|error| format!("the local store fails: {error}"))
}

async fn apply<A: Applicator>(
    segment: Segment,
    last: LogPos,
    store: &Rc<LocalStore>,
    upper: &Upper<A>,
) -> Outcome {
    let mut pace = Pace::new();
    for (pos, bytes) in (segment.first..=last).zip(segment.entries) {
        if pos <= store.applied() {
            continue;
        }
        let stop = |why: &dyn std::fmt::Display| format!("the entry at position {pos}: {why}");
        let entry = Entry::decode(bytes).map_err(|malformed| stop(&malformed))?;
        let mut tx = store.begin(pos);
        match upper.apply(&mut tx, &entry, pos) {
            Ok(_) | Err(Failure::Refused(_)) => {}
            Err(Failure::Stop(error)) => return Err(stopped_at(pos, error)),
        }
        tx.commit().map_err(|error| stop(&error))?;
        upper.post_apply(&entry, pos);
        pace.rest_if_over().await;
    }
    store
        .flush()
        .await
        .map_err(|error| format!("the local store fails: {error}"))
}
