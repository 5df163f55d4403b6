//! Which pages of other origins may call.

use clap::Args;
use http::{HeaderValue, Uri};

/// Settings of what browsers are told about other origins.
#[derive(Args, Clone, Default)]
pub struct CorsConfig {
    /// Origin whose pages may call from a browser (CORS), such as https://desk.example.com; several with commas, or the
    /// option again. Exactly as browsers write it: no path, no capitals, no port that goes without saying. Without it no
    /// page of another origin may; `*` is refused: name them
    #[arg(
        long,
        env = "QUITA_CORS_ALLOW_ORIGINS",
        value_delimiter = ',',
        value_parser = origin,
        value_name = "ORIGIN"
    )]
    pub cors_allow_origin: Vec<HeaderValue>,
}

/// An origin as a browser sends it (RFC 6454 §6.2): compared byte by byte, so that any other spelling would never match.
fn origin(text: &str) -> Result<HeaderValue, String> {
    const WANTED: &str =
        "an origin as browsers write it is needed, such as https://desk.example.com";
    let uri: Uri = text.trim().parse().map_err(|_| WANTED)?;
    let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err(WANTED.into());
    };
    let usual = match scheme {
        "https" => 443,
        "http" => 80,
        _ => return Err("the scheme must be https or http".into()),
    };
    if authority.port_u16() == Some(usual) {
        return Err(format!("browsers leave out the port {usual} of {scheme}"));
    }
    let port = authority
        .port()
        .map_or(String::new(), |port| format!(":{port}"));
    let written = format!("{scheme}://{}{port}", authority.host());
    if written != text.trim() || written.chars().any(|c| c.is_ascii_uppercase() || c == '*') {
        return Err(WANTED.into());
    }
    HeaderValue::from_str(&written).map_err(|_| WANTED.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_taken_as_browsers_write_them_and_no_other_way() {
        for text in [
            "https://desk.example.com",
            "http://localhost:3000",
            "https://[::1]:8443",
            "http://127.0.0.1",
            " https://a.example ",
        ] {
            assert_eq!(origin(text).unwrap(), text.trim(), "{text}");
        }
        for text in [
            "",
            "*",
            "null",
            "desk.example.com",
            "https://",
            "https://*",
            "https://*.example.com",
            "https://desk.example.com/",
            "https://desk.example.com/x",
            "https://desk.example.com?x",
            "https://Desk.example.com",
            "HTTPS://desk.example.com",
            "https://u:p@desk.example.com",
            "https://desk.example.com:443",
            "http://a:80",
            "ftp://a",
            "https://a b",
            "https://a,https://b",
        ] {
            assert!(origin(text).is_err(), "{text}");
        }
    }
}
