//! A setting for a developer's own machine, and where it is refused.

use clap::builder::BoolishValueParser;
use clap::{ArgAction, Args};
use std::net::SocketAddr;

/// Settings that no server with anything to lose has.
#[derive(Args, Clone, Debug, Default)]
pub struct DevSettings {
    /// Every request, with credentials or without, may do everything, and audit rows name dev-no-auth. For trying things out
    /// on this machine: refused unless the server listens on a loopback address, and in Kubernetes. Keys and tokens are not
    /// looked at, and no first admin key is made or taken from QUITA_ADMIN_KEY; the next start without this setting does that.
    /// Requests that a page of somebody else may have sent are refused: call it at localhost or 127.0.0.1
    #[arg(long, env = "QUITA_DEV_NO_AUTH", action = ArgAction::SetTrue, value_parser = BoolishValueParser::new())]
    pub dev_no_auth: bool,
}

/// Why `--dev-no-auth` is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DevRefused {
    /// Others could reach the server.
    #[error(
        "--dev-no-auth lets everybody do everything, and {0} can be reached from other machines: listen on 127.0.0.1 or [::1], or leave it out"
    )]
    Reachable(SocketAddr),
    /// Every pod reaches the loopback address of its neighbours in the pod, and a forwarded port leads to it.
    #[error(
        "--dev-no-auth lets everybody do everything, and this is Kubernetes (KUBERNETES_SERVICE_HOST is set): leave it out"
    )]
    Kubernetes,
}

impl DevSettings {
    /// Refuses a server without access control wherever somebody else could call it.
    pub fn check(&self, listen: SocketAddr) -> Result<(), DevRefused> {
        self.check_in(listen, in_kubernetes())
    }

    fn check_in(&self, listen: SocketAddr, kubernetes: bool) -> Result<(), DevRefused> {
        if !self.dev_no_auth {
            return Ok(());
        }
        if !is_loopback(listen) {
            return Err(DevRefused::Reachable(listen));
        }
        if kubernetes {
            return Err(DevRefused::Kubernetes);
        }
        Ok(())
    }
}

/// Whether only this machine reaches the address.
pub fn is_loopback(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

#[expect(
    clippy::disallowed_methods,
    reason = "set by Kubernetes in every container; a fact about the place, and no setting of ours"
)]
fn in_kubernetes() -> bool {
    std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_refused_wherever_others_could_call() {
        let on = DevSettings { dev_no_auth: true };
        for (listen, kubernetes, taken) in [
            ("127.0.0.1:8080", false, true),
            ("127.9.9.9:1", false, true),
            ("[::1]:8080", false, true),
            ("[::ffff:127.0.0.1]:8080", false, true),
            ("127.0.0.1:8080", true, false),
            ("[::1]:8080", true, false),
            ("0.0.0.0:8080", false, false),
            ("[::]:8080", false, false),
            ("10.0.0.1:8080", false, false),
            ("[::ffff:10.0.0.1]:8080", false, false),
        ] {
            let address = listen.parse().unwrap();
            assert_eq!(on.check_in(address, kubernetes).is_ok(), taken, "{listen}");
            let off = DevSettings::default();
            assert_eq!(off.check_in(address, kubernetes), Ok(()));
        }
    }
}
