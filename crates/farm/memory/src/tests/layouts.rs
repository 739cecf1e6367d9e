//! Sizes that there are, and that there are not.

use crate::{Cell, Class, Error, Old, Region, Shape, Sizes, Slabs};
use plinth_farm_fabric::{Layout, Memory};
use proptest::prelude::*;

fn small(bits: u32) -> impl Strategy<Value = u64> {
    // Any number up to so many bits, with a preference for powers of two.
    (0..=bits, any::<u64>(), any::<bool>()).prop_map(|(shift, noise, plain)| {
        let power = 1u64 << shift;
        if plain { power } else { noise % power }
    })
}

proptest! {
    #[test]
    fn sizes_that_are_accepted_have_room_for_what_they_promise(
        (slots, region_words, slab_words) in (0..3u16, small(17), small(16)),
        (old_words, block_words) in (small(17), small(17)),
    ) {
        let sizes = Sizes { slots, region_words, slab_words, old_words, block_words };
        if sizes.check().is_err() {
            return Ok(());
        }
        let shape = sizes.shape().expect("checked");
        let words = sizes.region_words();
        prop_assert_eq!(words.len(), usize::from(slots) + 1);
        prop_assert_eq!(words[usize::from(sizes.old())], old_words);
        prop_assert!((0..slots).all(|slot| sizes.slot(slot) == Some(slot)) && sizes.slot(slots).is_none());
        let layout = Layout { machines: 1, ring_words: 64, region_words: words };
        prop_assert!(layout.words().is_some());
        // The largest object has a cell in the last slab, and an old version.
        let memory = Memory::private(region_words as usize);
        let region = Region::make(&memory, 7, slab_words).expect("checked");
        prop_assert_eq!(region.shape(), shape);
        let largest = (0..53).filter_map(Class::new).filter(|class| shape.cells(*class) > 0).max();
        let largest = largest.expect("one");
        let last = shape.slabs() - 1;
        region.assign_slab(last, largest).expect("it is free");
        let pointer = shape.pointer(7, largest, last, shape.cells(largest) - 1);
        let cell = region.cell(pointer).expect("the last one");
        prop_assert!(cell.apply(1, true, b"last"));
        let end = pointer.word() + largest.cell_words() as u64;
        prop_assert!(end <= region_words);
        let mut old = Old::new(&Memory::private(old_words.max(1) as usize), block_words).expect("checked");
        prop_assert_eq!(old.keep(cell).is_some(), old_words > 0);
        let others = shape.slabs() > 1 || shape.cells(largest) > 1;
        prop_assert_eq!(Slabs::open(&region).reserve(largest).is_some(), others);
    }

    #[test]
    fn any_sizes_are_judged(slots: u16, sizes in prop::array::uniform4(any::<u64>())) {
        let [region_words, slab_words, old_words, block_words] = sizes;
        let _ = Sizes { slots, region_words, slab_words, old_words, block_words }.check();
        let _ = Shape::of(region_words, 1 << (slab_words % 64));
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused_with_a_reason() {
    let good = Sizes::new(3, 1 << 20, 1 << 20);
    assert_eq!(good.check(), Ok(()));
    let bad = [
        Sizes {
            slots: 1024,
            ..good
        },
        Sizes {
            region_words: 1 << 17,
            ..good
        },
        Sizes {
            region_words: (1 << 40) + 1,
            ..good
        },
        Sizes {
            slab_words: 1000,
            ..good
        },
        Sizes {
            slab_words: 32,
            ..good
        },
        Sizes {
            block_words: 1 << 14,
            ..good
        },
        Sizes {
            old_words: 1000,
            ..good
        },
        Sizes {
            block_words: 0,
            ..good
        },
    ];
    for sizes in bad {
        assert!(matches!(sizes.check(), Err(Error::Sizes(_))), "{sizes:?}");
    }
    let single_version = Sizes {
        old_words: 0,
        ..good
    };
    assert_eq!(single_version.check(), Ok(()));
}

#[test]
fn a_memory_of_the_fabric_has_a_cell_in_each_slot() {
    // Cells lie in the words that the fabric reads.
    let sizes = Sizes {
        slab_words: 64,
        block_words: 64,
        ..Sizes::new(2, 200, 64)
    };
    let memory = Memory::private(sizes.region_words()[0] as usize);
    let region = Region::make(&memory, 3, sizes.slab_words).expect("sizes");
    let class = Class::of(8).expect("a class");
    let (pointer, _) = Slabs::open(&region).reserve(class).expect("room");
    assert!(
        region
            .cell(pointer)
            .expect("one")
            .apply(9, true, b"12345678")
    );
    let cell = Cell::new(&memory, pointer.word(), class).expect("the same");
    assert_eq!(cell.header().timestamp(), 9);
    let mut bytes = [0; 8];
    memory
        .read(8 * (pointer.word() + 2), &mut bytes)
        .expect("read");
    assert_eq!(&bytes, b"12345678");
}
