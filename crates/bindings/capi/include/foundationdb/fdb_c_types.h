/* Types of FoundationDB's C API, as Plinth's libfdb_c.so offers it. */
#ifndef FDB_C_TYPES_H
#define FDB_C_TYPES_H

#include <stdint.h>

#ifndef DLLEXPORT
#define DLLEXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Handles: what they point to is the library's own. */
typedef struct FDB_future FDBFuture;
typedef struct FDB_result FDBResult;
typedef struct FDB_cluster FDBCluster;
typedef struct FDB_database FDBDatabase;
typedef struct FDB_tenant FDBTenant;
typedef struct FDB_transaction FDBTransaction;
typedef struct FDB_cdc_consumer FDBCdcConsumer;

typedef int fdb_error_t;
typedef int fdb_bool_t;

#ifdef __cplusplus
}
#endif
#endif
