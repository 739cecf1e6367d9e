//! The address behind the name by which others reach this process.
//!
//! The name may not stand for any address yet, or for the one that this machine had before. A process that went on
//! with a former address would call itself by that of another process. So it waits until its name leads to itself.

use plinth_rpc::Place;
use plinth_runtime::{Duration, net, probe, trace_warn};
use std::net::SocketAddr;

/// The name is looked up again after this time.
const PAUSE: Duration = Duration::from_millis(500);
/// A resolver that does not answer within this time is asked again.
const LIMIT: Duration = Duration::from_secs(10);

/// Where others reach a process that listens at `listen` and may have a public place. Waits, and tells why.
pub async fn public_address(
    public: Option<&Place>,
    listen: SocketAddr,
    tell: Option<fn(&str)>,
) -> Option<SocketAddr> {
    let (name, host, port) = match public? {
        Place::At(address) => return Some(*address),
        name @ Place::Named(host, port) => (name, host, *port),
    };
    let mut told = String::new();
    loop {
        let why = match plinth_runtime::timeout(LIMIT, net::resolve(host, port)).await {
            Some(Ok(found)) => match own_among(&found, listen).await {
                Some(own) => return Some(own),
                None => not_here(name, &found, listen),
            },
            Some(Err(error)) => format!("the name {name} is not resolved yet ({error})"),
            None => format!("the name {name} is not resolved yet (the resolver does not answer)"),
        };
        probe!("server_waits_for_its_name");
        if why != told {
            trace_warn!("ServerWaitsForItsName", "name" => name, "why" => why);
            if let Some(tell) = tell {
                tell(&format!("server {listen}: waits: {why}"));
            }
            told = why;
        }
        plinth_runtime::sleep(PAUSE).await;
    }
}

/// The first address that leads to a process here that listens at `listen`.
async fn own_among(found: &[SocketAddr], listen: SocketAddr) -> Option<SocketAddr> {
    for address in found {
        let is_own = match listen.ip().is_unspecified() {
            // Only an address of this machine can be listened at. `0.0.0.0` is every one of IPv4.
            true if listen.is_ipv4() && !address.is_ipv4() => false,
            true => net::listen(SocketAddr::new(address.ip(), 0)).await.is_ok(),
            false => address.ip() == listen.ip(),
        };
        if is_own {
            return Some(*address);
        }
    }
    None
}

fn not_here(name: &Place, found: &[SocketAddr], listen: SocketAddr) -> String {
    let ips: Vec<String> = found.iter().map(|at| at.ip().to_string()).collect();
    let (ips, here) = (ips.join(", "), listen.ip());
    match here.is_unspecified() {
        true => format!(
            "the name {name} stands for {ips}, which this machine does not have; if connections to it are passed on \
            to this machine, give the address with --public-address in place of the name"
        ),
        false => format!(
            "the name {name} stands for {ips}, and not for {here}, where this server listens"
        ),
    }
}
