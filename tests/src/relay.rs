//! A relay before a database, that can be told to fail as a network does.

use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// What has happened so far. A connection holds it against what it was when it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Weather {
    /// New connections are closed at once.
    down: bool,
    /// How often all connections were closed.
    cuts: u64,
    /// How often all connections fell silent.
    silences: u64,
}

/// Listens for as long as it lives, and relays to one address.
pub struct Relay {
    port: u16,
    weather: Arc<watch::Sender<Weather>>,
    accepting: JoinHandle<()>,
}

impl Relay {
    /// A relay to the server of this database URL.
    pub async fn before(url: &str) -> Self {
        let (_, rest) = url.split_once('@').unwrap();
        let server = rest.split('/').next().unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let weather = Arc::new(watch::Sender::new(Weather::default()));
        let sender = weather.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (began, weather) = (*sender.borrow(), sender.subscribe());
                if !began.down {
                    tokio::spawn(pass(client, server.clone(), began, weather));
                }
            }
        });
        Self {
            port,
            weather,
            accepting,
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
        self.weather.send_modify(|weather| {
            weather.down = true;
            weather.cuts += 1;
        });
    }

    /// Lets connections in again.
    pub fn mend(&self) {
        self.weather.send_modify(|weather| weather.down = false);
    }

    /// Connections that are open stay open, and nothing passes on them any more, as when a machine on the way forgot them.
    /// New ones work.
    pub fn fall_silent(&self) {
        self.weather.send_modify(|weather| weather.silences += 1);
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn pass(
    mut client: TcpStream,
    server: String,
    began: Weather,
    mut weather: watch::Receiver<Weather>,
) {
    let Ok(mut server) = TcpStream::connect(server).await else {
        return;
    };
    let (mut there, mut back) = ([0; 16 << 10], [0; 16 << 10]);
    let mut changes = weather.clone();
    loop {
        let passed = tokio::select! {
            biased;
            () = until(&mut changes, |now| (now.cuts, now.silences) != (began.cuts, began.silences)) => break,
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
    // The server learns of it, as it would by itself in the end; the client does not.
    drop(server);
    until(&mut weather, |now| now.cuts != began.cuts).await;
}

/// Resolves when this holds, or when the relay is gone.
async fn until(weather: &mut watch::Receiver<Weather>, fact: impl FnMut(&Weather) -> bool) {
    let _ = weather.wait_for(fact).await;
}
