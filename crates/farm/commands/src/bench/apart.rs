//! `plinth farm bench scans --apart`: the process that scans, as a child of the one that updates.

use plinth_farm_bench::apart::{Other, Scanner};
use plinth_farm_bench::scans::Plan;
use plinth_farm_bench::{Mode, Report, apart, policy_name};
use plinth_runtime::offload;
use plinth_terminal::Outcome;
use plinth_terminal::children::{self, describe};
use plinth_terminal::shell::runner::read_line;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};

/// Obeys the lines of the parent until it says nothing more.
pub async fn serve(directory: &Path, plan: &Plan) -> Outcome {
    let mode = plan.modes.first().ok_or("a scanner needs a policy")?;
    let mut scanner = Scanner::start(directory, plan, *mode).await?;
    while let Some(line) = read_line().await? {
        let answer = scanner.obey(&line).await?;
        let mut out = std::io::stdout().lock();
        let said = writeln!(out, "{answer}").and_then(|()| out.flush());
        said.map_err(|error| format!("standard output: {error}"))?;
    }
    Ok(())
}

struct Process<'a> {
    plan: &'a Plan,
    running: Option<(Child, BufReader<ChildStdout>)>,
}

pub async fn run(plan: &Plan, tell: &dyn Fn(&str)) -> Outcome<Report> {
    let mut process = Process {
        plan,
        running: None,
    };
    apart::run(plan, &mut process, tell).await
}

impl Other for Process<'_> {
    fn start(&mut self, directory: &Path, mode: Mode) -> Outcome {
        let plan = self.plan;
        let mut command = children::itself();
        command
            .args(["farm", "bench", "scanner", "--beside"])
            .arg(directory)
            .args(["--policy", policy_name(mode.policy())])
            .args(["--rows", &plan.rows.to_string()])
            .args(["--value-bytes", &plan.value_bytes.to_string()])
            .args(["--scanners", &plan.scanners.to_string()])
            .args(["--region-mib", &plan.region_mib.to_string()])
            .args(["--old-mib", &plan.old_mib.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = children::start(&mut command)?;
        let out = child.stdout.take().map(BufReader::new);
        self.running = out.map(|out| (child, out));
        Ok(())
    }

    fn say(&mut self, line: &str) -> Outcome {
        let input = self
            .running
            .as_mut()
            .and_then(|(child, _)| child.stdin.as_mut());
        let input = input.ok_or("the process that scans has ended")?;
        let said = writeln!(input, "{line}").and_then(|()| input.flush());
        said.map_err(|error| format!("the process that scans does not listen: {error}"))
    }

    async fn hear(&mut self) -> Outcome<String> {
        let running = self.running.take();
        let (mut child, mut out) = running.ok_or("the process that scans has ended")?;
        let (line, out) = offload(move || {
            let mut line = String::new();
            let read = out.read_line(&mut line);
            (read.map(|bytes| (bytes > 0).then_some(line)), out)
        })
        .await;
        match line.map_err(|error| format!("the process that scans: {error}"))? {
            Some(line) => {
                self.running = Some((child, out));
                Ok(line)
            }
            None => {
                let ended = child.wait();
                let how = ended.map_or_else(|error| error.to_string(), describe);
                Err(format!(
                    "the process that scans ended with {how}; it said why above"
                ))
            }
        }
    }

    fn end(&mut self) {
        if let Some((mut child, _)) = self.running.take() {
            let _ = child.kill(); // it may have ended
            let _ = child.wait();
        }
    }
}

impl Drop for Process<'_> {
    fn drop(&mut self) {
        self.end();
    }
}
