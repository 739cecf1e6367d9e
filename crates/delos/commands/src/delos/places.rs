//! Where backups of services are: directories, and buckets of object stores that speak S3's protocol.
//!
//! Objects of a bucket are moved by a thread of their own: signing and encrypting some megabytes must not hold up the
//! replica. What the store needs to know beside the bucket's name is in the environment, as for other programs that
//! use S3 (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_REGION`, `AWS_ENDPOINT_URL`, …).

#![allow(clippy::disallowed_methods, clippy::disallowed_types)] // objects are moved on a thread of their own

use bytes::Bytes;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey};
use object_store::path::Path;
use object_store::{ClientConfigKey, ObjectStore, ObjectStoreExt, RetryConfig};
use plinth_delos::backup::{Doing, Outcome, Place, directories};
use plinth_runtime::real::spawn_worker;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

const S3: &str = "s3://";
/// A request to the object store that takes longer is given up, and tried again.
const REQUEST_LIMIT: &str = "60 seconds";
const RETRY_LIMIT: Duration = Duration::from_secs(20);
const RETRIES_MAX: usize = 3;
/// Where the library asks for keys that nobody has given it: only machines of Amazon answer there.
const MACHINE_S_ROLE: &str = "169.254.169.254";
const NO_KEYS: &str = "without AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, keys are asked of the machine, which has \
                       none; set them where each replica is started";

/// Opens a place by what operators call it.
///
/// # Errors
/// One line: what is wrong with the name, or with the environment.
pub fn open(place: &str) -> Outcome<Rc<dyn Place>> {
    match place.strip_prefix(S3) {
        Some(rest) => Ok(Rc::new(Bucket::open(place, rest)?)),
        None if place.contains("://") && !place.starts_with("file://") => Err(format!(
            "backup {place}: expected a directory, or s3://BUCKET/PREFIX"
        )),
        None => directories(place),
    }
}

/// What a replica is told: the absolute path of a directory, or the name of a bucket.
pub fn parse(text: &str) -> Result<String, String> {
    if text.starts_with(S3) {
        return parse_bucket(text.trim_start_matches(S3))
            .map(|_| text.trim_end_matches('/').into());
    }
    let path = text.strip_prefix("file://").unwrap_or(text);
    if path.is_empty() || path.contains("://") {
        return Err("expected a directory, or s3://BUCKET/PREFIX".into());
    }
    if path == text && looks_like_url(path) {
        return Err(format!(
            "expected a directory, or s3://BUCKET/PREFIX; a directory of that name is ./{path}"
        ));
    }
    let absolute = std::path::absolute(path).map_err(|error| error.to_string())?;
    let absolute = absolute.into_os_string().into_string();
    absolute.map_err(|_| "the path of the directory is no text".into())
}

/// Whether somebody may have forgotten a slash of a URL.
fn looks_like_url(path: &str) -> bool {
    let is_scheme =
        |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_alphanumeric());
    let parts = path.split_once(':').filter(|(word, _)| is_scheme(word));
    parts.is_some_and(|(word, rest)| rest.starts_with('/') || word.eq_ignore_ascii_case("s3"))
}

fn parse_bucket(rest: &str) -> Result<(&str, Path), String> {
    let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if bucket.is_empty() || !bucket.chars().all(is_good) {
        return Err("expected s3://BUCKET/PREFIX".into());
    }
    let prefix = Path::parse(prefix.trim_matches('/'));
    Ok((bucket, prefix.map_err(|error| error.to_string())?))
}

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The thread that moves objects, started with the first one.
fn mover() -> &'static mpsc::UnboundedSender<Work> {
    static MOVER: OnceLock<mpsc::UnboundedSender<Work>> = OnceLock::new();
    MOVER.get_or_init(|| {
        let (sender, mut receiver) = mpsc::unbounded_channel::<Work>();
        // Connections are encrypted by ring; a process that has chosen already keeps its choice.
        let _ = rustls::crypto::ring::default_provider().install_default();
        spawn_worker("backups", move || async move {
            while let Some(work) = receiver.recv().await {
                tokio::spawn(work);
            }
        });
        sender
    })
}

/// Runs `work` on the thread that moves objects.
async fn moved<T: Send + 'static>(
    work: impl Future<Output = object_store::Result<T>> + Send + 'static,
) -> Result<T, String> {
    let (done, result) = oneshot::channel();
    let work = async move {
        let _ = done.send(work.await); // nobody may wait any more
    };
    let ended = || "the thread that moves objects has ended".to_string();
    mover().send(Box::pin(work)).map_err(|_| ended())?;
    let result = result.await.map_err(|_| ended())?;
    result.map_err(|error| one_line(&error))
}

/// Errors of object stores have several lines, with what the server said.
fn one_line(error: &dyn std::fmt::Display) -> String {
    const LONGEST: usize = 400;
    let text = error.to_string();
    let words: Vec<&str> = text.split_whitespace().collect();
    let line: String = words.join(" ").chars().take(LONGEST).collect();
    match line.contains(MACHINE_S_ROLE) {
        true => format!("{line}; {NO_KEYS}"),
        false => line,
    }
}

/// A prefix in a bucket, an object an object.
struct Bucket {
    name: String,
    store: Arc<AmazonS3>,
    prefix: Path,
}

impl Bucket {
    fn open(place: &str, rest: &str) -> Outcome<Bucket> {
        let explain = |why: String| format!("backup {place}: {why}");
        let (bucket, prefix) = parse_bucket(rest).map_err(explain)?;
        let retry = RetryConfig {
            max_retries: RETRIES_MAX,
            retry_timeout: RETRY_LIMIT,
            ..RetryConfig::default()
        };
        let limit = AmazonS3ConfigKey::Client(ClientConfigKey::Timeout);
        let builder = AmazonS3Builder::from_env()
            .with_bucket_name(bucket)
            .with_disable_bulk_delete(true)
            .with_config(limit, REQUEST_LIMIT)
            .with_retry(retry);
        let endpoint = [AmazonS3ConfigKey::S3Endpoint, AmazonS3ConfigKey::Endpoint]
            .iter()
            .find_map(|key| builder.get_config_value(key));
        // Who names such an endpoint wants it.
        let built = match endpoint.is_some_and(|endpoint| endpoint.starts_with("http://")) {
            true => builder.with_allow_http(true),
            false => builder,
        };
        // Its connections belong to the thread that makes them, which is known by now.
        let _ = mover();
        let store = built.build().map_err(|error| explain(one_line(&error)))?;
        Ok(Bucket {
            name: place.into(),
            store: Arc::new(store),
            prefix,
        })
    }

    fn at(&self, name: &str) -> Path {
        self.prefix.clone().join(name)
    }

    fn explain(&self, name: &str, why: String) -> String {
        format!("backup {}/{name}: {why}", self.name)
    }
}

impl Place for Bucket {
    fn put<'a>(&'a self, name: &'a str, content: Bytes) -> Doing<'a> {
        let (store, at) = (self.store.clone(), self.at(name));
        Box::pin(async move {
            let put = moved(async move { store.put(&at, content.into()).await });
            put.await.map(drop).map_err(|why| self.explain(name, why))
        })
    }

    fn get<'a>(&'a self, name: &'a str) -> Doing<'a, Option<Bytes>> {
        let (store, at) = (self.store.clone(), self.at(name));
        Box::pin(async move {
            let got = moved(async move {
                match store.get(&at).await {
                    Ok(found) => found.bytes().await.map(Some),
                    Err(object_store::Error::NotFound { .. }) => Ok(None),
                    Err(error) => Err(error),
                }
            });
            got.await.map_err(|why| self.explain(name, why))
        })
    }

    fn list<'a>(&'a self, prefix: &'a str) -> Doing<'a, Vec<String>> {
        let (store, directory) = (self.store.clone(), self.prefix.clone());
        // Names come in order: those that are wanted are behind this one.
        let offset = self.at(prefix);
        let wanted = prefix.to_string();
        Box::pin(async move {
            let listed = moved(async move {
                let mut found = match wanted.is_empty() {
                    true => store.list(Some(&directory)),
                    false => store.list_with_offset(Some(&directory), &offset),
                };
                let mut names = Vec::new();
                while let Some(object) = poll_fn(|context| found.as_mut().poll_next(context)).await
                {
                    let at = object?.location;
                    let name = at.filename().unwrap_or_default();
                    match name.starts_with(&wanted) {
                        true => names.push(name.to_string()),
                        false => break,
                    }
                }
                Ok(names)
            });
            listed.await.map_err(|why| self.explain("", why))
        })
    }

    fn remove<'a>(&'a self, name: &'a str) -> Doing<'a> {
        let (store, at) = (self.store.clone(), self.at(name));
        Box::pin(async move {
            let removed = moved(async move { store.delete(&at).await });
            removed.await.map_err(|why| self.explain(name, why))
        })
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_directory_or_a_bucket() {
        assert_eq!(parse("/a/b"), Ok("/a/b".into()));
        assert_eq!(parse("file:///a/b"), Ok("/a/b".into()));
        assert!(parse("b").expect("a directory").starts_with('/'));
        assert_eq!(parse("s3://bucket/locks/"), Ok("s3://bucket/locks".into()));
        assert_eq!(parse("s3://bucket"), Ok("s3://bucket".into()));
        for wrong in ["", "s3://", "s3://user:password@host/x", "gs://x/y"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
        for wrong in ["s3:/bad", "s3:bad", "S3:bad/x", "gs:/x/y"] {
            let line = parse(wrong).expect_err(wrong);
            assert!(line.ends_with(&format!("is ./{wrong}")), "{line}");
        }
        for name in ["./s3:/bad", "a:b", "file://s3:/x"] {
            assert!(parse(name).expect(name).starts_with('/'), "{name}");
        }
        assert!(one_line(&"error: http://169.254.169.254/x").contains("AWS_ACCESS_KEY_ID"));
        assert!(open("gs://x/y").is_err());
        assert!(open("relative").is_err());
    }
}
