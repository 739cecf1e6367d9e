use super::*;
use plinth_core::testing::fuzz;
use proptest::prelude::*;

fn file(byte: u8) -> KeyFile {
    KeyFile::new_root([byte; SECRET_BYTES])
}

/// A line with these words and the CHECK that belongs to them.
fn checked(words: &str) -> String {
    format!("{words} {:08x}", crc32c::crc32c(words.as_bytes()))
}

fn is_refused(text: &str, line: Option<usize>, word: &str) {
    let error = KeyFile::parse(text.as_bytes()).expect_err(text);
    assert_eq!(error.line, line, "{error}");
    assert!(error.to_string().contains(word), "{text:?} gave {error}");
}

#[test]
fn a_key_file_comes_back_as_it_was_written_with_its_comments() {
    let mut two = file(1);
    two.add_generation([2; SECRET_BYTES]).expect("room");
    let text = format!(
        "# mine\r\n\n  {}\n# the end\n",
        two.print().replace('\n', "\n\t")
    );
    let read = KeyFile::parse(text.as_bytes()).expect("valid");
    assert_eq!(read.ids(), two.ids());
    assert!(read.print().starts_with("# mine\n\n# Whoever"));
    assert!(read.print().ends_with("# the end\n"));
    assert_eq!(KeyFile::parse(read.print().as_bytes()), Ok(read));
}

#[test]
fn each_mistake_in_a_key_file_is_named_with_its_line() {
    let good = file(1).print();
    let line = good.lines().nth(1).expect("a key");
    let words: Vec<&str> = line.split(' ').collect();
    let hex = words[3];
    let id = words[2];
    is_refused("", None, "no key");
    is_refused("# only a comment\n", None, "no key");
    is_refused(&"#\n".repeat(FILE_BYTES_MAX), None, "too large");
    is_refused(&line[..line.len() - 9], Some(1), "ROLE ID HEX CHECK");
    is_refused(&format!("{line} more"), Some(1), "ROLE ID HEX CHECK");
    is_refused(&line.replace("key-1", "key-2"), Some(1), "release");
    is_refused(&line.replace("plinth", "plinht"), Some(1), "begin");
    is_refused(&format!("\n#\n{line}\n{line}"), Some(4), "repeats line 3");
    is_refused(&line.replace(hex, &hex[1..]), Some(1), "damaged");
    let no_id = checked(&format!("plinth-key-1 server 0000000000000000 {hex}"));
    is_refused(&no_id, Some(1), "ID is not");
    // The id of a server's key is not that of a client's.
    let moved = checked(&format!("plinth-key-1 client {id} {hex}"));
    is_refused(&moved, Some(1), "ID is not");
    for role in ["nobody", "king"] {
        let text = checked(&format!("plinth-key-1 {role} {id} {hex}"));
        is_refused(&text, Some(1), "ROLE");
    }
    for hex in [
        "00",
        &hex.to_uppercase().replace('1', "A"),
        &format!("{hex}00"),
    ] {
        let text = checked(&format!("plinth-key-1 server {id} {hex}"));
        is_refused(&text, Some(1), "HEX");
    }
    let zero = checked(&format!("plinth-key-1 server {id} {}", "0".repeat(64)));
    is_refused(&zero, Some(1), "zero");
    let error = KeyFile::parse(b"\xff").expect_err("not text");
    assert!(error.to_string().contains("not text"));
}

#[test]
fn a_cluster_is_open_to_clients_at_most_and_only_if_its_file_says_so() {
    let mut keys = file(1);
    assert_eq!(keys.open_to(), Identity::Nobody);
    keys.set_open_to(Identity::Server);
    keys.set_open_to(Identity::Reader);
    assert!(keys.print().ends_with("open-to reader\n"));
    keys.set_open_to(Identity::Server);
    assert_eq!(keys.open_to(), Identity::Client);
    let read = KeyFile::parse(keys.print().as_bytes()).expect("valid");
    assert_eq!(read, keys);
    let line = keys.print();
    is_refused(&format!("{}open-to reader", &*line), Some(4), "already");
    for wrong in ["server", "operator", "nobody", "", "client reader"] {
        let text = line.replace("open-to client", &format!("open-to {wrong}"));
        is_refused(&text, Some(3), "reader or client only");
    }
    let lower = keys.for_identity(Identity::Client).expect("lower");
    assert_eq!(lower.open_to(), Identity::Nobody);
    keys.set_open_to(Identity::Nobody);
    assert_eq!(keys, file(1));
}

#[test]
fn an_error_and_debug_output_show_no_word_of_a_secret() {
    let text = file(0xab).print();
    let line = text.lines().nth(1).expect("a key");
    let secret = "abab";
    assert!(line.contains(secret));
    assert!(!format!("{:?}", file(0xab)).contains(secret));
    let words: Vec<&str> = line.split(' ').collect();
    for from in 0..words.len() {
        for to in 0..words.len() {
            let mut swapped = words.clone();
            swapped.swap(from, to);
            let with_check = checked(&swapped[..4].join(" "));
            for text in [swapped.join(" "), with_check, swapped[..from].join(" ")] {
                if let Err(error) = KeyFile::parse(text.as_bytes()) {
                    assert!(!error.to_string().contains(secret), "{error}");
                }
            }
        }
    }
}

#[test]
fn a_file_for_less_has_one_key_of_each_generation_and_cannot_be_raised() {
    let mut servers = file(1);
    servers.add_generation([2; SECRET_BYTES]).expect("room");
    let clients = servers.for_identity(Identity::Client).expect("lower");
    assert_eq!(clients.keys().count(), 2);
    assert!(clients.keys().all(|key| key.identity() == Identity::Client));
    let newest = file(2).for_identity(Identity::Client).expect("lower");
    assert_eq!(clients.ids()[0], newest.ids()[0]);
    let readers = clients.for_identity(Identity::Reader).expect("lower");
    assert_eq!(
        readers,
        servers.for_identity(Identity::Reader).expect("lower")
    );
    for higher in [Identity::Operator, Identity::Server] {
        let error = clients.for_identity(higher).expect_err("higher");
        assert!(error.what.contains("use the file of a server"), "{error}");
    }
    assert!(clients.for_identity(Identity::Nobody).is_err());
}

#[test]
fn keys_rotate_by_a_new_one_in_front_and_the_old_one_dropped() {
    let mut keys = file(1);
    let old = keys.ids()[0].0;
    let new = keys.add_generation([2; SECRET_BYTES]).expect("room");
    assert_eq!(
        keys.ids(),
        [(new, Identity::Server), (old, Identity::Server)]
    );
    assert!(keys.add_generation([2; SECRET_BYTES]).is_err());
    let client = keys.for_identity(Identity::Client).expect("lower").ids()[0].0;
    let error = keys.drop_id(client).expect_err("no line of its own");
    assert!(
        error.what.contains(&format!("drop {new} instead")),
        "{error}"
    );
    keys.drop_id(old).expect("it is there");
    assert_eq!(keys.ids(), [(new, Identity::Server)]);
    assert!(keys.drop_id(old).expect_err("gone").what.contains("no key"));
    assert!(keys.drop_id(new).expect_err("last").what.contains("last"));
}

#[test]
fn a_file_grows_up_to_its_limit_and_what_it_prints_is_read_again() {
    let mut keys = file(1);
    for byte in 2..=KEYS_MAX as u8 {
        keys.add_generation([byte; SECRET_BYTES]).expect("room");
    }
    let error = keys.add_generation([99; SECRET_BYTES]).expect_err("full");
    assert!(error.what.contains("drop old generations"));
    assert_eq!(KeyFile::parse(keys.print().as_bytes()), Ok(keys.clone()));
    let text = format!("{}{}", &*keys.print(), &*file(99).print());
    is_refused(&text, Some(KEYS_MAX + 3), "more than");
}

#[test]
#[should_panic(expected = "not random")]
fn a_secret_of_zeros_is_never_made() {
    KeyFile::new_root([0; SECRET_BYTES]);
}

proptest! {
    #[test]
    fn a_single_changed_character_of_a_key_is_noticed(
        random in any::<[u8; SECRET_BYTES]>().prop_filter("random", |bytes| *bytes != [0; 32]),
        at in any::<prop::sample::Index>(),
        to in "[0-9a-z]",
    ) {
        let keys = KeyFile::new_root(random);
        let text = keys.print();
        let line = text.lines().nth(1).expect("a key");
        let at = at.index(line.len());
        let changed = format!("{}{to}{}", &line[..at], &line[at + 1..]);
        if changed != line {
            prop_assert!(KeyFile::parse(changed.as_bytes()).is_err());
        }
    }
}

/// Fuzz target.
#[test]
fn a_damaged_key_file_is_refused_with_a_line_or_is_printed_as_it_was() {
    let mut two = file(1);
    two.add_generation([2; SECRET_BYTES]).expect("room");
    let readers = two.for_identity(Identity::Reader).expect("lower");
    let corpus = [file(3), two, readers].map(|file| file.print().as_bytes().to_vec());
    fuzz("key file", 1, corpus, |input| match KeyFile::parse(input) {
        Ok(file) => {
            assert!(file.keys().count() > 0);
            let again = KeyFile::parse(file.print().as_bytes());
            assert_eq!(again.as_ref(), Ok(&file));
            true
        }
        Err(error) => {
            assert!(error.to_string().len() < 200, "{error}");
            false
        }
    });
}

/// Fuzz target: what is behind a CHECK that fits.
#[test]
fn damaged_words_with_the_check_that_belongs_to_them_give_no_key_but_the_one_they_name() {
    let words = |identity| {
        let text = file(1).for_identity(identity).expect("lower").print();
        let line = text.lines().nth(1).expect("a key");
        line.as_bytes()[..line.len() - 9].to_vec()
    };
    let corpus = Identity::ALL[1..].iter().map(|identity| words(*identity));
    fuzz("key line", 2, corpus, |input| {
        let Ok(words) = std::str::from_utf8(input) else {
            return false;
        };
        match KeyFile::parse(checked(words).as_bytes()) {
            Ok(file) => {
                assert!(file.print().contains(words), "a key of other words");
                true
            }
            Err(error) => error.what.contains("ID is not"),
        }
    });
}

#[test]
fn a_file_without_a_servers_key_gets_no_new_one() {
    let mut servers = file(1);
    let mut clients = servers.for_identity(Identity::Client).expect("lower");
    let before = clients.ids();
    let refused = clients
        .add_generation([2; SECRET_BYTES])
        .expect_err("lower");
    assert!(refused.to_string().contains("no server's key"), "{refused}");
    assert_eq!(clients.ids(), before);
    servers.add_generation([2; SECRET_BYTES]).expect("room");
}
