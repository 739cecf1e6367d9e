//! A region: where cells are, what was there before, and memory that is none.

use crate::{Class, Error, Header, Pointer, Region, Shape, Slabs, Walk};
use plinth_core::testing::{Generator, fuzz};
use plinth_farm_fabric::Memory;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

const SLAB_WORDS: u64 = 64;
const NUMBER: u16 = 258;

fn class(bytes: usize) -> Class {
    Class::of(bytes).expect("a class")
}

/// Five slabs in memory that a former life has left.
fn region(seed: u64) -> (Memory, Region) {
    let memory = Memory::private(5 * 64 + 8 + 8 + 3);
    let mut random = Generator::new(seed);
    let words = memory.words().iter();
    words.for_each(|word| word.store(random.next_u64(), Relaxed));
    let region = Region::make(&memory, NUMBER, SLAB_WORDS).expect("sizes");
    (memory, region)
}

fn words(bytes: &[u8]) -> Memory {
    let memory = Memory::private((bytes.len() / 8).max(1));
    for (word, bytes) in memory.words().iter().zip(bytes.as_chunks::<8>().0) {
        word.store(u64::from_le_bytes(*bytes), Relaxed);
    }
    memory
}

fn image(memory: &Memory) -> Vec<u8> {
    let words = memory.words().iter();
    words
        .flat_map(|word| word.load(Relaxed).to_le_bytes())
        .collect()
}

/// All objects, in steps of so many cells.
fn walk(region: &Region, limit: usize) -> Vec<Pointer> {
    let (mut all, mut word) = (Vec::new(), Some(0));
    while let Some(from) = word {
        let Walk { pointers, next } = region.objects_from(from, limit);
        assert!(pointers.len() <= limit && next.is_none_or(|next| next > from));
        all.extend(pointers);
        word = next;
    }
    all
}

#[test]
fn a_new_region_has_nothing_of_what_the_memory_held() {
    for seed in 0..20 {
        let (memory, region) = region(seed);
        assert_eq!(walk(&region, 7), []);
        assert_eq!((region.number(), region.shape().slabs()), (NUMBER, 5));
        let opened = Region::open(&memory).expect("a region");
        assert_eq!((opened.number(), opened.shape()), (NUMBER, region.shape()));
        let mut slabs = Slabs::scan(&region, 0);
        assert_eq!(slabs.free_slabs(), 5);
        let bytes = [0, 20, 100, 400];
        for bytes in bytes.into_iter().cycle().take(400) {
            let Some((pointer, header)) = slabs.reserve(class(bytes)) else {
                continue;
            };
            assert_eq!(header, Header::new(0, false));
            let read = region.cell(pointer).expect("a cell").read();
            assert!(matches!(read, crate::Seen::Version { payload, .. } if payload.is_empty()));
        }
    }
}

#[test]
fn a_pointer_is_checked_against_the_region_and_its_slab() {
    let (_, region) = region(1);
    let shape = region.shape();
    let small = class(20);
    let at = |slab, index| shape.pointer(NUMBER, small, slab, index);
    assert_eq!(region.cell(at(0, 0)).err(), Some(Error::FreeSlab));
    region.assign_slab(0, small).expect("free");
    assert!(region.cell(at(0, 0)).is_ok());
    let taken = Some(Error::OtherClass);
    assert_eq!(region.assign_slab(0, class(50)).err(), taken);
    assert_eq!(region.assign_slab(0, small).err(), taken);
    let wide = shape.pointer(NUMBER, class(50), 0, 0);
    let object = region.cell(at(0, 1)).expect("a cell");
    assert!(object.apply(5, true, b"object"));
    assert_eq!(region.cell(wide).err(), taken);
    assert_eq!(region.claim(wide).err(), taken);
    let none = Some(Error::NoCell);
    assert_eq!(region.assign_slab(5, small).err(), none);
    assert_eq!(region.free_slab(5).err(), none);
    assert_eq!(region.assign_slab(1, class(1000)).err(), none, "too large");
    assert_eq!(region.cell(at(5, 0)).err(), none);
    let word = |word| Pointer::new(NUMBER, small, word);
    for between in [1, 15, 17, 18, 79, 1 << 39] {
        assert_eq!(region.cell(word(between)).err(), none, "{between}");
        assert_eq!(region.claim(word(between)).err(), none, "{between}");
    }
    // Behind the last cell, the slab has no room for another.
    let last = at(0, shape.cells(small) - 1);
    assert!(region.cell(last).is_ok());
    let behind = word(last.word() + small.cell_words() as u64);
    assert_eq!(region.cell(behind).err(), none);
    let other = shape.pointer(NUMBER + 1, small, 0, 0);
    assert_eq!(region.cell(other).err(), Some(Error::OtherRegion));
}

#[test]
fn a_backup_takes_over_a_slab_in_which_all_objects_were_freed() {
    let (_, region) = region(2);
    let first = region.shape().pointer(NUMBER, class(20), 3, 1);
    let cell = region.claim(first).expect("a cell");
    assert!(cell.apply(5, true, b"first"));
    let wide = region.shape().pointer(NUMBER, class(100), 3, 0);
    assert_eq!(region.claim(wide).err(), Some(Error::OtherClass));
    assert!(cell.apply(7, false, b""));
    let claimed = region.claim(wide).expect("a cell");
    assert_eq!(claimed.header(), Header::new(0, false));
    assert_eq!(region.slab_class(3), Some(class(100)));
}

#[test]
fn a_backup_takes_the_class_from_the_first_object_until_the_slab_is_freed() {
    let (_, region) = region(2);
    let first = region.shape().pointer(NUMBER, class(20), 3, 1);
    assert!(
        region
            .claim(first)
            .expect("a cell")
            .apply(5, true, b"first")
    );
    assert_eq!(region.slab_class(3), Some(class(20)));
    assert!(
        !region
            .claim(first)
            .expect("the same")
            .apply(5, true, b"again")
    );
    assert_eq!(walk(&region, 1), [first]);
    let wide = region.shape().pointer(NUMBER, class(100), 3, 0);
    assert_eq!(region.claim(wide).err(), Some(Error::OtherClass));
    region.free_slab(3).expect("a slab");
    assert_eq!(walk(&region, 1), []);
    assert_eq!(
        region.claim(wide).expect("a cell").header(),
        Header::new(0, false)
    );
}

proptest! {
    #[test]
    fn cells_are_in_their_slab_and_apart(region_words in 0..5000u64, slab in 6..10u32, class in 0..53u8) {
        let class = Class::new(class).expect("a class");
        let Ok(shape) = Shape::of(region_words, 1 << slab) else {
            return Ok(());
        };
        let mut end = 8 + u64::from(shape.slabs());
        for slab in 0..shape.slabs() {
            prop_assert!(end <= shape.slab_word(slab) && shape.table_word(slab) < shape.slab_word(0));
            prop_assert_eq!(shape.slab_word(slab) % 8, 0);
            for index in 0..shape.cells(class) {
                let pointer = shape.pointer(9, class, slab, index);
                prop_assert_eq!(shape.place(pointer), Ok((slab, index)));
                prop_assert!(end <= pointer.word());
                end = pointer.word() + class.cell_words() as u64;
            }
            prop_assert!(end <= shape.slab_word(slab) + shape.slab_words());
        }
        prop_assert!(shape.slab_word(shape.slabs()) <= region_words);
        // One more slab would not fit.
        let slabs = u64::from(shape.slabs()) + 1;
        prop_assert!(8 + slabs.next_multiple_of(8) + slabs * shape.slab_words() > region_words);
    }

    #[test]
    fn a_walk_finds_each_object_once_in_its_order(
        objects in prop::collection::vec((0..5u32, any::<prop::sample::Index>(), any::<bool>()), 0..60),
        classes in prop::array::uniform5(prop::sample::select(vec![0, 9, 20, 100, 400])),
        (limit, from) in (1..20usize, 0..400u64),
    ) {
        let (_, region) = region(3);
        let mut model = BTreeMap::new();
        for (slab, index, allocated) in objects {
            let class = class(classes[slab as usize]);
            let index = index.index(region.shape().cells(class) as usize) as u32;
            let pointer = region.shape().pointer(NUMBER, class, slab, index);
            let cell = region.claim(pointer).expect("a cell");
            cell.apply(cell.header().timestamp() + 1, allocated, b"object");
            model.insert(pointer.word(), (pointer, allocated));
        }
        let objects = |from| model.range(from..).filter(|o| o.1.1).map(|o| o.1.0).collect::<Vec<_>>();
        prop_assert_eq!(walk(&region, limit), objects(0));
        prop_assert_eq!(region.objects_from(from, 1000).pointers, objects(from));
        // A new primary finds the same objects, and gives out none of them.
        let mut slabs = Slabs::scan(&region, 0);
        for bytes in [0, 9, 20, 100, 400] {
            while let Some((pointer, header)) = slabs.reserve(class(bytes)) {
                prop_assert!(!header.is_allocated());
                let was = model.get(&pointer.word());
                prop_assert!(was.is_none_or(|(object, allocated)| *object == pointer && !allocated));
            }
        }
    }
}

/// Everything that can be done with a region, on one whose words may change under it.
fn use_it(region: &Region, random: &mut Generator) {
    let _ = walk(region, 5);
    let shape = region.shape();
    let _ = region.objects_from(random.next_u64(), 5);
    let mut slabs = Slabs::open(region);
    for _ in 0..40 {
        let class = Class::new(random.below(53) as u8).expect("a class");
        let noise = random.next_u64();
        let word = 1 + noise % ((1 << 40) - 1);
        let near = 1 + noise % (region.shape().slab_word(shape.slabs()) + 10);
        let word = if noise >> 63 == 0 { word } else { near };
        let pointer = Pointer::new(region.number(), class, word);
        if let Ok(cell) = region.cell(pointer) {
            let _ = (cell.read(), cell.lock(cell.header()));
        }
        if let Ok(cell) = region.claim(pointer) {
            cell.apply(noise >> 2, true, b"noise");
        }
        let _ = slabs.release(pointer, noise);
        if let Some((pointer, _)) = slabs.reserve(class) {
            assert!(region.cell(pointer).is_ok());
            let _ = (slabs.release(pointer, 5), slabs.scan_next(5));
        }
        for slab in slabs.reuse(noise) {
            let _ = slabs.put_free(slab);
        }
    }
}

#[test]
fn memory_that_is_no_region_does_no_harm() {
    let (memory, region) = region(4);
    let empty = image(&memory);
    for bytes in [0, 9, 20] {
        let pointer = Slabs::open(&region).reserve(class(bytes));
        let (pointer, _) = pointer.expect("room");
        let cell = region.cell(pointer).expect("a cell");
        cell.apply(1, true, b"object");
    }
    let mut random = Generator::new(5);
    fuzz("region", 1, [empty, image(&memory)], |input| {
        let memory = words(input);
        let Ok(region) = Region::open(&memory) else {
            return false;
        };
        use_it(&region, &mut random);
        true
    });
    for seed in 0..2000 {
        let mut random = Generator::new(seed);
        let memory = Memory::private(1 + random.below(400));
        let noise = |random: &mut Generator| {
            let words = memory.words().iter();
            words.for_each(|word| word.store(random.next_u64() >> random.below(64), Relaxed));
        };
        noise(&mut random);
        assert!(Region::open(&memory).is_err());
        // It was one, and its words have changed since.
        if let Ok(region) = Region::make(&memory, 1, 64) {
            noise(&mut random);
            use_it(&region, &mut random);
        }
    }
}
