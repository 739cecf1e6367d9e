//! The memory of a machine: gates, rings and regions in one mapping, and what others may do with it.
//!
//! ```text
//!   head      magic and checksum | number of machines | words of a ring | number of regions | asleep (see `sleep`)
//!   sizes     of each region, in words, to a line of cache
//!   gates     a line for each machine: fence | door
//!   rings     one for each machine
//!   regions
//! ```
//!
//! A machine's *fence*, written by the owner, is the oldest configuration in which it may still change something
//! here; 0 means none. Its *door* is not 0 while it changes something. It opens the door, then looks at the fence. Who
//! closes a configuration raises the fence, then waits until the door is shut. These four are sequentially consistent,
//! so one of the two sees the other: what is let in is complete before the configuration is closed. A read opens no
//! door: it looks at the fence when it has read.
//!
//! A fence is a lower bound. A machine that goes to the next configuration before this one does is let in: who asks in
//! a configuration is a member of it. Its messages say in which they were sent.

use crate::address::{Address, Asker, Error, MACHINES_MAX, Machine, REGIONS_MAX};
use crate::memory::Memory;
use crate::ring::{HEAD_WORDS, Reader, Ring, Tail};
use crate::sleep::rouse;
use plinth_runtime::memory::{Mapping, Rope};
use plinth_runtime::planted;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};

const MAGIC: u64 = 0x4641_524d; // "FARM", in the upper half of the first word
const LINE_WORDS: usize = 8;
/// In the head.
const ASLEEP: usize = 4;
/// In a gate.
const FENCE: usize = 0;
const DOOR: usize = 1;

// The head has four numbers of the layout, then the word of the sleeper.
const _: () = assert!(3 < ASLEEP && ASLEEP < LINE_WORDS);
const _: () = assert!(FENCE != DOOR && FENCE < LINE_WORDS && DOOR < LINE_WORDS);
// Machines and regions have numbers of 16 bits.
const _: () = assert!(MACHINES_MAX <= 1 << 16 && REGIONS_MAX <= 1 << 16);
const RING_WORDS_MAX: u64 = 1 << 30;

/// The shape of a memory. All sizes are in words of eight bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Machines that can send here; their numbers are below.
    pub machines: usize,
    /// Room for messages of one machine.
    pub ring_words: u64,
    pub region_words: Vec<u64>,
}

impl Layout {
    /// Words before the gates. `None` if the layout is none.
    fn head_words(&self) -> Option<usize> {
        let counts = (1..=MACHINES_MAX).contains(&self.machines)
            && self.region_words.len() <= REGIONS_MAX
            && (1..=RING_WORDS_MAX).contains(&self.ring_words);
        counts.then(|| LINE_WORDS + self.region_words.len().next_multiple_of(LINE_WORDS))
    }

    fn whole_ring_words(&self) -> usize {
        HEAD_WORDS + (self.ring_words as usize).next_multiple_of(LINE_WORDS)
    }

    /// Words of the whole memory; `None` if there is no such memory.
    pub fn words(&self) -> Option<usize> {
        let mut words = self.head_words()? + self.machines * (LINE_WORDS + self.whole_ring_words());
        for region in &self.region_words {
            let region = usize::try_from(*region).ok()?;
            words = words.checked_add(region.checked_next_multiple_of(LINE_WORDS)?)?;
        }
        // Offsets in bytes are below the greatest slice.
        (words <= isize::MAX as usize / 8).then_some(words)
    }

    /// Where words lie that are not of the first `count` regions. `None` if the layout is none.
    pub(crate) fn beside(&self, count: usize) -> Option<[Range<usize>; 2]> {
        let words = self.words()?;
        let (first, rest) = self.region_words.split_at_checked(count)?;
        let sizes = |regions: &[u64]| -> usize {
            let whole = |words: &u64| (*words as usize).next_multiple_of(LINE_WORDS);
            regions.iter().map(whole).sum()
        };
        let end = words - sizes(rest);
        Some([0..end - sizes(first), end..words])
    }

    fn seal(&self) -> u64 {
        let numbers = [
            self.machines as u64,
            self.ring_words,
            self.region_words.len() as u64,
        ];
        let numbers = numbers.iter().chain(&self.region_words);
        let crc = numbers.fold(0, |crc, n| crc32c::crc32c_append(crc, &n.to_le_bytes()));
        MAGIC << 32 | u64::from(crc)
    }

    fn put(&self, words: &[AtomicU64]) {
        words[1].store(self.machines as u64, Release);
        words[2].store(self.ring_words, Release);
        words[3].store(self.region_words.len() as u64, Release);
        for (word, size) in words[LINE_WORDS..].iter().zip(&self.region_words) {
            word.store(*size, Release);
        }
        words[0].store(self.seal(), Release);
    }

    /// What the head of a memory says, if it is whole and fits the memory.
    pub(crate) fn take(words: &[AtomicU64]) -> Option<Layout> {
        let number = |at: usize| Some(words.get(at)?.load(Acquire));
        let seal = number(0)?;
        let regions = usize::try_from(number(3)?).ok()?;
        if regions > REGIONS_MAX {
            return None;
        }
        let sizes = (0..regions).map(|at| number(LINE_WORDS + at));
        let layout = Layout {
            machines: usize::try_from(number(1)?).ok()?,
            ring_words: number(2)?,
            region_words: sizes.collect::<Option<Vec<u64>>>()?,
        };
        let fits = seal == layout.seal() && layout.words()? <= words.len();
        fits.then_some(layout)
    }
}

/// A machine's memory, mapped here.
pub struct Host {
    layout: Layout,
    head: Memory,
    /// Wakes the owner. Memory that nobody sleeps over has none.
    rope: Option<Rope>,
    gates: Memory,
    rings: Vec<Ring>,
    regions: Vec<Memory>,
}

/// Somebody changes something here.
struct Door<'a>(&'a AtomicU64);

impl Drop for Door<'_> {
    #[inline]
    fn drop(&mut self) {
        // Who sees it shut sees all that was done behind it. That needs no order with what comes later.
        self.0.store(0, Release);
    }
}

impl Host {
    /// Writes the head of a memory that is all zeros.
    pub fn make(mapping: &Mapping, layout: &Layout) {
        layout.put(mapping.words());
    }

    /// `None` if the memory has no head, or one that does not fit.
    pub fn open(mapping: Mapping) -> Option<Host> {
        let layout = Layout::take(mapping.words())?;
        let memory = Memory::new(mapping);
        let mut at = layout.head_words()?;
        let head = memory.part(0, LINE_WORDS)?;
        let mut next = |words: usize, used: usize| {
            let part = memory.part(at, used);
            at += words;
            part
        };
        let gates = layout.machines * LINE_WORDS;
        let gates = next(gates, gates)?;
        let (whole, used) = (
            layout.whole_ring_words(),
            HEAD_WORDS + layout.ring_words as usize,
        );
        let rings = (0..layout.machines).map(|_| next(whole, used).map(Ring::new));
        let rings = rings.collect::<Option<Vec<Ring>>>()?;
        let sizes = layout.region_words.iter().map(|size| *size as usize);
        let regions = sizes.map(|used| next(used.next_multiple_of(LINE_WORDS), used));
        let regions = regions.collect::<Option<Vec<Memory>>>()?;
        // Everybody who maps the memory finds the parts in the same places, and has room for that many words.
        assert_eq!(Some(at), layout.words(), "the parts of {layout:?}");
        Some(Host {
            layout,
            head,
            rope: None,
            gates,
            rings,
            regions,
        })
    }

    /// The same, with a rope to the bell of its owner.
    pub(crate) fn with_rope(self, rope: Rope) -> Host {
        let rope = Some(rope);
        Host { rope, ..self }
    }

    pub(crate) fn mapping(&self) -> &Mapping {
        self.head.mapping()
    }

    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Odd while the owner sleeps.
    #[inline]
    pub(crate) fn asleep(&self) -> &AtomicU64 {
        &self.head.words()[ASLEEP]
    }

    #[inline]
    pub fn region(&self, region: u16) -> Result<&Memory, Error> {
        self.regions
            .get(usize::from(region))
            .ok_or(Error::OutOfBounds)
    }

    #[inline]
    fn gate(&self, machine: Machine, which: usize) -> Result<&AtomicU64, Error> {
        let at = usize::from(machine.0) * LINE_WORDS + which;
        self.gates.words().get(at).ok_or(Error::Closed)
    }

    #[inline]
    fn may_enter(&self, who: Asker) -> Result<(), Error> {
        let fence = self.gate(who.machine, FENCE)?.load(SeqCst);
        let is_open = fence != 0 && who.configuration >= fence;
        if is_open || planted!("farm_fence_is_open", "a closed configuration is let in") {
            return Ok(());
        }
        Err(Error::Closed)
    }

    #[inline]
    fn enter(&self, who: Asker) -> Result<Door<'_>, Error> {
        let door = self.gate(who.machine, DOOR)?;
        door.store(1, SeqCst);
        let door = Door(door);
        self.may_enter(who)?;
        Ok(door)
    }

    // ---- what others do here ----

    #[inline]
    pub fn read(&self, who: Asker, at: Address, into: &mut [u8]) -> Result<(), Error> {
        let looks_first = planted!("farm_read_looks_first", "a read sees what came after");
        if looks_first {
            self.may_enter(who)?;
        }
        let region = self.region(at.region);
        let read = region.and_then(|region| region.read(at.offset, into));
        // Afterwards: so it has seen nothing that was stored after its configuration was closed.
        if !looks_first {
            self.may_enter(who)?;
        }
        read
    }

    #[inline]
    pub fn write(&self, who: Asker, at: Address, from: &[u8]) -> Result<(), Error> {
        let _door = self.enter(who)?;
        self.region(at.region)?.write(at.offset, from)
    }

    #[inline]
    pub fn swap(&self, who: Asker, at: Address, expected: u64, new: u64) -> Result<u64, Error> {
        let _door = self.enter(who)?;
        let region = self.region(at.region)?;
        region.compare_and_swap(at.offset, expected, new)
    }

    /// Appends a message to the ring that `tail` is of, and wakes its owner if he sleeps.
    #[inline]
    pub fn append(&self, who: Asker, tail: &Tail, message: &[u8]) -> Result<(), Error> {
        let door = self.enter(who)?;
        tail.append(who.configuration, message)?;
        drop(door);
        if let Some(rope) = &self.rope {
            rouse(self.asleep(), || rope.ring());
        }
        Ok(())
    }

    /// A sender begins. Its former life is dead, so it changes nothing any more.
    pub fn join(&self, sender: Machine) -> Result<Tail, Error> {
        self.gate(sender, DOOR)?.store(0, SeqCst);
        let ring = self.rings.get(usize::from(sender.0)).ok_or(Error::Closed)?;
        Ok(Tail::find(ring.clone()))
    }

    // ---- what the owner does ----

    pub fn readers(&self) -> Result<Vec<Reader>, Error> {
        let rings = self.rings.iter().cloned();
        rings.map(Reader::recover).collect()
    }

    pub fn fence(&self, machine: Machine) -> u64 {
        let gate = self.gate(machine, FENCE);
        gate.map_or(0, |fence| fence.load(SeqCst))
    }

    pub fn set_fence(&self, machine: Machine, configuration: u64) {
        if let Ok(fence) = self.gate(machine, FENCE) {
            fence.store(configuration, SeqCst);
        }
    }

    /// True while the machine changes something, or has died in the middle.
    pub fn is_inside(&self, machine: Machine) -> bool {
        let gate = self.gate(machine, DOOR);
        gate.is_ok_and(|door| door.load(SeqCst) != 0)
    }
}
