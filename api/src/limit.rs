//! Every bound that can refuse a request or end a connection, by the name that problems, metrics and the documentation use.

macro_rules! limits {
    ($($variant:ident = $name:literal, $setting:literal, $what:literal;)+) => {
        /// A bound.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Limit { $(#[doc = $what] $variant),+ }

        impl Limit {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// As problems and metrics write it.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),+ }
            }

            /// The setting that moves it.
            pub const fn setting(self) -> &'static str {
                match self { $(Self::$variant => $setting),+ }
            }

            /// What it bounds.
            pub const fn what(self) -> &'static str {
                match self { $(Self::$variant => $what),+ }
            }
        }
    };
}

limits! {
    Connections = "connections", "--max-connections", "Connections open at once";
    Requests = "requests", "--max-requests", "Requests in flight, receives apart";
    BodiesInFlight = "bodies_in_flight", "--max-body-bytes", "Bytes of the bodies of requests in flight";
    WaitingReceives = "waiting_receives", "--max-waiting-receives", "Receives that wait";
    WaitingReceivesPerKey = "waiting_receives_per_key", "--max-waiting-receives-per-key", "Receives of one key that wait";
    WaitingItems = "waiting_items", "--max-waiting-items, --max-waiting-bytes", "What waits for a commit";
    PublishRate = "publish_rate", "--rate-publish", "Messages published with one key";
    ReceiveRate = "receive_rate", "--rate-receive", "Receives and settles of one key";
    ListingRate = "listing_rate", "--rate-listing", "Lists and single looks of one key";
    ManagementRate = "management_rate", "--rate-management", "Changes made with one key";
    FailedLogins = "failed_logins", "--rate-failed-logins", "Wrong keys and tokens from one address";
    QueueDepth = "queue_depth", "max_depth of the queue", "Messages in one queue";
    FreeDisk = "free_disk", "--min-free-bytes", "Disk space that is left";
    PayloadSize = "payload_size", "max_message_bytes of the queue", "Bytes of one message";
    BodySize = "body_size", "fixed", "Bytes of a body: 2 MiB, of a batch 8 MiB";
    TargetSize = "target_size", "fixed", "Bytes of a path with its query: 8,192";
    HeaderSize = "header_size", "--max-headers, --max-header-bytes", "Lines and bytes of a request's head";
    HeaderTime = "header_time", "--header-timeout-seconds", "Time for the head of a request";
    BodyTime = "body_time", "--body-timeout-seconds", "Time for the body of a request";
    IdleTime = "idle_time", "--idle-timeout-seconds", "Rest of a connection between two requests";
    WriteStall = "write_stall", "--write-stall-seconds", "Time without the client taking a byte";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_settings_exist() {
        let help = {
            use clap::{Args, Command};
            let mut command = crate::config::Config::augment_args(Command::new("quita"));
            command.render_long_help().to_string()
        };
        let mut names = HashSet::new();
        for limit in Limit::ALL {
            assert!(names.insert(limit.name()), "{}", limit.name());
            for setting in limit.setting().split(", ").filter(|s| s.starts_with("--")) {
                assert!(help.contains(&format!("{setting} <")), "{setting}");
            }
            if let Some(field) = limit.setting().strip_suffix(" of the queue") {
                assert!(crate::http::is_policy_field(field), "{field}");
            }
        }
    }

    #[test]
    fn the_documentation_names_every_limit() {
        let docs = include_str!("../../docs/API-DESIGN.md");
        for limit in Limit::ALL {
            let row = format!("| `{}` | ", limit.name());
            assert!(docs.contains(&row), "{}", limit.name());
        }
    }
}
