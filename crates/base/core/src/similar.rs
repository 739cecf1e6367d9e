//! The word that somebody may have meant who wrote one that does not exist.

/// A longer word is none that was meant to be another.
const WORD_BYTES_MAX: usize = 32;
/// So many letters of a word may stand for all of it.
const BEGIN_BYTES: usize = 3;

/// The most similar of the words, if one is similar at all: it differs in a few letters, or begins with this one. The
/// first of several.
pub fn most_similar<'a>(word: &str, all: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.is_empty() || word.len() > WORD_BYTES_MAX {
        return None;
    }
    let most = 1 + word.len() / 5;
    let distance = |other: &&str| match other.starts_with(word) && word.len() >= BEGIN_BYTES {
        true => 1,
        false => distance(word.as_bytes(), other.as_bytes()),
    };
    let measured = all.into_iter().map(|other| (distance(&other), other));
    let nearest = measured.min_by_key(|(distance, _)| *distance);
    nearest
        .filter(|(distance, _)| *distance <= most)
        .map(|(_, other)| other)
}

/// The question after the word that was meant, with a blank behind it; empty if none of the words is similar.
pub fn question<'a>(word: &str, all: impl IntoIterator<Item = &'a str>) -> String {
    let meant = most_similar(word, all);
    meant.map_or(String::new(), |meant| format!("did you mean `{meant}'? "))
}

/// How many letters have to be put in, left out, exchanged, or swapped with the next one.
fn distance(one: &[u8], other: &[u8]) -> usize {
    let width = other.len() + 1;
    let mut rows = vec![0; (one.len() + 1) * width];
    for i in 0..=one.len() {
        for j in 0..=other.len() {
            let at = |i: usize, j: usize| rows[i * width + j];
            rows[i * width + j] = match (i, j) {
                (0, left) | (left, 0) => left,
                _ => {
                    let differs = usize::from(one[i - 1] != other[j - 1]);
                    let least = (at(i - 1, j) + 1).min(at(i, j - 1) + 1);
                    let least = least.min(at(i - 1, j - 1) + differs);
                    let is_swapped =
                        i > 1 && j > 1 && (one[i - 1], one[i - 2]) == (other[j - 2], other[j - 1]);
                    match is_swapped {
                        true => least.min(at(i - 2, j - 2) + 1),
                        false => least,
                    }
                }
            };
        }
    }
    rows[rows.len() - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_with_a_slip_is_found_and_another_word_is_not() {
        let all = ["get", "getrange", "set", "commit", "createtenant", "clear"];
        for (word, meant) in [
            ("gte", Some("get")),
            ("gett", Some("get")),
            ("comit", Some("commit")),
            ("commmit", Some("commit")),
            ("createtennant", Some("createtenant")),
            ("getrang", Some("getrange")),
            ("create", Some("createtenant")),
            ("cl", None),
            ("fly", None),
            ("x", None),
            ("", None),
            ("frobnicate", None),
        ] {
            assert_eq!(most_similar(word, all), meant, "{word}");
        }
        assert_eq!(most_similar(&"get".repeat(100), all), None);
        assert_eq!(most_similar("get", []), None);
    }
}
