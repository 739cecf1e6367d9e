//! TLS for clients that are no processes of Plinth and speak a protocol of others, such as ZooKeeper's. They check our
//! certificate as they like. They may show one of their own, which gives them a name and no identity of Plinth's.

use crate::judge::{Judge, Policy, Refused};
use crate::session::{Hearer, Session};
use crate::verifier::{Findings, Looker};
use crate::{Material, PROVIDER, Settings, Source, WallClock, alerts, distinguished, x509};
use bytes::{Bytes, BytesMut};
use plinth_identity::Side;
use plinth_identity::rules::Rules;
use plinth_runtime::net::{Layer, layered};
use plinth_runtime::serve::Connection;
use plinth_runtime::{Boxed, Duration, probe, timeout};
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, UnbufferedServerConnection};
use rustls::sign::SingleCertAndKey;
use rustls::version::{TLS12, TLS13};
use rustls::{CertificateError, ServerConfig};
use std::cell::RefCell;
use std::convert::Infallible;
use std::rc::Rc;
use std::str::FromStr;
use std::sync::Arc;

/// A guest that has not finished the handshake by then is refused.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);
/// Room for the first bytes of a stream.
const FIRST_READ_BYTES: usize = 4 << 10;

/// Whether guests show a certificate: ZooKeeper's `ssl.clientAuth`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ClientAuth {
    /// They must.
    #[default]
    Need,
    /// They may. One that is not good is refused all the same.
    Want,
    /// They are not asked.
    None,
}

impl FromStr for ClientAuth {
    type Err = String;

    fn from_str(text: &str) -> Result<ClientAuth, String> {
        match text {
            "need" => Ok(ClientAuth::Need),
            "want" => Ok(ClientAuth::Want),
            "none" => Ok(ClientAuth::None),
            _ => Err("expected need, want or none".into()),
        }
    }
}

/// What is asked of guests.
#[derive(Clone, Default)]
pub struct Wanted {
    pub auth: ClientAuth,
    /// What a certificate must say that is shown.
    pub rules: Rules,
    /// What they speak, by its name in TLS (ALPN), for clients that insist on it.
    pub protocol: Option<&'static [u8]>,
}

impl From<ClientAuth> for Wanted {
    fn from(auth: ClientAuth) -> Wanted {
        Wanted {
            auth,
            ..Wanted::default()
        }
    }
}

/// What has come of a guest's handshake.
#[derive(Default, Debug)]
pub struct Guest {
    name: RefCell<Option<String>>,
    failure: RefCell<Option<String>>,
}

impl Guest {
    /// The subject of the certificate, as Java prints it; `None` if the guest has shown none, or its subject is empty.
    pub fn name(&self) -> Option<String> {
        self.name.borrow().clone()
    }

    /// Why the connection has failed, a line for the user; `None` if it was only cut.
    pub fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }
}

/// Looks at the certificates of guests.
struct Visitors {
    /// `None` if guests are not asked for certificates.
    judge: Option<Arc<Judge>>,
    auth: ClientAuth,
}

impl Looker for Visitors {
    type Found = Option<String>;

    fn judge(&self, chain: &[CertificateDer], now: u64) -> Result<Option<String>, Refused> {
        let (Some(judge), [own, ..]) = (&self.judge, chain) else {
            return Ok(None);
        };
        judge.trusted(Side::Acceptor, chain, now)?;
        let name = x509::subject(own).and_then(distinguished::text);
        let name = name.ok_or_else(|| Refused {
            line: "the subject of the client's certificate is too long or not UTF-8, so no access list can name it; \
                   make one with another subject"
                .into(),
            told: CertificateError::ApplicationVerificationFailure,
        })?;
        Ok(Some(name).filter(|name| !name.is_empty()))
    }

    fn asks_openers(&self) -> bool {
        self.auth != ClientAuth::None
    }

    fn needs_openers(&self) -> bool {
        self.auth == ClientAuth::Need
    }
}

/// Tells a [`Guest`] what comes of a handshake.
struct ToGuest {
    findings: Arc<Findings<Visitors>>,
    guest: Rc<Guest>,
    shown: Rc<str>,
}

impl ToGuest {
    fn refuse(&self, line: String) {
        self.guest.failure.borrow_mut().get_or_insert(line);
    }
}

impl Hearer for ToGuest {
    fn greeted(&self) -> Result<(), ()> {
        match self.findings.peer() {
            Ok(name) => {
                self.guest.name.replace(name);
                Ok(())
            }
            Err(line) => {
                self.refuse(line);
                Err(())
            }
        }
    }

    fn failed(&self, error: &rustls::Error) {
        let refusal = self.findings.refusal();
        self.refuse(refusal.unwrap_or_else(|| alerts::line_of_guest(error, &self.shown)));
    }
}

/// What handshakes begin with.
struct Ready {
    judge: Option<Arc<Judge>>,
    own: Arc<SingleCertAndKey>,
    shown: Rc<str>,
}

/// Our certificate, and what is asked of guests. Clones share it, so that files can change while the process runs.
/// Connections that have greeted stay as they are.
#[derive(Clone)]
pub struct Guests {
    wanted: Wanted,
    ready: Rc<RefCell<Rc<Ready>>>,
}

impl Guests {
    /// The error is a line for the user.
    pub fn new(material: &Material, wanted: impl Into<Wanted>) -> Result<Guests, String> {
        let wanted = wanted.into();
        let ready = Ready::new(material, &wanted)?;
        Ok(Guests {
            wanted,
            ready: Rc::new(RefCell::new(Rc::new(ready))),
        })
    }

    /// Reads what `settings` say of certificates, its rules apart. The error is a line for the user. The other results
    /// are for [`follow`](Self::follow).
    pub async fn load(
        mut settings: Settings,
        wanted: impl Into<Wanted>,
    ) -> Result<(Guests, Settings, Material), String> {
        let wanted = wanted.into();
        if wanted.auth == ClientAuth::None {
            settings.ca = Some(Source::Bytes(Bytes::new())); // nobody is asked who would have to be trusted
        }
        let material = settings.read().await?;
        Ok((Guests::new(&material, wanted)?, settings, material))
    }

    /// For connections that begin from now on. After an error, which is a line for the user, nothing has changed.
    pub fn exchange(&self, material: &Material) -> Result<(), String> {
        let ready = Ready::new(material, &self.wanted)?;
        self.ready.replace(Rc::new(ready));
        Ok(())
    }

    /// Looks at the files again and again, and takes them when they have changed. `known`: what was read before.
    pub fn follow<'a>(&'a self, settings: &'a Settings, known: Material) -> Boxed<'a, Infallible> {
        Box::pin(async move {
            let exchange = |material: &Material| {
                self.exchange(material)?;
                Ok(self.ready.borrow().shown.clone())
            };
            settings.follow(known, exchange).await
        })
    }

    /// Begins the handshake of a connection that a guest has opened.
    pub fn begin(&self) -> (Box<dyn Layer>, Rc<Guest>) {
        let ready = self.ready.borrow().clone();
        let begun = ready.begin(&self.wanted);
        begun.expect("its configuration was tried")
    }

    /// The handshake of a connection that was accepted. The name is that of the certificate that the guest has shown.
    /// `None`: it has gone before it said a word, as those do that only look whether somebody listens. The error is a
    /// line for the user: the guest is refused.
    pub async fn enter(
        &self,
        connection: Connection,
    ) -> Result<Option<(Connection, Option<String>)>, String> {
        // Boxed: a connection that has greeted has no need of this room.
        let entered = timeout(HANDSHAKE_LIMIT, Box::pin(self.greet(connection))).await;
        entered.unwrap_or_else(|| {
            probe!("guest_handshake_is_too_slow");
            Err(format!(
                "the client has not finished the TLS handshake within {} s",
                HANDSHAKE_LIMIT.as_secs()
            ))
        })
    }

    async fn greet(
        &self,
        mut connection: Connection,
    ) -> Result<Option<(Connection, Option<String>)>, String> {
        let mut arrived = BytesMut::with_capacity(FIRST_READ_BYTES);
        if !matches!(connection.reader.read(&mut arrived).await, Ok(1..)) {
            return Ok(None);
        }
        let (layer, guest) = self.begin();
        let (reader, writer) = (connection.reader, connection.writer);
        let Ok((reader, writer)) = layered(reader, writer, arrived, layer).await else {
            let cut = || "the client has cut the connection in the TLS handshake".into();
            return Err(guest.failure().unwrap_or_else(cut));
        };
        (connection.reader, connection.writer) = (reader, writer);
        Ok(Some((connection, guest.name())))
    }
}

impl Ready {
    fn new(material: &Material, wanted: &Wanted) -> Result<Ready, String> {
        let certified = material.certified_key()?;
        let shown = material.shown(&certified);
        let judge = match wanted.auth {
            ClientAuth::None => None,
            ClientAuth::Need | ClientAuth::Want => {
                let policy = Policy {
                    rules: wanted.rules.clone(),
                    identities: Vec::new(),
                };
                Some(Arc::new(Judge::new(policy, material.trust()?)))
            }
        };
        let ready = Ready {
            judge,
            own: Arc::new(SingleCertAndKey::from(certified)),
            shown: shown.into(),
        };
        let tried = ready.begin(wanted);
        tried.map_err(|error| format!("{}: {error}", ready.shown))?;
        Ok(ready)
    }

    fn begin(&self, wanted: &Wanted) -> Result<(Box<dyn Layer>, Rc<Guest>), rustls::Error> {
        let looker = Visitors {
            judge: self.judge.clone(),
            auth: wanted.auth,
        };
        let findings = Arc::new(Findings::new(looker));
        let guest = Rc::new(Guest::default());
        let hearer = ToGuest {
            findings: findings.clone(),
            guest: guest.clone(),
            shown: self.shown.clone(),
        };
        let builder = ServerConfig::builder_with_details(PROVIDER.clone(), Arc::new(WallClock));
        let mut config = builder
            .with_protocol_versions(&[&TLS13, &TLS12])?
            .with_client_cert_verifier(findings)
            .with_cert_resolver(self.own.clone());
        // A session that is resumed would show no certificate.
        config.send_tls13_tickets = 0;
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.alpn_protocols = wanted.protocol.iter().map(|name| name.to_vec()).collect();
        let connection = UnbufferedServerConnection::new(Arc::new(config))?;
        Ok((Box::new(Session::new(connection, hearer)), guest))
    }
}
