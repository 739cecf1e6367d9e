//! From a trace to a story, for any system: which events are told, in which words, and in which order.
//!
//! Events that are steps are told in the order of time. All others belong to a step, and between two steps they are
//! sorted by process, because several processes work at once. So the text is the same for every seed.

use serde_json::Value;
use std::path::Path;

/// Where an event is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Step,
    /// Between the steps between which it happened.
    Here,
    /// Behind the step that begins with these words, whenever it happened.
    With(&'static str),
}

/// Begins of events in words, with the place of each. The longest that fits counts. Others are not told.
pub type Places = &'static [(&'static str, Place)];

pub struct Event(Value);

impl Event {
    /// Number of the process.
    pub fn process(&self) -> u64 {
        let number = self.0["process"].as_u64();
        number.expect("every event names its process")
    }

    pub fn kind(&self) -> String {
        self.text("type")
    }

    pub fn text(&self, field: &str) -> String {
        match &self.0[field] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

/// An event in words.
struct Told {
    process: u64,
    text: String,
    place: Place,
    /// The place among [`Places`].
    rank: usize,
}

/// The events behind `StoryBegins`, one a line. `in_words` says nothing of those that are of no interest.
pub fn tell(
    trace: &[String],
    places: Places,
    in_words: impl Fn(&Event) -> Option<String>,
) -> String {
    let parse = |line: &String| Event(serde_json::from_str(line).expect("an event is JSON"));
    let events = trace.iter().map(parse);
    let story = events.skip_while(|event| event.kind() != "StoryBegins");
    let told = story.filter_map(|event| {
        let text = format!("{} {}", event.kind(), in_words(&event)?);
        let fitting = (0..places.len()).filter(|rank| text.starts_with(places[*rank].0));
        let rank = fitting.max_by_key(|rank| places[*rank].0.len())?;
        Some(Told {
            process: event.process(),
            text: text.trim_end().to_owned(),
            place: places[rank].1,
            rank,
        })
    });
    arrange(&told.collect::<Vec<Told>>())
}

fn arrange(all: &[Told]) -> String {
    let steps: Vec<&Told> = all
        .iter()
        .filter(|told| told.place == Place::Step)
        .collect();
    let mut between: Vec<Vec<&Told>> = vec![Vec::new(); steps.len() + 1];
    let mut now = 0;
    for told in all {
        match told.place {
            Place::Step => now += 1,
            Place::Here => between[now].push(told),
            Place::With(begin) => {
                let found = steps.iter().rposition(|step| step.text.starts_with(begin));
                between[found.map_or(now, |found| found + 1)].push(told);
            }
        }
    }
    let name = |process: u64| match process {
        0 => "client".to_owned(),
        number => format!("m{number}"),
    };
    let mut text = String::new();
    for (i, others) in between.iter_mut().enumerate() {
        if let Some(step) = i.checked_sub(1).map(|i| steps[i]) {
            text += &format!("{:<8}{}\n", name(step.process), step.text);
        }
        others.sort_by_key(|told| (told.process, told.rank, &told.text));
        for told in others {
            text += &format!("    {:<8}{}\n", name(told.process), told.text);
        }
    }
    text
}

/// Compares the story of each seed with the file, or writes it there. The comment at the begin of the file stays.
#[allow(clippy::disallowed_methods)] // files of the source
pub fn check(path: &Path, command: &str, seeds: &[u64], told: impl Fn(u64) -> String) {
    let golden = std::fs::read_to_string(path).unwrap_or_default();
    let comment = golden.lines().take_while(|line| line.starts_with('#'));
    let comment: String = comment.map(|line| format!("{line}\n")).collect();
    let found = format!("{comment}\n{}", told(seeds[0]));
    for seed in seeds {
        let other = format!("{comment}\n{}", told(*seed));
        assert!(
            found == other,
            "seeds {} and {seed} differ:\n{found}\n---\n{other}",
            seeds[0]
        );
    }
    if std::env::var_os("PLINTH_WRITE_GOLDEN").is_some() {
        return std::fs::write(path, found).expect("the file can be written");
    }
    assert!(
        golden == found,
        "the run differs from {}; if the run is right: {command}\n{found}",
        path.display()
    );
}
