//! Who stands between the load and the stub: nginx as a plain proxy, and Hangu with
//! everything on. Both get two workers and write no access log.

use std::{
    fs, io,
    io::{BufRead, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
};

use crate::process::Server;

/// What the gateway is called with.
pub const KEY: &str = "end-to-end-bench-key";
pub const EMPLOYEE: &str = "E1001";

/// The stub in its own process; it ends when this is dropped.
#[derive(Debug)]
pub struct Stub {
    pub address: String,
    child: Child,
    input: Option<ChildStdin>,
}

/// A proxy and where it listens.
#[derive(Debug)]
pub struct Proxy {
    pub address: String,
    pub server: Server,
}

impl Stub {
    pub fn start() -> io::Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("stub")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut address = String::new();
        BufReader::new(output).read_line(&mut address)?;
        let input = child.stdin.take();
        Ok(Self { address: address.trim().to_owned(), child, input })
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        drop(self.input.take());
        drop(self.child.wait());
    }
}

/// nginx, if it is installed.
pub async fn nginx(folder: &Path, stub: &str) -> io::Result<Option<Proxy>> {
    let Some(program) = installed("nginx") else { return Ok(None) };
    let folder = folder.join("nginx");
    fs::create_dir_all(&folder)?;
    let address = free_address()?;
    let place = folder.display();
    let config = format!(
        "worker_processes 2;
daemon off;
pid {place}/pid;
error_log {place}/error.log warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
    client_body_temp_path {place}/client;
    proxy_temp_path {place}/proxy;
    fastcgi_temp_path {place}/fastcgi;
    uwsgi_temp_path {place}/uwsgi;
    scgi_temp_path {place}/scgi;
    upstream stub {{
        server {stub};
        keepalive 128;
        keepalive_requests 1000000000;
    }}
    server {{
        listen {address};
        location / {{
            proxy_pass http://stub;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
            proxy_max_temp_file_size 0;
        }}
    }}
}}
"
    );
    let file = folder.join("nginx.conf");
    fs::write(&file, config)?;
    let mut command = Command::new(program);
    command.arg("-p").arg(&folder).arg("-c").arg(&file);
    let mut server = Server::start(&mut command, &folder.join("output.log"))?;
    server.listens(&address).await?;
    Ok(Some(Proxy { address, server }))
}

/// A gateway before the stub's catalog of so many tools.
pub async fn hangu(program: &Path, folder: &Path, stub: &str, tools: usize) -> io::Result<Proxy> {
    let folder = folder.join(format!("hangu-{tools}"));
    fs::create_dir_all(folder.join("policies"))?;
    let (address, admin) = (free_address()?, free_address()?);
    let config = format!(
        "version: hangu/v1
listen: {address}
workers: 2
admin: {{ listen: {admin} }}
policies: policies/
audit: {{ file: audit.jsonl }}
callers:
  bench:
    keys: [{{ env: HANGU_BENCH_KEY }}]
    tenant: acme
    identity: header
    catalog_roles: [member]
upstreams:
  bench:
    url: http://{stub}/mcp/{tools}
    max_concurrency: 1024
    max_response_bytes: 4MiB
"
    );
    fs::write(folder.join("hangu.yaml"), config)?;
    fs::write(folder.join("policies/bench.yaml"), POLICIES)?;
    let mut command = Command::new(program);
    command.args(["serve", "--config"]).arg(folder.join("hangu.yaml")).env("HANGU_BENCH_KEY", KEY);
    let mut server = Server::start(&mut command, &folder.join("output.log"))?;
    server.listens(&address).await?;
    Ok(Proxy { address, server })
}

/// Every kind of rule a call has to pass, none of which it breaks.
const POLICIES: &str = r#"version: hangu/v1
kind: Tools
upstreams:
  bench:
    default: { risk: read_low }
---
version: hangu/v1
kind: Directory
employees:
  E1001: { tenant: acme, roles: [member, tester] }
---
version: hangu/v1
kind: Policy
scope: platform
rules:
  - { id: no-shell, effect: deny, tools: ["*/shell*", "*/exec*"] }
---
version: hangu/v1
kind: Policy
scope: { tenant: acme }
rules:
  - { id: reads, effect: allow, roles: [member], risk: [read_low] }
  - { id: writes, effect: allow, roles: [tester], risk: [write_low], tools: ["bench/*"] }
limits:
  - { id: tenant-rate, per: [tenant], rate: 100000000/1m, burst: 10000000 }
  - { id: employee-rate, per: [principal], rate: 100000000/1m, burst: 10000000 }
  - { id: tool-rate, per: [tenant, tool], rate: 100000000/1m, burst: 10000000 }
  - { id: slots, per: [tenant, upstream], concurrency: 1024, queue: 1024, wait: 2s }
"#;

fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn free_address() -> io::Result<String> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.to_string())
}
