//! Flags with a number of seconds.

/// Not negative.
pub fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if (0.0..=1e6).contains(&seconds) => Ok(seconds),
        _ => Err("expected a number of seconds".into()),
    }
}

pub fn parse_positive(text: &str) -> Result<f64, String> {
    match parse_seconds(text)? {
        0.0 => Err("expected more than 0 seconds".into()),
        seconds => Ok(seconds),
    }
}
