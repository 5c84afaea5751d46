//! The webhook: what it is told, that it can check who tells it, and that nothing it does, or
//! fails to do, costs a call anything.

use std::{
    io::{BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Instant;

use super::{ask, asking, decide, gateway_in, waiting};
use crate::support::{Gateway, Received, upstream::read, wait_for};

const KEY: [u8; 32] = [7; 32];
const GOOD: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const BAD: &str = "HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n";

/// Takes notices, and answers the first ones as it is told to, all others well. An empty answer
/// is none: the connection stays open and silent.
pub(super) struct Receiver {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Received>>>,
}

impl Receiver {
    pub fn start(answers: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let seen: Arc<Mutex<Vec<Received>>> = Arc::default();
        let (all, answers) = (seen.clone(), answers.iter().map(|&a| a.to_owned()).collect());
        let answers: Arc<Vec<String>> = Arc::new(answers);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, all, answers) = (stream.unwrap(), all.clone(), answers.clone());
                thread::spawn(move || serve(stream, &all, &answers));
            }
        });
        Self { address, seen }
    }

    fn seen(&self) -> Vec<Received> {
        self.seen.lock().clone()
    }

    #[track_caller]
    pub fn wait(&self, notices: usize) -> Vec<Received> {
        wait_for("notices come", Duration::from_secs(10), || self.seen.lock().len() >= notices);
        self.seen()
    }
}

fn serve(mut stream: TcpStream, all: &Mutex<Vec<Received>>, answers: &[String]) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    while let Some(request) = read(&mut reader, 0) {
        let number = {
            let mut all = all.lock();
            all.push(request);
            all.len() - 1
        };
        let answer = answers.get(number).map_or(GOOD, String::as_str);
        if answer.is_empty() {
            thread::sleep(Duration::from_secs(30));
        }
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// A gateway that tells an address, and further keys of the webhook.
fn telling(address: SocketAddr, more: &str) -> (Gateway, Arc<TempDir>) {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let secret = format!("whsec_{}\n", STANDARD.encode(KEY));
    std::fs::write(folder.path().join("webhook.secret"), secret).unwrap();
    let yaml = format!(
        "store: memory\npublic_url: https://gw.example\napprovals: {{ webhook: {{ url: \"http://{address}/hook?team=a\", \
         secret: {{ file: webhook.secret }}{more} }} }}\n"
    );
    (gateway_in(&folder, &yaml), folder)
}

/// What a receiver does with any library for Standard Webhooks.
fn check(notice: &Received) -> Value {
    let header = |name: &str| notice.header(name).unwrap().to_owned();
    let (id, time) = (header("webhook-id"), header("webhook-timestamp"));
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&KEY).unwrap();
    mac.update(format!("{id}.{time}.").as_bytes());
    mac.update(&notice.body);
    let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    assert_eq!(header("webhook-signature"), expected);
    let sent: i64 = time.parse().unwrap();
    assert!((jiff::Timestamp::now().as_second() - sent).abs() < 30, "{time}");
    assert!(notice.head.starts_with("POST /hook?team=a HTTP/1.1\r\n"), "{}", notice.head);
    assert_eq!(header("content-type"), "application/json");
    serde_json::from_slice(&notice.body).unwrap()
}

/// A counter of notices.
fn counted(gateway: &Gateway, result: &str) -> u64 {
    let page = gateway.metrics();
    let sample = format!("hangu_approval_notices_total{{hangu_notice_result=\"{result}\"}} ");
    page.lines().find_map(|line| line.strip_prefix(&sample)?.parse().ok()).unwrap_or_default()
}

#[test]
fn a_notice_is_signed_and_says_who_waits_for_whom() {
    let receiver = Receiver::start(&[]);
    let (gateway, _folder) = telling(receiver.address, "");
    let asked = waiting(&gateway, Some("E1"), 7);
    let notices = receiver.wait(1);
    let told = check(&notices[0]);
    let id = asked.id.to_string();
    assert_eq!(notices[0].header("webhook-id"), Some(&*format!("{id}-requested")));
    assert_eq!(told["type"], "approval.requested");
    let data = &told["data"];
    assert_eq!(
        *data,
        json!({
            "id": id, "state": "waiting", "tenant": "acme", "caller": "gate", "requester": "E1",
            "tool": "crm/contacts.purge", "risk": "write_high",
            "rules": [{ "rule": "two-eyes", "roles": ["owner"], "count": 1 }],
            "askedAt": data["askedAt"], "expiresAt": data["expiresAt"],
            "path": format!("/v1/approvals/{id}"),
            "url": format!("https://gw.example/v1/approvals/{id}"),
        })
    );
    assert!(data["expiresAt"].as_str().unwrap().parse::<jiff::Timestamp>().is_ok());
    assert_eq!(decide(&gateway, asked.id, "approve", "E2").status, 200);
    let told = check(&receiver.wait(2)[1]);
    assert_eq!(
        (&told["type"], &told["data"]["state"]),
        (&json!("approval.approved"), &json!("approved"))
    );
    assert_eq!(told["data"]["decidedBy"], json!(["E2"]));
    let other = waiting(&gateway, Some("E1"), 8);
    assert_eq!(decide(&gateway, other.id, "refuse", "E2").status, 200);
    let notices = receiver.wait(4);
    let mut types: Vec<_> =
        notices[2..].iter().map(|notice| check(notice)["type"].clone()).collect();
    types.sort_by_key(|kind| kind.to_string());
    assert_eq!(types, ["approval.refused", "approval.requested"]);
    wait_for("it is counted", Duration::from_secs(5), || counted(&gateway, "delivered") == 4);
}

#[test]
fn a_notice_is_sent_again_until_it_is_taken_and_never_elsewhere() {
    let elsewhere = Receiver::start(&[]);
    let redirect = format!(
        "HTTP/1.1 307 There\r\nLocation: http://{}/hook?team=a\r\nContent-Length: 0\r\n\r\n",
        elsewhere.address
    );
    let receiver = Receiver::start(&[BAD, &redirect]);
    let (gateway, _folder) = telling(receiver.address, "");
    waiting(&gateway, Some("E1"), 7);
    let notices = receiver.wait(3);
    notices.iter().for_each(|notice| drop(check(notice)));
    let ids: Vec<_> = notices.iter().map(|notice| notice.header("webhook-id").unwrap()).collect();
    assert_eq!(ids[0], ids[1]);
    assert_eq!(ids[0], ids[2], "the same notice, so that a receiver takes it once");
    wait_for("it is counted", Duration::from_secs(5), || counted(&gateway, "delivered") == 1);
    assert_eq!(counted(&gateway, "failed"), 2);
    assert_eq!(elsewhere.seen().len(), 0);
}

#[test]
fn a_dead_receiver_costs_no_call_and_its_notices_are_bounded() {
    let dead = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let (gateway, _folder) = telling(dead, ", queue: 5, give_up: 2s");
    let begun = Instant::now();
    for arguments in 0..50 {
        waiting(&gateway, Some("E1"), arguments);
    }
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(counted(&gateway, "dropped"), 45);
    wait_for("they are given up", Duration::from_secs(10), || counted(&gateway, "given_up") == 5);
    assert!(counted(&gateway, "failed") >= 5, "each was tried again");
    // There is room again, and the requests themselves are all there.
    waiting(&gateway, Some("E1"), 50);
    assert_eq!(counted(&gateway, "dropped"), 45);
    let listed = super::get("/v1/approvals", "E2").ask(&gateway);
    assert_eq!(super::ids(&listed).len(), 51);
}

#[test]
fn a_silent_receiver_holds_up_neither_calls_nor_the_end() {
    let receiver = Receiver::start(&[""; 64]);
    let (gateway, _folder) = telling(receiver.address, ", timeout: 1s");
    let begun = Instant::now();
    for arguments in 0..20 {
        waiting(&gateway, Some("E1"), arguments);
    }
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    receiver.wait(4);
    let begun = Instant::now();
    drop(gateway);
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[test]
fn what_waits_is_tried_once_more_at_the_end() {
    let receiver = Receiver::start(&[BAD, BAD]);
    let (gateway, _folder) = telling(receiver.address, "");
    let first = waiting(&gateway, Some("E1"), 1).id.to_string();
    let second = waiting(&gateway, Some("E1"), 2).id.to_string();
    receiver.wait(2);
    // Before the half second that the second attempt would wait at the least.
    drop(gateway);
    let seen = receiver.seen();
    let last: Vec<_> = seen[2..].iter().map(|notice| check(notice)["data"]["id"].clone()).collect();
    assert!(last.contains(&json!(first)) && last.contains(&json!(second)), "{last:?}");
}

#[test]
fn a_request_that_has_expired_is_not_told_of_any_more() {
    let receiver = Receiver::start(&[BAD; 64]);
    let (gateway, _folder) = telling(receiver.address, "");
    let mut short = asking(&gateway, Some("E1"), 1, 1);
    short.expires_ms = short.asked_ms + 1_000;
    ask(&gateway, short);
    wait_for("it is given up", Duration::from_secs(10), || counted(&gateway, "given_up") == 1);
    assert!(receiver.seen().len() <= 2, "{}", receiver.seen().len());
}
