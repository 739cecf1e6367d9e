//! Compares the disk queue, on simulated disks that lose, tear and change what was written, with what was
//! acknowledged.

use super::*;
use plinth_core::testing::{Mutator, iterations};
use plinth_runtime::sim::{KillKind, Locality, MachineId, SimConfig, Simulation};
use plinth_runtime::{Duration, probe, random};
use std::cell::RefCell;
use std::rc::Rc;

const ID: Uid = Uid(7);

fn prefix() -> &'static Path {
    Path::new("/data/log")
}

fn simulation(seed: u64) -> (Simulation, MachineId) {
    let config = SimConfig {
        knob_randomise: true,
        knob_randomise_probability: 1.0,
        ..SimConfig::default()
    };
    let sim = Simulation::new(seed, config);
    let machine = sim.add_machine(Locality::default());
    let made = sim.run_on(machine, async {
        disk::create_dir_all(Path::new("/data"))
            .await
            .expect("a directory");
        disk::sync_dir(Path::new("/")).await.expect("its name");
    });
    made.expect("nothing kills it");
    (sim, machine)
}

/// The block with this number, from which its contents follow.
fn block(number: u64) -> FinishedBlock {
    let mut block = Block::default();
    block.push(|out| out.buffer().put_u64_le(number));
    for part in 0..number % 5 {
        // Some are too long to be copied.
        let long = if number % 11 == 7 { 150_000 } else { 0 };
        let bytes = (number * 7919 % 9000 * part) as usize + long;
        block.push(|out| {
            out.buffer().put_u8(number as u8);
            out.put_shared(&Bytes::from(vec![part as u8; bytes]));
        });
    }
    block.finish()
}

/// The number of a block that was read back. The block must be whole.
fn number_of(read: &Bytes) -> u64 {
    let first = entries(read).expect("well-formed").swap_remove(0);
    let number = u64::from_le_bytes(first[..].try_into().expect("a number"));
    assert!(
        block(number).pieces.concat() == read[..],
        "block {number} is another"
    );
    number
}

async fn reopen() -> Result<Option<(DiskQueue, Vec<(Position, u64)>)>> {
    let mut found = Vec::new();
    let opened = DiskQueue::open(prefix(), ID, |block, entries| {
        found.push((block.position(), number_of(&entries)));
        Ok(())
    });
    Ok(opened.await?.map(|queue| (queue, found)))
}

/// What the test still knows after a crash.
#[derive(Default)]
struct Known {
    created: bool,
    /// Blocks below this number were acknowledged.
    acknowledged: u64,
    /// The next block was given to the queue.
    attempted: bool,
    /// Blocks below this number were popped.
    popped: u64,
}

impl Known {
    fn check(&mut self, found: &[(Position, u64)]) {
        let consecutive =
            |pair: &[(Position, u64)]| pair[0].0 < pair[1].0 && pair[0].1 + 1 == pair[1].1;
        assert!(found.windows(2).all(consecutive), "a gap: {found:?}");
        let (first, end) = match found {
            [(_, first), .., (_, last)] | [(_, first @ last)] => (*first, *last + 1),
            [] => (self.acknowledged, self.acknowledged),
        };
        assert!(
            first <= self.popped || found.is_empty(),
            "{first} was not popped"
        );
        assert!(
            end == self.acknowledged || (self.attempted && end == self.acknowledged + 1),
            "it ends before {end}, and {} were acknowledged",
            self.acknowledged
        );
        self.acknowledged = end;
        self.attempted = false;
    }
}

/// Opens the queue, checks its contents, then writes, pops and reads for ever.
async fn live(known: Rc<RefCell<Known>>) {
    let opened = reopen().await.expect("nothing is damaged");
    let (mut queue, mut places) = match opened {
        Some(opened) => opened,
        None => {
            assert!(!known.borrow().created, "it was there");
            let queue = DiskQueue::create(prefix(), ID).await.expect("create");
            (queue, vec![])
        }
    };
    known.borrow_mut().created = true;
    known.borrow_mut().check(&places);
    loop {
        if random::chance(0.2) && !places.is_empty() {
            let (position, number) = places[random::below(places.len() as u64) as usize];
            let popped = number.max(known.borrow().popped);
            known.borrow_mut().popped = popped;
            queue.pop(position).await;
            places.retain(|(place, _)| *place >= position);
        }
        if random::chance(0.2) {
            check_reads(&queue, &places).await;
        }
        let number = known.borrow().acknowledged;
        known.borrow_mut().attempted = true;
        let persisted = queue.commit(&block(number)).await.expect("commit");
        places.push((persisted.position(), number));
        let mut known = known.borrow_mut();
        known.acknowledged += 1;
        known.attempted = false;
    }
}

/// Reads from a random place to the end, block by block.
async fn check_reads(queue: &DiskQueue, places: &[(Position, u64)]) {
    let from = random::below(places.len() as u64 + 1) as usize;
    let Some(&(mut position, _)) = places.get(from) else {
        return;
    };
    for (_, number) in &places[from..] {
        let (entries, next) = queue.read(position).await.expect("read").expect("there");
        assert_eq!(number_of(&entries), *number);
        position = next;
    }
    assert!(queue.read(position).await.expect("the end").is_none());
}

fn crash_and_reopen(seed: u64) -> u64 {
    let (sim, machine) = simulation(seed);
    let known = Rc::new(RefCell::new(Known::default()));
    for _ in 0..10 {
        let control = (*sim).clone();
        let mine = known.clone();
        let process = sim.start_process(
            machine,
            "10.0.0.1:4500".parse().expect("an address"),
            move || Box::pin(live(mine.clone())),
        );
        sim.run(async move {
            let life_ms = random::range(1..[10, 100, 1000][random::below(3) as usize]);
            plinth_runtime::sleep(Duration::from_millis(life_ms)).await;
            if random::chance(0.7) {
                control.power_cut(machine);
                control.boot(machine);
            }
            control.kill_process(process, KillKind::Kill);
        });
    }
    let acknowledged = known.borrow().acknowledged;
    acknowledged ^ sim.fingerprint()
}

#[test]
fn what_was_acknowledged_survives_power_cuts_and_kills_without_a_gap() {
    for seed in 0..100 {
        crash_and_reopen(seed);
    }
    let hits = probe::hits();
    for rare in [
        "disk_queue_recycles_segment",
        "disk_queue_finds_popped_segment",
    ] {
        assert!(hits.contains_key(rare), "the test never came by {rare:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    assert_eq!(crash_and_reopen(77), crash_and_reopen(77));
    assert_ne!(crash_and_reopen(77), crash_and_reopen(78));
}

/// Writes `count` blocks and stops. Returns the numbers that must be found again.
async fn filled(count: u64) -> std::ops::Range<u64> {
    let mut queue = DiskQueue::create(prefix(), ID).await.expect("create");
    let mut popped = (0, Position::default());
    for number in 0..count {
        let persisted = queue.commit(&block(number)).await.expect("commit");
        if number == count / 3 {
            popped = (number, persisted.position());
        }
    }
    queue.pop(popped.1).await;
    popped.0..count
}

#[test]
fn a_flipped_bit_is_reported_or_costs_the_last_block_at_most() {
    let mut noticed = 0;
    for seed in 0..100 {
        let (sim, machine) = simulation(seed);
        let expected = sim.run_on(machine, filled(40)).expect("finished");
        let files = sim.files(machine);
        let path = files[seed as usize % files.len()].clone();
        assert!(sim.flip_bit_in_file(machine, &path, 0..u64::MAX));
        match sim.run_on(machine, reopen()).expect("finished") {
            Err(code) => {
                assert_eq!(code, Error::file_corrupt);
                noticed += 1;
            }
            Ok(opened) => {
                let (_, found) = opened.expect("there is a queue");
                let numbers: Vec<u64> = found.iter().map(|(_, number)| *number).collect();
                let first = numbers[0];
                assert!(first <= expected.start);
                let whole = numbers.len() as u64 == expected.end - first;
                assert!(whole || numbers.len() as u64 == expected.end - first - 1);
                assert!(
                    numbers
                        .iter()
                        .copied()
                        .eq(first..first + numbers.len() as u64)
                );
            }
        }
    }
    assert!(noticed > 10, "only {noticed} flips were noticed");
}

/// Damage must not be taken for the end of a segment: the blocks behind it would be missed.
#[test]
fn a_bit_that_flips_in_a_running_queue_is_an_error_where_it_is_read_and_nothing_is_skipped() {
    let mut noticed = 0;
    for seed in 0..60 {
        let (sim, machine) = simulation(seed);
        let control = (*sim).clone();
        let main = async move {
            let mut queue = DiskQueue::create(prefix(), ID).await.expect("create");
            let mut places = Vec::new();
            for number in 0..40 {
                let persisted = queue.commit(&block(number)).await.expect("commit");
                places.push(persisted.position());
            }
            let damaged = random::below(40) as usize;
            let place = places[damaged];
            let begin = u64::from(place.offset);
            // Of the header or of what follows it.
            let bytes = [8, BLOCK_HEADER_BYTES as u64, 36][random::below(3) as usize];
            let path = segment_path(prefix(), place.segment);
            assert!(control.flip_bit_in_file(machine, &path, begin..begin + bytes));
            let mut position = places[0];
            for (number, place) in places.iter().enumerate() {
                match queue.read(position).await {
                    Ok(found) => {
                        let (entries, next) = found.expect("not the end");
                        assert_eq!(number_of(&entries), number as u64, "{place:?}");
                        position = next;
                    }
                    Err(error) => {
                        assert_eq!((error, number), (Error::file_corrupt, damaged));
                        return 1;
                    }
                }
            }
            0
        };
        noticed += sim.run_on(machine, main).expect("finished");
    }
    assert_eq!(noticed, 60);
}

#[test]
fn a_long_entry_is_not_copied_on_its_way_to_the_disk() {
    let long = Bytes::from(vec![7; 1 << 20]);
    let mut block = Block::default();
    block.push(|out| out.put_shared(&long));
    block.push(|out| out.buffer().put_u64_le(5));
    let (bytes, block) = (block.bytes(), block.finish());
    assert_eq!(block.pieces[1].as_ptr(), long.as_ptr());
    assert_eq!(block.bytes(), bytes);
    let read = entries(&Bytes::from(block.pieces.concat())).expect("well-formed");
    assert!(read[0] == long && read[1].len() == 8);
}

/// Makes four segments with one block each.
async fn four_segments() {
    let mut queue = DiskQueue::create(prefix(), ID).await.expect("create");
    for _ in 0..4 {
        let mut block = Block::default();
        block.push(|out| out.put_shared(&Bytes::from(vec![7; 70 << 20])));
        queue.commit(&block.finish()).await.expect("commit");
    }
}

/// Such a segment looks as if nothing had been written to it, or as if its blocks had been popped.
#[test]
fn a_damaged_block_that_has_a_segment_to_itself_is_reported() {
    let whole = SEGMENT_HEADER_BYTES..SEGMENT_HEADER_BYTES + 1000;
    // If this field were believed, the segments before it would be removed.
    let before = SEGMENT_HEADER_BYTES + 16..SEGMENT_HEADER_BYTES + 24;
    for (damaged, range) in (0..3).flat_map(|i| [(i, whole.clone()), (i, before.clone())]) {
        let (sim, machine) = simulation(u64::from(damaged));
        sim.run_on(machine, four_segments()).expect("finished");
        let (path, files) = (segment_path(prefix(), damaged), sim.files(machine));
        assert!(sim.flip_bit_in_file(machine, &path, range));
        let opened = DiskQueue::open(prefix(), ID, |_, _| Ok(()));
        let opened = sim.run_on(machine, opened).expect("finished");
        assert_eq!(opened.err(), Some(Error::file_corrupt), "segment {damaged}");
        assert_eq!(sim.files(machine), files, "segment {damaged}");
    }
}

/// A write that the disk has lost: the segment looks as if it had been about to be made from an older one.
#[test]
fn a_segment_with_the_header_of_its_former_life_is_reported_if_there_are_blocks_in_it() {
    for damaged in 1..4 {
        let (sim, machine) = simulation(u64::from(damaged));
        sim.run_on(machine, four_segments()).expect("finished");
        let files = sim.files(machine);
        let opened = sim.run_on(machine, async move {
            let path = segment_path(prefix(), damaged);
            let file = disk::open(&path, OpenOptions::default()).await?;
            let former = segment_header(ID, damaged - 1, file.size().await?);
            file.write_and_sync(0, vec![former]).await?;
            std::io::Result::Ok(DiskQueue::open(prefix(), ID, |_, _| Ok(())).await)
        });
        let opened = opened.expect("finished").expect("writes");
        assert_eq!(opened.err(), Some(Error::file_corrupt), "segment {damaged}");
        assert_eq!(sim.files(machine), files, "segment {damaged}");
    }
}

#[test]
fn a_file_that_was_cut_short_is_reported() {
    for seed in 0..20 {
        let (sim, machine) = simulation(seed);
        sim.run_on(machine, filled(40)).expect("finished");
        let files = sim.files(machine);
        let path = files[seed as usize % files.len()].clone();
        let opened = sim.run_on(machine, async move {
            let file = disk::open(&path, OpenOptions::default()).await?;
            let size = file.size().await?;
            file.truncate(random::range(SEGMENT_HEADER_BYTES..size))
                .await?;
            std::io::Result::Ok(reopen().await)
        });
        let opened = opened.expect("finished").expect("the file can be cut");
        match opened {
            Err(code) => assert_eq!(code, Error::file_corrupt),
            // The newest segment may have been made and not used yet.
            Ok(opened) => assert!(opened.expect("there is a queue").1.len() as u64 >= 26),
        }
    }
}

#[test]
fn a_full_disk_refuses_a_block_and_takes_the_same_one_later() {
    for seed in 0..20 {
        let (sim, machine) = simulation(seed);
        let control = (*sim).clone();
        let main = async move {
            let mut queue = DiskQueue::create(prefix(), ID).await.expect("create");
            let mut refused = 0;
            for number in 0..60 {
                control.set_disk_full(machine, number % 3 == 0);
                while let Err(code) = queue.commit(&block(number)).await {
                    assert_eq!(code, Error::disk_full);
                    refused += 1;
                    control.set_disk_full(machine, false);
                }
            }
            drop(queue);
            let (_, found) = reopen().await.expect("whole").expect("there");
            assert!(found.iter().map(|(_, number)| *number).eq(0..60));
            refused
        };
        sim.run_on(machine, main).expect("finished");
    }
}

/// The segment files of a small queue, as bytes.
fn images() -> Vec<Vec<u8>> {
    let image = |count: u64| {
        let mut out = segment_header(ID, 3, 4000).to_vec();
        let mut before = NO_BLOCK;
        for number in 0..count {
            let position = Position {
                segment: 3,
                offset: out.len() as u32,
            };
            let mut block = Block::default();
            block.push(|out| out.buffer().put_u64_le(number));
            block.push(|out| out.buffer().put_bytes(number as u8, number as usize * 40));
            let block = block.finish();
            out.extend_from_slice(&block_header(ID, position, before, &block));
            out.extend_from_slice(&block.pieces.concat());
            before = position.to_u64();
        }
        out.resize(out.len() + 100, 0);
        out
    };
    (0..6).map(image).collect()
}

/// Fuzz target: a segment file with anything in it.
#[test]
fn a_damaged_segment_is_read_without_a_panic_and_never_beyond_its_checksums() {
    let mut mutator = Mutator::new(1, images());
    for _ in 0..iterations() / 10 {
        let image = Bytes::from(mutator.next_input());
        parse_header(&image, ID);
        let mut position = Position::start_of(3);
        let mut length = 0;
        while let Some((_, read)) = block_at(&image, ID, position) {
            let begin = position.offset as usize + BLOCK_HEADER_BYTES;
            assert_eq!(read, image.slice(begin..begin + read.len()));
            if let Some(parts) = entries(&read) {
                let bytes: usize = parts.iter().map(|part| part.len() + 4).sum();
                assert_eq!(bytes, read.len());
            }
            length += read.len();
            assert!(length < image.len());
            position.offset += (BLOCK_HEADER_BYTES + read.len()) as u32;
        }
        if let Some(later) = later_block(&image, ID, 3, position.offset as usize) {
            assert!(later > position.offset as usize);
        }
    }
}

#[test]
fn a_segment_of_another_format_is_refused_and_left_alone() {
    for (format, seed) in [(FORMAT - 1, 1), (FORMAT + 1, 2)] {
        let (simulation, machine) = simulation(seed);
        let path = segment_path(prefix(), 0);
        let found = simulation.run_on(machine, async move {
            let mut queue = DiskQueue::create(prefix(), Uid(7)).await.expect("made");
            queue.commit(&block(1)).await.expect("written");
            drop(queue);
            let mut bytes = BytesMut::from(&disk::read_file(&path).await.expect("read")[..]);
            bytes[4..8].copy_from_slice(&format.to_le_bytes());
            let crc = crc32c::crc32c(&bytes[..40]);
            bytes[40..44].copy_from_slice(&crc.to_le_bytes());
            let bytes = bytes.freeze();
            disk::write_file_durably(&path, bytes.clone())
                .await
                .expect("written");
            let opened = DiskQueue::open(prefix(), Uid(7), |_, _| Ok(())).await;
            let left = disk::read_file(&path).await.expect("still there");
            (opened.map(|_| ()), left == bytes)
        });
        assert_eq!(found, Some((Err(Error::unsupported_format_version), true)));
    }
}
