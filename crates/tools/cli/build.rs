//! Says how the program `plinth` is linked, so that it is small (docs/decisions/0014).
//!
//! A program that runs where it is built has its addresses packed. It may be loaded anywhere, so it has a list of
//! them, of 24 bytes each: 0.8 MB of the store's program, and a fiftieth of that when they are packed, which the C
//! library reads from version 2.36 on. A linker that does not know the option says so and goes on.
//!
//! A package (`PLINTH_PACKAGE`) is for C libraries of any age. In it functions of the same code become one, which the
//! linker can do that comes with Rust for x86-64.

use std::process::Command;

fn main() {
    println!("cargo:rerun-if-env-changed=PLINTH_PACKAGE");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let is_package = !variable("PLINTH_PACKAGE").is_empty();
    let option = match variable("TARGET").as_str() {
        "x86_64-unknown-linux-gnu" if is_package => "--icf=all",
        target if is_package || target != variable("HOST") || !target.ends_with("-linux-gnu") => {
            return;
        }
        _ if libc() < Some((2, 36)) => return,
        _ => "-z,pack-relative-relocs",
    };
    println!("cargo:rustc-link-arg-bins=-Wl,{option}");
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
