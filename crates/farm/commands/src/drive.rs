//! Machines of a fresh cluster that run TPC-C as child processes, driven by this one.

use super::fleet::{FirstPort, Running, Shape};
use super::heard::{Heard, listen};
use plinth_farm_server::{Seen, Survey};
use plinth_runtime::{Duration, TaskGroup, now, sleep};
use plinth_terminal::Outcome;
use plinth_terminal::children::{CHECK_INTERVAL, Supervised};
use std::io::Write;
use std::process::Child;
use std::rc::Rc;

const LOAD_LIMIT: Duration = Duration::from_secs(300);
const STOP_LIMIT: Duration = Duration::from_secs(60);

pub struct Drive {
    pub running: Running,
    pub heard: Rc<Heard>,
    tasks: TaskGroup,
}

fn order(machine: &mut Supervised, what: &str) -> Outcome {
    let child = machine.child.as_mut();
    let input = child.and_then(|child| child.stdin.as_mut());
    let input = input.ok_or("a machine has ended")?;
    let said = writeln!(input, "{what}").and_then(|()| input.flush());
    said.map_err(|error| format!("a machine does not listen: {error}"))
}

/// The member that is the master.
pub fn master(seen: &Survey) -> Outcome<&Seen> {
    let master = seen.record.as_ref().and_then(|record| record.master());
    let master = master.ok_or("there is no master")?;
    let mut machines = seen.machines.iter();
    let found = machines.find(|machine| machine.seat.id == master.id);
    found.ok_or_else(|| "the master has no seat".into())
}

impl Drive {
    /// Nothing runs yet.
    pub async fn prepare(name: &str, shape: Shape, first: FirstPort) -> Outcome<Drive> {
        Ok(Drive {
            running: Running::prepare(name, shape, first, true).await?,
            heard: Rc::default(),
            tasks: TaskGroup::new(),
        })
    }

    fn listen(&mut self, i: usize) -> Outcome {
        let child = self.running.children[i].child.as_mut();
        let out = child.and_then(|child| child.stdout.take());
        let out = out.ok_or("a machine says nothing")?;
        self.tasks
            .spawn("farm listen", listen(out, self.heard.clone()));
        Ok(())
    }

    /// Starts all machines, and waits until they are a cluster.
    pub async fn begin(&mut self) -> Outcome {
        self.running.start().await?;
        (0..self.running.children.len()).try_for_each(|i| self.listen(i))
    }

    /// Loads TPC-C.
    pub async fn load(&mut self) -> Outcome {
        order(&mut self.running.children[0], "load")?;
        self.wait(LOAD_LIMIT, "loading", |heard| heard.loaded.get())
            .await
    }

    /// Starts a process again that was killed.
    pub fn start(&mut self, i: u16) -> Outcome {
        let at = usize::from(i);
        self.running.children[at] = self.running.fleet.start(i)?;
        self.listen(at)
    }

    /// Clients begin on this machine.
    pub fn run(&mut self, i: u16) -> Outcome {
        order(&mut self.running.children[usize::from(i)], "run")
    }

    pub fn run_all(&mut self) -> Outcome {
        let mut children = self.running.children.iter_mut();
        children.try_for_each(|child| order(child, "run"))
    }

    /// Waits until the machines have said so.
    pub async fn wait(
        &mut self,
        limit: Duration,
        what: &str,
        is_so: impl Fn(&Heard) -> bool,
    ) -> Outcome {
        let begun = now();
        while !is_so(&self.heard) {
            for (i, child) in self.running.children.iter_mut().enumerate() {
                if let Some(Ok(Some(_))) = child.child.as_mut().map(Child::try_wait) {
                    return Err(format!("machine {i} has ended; it said why above"));
                }
            }
            if begun.elapsed() > limit {
                return Err(format!("{what} takes longer than {} s", limit.as_secs()));
            }
            sleep(CHECK_INTERVAL).await;
        }
        Ok(())
    }

    /// The clients end. Then looks at everything, and returns what is wrong.
    pub async fn judge(&mut self) -> Outcome<Vec<String>> {
        self.heard.stopped.set(0);
        let mut children = self.running.children.iter_mut();
        children.try_for_each(|child| order(child, "stop"))?;
        let machines = self.running.children.len();
        self.wait(STOP_LIMIT, "stopping", |heard| {
            heard.stopped.get() == machines
        })
        .await?;
        order(&mut self.running.children[0], "check")?;
        self.wait(LOAD_LIMIT, "checking", |heard| heard.checked.get())
            .await?;
        Ok(self.heard.judge())
    }
}
