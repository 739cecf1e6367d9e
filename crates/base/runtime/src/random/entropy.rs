//! Random bytes of the operating system. They need no file, so no lack of descriptors ends who asks.

use rustix::rand::{GetRandomFlags, getrandom};

/// Fills `bytes`. Before the kernel has gathered enough at its start, this waits.
pub(crate) fn fill(bytes: &mut [u8]) {
    let mut filled = 0;
    while filled < bytes.len() {
        match getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            Ok(count) => filled += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("the kernel gives no random bytes: {error}"),
        }
    }
}

pub(super) fn seed() -> u64 {
    let mut seed = [0; 8];
    fill(&mut seed);
    u64::from_le_bytes(seed)
}
