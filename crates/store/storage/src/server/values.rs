//! Point reads that a client began together: one request, one answer.

use super::Server;
use super::reads::{Reading, Warming};
use super::tallies::Amount;
use crate::knobs::RANGE_BYTES_MAX;
use bytes::Bytes;
use plinth_core::{Result, Version};
use plinth_protocol::storage::{GetValues, GetValuesReply};
use plinth_runtime::{buggify, probe};

impl Reading for GetValues {
    type Request = GetValues;

    fn begin(mut request: GetValues) -> Self {
        request.keys.truncate(GetValues::KEYS_MAX);
        request
    }
    /// At least one, so that no request waits for nothing.
    fn reads(&self) -> u64 {
        self.keys.len().max(1) as u64
    }
    fn version(&self) -> Version {
        self.version
    }
    fn warm(&self, server: &Server) -> Vec<Warming> {
        if !server.is_cold() {
            return Vec::new();
        }
        let keys = self.keys.iter();
        keys.filter_map(|key| server.warm_key(key)).collect()
    }
    fn can_begin_again(&self) -> bool {
        true
    }
    /// Fails if one of the keys is elsewhere: the client then asks for each by itself.
    fn go_on(&mut self, server: &Server) -> Result<Option<GetValuesReply>> {
        let bytes_max = match buggify!() {
            true => 0,
            false => RANGE_BYTES_MAX.get(),
        };
        let (mut values, mut bytes) = (Vec::with_capacity(self.keys.len()), 0);
        for key in &self.keys {
            if bytes > bytes_max {
                probe!("storage_values_do_not_fit");
                break;
            }
            let value = match server.value(key, self.version) {
                // The client asks for the rest: another replica may have it.
                Err(error) if error.is_damage() && !values.is_empty() => {
                    probe!("storage_values_end_before_damage");
                    server.note_failure(error);
                    break;
                }
                value => value?,
            };
            bytes += value.as_ref().map_or(0, Bytes::len);
            values.push(value);
        }
        Ok(Some(GetValuesReply { values }))
    }
    fn amount(reply: &GetValuesReply) -> Amount {
        let found = || reply.values.iter().flatten();
        Amount {
            rows: found().count() as u64,
            bytes: found().map(|value| value.len() as u64).sum(),
        }
    }
}
