//! Signals and the hand-over of sockets, with real processes: the test starts its own binary.

use std::{
    net::SocketAddr,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
};

use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::*;

const ADDRESS: &str = "EDGE_TEST_ADDRESS";

/// The process under test, when it is started as one; nothing otherwise.
#[test]
fn child() {
    let Ok(address) = std::env::var(ADDRESS) else { return };
    let directory = std::env::var("EDGE_TEST_DIRECTORY").unwrap();
    let mut config = HostConfig::new(Path::new(&directory).join("upgrade.sock"));
    config.upgrade = std::env::var("EDGE_TEST_UPGRADE").is_ok();
    config.drain_timeout = ms(3000);
    let shutdown = Shutdown::new();
    let workers = shutdown.clone();
    let ended = host(config, &shutdown, move |sockets| {
        let listen = ListenConfig::new(address.parse().unwrap());
        let listener = sockets.bind("listen", &listen).map_err(|error| error.to_string())?;
        serve(listener, ServerConfig::default(), 2, &workers, |_| stack())
            .map(|workers| vec![workers])
            .map_err(|error| error.to_string())
    });
    match ended {
        Ok(Drained::Clean) => {}
        Ok(Drained::CutShort) => panic!("cut short"),
        Err(error) => panic!("{error}"),
    }
}

struct Process(Child);

impl Process {
    fn start(address: SocketAddr, directory: &Path, upgrade: bool) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "edge::tests::process::child", "--test-threads=1"])
            .env(ADDRESS, address.to_string())
            .env("EDGE_TEST_DIRECTORY", directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if upgrade {
            command.env("EDGE_TEST_UPGRADE", "1");
        }
        Self(command.spawn().unwrap())
    }

    fn signal(&self, name: &str) {
        let kill = format!("kill -{name} {}", self.0.id());
        assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
    }

    async fn end(&mut self, within: Duration) -> Option<ExitStatus> {
        let begun = Instant::now();
        while begun.elapsed() < within {
            if let Some(status) = self.0.try_wait().unwrap() {
                return Some(status);
            }
            sleep(ms(5)).await;
        }
        None
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn free_address() -> SocketAddr {
    tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap()
}

async fn connect(address: SocketAddr) -> Client {
    for _ in 0..400 {
        if let Ok(stream) = TcpStream::connect(address).await {
            return Client(stream);
        }
        sleep(ms(10)).await;
    }
    panic!("nobody listens");
}

#[tokio::test]
async fn sigterm_finishes_the_call_under_way_and_ends_with_success() {
    let (address, dir) = (free_address().await, TempDir::new().unwrap());
    let mut process = Process::start(address, dir.path(), false);
    let mut client = connect(address).await;
    client.write("GET /slow HTTP/1.1\r\nhost: h\r\n\r\n").await;
    sleep(ms(50)).await;
    process.signal("TERM");
    assert_eq!(client.answer().await.unwrap().1, "late");
    let ended = process.end(ms(1500)).await.expect("it ends at once when nothing is left");
    assert!(ended.success());
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once() {
    let (address, dir) = (free_address().await, TempDir::new().unwrap());
    let mut process = Process::start(address, dir.path(), false);
    let mut client = connect(address).await;
    client.write("GET /slow HTTP/1.1\r\nhost: h\r\n\r\n").await;
    sleep(ms(50)).await;
    process.signal("INT");
    sleep(ms(30)).await;
    process.signal("INT");
    assert!(client.answer().await.is_none());
    assert!(!process.end(ms(1500)).await.expect("it ends").success());
}

#[tokio::test]
async fn an_address_that_is_taken_is_an_error_and_not_a_wait() {
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dir = TempDir::new().unwrap();
    let mut process = Process::start(taken.local_addr().unwrap(), dir.path(), false);
    assert!(!process.end(ms(1500)).await.expect("it ends").success());
}

#[tokio::test]
async fn sigquit_without_a_successor_changes_nothing() {
    let (address, dir) = (free_address().await, TempDir::new().unwrap());
    let mut process = Process::start(address, dir.path(), false);
    let mut client = connect(address).await;
    client.ask("/", "one").await;
    process.signal("QUIT");
    sleep(ms(100)).await;
    // Left over from a successor that died.
    drop(std::os::unix::net::UnixListener::bind(dir.path().join("upgrade.sock")).unwrap());
    process.signal("QUIT");
    sleep(ms(100)).await;
    assert_eq!(client.ask("/", "two").await.1, "two");
    process.signal("TERM");
    assert!(process.end(ms(1500)).await.expect("it ends").success());
}

#[tokio::test]
async fn the_socket_passes_to_the_next_process_and_no_connection_is_refused() {
    let (address, dir) = (free_address().await, TempDir::new().unwrap());
    let old = Process::start(address, dir.path(), false);
    drop(connect(address).await);
    let new = Process::start(address, dir.path(), true);
    while !dir.path().join("upgrade.sock").exists() {
        sleep(ms(5)).await;
    }
    old.signal("QUIT");
    let begun = Instant::now();
    let mut answered = [0, 0];
    // The old one serves on for a while, so both answer for as long as it takes to see that.
    while answered[1] == 0 && begun.elapsed() < ms(4000) {
        // A refused connection would be a panic here.
        let mut client = Client(TcpStream::connect(address).await.unwrap());
        let pid: u32 = client.ask("/pid", "").await.1.parse().unwrap();
        answered[usize::from(pid == new.0.id())] += 1;
        sleep(ms(1)).await;
    }
    assert!(answered[0] > 0 && answered[1] > 0, "{answered:?}");
    drop(old);
    for _ in 0..20 {
        let mut client = Client(TcpStream::connect(address).await.unwrap());
        let pid: u32 = client.ask("/pid", "").await.1.parse().unwrap();
        assert_eq!(pid, new.0.id());
    }
}
