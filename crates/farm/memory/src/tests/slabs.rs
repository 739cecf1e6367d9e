//! Free cells against a plain list of who has which.

use crate::{Class, Error, Header, Pointer, Region, Slabs};
use plinth_core::testing::Generator;
use plinth_farm_fabric::Memory;
use std::collections::{BTreeMap, BTreeSet};

const SLABS: u32 = 6;
const SLAB_WORDS: u64 = 256;

fn class(bytes: usize) -> Class {
    Class::of(bytes).expect("a class")
}

fn region() -> Region {
    let memory = Memory::private((8 + 8 + u64::from(SLABS) * SLAB_WORDS) as usize);
    Region::make(&memory, 5, SLAB_WORDS).expect("sizes")
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Use {
    Reserved,
    Allocated,
}

#[derive(Default)]
struct Model {
    cells: BTreeMap<Pointer, Use>,
    /// What was given out once and is free now.
    former: BTreeSet<Pointer>,
    classes: BTreeMap<u32, Class>,
    /// When each slab has become empty.
    empty: BTreeMap<u32, u64>,
    leaving: BTreeSet<u32>,
}

struct Stand {
    region: Region,
    slabs: Slabs,
    model: Model,
    now: u64,
    random: Generator,
    reused: usize,
}

impl Stand {
    fn slab(&self, pointer: Pointer) -> u32 {
        self.region.shape().place(pointer).expect("a cell").0
    }

    fn used_in(&self, slab: u32) -> usize {
        let cells = self.model.cells.keys();
        cells.filter(|at| self.slab(**at) == slab).count()
    }

    fn has_room(&self, class: Class) -> bool {
        let cells = self.region.shape().cells(class) as usize;
        (0..SLABS).any(|slab| match self.model.classes.get(&slab) {
            Some(has) => *has == class && self.used_in(slab) < cells,
            None => !self.model.leaving.contains(&slab) && cells > 0,
        })
    }

    fn reserve(&mut self) {
        let class = class([0, 30, 200, 1000][self.random.below(4)]);
        let Some((pointer, header)) = self.slabs.reserve(class) else {
            assert!(!self.has_room(class), "there is room");
            return;
        };
        assert!(self.has_room(class), "there is none");
        let cell = self.region.cell(pointer).expect("a cell");
        assert_eq!((cell.header(), pointer.class()), (header, class));
        let begin = pointer.word();
        let end = begin + class.cell_words() as u64;
        for other in self.model.cells.keys() {
            let other_end = other.word() + other.class().cell_words() as u64;
            assert!(other_end <= begin || end <= other.word(), "it is given out");
        }
        let slab = self.slab(pointer);
        let has = self.model.classes.insert(slab, class);
        assert!(has.is_none_or(|has| has == class));
        self.model.empty.remove(&slab);
        self.model.former.remove(&pointer);
        self.model.cells.insert(pointer, Use::Reserved);
    }

    /// A pointer that is used, if there is one.
    fn any(&mut self) -> Option<(Pointer, Use)> {
        let at = self.random.below(self.model.cells.len());
        let found = self.model.cells.iter().nth(at);
        found.map(|(pointer, used)| (*pointer, *used))
    }

    fn allocate(&mut self) {
        let Some((pointer, Use::Reserved)) = self.any() else {
            return;
        };
        self.now += 1;
        let cell = self.region.cell(pointer).expect("a cell");
        assert!(cell.apply(self.now, true, b"object"));
        assert_eq!(self.slabs.release(pointer, self.now), Err(Error::InUse));
        self.model.cells.insert(pointer, Use::Allocated);
    }

    fn release(&mut self) {
        let Some((pointer, used)) = self.any() else {
            return;
        };
        self.now += 1;
        if used == Use::Allocated {
            let cell = self.region.cell(pointer).expect("a cell");
            assert!(cell.apply(self.now, false, b""));
        }
        assert_eq!(self.slabs.release(pointer, self.now), Ok(()));
        self.model.cells.remove(&pointer);
        self.model.former.insert(pointer);
        let slab = self.slab(pointer);
        if self.used_in(slab) == 0 {
            self.model.empty.insert(slab, self.now);
        }
    }

    fn release_twice(&mut self) {
        let at = self.random.below(self.model.former.len());
        if let Some(pointer) = self.model.former.iter().nth(at) {
            let released = self.slabs.release(*pointer, self.now);
            let errors = [Error::NotReserved, Error::FreeSlab, Error::OtherClass];
            assert!(released.is_err_and(|error| errors.contains(&error)));
        }
    }

    fn reuse(&mut self) {
        let safe_point = self.now.saturating_sub(self.random.below(30) as u64);
        let leaving = self.slabs.reuse(safe_point);
        let mut expected = self.model.empty.clone();
        expected.retain(|_, time| *time < safe_point);
        assert_eq!(leaving, expected.keys().copied().collect::<Vec<u32>>());
        for slab in leaving {
            self.model.empty.remove(&slab);
            self.model.classes.remove(&slab);
            self.model.leaving.insert(slab);
        }
    }

    fn put_free(&mut self) {
        let slab = self.random.below(SLABS as usize + 1) as u32;
        let expected = match self.model.leaving.remove(&slab) {
            true => Ok(()),
            false => Err(Error::NotLeaving),
        };
        assert_eq!(self.slabs.put_free(slab), expected);
        self.reused += usize::from(expected.is_ok());
    }

    /// A new primary: reservations are gone, objects are not. It knows no slab, or all.
    fn promote(&mut self) {
        let lazy = self.random.below(2) == 0;
        self.slabs = match lazy {
            true => Slabs::open(&self.region),
            false => Slabs::scan(&self.region, self.now),
        };
        let model = &mut self.model;
        model.cells.retain(|_, used| *used == Use::Allocated);
        // A slab that was leaving still has its class in the table. What was free is free.
        model.leaving.clear();
        model.former.clear();
        model.empty.clear();
        for slab in 0..SLABS {
            if let Some(class) = self.region.slab_class(slab) {
                self.model.classes.insert(slab, class);
                if self.used_in(slab) == 0 {
                    self.model.empty.insert(slab, self.now);
                }
            }
        }
        if lazy {
            while self.slabs.scan_next(self.now) {
                self.random.below(2);
            }
        }
    }
}

#[test]
fn cells_are_given_out_once_and_slabs_reused_behind_the_safe_point() {
    let mut reused = 0;
    for seed in 0..200 {
        let region = region();
        let mut stand = Stand {
            slabs: Slabs::open(&region),
            region,
            model: Model::default(),
            now: 1,
            random: Generator::new(seed),
            reused: 0,
        };
        for _ in 0..600 {
            // More comes than goes, then more goes than comes.
            let grows = stand.random.below(600) < 300;
            match stand.random.below(40) {
                0..12 if grows => stand.reserve(),
                0..8 => stand.reserve(),
                8..18 => stand.allocate(),
                18..32 => stand.release(),
                32..35 => stand.release_twice(),
                35..37 => stand.reuse(),
                37..39 => stand.put_free(),
                _ if stand.random.below(5) == 0 => stand.promote(),
                _ => {}
            }
        }
        reused += stand.reused;
    }
    assert!(reused > 100, "{reused}");
}

#[test]
fn an_empty_slab_goes_to_another_class_behind_the_safe_point_only() {
    let region = region();
    let mut slabs = Slabs::open(&region);
    let (small, large) = (class(30), class(200));
    let mut cells = Vec::new();
    while let Some((pointer, _)) = slabs.reserve(small) {
        cells.push(pointer);
    }
    assert_eq!((slabs.reserve(large), slabs.free_slabs()), (None, 0));
    let per_slab = region.shape().cells(small) as usize;
    for pointer in &cells[..per_slab] {
        slabs.release(*pointer, 100).expect("reserved");
    }
    assert_eq!(slabs.reserve(large), None, "the time has not passed");
    assert_eq!(slabs.reuse(100), [] as [u32; 0]);
    // A reservation meanwhile keeps it, and its release begins anew.
    let (pointer, _) = slabs.reserve(small).expect("room");
    assert_eq!(slabs.reuse(101), [] as [u32; 0]);
    slabs.release(pointer, 200).expect("reserved");
    assert_eq!(slabs.reuse(200), [] as [u32; 0]);
    assert_eq!(slabs.reuse(201), [0]);
    assert_eq!(slabs.reserve(small), None, "it leaves");
    assert_eq!(slabs.reserve(large), None, "not all know");
    assert_eq!(slabs.release(pointer, 300), Err(Error::NotReserved));
    assert_eq!(slabs.put_free(0), Ok(()));
    assert_eq!(slabs.put_free(0), Err(Error::NotLeaving));
    assert_eq!(slabs.release(pointer, 300), Err(Error::FreeSlab));
    let (other, header) = slabs.reserve(large).expect("a slab");
    assert_eq!(
        (other.word(), header),
        (cells[0].word(), Header::new(0, false))
    );
    assert_eq!(slabs.release(pointer, 300), Err(Error::OtherClass));
}

#[test]
fn an_object_that_nobody_has_reserved_is_not_given_out() {
    let region = region();
    let mut slabs = Slabs::open(&region);
    let (first, _) = slabs.reserve(class(30)).expect("room");
    slabs.release(first, 1).expect("reserved");
    let cell = region.cell(first).expect("a cell");
    assert!(cell.apply(5, true, b"object"));
    let (second, _) = slabs.reserve(class(30)).expect("room");
    assert_ne!(first, second);
    // It is found to be in use, so it can be freed like the others.
    assert!(cell.apply(6, false, b""));
    assert_eq!(slabs.release(first, 6), Ok(()));
}

#[test]
fn an_object_larger_than_a_slab_has_no_room() {
    assert_eq!(Slabs::open(&region()).reserve(class(5000)), None);
}

#[test]
fn while_objects_are_away_only_cells_that_never_had_one_have_room() {
    let (region, class) = (region(), class(20));
    let at = |slab, index| region.shape().pointer(5, class, slab, index);
    let cell = |slab, index| region.cell(at(slab, index)).expect("a cell");
    let cells = region.shape().cells(class);
    // Of the first slab all cells are away, of the second one the first two.
    let is_away = |pointer| (0..2).any(|index| pointer == at(1, index));
    region.assign_slab_away(0, class, |_| true).expect("free");
    region.assign_slab_away(1, class, is_away).expect("free");
    let mut slabs = Slabs::open_away(&region);
    let reserve = |slabs: &mut Slabs| Some(slabs.reserve(class)?.0);
    let first = reserve(&mut slabs).expect("room");
    assert_eq!(first, at(1, 2));
    let rest: Vec<Pointer> = std::iter::from_fn(|| reserve(&mut slabs)).collect();
    assert_eq!(rest.len() as u32, (SLABS - 1) * cells - 3);
    // One comes, is freed by a transaction, and taken again by one that has not committed when all are there.
    assert!(cell(1, 0).apply(7, true, b"") && cell(1, 0).apply(8, false, b""));
    assert_eq!(slabs.release(at(1, 0), 8), Ok(()));
    assert_eq!(reserve(&mut slabs), Some(at(1, 0)));
    // Of the others, one is an object, and the rest were freed.
    assert!(cell(0, 0).apply(8, true, b"live") && cell(1, 1).apply(8, false, b""));
    (1..cells).for_each(|index| assert!(cell(0, index).apply(8, false, b"")));
    slabs.all_here(9);
    let more: Vec<Pointer> = std::iter::from_fn(|| reserve(&mut slabs)).collect();
    assert_eq!(more.len() as u32, cells);
    assert!(!more.contains(&at(0, 0)) && !more.contains(&at(1, 0)) && more.contains(&at(1, 1)));
}

#[test]
fn a_slab_of_which_all_objects_come_freed_leaves_its_class() {
    let (region, class) = (region(), class(20));
    region.assign_slab_away(0, class, |_| true).expect("free");
    let mut slabs = Slabs::open_away(&region);
    // Somebody has looked.
    while slabs.reserve(class).is_some() {}
    for index in 0..region.shape().cells(class) {
        let cell = region.cell(region.shape().pointer(5, class, 0, index));
        assert!(cell.expect("a cell").apply(8, false, b""));
    }
    assert!(slabs.reuse(100).is_empty());
    slabs.all_here(9);
    assert_eq!((slabs.reuse(9), slabs.reuse(10)), (vec![], vec![0]));
}
