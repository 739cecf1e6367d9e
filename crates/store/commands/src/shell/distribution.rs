//! The statements `datadistribution` and `maintenance`.

use plinth_client::Database;
use plinth_control::distribution::{self, Part};
use plinth_core::distribution::MAINTENANCE_SECONDS_MAX;
use plinth_core::key::printable;
use plinth_protocol::control::RegisterWorker;
use plinth_runtime::unix_time_ms;
use plinth_terminal::Outcome;
use plinth_terminal::numbers::parse_time;
use plinth_terminal::shell::answer::Answer;

#[derive(Clone, PartialEq, Debug)]
pub enum Distributing {
    Switch(bool),
    Part(Part, bool),
    /// Show the maintenance.
    Maintenance,
    /// Zone and seconds.
    Maintain(String, f64),
    EndMaintenance,
}

/// Returns `None` if the words are not a valid statement.
pub fn parse(name: &str, words: &[Vec<u8>]) -> Result<Option<Distributing>, String> {
    let texts: Vec<_> = words
        .iter()
        .map(|word| String::from_utf8_lossy(word))
        .collect();
    let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
    Ok(Some(match (name, &texts[..]) {
        ("datadistribution", ["on"]) => Distributing::Switch(true),
        ("datadistribution", ["off"]) => Distributing::Switch(false),
        (
            "datadistribution",
            [on @ ("enable" | "disable"), part]
            | [part @ ("rebalance_disk" | "rebalance_read"), on],
        ) => {
            let part = match *part {
                "ssfailure" => Part::Healing,
                "rebalance" => Part::Balance,
                "rebalance_disk" | "rebalance_read" => {
                    return Err(format!(
                        "datadistribution: there is no {part}: only bytes are balanced, and `rebalance' is all of that"
                    ));
                }
                _ => return Ok(None),
            };
            Distributing::Part(part, *on == "enable")
        }
        ("maintenance", []) => Distributing::Maintenance,
        ("maintenance", ["off"]) => Distributing::EndMaintenance,
        ("maintenance", ["on", zone, seconds]) => {
            let seconds =
                parse_time(seconds).map_err(|why| format!("maintenance: {why}, up to a week"))?;
            if seconds <= 0.0 || seconds > MAINTENANCE_SECONDS_MAX {
                return Err(format!(
                    "maintenance: seconds are a number up to {MAINTENANCE_SECONDS_MAX}, which is a week"
                ));
            }
            Distributing::Maintain((*zone).into(), seconds)
        }
        _ => return Ok(None),
    }))
}

/// The words that may follow these of a statement.
pub fn next(name: &str, given: &[&str]) -> &'static [&'static str] {
    match (name, given) {
        ("datadistribution", []) => &["on", "off", "enable", "disable"],
        ("datadistribution", ["enable" | "disable"]) => &["ssfailure", "rebalance"],
        ("maintenance", []) => &["on", "off"],
        _ => &[],
    }
}

impl Distributing {
    pub async fn apply(self, database: &Database, workers: &[RegisterWorker]) -> Outcome<Answer> {
        let text = match self {
            Distributing::Switch(on) => {
                distribution::switch(database, on).await?;
                match on {
                    true => "Data distribution is turned on.".into(),
                    false => "Data distribution is turned off. Shards that are moving arrive; nothing else moves, \
                        heals or is split until `datadistribution on'"
                        .into(),
                }
            }
            Distributing::Part(part, on) => {
                distribution::switch_part(database, part, on).await?;
                let what = match part {
                    Part::Healing => "storage server failures",
                    Part::Balance => "rebalance",
                };
                let how = if on { "enabled" } else { "disabled" };
                format!("Data distribution is {how} for {what}.")
            }
            Distributing::Maintenance => return self::maintenance(database).await,
            Distributing::Maintain(zone, seconds) => {
                distribution::maintain(database, workers, &zone, seconds).await?;
                format!(
                    "Zone {} is under maintenance for {seconds} seconds: its servers are waited for. It ends earlier \
                     if a storage server of another zone fails",
                    printable(zone.as_bytes())
                )
            }
            Distributing::EndMaintenance => {
                distribution::end_maintenance(database).await?;
                "No zone is under maintenance".into()
            }
        };
        Ok(text.into())
    }
}

async fn maintenance(database: &Database) -> Outcome<Answer> {
    let said = distribution::read(database).await?;
    if said.no_healing {
        let text =
            "Data distribution is disabled for failures of storage servers: all are waited for";
        return Ok(Answer::Table(text.into(), Vec::new()));
    }
    let now = unix_time_ms();
    Ok(match said.maintained(now) {
        None => Answer::Table("No ongoing maintenance.".into(), Vec::new()),
        Some(maintenance) => {
            let zone = printable(maintenance.zone.as_bytes());
            let seconds = maintenance.left_ms(now).div_ceil(1000).to_string();
            let text = format!("Maintenance for zone {zone} will continue for {seconds} seconds.");
            Answer::Table(text, vec![vec![zone, seconds]])
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Option<Distributing>, String> {
        let mut words = text.split(' ').map(|word| word.as_bytes().to_vec());
        let name = String::from_utf8(words.next().expect("a name")).expect("text");
        parse(&name, &words.collect::<Vec<_>>())
    }

    #[test]
    fn the_forms_of_the_statements_are_understood_and_others_are_refused() {
        for (text, wanted) in [
            ("datadistribution off", Distributing::Switch(false)),
            (
                "datadistribution disable ssfailure",
                Distributing::Part(Part::Healing, false),
            ),
            (
                "datadistribution enable rebalance",
                Distributing::Part(Part::Balance, true),
            ),
            ("maintenance", Distributing::Maintenance),
            (
                "maintenance on Rack-1 0.5",
                Distributing::Maintain("Rack-1".into(), 0.5),
            ),
            ("maintenance off", Distributing::EndMaintenance),
        ] {
            assert_eq!(parsed(text), Ok(Some(wanted)), "{text}");
        }
        for nonsense in [
            "datadistribution",
            "datadistribution enable all",
            "maintenance on rack",
        ] {
            assert_eq!(parsed(nonsense), Ok(None), "{nonsense}");
        }
        for wrong in ["0", "-1", "NaN", "1e9", "soon"] {
            let refused = parsed(&format!("maintenance on rack {wrong}"));
            assert!(
                refused.is_err_and(|line| line.contains("a week")),
                "{wrong}"
            );
        }
        assert!(parsed("datadistribution disable rebalance_read").is_err());
        assert!(parsed("datadistribution rebalance_disk off").is_err());
    }
}
