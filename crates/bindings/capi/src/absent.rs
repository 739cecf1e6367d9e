//! Functions that FoundationDB has and Plinth does not: blob granules, snapshots of the disks, forced failover. Each
//! function exists, so that everything links, and returns `unsupported_operation` (2108).
//!
//! They read none of their arguments, so their parameters are left out: in the C calling convention the caller passes
//! and removes arguments, whether they are read or not.

use crate::arguments::Code;
use crate::future::Future;
use plinth_core::Error;
use std::ffi::c_void;

macro_rules! absent_futures {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> *mut Future {
            Future::early(Err(Error::unsupported_operation))
        }
    )*};
}

absent_futures! {
    fdb_database_reboot_worker
    fdb_database_force_recovery_with_data_loss
    fdb_database_create_snapshot
    fdb_database_purge_blob_granules
    fdb_database_wait_purge_granules_complete
    fdb_database_blobbify_range
    fdb_database_blobbify_range_blocking
    fdb_database_unblobbify_range
    fdb_database_list_blobbified_ranges
    fdb_database_verify_blob_range
    fdb_database_flush_blob_range
    fdb_tenant_purge_blob_granules
    fdb_tenant_wait_purge_granules_complete
    fdb_tenant_blobbify_range
    fdb_tenant_blobbify_range_blocking
    fdb_tenant_unblobbify_range
    fdb_tenant_list_blobbified_ranges
    fdb_tenant_verify_blob_range
    fdb_tenant_flush_blob_range
    fdb_transaction_get_tag_throttled_duration
    fdb_transaction_get_total_cost
    fdb_transaction_get_blob_granule_ranges
    fdb_transaction_summarize_blob_granules
    fdb_transaction_read_blob_granules_description
}

macro_rules! absent_getters {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> Code {
            Code::from(Error::unsupported_operation.code())
        }
    )*};
}

absent_getters! {
    fdb_future_get_bool
    fdb_future_get_double
    fdb_future_get_keyrange_array
    fdb_future_get_granule_summary_array
    fdb_future_readbg_get_descriptions
    fdb_result_get_keyvalue_array
    fdb_result_get_bg_mutations_array
}

/// `FDBResult`. Every one of these is an error.
pub struct NoResult;

macro_rules! absent_results {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() -> *mut NoResult {
            static NONE: NoResult = NoResult;
            (&raw const NONE).cast_mut()
        }
    )*};
}

absent_results! {
    fdb_transaction_read_blob_granules
    fdb_readbg_parse_snapshot_file
    fdb_readbg_parse_delta_file
}

#[unsafe(no_mangle)]
pub extern "C" fn fdb_result_destroy(_result: *mut c_void) {}
