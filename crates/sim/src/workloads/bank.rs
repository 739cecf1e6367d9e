//! Bank: transfers between accounts, while others add all accounts up in one range read. The sum never changes.

use super::{Boxed, Complaints, Day, Verdict, Workload, number, until_done};
use plinth_client::{Database, RangeOptions};
use plinth_core::KeySelector;
use plinth_runtime::random;

const ACCOUNTS: u64 = 20;
const OPENING_BALANCE: i64 = 100;

pub struct Bank {
    complaints: Complaints,
}

fn key(account: u64) -> Vec<u8> {
    format!("bank/{account:03}").into_bytes()
}

impl Bank {
    pub fn new() -> Self {
        Bank {
            complaints: Complaints::default(),
        }
    }

    async fn transfer(&self, database: &Database) {
        let (from, to) = (random::below(ACCOUNTS), random::below(ACCOUNTS));
        let amount = random::range(1..30) as i64;
        until_done(database, async |tr| {
            let (a, b) = (tr.get(key(from), false), tr.get(key(to), false));
            let balance = number(&a.await?.expect("the account exists"));
            let other = number(&b.await?.expect("the account exists"));
            if from != to && balance >= amount {
                tr.set(key(from), (balance - amount).to_string());
                tr.set(key(to), (other + amount).to_string());
            }
            Ok(())
        })
        .await;
    }

    async fn add_up(&self, database: &Database) {
        let reverse = random::chance(0.5);
        let rows = until_done(database, async |tr| {
            let begin = KeySelector::first_greater_or_equal(&b"bank/"[..]);
            let end = KeySelector::first_greater_or_equal(&b"bank0"[..]);
            tr.get_range_all(
                begin,
                end,
                RangeOptions {
                    reverse,
                    ..Default::default()
                },
                false,
            )
            .await
        })
        .await;
        let sum: i64 = rows.iter().map(|(_, value)| number(value)).sum();
        if rows.len() as u64 != ACCOUNTS || sum != ACCOUNTS as i64 * OPENING_BALANCE {
            self.complaints
                .add(format!("{} accounts hold {sum} in all", rows.len()));
        }
    }
}

impl Workload for Bank {
    fn name(&self) -> &'static str {
        "bank"
    }

    fn setup(&self, database: Database) -> Boxed<'_, ()> {
        Box::pin(async move {
            until_done(&database, async |tr| {
                (0..ACCOUNTS).for_each(|account| tr.set(key(account), OPENING_BALANCE.to_string()));
                Ok(())
            })
            .await
        })
    }

    fn work(&self, database: Database, client: u64, day: Day) -> Boxed<'_, ()> {
        Box::pin(async move {
            while !day.is_over() {
                if client == 0 {
                    self.add_up(&database).await
                } else {
                    self.transfer(&database).await
                }
                day.think().await;
            }
        })
    }

    fn check(&self, database: Database) -> Boxed<'_, Verdict> {
        Box::pin(async move {
            self.add_up(&database).await;
            self.complaints.verdict()
        })
    }

    fn clients(&self) -> u64 {
        3
    }
}
