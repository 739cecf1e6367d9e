//! Names of which a flag takes one.

/// The line about a name that `flag` does not take.
pub fn unknown(flag: &str, name: &str, known: impl IntoIterator<Item: AsRef<str>>) -> String {
    let known = known.into_iter().map(|known| known.as_ref().to_owned());
    let known: Vec<String> = known.collect();
    format!(
        "{flag}: there is no `{name}'; there are {}",
        known.join(", ")
    )
}
