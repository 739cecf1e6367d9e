//! A real browser: Chromium without a window, steered over two pipes (`--remote-debugging-pipe`).

use super::{Directory, Server, text};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// For an answer of the browser, on a machine that does much beside it.
const LIMIT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(200);
/// Descriptors 3 and 4 are the browser's ends of the pipes.
const START: &str = "exec chromium \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null";

pub struct Browser {
    commands: ChildStdin,
    said: Receiver<Value>,
    /// The tab.
    session: String,
    last: u64,
    /// What went wrong on pages, as its console shows it.
    errors: Vec<String>,
    is_loaded: bool,
    log: PathBuf,
    _browser: Server,
    _profile: Directory,
}

impl Browser {
    pub fn start(name: &str) -> Browser {
        let profile = Directory::new(name);
        std::fs::create_dir_all(&profile.0).expect("can be made");
        let log = profile.file("log");
        let mut browser = Command::new("sh")
            .args(["-c", START, "sh", "--headless", "--no-sandbox"])
            .args(["--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--no-proxy-server", "--disable-background-networking"])
            .arg(format!(
                "--user-data-dir={}",
                profile.file("profile").display()
            ))
            .args(["--remote-debugging-pipe", "about:blank"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).expect("can be made"))
            .spawn()
            .expect("there is a shell");
        let commands = browser.stdin.take().expect("it is piped");
        let mut answers = BufReader::new(browser.stdout.take().expect("it is piped"));
        let (hear, said) = channel();
        std::thread::spawn(move || {
            let mut message = Vec::new();
            while answers
                .read_until(0, &mut message)
                .is_ok_and(|read| read > 0)
            {
                message.pop();
                let value = serde_json::from_slice(&message).expect("it is JSON");
                if hear.send(value).is_err() {
                    return;
                }
                message.clear();
            }
        });
        let mut browser = Browser {
            commands,
            said,
            session: String::new(),
            last: 0,
            errors: Vec::new(),
            is_loaded: false,
            log,
            _browser: Server(browser),
            _profile: profile,
        };
        let tab = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let asked = json!({"targetId": tab["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", asked);
        browser.session = attached["sessionId"].as_str().expect("a tab").to_owned();
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    fn call(&mut self, method: &str, parameters: Value) -> Value {
        let said = self.ask(method, parameters);
        assert!(said["error"].is_null(), "{method}: {said}");
        said["result"].clone()
    }

    fn ask(&mut self, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let mut asked = json!({"id": self.last, "method": method, "params": parameters});
        if !self.session.is_empty() {
            asked["sessionId"] = self.session.clone().into();
        }
        let mut bytes = asked.to_string().into_bytes();
        bytes.push(0);
        let sent = self
            .commands
            .write_all(&bytes)
            .and_then(|()| self.commands.flush());
        sent.unwrap_or_else(|error| panic!("{error}; {}", self.why()));
        loop {
            let said = self.hear();
            if said["id"] == self.last {
                return said;
            }
        }
    }

    /// What the browser itself has said.
    fn why(&self) -> String {
        let said = text(&std::fs::read(&self.log).unwrap_or_default());
        format!("Chromium is missing, or has ended (`make browser-tools`): {said}")
    }

    /// The next message, an event or an answer.
    fn hear(&mut self) -> Value {
        let said = self.said.recv_timeout(LIMIT);
        let said = said.unwrap_or_else(|error| panic!("{error}; {}", self.why()));
        let (method, of) = (said["method"].as_str().unwrap_or_default(), &said["params"]);
        match method {
            "Page.loadEventFired" => self.is_loaded = true,
            "Runtime.exceptionThrown" => self.errors.push(of["exceptionDetails"].to_string()),
            "Runtime.consoleAPICalled" if of["type"] != "log" => self.errors.push(of.to_string()),
            "Log.entryAdded" => self.errors.push(of["entry"].to_string()),
            _ => {}
        }
        said
    }

    pub fn open(&mut self, url: &str) {
        self.is_loaded = false;
        let opened = self.call("Page.navigate", json!({"url": url}));
        assert!(opened["errorText"].is_null(), "{url}: {opened}");
        while !self.is_loaded {
            self.hear();
        }
    }

    /// The window from now on: its width in pixels, and whether the user likes it dark.
    pub fn look_as(&mut self, width: u32, is_dark: bool) {
        let (height, is_phone) = (if width < 600 { 740 } else { 1080 }, width < 600);
        let window =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone});
        self.call("Emulation.setDeviceMetricsOverride", window);
        let scheme = if is_dark { "dark" } else { "light" };
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.call("Emulation.setEmulatedMedia", json!({"features": features}));
    }

    pub fn evaluate(&mut self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true});
        let mut said = Value::Null;
        for _ in 0..10 {
            said = self.ask("Runtime.evaluate", asked.clone());
            let result = &said["result"];
            if said["error"].is_null() && result["exceptionDetails"].is_null() {
                return result["result"]["value"].clone();
            }
            // The page has just renewed itself, and is not whole.
            std::thread::sleep(LOOK);
        }
        panic!("{expression}: {said}");
    }

    /// The text of the page, as a person reads it.
    pub fn text(&mut self) -> String {
        let said = self.evaluate("document.body ? document.body.innerText : ''");
        said.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the page, which renews itself, says this.
    pub fn await_text(&mut self, wanted: &str) -> String {
        let begun = Instant::now();
        loop {
            let said = self.text();
            if said.contains(wanted) {
                return said;
            }
            assert!(begun.elapsed() < LIMIT, "no {wanted} in {said}");
            std::thread::sleep(LOOK);
        }
    }

    /// Errors and warnings of pages since the last call.
    pub fn errors(&mut self) -> Vec<String> {
        self.evaluate("0"); // what has happened before is said before
        std::mem::take(&mut self.errors)
    }

    /// A picture of what is in the window.
    pub fn shoot(&mut self, to: &Path) {
        let said = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let picture = said["data"].as_str().expect("a picture");
        std::fs::write(to, from_base64(picture)).expect("can be written");
    }
}

fn from_base64(text: &str) -> Vec<u8> {
    let digit = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let (mut out, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for letter in text.bytes().filter(|letter| *letter != b'=') {
        (bits, count) = (bits << 6 | u32::from(digit(letter)), count + 6);
        if count >= 8 {
            count -= 8;
            out.push((bits >> count & 0xff) as u8);
        }
    }
    out
}
