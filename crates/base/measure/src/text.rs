//! Figures and words as text.

/// A whole number with its thousands separated by spaces: `1 234 567`.
pub fn grouped(n: f64) -> String {
    let digits = format!("{:.0}", n.abs());
    let mut out = String::from(if n < 0.0 { "-" } else { "" });
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(' ');
        }
        out.push(digit);
    }
    out
}

/// `text` as it stands in HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_stand_apart() {
        assert_eq!(grouped(1_234_567.4), "1 234 567");
        assert_eq!(grouped(999.0), "999");
    }
}
