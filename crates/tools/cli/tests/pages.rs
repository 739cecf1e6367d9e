//! The pages for people: in a real browser, and against those who are not welcome.

use crate::common::browser::Browser;
use crate::common::farm::Machines;
use crate::common::gateways::start_gateway;
use crate::common::{BINARY, Cluster, Directory, Server, free_ports, page_for, page_of, text};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(100);
/// A name that does something where it is taken for markup.
const EVIL: &str = "<script>document.title='had'</script><b>z&1";
const WIDTHS: [u32; 2] = [360, 1920];

/// Pictures for the documentation are taken where generated files are written.
fn picture(browser: &mut Browser, name: &str) {
    let file = format!("../../../docs/pictures/{name}.png");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("PLINTH_WRITE_GENERATED").is_some() {
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("can be made");
        browser.shoot(&path);
    }
    let size = std::fs::metadata(&path).expect("PLINTH_WRITE_GENERATED=1 writes it");
    assert!(
        size.len() <= 150 << 10,
        "{}: {} bytes",
        path.display(),
        size.len()
    );
}

/// The page can be read in the window as it is: nothing stands beside it, and the console is empty.
fn check(browser: &mut Browser, width: u32) {
    let wide = browser.evaluate("document.documentElement.scrollWidth");
    assert!(
        wide.as_u64().is_some_and(|wide| wide <= u64::from(width)),
        "{wide} of {width}"
    );
    assert_eq!(browser.evaluate("document.scripts.length"), 0);
    assert_ne!(browser.evaluate("document.title"), "had");
    let errors = browser.errors();
    assert!(errors.is_empty(), "{errors:?}");
}

/// Looks at the page at both widths, light and dark.
fn look_at_all(browser: &mut Browser, url: &str, wanted: &str) {
    let mut colors = Vec::new();
    for width in WIDTHS {
        for is_dark in [false, true] {
            browser.look_as(width, is_dark);
            browser.open(url);
            browser.await_text(wanted);
            check(browser, width);
            colors.push(browser.evaluate("getComputedStyle(document.body).color"));
        }
    }
    assert_eq!(colors[0], colors[2]);
    assert_ne!(colors[0], colors[1], "dark is light");
}

fn begins(port: u16) {
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(begun.elapsed() < PATIENCE, "no pages");
        std::thread::sleep(LOOK);
    }
}

/// A server of a cluster with pages, in a zone of any name.
fn server(cluster: &Cluster, i: u16, zone: &str, pages: &str) -> Server {
    let port = cluster.first_port + i;
    let mut server = Command::new(BINARY);
    server
        .args(["server", "--listen", &format!("127.0.0.1:{port}")])
        .arg("--data-dir")
        .arg(cluster.directory.file(&port.to_string()))
        .arg("-C")
        .arg(cluster.cluster_file())
        .args([
            "--zone",
            zone,
            "--machine",
            &format!("m{i}"),
            "--pages",
            pages,
        ])
        .args(["--cache-mib", "32"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Server(server.spawn().expect("the binary was built"))
}

#[test]
fn a_console_that_has_an_error_and_a_page_that_is_too_wide_are_noticed() {
    let mut browser = Browser::start("pages-planted");
    browser.look_as(360, false);
    browser.open("data:text/html,<script>throw new Error('planted')</script>");
    assert!(browser.errors()[0].contains("planted"));
    // What the policy of a page forbids is an error of the console, too.
    let policy = "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'\">";
    browser.open(&format!("data:text/html,{policy}<p style='color:red'>x"));
    assert!(browser.errors()[0].contains("Security Policy"));
    let phone = "<meta name=viewport content='width=device-width'>";
    browser.open(&format!("data:text/html,{phone}<div style='width:900px'>x"));
    let wide = browser.evaluate("document.documentElement.scrollWidth");
    assert!(wide.as_u64().is_some_and(|wide| wide >= 900), "{wide}");
    assert_eq!(browser.errors(), Vec::<String>::new());
}

#[test]
fn the_page_of_the_store_can_be_read_in_a_browser_also_while_the_cluster_is_down() {
    let cluster = Cluster::stopped("pages-store", 3, &[]);
    cluster.write_cluster_file(3);
    let pages = free_ports(3);
    let start = |i: u16| {
        let zone = if i == 0 {
            EVIL.to_owned()
        } else {
            format!("rack-{i}")
        };
        server(&cluster, i, &zone, &format!("127.0.0.1:{}", pages + i))
    };
    let mut servers: Vec<Option<Server>> = (0..3).map(|i| Some(start(i))).collect();
    begins(pages);
    cluster.cli("configure new double ssd");
    let mut browser = Browser::start("pages-store-browser");
    let url = format!("http://127.0.0.1:{pages}/");
    let good = "The database is available. One zone may fail.";
    look_at_all(&mut browser, &url, good);
    let zones = "[...document.querySelectorAll('.zone > b')].map(zone => zone.textContent)";
    let zones = browser.evaluate(zones).to_string();
    assert!(zones.contains(EVIL) && zones.contains("rack-2"), "{zones}");
    for part in [
        "Recoveries",
        "the database was created",
        "Disks",
        "machine m0",
    ] {
        let said = browser.text();
        assert!(said.contains(part), "{part} in {said}");
    }
    picture(&mut browser, "store");
    browser.look_as(360, true);
    browser.open(&url);
    picture(&mut browser, "store-phone");

    // One zone may fail: it does. The recovery is on the page, with its cause.
    servers[1] = None;
    let recovered = "document.querySelectorAll('svg.moments rect').length > 1 \
        || document.body.innerText.includes('another controller was elected')";
    let begun = Instant::now();
    while browser.evaluate(recovered) != true {
        assert!(begun.elapsed() < PATIENCE, "{}", browser.text());
        std::thread::sleep(LOOK);
    }
    browser.await_text("The database is available. No zone may fail.");
    check(&mut browser, 360);

    // Two of three: nothing commits, and the page stands.
    servers[2] = None;
    let is_bad = "document.querySelector('.head')?.className === 'head bad'";
    let begun = Instant::now();
    while browser.evaluate(is_bad) != true {
        assert!(begun.elapsed() < PATIENCE, "{}", browser.text());
        std::thread::sleep(LOOK);
    }
    browser.await_text("not ready: no ");
    for width in WIDTHS {
        browser.look_as(width, false);
        check(&mut browser, width);
    }
    servers[1] = Some(start(1));
    servers[2] = Some(start(2));
    browser.await_text(good);
    check(&mut browser, 1920);
}

fn quiet(command: &mut Command) -> Server {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    Server(command.spawn().expect("it starts"))
}

/// The address of this port, and the page there.
fn place(port: u16) -> (String, String) {
    (
        format!("127.0.0.1:{port}"),
        format!("http://127.0.0.1:{port}/"),
    )
}

#[test]
fn gateways_replicas_servers_of_tables_and_machines_have_pages_of_their_own() {
    let mut browser = Browser::start("pages-others-browser");
    of_the_keeper(&mut browser);
    of_delos(&mut browser);
    of_farm(&mut browser);
}

fn of_the_keeper(browser: &mut Browser) {
    let ports = free_ports(2);
    let (at, url) = place(ports + 1);
    let cluster = Cluster::start("pages-keeper", 1, &["--engine", "memory"]);
    let listen = SocketAddr::from(([127, 0, 0, 1], ports));
    let gateway = start_gateway(&cluster, listen, &["--pages", &at]);
    begins(ports + 1);
    let head = "This gateway is ready. The database is available. No zone may fail.";
    look_at_all(browser, &url, head);
    let said = browser.text();
    for part in [
        "sessions of this gateway",
        "watches of clients of this gateway",
    ] {
        assert!(said.contains(part), "{said}");
    }
    picture(browser, "keeper");
    let foreign = page_for("evil.example", ports + 1, "/commands/dump");
    assert_eq!(foreign.0, 421, "{}", foreign.1);
    drop(cluster);
    browser.await_text("This gateway is not ready: no ");
    check(browser, 1920);
    drop(gateway);
}

fn of_delos(browser: &mut Browser) {
    let directory = Directory::new("pages-delos");
    let ports = free_ports(10);
    let mut dev = Command::new(BINARY);
    dev.args(["delos", "dev", "tabs", "--kind", "table", "--replicas", "3"])
        .args(["--port", &ports.to_string()])
        .args(["--pages-port", &(ports + 3).to_string(), "--data-dir"])
        .arg(directory.file("delos"));
    let dev = quiet(&mut dev);
    begins(ports + 3);
    let head = "Of the 3 replicas of service tabs, kind table, 3 serve. One replica may fail.";
    look_at_all(browser, &place(ports + 3).1, head);
    let said = browser.text();
    assert!(
        said.contains("sequencer") && said.contains("lease"),
        "{said}"
    );
    picture(browser, "delos");
    let table = |listen: u16, pages: u16, more: [&std::ffi::OsStr; 2]| {
        let mut server = Command::new(BINARY);
        server
            .args(["table", "server", "--listen", &place(listen).0])
            .args(["--pages", &place(pages).0])
            .args(more);
        let server = quiet(&mut server);
        begins(pages);
        server
    };
    let file = directory.file("delos/tabs.delos");
    let tables = table(ports + 6, ports + 7, ["-C".as_ref(), file.as_os_str()]);
    look_at_all(browser, &place(ports + 7).1, head);
    drop((tables, dev));
    let data = directory.file("alone");
    let more = ["--data-dir".as_ref(), data.as_os_str()];
    let alone = table(ports + 8, ports + 9, more);
    look_at_all(
        browser,
        &place(ports + 9).1,
        "This process serves tables alone",
    );
    drop(alone);
}

fn of_farm(browser: &mut Browser) {
    let mut machines = Machines::new("pages-farm", 1);
    let pages = free_ports(1);
    let (at, url) = place(pages);
    let command = machines.command(0, &["--pages", &at]);
    machines.start_as(0, command);
    begins(pages);
    browser.open(&url);
    browser.await_text("The cluster does not serve; missing: ");
    let plan = "--machines 1 --replication 1 --regions 1 --region-mib 8";
    let made = machines.run("create", &plan.split(' ').collect::<Vec<_>>());
    assert!(made.status.success(), "{}", text(&made.stderr));
    look_at_all(browser, &url, "The cluster serves; nothing is missing.");
    let said = browser.text();
    for part in ["Regions", "lease: time within"] {
        assert!(said.contains(part), "{said}");
    }
    picture(browser, "farm");
}

// ---- who is not welcome ----

/// Sends a request, and reads the whole answer.
fn send(port: u16, request: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("somebody listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let _ = stream.write_all(request.as_bytes()); // it may be refused before its end
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer); // what it has not read ends the connection hard
    text(&answer)
}

fn get(port: u16, path: &str, host: &str, cookie: &str) -> String {
    let cookie = match cookie {
        "" => String::new(),
        cookie => format!("Cookie: {cookie}\r\n"),
    };
    send(
        port,
        &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{cookie}Connection: close\r\n\r\n"),
    )
}

fn post(port: u16, form: &str) -> String {
    let length = form.len();
    let head = "POST /token HTTP/1.1\r\nHost: db1.example\r\nConnection: close";
    send(
        port,
        &format!("{head}\r\nContent-Length: {length}\r\n\r\n{form}"),
    )
}

/// A cluster with keys, and a server of it whose pages are for other machines, too.
fn with_keys(name: &str) -> (Cluster, Server, u16) {
    let cluster = Cluster::start(name, 1, &["--engine", "memory"]);
    let (port, pages) = (free_ports(1), free_ports(1));
    let mut server = Command::new(BINARY);
    server
        .args(["server", "--listen", &format!("127.0.0.1:{port}")])
        .args([
            "--pages",
            &format!("0.0.0.0:{pages}"),
            "--class",
            "stateless",
        ])
        .arg("--data-dir")
        .arg(cluster.directory.file("more"))
        .arg("-C")
        .arg(cluster.cluster_file())
        .stdout(Stdio::null());
    let server = Server(server.spawn().expect("the binary was built"));
    begins(pages);
    (cluster, server, pages)
}

fn token(cluster_file: &Path) -> String {
    let mut command = Command::new(BINARY);
    command.args(["keys", "page-token", "-C"]).arg(cluster_file);
    let said = command.output().expect("it runs");
    text(&said.stdout)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn from_afar_a_form_takes_the_token_and_a_cookie_keeps_it() {
    let (cluster, _server, pages) = with_keys("pages-keys");
    to_form(&get(pages, "/", "db1.example", ""));
    let form = get(pages, "/token", "db1.example", "");
    assert!(
        form.starts_with("HTTP/1.1 200") && form.contains("type=\"password\""),
        "{form}"
    );
    for rule in [
        "content-security-policy: default-src 'none'",
        "cache-control: no-store",
    ] {
        assert!(form.contains(rule), "{rule} in {form}");
    }
    let own = token(&cluster.cluster_file());
    assert!(own.len() >= 32, "{own}");
    let answer = post(pages, &format!("token={own}"));
    let set = answer.lines().find(|line| line.starts_with("set-cookie: "));
    let set = set.unwrap_or_else(|| panic!("{answer}")).to_owned();
    assert!(
        set.ends_with("; Path=/; HttpOnly; SameSite=Strict"),
        "{set}"
    );
    let cookie = set["set-cookie: ".len()..]
        .split(';')
        .next()
        .expect("a value");
    let page = get(pages, "/", "db1.example", cookie);
    assert!(
        page.starts_with("HTTP/1.1 200") && page.contains("<h1>"),
        "{page}"
    );
    // The cookie is for the page alone: nothing else takes it from a browser.
    let answer = get(pages, "/metrics", "127.0.0.1", cookie);
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
    let bearer = format!("GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {own}\r\n");
    let answer = send(pages, &format!("{bearer}Connection: close\r\n\r\n"));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    refuses_other_tokens(pages, &own);
}

fn to_form(answer: &str) {
    let is_it = answer.starts_with("HTTP/1.1 303") && answer.contains("location: /token\r\n");
    assert!(is_it, "{answer}");
}

fn refuses_other_tokens(pages: u16, own: &str) {
    // A wrong token, a part of the right one, and that of another cluster, whose cookie a browser sends here, because
    // ports of a host share their cookies.
    let other = Cluster::start("pages-other-keys", 1, &["--engine", "memory"]);
    let theirs = token(&other.cluster_file());
    assert_ne!(theirs, own);
    let longer = format!("{own}0");
    for wrong in ["0", &own[1..], &longer, &theirs, ""] {
        to_form(&get(
            pages,
            "/",
            "127.0.0.1",
            &format!("plinth_page={wrong}"),
        ));
    }
    // Words that are no token make no cookie.
    for wrong in [
        "token=",
        "token=a%0d%0aset-cookie:x",
        "token=a\r\nx: y",
        "tok=abc",
        "",
    ] {
        let answer = post(pages, wrong);
        assert!(
            answer.starts_with("HTTP/1.1 400") && !answer.contains("set-cookie"),
            "{answer}"
        );
    }
}

#[test]
fn a_foreign_site_whose_name_leads_to_this_machine_reads_nothing() {
    let pages = free_ports(1);
    let _cluster = Cluster::start(
        "pages-foreign",
        1,
        &["--engine", "memory", "--pages-port", &pages.to_string()],
    );
    begins(pages);
    for path in ["/", "/metrics"] {
        for host in ["evil.example", &format!("127.0.0.1.evil.example:{pages}")] {
            let (code, said) = page_for(host, pages, path);
            assert_eq!(code, 421, "{host} {path}: {said}");
        }
    }
    assert_eq!(page_of(pages, "/metrics").0, 200);
    assert_eq!(page_for("evil.example", pages, "/health/live").0, 200);
}

#[test]
fn huge_forms_slow_forms_and_many_connections_hold_up_nobody() {
    let (_cluster, server, pages) = with_keys("pages-attacked");
    let pid = server.0.id();
    let files = || {
        std::fs::read_dir(format!("/proc/{pid}/fd"))
            .expect("it runs")
            .count()
    };
    let before = files();
    let huge = "POST /token HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 50000000\r\n\r\ntoken=";
    let begun = Instant::now();
    let answer = send(pages, &(huge.to_owned() + &"a".repeat(5_000_000)));
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 400"),
        "{answer}"
    );
    assert!(begun.elapsed() < Duration::from_secs(10));
    let begun = Instant::now();
    let answer = send(
        pages,
        "POST /token HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\ntoken=",
    );
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(begun.elapsed() < Duration::from_secs(15));

    // Some say nothing, some begin a request and do not end it.
    let mut held = Vec::new();
    for i in 0..600 {
        let mut stream = TcpStream::connect(("127.0.0.1", pages)).expect("it listens");
        if i % 2 == 0 {
            let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ");
        }
        held.push(stream);
        if i % 100 == 99 {
            let begun = Instant::now();
            let answer = get(pages, "/health/live", "x", "");
            assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
            assert!(begun.elapsed() < Duration::from_secs(5));
        }
    }
    assert!(
        files() <= before + 210,
        "{} files, and {before} before",
        files()
    );
    drop(held);
}

// ---- what it costs ----

/// Processor time of a thread of a process, by its name.
fn spent(pid: u32, thread: &str) -> Duration {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs");
    let of = |task: std::fs::DirEntry| -> Option<u64> {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let said = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        let spent = said.split(' ').next()?.parse().ok()?;
        (thread.is_empty() || name.trim() == thread).then_some(spent)
    };
    Duration::from_nanos(tasks.flatten().filter_map(of).sum())
}

#[test]
fn a_hundred_who_look_cost_at_most_one_percent_of_a_core() {
    let pages = free_ports(1);
    let more = ["--engine", "memory", "--pages-port", &pages.to_string()];
    let cluster = Cluster::start("pages-viewers", 1, &more);
    begins(pages);
    let pid = cluster.pid(0).expect("it runs");
    let mut viewers: Vec<TcpStream> = (0..100)
        .map(|_| TcpStream::connect(("127.0.0.1", pages)).expect("it listens"))
        .collect();
    let mut look = |viewer: usize, path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        let sent = viewers[viewer].write_all(request.as_bytes());
        sent.expect("it is heard");
        let end: &[u8] = if path == "/" { b"</html>\n" } else { b"live\n" };
        let (mut page, mut part) = (Vec::new(), [0; 1 << 16]);
        while !page.ends_with(end) {
            let read = viewers[viewer].read(&mut part).expect("it answers");
            assert!(read > 0, "{}", text(&page));
            page.extend_from_slice(&part[..read]);
        }
    };
    // A page renews itself every five seconds.
    let mut rounds = |count: usize, each: usize, path: &str| {
        let (begun, pause) = (Instant::now(), Duration::from_millis(50));
        let before = ["pages", ""].map(|thread| spent(pid, thread));
        for step in 0..count * 100 {
            if step % 100 < each {
                look(step % 100, path);
            }
            std::thread::sleep((pause * (step as u32 + 1)).saturating_sub(begun.elapsed()));
        }
        let took = begun.elapsed().as_secs_f64();
        let spent = ["pages", ""].map(|thread| spent(pid, thread));
        [0, 1].map(|i| 100.0 * (spent[i] - before[i]).as_secs_f64() / took)
    };
    rounds(1, 1, "/");
    let [of_few, of_one] = rounds(2, 1, "/");
    let [of_nothing, _] = rounds(2, 100, "/health/live");
    let [of_pages, of_all] = rounds(2, 100, "/");
    println!(
        "of a core, in percent: one looks: {of_few:.2}, with all of the process {of_one:.2}; a hundred: \
         {of_pages:.2}, with all of the process {of_all:.2}; a hundred ask for an empty page: {of_nothing:.2}"
    );
    // Without optimization, most is what any answer by HTTP costs.
    let of_http = if cfg!(debug_assertions) {
        of_nothing
    } else {
        0.0
    };
    assert!(of_pages - of_http <= 1.0, "{of_pages} % of a core");
}

/// The words of status are those of the page.
#[test]
fn the_page_and_status_say_the_same_of_fault_tolerance() {
    let pages = free_ports(3);
    let more = [
        "--engine",
        "memory",
        "--replication",
        "double",
        "--pages-port",
        &pages.to_string(),
    ];
    let cluster = Cluster::start("pages-same", 3, &more);
    begins(pages);
    let begun = Instant::now();
    loop {
        let (_, page) = page_of(pages, "/");
        if page.contains("One zone may fail.") {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{page}");
        std::thread::sleep(LOOK);
    }
    let document: Value = {
        let said = cluster.plinth(&["status", "--json"]);
        serde_json::from_slice(&said.stdout).expect("it is JSON")
    };
    let status = text(&cluster.plinth(&["status"]).stdout);
    let words: Vec<&str> = status.split_whitespace().collect();
    let wanted = "1 zone may fail without loss of data, 1 zone of availability";
    assert!(words.join(" ").contains(wanted), "{status}");
    let first = &document["cluster"]["recoveries"]
        .as_array()
        .expect("a list")
        .last()
        .expect("one")["cause"];
    assert_eq!(first, "the database was created");
}
