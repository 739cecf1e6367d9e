//! Four-letter words, and which of them are answered.

use plinth_core::similar::question;
use std::collections::BTreeSet;
use std::fmt::{Display, Formatter};
use std::str::FromStr;

macro_rules! words {
    ($($name:ident = $text:literal;)*) => {
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Word { $($name),* }
        impl Word {
            const ALL: &[Word] = &[$(Word::$name),*];
            pub fn parse(bytes: &[u8; 4]) -> Option<Word> {
                match bytes {
                    $($text => Some(Word::$name),)*
                    _ => None,
                }
            }
            pub fn text(self) -> &'static str {
                let bytes: &[u8; 4] = match self {
                    $(Word::$name => $text,)*
                };
                std::str::from_utf8(bytes).unwrap_or_default()
            }
        }
    };
}

words! {
    Ruok = b"ruok";
    Stat = b"stat";
    Srvr = b"srvr";
    Mntr = b"mntr";
    Cons = b"cons";
    Dump = b"dump";
    Wchs = b"wchs";
    Wchc = b"wchc";
    Wchp = b"wchp";
    Conf = b"conf";
    Envi = b"envi";
    Isro = b"isro";
    Crst = b"crst";
    Srst = b"srst";
    Dirs = b"dirs";
    // ZooKeeper has these, and a gateway does not.
    Gtmk = b"gtmk";
    Stmk = b"stmk";
    Hash = b"hash";
    // Those from here on are of ClickHouse's keeper.
    Apiv = b"apiv";
    Ftfl = b"ftfl";
    Rcvr = b"rcvr";
    Csnp = b"csnp";
    Lgif = b"lgif";
    Rqld = b"rqld";
    Ydld = b"ydld";
    Rclc = b"rclc";
    Clrs = b"clrs";
}

impl Word {
    pub fn is_of_clickhouse(self) -> bool {
        self >= Word::Apiv
    }

    fn is_there(self) -> bool {
        !matches!(self, Word::Gtmk | Word::Stmk | Word::Hash)
    }
}

/// The words that are answered, as ZooKeeper's `4lw.commands.whitelist` says it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Words(BTreeSet<Word>);

impl Default for Words {
    /// What is answered whatever the list says. Clients in read-only mode look for a gateway by `isro`; ZooKeeper has
    /// that word on its list wherever there is read-only mode, and `srvr` everywhere.
    fn default() -> Words {
        Words([Word::Srvr, Word::Isro].into())
    }
}

impl Words {
    /// All that there are.
    pub fn all() -> Words {
        let all = Word::ALL.iter().copied();
        Words(all.filter(|word| word.is_there()).collect())
    }

    pub fn has(&self, word: Word) -> bool {
        self.0.contains(&word)
    }
}

impl FromStr for Words {
    type Err = String;

    /// Words with commas between them, or `*` for all.
    fn from_str(text: &str) -> Result<Words, String> {
        let mut words = Words::default();
        for name in text.split(',').map(str::trim) {
            let word = name.as_bytes().try_into().ok().and_then(Word::parse);
            match word.filter(|word| word.is_there()) {
                _ if name == "*" => words = Words::all(),
                _ if name.is_empty() => {}
                Some(word) => {
                    words.0.insert(word);
                }
                None => {
                    let all = Words::all();
                    let meant = question(name, all.0.iter().map(|word| word.text()));
                    return Err(format!(
                        "{name} is no word of a gateway; {meant}expected `*', or some of {all}"
                    ));
                }
            }
        }
        Ok(words)
    }
}

impl Display for Words {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|word| word.text()).collect();
        out.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_words_is_one_of_zookeepers() {
        let listed = |text: &str| text.parse::<Words>().map(|words| words.to_string());
        assert_eq!(listed("").as_deref(), Ok("srvr,isro"));
        assert_eq!(listed("mntr, ruok").as_deref(), Ok("ruok,srvr,mntr,isro"));
        assert_eq!("ruok,*".parse(), Ok(Words::all()));
        assert!(Words::all().has(Word::Csnp) && !Words::all().has(Word::Gtmk));
        for bad in ["gtmk", "RUOK", "ruok mntr", "all"] {
            let refused = listed(bad).expect_err(bad);
            assert!(refused.contains("or some of ruok,stat"), "{refused}");
        }
        let near = listed("ruok,mntrr").expect_err("no word");
        assert!(near.contains("did you mean `mntr'?"), "{near}");
    }
}
