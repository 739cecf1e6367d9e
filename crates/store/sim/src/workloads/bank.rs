//! Bank: transfers between accounts, while others sum up all accounts in one range read. The sum must never change.

use super::{Boxed, Complaints, Day, Space, Verdict, Workload, number, until_done};
use plinth_client::{Database, RangeOptions, TransactionOption};
use plinth_core::Key;
use plinth_core::transaction_tag::TransactionTag;
use plinth_runtime::random;

const ACCOUNTS: u64 = 20;
const OPENING_BALANCE: i64 = 100;

pub struct Bank {
    space: Space,
    complaints: Complaints,
}

/// The tag of these transactions; operators throttle it.
pub fn tag() -> TransactionTag {
    TransactionTag::new(b"bank").expect("short")
}

impl Bank {
    pub fn new(space: Space) -> Self {
        let complaints = Complaints::default();
        Bank { space, complaints }
    }

    fn key(&self, account: u64) -> Key {
        self.space.key(account, ACCOUNTS)
    }

    async fn transfer(&self, database: &Database) {
        let (from, to) = (random::below(ACCOUNTS), random::below(ACCOUNTS));
        let amount = random::range(1..30) as i64;
        until_done(database, async |tr| {
            tr.set_option(TransactionOption::AutoThrottleTag(tag()))?;
            let (a, b) = (tr.get(self.key(from), false), tr.get(self.key(to), false));
            let balance = number(&a.await?.expect("the account exists"));
            let other = number(&b.await?.expect("the account exists"));
            if from != to && balance >= amount {
                tr.set(self.key(from), (balance - amount).to_string());
                tr.set(self.key(to), (other + amount).to_string());
            }
            Ok(())
        })
        .await;
    }

    async fn add_up(&self, database: &Database) {
        let options = RangeOptions::default().reversed_if(random::chance(0.5));
        let rows = until_done(database, async |tr| {
            tr.get_rows(self.space.range(), options, false).await
        })
        .await;
        let sum: i64 = rows.iter().map(|(_, value)| number(value)).sum();
        if rows.len() as u64 != ACCOUNTS || sum != ACCOUNTS as i64 * OPENING_BALANCE {
            let text = format!("{} accounts hold {sum} in all", rows.len());
            self.complaints.add(text);
        }
    }
}

impl Workload for Bank {
    super::kind!("bank", |space, _| Bank::new(space));

    fn setup(&self, database: Database) -> Boxed<'_, ()> {
        Box::pin(async move {
            until_done(&database, async |tr| {
                for account in 0..ACCOUNTS {
                    tr.set(self.key(account), OPENING_BALANCE.to_string());
                }
                Ok(())
            })
            .await
        })
    }

    fn work(&self, database: Database, client: u64, day: Day) -> Boxed<'_, ()> {
        Box::pin(day.fill(async move || match client {
            0 => self.add_up(&database).await,
            _ => self.transfer(&database).await,
        }))
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
