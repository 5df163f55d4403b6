//! `quita key`: keys in the store itself, for whoever may read and write it.

use super::{Done, say, small_runtime};
use crate::auth::{ApiKey, admin_record};
use crate::config::StoreConfig;
use crate::{store, telemetry};
use clap::Subcommand;
use quita_storage::backend::{Backend, Call};

#[derive(Subcommand)]
pub(super) enum KeyCommand {
    /// Make an admin key and print it, once
    Create {
        #[command(flatten)]
        store: StoreConfig,
        /// What it is for, as `list` shows it
        #[arg(long, default_value = "", value_name = "TEXT")]
        description: String,
    },
    /// List the keys, never their secrets
    List {
        #[command(flatten)]
        store: StoreConfig,
    },
    /// Revoke a key; every server refuses it within 5 s
    Revoke {
        #[command(flatten)]
        store: StoreConfig,
        /// Its id, as `list` shows it
        id: String,
    },
    /// Print a key that no store knows yet, for `QUITA_ADMIN_KEY`
    Generate,
}

pub(super) fn run(command: KeyCommand) -> Done {
    match command {
        KeyCommand::Generate => {
            say(&format!("{}\n", generate()?.reveal()));
            Ok(())
        }
        KeyCommand::Create { store, description } => with(&store, async |backend| {
            let key = generate()?;
            backend
                .add_key(&Call::by("cli"), admin_record(&key, &description), false)
                .await?;
            say(&format!("{}\n", key.reveal()));
            Ok(())
        }),
        KeyCommand::List { store } => with(&store, async |backend| {
            for key in backend.keys().await? {
                let state = if key.revoked_at.is_some() {
                    "revoked"
                } else {
                    "good"
                };
                say(&format!(
                    "{}  {state:7}  {}  {}\n",
                    key.id, key.scope, key.description
                ));
            }
            Ok(())
        }),
        KeyCommand::Revoke { store, id } => with(&store, async |backend| {
            if backend.revoke_key(&Call::by("cli"), &id, None).await? {
                say(&format!("{id} is revoked.\n"));
                Ok(())
            } else {
                Err(format!("there is no good key {id}").into())
            }
        }),
    }
}

fn generate() -> Result<ApiKey, &'static str> {
    ApiKey::generate().ok_or("the operating system gave no random bytes")
}

fn with(config: &StoreConfig, work: impl AsyncFnOnce(&dyn Backend) -> Done) -> Done {
    telemetry::start(config)?;
    small_runtime()?.block_on(async {
        let backend = match store::open(config).await {
            Err(error) if config.sqlite_file().is_some() => {
                return Err(
                    format!("{error}. A server on this file has to be stopped first.").into(),
                );
            }
            opened => opened?,
        };
        let done = work(&*backend).await;
        backend.close().await;
        done
    })
}
