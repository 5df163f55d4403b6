//! What the claims of a token must say, and who it makes of its holder.

use super::issuer::Issuer;
use super::reason::Reason;
use super::strict::{Json, Members};
use crate::auth::scope::{ScopeError, Scopes};
use quita_storage::model::Millis;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::sync::Arc;

/// By how many seconds clocks may differ.
pub const LEEWAY_S: u64 = 30;
/// Longest life of a token in seconds. A token cannot be revoked, so a stolen one is good this long.
pub const MAX_LIFE_S: u64 = 86_400;
/// Longest `sub` in bytes (`OpenID` Connect Core §2).
const MAX_SUB: usize = 255;
/// Longest id of a principal in bytes: it stands in every audit row.
const MAX_ID: usize = 128;

/// Claims that were checked.
#[derive(Debug)]
pub(super) struct Claims {
    pub(super) id: Arc<str>,
    /// `exp` and the leeway, in milliseconds.
    pub(super) ends_at: Millis,
    /// Cut to the ceiling of the issuer.
    pub(super) scopes: Scopes,
    /// Entries of the scope claim that are none of ours.
    pub(super) passed: Vec<ScopeError>,
}

/// Checks everything but the signature.
pub(super) fn check(claims: &Members, issuer: &Issuer, now: Millis) -> Result<Claims, Reason> {
    audience(claims, &issuer.audience)?;
    let sub = claims.required_text("sub")?;
    if sub.len() > MAX_SUB {
        return Err(Reason::Subject(sub.len()));
    }
    claims.text("jti")?;
    let exp = times(claims, u64::try_from(now).unwrap_or(0) / 1_000)?;
    let (scopes, passed) = scopes(claims, issuer)?;
    Ok(Claims {
        id: id(&issuer.name, sub),
        ends_at: (exp + LEEWAY_S) as Millis * 1_000,
        scopes: scopes.intersect(&issuer.ceiling),
        passed,
    })
}

fn audience(claims: &Members, ours: &[Box<str>]) -> Result<(), Reason> {
    let is_ours =
        |one: &Json| matches!(one, Json::Text(text) if ours.iter().any(|our| **our == **text));
    let wrong = || Reason::Type("aud".into(), "a string or a list of strings");
    let good = match claims.get("aud") {
        None => return Err(Reason::Missing("aud".into())),
        Some(one @ Json::Text(_)) => is_ours(one),
        Some(Json::List(all)) if all.iter().all(|one| matches!(one, Json::Text(_))) => {
            all.iter().any(is_ours)
        }
        Some(_) => return Err(wrong()),
    };
    good.then_some(()).ok_or(Reason::Audience)
}

/// `exp`, once all times are right.
fn times(claims: &Members, now: u64) -> Result<u64, Reason> {
    let exp = claims
        .seconds("exp")?
        .ok_or_else(|| Reason::Missing("exp".into()))?;
    let (nbf, iat) = (claims.seconds("nbf")?, claims.seconds("iat")?);
    if now >= exp.saturating_add(LEEWAY_S) {
        return Err(Reason::Expired(now - exp));
    }
    if let Some(nbf) = nbf.filter(|nbf| *nbf > now + LEEWAY_S) {
        return Err(Reason::NotYet(nbf - now));
    }
    if let Some(iat) = iat.filter(|iat| *iat > now + LEEWAY_S) {
        return Err(Reason::IssuedLater(iat - now));
    }
    match exp.saturating_sub(iat.unwrap_or(now)) {
        life if life > MAX_LIFE_S => Err(Reason::Life(life)),
        _ => Ok(exp),
    }
}

/// A token without the claim is a known caller who may do nothing.
fn scopes(claims: &Members, issuer: &Issuer) -> Result<(Scopes, Vec<ScopeError>), Reason> {
    let name = &*issuer.scope_claim;
    let wrong = || Reason::Type(name.into(), "a string or a list of strings");
    let entries: Vec<&str> = match claims.get(name) {
        None => Vec::new(),
        Some(Json::Text(text)) => text.split(' ').filter(|entry| !entry.is_empty()).collect(),
        Some(Json::List(all)) => all
            .iter()
            .map(|one| match one {
                Json::Text(text) => Ok(&**text),
                _ => Err(wrong()),
            })
            .collect::<Result<_, _>>()?,
        Some(_) => return Err(wrong()),
    };
    let ours = entries
        .into_iter()
        .filter_map(|entry| entry.strip_prefix(&*issuer.scope_prefix));
    Scopes::from_foreign(ours).map_err(Reason::Scopes)
}

/// `issuer:sub`, in plain characters and of bounded length. Different subjects have different ids: what is not plain
/// becomes `%XX`, and of what is too long the end becomes `~` and a hash of the whole.
fn id(issuer: &str, sub: &str) -> Arc<str> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._@|:/+=#".contains(&b);
    let mut id = format!("{issuer}:");
    for b in sub.bytes() {
        if plain(b) {
            id.push(char::from(b));
        } else {
            let _ = write!(id, "%{b:02X}");
        }
    }
    if id.len() > MAX_ID {
        let hash = Sha256::digest(sub.as_bytes());
        id.truncate(MAX_ID - 33);
        id.push('~');
        for b in &hash[..16] {
            let _ = write!(id, "{b:02x}");
        }
    }
    id.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn ids_are_plain_and_bounded() {
        assert_eq!(&*id("login", "auth0|5f7c"), "login:auth0|5f7c");
        assert_eq!(&*id("login", "a b\n\u{e9}%~"), "login:a%20b%0A%C3%A9%25%7E");
        let long = id("login", &"x".repeat(255));
        assert_eq!(long.len(), MAX_ID);
        assert!(long.starts_with("login:xxx") && long.contains('~'));
    }

    proptest! {
        #[test]
        fn different_subjects_have_different_ids(one in "\\PC{1,60}|[a%~]{1,255}", other in "\\PC{1,60}|[a%~]{1,255}") {
            let (a, b) = (id("login", &one), id("login", &other));
            prop_assert_eq!(one == other, a == b);
            prop_assert!(a.len() <= MAX_ID && a.bytes().all(|b| b.is_ascii_graphic()));
        }
    }
}
