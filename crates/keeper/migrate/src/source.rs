//! Sessions with a live ZooKeeper.

use crate::Outcome;
use plinth_keeper::client::{Client, Failure, Outcome as Answered, why_lost};
use plinth_keeper::wire::{Answer, Code, Request, Text};
use plinth_runtime::sync::Permits;
use plinth_runtime::{Duration, Either, now, race, sleep};
use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::future::{Future, pending};
use std::net::SocketAddr;
use std::rc::Rc;

const TIMEOUT_MS: i32 = 20_000;
/// How long nobody may answer before the command gives up.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(200);
/// Whoever waits for so long is told why.
const SILENT: Duration = Duration::from_secs(1);

/// Where a ZooKeeper is, and as whom it is spoken to.
#[derive(Clone, Debug)]
pub struct Servers {
    pub addresses: Vec<SocketAddr>,
    /// Schemes and what they take: `digest` and `user:password`.
    pub auth: Vec<(String, String)>,
    /// Is told, after a second, that nobody answers, and for how many seconds more that is waited for.
    pub waits: fn(u64, &str),
}

/// One session, or one after the other: a connection that breaks is made again.
pub struct Link {
    servers: Rc<Servers>,
    /// Of several one says that nobody answers.
    tells: bool,
    next: Cell<usize>,
    client: RefCell<Option<Rc<Client>>>,
    making: Permits,
    /// Largest zxid of the sessions before.
    seen: Cell<i64>,
    /// How many sessions there were.
    sessions: Cell<u64>,
    /// Watched with everything below, if the server can do that.
    watched: Option<Text>,
    has_watch: Cell<bool>,
}

/// The line about users whom the server does not know, with the schemes by which they were named: it may be that
/// somebody has left one out.
fn unknown_user(auth: &[(String, String)]) -> String {
    let schemes: Vec<String> = auth
        .iter()
        .map(|(scheme, _)| format!("`{scheme}'"))
        .collect();
    format!(
        "the server refuses --auth (AuthFailed), with the scheme {}: name scheme and user, as in \
         digest:user:password",
        schemes.join(", ")
    )
}

fn no_answer(address: SocketAddr) -> String {
    format!("{address}: no ZooKeeper answers there")
}

impl Link {
    /// `number` spreads links over servers. `watched` is a path of which the link is told all changes.
    pub fn new(servers: Rc<Servers>, number: usize, watched: Option<Text>) -> Link {
        Link {
            servers,
            tells: number == 0,
            next: Cell::new(number),
            client: RefCell::new(None),
            making: Permits::new(1),
            seen: Cell::new(0),
            sessions: Cell::new(0),
            has_watch: Cell::new(watched.is_some()),
            watched,
        }
    }

    /// False if the server cannot watch a whole tree (before 3.6).
    pub fn has_watch(&self) -> bool {
        self.has_watch.get()
    }

    pub fn sessions(&self) -> u64 {
        self.sessions.get()
    }

    /// Largest zxid that a server has said.
    pub fn last_zxid(&self) -> i64 {
        let client = self.client.borrow();
        let own = client.as_ref().map_or(0, |client| client.last_zxid());
        self.seen.get().max(own)
    }

    fn alive(&self) -> Option<Rc<Client>> {
        let client = self.client.borrow();
        client.clone().filter(|client| client.failure().is_none())
    }

    /// The session, made if there is none. Its server has everything that was committed before it was made.
    pub async fn client(&self) -> Outcome<Rc<Client>> {
        if let Some(client) = self.alive() {
            return Ok(client);
        }
        let _permit = self.making.take().await;
        // The first time, an address that is wrong should be said soon.
        let patience = match self.sessions.get() {
            0 => PATIENCE / 6,
            _ => PATIENCE,
        };
        let told = async {
            sleep(SILENT).await;
            if self.tells {
                (self.servers.waits)(patience.as_secs(), &no_answer(self.address()));
            }
            pending::<Infallible>().await
        };
        match race(self.dial(patience), told).await {
            Either::Left(dialled) => dialled,
            Either::Right(never) => match never {},
        }
    }

    /// The server whose turn it is.
    fn address(&self) -> SocketAddr {
        self.servers.addresses[self.next.get() % self.servers.addresses.len()]
    }

    async fn dial(&self, patience: Duration) -> Outcome<Rc<Client>> {
        let began = now();
        loop {
            if let Some(client) = self.alive() {
                return Ok(client);
            }
            let address = self.address();
            let line = match self.open(address).await {
                Ok(client) => {
                    if let Some(before) = self.client.take() {
                        self.seen.set(self.seen.get().max(before.last_zxid()));
                    }
                    let client = Rc::new(client);
                    *self.client.borrow_mut() = Some(client.clone());
                    self.sessions.set(self.sessions.get() + 1);
                    return Ok(client);
                }
                Err(Failure::Lost) => no_answer(address),
                Err(Failure::Refused(Code::AUTH_FAILED)) => {
                    return Err(format!("{address}: {}", unknown_user(&self.servers.auth)));
                }
                Err(failure) => return Err(format!("{address}: {failure}")),
            };
            self.next.set(self.next.get() + 1);
            if began.elapsed() > patience {
                return match line == no_answer(address) {
                    true => Err(format!("{line}: {}", why_lost(address).await)),
                    false => Err(line),
                };
            }
            sleep(PAUSE).await;
        }
    }

    async fn open(&self, address: SocketAddr) -> Result<Client, Failure> {
        let client = Client::connect(address, TIMEOUT_MS, None).await?;
        for (scheme, auth) in &self.servers.auth {
            let request = Request::Auth {
                kind: 0,
                scheme: scheme.as_str().into(),
                auth: Some(auth.clone().into()),
            };
            client.submit(request).await?;
        }
        if let Some(path) = self.watched.clone().filter(|_| self.has_watch.get()) {
            let mode = plinth_keeper::wire::watch_mode::PERSISTENT_RECURSIVE;
            match client.submit(Request::AddWatch { path, mode }).await {
                Ok(_) => {}
                // An older server does not know the request, and hangs up.
                Err(Failure::Refused(Code::UNIMPLEMENTED) | Failure::Lost)
                    if self.sessions.get() == 0 =>
                {
                    self.has_watch.set(false);
                    return Err(Failure::Lost);
                }
                Err(failure) => return Err(failure),
            }
        }
        let path = Text::from_static("/");
        client.submit(Request::Sync { path: Some(path) }).await?;
        Ok(client)
    }

    /// Sends a request at once, over the session that there is; what cannot be sent so is sent again by
    /// [`Link::finish`].
    pub fn send(&self, request: Request) -> Sent {
        let going = self.alive().map(|client| {
            let going: Going = Box::pin(client.submit(request.clone()));
            (client, going)
        });
        Sent { request, going }
    }

    /// The answer to a request that only reads. It is asked again while connections break.
    ///
    /// # Errors
    /// Nobody answers. The inner error is the server's.
    pub async fn finish(&self, sent: Sent) -> Outcome<Result<Answer, Code>> {
        let mut sent = sent;
        loop {
            if let Some((client, going)) = sent.going.take() {
                if let Some(answer) = settled(going.await)? {
                    return Ok(answer);
                }
                self.give_up(&client);
            }
            self.client().await?;
            sent = self.send(sent.request);
        }
    }

    /// The session is over, whatever its connection does.
    fn give_up(&self, client: &Rc<Client>) {
        let mut current = self.client.borrow_mut();
        if current
            .as_ref()
            .is_some_and(|current| Rc::ptr_eq(current, client))
        {
            self.seen.set(self.seen.get().max(client.last_zxid()));
            *current = None;
        }
    }

    pub async fn ask(&self, request: Request) -> Outcome<Result<Answer, Code>> {
        self.finish(self.send(request)).await
    }

    /// Everything that was committed before is then known to the link's server.
    pub async fn sync(&self) -> Outcome {
        let path = Text::from_static("/");
        self.ask(Request::Sync { path: Some(path) })
            .await
            .map(|_| ())
    }

    /// Ends the session.
    pub async fn close(&self) {
        let client = self.client.take();
        if let Some(client) = client.and_then(Rc::into_inner) {
            let _ = client.close().await; // it ends by itself, too
        }
    }
}

type Going = std::pin::Pin<Box<dyn Future<Output = Answered>>>;

/// A request that may be on its way.
pub struct Sent {
    request: Request,
    going: Option<(Rc<Client>, Going)>,
}

/// `None` if the connection broke.
fn settled(answered: Answered) -> Outcome<Option<Result<Answer, Code>>> {
    match answered {
        Ok((_, answer)) => Ok(Some(Ok(answer))),
        Err(Failure::Refused(Code::CONNECTION_LOSS | Code::SESSION_EXPIRED)) => Ok(None),
        Err(Failure::Refused(code)) => Ok(Some(Err(code))),
        Err(Failure::Lost) => Ok(None),
        Err(failure) => Err(failure.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_who_is_refused_is_told_the_scheme_that_was_named() {
        let line = unknown_user(&[("bob".into(), "pw".into())]);
        assert!(line.contains("the scheme `bob'"), "{line}");
        assert!(line.ends_with("as in digest:user:password"), "{line}");
    }
}
