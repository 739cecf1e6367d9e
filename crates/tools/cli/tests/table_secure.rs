//! Tables over TLS: whoever has a certificate gets in, and everybody else hears what to do.

use crate::common::{Directory, Server, error_line, free_ports, text};
use plinth_tls::testing::{Authority, Pair, Wanted};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const BINARY: &str = env!("CARGO_BIN_EXE_plinth");
const SERVES_LIMIT: Duration = Duration::from_secs(30);

struct Place {
    directory: Directory,
    authority: Authority,
    port: u16,
}

impl Place {
    fn new(name: &str) -> Place {
        let place = Place {
            directory: Directory::new(name),
            authority: Authority::new("Our root"),
            port: free_ports(1),
        };
        std::fs::write(place.file("ca.crt"), &place.authority.pem).expect("written");
        for name in ["node", "app", "other"] {
            place.put(name, &place.authority.issue(&Wanted::named(name)));
        }
        let foreign = Authority::new("Their root");
        place.put("foreign", &foreign.issue(&Wanted::named("app")));
        place
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.file(name)
    }

    fn put(&self, name: &str, pair: &Pair) {
        std::fs::write(self.file(&format!("{name}.crt")), &pair.certificate).expect("written");
        let key = self.file(&format!("{name}.key"));
        std::fs::write(&key, &pair.key).expect("written");
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).expect("a mode");
    }

    fn certify(&self, command: &mut Command, who: &str) {
        command
            .arg("--tls-certificate-file")
            .arg(self.file(&format!("{who}.crt")))
            .arg("--tls-key-file")
            .arg(self.file(&format!("{who}.key")))
            .arg("--tls-ca-file")
            .arg(self.file("ca.crt"));
    }

    fn address(&self, ending: &str) -> String {
        format!("127.0.0.1:{}{ending}", self.port)
    }

    fn start(&self, more: &[&str]) -> Server {
        let mut command = Command::new(BINARY);
        command
            .args([
                "table",
                "server",
                "--listen",
                &self.address(":tls"),
                "--data-dir",
            ])
            .arg(self.file("tables"))
            .arg("--trace")
            .arg(self.file("trace.jsonl"))
            .args(more);
        self.certify(&mut command, "node");
        let server = Server(command.spawn().expect("it runs"));
        let begun = Instant::now();
        while !self.shell("app", ":tls", "tables").status.success() {
            assert!(begun.elapsed() < SERVES_LIMIT, "it serves");
            std::thread::sleep(Duration::from_millis(100));
        }
        server
    }

    /// The shell with the certificate of `who`, or with none.
    fn shell(&self, who: &str, ending: &str, statements: &str) -> Output {
        let mut shell = Command::new(BINARY);
        shell.args(["table", "cli", "--connect", &self.address(ending)]);
        shell.args(["--exec", statements]);
        if !who.is_empty() {
            self.certify(&mut shell, who);
        }
        shell.stdin(Stdio::null()).output().expect("it runs")
    }

    fn trace(&self) -> String {
        std::thread::sleep(Duration::from_millis(300)); // written on a thread of its own
        std::fs::read_to_string(self.file("trace.jsonl")).expect("a trace")
    }
}

#[test]
fn whoever_has_a_certificate_uses_tables_and_others_hear_what_to_do() {
    let place = Place::new("table-secure");
    let server = place.start(&["--tls-verify-peers", "S.CN=app"]);
    let made = place.shell(
        "app",
        ":tls",
        "create table t (id int, what text, primary key (id)); insert into t (id, what) values (1, 'one')",
    );
    assert!(made.status.success(), "{}", text(&made.stderr));
    // Longer than what is on its way between gRPC and a connection.
    let long = "x".repeat(100_000);
    let put = place.shell(
        "app",
        ":tls",
        &format!("insert into t (id, what) values (2, '{long}')"),
    );
    assert!(put.status.success(), "{}", text(&put.stderr));
    let read = place.shell("app", ":tls", "select what from t where id = 2");
    assert!(text(&read.stdout).contains(&long), "{}", text(&read.stderr));

    let line = error_line(&place.shell("", ":tls", "tables"));
    assert!(
        line.contains("asks for TLS") && line.contains("--tls-certificate-file"),
        "{line}"
    );
    for who in ["foreign", "other"] {
        let line = error_line(&place.shell(who, ":tls", "tables"));
        assert!(line.contains(&place.address(":tls")), "{line}");
    }
    assert!(
        !place.shell("", "", "tables").status.success(),
        "it speaks no TLS"
    );
    let trace = place.trace();
    for why in [
        "not signed by a trusted root",
        "S.CN=app",
        "does not speak TLS",
    ] {
        let is_it = |line: &str| line.contains("ConnectionRefused") && line.contains(why);
        assert!(trace.lines().any(is_it), "{why}: {trace}");
    }
    assert!(trace.contains("x509:CN=app"), "{trace}");
    drop(server);
}

#[test]
fn options_that_do_not_fit_are_refused_before_anything_is_made() {
    let place = Place::new("table-secure-options");
    let serve = |more: &[&str]| {
        let mut command = Command::new(BINARY);
        command.args(["table", "server", "--data-dir"]);
        command.arg(place.file("tables")).args(more);
        place.certify(&mut command, "node");
        error_line(&command.output().expect("it runs"))
    };
    let plain = place.address("");
    let line = serve(&["--listen", &plain]);
    assert!(line.contains(&format!("write {plain}:tls")), "{line}");
    let line = serve(&[
        "--listen",
        &place.address(":tls"),
        "--tls-identity",
        "client:S.CN=app",
    ]);
    assert!(line.contains("--tls-verify-peers"), "{line}");
    let line = serve(&["--listen", "0.0.0.0:1:tls", "--client-auth", "want"]);
    assert!(line.contains("--open"), "{line}");
    assert!(!place.file("tables").exists());
    let line = error_line(&place.shell("app", "", "tables"));
    assert!(line.contains(&format!("write {plain}:tls")), "{line}");
}
