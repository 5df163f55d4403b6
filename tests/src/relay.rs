//! A relay before a database, that can be told to fail as a network does.

use parking_lot::Mutex;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What becomes of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    /// They pass.
    Fair,
    /// Connections are closed, and new ones at once.
    Cut,
    /// Connections stay open and nothing passes, as when a machine on the way forgot them: what is asked now is never
    /// answered on these connections, and new ones are taken and get nothing.
    Silent,
}

/// Listens for as long as it lives, and relays to one address.
pub struct Relay {
    port: u16,
    weather: Arc<watch::Sender<Weather>>,
    accepting: JoinHandle<()>,
    lost: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    /// A relay to the server of this database URL.
    pub async fn before(url: &str) -> Self {
        let (_, rest) = url.split_once('@').unwrap();
        let server = rest.split('/').next().unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let weather = Arc::new(watch::Sender::new(Weather::Fair));
        let lost = Arc::<Mutex<Vec<TcpStream>>>::default();
        let (sender, lost_here) = (weather.clone(), lost.clone());
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let now = *sender.borrow();
                match now {
                    Weather::Fair => {
                        tokio::spawn(pass(client, server.clone(), sender.subscribe()));
                    }
                    Weather::Cut => drop(client),
                    Weather::Silent => lost_here.lock().push(client),
                }
            }
        });
        Self {
            port,
            weather,
            accepting,
            lost,
        }
    }

    /// The URL of the database by way of the relay.
    pub fn url(&self, url: &str) -> String {
        let (head, rest) = url.split_once('@').unwrap();
        let (_, name) = rest.split_once('/').unwrap();
        format!("{head}@127.0.0.1:{}/{name}", self.port)
    }

    /// Closes every connection, and lets none in.
    pub fn cut(&self) {
        self.weather.send_replace(Weather::Cut);
    }

    /// Lets nothing pass on any connection, for good; new ones are taken and hear nothing.
    pub fn fall_silent(&self) {
        self.weather.send_replace(Weather::Silent);
    }

    /// New connections work. Those that were lost stay lost.
    pub fn mend(&self) {
        self.weather.send_replace(Weather::Fair);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
        self.weather.send_replace(Weather::Cut);
        self.lost.lock().clear();
    }
}

async fn pass(mut client: TcpStream, server: String, mut weather: watch::Receiver<Weather>) {
    let Ok(mut server) = TcpStream::connect(server).await else {
        return;
    };
    let (mut there, mut back) = ([0; 16 << 10], [0; 16 << 10]);
    loop {
        let passed = tokio::select! {
            biased;
            _ = weather.changed() => break,
            read = client.read(&mut there) => match read {
                Ok(read @ 1..) => server.write_all(&there[..read]).await,
                _ => return,
            },
            read = server.read(&mut back) => match read {
                Ok(read @ 1..) => client.write_all(&back[..read]).await,
                _ => return,
            },
        };
        if passed.is_err() {
            return;
        }
    }
    let fell = *weather.borrow();
    if fell == Weather::Silent {
        // Open until the relay goes; the server behind it is told, as it would find out by itself in the end.
        drop(server);
        let _ = weather.wait_for(|now| *now == Weather::Cut).await;
    }
}
