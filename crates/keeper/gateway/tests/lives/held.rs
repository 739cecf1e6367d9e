//! What gateways keep for clients that are not answered yet.

use super::*;
use plinth_core::output::Output;
use plinth_runtime::net;
use plinth_runtime::serve::Inbox;

const CLIENTS: usize = 100;
/// Requests of a client.
const REQUESTS: usize = 20;
const DATA_BYTES: usize = 50_000;

/// Answers and events that a gateway has made.
async fn sent(gateway: u8) -> u64 {
    let (reader, mut writer) = net::connect(address(gateway)).await.expect("it listens");
    let mut out = Output::copying();
    out.buffer().extend_from_slice(b"srvr");
    writer.write_all(out.into_bytes()).await.expect("sent");
    let mut inbox = Inbox::new(reader);
    while inbox.read().await.is_some() {}
    let said = String::from_utf8_lossy(&inbox.buffer).into_owned();
    let sent = said.lines().find_map(|line| line.strip_prefix("Sent: "));
    sent.expect("a line").parse().expect("a number")
}

async fn ask_while_it_is_cut_off() -> Rc<World> {
    let world = World::with(1, ms(1)).await;
    let client = Client::connect(address(0), 30_000, None).await;
    let made = Request::Create {
        kind: CreateKind::Plain,
        path: "/large".into(),
        data: Some(Bytes::from(vec![7; DATA_BYTES])),
        acl: Acl::open(),
        flags: 0,
        ttl: -1,
    };
    let made = client.expect("it serves").submit(made).await;
    made.expect("created");
    let connecting = (0..CLIENTS).map(|_| Client::connect(address(0), 30_000, None));
    let clients: Vec<Client> = join_all(connecting)
        .await
        .into_iter()
        .map(|client| client.expect("it serves"))
        .collect();
    let read = || Request::GetData {
        path: "/large".into(),
        watch: false,
    };
    for client in &clients {
        client.submit(read()).await.expect("it is read");
    }
    world.gateways[0].store.set_hung(true);
    sleep(ms(1500)).await;
    let before = sent(0).await;
    let all = clients
        .iter()
        .flat_map(|client| (0..REQUESTS).map(move |_| client));
    let asked: Vec<_> = all.map(|client| client.submit(read())).collect();
    sleep(ms(500)).await;
    let made = sent(0).await - before;
    if made > CLIENTS as u64 {
        world.complain(format!(
            "{made} answers of {DATA_BYTES} bytes wait for contact"
        ));
    }
    world.gateways[0].store.set_hung(false);
    for answer in join_all(asked).await {
        if answer.is_err() {
            world.complain("a request fails".into());
        }
    }
    world
}

#[test]
fn reads_are_not_executed_before_their_answers_may_go_out() {
    holds(1, ask_while_it_is_cut_off);
}
