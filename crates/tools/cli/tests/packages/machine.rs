//! A machine with this one's files, on which packages are installed and systemd runs: see the script `boot`.

use crate::common::{Directory, text};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

pub struct Machine {
    directory: Directory,
    group: String,
    /// What keeps the namespaces; the first process of the machine is its child.
    keeper: Child,
    first: String,
}

impl Machine {
    /// Starts it. The files in `given` are in /given there.
    pub fn boot(given: &Path) -> Self {
        assert!(
            rustix::process::geteuid().is_root(),
            "this test mounts an overlay of the machine's files, which needs root: run it as root"
        );
        let directory = Directory::new("packages-machine");
        std::os::unix::fs::symlink(given, directory.file("in")).expect("can be made");
        let group = format!("plinth-packages-{}", std::process::id());
        let said = directory.file("said");
        let file = std::fs::File::create(&said).expect("can be made");
        let boot = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/packages/boot");
        let keeper = Command::new("unshare")
            .args([
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--uts",
                "--ipc",
                "--net",
            ])
            .args(["--propagation", "private"])
            .arg(boot)
            .arg(&directory.0)
            .arg(&group)
            .stdin(Stdio::null())
            .stdout(file.try_clone().expect("a second handle"))
            .stderr(file)
            .spawn()
            .expect("unshare, of util-linux, can be run");
        let mut machine = Machine {
            directory,
            group,
            keeper,
            first: String::new(),
        };
        let started = Instant::now();
        loop {
            let state = machine.run("systemctl is-system-running");
            if state == "running\n" {
                break;
            }
            let is_over = machine.keeper.try_wait().expect("it is ours").is_some();
            let said = text(&std::fs::read(&said).unwrap_or_default());
            let goes_on = !is_over && started.elapsed() < LIMIT;
            assert!(goes_on, "it does not run: {said}; {state}");
            std::thread::sleep(Duration::from_millis(50));
            let keeper = machine.keeper.id();
            let children = format!("/proc/{keeper}/task/{keeper}/children");
            let children = std::fs::read_to_string(children).unwrap_or_default();
            machine.first = children.trim().to_owned();
        }
        machine
    }

    /// Runs a line of a shell there, as root.
    pub fn output(&self, line: &str) -> Output {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.first, "--mount", "--pid", "--net"])
            .args(["--uts", "--ipc", "--cgroup", "--root"])
            .args([
                "env",
                "-i",
                "--chdir=/",
                "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
                "LC_ALL=C.UTF-8",
            ])
            .args(["DEBIAN_FRONTEND=noninteractive", "sh", "-c", line])
            .stdin(Stdio::null());
        command
            .output()
            .expect("nsenter, of util-linux, can be run")
    }

    /// What a line prints, whether or not it succeeds.
    pub fn run(&self, line: &str) -> String {
        let output = self.output(line);
        text(&output.stdout) + &text(&output.stderr)
    }

    /// What a line prints, which must succeed.
    pub fn must(&self, line: &str) -> String {
        let output = self.output(line);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success(), "{line}: {said}");
        said
    }

    /// What a line prints, which must fail.
    pub fn must_fail(&self, line: &str) -> String {
        let output = self.output(line);
        let said = text(&output.stdout) + &text(&output.stderr);
        assert!(!output.status.success(), "{line}: {said}");
        said
    }

    /// What a line prints as soon as these words are in it.
    pub fn wait_for(&self, line: &str, words: &str) -> String {
        let started = Instant::now();
        loop {
            let said = self.run(line);
            if said.contains(words) {
                return said;
            }
            assert!(started.elapsed() < LIMIT, "{line}: no {words:?} in {said}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.keeper.kill(); // --kill-child ends the machine with it
        let _ = self.keeper.wait();
        // Its control groups are left, without processes.
        let (groups, group) = (self.directory.file("groups"), &self.group);
        let remove = format!(
            "mount -t cgroup2 none {0} && find {0}/{group} -depth -type d -exec rmdir {{}} +",
            groups.display()
        );
        for _ in 0..100 {
            let removing = Command::new("unshare")
                .args(["--mount", "sh", "-c", &remove])
                .output();
            if removing.is_ok_and(|removing| removing.status.success()) {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}
