//! The binary `quita`: a command line and an exit code.

fn main() -> std::process::ExitCode {
    quita_api::cli::main()
}
