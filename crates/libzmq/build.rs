//! Finds the system's libzmq, and never another one (decision 0006).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    #[cfg(feature = "library")]
    find();
}

/// `statik(false)` overrides the environment: a static libzmq older than 4.3.5 would bring the LGPL into our programs.
#[cfg(feature = "library")]
fn find() {
    let found = pkg_config::Config::new().atleast_version("4.2").statik(false).probe("libzmq");
    if let Err(error) = found {
        eprintln!("ZeroMQ needs the system's libzmq, 4.2 or later, and pkg-config, which finds it.");
        eprintln!(
            "On Debian and Ubuntu: apt install libzmq3-dev pkg-config. Without them, leave out the feature `zeromq`."
        );
        eprintln!("{error}");
        std::process::exit(1);
    }
}
