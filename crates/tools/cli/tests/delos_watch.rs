//! What operators see of a service on real processes: numbers for Prometheus, all that the dashboard asks for, and the
//! screen of `plinth top`.

use crate::common::{BINARY, Directory, free_ports, text};
use plinth_runtime::Duration;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const PATIENCE: Duration = Duration::from_secs(60);
const DASHBOARD: &str = include_str!("../../../../docs/monitoring/delos.json");

struct Dev(Child);

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.0.kill(); // the replicas end with it
        let _ = self.0.wait();
    }
}

fn page(port: u16) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let request = "GET /metrics HTTP/1.1\r\nHost: plinth\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    head.starts_with("HTTP/1.1 200 ").then(|| body.to_string())
}

fn plinth(arguments: &[&str]) -> String {
    let output = Command::new(BINARY).args(arguments).output();
    let output = output.expect("it runs");
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// The numbers that the dashboard asks for.
fn asked() -> BTreeSet<&'static str> {
    let words = DASHBOARD.split(|c: char| !c.is_ascii_lowercase() && c != '_');
    words.filter(|word| word.starts_with("plinth_")).collect()
}

#[test]
fn operators_see_a_service_as_numbers_and_on_a_screen() {
    let directory = Directory::new("delos-watch");
    let (port, pages) = (free_ports(3), free_ports(3));
    let data = directory.file("data");
    let mut dev = Command::new(BINARY);
    dev.args(["delos", "dev", "locks", "--kind", "lock", "--replicas", "3"])
        .args([
            "--port",
            &port.to_string(),
            "--pages-port",
            &pages.to_string(),
        ])
        .arg("--data-dir")
        .arg(&data)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let _dev = Dev(dev.spawn().expect("it starts"));
    let file = data.join("locks.delos");
    let begun = Instant::now();
    while !file.exists() {
        assert!(begun.elapsed() < PATIENCE, "it is not ready");
        std::thread::sleep(Duration::from_millis(100));
    }
    let file = file.display().to_string();
    let place = directory.file("backup").display().to_string();
    plinth(&[
        "delos",
        "backup",
        "-C",
        &file,
        "--to",
        &place,
        "--timeout",
        "30",
    ]);
    for i in 0..20 {
        let request = format!(r#"{{"name":"l{i}","owner":"me","ttl_ms":100000}}"#);
        plinth(&["delos", "call", "-C", &file, "acquire", &request]);
    }
    let has = |numbers: &str, name: &str| numbers.contains(&format!("\n{name}{{"));
    let asked = asked();
    assert!(asked.len() > 10, "{asked:?}");
    loop {
        // The numbers are a second old at most.
        let all = (pages..pages + 3).filter_map(page).collect::<Vec<_>>();
        let lacking = |numbers: &String| asked.iter().find(|name| !has(numbers, name)).copied();
        let first = all.iter().find_map(lacking);
        if all.len() == 3 && first.is_none() {
            let serves = "kind=\"lock\",replica=\"locks-1\"} 1";
            assert!(all[0].contains(serves), "{}", all[0]);
            assert!(all[0].contains("plinth_delos_proposals_total{"));
            assert!(all[0].contains("engine=\"batching\",le=\"+Inf\"}"));
            break;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "{first:?} is missing on {} pages",
            all.len()
        );
        std::thread::sleep(Duration::from_millis(200));
    }
    has_a_screen(&file);
}

/// After a backup has begun.
fn has_a_screen(file: &str) {
    let screen = plinth(&["delos", "top", "-C", file, "--once"]);
    for part in [
        "service locks, kind lock",
        "backup to ",
        "locks-1 ",
        "locks-3 ",
        "serves",
        "ENGINE",
        "batching        on",
        "log_backup      on",
        "lease           off",
        "base",
    ] {
        assert!(screen.contains(part), "{part} in {screen}");
    }
}
