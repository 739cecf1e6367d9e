//! Which keys of a file may be loaded, where tenants are: each pair goes to the tenant that it was dumped from.

use plinth_client::{Database, Tenants, clearing, number_of};
use plinth_core::Error;
use plinth_core::KeyRange;
use plinth_core::hash::HashMap;
use plinth_core::key::{TENANT_PREFIX_BYTES, printable};
use plinth_terminal::Outcome;
use plinth_terminal::connect::{Connection, explain};
use plinth_terminal::served::{self, Served};

/// Keys that begin with a number below this may well be of tenants.
const LIKELY_MAX: i64 = 1 << 24;

/// The tenants of a file and those of the database.
#[derive(Default)]
pub struct Spaces {
    /// Tenants of the database that the file does not have: their numbers and names.
    others: HashMap<i64, String>,
    /// The number that the database has given out last.
    last: i64,
    /// The file says which tenants there were, or the user says where its pairs go.
    is_known: bool,
    brought: Vec<i64>,
    served: Vec<Served>,
    /// A key that looks as if it were of a tenant of another database.
    pub doubtful: Option<String>,
    /// Where keys are that may be of no use without what is not in the file, and those that have some of the file.
    carried: Vec<KeyRange>,
    brought_along: Vec<KeyRange>,
}

impl Spaces {
    /// Makes the tenants of the file in the database, unless something is in their way, or it only `looks` for that.
    pub async fn bring(
        connection: &Connection,
        tenants: &Tenants,
        prefix: &[u8],
        looks: bool,
    ) -> Outcome<Spaces> {
        if !prefix.is_empty() && !tenants.named.is_empty() {
            return Err(
                "it has tenants, whose keys can get no prefix; load it without --prefix".into(),
            );
        }
        let bringing = connection.database.run(async |transaction| {
            let there = match transaction.tenants().await {
                // Who may not know the tenants writes what its rights allow.
                Err(Error::permission_denied) if tenants.named.is_empty() => Tenants::default(),
                there => there?,
            };
            let in_the_way = match tenants.named.is_empty() {
                true => None,
                false => transaction.carry_tenants(tenants, None).await?,
            };
            if looks {
                transaction.reset();
            }
            Ok((there, in_the_way))
        });
        let (there, in_the_way) = match bringing.await {
            Ok(brought) => brought,
            Err(Error::transaction_timed_out) => return Err(connection.explain_silence().await),
            Err(error @ Error::permission_denied) => {
                let denial = connection.explain_denial().await;
                let denial = denial.unwrap_or_else(|| explain(error));
                return Err(format!("its tenants cannot be made: {denial}"));
            }
            Err(error) => return Err(format!("its tenants cannot be made: {}", explain(error))),
        };
        match in_the_way {
            Some(in_the_way) => Err(in_the_way.to_string()),
            None => Ok(Spaces::of(tenants, there, prefix)),
        }
    }

    fn of(tenants: &Tenants, there: Tenants, prefix: &[u8]) -> Spaces {
        let brought: Vec<i64> = tenants.named.values().copied().collect();
        let others = there.named.into_iter();
        let others = others.filter(|(_, id)| !brought.contains(id));
        Spaces {
            others: others.map(|(name, id)| (id, printable(&name))).collect(),
            last: there.last,
            is_known: !brought.is_empty(),
            brought,
            served: Vec::new(),
            doubtful: None,
            carried: served::ranges(),
            brought_along: Vec::new(),
        }
        .unless_told(prefix)
    }

    /// Refuses keys that somebody serves, too.
    pub async fn refuse_served(&mut self, connection: &Connection) -> Outcome {
        let found = served::all(&connection.database).await;
        self.served = match found {
            Err(Error::transaction_timed_out) => return Err(connection.explain_silence().await),
            found => found.map_err(|error| format!("cannot read: {}", explain(error)))?,
        };
        Ok(())
    }

    /// Who gives the prefix of a tenant has said which one is meant.
    fn unless_told(self, prefix: &[u8]) -> Spaces {
        match prefix.len() >= TENANT_PREFIX_BYTES {
            true => Spaces {
                is_known: true,
                carried: self.carried,
                ..Spaces::default()
            },
            false => self,
        }
    }

    /// What came with the file and cannot be used as it is: lines for the user.
    pub async fn unusable(&self, database: &Database) -> Vec<String> {
        let mut lines = Vec::new();
        for range in &self.brought_along {
            lines.extend(served::unusable(database, range.clone()).await);
        }
        lines
    }

    /// Whether some keys cannot be loaded.
    pub fn may_refuse(&self) -> bool {
        !self.served.is_empty() || !self.others.is_empty() || !self.is_known && self.last > 0
    }

    /// Refuses a key of a tenant that is another one in this database, or none.
    pub fn check(&mut self, key: &[u8]) -> Result<(), String> {
        if let Some(served) = self.served.iter().find(|served| served.range.contains(key)) {
            return Err(served.line());
        }
        if let Some(at) = self.carried.iter().position(|range| range.contains(key)) {
            self.brought_along.push(self.carried.remove(at));
        }
        let Some(id) = number_of(key) else {
            return Ok(());
        };
        // All others, as those that are text, are no tenants' numbers.
        if id >= LIKELY_MAX && id > self.last && !self.others.contains_key(&id) {
            return Ok(());
        }
        if self.brought.contains(&id) {
            return Ok(());
        }
        if let Some(name) = self.others.get(&id) {
            return Err(format!(
                "the key would be of tenant `{name}' (number {id}) here, and the file does not have that tenant; if \
                 its pairs are of the same one, {}, or else leave them out",
                line_for(id, name)
            ));
        }
        if self.is_known {
            return Ok(()); // nobody's where it comes from, and here
        }
        if (1..=self.last).contains(&id) {
            return Err(format!(
                "the key is where those of a tenant with number {id} are, and there is none here; if it was one's, \
                 {}, or else leave such pairs out",
                line_for(id, "NAME")
            ));
        }
        if id > 0 && self.doubtful.is_none() {
            self.doubtful = Some(format!(
                "there are keys that begin as those of a tenant with number {id} would, and the file has no tenants; \
                 if they are one's, nobody reaches them by its name: clear them (`{}' in plinth cli), {}, and load it \
                 again",
                clearing(id),
                line_for(id, "NAME")
            ));
        }
        Ok(())
    }
}

/// The line that says which tenant the pairs with this number are of.
fn line_for(id: i64, name: &str) -> String {
    format!(
        "begin the file with the line `\\xff/tenant/map/{name}', a tab and `{}'",
        printable(&id.to_be_bytes())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenants(named: &[(&'static str, i64)]) -> Tenants {
        Tenants {
            named: named
                .iter()
                .map(|(name, id)| ((*name).into(), *id))
                .collect(),
            last: named.iter().map(|(_, id)| *id).max().unwrap_or(0),
        }
    }

    fn key(id: i64) -> Vec<u8> {
        [&id.to_be_bytes()[..], b"k"].concat()
    }

    #[test]
    fn a_key_of_a_tenant_goes_to_that_tenant_only() {
        let there = || tenants(&[("zz", 1), ("web", 3)]);
        let mut old = Spaces::of(&Tenants::default(), there(), b"");
        let other = old.check(&key(1)).expect_err("zz's");
        assert!(other.contains("tenant `zz' (number 1)"), "{other}");
        let nobodys = old.check(&key(2)).expect_err("a number that was given out");
        assert!(nobodys.contains("number 2"), "{nobodys}");
        for plain in [&b"users/12345678"[..], b"short", b"", &key(1 << 40)] {
            assert_eq!(old.check(plain), Ok(()));
        }
        assert_eq!(old.doubtful, None);
        // A number that may be given out later: nobody knows whose it is.
        assert_eq!(old.check(&key(9)), Ok(()));
        assert!(old.doubtful.is_some_and(|line| line.contains("number 9")));

        let mut whole = Spaces::of(&tenants(&[("web", 3)]), there(), b"");
        assert_eq!(whole.check(&key(3)), Ok(()));
        assert_eq!(whole.check(&key(2)), Ok(()), "nobody's there either");
        assert!(whole.check(&key(1)).is_err());
        assert_eq!(whole.doubtful, None);
        // Who gives the prefix has said it.
        let mut prefixed = Spaces::of(&Tenants::default(), there(), &1i64.to_be_bytes());
        assert_eq!(prefixed.check(&key(1)), Ok(()));
    }
}
