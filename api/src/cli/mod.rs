//! The command line: what each command does, in one place.

mod greeting;
mod health;
mod key;
mod remote;
mod serve;
mod token;

use crate::config::{Config, StoreConfig};
use crate::demo::{self, DemoArgs, DemoWorkerArgs};
use clap::{CommandFactory, Parser, Subcommand, ValueEnum};
use std::io::Write;
use std::process::ExitCode;

/// An HTTP REST queue with explicit ack and nack.
///
/// Without a command it serves; `quita serve --help` explains every setting.
#[derive(Parser)]
#[command(name = "quita", version, args_conflicts_with_subcommands = true, after_help = ENVIRONMENT)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    serve: Config,
}

#[derive(Subcommand)]
enum Command {
    /// Serve until a signal to stop comes (the default)
    Serve(Box<Config>),
    /// Make or update the tables of the store, then end
    Migrate(StoreConfig),
    /// Print the description of the interface as JSON (OpenAPI)
    Openapi,
    /// Make, list and revoke API keys in the store itself
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Say why a token (JWT) is taken or refused
    #[command(subcommand)]
    Token(token::TokenCommand),
    /// Ask the server on this machine whether it is ready; the exit code says it
    Health(health::HealthArgs),
    #[command(flatten)]
    Remote(Box<remote::RemoteCommand>),
    /// Print a script that completes commands and options in a shell
    #[command(after_help = "EXAMPLES
  quita completions bash > ~/.local/share/bash-completion/completions/quita
  quita completions fish > ~/.config/fish/completions/quita.fish")]
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Play a month of charges on a bad day: gateway failures, kill -9 of a worker and of the server, a second publisher
    Demo(DemoArgs),
}

/// A worker of the demo, which the demo starts itself: it is no command that anybody is offered.
#[derive(Parser)]
struct DemoWorker {
    #[command(flatten)]
    args: DemoWorkerArgs,
}

/// Its name.
const DEMO_WORKER: &str = "demo-worker";

/// Shells that the scripts are tried with.
#[derive(Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// What stands below the help of all commands.
const ENVIRONMENT: &str = remote::SURROUNDINGS;

/// Runs the command that this process was started with.
pub fn main() -> ExitCode {
    if std::env::args_os()
        .nth(1)
        .is_some_and(|word| word == DEMO_WORKER)
    {
        let worker = DemoWorker::parse_from(std::env::args_os().skip(1));
        return run_to_end(demo::run_worker(worker.args));
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => not_understood(&error),
    };
    // Whatever a store makes is its owner's alone, also in a folder that was there before.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    let done = match cli.command {
        None => serve::run(cli.serve),
        Some(Command::Serve(config)) => serve::run(*config),
        Some(Command::Migrate(config)) => migrate(&config),
        Some(Command::Openapi) => openapi(),
        Some(Command::Key(command)) => key::run(command),
        Some(Command::Token(command)) => token::run(command),
        Some(Command::Health(args)) => health::run(&args),
        Some(Command::Completions { shell }) => completions(shell),
        Some(Command::Remote(command)) => return remote::run(*command),
        Some(Command::Demo(args)) => return run_to_end(demo::run(args)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            remote::talk(&format!("quita: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Help, or what is wrong with the command line. What was typed may have come from elsewhere, and may hold what a terminal
/// would act on: the same is said about the words as they look when that is written out.
fn not_understood(error: &clap::Error) -> ! {
    let words =
        std::env::args_os().map(|word| remote::visible(&word.to_string_lossy()).into_owned());
    match Cli::try_parse_from(words) {
        Err(harmless) => harmless.exit(),
        Ok(_) => error.exit(),
    }
}

/// What a command ends with: nothing, or a sentence for the person who gave it.
type Done = Result<(), Box<dyn std::error::Error + Send + Sync>>;

fn migrate(config: &StoreConfig) -> Done {
    crate::telemetry::start(config)?;
    small_runtime()?.block_on(async {
        let backend = crate::store::open(config).await?;
        backend.check().await?;
        backend.close().await;
        say(&format!("{} is up to date.\n", config.shown_url()));
        Ok(())
    })
}

fn openapi() -> Done {
    say(&(crate::http::openapi().to_pretty_json()? + "\n"));
    Ok(())
}

fn completions(shell: Shell) -> Done {
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "quita", &mut script);
    say(&String::from_utf8(script)?);
    Ok(())
}

/// Prints. A reader that has gone is not a reason to fail.
fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// For commands that decide about the exit code themselves.
fn run_to_end(work: impl Future<Output = ExitCode>) -> ExitCode {
    match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime.block_on(work),
        Err(error) => {
            eprintln!("quita: {error}");
            ExitCode::FAILURE
        }
    }
}

/// For commands that do one thing after another.
fn small_runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_remote_command_has_examples_and_no_option_takes_a_key() {
        fn leaves<'a>(
            command: &'a clap::Command,
            path: String,
            to: &mut Vec<(String, &'a clap::Command)>,
        ) {
            let mut own = command.get_subcommands().peekable();
            if own.peek().is_none() {
                to.push((path, command));
                return;
            }
            for sub in own {
                leaves(sub, format!("{path} {}", sub.get_name()), to);
            }
        }
        let command = Cli::command();
        let mut found = Vec::new();
        for name in [
            "queue",
            "dead",
            "redrive",
            "message",
            "publish",
            "audit",
            "token",
            "completions",
        ] {
            let sub = command.find_subcommand(name).unwrap();
            leaves(sub, name.to_owned(), &mut found);
        }
        assert!(found.len() >= 23, "{}", found.len());
        for (path, command) in found {
            let after = command
                .get_after_help()
                .map(ToString::to_string)
                .unwrap_or_default();
            let shown = format!("  quita {path}");
            assert!(
                after.contains("EXAMPLES") && after.contains(&shown),
                "{path}: {after}"
            );
            for arg in command.get_arguments() {
                assert!(!arg.get_id().as_str().contains("api_key"), "{path}");
                assert!(arg.get_help().is_some(), "{path}: {}", arg.get_id());
            }
        }
    }

    #[test]
    fn settings_go_with_serve_and_without_a_command() {
        for line in [
            &["quita", "--listen", "0.0.0.0:1"][..],
            &["quita", "serve", "--listen", "0.0.0.0:1"],
        ] {
            let cli = Cli::try_parse_from(line).unwrap();
            let config = match cli.command {
                Some(Command::Serve(config)) => *config,
                _ => cli.serve,
            };
            assert_eq!(config.listen.port(), 1);
        }
        assert!(Cli::try_parse_from(["quita", "--header-timeout-seconds", "0"]).is_err());
    }

    #[test]
    fn every_setting_is_explained_and_has_a_variable() {
        let command = Cli::command();
        let serve = command.find_subcommand("serve").unwrap();
        for arg in serve.get_arguments().filter(|a| a.get_id() != "help") {
            assert!(
                arg.get_help().is_some() && arg.get_env().is_some(),
                "{}",
                arg.get_id()
            );
        }
    }
}
