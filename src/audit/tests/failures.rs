//! Crashes, full disks, moved files: what is promised then.

use std::{
    io::{BufRead, BufReader},
    pin::pin,
    process::{Command, Stdio},
    time::Duration,
};

use futures_util::poll;

use super::*;

/// Counts what it is told.
#[derive(Default)]
struct Counts(Mutex<(u64, u64, u64, u64)>);

impl Observer for Counts {
    fn written(&self, records: u64, _: Duration) {
        self.0.lock().0 += records;
    }

    fn dropped(&self, records: u64) {
        self.0.lock().1 += records;
    }

    fn failed(&self, records: u64) {
        self.0.lock().2 += records;
    }

    fn depth(&self, records: u64) {
        self.0.lock().3 = records;
    }
}

fn intent(facts: &Facts) -> Record<'_> {
    Record::intent(facts, NOW, Duration::ZERO)
}

async fn until(mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.expect("the condition never holds");
}

#[tokio::test]
async fn a_restart_goes_on_from_the_last_record() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("deep/er/hangu.jsonl");
    for _ in 0..3 {
        let audit = start(&file);
        audit.append(&call(&write_facts()));
        audit.stop().await.unwrap();
    }
    let records = verify(&read(&file)).unwrap();
    assert_eq!(events(&records), ["start", "call", "stop"].repeat(3));
    let chains: Vec<&str> = records.iter().map(|r| r["chain"]["id"].as_str().unwrap()).collect();
    assert_ne!(chains[0], chains[3], "each start is a chain of its own, even in one millisecond");
    assert_eq!(records[0]["chain"]["prev"], "0".repeat(64));
    assert_eq!(records[3]["chain"]["prev"], records[2]["chain"]["hash"]);
}

#[cfg(unix)]
#[tokio::test]
async fn the_file_is_not_for_everybody() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit/hangu.jsonl");
    start(&file).stop().await.unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&file) & 0o137, 0, "{:o}", mode(&file));
    assert_eq!(mode(file.parent().unwrap()) & 0o027, 0);
}

#[tokio::test]
async fn a_torn_line_is_kept_ended_and_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hangu.jsonl");
    let audit = start(&file);
    audit.append(&call(&write_facts()));
    audit.stop().await.unwrap();
    // As kill -9 in the middle of a write leaves it.
    let whole = read(&file).lines().take(2).map(|line| format!("{line}\n")).collect::<String>();
    fs::write(&file, format!("{whole}{}", &whole[..100])).unwrap();
    let audit = start(&file);
    audit.append(&call(&write_facts()));
    audit.stop().await.unwrap();

    let text = read(&file);
    assert!(text.starts_with(&format!("{whole}{}\n", &whole[..100])), "nothing is cut off");
    let records = verify(&text).unwrap();
    assert_eq!(events(&records), ["start", "call", "start", "gap", "call", "stop"]);
    assert_eq!(records[2]["chain"]["prev"], records[1]["chain"]["hash"]);
    assert_eq!((&records[3]["reason"], &records[3]["torn"]), (&"torn_line".into(), &1.into()));
}

/// Names the file to the process that the next test starts and kills.
const KILLED: &str = "HANGU_TEST_AUDIT_FILE";

#[tokio::test]
#[ignore = "runs in a process of its own, for the test below"]
async fn writes_until_it_is_killed() {
    let Some(file) = std::env::var_os(KILLED) else { return };
    let audit = start(Path::new(&file));
    for number in 0.. {
        let facts = Facts { call_id: Some(number), ..write_facts() };
        audit.durable(&intent(&facts)).await.unwrap();
        println!("\nacknowledged {}", crate::model::ids::uuid_text(number));
        for _ in 0..100 {
            audit.append(&call(&facts));
        }
    }
}

#[tokio::test]
async fn kill_9_loses_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("hangu.jsonl");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture"])
        .arg("audit::tests::failures::writes_until_it_is_killed")
        .env(KILLED, &file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    let acknowledged = output
        .lines()
        .filter_map(|line| Some(line.unwrap().strip_prefix("acknowledged ")?.to_owned()));
    let acknowledged: Vec<String> = acknowledged.take(50).collect();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(acknowledged.len(), 50);

    start(&file).stop().await.unwrap();
    let records = verify(&read(&file)).unwrap();
    let kept: Vec<&str> = records
        .iter()
        .filter(|record| record["event"] == "intent")
        .map(|record| record["toolCallId"].as_str().unwrap())
        .collect();
    for id in acknowledged {
        assert!(kept.contains(&&*id), "{id} is lost");
    }
}

#[test]
fn the_end_of_a_log_is_read_past_whatever_is_no_record() {
    let hash = "ab".repeat(32);
    let line = format!("{{\"chain\":{{\"hash\":\"{hash}\",\"id\":\"gw/x/12\",\"prev\":\"\"}}}}");
    let good = Tail { hash: Some([0xab; 32]), number: Some(12), torn: false };
    for (text, expected) in [
        (String::new(), Tail::default()),
        (format!("{line}\n"), good),
        (format!("{line}\n\n{{\"torn\n"), good),
        (format!("{line}\n{line}"), Tail { torn: true, ..good }),
        ("no log at all\n".into(), Tail::default()),
        (line.clone(), Tail { torn: true, ..Tail::default() }),
    ] {
        assert_eq!(Tail::parse(text.as_bytes()), expected, "{text}");
    }
}

#[tokio::test]
async fn durable_waits_for_the_disk() {
    let disk = Shaky::default();
    let (open, gate) = mpsc::channel();
    disk.0.lock().gate = Some(gate);
    let audit = start_on(&disk, 100, Arc::new(()));
    let facts = write_facts();
    let mut durable = pin!(audit.durable(&intent(&facts)));
    until(|| disk.text().contains("\"intent\"")).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(poll!(durable.as_mut()).is_pending(), "written, but not on disk");
    open.send(()).unwrap();
    assert_eq!(durable.await, Ok(()));
    assert_eq!(disk.0.lock().syncs, 1);
    drop(open);
}

#[tokio::test]
async fn a_full_disk_refuses_writes_and_keeps_records() {
    let disk = Shaky::default();
    let counts = Arc::new(Counts::default());
    let audit = start_on(&disk, 100, counts.clone());
    audit.flush().await.unwrap();
    assert!(audit.is_writable());
    let facts = write_facts();

    disk.set_room(Some(0));
    assert_eq!(audit.durable(&intent(&facts)).await, Err(AuditError::Unavailable));
    assert!(!audit.is_writable());
    let mut refused = pin!(audit.durable(&intent(&facts)));
    assert!(poll!(refused.as_mut()).is_ready(), "nobody waits for a log that is known to fail");
    audit.append(&call(&facts));
    assert_eq!(audit.flush().await, Err(AuditError::Unavailable));

    disk.set_room(None);
    audit.reopen().await.unwrap();
    assert!(audit.is_writable());
    audit.durable(&intent(&facts)).await.unwrap();
    audit.stop().await.unwrap();
    let records = verify(&disk.text()).unwrap();
    assert_eq!(events(&records), ["start", "intent", "gap", "call", "intent", "stop"]);
    let gap = &records[2];
    assert_eq!((&gap["reason"], &gap["lost"]), (&"sink_unavailable".into(), &1.into()));
    let (written, dropped, failed, depth) = *counts.0.lock();
    assert_eq!((written, dropped, failed, depth), (6, 0, 2, 0));
}

#[tokio::test]
async fn a_line_that_did_not_fit_is_written_again() {
    let disk = Shaky::default();
    let audit = start_on(&disk, 100, Arc::new(()));
    audit.flush().await.unwrap();
    let facts = write_facts();
    for room in [10, 1, 40] {
        disk.set_room(Some(room));
        audit.append(&call(&facts));
        assert!(audit.flush().await.is_err());
        assert!(audit.reopen().await.is_err(), "there is still no room");
    }
    disk.set_room(None);
    audit.reopen().await.unwrap();
    audit.stop().await.unwrap();
    let records = verify(&disk.text()).unwrap();
    assert_eq!(events(&records), ["start", "gap", "call", "call", "call", "stop"]);
}

#[tokio::test]
async fn a_failed_sync_is_told_to_who_waits_and_to_who_reads() {
    let disk = Shaky::default();
    let audit = start_on(&disk, 100, Arc::new(()));
    let facts = write_facts();
    disk.0.lock().sync_fails = true;
    assert_eq!(audit.durable(&intent(&facts)).await, Err(AuditError::Unavailable));
    disk.0.lock().sync_fails = false;
    audit.reopen().await.unwrap();
    audit.stop().await.unwrap();
    let records = verify(&disk.text()).unwrap();
    assert_eq!(events(&records), ["start", "intent", "gap", "stop"]);
    assert_eq!(records[2]["reason"], "sync_failed");
}

#[tokio::test]
async fn what_a_full_queue_loses_is_counted_and_told() {
    let disk = Shaky::default();
    let (open, gate) = mpsc::channel();
    disk.0.lock().gate = Some(gate);
    let counts = Arc::new(Counts::default());
    let audit = start_on(&disk, 3, counts.clone());
    let facts = write_facts();
    let waiting = audit.flush();
    until(|| !disk.text().is_empty() && disk.0.lock().gate.is_none()).await;
    for _ in 0..5 {
        audit.append(&call(&facts));
    }
    assert_eq!(audit.durable(&intent(&facts)).await, Err(AuditError::Full));
    drop(open);
    let _ = waiting.await;
    disk.0.lock().gate = None;
    audit.reopen().await.unwrap();
    audit.stop().await.unwrap();
    let records = verify(&disk.text()).unwrap();
    let gap = records.iter().rfind(|record| record["event"] == "gap").unwrap();
    assert_eq!(gap["lost"], 3, "{gap}");
    assert_eq!(events(&records).iter().filter(|event| **event == "call").count(), 3);
    let (_, dropped, failed, _) = *counts.0.lock();
    assert_eq!((dropped, failed), (2, 1));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_device_without_room_fails_like_a_full_disk() {
    let audit = start(Path::new("/dev/full"));
    let facts = write_facts();
    assert_eq!(audit.durable(&intent(&facts)).await, Err(AuditError::Unavailable));
    assert!(!audit.is_writable());
    assert_eq!(audit.stop().await, Err(AuditError::Unavailable));
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a");
    fs::write(&file, "").unwrap();
    let config = Config::new(file.join("hangu.jsonl"), "gw-1");
    let result = Audit::start(config, keys(), Clock::system(), Arc::new(()));
    let error = result.err().expect("a file is no folder").to_string();
    assert!(error.contains("hangu.jsonl"), "{error}");
}

#[tokio::test]
async fn a_moved_file_is_followed_by_a_new_one_in_the_same_chain() {
    let folder = tempfile::tempdir().unwrap();
    let (file, moved) = (folder.path().join("hangu.jsonl"), folder.path().join("hangu.1.jsonl"));
    let audit = start(&file);
    audit.append(&call(&write_facts()));
    audit.flush().await.unwrap();
    fs::rename(&file, &moved).unwrap();
    audit.reopen().await.unwrap();
    audit.append(&call(&write_facts()));
    audit.stop().await.unwrap();
    assert_eq!(events(&verify(&read(&moved)).unwrap()), ["start", "call"]);
    assert_eq!(events(&verify(&read(&file)).unwrap()), ["call", "stop"]);
    verify(&(read(&moved) + &read(&file))).unwrap();
}

#[tokio::test]
async fn nothing_is_taken_after_the_end() {
    let disk = Shaky::default();
    let audit = start_on(&disk, 100, Arc::new(()));
    audit.stop().await.unwrap();
    let facts = write_facts();
    assert_eq!(audit.durable(&intent(&facts)).await, Err(AuditError::Closed));
    assert_eq!(audit.flush().await, Err(AuditError::Closed));
    audit.append(&call(&facts));
    assert_eq!(events(&verify(&disk.text()).unwrap()), ["start", "stop"]);
}

#[tokio::test]
async fn records_reach_the_file_without_anybody_waiting() {
    let disk = Shaky::default();
    let audit = start_on(&disk, 100, Arc::new(()));
    for round in 1..=2 {
        audit.append(&call(&write_facts()));
        until(|| disk.text().matches("\"call\"").count() == round).await;
        // Long enough for the thread to go to sleep.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert!(disk.0.lock().syncs >= 1, "synced before it sleeps");
    drop(audit);
    until(|| disk.text().contains("\"stop\"")).await;
}
