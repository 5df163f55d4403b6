//! A throw-away PostgreSQL server per test process, and a database per test.
//!
//! The server is made from the installed binaries and runs under a shell that waits on a pipe from this process: however the
//! process ends, the pipe closes, the shell stops the server and removes its directory. `QUITA_TEST_POSTGRES_URL` names a
//! server to use instead. Without either there is no store to test; `QUITA_REQUIRE_POSTGRES=1` makes that a failure.

use sqlx::{Connection, PgConnection};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// One database, empty at first. Removed with this value.
#[derive(Debug)]
pub struct Database {
    /// Connects to it, as a superuser.
    pub url: String,
    name: String,
}

/// A new database on the shared server; `None` when there is no PostgreSQL, which is said once.
pub async fn database() -> Option<Database> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let server = server()?;
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("quita_test_{}_{number}", std::process::id());
    let url = format!("{}/{name}", server.url);
    execute(&format!("CREATE DATABASE {name}")).await;
    Some(Database { url, name })
}

impl Database {
    /// Removes the database, connections included.
    pub async fn drop(self) {
        execute(&format!("DROP DATABASE {} WITH (FORCE)", self.name)).await;
    }
}

async fn execute(sql: &str) {
    let server = server().unwrap();
    let mut connection = PgConnection::connect(&format!("{}/postgres", server.url))
        .await
        .unwrap();
    sqlx::raw_sql(sqlx::AssertSqlSafe(sql.to_owned()))
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
}

struct Server {
    /// Without a database's name.
    url: String,
    /// Closes with the process, which ends the server.
    _lifeline: Option<ChildStdin>,
}

fn server() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER.get_or_init(find_or_start).as_ref()
}

fn setting(name: &str) -> Option<String> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the settings of this harness are read here"
    )]
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn find_or_start() -> Option<Server> {
    if let Some(url) = setting("QUITA_TEST_POSTGRES_URL") {
        let url = url.trim_end_matches('/').to_owned();
        return Some(Server {
            url,
            _lifeline: None,
        });
    }
    let why = match binaries() {
        Some(bin) => match start(&bin) {
            Ok(server) => return Some(server),
            Err(why) => why,
        },
        None => "no initdb on PATH or under /usr/lib/postgresql".to_owned(),
    };
    assert!(
        setting("QUITA_REQUIRE_POSTGRES").is_none_or(|v| v != "1"),
        "QUITA_REQUIRE_POSTGRES is set, and there is no PostgreSQL: {why}"
    );
    // Written past the capture of the test runner, which would keep it from a run that passes.
    let line = format!("SKIPPED: every PostgreSQL test of this binary ({why})\n");
    std::io::stderr().write_all(line.as_bytes()).ok();
    None
}

/// The folder of the newest installed `initdb`, one on PATH first.
pub fn binaries() -> Option<PathBuf> {
    let on_path = setting("PATH").unwrap_or_default();
    let mut found = std::env::split_paths(&on_path).find(|dir| dir.join("initdb").is_file());
    if found.is_none() {
        let version =
            |dir: &PathBuf| -> Option<u32> { dir.parent()?.file_name()?.to_str()?.parse().ok() };
        let installed = std::fs::read_dir("/usr/lib/postgresql")
            .into_iter()
            .flatten()
            .flatten();
        found = installed
            .map(|entry| entry.path().join("bin"))
            .filter(|dir| dir.join("initdb").is_file())
            .max_by_key(version);
    }
    found
}

/// Stops and removes the server once standard input ends, whatever ended it.
const KEEPER: &str = r#"
trap '' INT TERM HUP
"$1/postgres" -D "$2/data" -k "$2" -p "$3" >"$2/log" 2>&1 &
read -r _
kill -QUIT $!
wait $!
rm -rf "$2"
"#;

fn start(bin: &Path) -> Result<Server, String> {
    let home = tempfile::Builder::new()
        .prefix("quita-pg-")
        .tempdir()
        .unwrap();
    let user = unprivileged(home.path());
    let run_as = |command: &mut Command| {
        if let Some((uid, gid)) = user {
            command.uid(uid).gid(gid);
        }
        command.current_dir("/");
    };
    let mut initdb = Command::new(bin.join("initdb"));
    initdb.args(["-U", "quita", "-A", "trust", "-E", "UTF8", "--locale=C"]);
    initdb
        .args(["--no-sync", "-D"])
        .arg(home.path().join("data"));
    run_as(&mut initdb);
    let made = initdb.output().map_err(|e| e.to_string())?;
    if !made.status.success() {
        return Err(String::from_utf8_lossy(&made.stderr).into_owned());
    }
    let settings = "listen_addresses = '127.0.0.1'\nfsync = off\nfull_page_writes = off\n\
        synchronous_commit = on\nmax_connections = 300\nshared_buffers = 64MB\nautovacuum_naptime = 5s\n";
    let conf = home.path().join("data/postgresql.auto.conf");
    std::fs::write(&conf, settings).unwrap();

    let port = free_port();
    let mut keeper = Command::new("sh");
    keeper.args(["-c", KEEPER, "keeper"]);
    keeper.arg(bin).arg(home.path()).arg(port.to_string());
    keeper.stdin(Stdio::piped()).stdout(Stdio::null());
    // A group of its own: an interrupt from the terminal must not reach the keeper before its work is done.
    keeper.stderr(Stdio::null()).process_group(0);
    run_as(&mut keeper);
    let mut keeper = keeper.spawn().map_err(|e| e.to_string())?;
    let lifeline = keeper.stdin.take();
    // From here on the keeper removes the directory.
    let home = home.keep();
    for _ in 0..1_000 {
        if is_ready(&home) {
            let url = format!("postgres://quita@127.0.0.1:{port}");
            return Ok(Server {
                url,
                _lifeline: lifeline,
            });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let log = std::fs::read_to_string(home.join("log")).unwrap_or_default();
    Err(format!("the server does not start: {log}"))
}

/// The server says so itself, in the eighth line of its lock file: PostgreSQL's `utils/pidfile.h`.
fn is_ready(home: &Path) -> bool {
    let lock = std::fs::read_to_string(home.join("data/postmaster.pid")).unwrap_or_default();
    lock.lines()
        .nth(7)
        .is_some_and(|line| line.trim() == "ready")
}

/// Whom to run the server as, since it refuses to run as root. Gives `home` to that user.
pub fn unprivileged(home: &Path) -> Option<(u32, u32)> {
    if std::fs::metadata(home).unwrap().uid() != 0 {
        return None;
    }
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let ids = |name: &str| -> Option<(u32, u32)> {
        let line = users.lines().find(|l| l.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    let (uid, gid) = ids("postgres").or_else(|| ids("nobody"))?;
    chown(home, Some(uid), Some(gid)).unwrap();
    std::fs::set_permissions(home, std::fs::Permissions::from_mode(0o700)).unwrap();
    Some((uid, gid))
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    listener.local_addr().unwrap().port()
}
