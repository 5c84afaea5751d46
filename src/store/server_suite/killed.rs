//! A process that is killed in the middle of its writes: what it was told is kept is there.

use std::{
    env,
    io::{BufRead, BufReader, Write},
    process::{Command, Stdio},
};

use super::*;

/// Names the file that a second process writes, which is this program again.
const FILE: &str = "HANGU_TEST_KILLED_STORE";

/// The second process: registers, lists, shares and deletes, and says what was acknowledged.
#[test]
fn a_process_that_writes_until_it_is_killed() {
    let Ok(path) = env::var(FILE) else { return };
    let place = Place {
        address: Some(Address::Sqlite(path.into())),
        clock: crate::clock::Clock::manual(NOW),
        _held: None,
    };
    let process = open(&place);
    let say = |line: String| {
        let mut out = std::io::stdout().lock();
        out.write_all(line.as_bytes()).and_then(|()| out.flush()).unwrap();
    };
    super::super::tests::block_on(async {
        for n in 0_u32.. {
            let own = registration("acme", &format!("E{n}"), &format!("mcp_k_{n}"));
            process.put(&own).await.unwrap();
            say(format!("\nput {n}\n"));
            process.set_archive(&own, &archive(&["{\"name\":\"a\"}"])).await;
            say(format!("\nlisted {n}\n"));
            process.share(&own, Some("blue")).await.unwrap();
            say(format!("\nshared {n}\n"));
            if n % 2 == 1 {
                process.delete(&own).await;
                say(format!("\ndeleted {n}\n"));
            }
        }
    });
}

pub async fn a_killed_process_loses_nothing_that_was_acknowledged(place: Place) {
    let Some(Address::Sqlite(path)) = &place.address else { panic!("a file") };
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let writer = "store::server_suite::killed::a_process_that_writes_until_it_is_killed";
    let mut child = Command::new(env::current_exe().unwrap())
        .args([writer, "--exact", "--nocapture"])
        .env(FILE, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said: Vec<(String, u32)> = Vec::new();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    for line in lines.map_while(Result::ok) {
        let Some((what, n)) = line.split_once(' ') else { continue };
        let known = ["put", "listed", "shared", "deleted"].contains(&what);
        if let (true, Ok(n)) = (known, n.parse()) {
            said.push((what.to_owned(), n));
        }
        // In the middle of something: it goes on until the signal is there.
        if said.len() == 200 {
            child.kill().unwrap();
        }
    }
    child.wait().unwrap();
    assert!(said.len() >= 200, "{said:?}");
    let process = open(&place);
    let has = |what: &str, n: u32| said.iter().any(|(own, at)| own == what && *at == n);
    let newest = said.iter().map(|(_, n)| *n).max().unwrap();
    for (what, n) in &said {
        let kept =
            process.get(&registration("acme", &format!("E{n}"), &format!("mcp_k_{n}"))).await;
        // What came after the last word may have happened, or not.
        let Some(kept) = kept else {
            assert!(has("deleted", *n) || (*n == newest && n % 2 == 1), "{what} {n} is lost");
            continue;
        };
        assert!(!has("deleted", *n), "{n} is back");
        assert!(!has("listed", *n) || kept.archive.is_some(), "{n}");
        assert!(!has("shared", *n) || kept.registration.team.is_some(), "{n}");
    }
    // Its changes are all in order, too.
    let changes = process.changes(Marker::START).await;
    assert!(changes.changes.len() > newest as usize);
}
