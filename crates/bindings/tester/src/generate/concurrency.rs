//! Several stack machines of one tester that run at the same time, each on its own keys, and one that waits for
//! them.

use super::api::Api;
use crate::program::{MAIN, Program, Script, WORK, bytes};
use crate::rng::Rng;
use bytes::Bytes;
use plinth_core::tuple::Element;

/// Prefix of a key per machine that has not ended.
const RUNNING: &[u8] = b"running/";

pub(super) struct Threads {
    program: Program,
    machines: Vec<usize>,
}

fn name(machine: usize) -> Vec<u8> {
    format!("machine-{machine}").into_bytes()
}

fn running(machine: usize) -> Vec<u8> {
    [RUNNING, &name(machine)].concat()
}

impl Threads {
    pub fn new() -> Self {
        Threads {
            program: Program::default(),
            machines: Vec::new(),
        }
    }

    pub fn script(&self, machine: usize) -> Script {
        Script::new(&name(machine))
    }

    /// Adds the end of a machine's program: it logs its stack and removes its key.
    pub fn end(&mut self, mut script: Script, machine: usize) {
        script.log();
        script.call("CLEAR_DATABASE", vec![bytes(running(machine))]);
        script.wait();
        self.program.add(script);
        self.machines.push(machine);
    }

    /// Adds the main machine, which starts the others and waits until they have ended.
    pub fn finish(mut self) -> Program {
        let mut main = Script::new(MAIN);
        main.op("NEW_TRANSACTION");
        for machine in &self.machines {
            main.call("SET_DATABASE", vec![bytes(running(*machine)), bytes("")]);
            main.answers(bytes("RESULT_NOT_PRESENT"));
        }
        for machine in &self.machines {
            main.call("START_THREAD", vec![bytes(name(*machine))]);
        }
        main.call("WAIT_EMPTY", vec![bytes(RUNNING)]);
        main.returns(bytes("WAITED_FOR_EMPTY"));
        main.log();
        self.program.add(main);
        self.program
    }
}

pub fn generate(seed: u64) -> Program {
    let mut rng = Rng::new(seed);
    let mut threads = Threads::new();
    let mut rows: Vec<(Bytes, Element)> = Vec::new();
    for machine in 0..2 + rng.below(3) {
        let work = [WORK, format!("{machine}/").as_bytes()].concat();
        let mut api = Api::new(&name(machine), &work, rng.next());
        api.new_transaction();
        for _ in 0..40 {
            api.idempotent_step();
        }
        rows.extend(api.rows());
        threads.end(api.script, machine);
    }
    let mut program = threads.finish();
    program.rows = rows;
    program
}
