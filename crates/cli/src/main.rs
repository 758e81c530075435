//! The command `thalweg`.

fn main() -> std::process::ExitCode {
    thalweg_cli::main()
}
