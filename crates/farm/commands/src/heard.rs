//! What machines say that run TPC-C, as their parent hears it: see `work`.

use plinth_runtime::{Instant, now, offload};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::process::ChildStdout;
use std::rc::Rc;

/// What the machines have said.
#[derive(Default)]
pub struct Heard {
    /// Warehouse, district and number of each order that a client was told of.
    orders: RefCell<BTreeSet<(u32, u8, u32)>>,
    twice: Cell<u64>,
    /// When orders were last told of.
    pub last: Cell<Option<Instant>>,
    /// When each order was committed, in microseconds of the host's clock.
    pub committed_at: RefCell<Vec<u64>>,
    /// Begin and end of each time in which a machine did not know the time, on the same clock.
    pub without_time: RefCell<Vec<(u64, u64)>>,
    pub loaded: Cell<bool>,
    pub stopped: Cell<usize>,
    pub checked: Cell<bool>,
    broken: RefCell<Vec<String>>,
    /// Count and newest order of each district.
    districts: RefCell<BTreeMap<(u32, u8), (u32, u32)>>,
}

fn numbers<const N: usize>(words: &[&str]) -> Option<[u64; N]> {
    let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().ok()
}

impl Heard {
    fn hear(&self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["order", rest @ ..] => {
                if let Some([warehouse, district, id, at]) = numbers(rest) {
                    let order = (warehouse as u32, district as u8, id as u32);
                    let is_new = self.orders.borrow_mut().insert(order);
                    self.twice.set(self.twice.get() + u64::from(!is_new));
                    self.last.set(Some(now()));
                    self.committed_at.borrow_mut().push(at);
                }
            }
            ["clock", rest @ ..] => {
                if let Some([from, until]) = numbers(rest) {
                    self.without_time.borrow_mut().push((from, until));
                }
            }
            ["loaded"] => self.loaded.set(true),
            ["stopped", ..] => self.stopped.set(self.stopped.get() + 1),
            ["checked"] => self.checked.set(true),
            ["district", rest @ ..] => {
                if let Some([warehouse, district, count, newest]) = numbers(rest) {
                    let of = (warehouse as u32, district as u8);
                    let numbers = (count as u32, newest as u32);
                    self.districts.borrow_mut().insert(of, numbers);
                }
            }
            ["broken", rest @ ..] => self.broken.borrow_mut().push(rest.join(" ")),
            _ => (),
        }
    }

    pub fn told(&self) -> usize {
        self.orders.borrow().len()
    }

    /// What is wrong with the orders that clients were told of. Numbers of a district begin at 1, so as many as its
    /// newest one are all of them.
    pub fn judge(&self) -> Vec<String> {
        let mut wrong = self.broken.borrow().clone();
        if self.twice.get() > 0 {
            wrong.push(format!("{} orders were told of twice", self.twice.get()));
        }
        let districts = self.districts.borrow();
        for ((warehouse, district), (count, newest)) in &*districts {
            if count != newest {
                wrong.push(format!(
                    "district {district} of {warehouse} has {count} orders, and the newest is {newest}"
                ));
            }
        }
        let orders = self.orders.borrow();
        let is_lost = |(warehouse, district, id): &&(u32, u8, u32)| {
            let of = districts.get(&(*warehouse, *district));
            of.is_none_or(|(_, newest)| id > newest)
        };
        let lost = orders.iter().filter(is_lost).count();
        if lost > 0 {
            wrong.push(format!("{lost} orders are lost of which a client was told"));
        }
        wrong
    }
}

pub async fn listen(out: ChildStdout, heard: Rc<Heard>) {
    let mut reader = BufReader::new(out);
    loop {
        let (lines, returned) = offload(move || {
            let mut lines = Vec::new();
            // What is there already comes along.
            loop {
                let mut line = String::new();
                if !matches!(reader.read_line(&mut line), Ok(1..)) {
                    break;
                }
                lines.push(line);
                if !reader.buffer().contains(&b'\n') {
                    break;
                }
            }
            (lines, reader)
        })
        .await;
        reader = returned;
        if lines.is_empty() {
            return; // it has ended
        }
        lines.iter().for_each(|line| heard.hear(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(lines: &[&str]) -> Vec<String> {
        let heard = Heard::default();
        lines.iter().for_each(|line| heard.hear(line));
        heard.judge()
    }

    #[test]
    fn an_order_that_was_told_and_is_not_there_is_found() {
        let order = "order 1 2 7 1000";
        assert_eq!(heard(&[order, "district 1 2 7 7"]), Vec::<String>::new());
        for (lines, said) in [
            (vec![order], "are lost"),
            (vec![order, "district 1 2 6 6"], "are lost"),
            (vec![order, "district 1 2 6 7"], "has 6 orders"),
            (vec![order, order, "district 1 2 7 7"], "twice"),
            (vec!["broken condition 3"], "condition 3"),
        ] {
            let wrong = heard(&lines);
            assert!(
                wrong.iter().any(|line| line.contains(said)),
                "{lines:?}: {wrong:?}"
            );
        }
    }
}
