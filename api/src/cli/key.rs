//! `quita key`: keys in the store itself, for whoever may read and write it.

use super::{Done, say, small_runtime};
use crate::auth::{ADMIN, ApiKey, Scopes, record};
use crate::config::StoreConfig;
use crate::service::keys::is_good;
use crate::{store, telemetry};
use clap::Subcommand;
use quita_storage::backend::{Backend, Call, KeyRecord};
use quita_storage::clock::wall;
use quita_storage::model::Millis;

#[derive(Subcommand)]
pub(super) enum KeyCommand {
    /// Make a key and print it, once
    #[command(after_help = "EXAMPLES
  quita key create --scope publish:mail-* --scope read:mail-* --expires 90d --description mailer
  quita key create --description 'admin, second'")]
    Create {
        #[command(flatten)]
        store: StoreConfig,
        /// What it is for, as `list` shows it
        #[arg(long, default_value = "", value_name = "TEXT")]
        description: String,
        /// What it may do, such as read, publish:mail or publish:mail-*; may be given several times
        #[arg(long = "scope", default_value = ADMIN, value_name = "SCOPE")]
        scopes: Vec<String>,
        /// After which time it ends by itself, such as 90d, 12h, 30m or 45s; without it, never
        #[arg(long, value_parser = life, value_name = "TIME")]
        expires: Option<Millis>,
    },
    /// List the keys, never their secrets: id, state, scopes, end, last use, description
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
        /// Why, for the audit trail
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Make a new key that may the same as another one, and print it, once; the other one ends after a while
    Rotate {
        #[command(flatten)]
        store: StoreConfig,
        /// Id of the key to replace, as `list` shows it
        id: String,
        /// How long both are good, such as 1d; 0s ends the old one at once
        #[arg(long, default_value = "1d", value_parser = life, value_name = "TIME")]
        overlap: Millis,
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
        KeyCommand::Create {
            store,
            description,
            scopes,
            expires,
        } => {
            let scopes = Scopes::from_entries(scopes.iter().flat_map(|one| one.split(' ')))?;
            with(&store, async |backend| {
                let key = generate()?;
                let record = record(&key, &scopes, &description, expires);
                backend.add_key(&Call::by("cli"), record, false).await?;
                say(&format!("{}\n", key.reveal()));
                Ok(())
            })
        }
        KeyCommand::Rotate { store, id, overlap } => with(&store, async |backend| {
            let keys = backend.keys().await?;
            let good = |key: &&KeyRecord| *key.id == *id && is_good(key);
            let Some(old) = keys.iter().find(good) else {
                return Err(format!("there is no good key {id}").into());
            };
            let key = generate()?;
            let life = old.expires_at.map(|at| at - old.created_at);
            let new = KeyRecord {
                scope: old.scope.clone(),
                ..record(&key, &Scopes::default(), &old.description, life)
            };
            let ends_at = wall().saturating_add(overlap);
            let call = Call::by("cli");
            if !backend.rotate_key(&call, &id, ends_at, new).await? {
                return Err(format!("there is no good key {id}").into());
            }
            say(&format!("{}\n", key.reveal()));
            Ok(())
        }),
        KeyCommand::List { store } => with(&store, async |backend| {
            for key in backend.keys().await? {
                say(&line(&key));
            }
            Ok(())
        }),
        KeyCommand::Revoke { store, id, reason } => with(&store, async |backend| {
            let call = Call {
                justification: reason.as_deref().map(Into::into),
                ..Call::by("cli")
            };
            if backend.revoke_key(&call, &id, None).await? {
                say(&format!("{id} is revoked.\n"));
                Ok(())
            } else {
                Err(format!("there is no good key {id}").into())
            }
        }),
    }
}

/// A key on a line of its own.
fn line(key: &KeyRecord) -> String {
    let state = match key.revoked_at {
        Some(_) => "revoked",
        None if is_good(key) => "good",
        None => "expired",
    };
    let at = |at: Option<Millis>| at.map_or("never".to_owned(), minute);
    format!(
        "{}  {state:7}  {}  ends {}  used {}  {}\n",
        key.id,
        key.scope,
        at(key.expires_at),
        at(key.last_used_at),
        key.description
    )
}

/// A time to the minute, in UTC.
fn minute(at: Millis) -> String {
    let at = jiff::Timestamp::from_millisecond(at).unwrap_or_default();
    at.strftime("%Y-%m-%dT%H:%MZ").to_string()
}

/// A time such as `90d`, at most ten years.
fn life(text: &str) -> Result<Millis, String> {
    const MOST: Millis = 3_650 * 86_400_000;
    let wrong = || "a number and s, m, h or d is needed, such as 90d; at most 3650d".to_owned();
    let unit = match text.chars().last() {
        Some('s') => 1_000,
        Some('m') => 60_000,
        Some('h') => 3_600_000,
        Some('d') => 86_400_000,
        _ => return Err(wrong()),
    };
    let number: Millis = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    let time = number
        .checked_mul(unit)
        .filter(|ms| (0..=MOST).contains(ms));
    time.ok_or_else(wrong)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit_and_a_bound() {
        for (text, ms) in [
            ("90d", 7_776_000_000),
            ("12h", 43_200_000),
            ("0s", 0),
            ("30m", 1_800_000),
        ] {
            assert_eq!(life(text), Ok(ms), "{text}");
        }
        for text in [
            "",
            "d",
            "90",
            "-1d",
            "1.5h",
            "4000d",
            "9223372036854775807d",
            "1\u{e9}",
        ] {
            assert!(life(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_line_says_what_a_key_may_and_how_long() {
        let key = ApiKey::generate().unwrap();
        let scopes = Scopes::parse("read publish:a*").unwrap();
        let mut record = record(&key, &scopes, "ci", None);
        let said = line(&record);
        assert!(
            said.contains("good     publish:a* read  ends never  used never  ci"),
            "{said}"
        );
        record.expires_at = Some(1_790_000_000_000);
        record.last_used_at = Some(1_790_000_040_000);
        assert!(line(&record).contains("ends 2026-09-21T14:13Z  used 2026-09-21T14:14Z"));
        assert!(!line(&record).contains(key.reveal()));
    }
}
