//! Says how the program `plinth` is linked.
//!
//! The addresses in a program that may be loaded anywhere are a list of 24 bytes each: 0.8 MB of the store's program.
//! Packed they are a fiftieth of it. The C library reads packed ones from version 2.36 on, so a program for other
//! machines (packages: `PLINTH_ANY_LIBC`) does without. A linker that does not know the option says so and goes on.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=PLINTH_ANY_LIBC");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let is_for_here =
        variable("HOST") == variable("TARGET") && variable("PLINTH_ANY_LIBC").is_empty();
    let is_gnu =
        variable("CARGO_CFG_TARGET_OS") == "linux" && variable("CARGO_CFG_TARGET_ENV") == "gnu";
    if is_for_here && is_gnu && libc().is_some_and(|version| version >= (2, 36)) {
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// The version of this machine's C library, which `getconf` prints as `glibc 2.36`.
fn libc() -> Option<(u32, u32)> {
    let said = Command::new("getconf")
        .arg("GNU_LIBC_VERSION")
        .output()
        .ok()?
        .stdout;
    let said = String::from_utf8(said).ok()?;
    let (major, minor) = said.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
