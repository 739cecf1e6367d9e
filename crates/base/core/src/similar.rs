//! The word that somebody may have meant who wrote one that does not exist.

/// A longer word is none that was meant to be another.
const WORD_BYTES_MAX: usize = 32;
/// A word of fewer letters has one slip at most, and one more for so many.
const LETTERS_A_SLIP: usize = 6;
/// So many letters of a word may stand for all of it.
const BEGIN_BYTES: usize = 3;

/// Words of other databases (etcd, ZooKeeper, FoundationDB, Redis, SQL), and those that do it here: the first that a
/// shell has counts.
#[rustfmt::skip]
const FOREIGN: [(&str, &[&str]); 22] = [
    ("put add insert upsert write store update create mset", &["set", "insert"]),
    ("ls ls2 list scan range select dump getall find cat", &["getrange", "select"]),
    ("keys getkeys", &["getrangekeys", "getrange", "select"]),
    ("exists mget read fetch lookup", &["get", "select"]),
    ("del rm remove delete unset unlink erase", &["clear", "delete"]),
    ("rmr deleteall delrange rmrange flushdb flushall truncate drop", &["clearrange", "drop table", "delete"]),
    ("show", &["tables", "status"]),
    ("desc schema", &["describe", "status"]),
    ("stat info stats ping health mntr ruok srvr conf cons endpoint members nodes cluster explain", &["status"]),
    ("multi start txn transaction", &["begin"]),
    ("exec save end", &["commit"]),
    ("discard abort cancel undo", &["rollback"]),
    ("subscribe", &["watch"]),
    ("use db namespace", &["usetenant"]),
    ("tenants namespaces databases dbs", &["listtenants", "tables"]),
    ("alter set-config reconfigure", &["configure"]),
    ("decommission drain evict", &["exclude"]),
    ("recommission uncordon", &["include"]),
    ("bye close disconnect logout q", &["exit"]),
    ("man usage commands ?", &["help"]),
    ("version time", &["getversion"]),
    ("check verify fsck scrub", &["consistencycheck"]),
];

/// The one of the words that was meant: by a word of another database, or by one that is misspelt.
pub fn meant<'a>(word: &str, all: impl IntoIterator<Item = &'a str> + Clone) -> Option<&'a str> {
    foreign(word, all.clone()).or_else(|| most_similar(word, all))
}

/// The one of the words that does what a word of another database does there.
pub fn foreign<'a>(word: &str, all: impl IntoIterator<Item = &'a str> + Clone) -> Option<&'a str> {
    let word = word.to_ascii_lowercase();
    let is_it = |(theirs, _): &&(&str, _)| theirs.split(' ').any(|other| other == word);
    let (_, own) = FOREIGN.iter().find(is_it)?;
    let have = |own: &&str| all.clone().into_iter().find(|known| known == own);
    own.iter().find_map(have)
}

/// The most similar of the words, if one is similar at all: it differs in a few letters, or begins with this one. The
/// first of several. A wrong answer is worse than none: a short word has one slip at most.
pub fn most_similar<'a>(word: &str, all: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    within(word, all, 1 + word.len() / LETTERS_A_SLIP)
}

/// The same, if the word has one slip.
pub fn slipped<'a>(word: &str, all: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    within(word, all, 1)
}

fn within<'a>(word: &str, all: impl IntoIterator<Item = &'a str>, most: usize) -> Option<&'a str> {
    if word.is_empty() || word.len() > WORD_BYTES_MAX {
        return None;
    }
    let is_begin = |other: &str| other.starts_with(word) && word.len() >= BEGIN_BYTES;
    let distance = |other: &str| match is_begin(other) || other.eq_ignore_ascii_case(word) {
        true => 1,
        false => distance(word.as_bytes(), other.as_bytes()),
    };
    let all = all.into_iter().filter(|other| !is_another(word, other));
    let measured = all.map(|other| (distance(other), other));
    let nearest = measured.min_by_key(|(distance, _)| *distance);
    nearest
        .filter(|(distance, _)| *distance <= most)
        .map(|(_, other)| other)
}

/// Of a word with few letters, each that is exchanged makes another word: `net` is not `get`, and `gte` is.
fn is_another(word: &str, other: &str) -> bool {
    let letters = |word: &str| {
        let mut letters = word.to_ascii_lowercase().into_bytes();
        letters.sort_unstable();
        letters
    };
    word.len() <= BEGIN_BYTES && word.len() == other.len() && letters(word) != letters(other)
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
            ("SET", Some("set")),
            ("st", Some("set")),
            ("net", None),
            ("bet", None),
            ("comet", None),
            ("closer", None),
        ] {
            assert_eq!(most_similar(word, all), meant, "{word}");
        }
        for (word, own) in [
            ("put", Some("set")),
            ("DEL", Some("clear")),
            ("ls", Some("getrange")),
            ("gte", Some("get")),
            ("show", None),
        ] {
            assert_eq!(meant(word, all), own, "{word}");
        }
        assert_eq!(slipped("comit", all), Some("commit"));
        assert_eq!(slipped("cretetenat", all), None);
        assert_eq!(most_similar("cretetenat", all), Some("createtenant"));
        assert_eq!(most_similar("redis", ["reads"]), None);
        assert_eq!(most_similar("a", ["b"]), None);
        assert_eq!(most_similar(&"get".repeat(100), all), None);
        assert_eq!(most_similar("get", []), None);
    }
}
