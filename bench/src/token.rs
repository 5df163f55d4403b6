//! An issuer of our own and its tokens.

use crate::Outcome;
use jsonwebtoken::{EncodingKey, Header, encode, get_current_timestamp};
use serde_json::json;
use std::path::{Path, PathBuf};

const SECRET: &str = "the bench signs with these 32 bytes and more";
const ISSUER: &str = "https://bench.invalid/";
const LIFE_SECONDS: u64 = 3_600;

/// Writes the file that makes a server take [`token`].
pub(crate) fn issuer_file(folder: &Path) -> Outcome<PathBuf> {
    let text = format!(
        "[[issuer]]\nname = 'bench'\niss = '{ISSUER}'\naudience = ['quita']\nalgorithms = ['HS256']\n\
         secret = '{SECRET}'\nceiling = ['publish']\n"
    );
    let path = folder.join("issuers.toml");
    std::fs::write(&path, text)?;
    Ok(path)
}

/// A token that may publish for an hour.
pub(crate) fn token() -> Outcome<String> {
    let claims = json!({
        "iss": ISSUER, "aud": "quita", "sub": "load", "scope": "publish",
        "exp": get_current_timestamp() + LIFE_SECONDS,
    });
    let key = EncodingKey::from_secret(SECRET.as_bytes())?;
    Ok(encode(&Header::default(), &claims, &key)?)
}
