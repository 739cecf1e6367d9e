//! A port that somebody else has: the one line about it names the flag that chooses another.

use crate::common::{BINARY, Directory, error_line, free_ports, text};
use rustix::process::{Pid, Signal, kill_process};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Ports of which one is taken, and a directory with the cluster file of a server there.
struct Place {
    directory: Directory,
    taken: u16,
    _listener: TcpListener,
    free: u16,
}

impl Place {
    fn new() -> Place {
        let (directory, first) = (Directory::new("ports-in-use"), free_ports(12));
        let taken = first + 1;
        let listener = TcpListener::bind(("127.0.0.1", taken)).expect("it is free");
        let place = Place {
            directory,
            taken,
            _listener: listener,
            free: first + 2,
        };
        let text = format!("test:test@{}\n", place.at(place.free));
        std::fs::write(place.cluster_file(), text).expect("written");
        place
    }

    fn cluster_file(&self) -> PathBuf {
        self.directory.file("plinth.cluster")
    }

    fn at(&self, port: u16) -> String {
        format!("127.0.0.1:{port}")
    }

    /// The error of a command, in which TAKEN, FREE and BEFORE are addresses, and with PORT behind them ports.
    /// Tells whether its data directory is there then, too.
    fn run(&self, command: &str) -> (String, bool) {
        let words = command.split(' ').map(|word| match word {
            "TAKEN" => self.at(self.taken),
            "FREE" => self.at(self.free),
            "BEFORE" => self.at(self.taken - 1),
            "TAKENPORT" => self.taken.to_string(),
            "FREEPORT" => self.free.to_string(),
            "BEFOREPORT" => (self.taken - 1).to_string(),
            "FILE" => self.cluster_file().display().to_string(),
            word => word.to_owned(),
        });
        let directory = Directory::new("ports-in-use-data");
        let ended = Command::new(BINARY)
            .args(words)
            .arg("--data-dir")
            .arg(directory.file("data"))
            .output();
        let line = error_line(&ended.expect("the binary was built"));
        (line, directory.file("data").exists())
    }

    /// Tells whether the command has left its data directory, too.
    fn is_named(&self, command: &str, how: &str, another: &str) -> bool {
        let (at, (said, is_made)) = (self.at(self.taken), self.run(command));
        let line = format!(
            "cannot listen at {at} ({how}): another process listens there; stop it, or choose another {another}\n"
        );
        assert!(said.ends_with(&line), "{command}: {said}");
        is_made
    }
}

#[test]
fn a_server_whose_port_somebody_has_names_the_flag_that_gave_it() {
    let place = Place::new();
    for (command, flag) in [
        ("server -C FILE --listen TAKEN", "--listen"),
        ("server -C FILE --listen FREE --pages TAKEN", "--pages"),
        ("server -C FILE --listen FREE --metrics TAKEN", "--metrics"),
        ("delos server --listen TAKEN", "--listen"),
        ("delos server --listen FREE --pages TAKEN", "--pages"),
        (
            "delos server --listen FREE --zookeeper-listen TAKEN",
            "--zookeeper-listen",
        ),
        (
            "delos server --listen FREE --zookeeper-admin TAKEN",
            "--zookeeper-admin",
        ),
        ("table server --listen TAKEN", "--listen"),
        ("farm server -C FILE --listen TAKEN", "--listen"),
        ("farm server -C FILE --listen FREE --pages TAKEN", "--pages"),
    ] {
        let is_made = place.is_named(command, flag, flag);
        // It is nobody's yet: the next one may be of another cluster.
        assert!(flag != "--listen" || !is_made, "{command}");
    }
    let is_made = place.is_named(
        "farm server -C FILE --listen BEFORE",
        "the port behind that of --listen",
        "--listen",
    );
    assert!(!is_made);
}

#[test]
fn a_gateway_whose_port_somebody_has_names_the_flag_that_gave_it() {
    let place = Place::new();
    for (flags, flag) in [
        (["--listen", "TAKEN", "--pages", "FREE"], "--listen"),
        (["--listen", "FREE", "--pages", "TAKEN"], "--pages"),
    ] {
        let at = |word: &&str| match *word {
            "TAKEN" => place.at(place.taken),
            "FREE" => place.at(place.free),
            word => word.to_owned(),
        };
        let ended = Command::new(BINARY)
            .args(["keeper", "server", "-C"])
            .arg(place.cluster_file())
            .args(flags.iter().map(at))
            .output();
        let said = error_line(&ended.expect("the binary was built"));
        let line = format!("cannot listen at {} ({flag}): ", place.at(place.taken));
        assert!(said.contains(&line), "{said}");
        assert!(
            said.trim_end().ends_with(&format!("choose another {flag}")),
            "{said}"
        );
    }
}

#[test]
fn a_local_cluster_whose_port_somebody_has_names_its_own_flag_and_starts_nothing() {
    let place = Place::new();
    for (command, flag) in [
        ("dev --port TAKENPORT", "--port"),
        ("dev --processes 3 --port BEFOREPORT", "--port"),
        ("dev --port FREEPORT --pages-port TAKENPORT", "--pages-port"),
        (
            "dev --port FREEPORT --zookeeper-port TAKENPORT",
            "--zookeeper-port",
        ),
        ("farm dev --port BEFOREPORT", "--port"),
        (
            "farm dev --port FREEPORT --pages-port BEFOREPORT",
            "--pages-port",
        ),
        ("delos dev x --kind lock --port BEFOREPORT", "--port"),
        (
            "delos dev x --kind lock --port FREEPORT --pages-port TAKENPORT",
            "--pages-port",
        ),
        (
            "delos dev x --kind zelos --port FREEPORT --zookeeper-port TAKENPORT",
            "--zookeeper-port",
        ),
    ] {
        let is_made = place.is_named(command, flag, flag);
        assert!(!is_made, "{command} has left a directory");
    }
}

#[test]
fn a_local_cluster_that_wants_a_port_twice_names_both_flags_and_makes_nothing() {
    let place = Place::new();
    for (command, flag) in [
        (
            "dev --port FREEPORT --zookeeper-port FREEPORT",
            "--zookeeper-port",
        ),
        ("dev --port FREEPORT --pages-port FREEPORT", "--pages-port"),
        (
            "farm dev --port FREEPORT --pages-port FREEPORT",
            "--pages-port",
        ),
        (
            "delos dev x --kind zelos --port FREEPORT --zookeeper-port FREEPORT",
            "--zookeeper-port",
        ),
    ] {
        let (at, (said, is_made)) = (place.at(place.free), place.run(command));
        assert!(!is_made, "{command} has left a directory");
        let line = format!(
            "cannot listen at {at} ({flag}): this command listens there already (--port); choose another {flag}\n"
        );
        assert!(said.ends_with(&line), "{command}: {said}");
    }
}

#[test]
fn a_port_that_somebody_has_is_told_by_the_entry_of_the_file_that_gave_it() {
    let place = Place::new();
    let (taken, free) = (place.at(place.taken), place.at(place.free));
    for (command, listen, entry) in [
        ("server -C FILE", "TAKEN", "listen"),
        ("server -C FILE", "FREE", "pages"),
        ("server -C FILE", "FREE", "metrics"),
        ("keeper server -C FILE", "TAKEN", "listen"),
        ("delos server", "TAKEN", "listen"),
        ("table server", "TAKEN", "listen"),
        ("farm server -C FILE", "TAKEN", "listen"),
    ] {
        let directory = Directory::new("ports-in-a-file");
        let at = |word: &str| if word == "TAKEN" { &taken } else { &free };
        let pages = format!("{entry} = '{taken}'\n");
        let data = format!("data-dir = '{}'\n", directory.file("data").display());
        let entries = [
            "# of a test\n",
            &format!("listen = '{}'\n", at(listen)),
            if entry == "listen" { "" } else { &pages },
            if command.starts_with("keeper") {
                ""
            } else {
                &data
            },
        ];
        let file = directory.file("own.toml");
        std::fs::write(&file, entries.concat()).expect("written");
        let file = file.display().to_string();
        let words = command.split(' ').map(|word| match word {
            "FILE" => place.cluster_file().display().to_string(),
            word => word.to_owned(),
        });
        let ended = Command::new(BINARY)
            .args(words)
            .args(["--config", &file])
            .output()
            .expect("the binary was built");
        let (all, said) = (text(&ended.stderr), error_line(&ended));
        let number = if entry == "listen" { 2 } else { 3 };
        let line = format!(
            "cannot listen at {taken} (`{entry}' in {file}, line {number}): another process listens there; stop it, \
             or choose another `{entry}'\n"
        );
        assert!(said.ends_with(&line), "{command}: {said}");
        let former = format!(
            "{file}, line 3: `metrics' is `pages' now; the former words work for one release more\n"
        );
        assert_eq!(
            all.contains(&former),
            entry == "metrics",
            "{command}: {all}"
        );
    }
}

/// What two commands do that start in the same moment: what each has said on standard error when one of them has
/// ended, that one first, and its exit code. Both are gone then.
fn race(commands: [&mut Command; 2]) -> ([String; 2], Option<i32>) {
    let pieces = commands.map(|command| {
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        child.expect("the binary was built")
    });
    let mut both = pieces.map(Some);
    let code = loop {
        let ended = both.iter_mut().position(|one| {
            let one = one.as_mut().expect("both are there");
            one.try_wait().expect("it is a child").is_some()
        });
        if let Some(first) = ended {
            both.swap(0, first);
            let one = both[0].as_mut().expect("both are there");
            break one.wait().expect("it has ended").code();
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let other = both[1].as_mut().expect("both are there");
    // Half of what the first has begun would end this one, too.
    std::thread::sleep(Duration::from_secs(2));
    let went_on = other.try_wait().expect("it is a child").is_none();
    // It removes what it has in memory.
    let _ = kill_process(Pid::from_child(other), Signal::TERM);
    let said = both.map(|one| {
        let ended = one.and_then(|one| one.wait_with_output().ok());
        String::from_utf8_lossy(&ended.expect("it has ended").stderr).into_owned()
    });
    assert!(went_on, "both have ended: {said:?}");
    (said, code)
}

#[test]
fn of_two_clusters_that_begin_at_the_same_ports_in_the_same_moment_one_is_refused_and_leaves_nothing()
 {
    let first = free_ports(8).to_string();
    for command in ["dev", "farm dev", "delos dev x --kind lock"] {
        let directories =
            ["one", "other"].map(|name| Directory::new(&format!("ports-race-{name}")));
        let data = directories
            .each_ref()
            .map(|directory| directory.file("data"));
        let mut commands = data.each_ref().map(|data| {
            let mut started = Command::new(BINARY);
            started.args(command.split(' ')).args(["--port", &first]);
            started.arg("--data-dir").arg(data);
            started
        });
        let [one, other] = &mut commands;
        let ([said, _], code) = race([one, other]);
        assert_eq!(
            (said.lines().count(), code),
            (1, Some(1)),
            "{command}: {said}"
        );
        let line =
            format!("cannot listen at 127.0.0.1:{first} (--port): another process listens there");
        assert!(said.contains(&line), "{command}: {said}");
        let there = data.iter().filter(|data| data.exists()).count();
        assert_eq!(there, 1, "{command}: who is refused has made something");
    }
}

#[test]
fn of_two_clusters_that_begin_in_one_directory_in_the_same_moment_one_is_refused() {
    let first = free_ports(24);
    for command in ["dev", "farm dev", "delos dev x --kind lock"] {
        let directory = Directory::new("ports-race-data");
        let mut commands = [first, first + 12].map(|port| {
            let mut started = Command::new(BINARY);
            started
                .args(command.split(' '))
                .args(["--port", &port.to_string()]);
            started.arg("--data-dir").arg(directory.file("data"));
            started
        });
        let [one, other] = &mut commands;
        let ([said, _], code) = race([one, other]);
        assert_eq!(
            (said.lines().count(), code),
            (1, Some(1)),
            "{command}: {said}"
        );
        let is_said = [
            "runs already",
            "another process has it",
            "holds a cluster of",
        ];
        let is_said = is_said.iter().any(|words| said.contains(words));
        assert!(
            is_said && said.contains("data directory"),
            "{command}: {said}"
        );
    }
}
