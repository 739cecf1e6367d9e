//! The packages and the files for containers, as far as one machine can show that they work: the debs are built,
//! looked at, installed, upgraded and removed where systemd runs their units, by the lines of docs/deploying.md.

mod machine;

use crate::common::client_programs::build_directory;
use crate::common::{BINARY, Directory, text};
use machine::Machine;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What `make packages` may have at most, in MiB. The program that the tests are built with is larger.
const DEB_MIB_MAX: u64 = 80;
const PAGE: &str = include_str!("../../../../docs/deploying.md");

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    root.canonicalize().expect("the repository")
}

/// Path of a file that `make packaging-tools` has installed beside the builds.
fn tool(path: &str) -> PathBuf {
    let path = build_directory().join("..").join(path);
    assert!(
        path.exists(),
        "{} is missing; `make packaging-tools` installs it",
        path.display()
    );
    path
}

/// Runs a program that must succeed; returns what it printed.
fn must(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = text(&output.stdout) + &text(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    text(&output.stdout)
}

/// The debs, built from what the tests are built with.
struct Debs {
    directory: Directory,
}

impl Debs {
    fn build() -> Self {
        let directory = Directory::new("packages");
        let tools = tool("cargo-deb/bin");
        let path = std::env::var("PATH").expect("it is set");
        let mut building = Command::new(root().join("scripts/packages"));
        building
            .args([Path::new(BINARY), &build_directory().join("libfdb_c.so")])
            .arg(&directory.0)
            .arg("--fast")
            .env("PATH", format!("{}:{path}", tools.display()));
        must(&mut building);
        Debs { directory }
    }

    fn directory(&self) -> PathBuf {
        self.directory.file("debian")
    }

    fn file(&self, package: &str) -> PathBuf {
        let entries = std::fs::read_dir(self.directory()).expect("it was made");
        let files = entries.map(|entry| entry.expect("an entry").path());
        let is_it = |file: &PathBuf| {
            let name = file.file_name().expect("a name").to_string_lossy();
            name.starts_with(&format!("{package}_"))
        };
        let found: Vec<PathBuf> = files.filter(is_it).collect();
        assert_eq!(found.len(), 1, "{package}: {found:?}");
        found[0].clone()
    }

    fn look(&self, option: &str, package: &str, more: &[&str]) -> String {
        must(
            Command::new("dpkg-deb")
                .arg(option)
                .arg(self.file(package))
                .args(more),
        )
    }
}

#[test]
fn debs_are_installed_run_and_removed_as_the_page_on_deploying_says() {
    let debs = Debs::build();
    has_what_it_should(&debs);
    has_nothing_of_this_machine(&debs);

    let machine = Machine::boot(&debs.directory());
    the_image_has_a_user_with_its_directories(&machine);
    nothing_runs_before_it_is_configured(&machine);
    a_database_is_made(&machine);
    the_server_comes_back_and_is_confined(&machine);
    a_gateway_serves(&machine);
    an_upgrade_leaves_the_server_alone(&machine);
    the_library_is_found(&machine);
    data_outlives_the_package(&machine);
}

/// Modes, owners, and what each package says of itself.
fn has_what_it_should(debs: &Debs) {
    for (package, files) in [
        (
            "plinth",
            &[
                "-rwxr-xr-x 0/0 ./usr/bin/plinth",
                "-rw-r----- 0/0 ./etc/plinth/server.toml",
                "-rw-r----- 0/0 ./etc/plinth/keeper.toml",
                "-rw-r--r-- 0/0 ./usr/lib/systemd/system/plinth.service",
                "-rw-r--r-- 0/0 ./usr/lib/systemd/system/plinth-keeper.service",
                "-rw-r--r-- 0/0 ./usr/share/bash-completion/completions/plinth",
                "-rw-r--r-- 0/0 ./usr/share/zsh/vendor-completions/_plinth",
                "-rw-r--r-- 0/0 ./usr/share/fish/vendor_completions.d/plinth.fish",
                "-rw-r--r-- 0/0 ./usr/share/man/man1/plinth.1.gz",
                "-rw-r--r-- 0/0 ./usr/share/man/man1/plinth-server.1.gz",
                "-rw-r--r-- 0/0 ./usr/share/doc/plinth/changelog.Debian.gz",
                "-rw-r--r-- 0/0 ./usr/share/doc/plinth/copyright",
                "-rw-r--r-- 0/0 ./usr/share/doc/plinth/deploying.md",
                "-rw-r--r-- 0/0 ./usr/share/doc/plinth/examples/kubernetes/plinth.yaml",
            ][..],
        ),
        (
            "plinth-libfdb-c",
            &[
                "-rw-r--r-- 0/0 ./usr/lib/libfdb_c.so",
                "-rw-r--r-- 0/0 ./usr/include/foundationdb/fdb_c.h",
                "-rw-r--r-- 0/0 ./usr/share/doc/plinth-libfdb-c/copyright",
            ],
        ),
    ] {
        // mode, owner, size, date, time, name
        let listed = debs.look("--contents", package, &[]);
        let line = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            format!("{} {} {}", words[0], words[1], words[5])
        };
        let listed: Vec<String> = listed.lines().map(line).collect();
        for file in files {
            assert!(
                listed.iter().any(|line| line == file),
                "{file}: {listed:#?}"
            );
        }
        let is_others = |line: &&String| !line.contains(" 0/0 ") || line[..10].ends_with("w-");
        assert_eq!(listed.iter().find(is_others), None, "{package}");
        let bytes = std::fs::metadata(debs.file(package))
            .expect("it is there")
            .len();
        assert!(bytes < DEB_MIB_MAX << 20, "{package} has {bytes} bytes");
    }
    let fields = debs.look("--field", "plinth", &[]);
    assert!(
        fields.contains("libc6 (>= ") && fields.contains("adduser"),
        "{fields}"
    );
    let conffiles = debs.look("--info", "plinth", &["conffiles"]);
    let mut conffiles: Vec<&str> = conffiles.lines().collect();
    conffiles.sort_unstable();
    assert_eq!(
        conffiles,
        ["/etc/plinth/keeper.toml", "/etc/plinth/server.toml"]
    );
    let fields = debs.look("--field", "plinth-libfdb-c", &[]);
    assert!(
        fields.contains("\nConflicts: foundationdb-clients\n"),
        "{fields}"
    );
}

/// No path of the machine on which the packages are built, and no symbols that only a debugger needs.
fn has_nothing_of_this_machine(debs: &Debs) {
    for package in ["plinth", "plinth-libfdb-c"] {
        let unpacked = debs.directory.file(&format!("unpacked-{package}"));
        debs.look(
            "--raw-extract",
            package,
            &[unpacked.to_str().expect("a path")],
        );
        let (home, here) = (std::env::var("HOME").expect("it is set"), root());
        let directory = debs.directory.0.to_str().expect("a path");
        let here = here.to_str().expect("a path");
        // The optimized program has other names for the sources of crates: see `make packages`.
        for (kind, places) in [
            ("--text", &[here, directory][..]),
            ("-I", &[here, directory, &home]),
        ] {
            let mut search = Command::new("grep");
            search.args([
                "--recursive",
                "--files-with-matches",
                "--fixed-strings",
                kind,
            ]);
            for place in places {
                search.args(["-e", place]);
            }
            let found = search.arg(&unpacked).output().expect("grep is there");
            assert_eq!(found.status.code(), Some(1), "{}", text(&found.stdout));
        }
        for binary in ["usr/bin/plinth", "usr/lib/libfdb_c.so"].map(|file| unpacked.join(file)) {
            if binary.exists() {
                let mut look = Command::new("readelf");
                let sections = must(look.args(["--wide", "--section-headers"]).arg(&binary));
                assert!(sections.contains(".text"), "{sections}");
                let stripped = !sections.contains(".symtab") && !sections.contains(".debug");
                assert!(stripped, "{sections}");
            }
        }
    }
}

/// Runs the one line of the page that begins so.
fn step(machine: &Machine, begin: &str) -> String {
    let lines: Vec<&str> = PAGE
        .lines()
        .filter(|line| line.starts_with(begin))
        .collect();
    assert_eq!(lines.len(), 1, "{begin}: {lines:?}");
    machine.must(lines[0])
}

/// What the container file runs in the image that it leaves, where no image can be built.
fn the_image_has_a_user_with_its_directories(machine: &Machine) {
    let file = std::fs::read_to_string(root().join("packaging/Dockerfile")).expect("a text");
    let (_, image) = file.rsplit_once("\nFROM ").expect("it has a last stage");
    let (_, run) = image.split_once("\nRUN ").expect("it runs something");
    let (run, _) = run.split_once("\nCOPY ").expect("then it copies");
    machine.must(run);
    let user = "setpriv --reuid 4500 --regid 4500 --clear-groups";
    for directory in ["/var/lib/plinth", "/etc/plinth"] {
        machine.must(&format!("{user} test -w {directory}"));
    }
    machine.must("userdel plinth && rmdir /var/lib/plinth /etc/plinth");
}

fn nothing_runs_before_it_is_configured(machine: &Machine) {
    // Images for containers have this: packages may start and stop nothing there.
    machine.must("rm -f /usr/sbin/policy-rc.d");
    // All of it is in memory, and nobody looks a page of the manual up.
    machine.must(
        "echo force-unsafe-io >/etc/dpkg/dpkg.cfg.d/in-memory; rm -f /var/lib/man-db/auto-update",
    );
    let said = machine.must("dpkg --install /given/plinth_*.deb");
    let lines = said.lines().filter(|line| line.starts_with("plinth: "));
    let lines: Vec<&str> = lines.collect();
    assert_eq!(lines.len(), 1, "{said}");
    assert!(
        lines[0].contains("nothing runs yet: set listen in /etc/plinth/server.toml"),
        "{said}"
    );
    assert!(machine.must("id plinth").contains("(plinth)"));
    let places = "/etc/plinth /etc/plinth/*.toml /var/lib/plinth /var/log/plinth";
    let owners = machine.must(&format!("stat --format '%U:%G %a %n' {places}"));
    assert_eq!(
        owners,
        "root:plinth 775 /etc/plinth\n\
        root:plinth 640 /etc/plinth/keeper.toml\nroot:plinth 640 /etc/plinth/server.toml\n\
        plinth:plinth 750 /var/lib/plinth\nplinth:plinth 750 /var/log/plinth\n"
    );
    for unit in ["plinth", "plinth-keeper"] {
        assert_eq!(
            machine.run(&format!("systemctl is-active {unit}")),
            "inactive\n"
        );
        assert_eq!(
            machine.run(&format!("systemctl is-enabled {unit}")),
            "disabled\n"
        );
        let verified = machine.must(&format!("systemd-analyze verify {unit}.service"));
        assert_eq!(verified, "", "{unit}");
    }
    let said = machine.must("plinth --version");
    assert!(said.contains("commit "), "{said}");
    let complete = ". /usr/share/bash-completion/completions/plinth && complete -p plinth";
    machine.must(&format!("bash -c '{complete}'"));

    let told = "journalctl --unit plinth --lines 5";
    machine.must_fail("systemctl start plinth");
    let line = "/etc/plinth/server.toml: there is no entry for listen; add it";
    machine.wait_for(told, line);
    machine.must("ip address add 10.0.0.1/32 dev lo");
    step(machine, "sed -i 's|^#listen = .*|");
    let words = "cluster file /etc/plinth/plinth.cluster";
    machine.wait_for(told, words);
    machine.must("systemctl stop plinth");
}

/// Makes two more servers of the machine, each with its own address, file and unit.
fn add_two_servers(machine: &Machine) {
    for i in [2, 3] {
        machine.must(&format!(
            "ip address add 10.0.0.{i}/32 dev lo && cd /etc/plinth && \
            sed 's|10.0.0.1:4500|10.0.0.{i}:4500|; s|^data-dir = .*|data-dir = \"/var/lib/plinth/{i}\"|' server.toml \
                >server-{i}.toml && \
            chown root:plinth server-{i}.toml && \
            sed 's|server.toml|server-{i}.toml|' /usr/lib/systemd/system/plinth.service \
                >/etc/systemd/system/plinth-{i}.service && \
            systemctl daemon-reload"
        ));
    }
}

fn a_database_is_made(machine: &Machine) {
    step(machine, "echo 'orders:");
    step(machine, "runuser -u plinth -- plinth keys new");
    add_two_servers(machine);
    machine.must("systemctl start plinth-2 plinth-3");
    step(machine, "systemctl enable --now plinth");
    for unit in ["plinth", "plinth-2", "plinth-3"] {
        let ask = format!("systemctl show --property=StatusText {unit}");
        machine.wait_for(&ask, "has joined the cluster; its controller is at 10.0.0.");
    }
    let said = step(machine, "plinth cli --exec 'configure new");
    assert!(said.contains("Database created"), "{said}");
    step(machine, "plinth keys derive");
    let said = step(machine, "plinth cli --exec 'set hello");
    assert!(said.contains("`hello' is `world'"), "{said}");
    let said = machine.must("runuser -u plinth -- plinth status");
    assert!(
        said.contains("10.0.0.1:4500") && said.contains("double"),
        "{said}"
    );
}

fn main_process(machine: &Machine, unit: &str) -> String {
    let process = machine.must(&format!("systemctl show --property=MainPID --value {unit}"));
    process.trim().to_owned()
}

fn the_server_comes_back_and_is_confined(machine: &Machine) {
    let first = main_process(machine, "plinth");
    let status = machine.must(&format!("cat /proc/{first}/status"));
    let user = machine.must("id --user plinth");
    assert!(
        status.contains(&format!("Uid:\t{}\t", user.trim())),
        "{status}"
    );
    for confined in [
        "CapEff:\t0000000000000000",
        "CapBnd:\t0000000000000000",
        "NoNewPrivs:\t1",
        "Seccomp:\t2",
    ] {
        assert!(status.contains(confined), "{confined}: {status}");
    }
    // What there is of it: nobody gets more than the machine around this one has.
    let limit = machine.must("systemctl show --property=LimitNOFILE --value plinth");
    assert_eq!(limit, "1048576\n");
    machine.must(&format!("kill -9 {first}"));
    let said = machine.wait_for("plinth cli --exec 'get hello'", "`hello' is `world'");
    assert!(said.contains("`hello' is `world'"), "{said}");
    // The other two serve before it is there again.
    let state = "systemctl show --property=ActiveState plinth";
    machine.wait_for(state, "ActiveState=active");
    assert_ne!(main_process(machine, "plinth"), first);
    // It rewrites its cluster file when the coordinators change, whoever is asked for that.
    machine.must("cp -p /etc/plinth/plinth.cluster /etc/plinth/plinth.keys /root");
    machine.must("plinth cli -C /root/plinth.cluster --exec 'coordinators force 10.0.0.2:4500'");
    machine.wait_for(
        "cat /etc/plinth/plinth.cluster",
        "orders:a1_2@10.0.0.2:4500",
    );
}

fn a_gateway_serves(machine: &Machine) {
    machine.must("systemctl start plinth-keeper");
    let ask = "bash -c 'exec 3<>/dev/tcp/127.0.0.1/2181; echo isro >&3; cat <&3'";
    machine.wait_for(ask, "rw");
    let first = main_process(machine, "plinth-keeper");
    let status = machine.must(&format!("cat /proc/{first}/status"));
    assert!(status.contains("CapBnd:\t0000000000000000"), "{status}");
    machine.must("systemctl stop plinth-keeper");
}

fn an_upgrade_leaves_the_server_alone(machine: &Machine) {
    let first = main_process(machine, "plinth");
    let said = machine.must("dpkg --install /given/plinth_*.deb");
    assert!(
        said.contains("plinth.service runs on with the former program"),
        "{said}"
    );
    assert_eq!(main_process(machine, "plinth"), first);
    assert_eq!(machine.run("systemctl is-enabled plinth"), "enabled\n");
    assert!(
        machine
            .must("cat /etc/plinth/server.toml")
            .contains("\nlisten = \"10.0.0.1:4500\"\n")
    );
    assert_eq!(
        machine.must("stat --format %a /etc/plinth/server.toml"),
        "640\n"
    );
    machine.must("systemctl restart plinth");
    assert_ne!(main_process(machine, "plinth"), first);
    machine.wait_for("plinth cli --exec 'get hello'", "`hello' is `world'");
}

/// A package with the name and the file of FoundationDB's.
const FOREIGN: &str = "mkdir -p /tmp/foreign/DEBIAN /tmp/foreign/usr/lib && cd /tmp/foreign && \
    echo 'not a library' >usr/lib/libfdb_c.so && \
    printf 'Package: foundationdb-clients\nVersion: 7.3.69\nArchitecture: all\nMaintainer: somebody\n\
Description: stands for it\n' >DEBIAN/control && \
    dpkg-deb --build /tmp/foreign /tmp/foreign.deb && dpkg --install /tmp/foreign.deb";

fn the_library_is_found(machine: &Machine) {
    machine.must(FOREIGN);
    machine.must("dpkg --install /given/plinth-libfdb-c_*.deb");
    let state =
        machine.run("dpkg-query --show --format '${db:Status-Status}' foundationdb-clients");
    assert!(!state.starts_with("installed"), "{state}");
    assert!(machine.must("ldconfig -p").contains("libfdb_c.so"));
    let load =
        "python3 -c 'import ctypes; print(ctypes.CDLL(\"libfdb_c.so\").fdb_get_max_api_version())'";
    assert_eq!(machine.must(load), "800\n");
    machine.must("dpkg --purge plinth-libfdb-c");
    machine.must_fail(load);
}

fn data_outlives_the_package(machine: &Machine) {
    machine.must("systemctl stop plinth-2 plinth-3");
    machine.must("dpkg --remove plinth");
    assert_eq!(machine.run("systemctl is-active plinth"), "inactive\n");
    machine.must("test -e /etc/plinth/server.toml");
    let said = machine.must("dpkg --purge plinth");
    for directory in ["/var/lib/plinth", "/etc/plinth"] {
        let words = format!("plinth: {directory} is left with what is in it");
        assert!(said.contains(&words), "{said}");
    }
    machine.must("test -d /var/lib/plinth/4500 && test -e /etc/plinth/plinth.keys");
    for gone in [
        "/etc/plinth/server.toml",
        "/usr/bin/plinth",
        "/usr/lib/systemd/system/plinth.service",
    ] {
        machine.must(&format!("test ! -e {gone}"));
    }
    // Who installs it again has the same database.
    machine.must("dpkg --install /given/plinth_*.deb");
    step(machine, "sed -i 's|^#listen = .*|");
    machine.must("systemctl start plinth plinth-2 plinth-3");
    machine.wait_for("plinth cli --exec 'get hello'", "`hello' is `world'");
}

#[test]
fn the_container_file_has_no_lint_and_the_objects_of_kubernetes_are_of_its_schemas() {
    let linted = must(
        Command::new(tool("python-packages/bin/hadolint")).arg(root().join("packaging/Dockerfile")),
    );
    assert_eq!(linted, "");
    let file = root().join("packaging/kubernetes/plinth.yaml");
    must(
        Command::new(tool("python-packages/bin/kubernetes-validate"))
            .arg("--strict")
            .arg(&file),
    );
    agrees_with_itself(&std::fs::read_to_string(file).expect("a text"));
}

/// What no schema says: names, ports and users that stand in several places.
fn agrees_with_itself(objects: &str) {
    let container = std::fs::read_to_string(root().join("packaging/Dockerfile")).expect("a text");
    assert!(
        container.contains("USER 4500:4500")
            && container.contains("EXPOSE 4500/tcp 4500/udp 9100/tcp")
    );
    for (words, times) in [
        ("runAsUser: 4500", 2),
        ("publishNotReadyAddresses: true", 1),
        ("podManagementPolicy: Parallel", 1),
        ("image: plinth:0.1.0", 3),
        (
            "plinth-0.plinth:4500,plinth-1.plinth:4500,plinth-2.plinth:4500",
            1,
        ),
        ("--public-address=$(POD).plinth:4500", 1),
        ("path: /health/live", 1),
        ("path: /health/ready", 1),
        ("configure new double ssd", 1),
    ] {
        assert_eq!(objects.matches(words).count(), times, "{words}");
    }
    let version = format!("image: plinth:{}", env!("CARGO_PKG_VERSION"));
    assert!(objects.contains(&version), "{version}");
    // Flags that the program does not have would keep every pod from starting.
    let help = must(Command::new(BINARY).args(["server", "--help"]));
    let flags = objects
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- --"));
    for flag in flags {
        let (name, _) = flag.split_once('=').expect("it has a value");
        assert!(help.contains(&format!("--{name} ")), "{name}");
    }
}
