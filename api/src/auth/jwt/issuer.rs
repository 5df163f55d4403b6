//! One issuer whose tokens are taken: its settings, checked, and its keys.

use super::Now;
use super::algorithm::{Algorithm, Family};
use super::fetch::{Fetch, check_url};
use super::header::Header;
use super::keys::{Key, KeySet, Miss};
use super::reason::Reason;
use super::settings::{IssuerSettings, SettingsError, read};
use super::shown;
use super::source::{Place, Source};
use crate::auth::scope::Scopes;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Most audiences of one issuer.
const MAX_AUDIENCES: usize = 16;

/// A configured issuer.
pub(super) struct Issuer {
    pub(super) name: Box<str>,
    pub(super) iss: Box<str>,
    pub(super) audience: Vec<Box<str>>,
    pub(super) scope_claim: Box<str>,
    pub(super) scope_prefix: Box<str>,
    pub(super) ceiling: Scopes,
    pub(super) only_access_tokens: bool,
    pub(super) source: Arc<Source>,
    algorithms: Vec<Algorithm>,
}

impl Issuer {
    /// Checks the settings and reads the files they name.
    pub(super) fn open(
        settings: &IssuerSettings,
        folder: &Path,
        fetch: &Arc<dyn Fetch>,
        now: Now,
    ) -> Result<Self, SettingsError> {
        let wrong = |why: Box<str>| SettingsError::Issuer {
            issuer: shown(&settings.name),
            why,
        };
        check(settings).map_err(|why| wrong(why.into()))?;
        let ceiling = Scopes::from_entries(settings.ceiling.iter().map(String::as_str))
            .map_err(|error| wrong(format!("its ceiling: {error}").into()))?;
        let source = match keys_from(settings).map_err(|why| wrong(why.into()))? {
            From::Url(url) => Source::at(&settings.name, Place::Url(url.to_owned(), fetch.clone())),
            From::File(path) => {
                let source = Source::at(&settings.name, Place::File(folder.join(path)));
                source.read(now.ticks);
                if let Some(why) = source.problem() {
                    return Err(wrong(why));
                }
                source
            }
            From::Pem(path) => {
                let path = folder.join(path);
                let key = Key::from_pem(&read(&path)?, settings.kid.as_deref())
                    .map_err(|why| wrong(format!("{}: {why}", path.display()).into()))?;
                if let Some(other) = settings.algorithms.iter().find(|one| !key.fits(**one)) {
                    return Err(wrong(
                        format!("{}: it is not a key for {other}", path.display()).into(),
                    ));
                }
                Source::fixed(&settings.name, KeySet::single(key))
            }
            From::Secret(secret) => secret_source(settings, secret, folder, wrong)?,
        };
        Ok(Self {
            name: (*settings.name).into(),
            iss: (*settings.iss).into(),
            audience: settings.audience.iter().map(|one| (**one).into()).collect(),
            scope_claim: (*settings.scope_claim).into(),
            scope_prefix: (*settings.scope_prefix).into(),
            ceiling,
            only_access_tokens: settings.only_access_tokens,
            source: Arc::new(source),
            algorithms: settings.algorithms.clone(),
        })
    }

    pub(super) fn allows(&self, algorithm: Algorithm) -> Result<(), Reason> {
        let issuer = self.name.clone();
        let allowed = self.algorithms.contains(&algorithm);
        allowed
            .then_some(())
            .ok_or(Reason::Algorithm { issuer, algorithm })
    }

    /// The key that a token names, asking the issuer once more for one that is not known where that is allowed.
    pub(super) async fn key(&self, header: &Header, now: Now) -> Result<Arc<Key>, Reason> {
        let find = |keys: &KeySet| keys.find(header.kid.as_deref(), header.algorithm).cloned();
        let seen = match self.source.keys(now.ticks) {
            Ok(keys) => match find(&keys) {
                Ok(key) => return Ok(key),
                Err(Miss::Final(reason)) => return Err(reason),
                Err(Miss::Unknown) => Some(keys),
            },
            Err(_) => None,
        };
        self.source.renew(seen.as_ref(), now).await;
        find(&*self.source.keys(now.ticks)?).map_err(|miss| match miss {
            Miss::Final(reason) => reason,
            Miss::Unknown => Reason::UnknownKey(shown(header.kid.as_deref().unwrap_or_default())),
        })
    }
}

fn secret_source(
    settings: &IssuerSettings,
    secret: Option<&Path>,
    folder: &Path,
    wrong: impl Fn(Box<str>) -> SettingsError,
) -> Result<Source, SettingsError> {
    let file = secret.map(|path| read(&folder.join(path))).transpose()?;
    let bytes = match (&file, &settings.secret) {
        (Some(file), _) => {
            let line = file.strip_suffix(b"\n").unwrap_or(file);
            line.strip_suffix(b"\r").unwrap_or(line)
        }
        (None, Some(secret)) => secret.reveal().as_bytes(),
        (None, None) => &[],
    };
    let key = Key::from_secret(bytes).map_err(wrong)?;
    Ok(Source::fixed(&settings.name, KeySet::single(key)))
}

enum From<'a> {
    Url(&'a str),
    File(&'a PathBuf),
    Pem(&'a PathBuf),
    /// In this file, or in the settings.
    Secret(Option<&'a Path>),
}

fn keys_from(settings: &IssuerSettings) -> Result<From<'_>, &'static str> {
    let places = [
        settings.jwks_url.as_deref().map(From::Url),
        settings.jwks_file.as_ref().map(From::File),
        settings.pem_file.as_ref().map(From::Pem),
        settings
            .secret_file
            .as_deref()
            .map(|path| From::Secret(Some(path))),
        settings.secret.as_ref().map(|_| From::Secret(None)),
    ];
    let mut given = places.into_iter().flatten();
    let (Some(place), None) = (given.next(), given.next()) else {
        return Err("it needs exactly one of jwks_url, jwks_file, pem_file, secret_file, secret");
    };
    if settings.kid.is_some() && !matches!(place, From::Pem(_)) {
        return Err("kid is the name of the key of pem_file");
    }
    let secrets = settings
        .algorithms
        .iter()
        .filter(|one| one.family() == Family::Secret);
    match (&place, secrets.count()) {
        (From::Secret(_), n) if n == settings.algorithms.len() => Ok(place),
        // A public key is no secret: whoever has it could sign.
        (From::Secret(_), _) => Err("a secret is for HS256 alone"),
        (_, 0) => {
            if let From::Url(url) = place {
                check_url(url)?;
            }
            Ok(place)
        }
        _ => Err("HS256 needs a secret, and an issuer of its own"),
    }
}

fn check(settings: &IssuerSettings) -> Result<(), &'static str> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if !(1..=32).contains(&settings.name.len()) || !settings.name.bytes().all(plain) {
        return Err("its name must be 1 to 32 of a-z, 0-9 and -");
    }
    if settings.iss.is_empty() || settings.iss.len() > 1_024 {
        return Err("iss must have 1 to 1024 bytes");
    }
    if !(1..=MAX_AUDIENCES).contains(&settings.audience.len())
        || settings.audience.iter().any(String::is_empty)
    {
        return Err("audience must have 1 to 16 entries, none of them empty");
    }
    if settings.algorithms.is_empty() {
        return Err("algorithms must name at least one");
    }
    if settings.scope_claim.is_empty() {
        return Err("scope_claim must not be empty");
    }
    Ok(())
}
