//! What clients may do with a token and without one, in a cluster with keys.

use plinth_access::{Clients, clients_row, key_row};
use plinth_client::{Database, RangeOptions, Transaction, TransactionOption};
use plinth_coordination::{ClusterFile, Coordinators, election};
use plinth_core::key::KeyRange;
use plinth_core::system_keys::METADATA_VERSION;
use plinth_core::{DatabaseConfig, Error, KeySelector, MutationKind, Result, Version};
use plinth_identity::Identity;
use plinth_identity::keys::{KeyFile, Keyring};
use plinth_identity::tokens::{Claims, SigningKey, Tenant};
use plinth_protocol::control::GetClientInfo;
use plinth_protocol::storage::{Get, GetKey, GetRange, Watch};
use plinth_protocol::token::Token;
use plinth_protocol::transaction::GetKeyLocations;
use plinth_rpc::{Credentials, Interface, Request, Transport};
use plinth_runtime::sim::{Locality, SimConfig, Simulation};
use plinth_runtime::{Duration, disk, sleep, spawn, timeout, unix_time_ms};
use plinth_server::{WorkerConfig, create_database, run_worker};
use std::net::SocketAddr;
use std::path::Path;

const ADDRESS: &str = "10.0.0.1:4500";
const FILE: &str = "/data/plinth.cluster";
/// All roles know a change by then.
const KNOWN: Duration = Duration::from_secs(4);
const DENIED: Error = Error::permission_denied;

fn address() -> SocketAddr {
    ADDRESS.parse().expect("an address")
}

fn cluster() -> ClusterFile {
    ClusterFile::parse(&format!("test:a@{ADDRESS}")).expect("valid")
}

fn keys() -> KeyFile {
    KeyFile::new_root([7; 32])
}

/// Somebody who has no more than the key of this identity.
fn holder(identity: Identity) -> Credentials {
    let file = match identity {
        Identity::Server => keys(),
        lower => keys().for_identity(lower).expect("lower"),
    };
    Credentials::new(Some(Keyring::new(&file)), identity)
}

async fn server() {
    let keys = Path::new("/data/plinth.keys");
    disk::create_dir_all(Path::new("/data"))
        .await
        .expect("made");
    let text = keys_text();
    disk::write_file_durably(keys, text).await.expect("written");
    let config = WorkerConfig {
        cluster_file: Some(FILE.into()),
        is_keyed: true,
        ..WorkerConfig::new(address(), "/data", cluster())
    };
    let Err(line) = run_worker(config).await;
    panic!("the worker ended: {line}");
}

fn keys_text() -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(keys().print().as_bytes())
}

struct World {
    operator: Database,
    client: Database,
}

/// Runs `story` beside a cluster that trusts the key `web`, where clients need a token for everything.
fn with_tokens<F: Future<Output = ()>>(story: impl FnOnce(World) -> F + 'static) {
    let simulation = Simulation::new(1, SimConfig::default());
    let machine = simulation.add_machine(Locality::default());
    simulation.start_process(machine, address(), || Box::pin(server()));
    let run = async {
        let coordinators = Coordinators::from(cluster());
        let connect =
            |identity| plinth_client::connect_with(holder(identity), coordinators.clone());
        let transport = Transport::client_with(holder(Identity::Server));
        let created = create_database(&transport, &coordinators, DatabaseConfig::default()).await;
        created.expect("it is new");
        let world = World {
            operator: connect(Identity::Operator),
            client: connect(Identity::Client),
        };
        world.trust(Some(&signer())).await;
        world.let_clients(Clients::Tokens).await;
        world.fill().await;
        story(world).await;
    };
    let ended = simulation.run_until(run, Duration::from_secs(600));
    ended.expect("it comes to its end");
}

fn signer() -> SigningKey {
    SigningKey::new("web", [1; 32]).expect("a name")
}

fn now() -> u64 {
    unix_time_ms() / 1000
}

/// Reads of `app/`, writes of `app/cart/`, for a minute.
fn claims() -> Claims {
    Claims {
        until: now() + 60,
        read: vec!["app/".into()],
        write: vec!["app/cart/".into()],
        ..Claims::default()
    }
}

fn signed(claims: &Claims) -> String {
    signer().sign(claims).expect("good")
}

impl World {
    async fn change(&self, change: impl Fn(&Transaction)) {
        let changed = self.operator.run(async |tr| {
            tr.set_option(TransactionOption::AccessSystemKeys)?;
            change(&tr);
            Ok(())
        });
        changed.await.expect("an operator may");
        sleep(KNOWN).await;
    }

    /// `None`: revokes it.
    async fn trust(&self, key: Option<&SigningKey>) {
        let public = key.map(SigningKey::public);
        self.change(|tr| match &public {
            Some(public) => tr.set(key_row("web"), public.bytes()),
            None => tr.clear(key_row("web")),
        })
        .await;
    }

    async fn let_clients(&self, clients: Clients) {
        self.change(|tr| tr.set(clients_row(), clients.name()))
            .await;
    }

    async fn fill(&self) {
        let filled = self.operator.run(async |tr| {
            for key in ["app.", "app/a", "app/b", "app/cart/1", "app0", "z"] {
                tr.set(key, "value");
            }
            Ok(())
        });
        filled.await.expect("an operator may");
    }

    fn with(&self, token: &str) -> Transaction {
        let transaction = self.client.create_transaction();
        let set = transaction.set_authorization_token(token);
        set.expect("it is short enough");
        transaction
    }

    async fn get(&self, token: &str, key: &str) -> Result<bool> {
        let value = self.with(token).get(key, false).await?;
        Ok(value.is_some())
    }

    async fn set(&self, token: &str, key: &str) -> Result<()> {
        let transaction = self.with(token);
        transaction.set(key, "new");
        transaction.commit().await
    }

    async fn range(&self, token: &str, begin: &str, end: &str, reverse: bool) -> Result<usize> {
        let options = RangeOptions {
            reverse,
            ..RangeOptions::default()
        };
        let begin = KeySelector::first_greater_or_equal(begin.to_owned());
        let end = KeySelector::first_greater_or_equal(end.to_owned());
        let rows = self
            .with(token)
            .get_range(begin, end, options, false)
            .await?;
        Ok(rows.rows.len())
    }
}

#[test]
fn a_client_without_a_token_has_what_is_configured() {
    with_tokens(|world| async move {
        let read = async || {
            world
                .client
                .create_transaction()
                .get("app/a", false)
                .await
                .map(drop)
        };
        let write = async || {
            let transaction = world.client.create_transaction();
            transaction.set("app/a", "x");
            transaction.commit().await
        };
        let watch = async || {
            let transaction = world.client.create_transaction();
            transaction.set_option(TransactionOption::ReadSystemKeys)?;
            let watch = transaction.watch("app/a");
            transaction.commit().await?;
            match timeout(Duration::from_secs(1), watch).await {
                None => Ok(()),
                Some(ended) => ended,
            }
        };
        let all = async || [read().await, watch().await, write().await];
        assert_eq!(all().await, [Err(DENIED); 3]);
        world.let_clients(Clients::Reads).await;
        assert_eq!(all().await, [Ok(()), Ok(()), Err(DENIED)]);
        world.let_clients(Clients::All).await;
        assert_eq!(all().await, [Ok(()); 3]);
        world.let_clients(Clients::Tokens).await;
        assert_eq!(all().await, [Err(DENIED); 3]);
        let written = world.operator.run(async |tr| {
            tr.set("app/a", "operators need none");
            tr.get("z", false).await
        });
        assert!(written.await.is_ok());
    });
}

#[test]
fn a_database_shows_its_token_in_every_transaction_until_another_one_is_set() {
    with_tokens(|world| async move {
        let token = signed(&claims());
        let shows = world.client.with_authorization_token(&token[..]);
        let shows = shows.expect("it is short enough");
        let transaction = shows.create_transaction();
        assert!(transaction.get("app/a", false).await.is_ok());
        assert_eq!(transaction.get("z", false).await, Err(DENIED));
        transaction.reset();
        assert!(transaction.get("app/a", false).await.is_ok());
        let run = shows.run(async |tr| tr.get("app/a", false).await);
        assert!(run.await.is_ok());
        let other = transaction.set_authorization_token("no token");
        other.expect("it is short enough");
        // What was read before is remembered.
        assert_eq!(transaction.get("app/b", false).await, Err(DENIED));
        // The handle that it was made of shows none.
        let bare = world.client.create_transaction();
        assert_eq!(bare.get("app/a", false).await, Err(DENIED));
        let wrong = world.client.with_authorization_token("").err();
        assert_eq!(wrong, Some(Error::invalid_option_value));
    });
}

#[test]
fn a_token_grants_its_prefixes_and_not_what_is_just_beside_them() {
    with_tokens(|world| async move {
        let token = &signed(&claims());
        assert_eq!(world.get(token, "app/a").await, Ok(true));
        assert_eq!(world.get(token, "app/").await, Ok(false));
        for outside in ["app.", "app0", "app", "z", ""] {
            assert_eq!(world.get(token, outside).await, Err(DENIED), "{outside}");
        }
        for reverse in [false, true] {
            let range = async |begin, end| world.range(token, begin, end, reverse).await;
            assert_eq!(range("app/", "app0").await, Ok(3));
            assert_eq!(range("app/b", "app/c").await, Ok(1));
            for (begin, end) in [
                ("app/", "app0\0"),
                ("app", "app0"),
                ("", "z"),
                ("app0", "z"),
            ] {
                assert_eq!(range(begin, end).await, Err(DENIED), "{begin} {end}");
            }
        }
        let key = async |selector: KeySelector| world.with(token).get_key(selector, false).await;
        let found = key(KeySelector::first_greater_than("app/a")).await;
        assert_eq!(found.as_deref(), Ok(&b"app/b"[..]));
        let off = key(KeySelector::first_greater_than("app/cart/1")).await;
        assert_eq!(off, Err(DENIED), "the next key is another's");

        assert_eq!(world.set(token, "app/cart/2").await, Ok(()));
        for outside in ["app/a", "app/cart", "app/cart0", "z"] {
            assert_eq!(world.set(token, outside).await, Err(DENIED), "{outside}");
        }
        let clear = async |begin: &str, end: &str| {
            let transaction = world.with(token);
            transaction.clear_range(begin, end);
            transaction.commit().await
        };
        assert_eq!(clear("app/cart/", "app/cart0").await, Ok(()));
        assert_eq!(clear("app/cart/", "app/cart0\0").await, Err(DENIED));
        let stamp = async |prefix: &str| {
            let transaction = world.with(token);
            let offset = (prefix.len() as u32).to_le_bytes();
            let key = [prefix.as_bytes(), &[0; 10], &offset].concat();
            transaction.atomic_op(MutationKind::SetVersionstampedKey, key, "x");
            transaction.commit().await
        };
        assert_eq!(stamp("app/cart/").await, Ok(()));
        assert_eq!(stamp("app/car").await, Err(DENIED));
        let still = world
            .operator
            .run(async |tr| tr.get("z", false).await)
            .await;
        assert_eq!(still.expect("read").as_deref(), Some(&b"value"[..]));
    });
}

#[test]
fn conflicts_tell_and_touch_nothing_that_is_not_granted() {
    with_tokens(|world| async move {
        let token = &signed(&claims());
        let commit = async |change: &dyn Fn(&Transaction)| {
            let transaction = world.with(token);
            transaction.set("app/cart/1", "x");
            change(&transaction);
            transaction.commit().await
        };
        assert_eq!(
            commit(&|tr| tr.add_read_conflict_key("app/a")).await,
            Ok(())
        );
        assert_eq!(
            commit(&|tr| tr.add_read_conflict_key("z")).await,
            Err(DENIED)
        );
        assert_eq!(
            commit(&|tr| tr.add_write_conflict_key("app/cart/9")).await,
            Ok(())
        );
        assert_eq!(
            commit(&|tr| tr.add_write_conflict_key("app/a")).await,
            Err(DENIED)
        );
        // What every application needs beside its keys.
        let transaction = world.with(token);
        transaction
            .set_option(TransactionOption::AutomaticIdempotency)
            .expect("known");
        transaction.get("app/a", false).await.expect("granted");
        transaction
            .get(METADATA_VERSION, false)
            .await
            .expect("free");
        transaction.atomic_op(
            MutationKind::SetVersionstampedValue,
            METADATA_VERSION,
            [0; 14],
        );
        transaction.set("app/cart/1", "x");
        assert_eq!(transaction.commit().await, Ok(()));
    });
}

#[test]
fn a_token_counts_from_its_begin_to_its_end_while_its_key_is_trusted() {
    with_tokens(|world| async move {
        let both = async |token: &str| {
            let read = world.get(token, "app/a").await.map(drop);
            [read, world.set(token, "app/cart/1").await]
        };
        let short = &signed(&Claims {
            until: now() + 5,
            ..claims()
        });
        assert_eq!(both(short).await, [Ok(()); 2]);
        sleep(Duration::from_secs(6)).await;
        assert_eq!(both(short).await, [Err(DENIED); 2], "it was remembered");
        let later = &signed(&Claims {
            from: Some(now() + 5),
            ..claims()
        });
        assert_eq!(both(later).await, [Err(DENIED); 2]);
        sleep(Duration::from_secs(6)).await;
        assert_eq!(both(later).await, [Ok(()); 2]);
        let elsewhere = &signed(&Claims {
            audience: vec!["other:b".into()],
            ..claims()
        });
        assert_eq!(both(elsewhere).await, [Err(DENIED); 2]);
        let foreign = SigningKey::new("web", [2; 32]).expect("a name");
        let foreign = &foreign.sign(&claims()).expect("good");
        assert_eq!(both(foreign).await, [Err(DENIED); 2]);
        let token = &signed(&claims());
        assert_eq!(both(token).await, [Ok(()); 2]);
        world.trust(None).await;
        assert_eq!(both(token).await, [Err(DENIED); 2], "its key is revoked");
        world.trust(Some(&signer())).await;
        assert_eq!(both(token).await, [Ok(()); 2]);
    });
}

/// Watches with this token, changes the key after `pause`, and returns how the watch ends.
async fn watched(world: &World, token: &str, key: &'static str, pause: u64) -> Result<()> {
    let transaction = world.with(token);
    let watch = transaction.watch(key);
    transaction.commit().await?;
    let watch = spawn("watch", watch);
    sleep(Duration::from_secs(pause)).await;
    let changed = world.operator.run(async |tr| {
        tr.set(key, format!("at {}", now()));
        Ok(())
    });
    changed.await.expect("an operator may");
    let ended = timeout(Duration::from_secs(5), watch).await;
    ended.expect("it ends")
}

#[test]
fn a_watch_tells_of_a_change_that_its_token_grants_and_not_after_its_end() {
    with_tokens(|world| async move {
        let short = |seconds: u64| {
            signed(&Claims {
                until: now() + seconds,
                ..claims()
            })
        };
        assert_eq!(watched(&world, &short(10), "app/a", 2).await, Ok(()));
        assert_eq!(watched(&world, &short(10), "z", 0).await, Err(DENIED));
        assert_eq!(watched(&world, &short(3), "app/a", 5).await, Err(DENIED));
    });
}

#[test]
fn a_token_for_a_tenant_grants_its_keys_and_no_other_tenant() {
    with_tokens(|world| async move {
        for name in ["one", "two"] {
            world.operator.create_tenant(name).await.expect("made");
        }
        let id = world.operator.tenant_id("one").await.expect("it is there");
        let token = &signed(&Claims {
            read: vec![],
            write: vec![],
            tenants: vec![Tenant::Id(id as u64)],
            ..claims()
        });
        let use_tenant = async |name: &str| {
            let transaction = world.client.open_tenant(name).create_transaction();
            transaction.set_authorization_token(&token[..])?;
            transaction.get("key", false).await?;
            transaction.set("key", "value");
            transaction.commit().await
        };
        assert_eq!(use_tenant("one").await, Ok(()));
        assert_eq!(use_tenant("two").await, Err(DENIED));
        assert_eq!(use_tenant("three").await, Err(Error::tenant_not_found));
        assert_eq!(world.get(token, "app/a").await, Err(DENIED));
        let deleted = world.client.delete_tenant("one").await;
        assert_eq!(deleted, Err(DENIED));
    });
}

/// A request for the place of a key, by a client with this token.
fn places(begin: &'static str, end: &'static str, reverse: bool, token: &Token) -> GetKeyLocations {
    GetKeyLocations {
        range: KeyRange::new(begin, end),
        reverse,
        limit: 10,
        token: token.clone(),
    }
}

async fn commit_proxy(transport: &Transport) -> Interface {
    let leader = election::current_leader(transport, &cluster().into()).await;
    let endpoint = leader
        .expect("it serves")
        .controller
        .endpoint::<GetClientInfo>();
    let info = transport.call(&endpoint, GetClientInfo { known: 0 }).await;
    info.expect("it serves").commit_proxies[0]
}

fn shown(claims: &Claims) -> Token {
    Token::new(signed(claims).into_bytes().into()).expect("short")
}

/// Requests to a storage server, beside the client library.
struct Direct {
    transport: Transport,
    server: Interface,
    version: Version,
    token: Token,
}

impl Direct {
    async fn new(world: &World) -> Direct {
        let transport = Transport::client_with(holder(Identity::Client));
        let endpoint = commit_proxy(&transport).await.endpoint::<GetKeyLocations>();
        let token = shown(&claims());
        let asked = transport.call(&endpoint, places("app/", "z", false, &token));
        let server = asked.await.expect("granted").shards[0].1[0];
        let version = world.client.create_transaction().get_read_version().await;
        Direct {
            transport,
            server,
            version: version.expect("everybody may"),
            token,
        }
    }

    async fn ask<R: Request>(&self, request: R) -> Result<()> {
        let call = self.transport.call(&self.server.endpoint::<R>(), request);
        call.await.map(drop)
    }

    async fn get(&self, key: &'static str, token: &Token) -> Result<()> {
        let (key, version, token) = (key.into(), self.version, token.clone());
        let get = Get {
            key,
            version,
            token,
        };
        self.ask(get).await
    }

    async fn range(&self, begin: &'static str, end: &'static str) -> Result<()> {
        let range = GetRange {
            begin: begin.into(),
            end: end.into(),
            version: self.version,
            limit_rows: 10,
            limit_bytes: 1000,
            reverse: false,
            token: self.token.clone(),
        };
        self.ask(range).await
    }

    async fn find(&self, begin: &'static str, end: &'static str) -> Result<()> {
        let find = GetKey {
            selector: KeySelector::first_greater_or_equal("app/a"),
            begin: begin.into(),
            end: end.into(),
            version: self.version,
            token: self.token.clone(),
        };
        self.ask(find).await
    }

    async fn watch(&self, key: &'static str) -> Result<()> {
        let watch = Watch {
            key: key.into(),
            value: Some("another".into()),
            version: self.version,
            token: self.token.clone(),
        };
        self.ask(watch).await
    }
}

#[test]
fn a_storage_server_asks_nobody_else_whether_a_read_is_granted() {
    with_tokens(|world| async move {
        let direct = Direct::new(&world).await;
        let token = &direct.token;
        assert_eq!(direct.get("app/a", token).await, Ok(()));
        assert_eq!(direct.get("app/a", &Token::NONE).await, Err(DENIED));
        assert_eq!(direct.get("z", token).await, Err(DENIED));
        assert_eq!(direct.range("app/", "app0").await, Ok(()));
        assert_eq!(direct.range("app/", "app0\0").await, Err(DENIED));
        assert_eq!(direct.range("", "\u{7f}").await, Err(DENIED));
        assert_eq!(direct.find("app/", "app0").await, Ok(()));
        assert_eq!(direct.find("", "app0").await, Err(DENIED));
        assert_eq!(direct.watch("app/a").await, Ok(()));
        assert_eq!(direct.watch("z").await, Err(DENIED));
    });
}

#[test]
fn only_places_of_granted_keys_are_told() {
    with_tokens(|_| async move {
        let transport = Transport::client_with(holder(Identity::Client));
        let proxy = commit_proxy(&transport).await;
        let token = shown(&claims());
        let ask = async |begin: &'static str, end: &'static str, reverse, token: &Token| {
            let endpoint = proxy.endpoint::<GetKeyLocations>();
            let asked = transport.call(&endpoint, places(begin, end, reverse, token));
            let shards = asked.await?.shards.into_iter();
            Ok(shards.map(|(range, _)| range).collect::<Vec<_>>())
        };
        let inside = vec![KeyRange::new("app/", "app0")];
        assert_eq!(ask("app/b", "z", false, &token).await, Ok(inside.clone()));
        assert_eq!(ask("", "app/b", true, &token).await, Ok(inside));
        assert_eq!(ask("", "z", false, &token).await, Err(DENIED));
        assert_eq!(ask("", "app1", true, &token).await, Err(DENIED));
        assert_eq!(ask("app/b", "z", false, &Token::NONE).await, Err(DENIED));
    });
}
