//! `quita key`: keys in the store itself, for whoever may read and write it.

use super::{Done, small_runtime};
use crate::auth::{ApiKey, admin_record};
use crate::config::StoreConfig;
use crate::{store, telemetry};
use clap::Subcommand;
use quita_storage::backend::Backend;

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
            println!("{}", generate()?.reveal());
            Ok(())
        }
        KeyCommand::Create { store, description } => with(&store, async |backend| {
            let key = generate()?;
            backend
                .add_key(admin_record(&key, &description), false)
                .await?;
            println!("{}", key.reveal());
            Ok(())
        }),
        KeyCommand::List { store } => with(&store, async |backend| {
            for key in backend.keys().await? {
                let state = if key.revoked_at.is_some() {
                    "revoked"
                } else {
                    "good"
                };
                println!("{}  {state:7}  {}  {}", key.id, key.scope, key.description);
            }
            Ok(())
        }),
        KeyCommand::Revoke { store, id } => with(&store, async |backend| {
            if backend.revoke_key(&id, None).await? {
                println!("{id} is revoked.");
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
        let backend = store::open(config).await?;
        let done = work(&*backend).await;
        backend.close().await;
        done
    })
}
