//! The registers of one coordinator, and how they lie on its disk.
//!
//! A register promises: once it has answered a read of generation g, it accepts no write below g. Its answer is on
//! disk before it is sent.

use super::promise::Promise;
use crate::cluster_file::{key_of_register, number_of_register};
use crate::owner::owner;
use bytes::{BufMut, Bytes, BytesMut};
use plinth_core::codec::Codec;
use plinth_core::output::Output;
use plinth_core::{Error, Result, Uid, record};
use plinth_protocol::coordination::{
    CoordinatedValue, Generation, ReadRegister, ReadRegisterReply, WriteRegister,
    WriteRegisterReply,
};
use plinth_protocol::database::Owner;

/// 2: one register for each set of coordinators, each of which may name a successor.
const FORMAT: u32 = 2;
/// Format 2, followed by `since`. Used only if `since` is set: registers that have lost nothing stay readable for
/// older versions.
const FORMAT_WITH_SINCE: u32 = 3;
/// Limit of registers. A cluster that has changed its coordinators this often has another problem.
const REGISTERS_MAX: usize = 1000;
/// Limits of a state, and of a register's name. Longer ones are not written by Plinth.
const VALUE_BYTES_MAX: usize = 16 << 20;
const NAME_BYTES_MAX: usize = 1000;
/// How far above the generations of a register the next one may be. Readers count by one, so an honest one is never
/// that far ahead; a confused one would otherwise take the last number, and nobody could read the register again.
const GENERATION_STEP_MAX: u64 = 1 << 32;

record! {
    pub struct RegisterState {
        /// `description:id` of the cluster file, with the number of the set of coordinators.
        pub name: String,
        pub read_generation: Generation,
        pub write_generation: Generation,
        pub value: Option<CoordinatedValue>,
    }

}

/// The contents of a coordinator's disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Registers {
    /// The cluster: `description:id` without a number.
    pub cluster: String,
    pub registers: Vec<RegisterState>,
    /// Number of the first set of coordinators that this one has a register for. Promises to earlier sets are lost.
    pub since: u64,
    /// Not on disk. Set if the registers on disk were lost: nothing is promised before a move of the coordinators
    /// begins a register here. The number is different for each start of this coordinator.
    pub lost: Option<Uid>,
}

impl RegisterState {
    pub fn new(name: String) -> Self {
        let none = Generation::default();
        RegisterState {
            name,
            read_generation: none,
            write_generation: none,
            value: None,
        }
    }

    pub fn read(&mut self, request: &ReadRegister) -> Promise<ReadRegisterReply> {
        let before = self.promised();
        let changed = request.generation > self.read_generation;
        if changed {
            self.read_generation = request.generation;
        }
        let reply = ReadRegisterReply {
            read_generation: self.read_generation,
            write_generation: self.write_generation,
            value: self.value.clone(),
        };
        self.assert_kept(before);
        assert!(
            self.read_generation >= request.generation,
            "a read does not fence the writes below {:?}",
            request.generation
        );
        match changed {
            true => Promise::new(reply),
            false => Promise::AsBefore(reply),
        }
    }

    pub fn write(&mut self, request: &WriteRegister) -> Promise<WriteRegisterReply> {
        let before = self.promised();
        let accepted = request.generation >= self.read_generation
            && request.generation > self.write_generation;
        if accepted {
            self.read_generation = request.generation;
            self.write_generation = request.generation;
            self.value = Some(CoordinatedValue {
                // Copied: a slice would keep the message that it came in.
                state: Bytes::copy_from_slice(&request.value.state),
                ..request.value.clone()
            });
        }
        self.assert_kept(before);
        let highest = self.read_generation.max(self.write_generation);
        let reply = WriteRegisterReply { accepted, highest };
        match accepted {
            true => Promise::new(reply),
            false => Promise::AsBefore(reply),
        }
    }

    fn promised(&self) -> (Generation, Generation) {
        (self.read_generation, self.write_generation)
    }

    /// Asserts that no generation has gone back from `before`.
    fn assert_kept(&self, before: (Generation, Generation)) {
        assert!(
            self.read_generation >= before.0 && self.write_generation >= before.1,
            "the generations of the register {} go back from {before:?} to {:?}",
            self.name,
            self.promised()
        );
    }
}

impl Registers {
    pub fn new(cluster: String) -> Self {
        Registers {
            cluster,
            registers: vec![],
            since: 0,
            lost: None,
        }
    }

    /// The registers of a coordinator that has lost its promises.
    pub fn lost(cluster: String, start: Uid) -> Self {
        Registers {
            lost: Some(start),
            ..Registers::new(cluster)
        }
    }

    /// Begins again with the register of a set of coordinators that was not known to any process when this
    /// coordinator was found `lost`.
    pub fn begin(&mut self, name: &str, lost: Uid) -> Promise<Result<()>> {
        match self.begin_with(name, lost) {
            Ok(()) => Promise::new(Ok(())),
            refused => Promise::AsBefore(refused),
        }
    }

    fn begin_with(&mut self, name: &str, lost: Uid) -> Result<()> {
        self.belongs(name)?;
        if self.lost != Some(lost) {
            return Err(Error::operation_obsolete);
        }
        assert!(
            self.registers.is_empty(),
            "a coordinator that has lost its registers has promised something"
        );
        (self.lost, self.since) = (None, number_of_register(name));
        Ok(())
    }

    fn find(&self, name: &str) -> Option<&RegisterState> {
        self.registers.iter().find(|register| register.name == name)
    }

    fn at(&mut self, name: &str) -> &mut RegisterState {
        assert!(
            self.check(name).is_ok(),
            "the register {name} is used, and promises about it may be lost"
        );
        let place = self.registers.iter().position(|r| r.name == name);
        let place = place.unwrap_or_else(|| {
            self.registers.push(RegisterState::new(name.to_string()));
            self.registers.len() - 1
        });
        &mut self.registers[place]
    }

    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Checks that the register is one of this cluster.
    pub fn belongs(&self, name: &str) -> Result<()> {
        match name.len() <= NAME_BYTES_MAX && key_of_register(name) == self.cluster {
            true => Ok(()),
            false => Err(Error::connection_string_invalid),
        }
    }

    /// Checks that no promise about the register can have been lost.
    pub fn check(&self, name: &str) -> Result<()> {
        self.belongs(name)?;
        match self.lost.is_none() && number_of_register(name) >= self.since {
            true => Ok(()),
            false => Err(Error::file_not_found),
        }
    }

    /// Checks that the register may be read and written in this generation.
    pub fn admit(&self, name: &str, generation: Generation) -> Result<()> {
        self.check(name)?;
        let found = self.find(name);
        let highest = found.map_or(0, |register| register.promised().0.number);
        if generation.number > highest.saturating_add(GENERATION_STEP_MAX) {
            return Err(Error::client_invalid_operation);
        }
        match found.is_some() || self.registers.len() < REGISTERS_MAX {
            true => Ok(()),
            false => Err(Error::server_request_queue_full),
        }
    }

    pub fn read(&mut self, request: &ReadRegister) -> Promise<ReadRegisterReply> {
        self.at(&request.register).read(request)
    }

    pub fn write(&mut self, request: &WriteRegister) -> Promise<WriteRegisterReply> {
        let register = self.at(&request.register);
        if request.value.state.len() > VALUE_BYTES_MAX
            || request.value.successor.len() > VALUE_BYTES_MAX
        {
            let highest = register.read_generation.max(register.write_generation);
            return Promise::AsBefore(WriteRegisterReply {
                accepted: false,
                highest,
            });
        }
        register.write(request)
    }

    /// The database whose state is here and must stay, if the request would put that of another one in its place.
    pub fn keeps(&self, request: &WriteRegister) -> Option<Uid> {
        let held = self.served(&request.register)?;
        let other = owner(&request.value).filter(|wanted| held.keeps_out(wanted));
        other.map(|_| held.database.id)
    }

    /// The database that was perhaps served from the state in the register.
    pub fn database(&self, name: &str) -> Option<Uid> {
        self.served(name).map(|held| held.database.id)
    }

    fn served(&self, name: &str) -> Option<Owner> {
        let held = owner(self.find(name)?.value.as_ref()?)?;
        held.was_served().then_some(held)
    }

    /// The cluster file of the coordinators to which the register has moved; empty if it has not.
    pub fn successor(&self, name: &str) -> &str {
        let value = self.find(name).and_then(|register| register.value.as_ref());
        value
            .filter(|value| value.moved)
            .map_or("", |value| &value.successor)
    }

    /// `format: u32 | crc32c: u32 | cluster | registers`, in format 3 also `since`
    pub fn encode(&self) -> Bytes {
        let mut body = Output::copying();
        self.cluster.put(&mut body);
        self.registers.put(&mut body);
        let format = match self.since {
            0 => FORMAT,
            _ => FORMAT_WITH_SINCE,
        };
        if format == FORMAT_WITH_SINCE {
            self.since.put(&mut body);
        }
        let body = body.into_bytes();
        let mut out = BytesMut::with_capacity(body.len() + 8);
        out.put_u32_le(format);
        out.put_u32_le(crc32c::crc32c(&body));
        out.put_slice(&body);
        out.freeze()
    }

    /// `None` if the bytes are not what [`Registers::encode`] wrote.
    pub fn decode(bytes: &Bytes) -> Option<Self> {
        let format = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
        let crc = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
        let mut body = bytes.slice(8..);
        if crc32c::crc32c(&body) != crc || ![FORMAT, FORMAT_WITH_SINCE].contains(&format) {
            return None;
        }
        let mut registers = Registers::new(String::take(&mut body)?);
        registers.registers = Vec::take(&mut body)?;
        if format == FORMAT_WITH_SINCE {
            registers.since = u64::take(&mut body)?;
        }
        body.is_empty().then_some(registers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plinth_core::DatabaseConfig;
    use plinth_protocol::control::DatabaseState;
    use plinth_protocol::database::{DatabaseId, STATE_FORMAT};
    use plinth_protocol::log::LogSystem;

    fn generation(number: u64) -> Generation {
        Generation {
            number,
            writer: Uid(1),
        }
    }

    fn read(registers: &mut Registers, name: &str, number: u64) -> ReadRegisterReply {
        let request = ReadRegister {
            register: name.into(),
            generation: generation(number),
        };
        registers.read(&request).into_inner()
    }

    fn value(text: &str) -> CoordinatedValue {
        CoordinatedValue {
            successor: String::new(),
            moved: false,
            state: Bytes::copy_from_slice(text.as_bytes()),
        }
    }

    fn write(registers: &mut Registers, name: &str, number: u64, value: CoordinatedValue) -> bool {
        let request = WriteRegister {
            register: name.into(),
            generation: generation(number),
            value,
        };
        registers.write(&request).into_inner().accepted
    }

    #[test]
    fn a_read_fences_every_write_below_it() {
        let mut registers = Registers::new("a:b".into());
        let of = &mut registers;
        assert!(write(of, "a:b", 1, value("one")));
        assert_eq!(read(of, "a:b", 5).value, Some(value("one")));
        assert!(!write(of, "a:b", 4, value("four")));
        assert!(write(of, "a:b", 5, value("five")));
        assert!(!write(of, "a:b", 5, value("again")));
        assert_eq!(read(of, "a:b", 2).value, Some(value("five")));
        assert_eq!(of.at("a:b").read_generation, generation(5));
        // The next set of coordinators has a register of its own.
        assert_eq!(read(of, "a:b_2", 1).value, None);
        assert!(write(of, "a:b_2", 1, value("other")));
        assert_eq!(read(of, "a:b", 6).value, Some(value("five")));
    }

    #[test]
    fn nobody_takes_the_last_generations_of_a_register() {
        let mut registers = Registers::new("a:b".into());
        let refused = Err(Error::client_invalid_operation);
        for number in [u64::MAX, GENERATION_STEP_MAX + 1] {
            assert_eq!(registers.admit("a:b", generation(number)), refused);
        }
        let step = GENERATION_STEP_MAX;
        assert_eq!(registers.admit("a:b", generation(step)), Ok(()));
        read(&mut registers, "a:b", step);
        assert_eq!(registers.admit("a:b", generation(2 * step)), Ok(()));
        assert_eq!(registers.admit("a:b", generation(2 * step + 1)), refused);
    }

    #[test]
    fn who_asks_a_former_coordinator_is_sent_on_once_the_state_is_elsewhere() {
        let mut registers = Registers::new("a:b".into());
        let mut next = value("state");
        next.successor = "a:b_2@1.2.3.4:5".into();
        assert!(write(&mut registers, "a:b", 1, next.clone()));
        assert_eq!(registers.successor("a:b"), "");
        next.moved = true;
        assert!(write(&mut registers, "a:b", 2, next.clone()));
        assert_eq!(registers.successor("a:b"), next.successor);
        assert_eq!(registers.successor("a:b_2"), "");
    }

    #[test]
    fn the_state_of_a_database_that_was_served_is_not_overwritten_by_that_of_another() {
        let state = |id, is_confirmed| DatabaseState {
            format: STATE_FORMAT,
            epoch: 1,
            database: DatabaseId {
                id: Uid(id),
                is_former: false,
            },
            is_confirmed,
            config: DatabaseConfig::default(),
            log_system: LogSystem {
                generations: vec![],
            },
        };
        let request = |state: DatabaseState| WriteRegister {
            register: "a:b".into(),
            generation: generation(1),
            value: CoordinatedValue {
                state: state.to_bytes(),
                ..value("")
            },
        };
        let mut registers = Registers::new("a:b".into());
        assert_eq!(
            registers.keeps(&request(state(1, true))),
            None,
            "it is empty"
        );
        let attempt = request(state(1, false)).value;
        assert!(write(&mut registers, "a:b", 1, attempt));
        assert_eq!(
            registers.keeps(&request(state(2, false))),
            None,
            "an attempt"
        );
        assert_eq!(registers.database("a:b"), None);
        let served = request(state(1, true)).value;
        assert!(write(&mut registers, "a:b", 2, served));
        assert_eq!(registers.keeps(&request(state(1, true))), None);
        assert_eq!(registers.database("a:b"), Some(Uid(1)));
        for other in [state(2, true), state(2, false)] {
            assert_eq!(registers.keeps(&request(other)), Some(Uid(1)));
        }
        // The next set of coordinators has a register of its own.
        let next = WriteRegister {
            register: "a:b_2".into(),
            ..request(state(2, true))
        };
        assert_eq!(registers.keeps(&next), None);
    }

    #[test]
    fn registers_of_other_clusters_and_too_many_or_too_large_ones_are_refused() {
        let mut registers = Registers::new("a:b".into());
        for stranger in ["", "a", "a:c", "x:b", "a:b_c", &"a".repeat(5000)] {
            assert!(
                registers.admit(stranger, generation(1)).is_err(),
                "{stranger}"
            );
        }
        for number in 2..REGISTERS_MAX + 2 {
            let name = format!("a:b_{number}");
            assert_eq!(registers.admit(&name, generation(1)), Ok(()));
            read(&mut registers, &name, 1);
        }
        assert!(registers.admit("a:b", generation(1)).is_err());
        assert_eq!(registers.admit("a:b_2", generation(1)), Ok(()));
        let large = CoordinatedValue {
            state: vec![0; VALUE_BYTES_MAX + 1].into(),
            ..value("")
        };
        assert!(!write(&mut registers, "a:b_2", 9, large));
    }

    #[test]
    fn what_is_on_disk_is_refused_with_any_bit_flipped() {
        for since in [0, 7] {
            let mut registers = Registers::new("a:b".into());
            registers.since = since;
            write(&mut registers, "a:b_7", 3, value("value"));
            let bytes = registers.encode();
            assert_eq!(Registers::decode(&bytes), Some(registers));
            for bit in 0..bytes.len() * 8 {
                let mut broken = bytes.to_vec();
                broken[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Registers::decode(&Bytes::from(broken)), None, "bit {bit}");
            }
        }
    }

    #[test]
    fn who_has_lost_its_registers_promises_nothing_but_for_sets_that_begin_later() {
        let start = Uid(5);
        let mut registers = Registers::lost("a:b".into(), start);
        for name in ["a:b", "a:b_2", "a:b_3"] {
            assert_eq!(
                registers.admit(name, generation(1)),
                Err(Error::file_not_found),
                "{name}"
            );
        }
        let late = registers.begin("a:b_3", Uid(4)).into_inner();
        assert_eq!(late, Err(Error::operation_obsolete), "of another start");
        assert!(registers.begin("a:c_3", start).into_inner().is_err());
        assert_eq!(registers.begin("a:b_3", start).into_inner(), Ok(()));
        assert_eq!(registers.admit("a:b_3", generation(1)), Ok(()));
        assert_eq!(registers.admit("a:b_4", generation(1)), Ok(()));
        assert_eq!(
            registers.admit("a:b_2", generation(1)),
            Err(Error::file_not_found)
        );
        // A late message must not make it forget again.
        assert!(registers.begin("a:b_4", start).into_inner().is_err());
        let reopened = Registers::decode(&registers.encode()).expect("whole");
        assert_eq!(
            reopened.admit("a:b", generation(1)),
            Err(Error::file_not_found)
        );
        assert_eq!(reopened.admit("a:b_3", generation(1)), Ok(()));
    }
}
