//! From a trace to a story: which events are told, in which words and in which order.
//!
//! One process drives a story: the controller, or the data distributor. The events that are its steps are told in the
//! order of time. All other events belong to a step. Between two steps they are sorted by process, because several
//! processes work at once.

use serde_json::Value;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Where an event is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A step of the driver.
    Step,
    /// Between the steps between which it happened: the driver waits for it.
    Here,
    /// Behind the step that begins with these words: the driver does not wait for it. If it happened earlier, it is
    /// told earlier.
    After(&'static str),
    /// Behind the step that begins with these words, whenever it happened.
    With(&'static str),
}

/// Begins of events in words, with the place of each. The longest that fits counts. Others are not told.
pub type Places = &'static [(&'static str, Place)];

struct Event {
    fields: Value,
}

impl Event {
    fn parse(line: &str) -> Event {
        let fields = serde_json::from_str(line).expect("an event is JSON");
        Event { fields }
    }

    /// Number of the process.
    fn process(&self) -> u32 {
        let number = self.fields["process"].as_u64();
        number.expect("every event names its process") as u32
    }

    fn text(&self, field: &str) -> String {
        match &self.fields[field] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }

    fn number(&self, field: &str) -> i64 {
        self.fields[field].as_i64().expect("a number")
    }

    fn is(&self, kind: &str) -> bool {
        self.fields["type"] == kind
    }

    fn is_phase(&self, phase: &str) -> bool {
        self.is("RecoveryPhase") && self.fields["phase"] == phase
    }
}

/// An event in words.
struct Told {
    process: String,
    text: String,
    place: Place,
    /// The place among [`Places`].
    rank: usize,
}

/// Tells the story in the trace, one event a line.
pub fn tell(trace: &[String], places: Places) -> String {
    let events: Vec<Event> = trace.iter().map(|line| Event::parse(line)).collect();
    let begin = events.iter().position(|event| event.is("StoryBegins"));
    let begin = begin.expect("every story has a begin");
    let (before, story) = (&events[..begin], &events[begin + 1..]);
    let failed = failed_attempts(story);
    let names = Names::of(before, story, &failed);
    let mut all: Vec<Told> = Vec::new();
    for (i, event) in story.iter().enumerate() {
        let Some(text) = names.in_words(event) else {
            continue;
        };
        let fitting = (0..places.len()).filter(|rank| text.starts_with(places[*rank].0));
        let Some(rank) = fitting.max_by_key(|rank| places[*rank].0.len()) else {
            continue;
        };
        let (process, place) = (names.process(event), places[rank].1);
        // The distributor may repeat the end of a move that its latest look has not seen yet. That changes nothing.
        let last_step = all.iter().rfind(|told| told.place == Place::Step);
        let is_repeated = place == Place::Step && last_step.is_some_and(|last| last.text == text);
        let is_failed = failed.contains(&i) && !matches!(place, Place::With(_));
        if !is_repeated && !is_failed {
            all.push(Told {
                process,
                text,
                place,
                rank,
            });
        }
    }
    arrange(&all)
}

/// The events between the begin of the first attempt of a recovery and that of the last.
fn failed_attempts(story: &[Event]) -> std::ops::Range<usize> {
    let begins = |event: &Event| event.is_phase("reading_coordinated_state");
    match (
        story.iter().position(begins),
        story.iter().rposition(begins),
    ) {
        (Some(first), Some(last)) => first..last,
        _ => 0..0,
    }
}

fn arrange(all: &[Told]) -> String {
    let steps: Vec<&Told> = all
        .iter()
        .filter(|told| told.place == Place::Step)
        .collect();
    let behind = |begin: &str| {
        let found = steps.iter().position(|step| step.text.starts_with(begin));
        found.map_or(steps.len(), |found| found + 1)
    };
    let mut between: Vec<Vec<&Told>> = vec![Vec::new(); steps.len() + 1];
    let mut now = 0;
    for told in all {
        let at = match told.place {
            Place::Step => {
                now += 1;
                continue;
            }
            Place::Here => now,
            Place::After(step) => now.min(behind(step)),
            Place::With(step) => behind(step),
        };
        between[at].push(told);
    }
    let mut text = String::new();
    for (i, others) in between.iter_mut().enumerate() {
        if let Some(Told {
            process,
            text: step,
            ..
        }) = i.checked_sub(1).map(|i| steps[i])
        {
            text += &format!("{process:<8}{step}\n");
        }
        others.sort_by_key(|told| (order(&told.process), told.rank, &told.text));
        for Told {
            process,
            text: event,
            ..
        } in others
        {
            text += &format!("    {process:<8}{event}\n");
        }
    }
    text
}

/// Events of the controller.
const CONTROLLERS: [&str; 4] = ["ElectedController", "RecoveryPhase", "Sealed", "Recovered"];

/// The client comes first, then the machines by number.
fn order(process: &str) -> usize {
    process.trim_start_matches('m').parse().unwrap_or(0)
}

/// Stable names of what a run draws or measures.
struct Names {
    /// By the number of the process.
    processes: BTreeMap<u32, String>,
    /// The process that became the controller in the story: any may.
    elected: Option<u32>,
    ids: BTreeMap<String, String>,
    /// The storage servers, by tag.
    tags: BTreeMap<i64, String>,
    /// The version at which the recovery ended the old epoch.
    recovered_to: Option<i64>,
}

impl Names {
    fn of(before: &[Event], story: &[Event], failed: &std::ops::Range<usize>) -> Names {
        let mut names = Names {
            processes: BTreeMap::from([(0, "client".into())]),
            elected: None,
            ids: BTreeMap::new(),
            tags: BTreeMap::new(),
            recovered_to: None,
        };
        let elected = story.iter().rfind(|event| event.is("ElectedController"));
        names.elected = elected.map(Event::process);
        let first = ["master", "commit_proxy", "grv_proxy", "resolver"];
        for event in before.iter().filter(|event| event.is("RoleBegins")) {
            let place = first.iter().position(|role| event.fields["role"] == *role);
            if let Some(place) = place {
                let name = format!("m{}", 5 + place);
                names.processes.insert(event.process(), name);
            }
        }
        let last = story.iter().enumerate();
        let last = last.filter(|(i, _)| !failed.contains(i)).map(|(_, e)| e);
        let last: Vec<&Event> = last.collect();
        names.name_ids(&before.iter().collect::<Vec<_>>());
        names.name_ids(&last);
        let storage = |event: &&Event| event.is("StorageStarted");
        for event in before.iter().chain(story).filter(storage) {
            if let Some(name) = names.ids.get(&event.text("id")).cloned() {
                names.tags.insert(event.number("tag"), name);
            }
        }
        let sealed = last.iter().rfind(|event| event.is("Sealed"));
        names.recovered_to = sealed.map(|event| event.number("recovered_to"));
        names
    }

    /// Names the ids of roles and controllers: those of one kind in the order of their processes.
    fn name_ids(&mut self, events: &[&Event]) {
        let mut begun: Vec<(String, usize, String)> = Vec::new();
        for event in events {
            let kind = match () {
                () if event.is("RoleBegins") => event.text("role").replace('_', "-"),
                () if event.is("ElectedController") => "controller".into(),
                () => continue,
            };
            let place = order(&self.process(event));
            begun.push((kind, place, event.text("id")));
        }
        begun.sort();
        for (kind, _, id) in begun {
            let begin = format!("{kind}-");
            let known = self.ids.values().filter(|name| name.starts_with(&begin));
            let letter = char::from(b'a' + known.count() as u8);
            self.ids.insert(id, format!("{begin}{letter}"));
        }
    }

    fn process(&self, event: &Event) -> String {
        if self.elected == Some(event.process())
            && CONTROLLERS.contains(&event.text("type").as_str())
        {
            return "elected".into();
        }
        self.machine(event.process())
    }

    fn machine(&self, process: u32) -> String {
        let known = self.processes.get(&process).cloned();
        known.unwrap_or_else(|| format!("m{process}"))
    }

    /// Replaces addresses by machines.
    fn machines(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for number in (1..20).rev() {
            let address = format!("10.0.0.{number}:4500");
            text = text.replace(&address, &self.machine(number));
        }
        text
    }

    /// Replaces the short forms of ids in the list `field` of a step by names, and sorts them.
    fn team(&self, step: &str, field: &str) -> Option<String> {
        let (_, list) = step.split_once(&format!("{field}: ["))?;
        let (list, _) = list.split_once(']')?;
        let named = |short: &str| self.ids.iter().find(|(id, _)| id.starts_with(short));
        let names: Option<Vec<String>> = list
            .split(", ")
            .map(|short| named(short).map(|(_, name)| name.clone()))
            .collect();
        let mut names = names?;
        names.sort();
        Some(names.join(" "))
    }

    /// A step of the data distributor that is a move.
    fn movement(&self, step: &str) -> Option<String> {
        let (_, rest) = step.split_once("range: ")?;
        let (range, _) = rest.split_once(", team")?;
        let (_, why) = rest.split_once("why: ")?;
        let (from, to) = (self.team(step, "team")?, self.team(step, "to")?);
        let why = why.trim_end_matches(" }");
        Some(format!("{range} from {from} to {to}: {why}"))
    }

    /// A version in relation to the end of the old epoch, if the story has one.
    fn version(&self, version: i64) -> Option<&'static str> {
        Some(match version.cmp(&self.recovered_to?) {
            Ordering::Less => "below RV",
            Ordering::Equal => "RV",
            Ordering::Greater => "above RV",
        })
    }

    /// The event without what changes from run to run; `None` if it is about a role of a failed attempt, or of no
    /// interest.
    fn in_words(&self, event: &Event) -> Option<String> {
        let kind = event.text("type");
        let rest = match kind.as_str() {
            // Any role of the epoch may be the first to notice.
            "EpochEnded" | "WorkerStarted" => return Some(kind),
            // A role ends by itself or at the news of the next epoch, whichever is first.
            "RoleFinished" | "RoleOver" => return Some(format!("RoleOver {}", self.id(event)?)),
            "ElectedController" | "ControllerEnded" | "StorageRemoved" => self.id(event)?.into(),
            _ => {
                let words = self.of_a_recovery(event, &kind);
                words.or_else(|| self.of_a_move(event, &kind))?
            }
        };
        Some(format!("{kind} {rest}"))
    }

    fn of_a_recovery(&self, event: &Event, kind: &str) -> Option<String> {
        let text = |field: &str| self.machines(&event.text(field));
        Some(match kind {
            "RecoveryPhase" => text("phase"),
            "OperatorKills" | "WorkerGone" => text("address"),
            "LogSealed" => {
                let (epoch, by) = (text("epoch"), text("by"));
                format!("{} of epoch {epoch} by epoch {by}", self.id(event)?)
            }
            "Sealed" => {
                let as_it_must = event.number("known_committed") <= event.number("recovered_to");
                let versions = if as_it_must { "PEV <= RV" } else { "PEV > RV" };
                format!("epoch {}: {versions}", text("epoch"))
            }
            "RoleBegins" => {
                let kind = text("kind");
                let epoch = kind.trim_matches(|c: char| !c.is_ascii_digit());
                format!("{} of epoch {epoch}", self.id(event)?)
            }
            "LogCreated" => {
                let to = self.version(event.number("copied_to"))?;
                format!("{} has the log up to {to}", self.id(event)?)
            }
            "Recovered" => {
                let to = self.version(event.number("recovered_to"))?;
                format!("epoch {} goes on from {to}", text("epoch"))
            }
            "StorageFollows" => format!("{} reads epoch {}", self.id(event)?, text("epoch")),
            "GenerationsRemoved" => text("count"),
            "ClientRead" => text("value"),
            "ClientWrote" => match self.version(event.number("version")) {
                Some(at) => format!("{} at a version {at}", text("value")),
                None => text("value"),
            },
            _ => return None,
        })
    }

    fn of_a_move(&self, event: &Event, kind: &str) -> Option<String> {
        let text = |field: &str| self.machines(&event.text(field));
        Some(match kind {
            "OperatorMovesCoordinators"
            | "CoordinatorsMove"
            | "SuccessorWritten"
            | "StateCopied"
            | "CoordinatorsMoved"
            | "CoordinatorsFollowed" => format!("to {}", text("to")),
            "OperatorExcludes" => text("address"),
            "StorageStarted" | "StorageAdded" => {
                format!("{} with tag {}", self.id(event)?, text("tag"))
            }
            "ConfiguredAnew" => format!("with {} storage servers", text("servers")),
            "DistributionStep" => self.movement(&text("step"))?,
            "MoveStarted" | "MoveReady" | "PartHeld" => text("range"),
            "ShardOrder" => format!("{} {}", text("order"), text("range")),
            "DeadTag" => {
                let owner = self.tags.get(&event.number("tag"))?;
                format!("of {owner} leaves {}", self.id(event)?)
            }
            _ => return None,
        })
    }

    fn id(&self, event: &Event) -> Option<&str> {
        self.ids.get(&event.text("id")).map(String::as_str)
    }
}
