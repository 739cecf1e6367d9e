//! What an engine asks of the membership.

use plinth_farm_fabric::Machine;
use std::future::Future;
use std::pin::Pin;

pub trait Links {
    /// Connects the fabric to a machine anew. Returns when that is done, or cannot be done now.
    fn reopen(&self, machine: Machine) -> Pin<Box<dyn Future<Output = ()>>>;

    /// A message in the configuration with this number is lost, so another one must follow it, in which what is
    /// committing is recovered.
    fn trouble(&self, number: u64);

    /// This machine's replica of the region has all objects, in the configuration with this number.
    fn whole(&self, number: u64, region: u16);

    /// This machine's disk has failed: the process must end.
    fn disk_failed(&self, why: String);

    /// No whole replica of these regions is left.
    fn lost(&self, regions: &[u16]);
}
