//! Sessions that repeat a workload's requests, and what they count.

use crate::line::{Failure, Line};
use crate::mix::{Kind, Shape};
use crate::tree::{Asked, Tree};
use hdrhistogram::Histogram;
use plinth_keeper::wire::{Code, decode_answer};
use plinth_measure::latency::{histogram, record};
use plinth_runtime::{Duration, Instant, now, sleep};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

/// Pause before an address is tried again after all of them have failed.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Latencies of each kind of request in the measured interval, in the order of [`Kind::ALL`].
#[derive(Clone)]
pub struct Counted {
    /// Nothing is counted before or after it.
    pub from: Option<Instant>,
    pub until: Option<Instant>,
    pub kinds: [Histogram<u64>; 5],
    /// Answers of each second.
    pub timeline: Vec<u64>,
}

impl Counted {
    pub fn new() -> Self {
        Counted {
            from: None,
            until: None,
            kinds: std::array::from_fn(|_| histogram()),
            timeline: Vec::new(),
        }
    }

    fn ended(&mut self, kind: Kind, since: Instant, at: Instant) {
        let Some(from) = self.from.filter(|from| at >= *from) else {
            return;
        };
        if self.until.is_some_and(|until| at >= until) {
            return;
        }
        record(&mut self.kinds[kind as usize], at - since);
        let second = (at - from).as_secs() as usize;
        if self.timeline.len() <= second {
            self.timeline.resize(second + 1, 0);
        }
        self.timeline[second] += 1;
    }

    /// Latencies of all kinds together.
    pub fn all(&self) -> Histogram<u64> {
        let mut all = histogram();
        for kind in &self.kinds {
            all.add(kind).expect("the same bounds");
        }
        all
    }
}

/// What the sessions of a run share.
pub struct Load {
    pub shape: Shape,
    pub outstanding: usize,
    pub addresses: Vec<SocketAddr>,
    pub timeout_ms: i32,
    pub tree: Rc<RefCell<Tree>>,
    pub counted: RefCell<Counted>,
    pub is_over: Cell<bool>,
    /// Answers so far, measured or not: a server that is stuck is found by it.
    pub answers: Cell<u64>,
    pub last_answer: Cell<Instant>,
    /// Sessions that still work.
    pub working: Cell<usize>,
}

/// What one session has lived through.
#[derive(Clone, Copy, Default, Debug)]
pub struct Life {
    /// Longest time from one answer to the next.
    pub longest_gap: Duration,
    /// How often the connection broke, and the session went on over another one.
    pub moves: u32,
    /// How often the session was lost and a new one had to begin.
    pub losses: u32,
}

/// Makes requests and waits for their answers until the run is over or nothing is left to load. With `silence`, the
/// connection is given up after so long without an answer. `last` is when the latest answer came.
async fn work(
    load: &Load,
    line: &mut Line,
    silence: Option<Duration>,
    last: &Cell<Instant>,
    life: &Cell<Life>,
) -> Result<(), Failure> {
    let mut waiting: VecDeque<(Asked, Instant)> = VecDeque::with_capacity(load.outstanding);
    let ask = |line: &mut Line, waiting: &mut VecDeque<_>, asked: Asked| {
        line.put(&load.tree.borrow_mut().request(asked));
        waiting.push_back((asked, now()));
    };
    let next = || {
        let is_over = load.is_over.get();
        (!is_over)
            .then(|| load.tree.borrow_mut().next(&load.shape))
            .flatten()
    };
    while waiting.len() < load.outstanding
        && let Some(asked) = next()
    {
        ask(line, &mut waiting, asked);
    }
    while !waiting.is_empty() {
        line.flush().await?;
        match silence {
            None => line.read().await?,
            Some(limit) => line.read_within(limit).await?,
        }
        let at = now();
        while let Some((header, body)) = line.answer()? {
            let Some((asked, since)) = waiting.pop_front() else {
                return Err(Failure::Wrong("an answer to no request".into()));
            };
            if header.error != 0 {
                return Err(refusal(asked, Code(header.error)));
            }
            let opcode = opcode_of(asked);
            let answer = decode_answer(opcode, body)
                .map_err(|_| Failure::Wrong(format!("{asked:?}: an answer that cannot be read")))?;
            load.tree
                .borrow_mut()
                .check(asked, &answer)
                .map_err(Failure::Wrong)?;
            load.counted.borrow_mut().ended(asked.kind(), since, at);
            load.answers.set(load.answers.get() + 1);
            let then = match asked {
                Asked::Get {
                    node,
                    then_set: true,
                } => Some(Asked::SetRecord { node }),
                _ => next(),
            };
            if let Some(then) = then {
                ask(line, &mut waiting, then);
            }
        }
        load.last_answer.set(at);
        note_gap(last, life, at);
    }
    Ok(())
}

fn opcode_of(asked: Asked) -> i32 {
    use plinth_keeper::wire::opcode;
    match asked.kind() {
        Kind::Get => opcode::GET_DATA,
        Kind::List => opcode::GET_CHILDREN,
        Kind::Set => opcode::SET_DATA,
        Kind::Create => opcode::CREATE,
        Kind::Remove => opcode::DELETE,
    }
}

/// Some refusals say that the server cannot be used just now; any other one is wrong.
fn refusal(asked: Asked, code: Code) -> Failure {
    match code {
        Code::SESSION_EXPIRED => Failure::Expired,
        Code::CONNECTION_LOSS | Code::OPERATION_TIMEOUT => {
            Failure::Lost(format!("{asked:?} is answered with {code}"))
        }
        _ => Failure::Wrong(format!("{asked:?} is refused: {code}")),
    }
}

fn note_gap(last: &Cell<Instant>, life: &Cell<Life>, at: Instant) {
    let gap = at - last.replace(at);
    if gap > life.get().longest_gap {
        life.set(Life {
            longest_gap: gap,
            ..life.get()
        });
    }
}

/// One session whose connection must hold. Returns it unclosed.
///
/// # Errors
/// The connection broke, or an answer was wrong.
pub async fn steady(load: &Load, mut line: Line) -> Result<Line, String> {
    let (last, life) = (Cell::new(now()), Cell::default());
    let worked = work(load, &mut line, None, &last, &life).await;
    worked.map_err(|failure| failure.to_string())?;
    Ok(line)
}

/// One session that goes on over another connection when its own breaks, and a new one when it was lost. Returns the
/// connection that it has in the end.
///
/// # Errors
/// An answer was wrong.
pub async fn stubborn(
    load: &Load,
    line: Line,
    number: usize,
) -> Result<(Life, Option<Line>), String> {
    let (last, life) = (Cell::new(now()), Cell::new(Life::default()));
    // As clients do: a third of the time-out is left when another server is looked for.
    let silence = Duration::from_millis(load.timeout_ms.max(3) as u64 / 3);
    let mut session = line.session().clone();
    let mut line = Some(line);
    let mut server = number;
    loop {
        let failure = match &mut line {
            Some(open) => {
                let worked = work(load, open, Some(silence), &last, &life).await;
                session = open.session().clone();
                match worked {
                    Ok(()) => break,
                    Err(failure) => failure,
                }
            }
            None => Failure::Lost(String::new()),
        };
        line = None;
        let mut known = match failure {
            Failure::Wrong(what) => return Err(what),
            Failure::Expired => None,
            Failure::Lost(_) => Some(&session),
        };
        let mut lived = life.get();
        lived.losses += u32::from(known.is_none());
        while line.is_none() && !load.is_over.get() {
            server += 1;
            let address = load.addresses[server % load.addresses.len()];
            match Line::open(address, load.timeout_ms, known, silence).await {
                Ok(opened) => {
                    lived.moves += u32::from(known.is_some());
                    line = Some(opened);
                }
                Err(Failure::Wrong(what)) => return Err(what),
                Err(Failure::Expired) if known.is_some() => {
                    lived.losses += 1;
                    known = None;
                }
                Err(_) if (server - number).is_multiple_of(load.addresses.len()) => {
                    sleep(RETRY_PAUSE).await
                }
                Err(_) => {}
            }
        }
        life.set(Life {
            longest_gap: life.get().longest_gap,
            ..lived
        });
        if line.is_none() {
            break;
        }
    }
    // A session that has not come back has had no answer until now.
    note_gap(&last, &life, now());
    Ok((life.get(), line))
}
