//! Tokens: clients that may do nothing without one. What a token does not grant, or grants no more, never succeeds;
//! what it grants is never refused. One of two keys is revoked and trusted again.

use super::{
    Boxed, Complaints, Day, Space, Verdict, Workload, get_together, read_rows, until_done,
};
use crate::cluster::Shape;
use bytes::Bytes;
use plinth_access::{clients_row, key_row};
use plinth_client::{Database, RangeOptions, Transaction, TransactionOption};
use plinth_core::key::prefix_end;
use plinth_core::{Error, Key, KeyRange, Result};
use plinth_identity::tokens::{Claims, SigningKey};
use plinth_runtime::random::{below, chance};
use plinth_runtime::{Duration, Instant, now, probe, sleep, timeout, unix_time_ms};
use std::cell::Cell;
use std::rc::Rc;

pub(super) const NAME: &str = "tokens";
const GROUPS: u64 = 6;
const ROWS: u64 = 4;
/// All roles have heard of a change by then.
const KNOWN: Duration = Duration::from_secs(12);
const OPERATION_LIMIT: Duration = Duration::from_secs(30);
/// Longest life of a token.
const SECONDS_MAX: u64 = 8;

/// What is known of the key that is revoked now and then.
#[derive(Clone, Copy, PartialEq)]
struct Standing {
    /// `None`: it is being changed.
    is_trusted: Option<bool>,
    since: Instant,
}

pub struct Tokens {
    space: Space,
    shape: Shape,
    steady: SigningKey,
    revoked: SigningKey,
    standing: Cell<Standing>,
    complaints: Complaints,
}

fn unix_seconds() -> u64 {
    unix_time_ms() / 1000
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Operation {
    Get,
    Range,
    Set,
    Clear,
}

impl Tokens {
    pub fn new(space: Space, shape: &Shape) -> Self {
        let key = |name: &str, byte| SigningKey::new(name, [byte; 32]).expect("a name");
        Tokens {
            space,
            shape: shape.clone(),
            steady: key("steady", 1),
            revoked: key("revoked", 2),
            standing: Cell::new(Standing {
                is_trusted: None,
                since: Instant::default(),
            }),
            complaints: Complaints::default(),
        }
    }

    /// Every key of a group has it.
    fn prefix(&self, group: u64) -> Key {
        Key::from([&self.space.key(group, GROUPS)[..], b"/"].concat())
    }

    fn row(&self, group: u64) -> Key {
        let number = below(ROWS).to_string();
        Key::from([&self.prefix(group)[..], number.as_bytes()].concat())
    }

    async fn set_rows(&self, change: impl Fn(&Transaction)) {
        until_done(&self.shape.connect(), async |tr: Transaction| {
            tr.set_option(TransactionOption::AccessSystemKeys)?;
            tr.set_option(TransactionOption::LockAware)?;
            change(&tr);
            Ok(())
        })
        .await;
    }

    async fn set_trusted(&self, is_trusted: bool) {
        let changing = |is_trusted| Standing {
            is_trusted,
            since: now(),
        };
        self.standing.set(changing(None));
        self.set_rows(|tr| match is_trusted {
            true => tr.set(key_row("revoked"), self.revoked.public().bytes()),
            false => tr.clear(key_row("revoked")),
        })
        .await;
        self.standing.set(changing(Some(is_trusted)));
    }

    async fn attempt(
        &self,
        database: &Database,
        operation: Operation,
        (group, own): (u64, u64),
        token: &str,
    ) -> Result<()> {
        let transaction = database.create_transaction();
        transaction.set_authorization_token(token)?;
        let prefix = self.prefix(group);
        match operation {
            Operation::Get if chance(0.5) => {
                // The token may grant one of the rows and not the other.
                let rows = [group, own].map(|group| (self.row(group), false));
                let mut values = get_together(&transaction, rows.into()).await;
                return values.swap_remove(0).map(drop);
            }
            Operation::Get => return transaction.get(self.row(group), false).await.map(drop),
            Operation::Range => {
                let end = prefix_end(&prefix).expect("it ends with a slash");
                let (begin, end) = KeyRange::new(prefix, end).selectors();
                let options = RangeOptions::default();
                let rows = transaction.get_range(begin, end, options, chance(0.5));
                return rows.await.map(drop);
            }
            Operation::Set => transaction.set(self.row(group), group.to_string()),
            Operation::Clear => transaction.clear(self.row(group)),
        }
        transaction.commit().await
    }

    /// One operation with a token that may be for another group, or over, or of a key that is revoked.
    async fn work_once(&self, database: &Database) {
        let is_steady = chance(0.6);
        let key = if is_steady {
            &self.steady
        } else {
            &self.revoked
        };
        let own = below(GROUPS);
        let group = if chance(0.6) { own } else { below(GROUPS) };
        let until = unix_seconds() + 1 + below(SECONDS_MAX);
        let claims = Claims {
            until,
            read: vec![self.prefix(own)],
            write: vec![self.prefix(own)],
            ..Claims::default()
        };
        let token = key.sign(&claims).expect("it is well-formed");
        // The second time, roles remember it.
        for _ in 0..2 {
            let all = [
                Operation::Get,
                Operation::Range,
                Operation::Set,
                Operation::Clear,
            ];
            let operation = all[below(4) as usize];
            let (began, before) = (unix_seconds(), self.standing.get());
            let is_settled = before.since.elapsed() > KNOWN;
            let attempt = self.attempt(database, operation, (group, own), &token);
            let Some(ended) = timeout(OPERATION_LIMIT, attempt).await else {
                return;
            };
            let is_settled = is_settled && before == self.standing.get();
            let stands = |trusted| is_settled && before.is_trusted == Some(trusted);
            let is_foreign = group != own;
            let must_fail = is_foreign || began >= until || !is_steady && stands(false);
            let is_over = unix_seconds() >= until;
            let may_fail = is_foreign || is_over || !is_steady && !stands(true);
            let about =
                || format!("{operation:?} of {group} with {own} until {until}, from {began}");
            match ended {
                Ok(()) if must_fail => self.complaints.add(format!("{}: done", about())),
                Err(Error::permission_denied) if !may_fail => {
                    self.complaints.add(format!("{}: refused", about()));
                }
                Ok(()) => probe!("token_is_enough"),
                Err(Error::permission_denied) => probe!("token_is_refused"),
                Err(_) => {}
            }
            sleep(Duration::from_millis(below(SECONDS_MAX * 1500))).await;
        }
    }
}

impl Workload for Tokens {
    fn name(&self) -> &'static str {
        NAME
    }

    fn setup(&self, _: Database) -> Boxed<'_, ()> {
        Box::pin(async {
            self.set_rows(|tr| {
                tr.set(clients_row(), "tokens");
                tr.set(key_row("steady"), self.steady.public().bytes());
                for group in 0..GROUPS {
                    tr.set(self.row(group), group.to_string());
                }
            })
            .await;
            self.set_trusted(true).await;
            sleep(KNOWN).await;
        })
    }

    fn work(&self, database: Database, client: u64, day: Day) -> Boxed<'_, ()> {
        Box::pin(day.fill(async move || {
            if client == 0 && chance(0.05) {
                self.set_trusted(chance(0.5)).await;
            }
            self.work_once(&database).await;
        }))
    }

    fn check(&self, _: Database) -> Boxed<'_, Verdict> {
        Box::pin(async {
            self.complaints.verdict()?;
            for (key, value) in read_rows(&self.shape.connect(), self.space).await {
                let group = (0..GROUPS).find(|group| key.starts_with(&self.prefix(*group)));
                let wanted = group.map(|group| Bytes::from(group.to_string()));
                if wanted != Some(value) {
                    return Err(format!("{key:?} was written without a right"));
                }
            }
            Ok(())
        })
    }

    fn clients(&self) -> u64 {
        3
    }

    fn shows_tokens(&self) -> bool {
        true
    }
}

/// The workload, for a cluster where clients have nothing but tokens.
pub fn of(space: Space, shape: &Shape) -> Option<Rc<dyn Workload>> {
    shape
        .has_tokens
        .then(|| Rc::new(Tokens::new(space, shape)) as Rc<dyn Workload>)
}
