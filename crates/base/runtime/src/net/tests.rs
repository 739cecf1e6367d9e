use super::*;
use crate::sim::{Locality, SimConfig, Simulation};
use crate::{sleep, spawn};
use std::cell::Cell;
use std::rc::Rc;

/// Turns every byte around, after both sides have said hello. A zero ends the stream, and a one is refused.
#[derive(Default)]
struct Turned {
    has_said_hello: bool,
    is_greeted: bool,
    has_ended: bool,
    refuses: bool,
}

const HELLO: &[u8] = b"hello";

impl Layer for Turned {
    fn receive(
        &mut self,
        wire: &mut BytesMut,
        plain: &mut BytesMut,
        answer: &mut BytesMut,
    ) -> io::Result<()> {
        if !std::mem::replace(&mut self.has_said_hello, true) {
            answer.extend_from_slice(HELLO);
        }
        if !self.is_greeted {
            if wire.len() < HELLO.len() {
                return Ok(());
            }
            if self.refuses {
                answer.extend_from_slice(b"no");
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            assert_eq!(wire.split_to(HELLO.len()), HELLO);
            self.is_greeted = true;
        }
        for byte in wire.split() {
            match byte {
                0 => self.has_ended = true,
                _ => plain.extend_from_slice(&[!byte]),
            }
        }
        Ok(())
    }

    fn send(&mut self, plain: &[u8], wire: &mut BytesMut) -> io::Result<()> {
        wire.extend(plain.iter().map(|byte| !byte));
        Ok(())
    }

    fn end(&mut self, wire: &mut BytesMut) {
        wire.extend_from_slice(&[0]);
    }

    fn is_greeted(&self) -> bool {
        self.is_greeted
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }
}

fn place() -> SocketAddr {
    ([10, 0, 0, 1], 1).into()
}

/// Runs `client` beside a process that serves one connection.
fn beside<S: Future<Output = ()> + 'static, C: Future<Output = ()> + 'static>(
    serve: fn(Reader, Writer, BytesMut) -> S,
    client: impl FnOnce(Reader, Writer) -> C + 'static,
) {
    let simulation = Simulation::new(1, SimConfig::default());
    let machine = simulation.add_machine(Locality::default());
    simulation.start_process(machine, place(), move || {
        Box::pin(async move {
            let mut listener = listen(place()).await.expect("listens");
            let (mut reader, writer, _) = listener.accept().await.expect("accepts");
            let mut arrived = BytesMut::new();
            reader.read(&mut arrived).await.expect("the first bytes");
            serve(reader, writer, arrived).await;
        })
    });
    let running = async move {
        sleep(Duration::from_millis(10)).await;
        let (reader, writer) = connect(place()).await.expect("connects");
        client(reader, writer).await;
    };
    let ended = simulation.run_until(running, Duration::from_secs(60));
    ended.expect("it comes to its end");
}

async fn echo(reader: Reader, writer: Writer, arrived: BytesMut) {
    let layer = Box::<Turned>::default();
    let halves = layered(reader, writer, arrived, layer).await;
    let (mut reader, mut writer) = halves.expect("greets");
    let mut heard = BytesMut::new();
    while reader.read(&mut heard).await.expect("reads") > 0 {
        writer
            .write_all(heard.split().freeze())
            .await
            .expect("writes");
    }
    writer.shutdown().await.expect("ends");
    std::future::pending::<()>().await;
}

#[test]
fn what_is_said_through_a_layer_comes_back_whole_and_then_the_end() {
    beside(echo, |reader, writer| async {
        let layer = Box::<Turned>::default();
        let halves = layered(reader, writer, BytesMut::new(), layer).await;
        let (mut reader, mut writer) = halves.expect("greets");
        let said: Vec<u8> = (1..=254).cycle().take(300_000).collect();
        let told = Bytes::from(said.clone());
        let telling = spawn("tell", async move {
            writer.write_all(told).await.expect("writes");
            writer.shutdown().await.expect("ends");
            writer
        });
        let mut heard = BytesMut::new();
        while reader.read(&mut heard).await.expect("reads") > 0 {}
        assert!(heard == said[..]);
        drop(telling.await);
    });
}

#[test]
fn a_stream_that_is_cut_is_an_error_and_no_end() {
    async fn cut(_: Reader, mut writer: Writer, _: BytesMut) {
        let hello = Bytes::from_static(HELLO);
        writer.write_all(hello).await.expect("writes");
        writer.shutdown().await.expect("ends");
        std::future::pending::<()>().await;
    }
    beside(cut, |reader, writer| async {
        let layer = Box::<Turned>::default();
        let halves = layered(reader, writer, BytesMut::new(), layer).await;
        let (mut reader, _writer) = halves.expect("greets");
        let read = reader.read(&mut BytesMut::new()).await;
        assert_eq!(read.expect_err("cut").kind(), io::ErrorKind::UnexpectedEof);
    });
}

#[test]
fn who_is_refused_hears_why_although_it_has_said_more() {
    async fn refuse(reader: Reader, writer: Writer, arrived: BytesMut) {
        let layer = Box::new(Turned {
            refuses: true,
            ..Turned::default()
        });
        let refused = layered(reader, writer, arrived, layer).await;
        assert!(refused.is_err());
        std::future::pending::<()>().await;
    }
    let heard_all = Rc::new(Cell::new(false));
    let heard = heard_all.clone();
    beside(refuse, |mut reader, mut writer| async move {
        let more = Bytes::from([HELLO, b"more"].concat());
        writer.write_all(more).await.expect("writes");
        let mut last = BytesMut::new();
        while reader.read(&mut last).await.expect("reads") > 0 {}
        assert_eq!(last, b"hellono"[..]);
        heard.set(true);
    });
    assert!(heard_all.get());
}

#[test]
fn a_name_stands_for_what_it_was_given_even_if_the_machine_has_moved() {
    let simulation = Simulation::new(1, SimConfig::default());
    let machine = simulation.add_machine(Locality::default());
    let process = simulation.start_process(machine, place(), || {
        Box::pin(async {
            let everywhere = SocketAddr::from(([0; 4], place().port()));
            let mut listener = listen(everywhere).await.expect("it listens");
            while listener.accept().await.is_ok() {}
        })
    });
    simulation.run(async move {
        let control = crate::sim::control();
        let elsewhere = SocketAddr::from(([10, 9, 9, 9], place().port()));
        let at = |host: &'static str| async move { resolve(host, place().port()).await.ok() };
        assert_eq!(at("host").await, None);
        control.name("host", Some(place().ip()));
        assert_eq!(at("host").await, Some(vec![place()]));
        connect(place()).await.expect("it listens there");
        control.kill_process(process, crate::sim::KillKind::Kill);
        control.move_machine(machine, elsewhere.ip());
        control.restart_process(process);
        sleep(crate::Duration::from_millis(10)).await;
        assert_eq!(at("host").await, Some(vec![place()]), "it is behind");
        assert!(connect(place()).await.is_err(), "nobody is there any more");
        connect(elsewhere).await.expect("it listens there");
        control.name("host", None);
        assert_eq!(at("host").await, None);
    });
}

#[test]
fn a_name_of_this_machine_is_resolved_for_real_and_another_is_an_error() {
    crate::real::block_on(async {
        let found = resolve("localhost", 4500)
            .await
            .expect("every machine has it");
        assert!(
            found
                .iter()
                .all(|at| at.ip().is_loopback() && at.port() == 4500)
        );
        assert!(resolve("not a name", 4500).await.is_err());
    });
}
