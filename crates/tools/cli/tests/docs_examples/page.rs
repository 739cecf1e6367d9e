//! Runs the commands of one page, in a directory that is empty at the beginning, as a reader would who types them.
//!
//! ```text
//! test ──► unshare ──► bash ──► each command of the page
//!          │ own network: the page's ports, and addresses such as 10.0.0.1
//!          │ own processes: what is left runs no longer than the page
//!          └ own mounts: /etc, /var/lib and /dev/shm are the page's, and its directory is in memory
//! ```

use super::blocks::{Block, Step, agrees, blocks, marks};
use crate::common::{BINARY, Directory};
use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest time for a command, and for one that stays until it is ready. `plinth bench run` alone waits up to a minute
/// for servers that are busy.
const LIMIT: Duration = Duration::from_secs(120);
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Prepares the namespaces and becomes a shell. Its argument is the directory that all of it is in.
const PREPARE: &str = r#"
set -eu
mount -t tmpfs none "$0"
cd "$0"
mkdir page said etc home
cp -a /etc/. etc/ 2>/dev/null || true
rm -rf etc/plinth # of a machine that has Plinth
mkdir etc/plinth
mount --bind etc /etc
for at in /var/lib /var/log /mnt /dev/shm; do mount -t tmpfs none $at; done
mkdir /mnt/shared
ip link set lo up
for host in 1 2 3; do ip address add 10.0.0.$host/32 dev lo; done
cd page
export HOME="$0/home"
exec bash --norc --noprofile
"#;

/// What became of the blocks of a page.
#[derive(Default)]
pub struct Report {
    pub commands: usize,
    pub compared: usize,
    /// Blocks that are not run: where they are, and why.
    pub left: Vec<String>,
    pub failures: Vec<String>,
    pub took: Duration,
}

struct Shell {
    child: Child,
    stdin: Option<ChildStdin>,
    said: Lines<BufReader<ChildStdout>>,
    directory: Directory,
    steps: usize,
    /// What the page says in the place of an id, and the id.
    marks: Vec<(String, String)>,
}

impl Shell {
    fn start(name: &str) -> Shell {
        let directory = Directory::new(&format!("docs-{name}"));
        let programs = Path::new(BINARY).parent().expect("a directory");
        let search = format!(
            "{}:{}:{}",
            programs.display(),
            programs.join("examples").display(),
            std::env::var("PATH").expect("a path")
        );
        let mut child = Command::new("unshare")
            .args(["--user", "--map-root-user", "--mount", "--net", "--pid"])
            .args(["--fork", "--kill-child", "--mount-proc"])
            .args(["sh", "-c", PREPARE])
            .arg(&directory.0)
            .env("PATH", search)
            .env_remove("PLINTH_CLUSTER_FILE")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare, of util-linux, can be run");
        let stdin = child.stdin.take();
        let stdout = child.stdout.take().expect("it is piped");
        let said = BufReader::new(stdout).lines();
        let mut shell = Shell {
            child,
            stdin,
            said,
            directory,
            steps: 0,
            marks: Vec::new(),
        };
        shell.tell("shopt -s expand_aliases; pwd");
        shell.hear();
        shell
    }

    fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("it is open");
        writeln!(stdin, "{line}").expect("the shell of the page lives");
    }

    fn hear(&mut self) -> String {
        let line = self.said.next().expect("the shell of the page answers");
        line.expect("it can be read")
    }

    /// Files are in the page's own file system: they are reached through the root of its shell.
    fn inside(&self, name: &str) -> PathBuf {
        let unshare = self.child.id();
        let children = format!("/proc/{unshare}/task/{unshare}/children");
        let child = fs::read_to_string(children).expect("it has a child");
        let root = PathBuf::from(format!("/proc/{}/root", child.trim()));
        let path = self.directory.file(name);
        root.join(path.strip_prefix("/").expect("it is absolute"))
    }

    fn said(&self, name: &str) -> String {
        let bytes = fs::read(self.inside(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Runs a step; the error is what a reader of the test's output has to know.
    fn run(&mut self, step: &Step) -> Result<(), String> {
        self.steps += 1;
        let n = self.steps;
        let file = |end: &str| format!("said/{n}.{end}");
        let (mut command, input) = (step.command.clone(), step.input.join("\n"));
        for (said, is) in &self.marks {
            command = command.replace(said, is);
        }
        let is_error = |error: std::io::Error| error.to_string();
        let text = match &step.stays {
            Some(_) => format!("{{ exec {command}\n}} &\n"),
            None => format!("{command}\n"),
        };
        fs::write(self.inside(&file("sh")), text).map_err(is_error)?;
        fs::write(self.inside(&file("in")), format!("{input}\n")).map_err(is_error)?;
        let at = self.directory.file("said").display().to_string();
        self.tell(&format!(
            ". {at}/{n}.sh <{at}/{n}.in >{at}/{n}.out 2>{at}/{n}.err; echo $? >{at}/{n}.was
mv {at}/{n}.was {at}/{n}.is"
        ));
        let outcome = self.wait(step, n);
        if let Some(printed) = &step.printed {
            self.marks.extend(marks(printed, &self.said(&file("out"))));
        }
        outcome.map_err(|why| {
            let (out, err) = (self.said(&file("out")), self.said(&file("err")));
            format!("{why}\n{command}\n-- printed:\n{out}-- errors:\n{err}")
        })
    }

    fn wait(&self, step: &Step, n: usize) -> Result<(), String> {
        let start = Instant::now();
        let is_late = || start.elapsed() > LIMIT;
        let out = || self.said(&format!("said/{n}.out"));
        loop {
            let status = self.said(&format!("said/{n}.is"));
            match status.trim() {
                "" if is_late() => return Err(format!("does not end within {LIMIT:?}")),
                "" => sleep(LOOK_INTERVAL),
                "0" => break,
                status => return Err(format!("ends with {status}")),
            }
        }
        if let Some(words) = &step.stays {
            let is_there = || (out() + &self.said(&format!("said/{n}.err"))).contains(words);
            while !is_there() {
                if is_late() {
                    return Err(format!("does not say {words:?} within {LIMIT:?}"));
                }
                sleep(LOOK_INTERVAL);
            }
        }
        match &step.printed {
            Some(printed) if step.stays.is_none() && !agrees(printed, &out()) => Err(format!(
                "prints something else than:\n{}",
                printed.join("\n")
            )),
            _ => Ok(()),
        }
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        self.stdin = None;
        let _ = self.child.kill(); // the namespaces and all processes in them end with it
        let _ = self.child.wait();
    }
}

/// Runs the page. After a command that fails nothing else of the page is run: what follows needs it.
pub fn run(name: &str, text: &str) -> Report {
    let start = Instant::now();
    let mut report = Report::default();
    let mut shell = None;
    for block in blocks(text) {
        let steps = match block {
            Block::Left(line, reason) => {
                report.left.push(format!("{name}:{line}: {reason}"));
                continue;
            }
            Block::Run(steps) => steps,
        };
        let shell = shell.get_or_insert_with(|| Shell::start(&name.replace(['/', '.'], "-")));
        for step in steps {
            report.commands += 1;
            report.compared += usize::from(step.printed.is_some());
            if let Err(why) = shell.run(&step) {
                report.failures.push(format!("{name}:{}: {why}", step.line));
                report.took = start.elapsed();
                return report;
            }
        }
    }
    report.took = start.elapsed();
    report
}
