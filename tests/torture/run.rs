//! One run: servers, load, faults, and the reckoning.

use crate::args::Args;
use crate::cluster::replica::Setup;
use crate::cluster::{Cluster, Store, Twist, scan_logs, watch};
use crate::drive::payload::PLANTED;
use crate::drive::{Load, queues};
use crate::history::{Event, Fault, Happened, Header, History};
use crate::nemesis::{self, Plan};
use quita_api::auth::ApiKey;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Longer than a client's last call takes.
const LAST_CALLS: Duration = Duration::from_secs(15);

/// What a server promises for its stop, with a little more.
const STOP: Duration = Duration::from_secs(25);

/// How long a server under test goes on accepting after SIGTERM.
const DRAIN_DELAY: Duration = Duration::from_millis(500);

/// From SIGTERM to the exit, at most.
const DRAIN_DEADLINE: Duration = Duration::from_secs(20);

/// Does what the arguments say; answers where the history is.
pub(crate) async fn run(args: &Args, twist: Twist) -> Result<PathBuf, String> {
    let seed = args.seed.unwrap_or_else(any_seed);
    let folder = home(args, seed)?;
    let file = folder.join("history.jsonl");
    let quita = match &args.quita {
        Some(path) => path
            .canonicalize()
            .map_err(|e| format!("{}: {e}", path.display()))?,
        None => quita_tests::server::binary().to_owned(),
    };
    println!("seed {seed}, {:?}, {}", args.store, file.display());
    let header = header(args, seed, &quita)?;
    let history = History::create(&file, header).map_err(|e| e.to_string())?;
    let key = ApiKey::generate().ok_or("no chance to make a key of")?;
    let key = key.reveal().to_owned();
    let cluster = Cluster::start(
        args.store,
        args.servers(),
        twist,
        &folder,
        setup(quita, &key, args.known_bug.as_deref()),
        &history,
    );
    let cluster = Arc::new(cluster.await?);
    let watching = tokio::spawn(watch(cluster.clone(), history.clone()));
    let done = torture(args, seed, &cluster, &history).await;
    watching.abort();
    scan_logs(&cluster, &history, &[key, PLANTED.to_owned()]);
    history.finish().map_err(|e| e.to_string())?;
    done.map(|()| file)
}

async fn torture(
    args: &Args,
    seed: u64,
    cluster: &Arc<Cluster>,
    history: &History,
) -> Result<(), String> {
    let load = Load::new(seed, cluster.fronts(), &cluster.key, history);
    load.prepare().await?;
    // What was made until now is no part of what a power cut may take.
    if let Ok(disk) = &cluster.disk {
        disk.sync()?;
    }
    let mut clients = load.begin();
    let plan = Plan {
        only: args.faults.clone(),
        every: Duration::from_secs_f64(args.every),
        most: args.max_faults.unwrap_or(usize::MAX),
        until: Instant::now() + args.length(),
        seed,
    };
    nemesis::run(cluster, history, plan).await?;
    load.end();
    let ended = async { while clients.join_next().await.is_some() {} };
    let ended = tokio::time::timeout(LAST_CALLS, ended).await;
    ended.map_err(|_| "a client does not end")?;
    cluster.heal().await?;
    history.event(Event {
        kind: Happened::Healed,
        t: history.now(),
        ..Event::default()
    });
    load.settle_up().await?;
    tell_clocks(cluster, history);
    for replica in &cluster.replicas {
        let stopped = replica.stop(STOP).await;
        stopped.ok_or(format!("replica {} does not stop", replica.index))?;
    }
    Ok(())
}

/// Servers whose clocks were wrong all the time.
fn tell_clocks(cluster: &Cluster, history: &History) {
    let (Some(_), Ok(clocks)) = (&cluster.postgres, &cluster.clocks) else {
        return;
    };
    for replica in &cluster.replicas {
        let off = clocks.offset(replica.index);
        if off != 0 {
            history.fault(Fault {
                kind: "clock_offset".to_owned(),
                target: format!("replica {}", replica.index),
                t_end: history.now(),
                detail: format!("{off:+} seconds"),
                ..Fault::default()
            });
        }
    }
}

fn header(args: &Args, seed: u64, quita: &Path) -> Result<Header, String> {
    let version = std::process::Command::new(quita).arg("--version").output();
    let version = version.map_err(|e| format!("{}: {e}", quita.display()))?;
    Ok(Header {
        seed,
        store: match args.store {
            Store::Sqlite => "sqlite".to_owned(),
            Store::Postgres => "postgres".to_owned(),
        },
        replicas: args.servers() as u32,
        minutes: args.minutes,
        version: String::from_utf8_lossy(&version.stdout).trim().to_owned(),
        started: jiff::Timestamp::now().to_string(),
        queues: queues::policies(),
        drain_delay_ms: DRAIN_DELAY.as_millis() as u64,
        stop_deadline_ms: (DRAIN_DELAY + DRAIN_DEADLINE).as_millis() as u64,
        ..Header::default()
    })
}

fn setup(quita: PathBuf, key: &str, known_bug: Option<&str>) -> Setup {
    let seconds = |time: Duration| time.as_secs_f64().to_string();
    Setup {
        quita,
        arguments: vec![
            "--drain-delay-seconds".to_owned(),
            seconds(DRAIN_DELAY),
            "--drain-deadline-seconds".to_owned(),
            seconds(DRAIN_DEADLINE),
        ],
        key: key.to_owned(),
        wrapper: Vec::new(),
        environment: known_bug
            .map(|bug| ("QUITA_KNOWN_BUG".to_owned(), bug.to_owned()))
            .into_iter()
            .collect(),
    }
}

/// An empty folder for this run.
fn home(args: &Args, seed: u64) -> Result<PathBuf, String> {
    let name = format!("{:?}-{seed}", args.store).to_lowercase();
    let folder = args.out.join(name);
    // What an earlier run with this seed left would be taken for this one's.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    folder.canonicalize().map_err(|e| e.to_string())
}

/// From the clock: whoever wants it again gives it.
fn any_seed() -> u64 {
    jiff::Timestamp::now().as_millisecond() as u64 % 1_000_000
}
