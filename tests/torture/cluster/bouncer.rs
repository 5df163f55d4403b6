//! `PgBouncer`: in transaction mode, a server's session is another one at every transaction.

use super::LACKS;
use super::postgres::Postgres;
use super::process::{Process, bound_to_us, program};
use super::replica::steady_address;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// Longer than its start takes.
const START: Duration = Duration::from_secs(10);

/// A pooler that runs.
pub(crate) struct Bouncer {
    /// Its port on 127.0.0.1.
    pub(crate) port: u16,
    _process: Process,
}

impl Bouncer {
    /// Starts it in this mode before a database; or says what is missing.
    pub(crate) async fn start(
        postgres: &Postgres,
        mode: &str,
        folder: &Path,
    ) -> Result<Self, String> {
        let program = program("pgbouncer").ok_or(format!("{LACKS}no pgbouncer"))?;
        let port = steady_address().port();
        let users = postgres.data.with_file_name("bouncer.users");
        let file = postgres.data.with_file_name("bouncer.ini");
        let write =
            |path: &Path, text: String| std::fs::write(path, text).map_err(|e| e.to_string());
        write(&users, "\"quita\" \"\"\n".to_owned())?;
        let (behind, users) = (postgres.port, users.display());
        let settings = format!(
            "[databases]\nquita = host=127.0.0.1 port={behind} dbname=quita\n[pgbouncer]\n\
             listen_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = trust\nauth_file = {users}\n\
             pool_mode = {mode}\nmax_client_conn = 500\ndefault_pool_size = 100\nunix_socket_dir =\n\
             ignore_startup_parameters = extra_float_digits,options\n"
        );
        write(&file, settings)?;
        let mut command = bound_to_us(&program);
        command.arg(&file);
        postgres.run_as_its_user(&mut command);
        let process = Process::start(command, &folder.join("bouncer.log"), |_| {});
        let process = process.map_err(|e| e.to_string())?;
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            if process.has_ended() || began.elapsed() > START {
                return Err("pgbouncer does not start".to_owned());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Self {
            port,
            _process: process,
        })
    }
}
