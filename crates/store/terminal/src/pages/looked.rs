//! Pages for a browser. A browser sends no Bearer token, so a form takes it, and a cookie keeps it. A page on a
//! loopback address needs none, and is shown to who asks for it by an address: a foreign site whose name leads here is
//! refused.

use super::body::Body;
use super::view::{Seen, Show, framed};
use axum::Router;
use axum::body::{Bytes, to_bytes};
use axum::extract::Request;
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HOST, LOCATION, REFERRER_POLICY,
    SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use plinth_runtime::metric::page::Page;
use plinth_runtime::{Duration, Instant, now};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

const STYLE: &str = include_str!("page.css");
/// Nothing runs, nothing comes from elsewhere, nobody shows it in a frame.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src data:; form-action 'self'; \
    frame-ancestors 'none'; base-uri 'none'";
const COOKIE_NAME: &str = "plinth_page";
/// Of a form.
const BODY_BYTES_MAX: usize = 1024;

/// A form that has not come after so long is given up.
const FORM_LIMIT: Duration = Duration::from_secs(5);
/// A page is made anew no sooner, however many look at it: a browser asks for it every five seconds.
const SHOWN_ANEW: Duration = Duration::from_secs(2);

const FORM: &str = "<form method=\"post\" action=\"/token\"><p><label>The token that \
    <code>plinth keys page-token</code> shows:<br>\
    <input type=\"password\" name=\"token\" autocomplete=\"off\" required></label></p>\
    <p><button>Look</button></p></form>";

/// The page at `/`: what the status of `page` is, as `show` shows it.
pub fn looked(page: Page, show: Show) -> Router {
    let made: Arc<Mutex<Option<(Instant, Bytes)>>> = Arc::default();
    let newest = move || {
        let mut made = made.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = |(at, _): &&(Instant, Bytes)| at.elapsed() < SHOWN_ANEW;
        if let Some((_, page)) = made.as_ref().filter(is_new) {
            return page.clone();
        }
        let page = Bytes::from(Seen::of(&page).html(show));
        *made = Some((now(), page.clone()));
        page
    };
    let shown = async move |headers: HeaderMap| {
        // A browser sends a token to the name only for which it was given.
        if is_asked_by_address(&headers) || token_in_cookie(&headers).is_some() {
            return html(newest());
        }
        elsewhere()
    };
    Router::new().route("/", get(shown)).layer(from_fn(closed))
}

/// What somebody is told who comes by a name that may be anybody's.
fn elsewhere() -> Response {
    let why = "ask for this page by an address, or as localhost\n";
    (StatusCode::MISDIRECTED_REQUEST, why).into_response()
}

/// Refuses a foreign site whose name leads to a loopback address here. Pages of one word are no site's.
pub async fn refuse_foreign(request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).map(HeaderValue::as_bytes);
    let is_word = host.is_none_or(|host| !host.contains(&b'.'));
    match is_word || is_asked_by_address(request.headers()) {
        true => next.run(request).await,
        false => elsewhere(),
    }
}

/// What is shown to who has no token yet: a form for it, and the style of all pages.
pub fn form() -> Router {
    let mut title = Body::default();
    title.title("Plinth");
    let page = framed("Plinth", false, &[&title]).replace("</body>", &format!("{FORM}</body>"));
    let page = Bytes::from(page);
    // It is the same each time, and the page renews itself often.
    let kind = [
        (CONTENT_TYPE, "text/css; charset=utf-8"),
        (CACHE_CONTROL, "max-age=60"),
    ];
    let style = async move || (kind, STYLE);
    Router::new()
        .route("/token", get(async move || html(page.clone())).post(take))
        .route("/page.css", get(style))
        .layer(from_fn(closed))
}

fn html(page: Bytes) -> Response {
    ([(CONTENT_TYPE, "text/html; charset=utf-8")], page).into_response()
}

/// Says to the browser what it must not do with the page.
async fn closed(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let rules: [(HeaderName, &str); 4] = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (CACHE_CONTROL, "no-store"),
    ];
    for (name, value) in rules {
        let value = HeaderValue::from_static(value);
        response.headers_mut().entry(name).or_insert(value);
    }
    response
}

/// Takes the form: the browser keeps the token, and sends it to this page alone.
async fn take(request: Request) -> Response {
    let read = to_bytes(request.into_body(), BODY_BYTES_MAX);
    let Ok(body) = tokio::time::timeout(FORM_LIMIT, read).await else {
        return (StatusCode::REQUEST_TIMEOUT, "the form has not come\n").into_response();
    };
    let text = body.map(|body| String::from_utf8_lossy(&body).into_owned());
    let token = text.unwrap_or_default();
    let token = token.strip_prefix("token=").unwrap_or_default().trim();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if token.is_empty() || !token.bytes().all(is_word) {
        return (StatusCode::BAD_REQUEST, "this is no token\n").into_response();
    }
    let cookie = format!("{COOKIE_NAME}={token}; Path=/; HttpOnly; SameSite=Strict");
    let cookie = HeaderValue::from_str(&cookie).expect("it has letters only");
    let to = HeaderValue::from_static("/");
    (
        StatusCode::SEE_OTHER,
        [(SET_COOKIE, cookie), (LOCATION, to)],
    )
        .into_response()
}

/// The token in the cookies of a request.
pub fn token_in_cookie(headers: &HeaderMap) -> Option<&[u8]> {
    let cookies = headers.get_all(COOKIE).iter();
    let mut cookies = cookies.flat_map(|cookies| cookies.as_bytes().split(|byte| *byte == b';'));
    cookies.find_map(|cookie| {
        let value = cookie.trim_ascii().strip_prefix(COOKIE_NAME.as_bytes())?;
        value.strip_prefix(b"=")
    })
}

/// Where a browser without a token is sent.
pub fn to_form() -> Response {
    (StatusCode::SEE_OTHER, [(LOCATION, "/token")]).into_response()
}

/// A name leads where its owner likes; an address leads here because somebody typed it.
fn is_asked_by_address(headers: &HeaderMap) -> bool {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let Some(host) = host else {
        return false;
    };
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _port)| name),
    };
    name == "localhost" || name.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_asks_by_an_address_is_shown_the_page() {
        let asked = |host: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static(host));
            is_asked_by_address(&headers)
        };
        for host in [
            "127.0.0.1:9100",
            "10.0.0.1",
            "[::1]:9100",
            "localhost:9100",
            "localhost",
        ] {
            assert!(asked(host), "{host}");
        }
        for host in [
            "evil.example:9100",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "",
        ] {
            assert!(!asked(host), "{host}");
        }
        assert!(!is_asked_by_address(&HeaderMap::new()));
    }

    #[test]
    fn a_cookie_has_the_token_among_others() {
        let mut headers = HeaderMap::new();
        let cookies = "theme=dark; plinth_page=abc-1; plinth_page2=x";
        headers.insert(COOKIE, HeaderValue::from_static(cookies));
        assert_eq!(token_in_cookie(&headers), Some(&b"abc-1"[..]));
        assert_eq!(token_in_cookie(&HeaderMap::new()), None);
    }
}
