//! What operators call services and replicas.

use plinth_coordination::DELOS_ENDING as ENDING;
use plinth_core::similar::most_similar;
use plinth_delos::replica::identity::is_name;
use plinth_terminal::tls::Listen;
use plinth_terminal::wording::pasted;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A replica's name and where its process listens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct At {
    pub name: String,
    pub address: SocketAddr,
    /// `:tls` was said behind the address.
    pub is_tls: bool,
}

pub fn parse_name(text: &str) -> Result<String, String> {
    match is_name(text) {
        true => Ok(text.into()),
        false => Err("a name has letters, digits, `_', `-' and `.'".into()),
    }
}

pub fn parse_at(text: &str) -> Result<At, String> {
    let (name, listen) = text
        .split_once('=')
        .ok_or("expected NAME=IP:PORT or NAME=IP:PORT:tls")?;
    let listen = parse_listen(listen)?;
    let name = parse_name(name)?;
    Ok(At {
        name,
        address: listen.address,
        is_tls: listen.is_tls(),
    })
}

/// An address that others can find: not a port of the system's choice, nor all addresses of the machine.
pub fn parse_listen(text: &str) -> Result<Listen, String> {
    let listen: Listen = text.parse()?;
    match listen.address.port() == 0 || listen.address.ip().is_unspecified() {
        true => Err("others must find it: give the IP of one interface, and a port".into()),
        false => Ok(listen),
    }
}

/// The name of a service, which becomes a part of its file.
pub fn parse_service_name(text: &str) -> Result<String, String> {
    let is_good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    match text.is_empty() || text.len() > 100 || !text.chars().all(is_good) {
        true => Err("the name of a service has letters, digits and `_'".into()),
        false => Ok(text.into()),
    }
}

pub fn file_name(service: &str) -> String {
    format!("{service}.{ENDING}")
}

/// The file of a service, by its path or by the service's name.
pub fn parse_service(text: &str) -> Result<PathBuf, String> {
    Ok(service_of(text, |path| path.is_file()))
}

/// A file that is there by this very name is meant, whatever it is: who opens it says what is wrong with it.
fn service_of(text: &str, is_there: impl Fn(&Path) -> bool) -> PathBuf {
    let by_name = PathBuf::from(file_name(text));
    let is_path = text.contains('/');
    let is_by_name = match is_there(Path::new(text)) {
        _ if text.ends_with(&format!(".{ENDING}")) => false,
        true => !is_path && is_there(&by_name),
        false => !is_path || is_there(&by_name),
    };
    if is_by_name { by_name } else { text.into() }
}

/// What is said of a directory that was given where the file of a service is wanted: the files in it. `None` if it is
/// no directory. The name of a service stands for a file beside its directory.
pub fn in_directory(given: &Path) -> Option<String> {
    let by_name = given.extension().is_some_and(|ending| ending == ENDING);
    let by_name = by_name.then(|| given.with_extension(""));
    let mut both = [Some(given), by_name.as_deref()].into_iter().flatten();
    let directory = both.find(|path| path.is_dir())?;
    let there = std::fs::read_dir(directory).ok()?.flatten();
    let files = there.map(|entry| entry.path());
    let is_one = |path: &PathBuf| path.extension().is_some_and(|ending| ending == ENDING);
    let mut files: Vec<PathBuf> = files.filter(is_one).collect();
    files.sort();
    let files: Vec<String> = files.iter().map(|file| pasted(file)).collect();
    let remedy = match &files[..] {
        [] => "there is no file of a service in it; name one with -C".to_owned(),
        [file] => format!("its service file is {file}"),
        several => format!("its service files are {}", several.join(", ")),
    };
    Some(format!(
        "service file {}: it is a directory; {remedy}",
        directory.display()
    ))
}

/// The service's file beside one that is not there that was perhaps meant: a question for people.
pub fn meant(missing: &Path) -> Option<String> {
    let directory = missing.parent().filter(|above| *above != Path::new(""));
    let there = std::fs::read_dir(directory.unwrap_or(Path::new("."))).ok()?;
    let names = there
        .flatten()
        .map(|entry| PathBuf::from(entry.file_name()));
    let files: Vec<PathBuf> = names
        .filter(|name| name.extension().is_some_and(|ending| ending == ENDING))
        .collect();
    let stems = files.iter().filter_map(|name| name.file_stem()?.to_str());
    let near = most_similar(missing.file_stem()?.to_str()?, stems)?;
    let path = missing.with_file_name(file_name(near));
    Some(format!("did you mean `{}'?", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_answered_with_the_files_of_services_in_it() {
        let above = std::env::temp_dir().join(format!("plinth-named-{}", std::process::id()));
        std::fs::create_dir_all(above.join("data")).expect("it is made");
        let line = in_directory(&above.join("data")).expect("a directory");
        assert!(
            line.contains("there is no file of a service in it; name one with -C"),
            "{line}"
        );
        for (file, said) in [
            ("b", "its service file is "),
            ("a", "its service files are "),
        ] {
            std::fs::write(above.join("data").join(file_name(file)), "").expect("written");
            for given in [
                above.join("data"),
                above.join("data.delos"),
                above.join("data/"),
            ] {
                let line = in_directory(&given).expect("a directory");
                assert!(
                    line.contains(said) && line.contains("data/b.delos"),
                    "{line}"
                );
            }
        }
        assert_eq!(in_directory(&above.join("data/a.delos")), None);
        assert_eq!(in_directory(&above.join("none.delos")), None);
        std::fs::remove_dir_all(&above).expect("it is there");
    }

    #[test]
    fn a_service_is_named_by_its_file_or_by_its_name() {
        for (text, file) in [
            ("locks", "locks.delos"),
            ("locks.delos", "locks.delos"),
            ("data/locks", "data/locks"),
        ] {
            assert_eq!(service_of(text, |_| false), PathBuf::from(file));
        }
        let there = |names: &'static [&str]| {
            move |path: &Path| names.iter().any(|name| path == Path::new(name))
        };
        let below = service_of("data/locks", there(&["data/locks.delos"]));
        assert_eq!(below, PathBuf::from("data/locks.delos"));
        let found = service_of("plinth.cluster", there(&["plinth.cluster"]));
        assert_eq!(found, PathBuf::from("plinth.cluster"));
        let both = service_of("locks", there(&["locks", "locks.delos"]));
        assert_eq!(both, PathBuf::from("locks.delos"));
    }

    #[test]
    fn a_file_that_is_misspelt_is_asked_for() {
        let above = std::env::temp_dir().join(format!("plinth-names-{}", std::process::id()));
        std::fs::create_dir_all(&above).expect("made");
        std::fs::write(above.join("locks.delos"), "").expect("written");
        let asked = meant(&above.join("lock.delos")).expect("it is like one");
        assert_eq!(
            asked,
            format!("did you mean `{}'?", above.join("locks.delos").display())
        );
        assert_eq!(meant(&above.join("queue.delos")), None);
        std::fs::remove_dir_all(&above).expect("removed");
    }

    #[test]
    fn an_address_that_nobody_finds_is_refused() {
        for address in [
            "0.0.0.0:4700",
            "127.0.0.1:0",
            "[::]:1",
            "x",
            "a=b",
            "0.0.0.0:4700:tls",
        ] {
            assert!(parse_listen(address).is_err(), "{address}");
        }
        assert!(parse_at("a=127.0.0.1:4700").is_ok_and(|at| !at.is_tls));
        assert!(parse_at("a=127.0.0.1:4700:tls").is_ok_and(|at| at.is_tls));
        assert!(parse_at("127.0.0.1:4700").is_err());
    }
}
