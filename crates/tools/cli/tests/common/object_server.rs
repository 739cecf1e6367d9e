//! A server that speaks as much of S3's protocol as a backup needs: put, get, delete and list, path style, without
//! looking at signatures.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct Shared {
    objects: Mutex<BTreeMap<String, Vec<u8>>>,
    refuses: AtomicBool,
}

pub struct ObjectServer {
    address: SocketAddr,
    shared: Arc<Shared>,
}

impl ObjectServer {
    pub fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it has one");
        let shared = Arc::<Shared>::default();
        let of_server = shared.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = of_server.clone();
                std::thread::spawn(move || serve(&shared, stream));
            }
        });
        ObjectServer { address, shared }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    fn objects(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.shared.objects.lock().expect("nobody panics")
    }

    /// The objects whose paths begin so.
    pub fn names(&self, prefix: &str) -> Vec<String> {
        let objects = self.objects();
        let names = objects.keys();
        names
            .filter(|name| name.starts_with(prefix))
            .cloned()
            .collect()
    }

    pub fn take(&self, name: &str) -> Vec<u8> {
        self.objects().remove(name).expect("it is there")
    }

    pub fn put(&self, name: &str, content: Vec<u8>) {
        self.objects().insert(name.into(), content);
    }

    /// From now on nobody may do anything.
    pub fn refuse(&self) {
        self.shared.refuses.store(true, Ordering::Relaxed);
    }
}

fn serve(shared: &Shared, stream: TcpStream) {
    let mut writer = stream.try_clone().expect("a socket");
    let mut reader = BufReader::new(stream);
    while let Some((method, target, body)) = read_request(&mut reader) {
        let (status, content) = match shared.refuses.load(Ordering::Relaxed) {
            true => (
                "403 Forbidden",
                b"<Error><Code>AccessDenied</Code></Error>".to_vec(),
            ),
            false => answer(shared, &method, &target, body),
        };
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-length: {}\r\netag: \"1\"\r\n\
             last-modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n\r\n",
            content.len()
        );
        let sent = writer
            .write_all(head.as_bytes())
            .and_then(|()| writer.write_all(&content));
        if sent.is_err() {
            return;
        }
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<(String, String, Vec<u8>)> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|len| *len > 0)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_string(), words.next()?.to_string());
    let mut len = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header).ok()?;
        let header = header.trim().to_ascii_lowercase();
        if header.is_empty() {
            break;
        }
        if let Some(value) = header.strip_prefix("content-length:") {
            len = value.trim().parse().ok()?;
        }
    }
    let mut body = vec![0; len];
    reader.read_exact(&mut body).ok()?;
    Some((method, target, body))
}

fn answer(shared: &Shared, method: &str, target: &str, body: Vec<u8>) -> (&'static str, Vec<u8>) {
    let mut objects = shared.objects.lock().expect("nobody panics");
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    match method {
        "PUT" => {
            objects.insert(path.into(), body);
            ("200 OK", Vec::new())
        }
        "DELETE" => {
            objects.remove(path);
            ("204 No Content", Vec::new())
        }
        "GET" if query.contains("list-type=2") => ("200 OK", list(&objects, path, query)),
        "GET" => match objects.get(path) {
            Some(content) => ("200 OK", content.clone()),
            None => (
                "404 Not Found",
                b"<Error><Code>NoSuchKey</Code></Error>".to_vec(),
            ),
        },
        _ => ("400 Bad Request", Vec::new()),
    }
}

/// Two keys a page, so that the client has to ask for the next one.
fn list(objects: &BTreeMap<String, Vec<u8>>, bucket: &str, query: &str) -> Vec<u8> {
    let of = |name: &str| {
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        let found = pairs.into_iter().find(|(key, _)| *key == name);
        found.map_or(String::new(), |(_, value)| value.replace("%2F", "/"))
    };
    let (prefix, after) = (
        of("prefix"),
        of("start-after").max(of("continuation-token")),
    );
    let bucket = format!("{}/", bucket.trim_end_matches('/'));
    let keys = objects.keys().filter_map(|path| path.strip_prefix(&bucket));
    let keys = keys.filter(|key| key.starts_with(&prefix) && **key > *after);
    let mut keys: Vec<&str> = keys.collect();
    let is_cut = keys.len() > 2;
    keys.truncate(2);
    let each = keys.iter().map(|key| {
        format!(
            "<Contents><Key>{key}</Key><LastModified>2015-10-21T07:28:00.000Z</LastModified>\
             <ETag>1</ETag><Size>1</Size></Contents>"
        )
    });
    let next = match is_cut {
        true => format!("<NextContinuationToken>{}</NextContinuationToken>", keys[1]),
        false => String::new(),
    };
    let all: String = each.collect();
    format!("<ListBucketResult><IsTruncated>{is_cut}</IsTruncated>{next}{all}</ListBucketResult>")
        .into_bytes()
}
