/*
 * FoundationDB's C API, as Plinth's libfdb_c.so offers it. Define FDB_API_VERSION before including it.
 *
 * A future is made by every call that returns FDBFuture*, and destroyed by the caller, once. What its getters point to lives as long
 * as it does, or until its memory is released. Every function that returns fdb_error_t returns 0 for success.
 */
#ifndef FDB_C_H
#define FDB_C_H

#if !defined(FDB_API_VERSION)
#error FDB_API_VERSION must be defined, as 510 to 800, before fdb_c.h is included
#elif FDB_API_VERSION < 510 || FDB_API_VERSION > 800
#error This library offers the API versions 510 to 800
#endif

#include <stdint.h>

#include "fdb_c_apiversion.g.h"
#include "fdb_c_options.g.h"
#include "fdb_c_types.h"

#ifndef WARN_UNUSED_RESULT
#define WARN_UNUSED_RESULT __attribute__((warn_unused_result))
#endif

#ifdef __cplusplus
extern "C" {
#endif

#pragma pack(push, 4)
typedef struct key {
	const uint8_t* key;
	int key_length;
} FDBKey;

typedef struct keyvalue {
	const uint8_t* key;
	int key_length;
	const uint8_t* value;
	int value_length;
} FDBKeyValue;

typedef struct keyrange {
	const uint8_t* begin_key;
	int begin_key_length;
	const uint8_t* end_key;
	int end_key_length;
} FDBKeyRange;

typedef struct keyselector {
	FDBKey key;
	fdb_bool_t orEqual;
	int offset;
} FDBKeySelector;

typedef struct getrangereqandresult {
	FDBKeySelector begin;
	FDBKeySelector end;
	struct {
		FDBKeyValue* data;
		int m_size;
		int m_capacity;
	} data;
} FDBGetRangeReqAndResult;

/* A row of an index, and the rows that it leads to. */
typedef struct mappedkeyvalue {
	FDBKey key;
	FDBKey value;
	FDBGetRangeReqAndResult getRange;
	unsigned char buffer[32];
} FDBMappedKeyValue;

/* ---- change data capture: streams of changes ---- */

typedef enum {
	FDB_CDC_MUTATION_TYPE_SET_VALUE = 0,
	FDB_CDC_MUTATION_TYPE_CLEAR_RANGE = 1,
	FDB_CDC_MUTATION_TYPE_ADD = 2,
	FDB_CDC_MUTATION_TYPE_AND = 6,
	FDB_CDC_MUTATION_TYPE_OR = 7,
	FDB_CDC_MUTATION_TYPE_XOR = 8,
	FDB_CDC_MUTATION_TYPE_APPEND_IF_FITS = 9,
	FDB_CDC_MUTATION_TYPE_MAX = 12,
	FDB_CDC_MUTATION_TYPE_MIN = 13,
	FDB_CDC_MUTATION_TYPE_BYTE_MIN = 16,
	FDB_CDC_MUTATION_TYPE_BYTE_MAX = 17,
	FDB_CDC_MUTATION_TYPE_COMPARE_AND_CLEAR = 20
} FDBCdcMutationType;

typedef struct cdc_stream_info {
	FDBKey name;
	uint64_t stream_id;
	const FDBKeyRange* ranges;
	int range_count;
	int64_t min_version;
} FDBCdcStreamInfo;

typedef struct cdc_mutation {
	uint8_t type;
	const uint8_t* param1;
	int param1_length;
	const uint8_t* param2;
	int param2_length;
} FDBCdcMutation;

/* All changes of a version. */
typedef struct cdc_versioned_mutations {
	int64_t version;
	const FDBCdcMutation* mutations;
	int mutation_count;
} FDBCdcVersionedMutations;
#pragma pack(pop)

/* ---- the library ---- */

#define fdb_select_api_version(v) fdb_select_api_version_impl(v, FDB_API_VERSION)
fdb_error_t fdb_select_api_version_impl(int runtime_version, int header_version);
int fdb_get_max_api_version(void);
const char* fdb_get_client_version(void);
const char* fdb_get_error(fdb_error_t code);
fdb_bool_t fdb_error_predicate(int predicate_test, fdb_error_t code);

fdb_error_t fdb_network_set_option(FDBNetworkOption option, uint8_t const* value, int value_length);
fdb_error_t fdb_setup_network(void);
fdb_error_t fdb_run_network(void);
fdb_error_t fdb_stop_network(void);
fdb_error_t fdb_add_network_thread_completion_hook(void (*hook)(void*), void* hook_parameter);

/* ---- futures ---- */

typedef void (*FDBCallback)(FDBFuture* future, void* callback_parameter);

void fdb_future_cancel(FDBFuture* f);
void fdb_future_release_memory(FDBFuture* f);
void fdb_future_destroy(FDBFuture* f);
fdb_error_t fdb_future_block_until_ready(FDBFuture* f);
fdb_bool_t fdb_future_is_ready(FDBFuture* f);
fdb_error_t fdb_future_set_callback(FDBFuture* f, FDBCallback callback, void* callback_parameter);
fdb_error_t fdb_future_get_error(FDBFuture* f);
fdb_error_t fdb_future_get_int64(FDBFuture* f, int64_t* out);
fdb_error_t fdb_future_get_uint64(FDBFuture* f, uint64_t* out);
fdb_error_t fdb_future_get_bool(FDBFuture* f, fdb_bool_t* out);
fdb_error_t fdb_future_get_double(FDBFuture* f, double* out);
fdb_error_t fdb_future_get_key(FDBFuture* f, uint8_t const** out_key, int* out_key_length);
fdb_error_t fdb_future_get_value(FDBFuture* f, fdb_bool_t* out_present, uint8_t const** out_value, int* out_value_length);
fdb_error_t fdb_future_get_keyvalue_array(FDBFuture* f, FDBKeyValue const** out_kv, int* out_count, fdb_bool_t* out_more);
fdb_error_t fdb_future_get_cdc_stream_info_array(FDBFuture* f, FDBCdcStreamInfo const** out_streams, int* out_count);
fdb_error_t fdb_future_get_cdc_consumer(FDBFuture* f, FDBCdcConsumer** out_consumer);
fdb_error_t fdb_future_get_cdc_versioned_mutations(FDBFuture* f, FDBCdcVersionedMutations const** out_mutations, int* out_count,
                                                   int64_t* out_last_consumed_version);
fdb_error_t fdb_future_get_mappedkeyvalue_array(FDBFuture* f, FDBMappedKeyValue const** out_kv, int* out_count, fdb_bool_t* out_more);
fdb_error_t fdb_future_get_key_array(FDBFuture* f, FDBKey const** out_key_array, int* out_count);
fdb_error_t fdb_future_get_string_array(FDBFuture* f, const char*** out_strings, int* out_count);
fdb_error_t fdb_future_get_keyrange_array(FDBFuture* f, FDBKeyRange const** out_ranges, int* out_count);

/* ---- databases ---- */

fdb_error_t fdb_create_database(const char* cluster_file_path, FDBDatabase** out_database);
fdb_error_t fdb_create_database_from_connection_string(const char* connection_string, FDBDatabase** out_database);
void fdb_database_destroy(FDBDatabase* d);
fdb_error_t fdb_database_set_option(FDBDatabase* d, FDBDatabaseOption option, uint8_t const* value, int value_length);
fdb_error_t fdb_database_create_transaction(FDBDatabase* d, FDBTransaction** out_transaction);
fdb_error_t fdb_database_open_tenant(FDBDatabase* d, uint8_t const* tenant_name, int tenant_name_length, FDBTenant** out_tenant);
FDBFuture* fdb_database_register_cdc_stream(FDBDatabase* d, uint8_t const* name, int name_length, FDBKeyRange const* ranges, int range_count);
FDBFuture* fdb_database_register_cdc_ordered_stream(FDBDatabase* d, uint8_t const* name, int name_length, FDBKeyRange const* ranges,
                                                    int range_count, FDBKey const* split_points, int split_point_count);
FDBFuture* fdb_database_remove_cdc_stream(FDBDatabase* d, uint8_t const* name, int name_length);
FDBFuture* fdb_database_list_cdc_streams(FDBDatabase* d);
FDBFuture* fdb_database_create_cdc_consumer(FDBDatabase* d, uint8_t const* name, int name_length);
FDBFuture* fdb_database_resume_cdc_consumer(FDBDatabase* d, uint64_t stream_id, int64_t last_consumed_version);
void fdb_cdc_consumer_destroy(FDBCdcConsumer* consumer);
FDBFuture* fdb_cdc_consumer_consume(FDBCdcConsumer* consumer);
FDBFuture* fdb_cdc_consumer_acknowledge(FDBCdcConsumer* consumer);
fdb_error_t fdb_cdc_consumer_get_position(FDBCdcConsumer* consumer, uint64_t* out_stream_id, int64_t* out_last_consumed_version);
FDBFuture* fdb_database_reboot_worker(FDBDatabase* d, uint8_t const* address, int address_length, fdb_bool_t check, int duration);
FDBFuture* fdb_database_force_recovery_with_data_loss(FDBDatabase* d, uint8_t const* dcid, int dcid_length);
FDBFuture* fdb_database_create_snapshot(FDBDatabase* d, uint8_t const* uid, int uid_length, uint8_t const* command, int command_length);
double fdb_database_get_main_thread_busyness(FDBDatabase* d);
FDBFuture* fdb_database_get_server_protocol(FDBDatabase* d, uint64_t expected_version);
FDBFuture* fdb_database_get_client_status(FDBDatabase* d);

fdb_error_t fdb_tenant_create_transaction(FDBTenant* tenant, FDBTransaction** out_transaction);
FDBFuture* fdb_tenant_get_id(FDBTenant* tenant);
void fdb_tenant_destroy(FDBTenant* tenant);

/* ---- transactions ---- */

#define FDB_KEYSEL_LAST_LESS_THAN(k, l) k, l, 0, 0
#define FDB_KEYSEL_LAST_LESS_OR_EQUAL(k, l) k, l, 1, 0
#define FDB_KEYSEL_FIRST_GREATER_THAN(k, l) k, l, 1, 1
#define FDB_KEYSEL_FIRST_GREATER_OR_EQUAL(k, l) k, l, 0, 1

void fdb_transaction_destroy(FDBTransaction* tr);
void fdb_transaction_cancel(FDBTransaction* tr);
void fdb_transaction_reset(FDBTransaction* tr);
fdb_error_t fdb_transaction_set_option(FDBTransaction* tr, FDBTransactionOption option, uint8_t const* value, int value_length);

void fdb_transaction_set_read_version(FDBTransaction* tr, int64_t version);
FDBFuture* fdb_transaction_get_read_version(FDBTransaction* tr);
FDBFuture* fdb_transaction_get(FDBTransaction* tr, uint8_t const* key, int key_length, fdb_bool_t snapshot);
FDBFuture* fdb_transaction_get_key(FDBTransaction* tr, uint8_t const* key, int key_length, fdb_bool_t or_equal, int offset, fdb_bool_t snapshot);
FDBFuture* fdb_transaction_get_range(FDBTransaction* tr,
                                     uint8_t const* begin_key, int begin_key_length, fdb_bool_t begin_or_equal, int begin_offset,
                                     uint8_t const* end_key, int end_key_length, fdb_bool_t end_or_equal, int end_offset,
                                     int limit, int target_bytes, FDBStreamingMode mode, int iteration,
                                     fdb_bool_t snapshot, fdb_bool_t reverse);
FDBFuture* fdb_transaction_get_mapped_range(FDBTransaction* tr,
                                            uint8_t const* begin_key, int begin_key_length, fdb_bool_t begin_or_equal, int begin_offset,
                                            uint8_t const* end_key, int end_key_length, fdb_bool_t end_or_equal, int end_offset,
                                            uint8_t const* mapper, int mapper_length,
                                            int limit, int target_bytes, FDBStreamingMode mode, int iteration,
                                            fdb_bool_t snapshot, fdb_bool_t reverse);
FDBFuture* fdb_transaction_get_addresses_for_key(FDBTransaction* tr, uint8_t const* key, int key_length);
FDBFuture* fdb_transaction_get_estimated_range_size_bytes(FDBTransaction* tr, uint8_t const* begin_key, int begin_key_length,
                                                          uint8_t const* end_key, int end_key_length);
FDBFuture* fdb_transaction_get_range_split_points(FDBTransaction* tr, uint8_t const* begin_key, int begin_key_length,
                                                  uint8_t const* end_key, int end_key_length, int64_t chunk_size);
FDBFuture* fdb_transaction_watch(FDBTransaction* tr, uint8_t const* key, int key_length);

void fdb_transaction_set(FDBTransaction* tr, uint8_t const* key, int key_length, uint8_t const* value, int value_length);
void fdb_transaction_atomic_op(FDBTransaction* tr, uint8_t const* key, int key_length, uint8_t const* param, int param_length, FDBMutationType type);
void fdb_transaction_clear(FDBTransaction* tr, uint8_t const* key, int key_length);
void fdb_transaction_clear_range(FDBTransaction* tr, uint8_t const* begin_key, int begin_key_length, uint8_t const* end_key, int end_key_length);
fdb_error_t fdb_transaction_add_conflict_range(FDBTransaction* tr, uint8_t const* begin_key, int begin_key_length,
                                               uint8_t const* end_key, int end_key_length, FDBConflictRangeType type);

FDBFuture* fdb_transaction_commit(FDBTransaction* tr);
fdb_error_t fdb_transaction_get_committed_version(FDBTransaction* tr, int64_t* out_version);
FDBFuture* fdb_transaction_get_versionstamp(FDBTransaction* tr);
FDBFuture* fdb_transaction_get_approximate_size(FDBTransaction* tr);
FDBFuture* fdb_transaction_get_tag_throttled_duration(FDBTransaction* tr);
FDBFuture* fdb_transaction_get_total_cost(FDBTransaction* tr);
FDBFuture* fdb_transaction_on_error(FDBTransaction* tr, fdb_error_t error);

#ifdef __cplusplus
}
#endif
#endif
