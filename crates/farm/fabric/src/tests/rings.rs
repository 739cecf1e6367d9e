//! A ring against a queue, with lives that end anywhere, and rings that are no rings.

use crate::address::Error;
use crate::memory::Memory;
use crate::ring::{HEAD_WORDS, Reader, Ring, Tail};
use plinth_core::testing::{Generator, fuzz};
use proptest::prelude::*;
use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

const DATA_WORDS: usize = 37;

fn ring() -> (Memory, Ring) {
    let memory = Memory::private(HEAD_WORDS + DATA_WORDS);
    let ring = Ring::new(memory.clone());
    (memory, ring)
}

/// What a sender leaves that dies while it writes: all of a record but the seal, or a part of that.
fn leave_half_a_record(memory: &Memory, tail: &Tail, freed: u64, random: &mut Generator) {
    let data = &memory.words()[HEAD_WORDS..];
    let free = DATA_WORDS as u64 - (tail.position() - freed);
    for at in 1..free.min(1 + random.below(10) as u64) {
        let place = (tail.position() + at) % DATA_WORDS as u64;
        data[place as usize].store(random.next_u64(), Relaxed);
    }
}

#[derive(Default)]
struct Model {
    /// Not freed: body and end. The first `taken` were given out.
    queue: VecDeque<(Vec<u8>, u64)>,
    taken: usize,
    freed: u64,
}

fn step(
    (memory, ring): (&Memory, &Ring),
    (tail, reader): (&mut Tail, &mut Reader),
    model: &mut Model,
    random: &mut Generator,
) {
    match random.below(10) {
        0..4 => {
            let bytes = random.below(80);
            let body: Vec<u8> = (0..bytes).map(|_| random.below(3) as u8).collect();
            let words = 2 + bytes.div_ceil(8) as u64;
            let free = DATA_WORDS as u64 - (tail.position() - model.freed);
            let expected = if words > free {
                Err(Error::Full)
            } else {
                Ok(())
            };
            assert_eq!(tail.append(words, &body), expected);
            if expected.is_ok() {
                model.queue.push_back((body, tail.position()));
            }
        }
        4..7 => {
            let record = reader.next();
            let expected = model.queue.get(model.taken);
            let found = record.as_ref().map(|r| (r.body.to_vec(), r.end));
            assert_eq!(found.as_ref(), expected);
            if let Some(record) = record {
                let words = 2 + record.body.len().div_ceil(8) as u64;
                assert_eq!(record.configuration, words);
                model.taken += 1;
            }
        }
        7 if model.taken > 0 => {
            let count = 1 + random.below(model.taken);
            model.freed = model.queue[count - 1].1;
            reader.free(model.freed);
            model.queue.drain(..count);
            model.taken -= count;
        }
        8 => {
            leave_half_a_record(memory, tail, model.freed, random);
            *tail = Tail::find(ring.clone());
        }
        _ => {
            // Perhaps it dies while it frees: the mark is there, and some words are zeroed.
            if model.taken > 0 && random.below(2) == 0 {
                let end = model.queue[0].1;
                memory.words()[1].store(end, Relaxed);
                for at in
                    model.freed..model.freed + random.below((end - model.freed) as usize + 1) as u64
                {
                    let place = (at % DATA_WORDS as u64) as usize;
                    memory.words()[HEAD_WORDS + place].store(0, Relaxed);
                }
                if random.below(2) == 0 {
                    *tail = Tail::find(ring.clone());
                }
                model.freed = end;
                model.queue.pop_front();
            }
            *reader = Reader::recover(ring.clone()).expect("a ring");
            model.taken = 0;
        }
    }
}

proptest! {
    #[test]
    fn a_ring_is_a_queue_over_all_lives_of_both_sides(seed in any::<u64>()) {
        let mut random = Generator::new(seed);
        let (memory, ring) = ring();
        let mut sides = (Tail::find(ring.clone()), Reader::recover(ring.clone()).expect("new"));
        let mut model = Model::default();
        for _ in 0..300 {
            let (tail, reader) = (&mut sides.0, &mut sides.1);
            step((&memory, &ring), (tail, reader), &mut model, &mut random);
        }
    }
}

/// A ring with some messages in it, as bytes.
fn image(seed: u64) -> Vec<u8> {
    let mut random = Generator::new(seed);
    let (memory, ring) = ring();
    let (tail, reader) = (
        Tail::find(ring.clone()),
        Reader::recover(ring).expect("new"),
    );
    for _ in 0..random.below(60) {
        let body = vec![7; random.below(50)];
        if tail.append(1, &body).is_err()
            && let Some(record) = reader.next()
        {
            reader.free(record.end);
        }
    }
    let words = memory.words().iter();
    words
        .flat_map(|word| word.load(Relaxed).to_le_bytes())
        .collect()
}

#[test]
fn a_damaged_ring_does_no_harm() {
    fuzz("ring", 1, (0..50).map(image), |input| {
        let (memory, ring) = ring();
        for (word, bytes) in memory.words().iter().zip(input.chunks_exact(8)) {
            word.store(
                u64::from_le_bytes(bytes.try_into().expect("eight")),
                Relaxed,
            );
        }
        let tail = Tail::find(ring.clone());
        let Ok(reader) = Reader::recover(ring) else {
            return false;
        };
        let mut count = 0;
        while let Some(record) = reader.next() {
            assert!(record.body.len() <= 8 * DATA_WORDS);
            count += 1;
            assert!(count <= DATA_WORDS);
            if count % 2 == 0 {
                reader.free(record.end);
            }
        }
        reader.free(u64::MAX);
        let _ = tail.append(1, b"after it");
        reader.next();
        true
    });
}
