//! A small file system in memory, mounted in a namespace of its own. Where user namespaces are allowed, this needs
//! only the rights of an ordinary user. The mount is not visible outside of the namespace and ends with the test.

use super::text;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A mounted file system, and the process that keeps its namespace alive.
pub struct SmallDisk {
    keeper: Child,
    path: PathBuf,
    enter: Vec<&'static str>,
}

impl SmallDisk {
    pub fn mount(path: &Path, mib: u32) -> Self {
        std::fs::create_dir_all(path).expect("can be made");
        let mut refusals = Vec::new();
        // The superuser may mount; other users may in a user namespace in which they are root.
        for (flags, enter) in [
            (&["--mount"][..], vec!["--mount"]),
            (
                &["--user", "--map-root-user", "--mount"],
                vec!["--user", "--preserve-credentials", "--mount"],
            ),
        ] {
            match Self::try_mount(path, mib, flags) {
                Ok(keeper) => {
                    return SmallDisk {
                        keeper,
                        path: path.to_path_buf(),
                        enter,
                    };
                }
                Err(refusal) => refusals.push(refusal),
            }
        }
        panic!(
            "this test mounts a small tmpfs, which needs root or user namespaces \
            (unshare --user --map-root-user --mount), and neither works here: {}",
            refusals.join("; ")
        );
    }

    fn try_mount(path: &Path, mib: u32, flags: &[&str]) -> std::result::Result<Child, String> {
        // The process ends with this test, because its input ends then.
        let script =
            format!("mount -t tmpfs -o size={mib}m none \"$0\" && echo mounted && exec cat");
        let mut keeper = Command::new("unshare")
            .args(flags)
            .args(["sh", "-c", &script])
            .arg(path)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("unshare (util-linux): {error}"))?;
        let mut line = String::new();
        let out = keeper.stdout.as_mut().expect("it is piped");
        let _ = BufReader::new(out).read_line(&mut line); // an empty line is a refusal
        if line == "mounted\n" {
            return Ok(keeper);
        }
        let output = keeper.wait_with_output().expect("it has ended");
        Err(text(&output.stderr).trim().to_string())
    }

    /// A command that sees the mounted file system.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.keeper.id().to_string()])
            .args(&self.enter)
            .arg(program);
        command
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Output {
        let output = self
            .command(program)
            .args(arguments)
            .arg(&self.path)
            .output();
        let output = output.expect("nsenter (util-linux) is there");
        assert!(
            output.status.success(),
            "{program}: {}",
            text(&output.stderr)
        );
        output
    }

    /// Names the source explicitly. Otherwise `mount` repeats the present options, some of which name users that the
    /// namespace lacks.
    pub fn remount(&self, options: &str) {
        let options = format!("remount,{options}");
        self.run("mount", &["-o", &options, "none"]);
    }

    /// Writes a file until there is no room for more.
    pub fn fill(&self) {
        let script = "cat /dev/zero >\"$0/filler\" 2>/dev/null; true"; // it fails in the end
        self.run("sh", &["-c", script]);
    }

    pub fn free_bytes(&self) -> u64 {
        let output = text(&self.run("df", &["--output=avail", "-B1"]).stdout);
        let last = output.lines().last().expect("a line");
        last.trim().parse().expect("a number")
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}
