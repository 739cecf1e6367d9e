//! Figures of several rounds: the median, the least and the most, of a server and as a multiple of another server's in
//! the same rounds.

use plinth_measure::latency::round;
use plinth_measure::samples::median;
use serde_json::{Map, Value, json};

/// Figures that every round has, and where they stand in its object.
pub const FIGURES: [(&str, &str); 11] = [
    ("operations_per_second", "/operations_per_second"),
    ("p50_ms", "/latency_ms/p50"),
    ("mean_ms", "/latency_ms/mean"),
    ("p99_ms", "/latency_ms/p99"),
    ("max_ms", "/latency_ms/max"),
    (
        "operations_per_server_cpu_s",
        "/operations_per_server_cpu_s",
    ),
    (
        "operations_per_server_cpu_s_whole",
        "/operations_per_server_cpu_s_whole",
    ),
    ("server_memory_bytes", "/server_memory_bytes"),
    ("server_memory_peak_bytes", "/server_memory_peak_bytes"),
    ("disk_bytes", "/disk_bytes"),
    ("load_us_per_operation", "/load_us_per_operation"),
];

#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spread {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Spread {
    /// `None` if there is no round.
    pub fn of(figures: Vec<f64>) -> Option<Spread> {
        Some(Spread {
            least: figures.iter().copied().reduce(f64::min)?,
            most: figures.iter().copied().reduce(f64::max)?,
            median: median(figures)?,
        })
    }

    fn to_json(self) -> Value {
        json!({
            "median": round(self.median, 4),
            "least": round(self.least, 4),
            "most": round(self.most, 4),
        })
    }

    /// One that [`figures`] or [`times`] has written.
    pub fn read(figures: &Value, name: &str) -> Option<Spread> {
        let of = |field: &str| figures[name][field].as_f64();
        Some(Spread {
            median: of("median")?,
            least: of("least")?,
            most: of("most")?,
        })
    }
}

pub fn rounds(object: &Value) -> impl Iterator<Item = &Value> {
    object["rounds"].as_array().into_iter().flatten()
}

fn figure(round: &Value, place: &str) -> Option<f64> {
    round.pointer(place).and_then(Value::as_f64)
}

fn all(spread: impl Fn(&str) -> Option<Spread>) -> Value {
    let known = FIGURES
        .iter()
        .filter_map(|(name, place)| Some(((*name).to_owned(), spread(place)?.to_json())));
    Value::Object(known.collect::<Map<_, _>>())
}

/// Of the rounds of an object.
pub fn figures(object: &Value) -> Value {
    all(|place| {
        Spread::of(
            rounds(object)
                .filter_map(|round| figure(round, place))
                .collect(),
        )
    })
}

/// The figures of an object's rounds divided by those of the other's rounds, each by that of its turn.
pub fn times(object: &Value, other: &Value) -> Value {
    all(|place| {
        let pairs = rounds(object).zip(rounds(other));
        let ratio = |(own, others): (&Value, &Value)| {
            let others = figure(others, place).filter(|figure| *figure > 0.0)?;
            Some(figure(own, place)? / others)
        };
        Spread::of(pairs.filter_map(ratio).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(rates: &[f64]) -> Value {
        let round = |rate: &f64| json!({"operations_per_second": rate, "latency_ms": {"p99": 1.0}});
        json!({ "rounds": rates.iter().map(round).collect::<Vec<_>>() })
    }

    #[test]
    fn rounds_are_divided_by_those_of_their_turn() {
        let (own, others) = (object(&[10.0, 30.0, 80.0]), object(&[10.0, 10.0, 20.0]));
        let of = |figures: &Value| Spread::read(figures, "operations_per_second");
        let spread = |median, least, most| {
            Some(Spread {
                median,
                least,
                most,
            })
        };
        assert_eq!(of(&figures(&own)), spread(30.0, 10.0, 80.0));
        assert_eq!(of(&times(&own, &others)), spread(3.0, 1.0, 4.0));
        assert_eq!(Spread::read(&figures(&own), "server_memory_bytes"), None);
        assert_eq!(of(&times(&own, &object(&[0.0, 0.0, 0.0]))), None);
    }
}
