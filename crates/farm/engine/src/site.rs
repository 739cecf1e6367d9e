//! A machine with its fabric: what reads other machines' memory.

use crate::core::Core;
use crate::post::pause;
use plinth_farm_fabric::{self as fabric, Address, Error, Fabric, Machine};
use plinth_farm_memory::{Abort, Header};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Takes a message of the fabric that is not the engine's.
pub type Handler = Rc<dyn Fn(&fabric::Message)>;

pub struct Site<F> {
    pub core: Core,
    pub fabric: Rc<F>,
    /// By the room's tag.
    pub handlers: RefCell<BTreeMap<u8, Handler>>,
}

const WORD_BYTES: u64 = 8;

impl<F: Fabric> Site<F> {
    /// Reads words of another machine's memory.
    #[inline]
    pub async fn read(
        &self,
        machine: Machine,
        region: u16,
        word: u64,
        into: &mut [u8],
    ) -> Result<(), Abort> {
        let at = Address {
            machine,
            region,
            offset: word.saturating_mul(WORD_BYTES),
        };
        loop {
            match self.fabric.read(at, into).await {
                Ok(()) => return Ok(()),
                Err(Error::Full) => pause(self.core.settings.pause).await,
                Err(_) => return Err(Abort::Failed),
            }
        }
    }

    pub async fn header(&self, machine: Machine, region: u16, word: u64) -> Result<Header, Abort> {
        let mut bytes = [0; WORD_BYTES as usize];
        self.read(machine, region, word, &mut bytes).await?;
        Ok(Header::from_bits(u64::from_le_bytes(bytes)))
    }
}
