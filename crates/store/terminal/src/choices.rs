//! Names of which a flag takes one.

/// What a flag's parser says of a name that it does not take.
pub fn none_such(name: &str, known: impl IntoIterator<Item: AsRef<str>>) -> String {
    let line = unknown("", name, known);
    line.strip_prefix(": ").unwrap_or(&line).to_owned()
}

/// The line about a name that `flag` does not take.
pub fn unknown(flag: &str, name: &str, known: impl IntoIterator<Item: AsRef<str>>) -> String {
    let known = known.into_iter().map(|known| known.as_ref().to_owned());
    let known: Vec<String> = known.collect();
    format!(
        "{flag}: there is no `{name}'; there are {}",
        known.join(", ")
    )
}
