//! The binary `quita`: a command line and an exit code.

/// A publish makes some thirty small allocations, on threads that hand them to each other; glibc's allocator spends a tenth of
/// the server's time on that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    quita_api::cli::main()
}
