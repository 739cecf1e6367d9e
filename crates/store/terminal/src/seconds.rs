//! Flags with a time: a number of seconds, or one with a unit.

use crate::numbers::parse_time;

/// Not negative.
pub fn parse_seconds(text: &str) -> Result<f64, String> {
    in_bounds(text, 0.0, 1e6)
}

pub fn parse_positive(text: &str) -> Result<f64, String> {
    match parse_seconds(text)? {
        0.0 => Err("expected more than 0 seconds".into()),
        seconds => Ok(seconds),
    }
}

/// A time between these, in seconds.
pub fn in_bounds(text: &str, least: f64, most: f64) -> Result<f64, String> {
    let seconds = parse_time(text)?;
    match (least..=most).contains(&seconds) {
        true => Ok(seconds),
        false => Err(format!("expected seconds in {least}..={most}, not {text}")),
    }
}

/// So many seconds for people, to the two largest units.
pub fn spanned(seconds: u64) -> String {
    const UNITS: [(&str, u64); 4] = [("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)];
    let (mut rest, mut parts) = (seconds, Vec::new());
    for (unit, length) in UNITS {
        let count = rest / length;
        rest %= length;
        if count > 0 || !parts.is_empty() {
            parts.push(format!("{count} {unit}"));
        }
    }
    parts.truncate(2);
    match parts.is_empty() {
        true => "0 s".into(),
        false => parts.join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_to_its_two_largest_units() {
        for (seconds, told) in [
            (0, "0 s"),
            (61, "1 min 1 s"),
            (43_200, "12 h 0 min"),
            (90_061, "1 d 1 h"),
        ] {
            assert_eq!(spanned(seconds), told);
        }
    }

    #[test]
    fn a_time_out_of_bounds_is_told_which_there_are() {
        assert_eq!(parse_positive("2m"), Ok(120.0));
        assert!(parse_positive("0").is_err());
        assert_eq!(
            parse_seconds("-1"),
            Err("expected seconds in 0..=1000000, not -1".into())
        );
        assert!(
            parse_seconds("abc")
                .expect_err("no time")
                .contains("such as 90s")
        );
    }
}
