//! TLS for connections, from the certificates of a process. A connection is a layer of a stream
//! ([`plinth_runtime::net::Layer`]): bytes in, bytes out.
//!
//! - [`Settings`]: which files, and what is asked of others. FoundationDB's options have the same names.
//! - [`Material`]: what is in the files.
//! - [`Certificates`]: begins handshakes with the newest of it, and [follows](Certificates::follow) files that change.
//! - [`Policy`]: what the certificates of others must say, and what they stand for.
//! - [`Guests`]: clients of another protocol, which are no processes of Plinth. They get no identity, only a name.
//!
//! Processes speak TLS 1.3 only, guests also 1.2. Both sides of a connection between processes show a certificate and
//! check the other's. Sessions are not resumed, so that each connection is judged anew, and there is no early data,
//! which could be repeated. The algorithms are those of `ring`. Its random bytes come from the operating system, so
//! simulated clusters do without TLS.
//!
//! Promises: a peer has an identity only if it has the key of a certificate that the policy takes. Whoever changes,
//! leaves out or repeats bytes on the way ends the connection. Each refusal is one line that says what to do.
//! What may never happen: a connection that was to be protected goes on without.

mod alerts;
mod distinguished;
mod guests;
mod judge;
mod material;
mod session;
mod settings;
mod signers;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;
mod verifier;
mod x509;

pub use guests::{ClientAuth, Guest, Guests, Wanted};
pub use judge::Policy;
pub use material::{Material, Part};
pub use settings::{Settings, Source};
pub use signers::overlap;

use judge::Judge;
use plinth_identity::{Side, Verdict};
use plinth_runtime::Boxed;
use plinth_runtime::Duration;
use plinth_runtime::net::Layer;
use rustls::client::{Resumption, UnbufferedClientConnection};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::UnbufferedServerConnection;
use rustls::sign::SingleCertAndKey;
use rustls::time_provider::TimeProvider;
use rustls::version::TLS13;
use rustls::{ClientConfig, ServerConfig};
use session::{Hearer, Session};
use std::cell::RefCell;
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use verifier::{Findings, Peers};

pub(crate) static PROVIDER: LazyLock<Arc<CryptoProvider>> =
    LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));

/// Dates are compared with the wall clock of the runtime.
#[derive(Debug)]
struct WallClock;

impl TimeProvider for WallClock {
    fn current_time(&self) -> Option<UnixTime> {
        let since_1970 = Duration::from_millis(plinth_runtime::unix_time_ms());
        Some(UnixTime::since_unix_epoch(since_1970))
    }
}

/// What handshakes begin with.
struct Ready {
    judge: Arc<Judge>,
    own: Arc<SingleCertAndKey>,
    /// Our certificate, as lines for the user name it.
    shown: Rc<str>,
}

/// The certificates of a process, and what it asks of others. Clones share them, so that files can change while it
/// runs. Connections that have greeted stay as they are.
#[derive(Clone)]
pub struct Certificates {
    policy: Policy,
    ready: Rc<RefCell<Rc<Ready>>>,
}

impl Certificates {
    /// The error is a line for the user.
    pub fn new(material: &Material, policy: Policy) -> Result<Certificates, String> {
        let ready = Ready::new(material, &policy)?;
        Ok(Certificates {
            policy,
            ready: Rc::new(RefCell::new(Rc::new(ready))),
        })
    }

    /// For connections that begin from now on. After an error, which is a line for the user, nothing has changed.
    pub fn exchange(&self, material: &Material) -> Result<(), String> {
        let ready = Ready::new(material, &self.policy)?;
        self.ready.replace(Rc::new(ready));
        Ok(())
    }

    /// Begins the handshake of one side of a new connection. The verdict says what has come of it.
    pub fn begin(&self, side: Side) -> (Box<dyn Layer>, Rc<Verdict>) {
        let ready = self.ready.borrow().clone();
        ready.begin(side).expect("its configuration was tried")
    }

    /// The same, for who keeps it.
    pub fn handshakes(&self) -> Rc<dyn Fn(Side) -> (Box<dyn Layer>, Rc<Verdict>)> {
        let own = self.clone();
        Rc::new(move |side| own.begin(side))
    }

    /// Looks at the files again and again, and takes them when they have changed. Files that are wrong or gone change
    /// nothing. `known`: what was read before.
    pub fn follow<'a>(&'a self, settings: &'a Settings, known: Material) -> Boxed<'a, Infallible> {
        Box::pin(async move {
            let exchange = |material: &Material| {
                self.exchange(material)?;
                Ok(self.ready.borrow().shown.clone())
            };
            settings.follow(known, exchange).await
        })
    }
}

/// Tells a [`Verdict`] what comes of a handshake.
struct ToVerdict {
    findings: Arc<Findings<Peers>>,
    verdict: Rc<Verdict>,
    side: Side,
    shown: Rc<str>,
}

impl Hearer for ToVerdict {
    fn greeted(&self) -> Result<(), ()> {
        match self.findings.peer() {
            Ok(peer) => {
                self.verdict.admit(peer);
                Ok(())
            }
            Err(line) => {
                self.verdict.refuse(line);
                Err(())
            }
        }
    }

    fn failed(&self, error: &rustls::Error) {
        self.verdict.refuse(match self.findings.refusal() {
            Some(line) => line,
            None => alerts::line(self.side, error, &self.shown),
        });
    }
}

impl Ready {
    fn new(material: &Material, policy: &Policy) -> Result<Ready, String> {
        let certified = material.certified_key()?;
        let shown = material.shown(&certified);
        let judge = Judge::new(policy.clone(), material.trust()?);
        let ready = Ready {
            judge: Arc::new(judge),
            own: Arc::new(SingleCertAndKey::from(certified)),
            shown: shown.into(),
        };
        for side in [Side::Opener, Side::Acceptor] {
            let tried = ready.begin(side);
            tried.map_err(|error| format!("{}: {error}", ready.shown))?;
        }
        Ok(ready)
    }

    fn begin(&self, side: Side) -> Result<(Box<dyn Layer>, Rc<Verdict>), rustls::Error> {
        let looker = Peers {
            judge: self.judge.clone(),
            side,
        };
        let findings = Arc::new(Findings::new(looker));
        let verdict = Rc::new(Verdict::default());
        let hearer = ToVerdict {
            findings: findings.clone(),
            verdict: verdict.clone(),
            side,
            shown: self.shown.clone(),
        };
        let layer: Box<dyn Layer> = match side {
            Side::Opener => Box::new(Session::new(self.open(findings)?, hearer)),
            Side::Acceptor => Box::new(Session::new(self.accept(findings)?, hearer)),
        };
        Ok((layer, verdict))
    }

    fn open(
        &self,
        findings: Arc<Findings<Peers>>,
    ) -> Result<UnbufferedClientConnection, rustls::Error> {
        let builder = ClientConfig::builder_with_details(PROVIDER.clone(), Arc::new(WallClock));
        let mut config = builder
            .with_protocol_versions(&[&TLS13])?
            .dangerous() // the verifier does more than the one of `rustls`, which knows names only
            .with_custom_certificate_verifier(findings)
            .with_client_cert_resolver(self.own.clone());
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        // The name is not used: processes are known by address, and certificates by rules.
        let nobody = ServerName::from(std::net::IpAddr::from(Ipv4Addr::UNSPECIFIED));
        UnbufferedClientConnection::new(Arc::new(config), nobody)
    }

    fn accept(
        &self,
        findings: Arc<Findings<Peers>>,
    ) -> Result<UnbufferedServerConnection, rustls::Error> {
        let builder = ServerConfig::builder_with_details(PROVIDER.clone(), Arc::new(WallClock));
        let mut config = builder
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(findings)
            .with_cert_resolver(self.own.clone());
        config.send_tls13_tickets = 0;
        UnbufferedServerConnection::new(Arc::new(config))
    }
}
