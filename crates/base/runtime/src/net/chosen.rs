//! How operators choose the addresses at which processes listen, and the line if one cannot be had.

use std::io;
use std::net::SocketAddr;

/// How an operator has chosen an address to listen at, or can choose it.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub enum Chosen {
    /// By this flag.
    By(&'static str),
    /// Not at all: this flag, which would change it, has it as its default.
    Default(&'static str),
    /// By this flag, whose port is the one before it.
    Behind(&'static str),
    /// Earlier: what is in the directory that this flag names goes on there.
    Kept(&'static str),
    /// By this flag, when it was said last.
    Remembered(&'static str),
    /// By something else than a flag.
    #[default]
    Otherwise,
}

impl Chosen {
    /// By the flag, or as its default.
    pub fn flag(flag: &'static str, is_default: bool) -> Chosen {
        match is_default {
            true => Chosen::Default(flag),
            false => Chosen::By(flag),
        }
    }

    /// How it was chosen, in brackets, and what to choose instead.
    fn words(self) -> (String, String) {
        match self {
            Chosen::By(flag) => (format!(" ({flag})"), format!("another {flag}")),
            Chosen::Default(flag) => (
                format!(" (the default of {flag})"),
                format!("another with {flag}"),
            ),
            Chosen::Behind(flag) => (
                format!(" (the port behind that of {flag})"),
                format!("another {flag}"),
            ),
            Chosen::Kept(flag) => (
                format!(" (as it was made in the directory of {flag})"),
                format!("another {flag}"),
            ),
            Chosen::Remembered(flag) => (
                format!(" (the {flag} of the last time)"),
                format!("another with {flag}"),
            ),
            Chosen::Otherwise => (String::new(), "another address".into()),
        }
    }

    /// The line for an operator when it cannot be listened at this address.
    pub fn refused(self, address: SocketAddr, error: &io::Error) -> String {
        let (how, another) = self.words();
        let why = match error.kind() {
            io::ErrorKind::AddrInUse => "another process listens there; stop it, or".into(),
            io::ErrorKind::AddrNotAvailable => "this machine has no such address;".into(),
            _ => format!("{error};"),
        };
        format!("cannot listen at {address}{how}: {why} choose {another}")
    }

    /// The line for an operator when the same command has chosen this address before, in another way.
    pub fn refused_twice(self, address: SocketAddr, before: Chosen) -> String {
        let ((how, another), (former, _)) = (self.words(), before.words());
        format!(
            "cannot listen at {address}{how}: this command listens there already{former}; choose {another}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_about_an_address_names_the_flag_that_changes_it() {
        let at = "127.0.0.1:4500".parse().expect("an address");
        let in_use = io::Error::from(io::ErrorKind::AddrInUse);
        for (chosen, how, choose) in [
            (Chosen::By("--listen"), " (--listen)", "another --listen"),
            (
                Chosen::Default("--port"),
                " (the default of --port)",
                "another with --port",
            ),
            (
                Chosen::Behind("--listen"),
                " (the port behind that of --listen)",
                "another --listen",
            ),
            (
                Chosen::Kept("--data-dir"),
                " (as it was made in the directory of --data-dir)",
                "another --data-dir",
            ),
            (
                Chosen::Remembered("--port"),
                " (the --port of the last time)",
                "another with --port",
            ),
            (Chosen::Otherwise, "", "another address"),
        ] {
            assert_eq!(
                chosen.refused(at, &in_use),
                format!(
                    "cannot listen at 127.0.0.1:4500{how}: another process listens there; stop it, or choose {choose}"
                )
            );
        }
        let none = io::Error::from(io::ErrorKind::AddrNotAvailable);
        let line = Chosen::flag("--pages", false).refused(at, &none);
        assert!(
            line.ends_with("has no such address; choose another --pages"),
            "{line}"
        );
        assert_eq!(Chosen::flag("--pages", true), Chosen::Default("--pages"));
        assert_eq!(
            Chosen::By("--pages-port").refused_twice(at, Chosen::Default("--port")),
            "cannot listen at 127.0.0.1:4500 (--pages-port): this command listens there already (the default of \
             --port); choose another --pages-port"
        );
    }
}
