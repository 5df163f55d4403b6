//! # quita-api: the queue as a service
//!
//! Reading order: [`config`] (every setting) → [`cli`] (every command) → this file (what is wired to what, and in which
//! order it stops) → [`http::server`] (sockets) → [`http`] (routes) → [`auth`] (who calls) → [`limit`] and [`metrics`] (what
//! is bounded and counted) → [`service`] (one file per operation) → the crate `quita_storage`.
//!
//! One publish: `http::server` reads a request → the router picks `http`'s handler, which parses it and asks [`auth`] →
//! [`service`] looks up the queue and hands over to the coalescer → the commit → 201.

pub mod auth;
pub mod cli;
pub mod config;
pub mod demo;
pub mod disk;
pub mod drain;
pub mod http;
pub mod limit;
pub mod metrics;
pub mod open_files;
pub mod service;
pub mod store;
pub mod telemetry;
pub mod trust;

pub use drain::Drain;

use auth::Authenticator;
use auth::first_key::{self, FirstKeyError, KeyPlace};
use auth::jwt::Tokens;
use auth::jwt::settings::SettingsError;
use config::Config;
use config::dev::{self, DevRefused};
use disk::Disk;
use http::admission::Admission;
use http::bodies::Bodies;
use http::server::tls::{Tls, TlsError};
use http::server::{Bounds, Edge};
use metrics::Metrics;
use quita_storage::backend::Backend;
use quita_storage::coalescer::Coalescer;
use quita_storage::error::StoreError;
use quita_storage::known_bug;
use quita_storage::model::Policy;
use quita_storage::timer::Timer;
use quita_storage::wakeup::Wakeup;
use service::{Service, ServiceSettings};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Time that requests have to hear that they were refused, once the drain deadline is over.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Time that the last commits and the closing of the store may take, each.
const STORE_DEADLINE: Duration = Duration::from_secs(5);

/// What every handler can reach.
#[derive(Clone)]
pub struct AppState {
    /// The operations.
    pub service: Arc<Service>,
    /// Who calls.
    pub auth: Arc<Authenticator>,
    /// Who comes in now.
    pub admission: Arc<Admission>,
    /// What bodies hold.
    pub bodies: Arc<Bodies>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// The settings.
    pub config: Arc<Config>,
    /// Whether the server is stopping.
    pub drain: Drain,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It would be open to others without access control.
    #[error(transparent)]
    Dev(#[from] DevRefused),
    /// The listener cannot speak TLS as the settings say.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The store could not be opened.
    #[error(transparent)]
    Open(#[from] store::OpenError),
    /// Tokens cannot be taken as the settings say.
    #[error("the token issuers: {0}")]
    Issuers(#[from] SettingsError),
    /// There is no first key.
    #[error("the first admin key: {0}")]
    FirstKey(#[from] FirstKeyError),
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There is no inner listener.
    #[error("could not listen on {0} (--inner-listen): {1}")]
    InnerListen(SocketAddr, std::io::Error),
    /// The socket could not be used.
    #[error("could not listen: {0}")]
    Listen(#[from] std::io::Error),
}

/// Settings that a server can be started with.
pub struct Checked {
    config: Config,
    tls: Option<Arc<Tls>>,
}

/// What can be refused before the store is touched: settings that contradict the place, and bad TLS files.
pub fn check(config: Config, address: SocketAddr) -> Result<Checked, StartError> {
    config.dev.check(address)?;
    let tls = Tls::load(&config.tls)?.map(Arc::new);
    Ok(Checked { config, tls })
}

/// Opens the store, serves until `shutdown` resolves, and stops in order.
pub async fn run(
    config: Config,
    listener: TcpListener,
    shutdown: impl Future<Output = ()>,
) -> Result<(), StartError> {
    let checked = check(config, listener.local_addr()?)?;
    let backend = store::open(&checked.config.store).await?;
    let server = Server::start(checked, backend, listener).await?;
    shutdown.await;
    server.stop().await;
    Ok(())
}

/// A running server.
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    /// Where its first key is.
    pub key: KeyPlace,
    config: Arc<Config>,
    backend: Arc<dyn Backend>,
    coalescer: Coalescer,
    tls: Option<Arc<Tls>>,
    edge: Edge,
    inner: Option<Edge>,
    drain: Drain,
    loops: JoinSet<()>,
}

impl Server {
    /// Starts everything, the socket last: who can connect is served.
    pub async fn start(
        checked: Checked,
        backend: Arc<dyn Backend>,
        listener: TcpListener,
    ) -> Result<Self, StartError> {
        let Checked { config, tls } = checked;
        let address = listener.local_addr()?;
        let inner = match config.inner_listen {
            Some(at) => Some(inner_listener(at).await?),
            None => None,
        };
        // It may be another one than was looked at.
        config.dev.check(address)?;
        let tokens = match &config.jwt_issuers {
            Some(file) if !config.dev.dev_no_auth => Some(Arc::new(Tokens::load(file)?)),
            _ => None,
        };
        store::private_folder_of(&config.key_file())?;
        let (key, mut auth) = if config.dev.dev_no_auth {
            let auth = Authenticator::open_to_everybody(backend.clone());
            (KeyPlace::NotNeeded, auth)
        } else {
            let (given, file) = (config.admin_key.as_deref(), config.key_file());
            let key = first_key::ensure(&*backend, given, &file).await?;
            (key, Authenticator::load(backend.clone()).await?)
        };
        if let Some(tokens) = &tokens {
            auth = auth.with_tokens(tokens.clone());
        } else if !config.dev.dev_no_auth && !auth.has_a_keeper() {
            tracing::warn!(
                "no API key that is good now may make others: `quita key create` makes one"
            );
        }
        let auth = Arc::new(auth);
        let (wakeup, timer) = (Arc::<Wakeup>::default(), Arc::<Timer>::default());
        let coalescer = Coalescer::start(
            backend.clone(),
            wakeup.clone(),
            timer.clone(),
            config.waiting(),
        );

        let mut loops = JoinSet::new();
        loops.spawn(timer.clone().run_due(backend.clone(), wakeup.clone()));
        loops.spawn(Timer::run_maintenance(backend.clone(), config.keep()));
        loops.spawn(timer.clone().run_redrives(backend.clone(), wakeup.clone()));
        loops.spawn(timer.run_poll(backend.clone(), wakeup));
        if !config.dev.dev_no_auth {
            loops.spawn(auth.clone().run_refresh());
        }
        if let Some(tokens) = tokens {
            loops.spawn(tokens.run_refresh());
        }

        let disk = Disk::default();
        if let Some(file) = config.store.sqlite_file() {
            loops.spawn(disk.clone().watch(file, config.min_free_bytes));
        }

        let config = Arc::new(config);
        let settings = ServiceSettings {
            auto_create_queues: config.auto_create_queues,
            default_policy: Policy::default(),
            max_waiting_receives: config.max_waiting_receives as usize,
            max_waiting_receives_per_key: config
                .limits
                .max_waiting_receives_per_key
                .map(|max| max as usize),
            disk: disk.clone(),
        };
        let (drain, metrics) = (Drain::default(), Arc::<Metrics>::default());
        let state = Arc::new(AppState {
            service: Service::new(coalescer.clone(), settings),
            auth,
            admission: Arc::new(Admission::new(
                config.limits.rates(),
                config.limits.max_requests as usize,
            )),
            bodies: Arc::new(Bodies::new(config.limits.max_body_bytes as usize)),
            metrics: metrics.clone(),
            config: config.clone(),
            drain: drain.clone(),
        });
        let edge = Edge::start(
            listener,
            tls.clone(),
            http::router(state.clone()),
            Bounds::of(&config),
            drain.clone(),
            metrics.clone(),
        );
        let inner = inner.map(|listener| {
            let bounds = Bounds {
                connections: INNER_CONNECTIONS,
                ..Bounds::of(&config)
            };
            let router = http::inner_router(state);
            Edge::start(listener, None, router, bounds, drain.clone(), metrics)
        });
        warn_about(&config, address);
        let store = config.store.shown_url();
        tracing::info!(%address, tls = tls.is_some(), store, "serving");
        Ok(Self {
            address,
            key,
            config,
            backend,
            coalescer,
            tls,
            edge,
            inner,
            drain,
            loops,
        })
    }

    /// Whether there is anything that [`Server::reload`] would read.
    pub fn reads_again(&self) -> bool {
        self.tls.is_some()
    }

    /// Reads again what may be read again while the server runs: the TLS certificate. Does not wait for it: a file system
    /// that hangs holds up neither requests nor the end.
    pub fn reload(&self) {
        if let Some(tls) = self.tls.clone() {
            tokio::task::spawn_blocking(move || tls.reload());
        }
    }

    /// Stops: readiness ends and waits end → accepts for the drain delay → accepts nothing → finishes what is in flight →
    /// commits what waits → stops the loops → closes the store. No answer is cut before the drain deadline is over.
    pub async fn stop(mut self) {
        tracing::info!(open = self.edge.open(), "stopping");
        if known_bug!("listener-closed-before-readiness-flips") {
            self.edge.close();
        }
        // Whoever waits for messages is told by this, and answered empty.
        self.drain.begin();
        tokio::time::sleep(self.config.drain_delay_seconds).await;

        self.edge.close();
        let in_time = timeout(self.config.drain_deadline_seconds, self.edge.finished())
            .await
            .is_ok();
        // Whoever is still here is told so; before the deadline nobody was refused.
        self.coalescer.refuse_new_work();
        if !in_time {
            let _ = timeout(LAST_WORDS, self.edge.finished()).await;
            tracing::warn!(open = self.edge.open(), "the drain deadline is over");
            // Leases in answers that did not leave come back as work for the coalescer: it must still be there.
            self.edge.abort();
            let _ = timeout(LAST_WORDS, self.edge.finished()).await;
        }
        if timeout(STORE_DEADLINE, self.coalescer.drain())
            .await
            .is_err()
        {
            tracing::error!("the last commits did not end in time");
        }
        self.loops.shutdown().await;
        if timeout(STORE_DEADLINE, self.backend.close()).await.is_err() {
            tracing::error!("the store did not close in time");
        }
        if let Some(inner) = &self.inner {
            inner.close();
            let _ = timeout(LAST_WORDS, inner.finished()).await;
        }
        tracing::info!("stopped");
    }
}

/// Connections of the inner listener: some probes, some collectors.
const INNER_CONNECTIONS: usize = 64;

async fn inner_listener(at: SocketAddr) -> Result<TcpListener, StartError> {
    let listener = TcpListener::bind(at)
        .await
        .map_err(|error| StartError::InnerListen(at, error))?;
    tracing::info!(address = %listener.local_addr()?, "health and metrics without a key");
    Ok(listener)
}

/// Says what is fit for this machine alone.
fn warn_about(config: &Config, address: SocketAddr) {
    if config.dev.dev_no_auth {
        tracing::warn!(
            "--dev-no-auth: every request may do everything, and audit rows name {}",
            auth::EVERYBODY
        );
    }
    if !config.tls.is_on() && !dev::is_loopback(address) {
        tracing::warn!(
            %address,
            "keys and messages cross the network in the clear: give --tls-cert and --tls-key, or have a proxy that ends TLS in front"
        );
    }
}
