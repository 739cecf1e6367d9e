//! Makes the nodes of the workloads, removes those of earlier runs, and checks in the end that no write was lost.

use crate::line::{Failure, Line};
use crate::mix::Workload;
use crate::tree::{ROOT, Tree};
use plinth_keeper::wire::{Answer, Code, Request, Text, decode_answer};
use plinth_runtime::Duration;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;

/// Requests under way at once.
const WINDOW: usize = 500;
const TIMEOUT_MS: i32 = 30_000;
const OPEN_LIMIT: Duration = Duration::from_secs(10);
const SILENCE_LIMIT: Duration = Duration::from_secs(30);
/// So many of the written nodes of each kind are looked at in the end.
const CHECKED_MAX: usize = 2000;

/// Sends all requests in order and passes each answer, with the number of its request, to `judge`.
async fn exchange(
    line: &mut Line,
    requests: impl Iterator<Item = Request>,
    mut judge: impl FnMut(usize, Result<Answer, Code>) -> Result<(), String>,
) -> Result<(), Failure> {
    let (mut requests, mut opcodes, mut answered) = (requests.fuse(), VecDeque::new(), 0);
    loop {
        while opcodes.len() < WINDOW
            && let Some(request) = requests.next()
        {
            line.put(&request);
            opcodes.push_back(request.opcode());
        }
        if opcodes.is_empty() {
            return Ok(());
        }
        line.flush().await?;
        line.read_within(SILENCE_LIMIT).await?;
        while let Some((header, body)) = line.answer()? {
            let opcode = opcodes.pop_front().unwrap_or_default();
            let answer = match header.error {
                0 => Ok(decode_answer(opcode, body)
                    .map_err(|_| Failure::Wrong("an answer that cannot be read".into()))?),
                error => Err(Code(error)),
            };
            judge(answered, answer).map_err(Failure::Wrong)?;
            answered += 1;
        }
    }
}

/// Works over a session at the first address that can be had.
async fn with_line<T>(
    addresses: &[SocketAddr],
    work: impl AsyncFnOnce(&mut Line) -> Result<T, Failure>,
) -> Result<T, String> {
    let told = |failure: Failure| failure.to_string();
    let mut opened = Err(Failure::Lost("there is no address".into()));
    for address in addresses {
        opened = Line::open(*address, TIMEOUT_MS, None, OPEN_LIMIT).await;
        if opened.is_ok() {
            break;
        }
    }
    let mut line = opened.map_err(told)?;
    let output = work(&mut line).await.map_err(told)?;
    line.close(OPEN_LIMIT).await;
    Ok(output)
}

/// Creates the nodes that the workloads need. Returns their number.
///
/// # Errors
/// One line: a node is there already, or the connection broke.
pub async fn make(
    addresses: &[SocketAddr],
    tree: &Tree,
    workloads: &[Workload],
) -> Result<usize, String> {
    with_line(addresses, async |line| {
        let mut count = 0;
        let judge = |_, answer: Result<Answer, Code>| match answer {
            Ok(_) => {
                count += 1;
                Ok(())
            }
            Err(code) => Err(format!("a node cannot be created: {code}")),
        };
        exchange(line, tree.makers(workloads), judge).await?;
        Ok(count)
    })
    .await
}

/// Removes everything that the bench has made here. Returns the number of nodes.
///
/// # Errors
/// One line: a node cannot be read or removed, or the connection broke.
pub async fn remove(addresses: &[SocketAddr]) -> Result<usize, String> {
    with_line(addresses, async |line| {
        let (mut all, mut level): (Vec<Text>, Vec<Text>) = (Vec::new(), vec![ROOT.into()]);
        while !level.is_empty() {
            let lists = level.iter().map(|path| Request::GetChildren {
                path: path.clone(),
                watch: false,
            });
            let (mut there, mut next) = (Vec::new(), Vec::new());
            let judge = |number: usize, answer| match answer {
                Ok(Answer::Children(names)) => {
                    let parent = &level[number];
                    there.push(parent.clone());
                    next.extend(names.iter().map(|name| format!("{parent}/{name}").into()));
                    Ok(())
                }
                Err(Code::NO_NODE) => Ok(()),
                Err(code) => Err(format!(
                    "{}: its children cannot be listed: {code}",
                    level[number]
                )),
                Ok(other) => Err(format!("a wrong answer to a list: {other:?}")),
            };
            exchange(line, lists, judge).await?;
            all.append(&mut there);
            level = next;
        }
        let deletes = all.iter().rev().map(|path| Request::Delete {
            path: path.clone(),
            version: -1,
        });
        let judge = |_, answer| match answer {
            Ok(_) | Err(Code::NO_NODE) => Ok(()),
            Err(code) => Err(format!("a node cannot be removed: {code}")),
        };
        exchange(line, deletes, judge).await?;
        Ok(all.len())
    })
    .await
}

/// Removes the nodes that a round has created and that must go. Returns their number.
///
/// # Errors
/// One line: a node that was created is not there, or two have the same name.
pub async fn remove_passing(
    addresses: &[SocketAddr],
    tree: &RefCell<Tree>,
) -> Result<usize, String> {
    let passing = tree.borrow_mut().take_passing();
    if passing.is_empty() {
        return Ok(0);
    }
    with_line(addresses, async |line| {
        let deletes = passing.iter().map(|path| Request::Delete {
            path: path.clone(),
            version: -1,
        });
        // The first server of several may not know yet what another one has answered.
        let sync = std::iter::once(Request::Sync {
            path: Some(ROOT.into()),
        });
        exchange(line, sync.chain(deletes), |number, answer| {
            answer.map(drop).map_err(|code| {
                let path = number
                    .checked_sub(1)
                    .map_or(ROOT, |at| passing[at].as_str());
                format!("{path} was created and cannot be removed: {code}")
            })
        })
        .await?;
        Ok(passing.len())
    })
    .await
}

/// Compares how often nodes were changed with how often they were written.
///
/// # Errors
/// One line: an answered write is lost, or was carried out twice.
pub async fn check_writes(addresses: &[SocketAddr], tree: &RefCell<Tree>) -> Result<(), String> {
    let written = tree.borrow().written(CHECKED_MAX);
    with_line(addresses, async |line| {
        let sync = std::iter::once(Request::Sync {
            path: Some(ROOT.into()),
        });
        let requests = sync.chain(written.iter().map(|asked| Tree::stat_of(*asked)));
        exchange(line, requests, |number, answer| match (number, answer) {
            (0, Ok(Answer::Sync(_))) => Ok(()),
            (number, Ok(Answer::Stat(stat))) if number > 0 => {
                tree.borrow().check_version(written[number - 1], &stat)
            }
            (_, answer) => Err(format!("a wrong answer to the last check: {answer:?}")),
        })
        .await
    })
    .await
}
