/*
 * A tour of the C API: futures that are awaited, called back, cancelled and destroyed early; errors for every wrong
 * argument; a network that is stopped with work in flight. Prints `ready`, waits for a line (a server is killed
 * meanwhile), and prints `done`.
 */
#define FDB_API_VERSION 730
#include <foundationdb/fdb_c.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES(text) (uint8_t const*)(text), (int)(sizeof(text) - 1)

static void expect_at(int line, long long found, long long expected) {
	if (found != expected) {
		fprintf(stderr, "line %d: %lld, not %lld\n", line, found, expected);
		exit(1);
	}
}
#define EXPECT(found, expected) expect_at(__LINE__, (long long)(found), (long long)(expected))

static void* run_network(void* nothing) {
	EXPECT(fdb_run_network(), 0);
	return nothing;
}

static int hooks = 0;
static void count_hook(void* parameter) { ++*(int*)parameter; }

/* Waits for the future, destroys it, and returns its error. */
static fdb_error_t wait_for(FDBFuture* f) {
	EXPECT(fdb_future_block_until_ready(f), 0);
	fdb_error_t error = fdb_future_get_error(f);
	fdb_future_destroy(f);
	return error;
}

static FDBTransaction* begin(FDBDatabase* db) {
	FDBTransaction* tr;
	EXPECT(fdb_database_create_transaction(db, &tr), 0);
	return tr;
}

static void set(FDBDatabase* db, const char* key, const char* value) {
	FDBTransaction* tr = begin(db);
	for (;;) {
		fdb_transaction_set(tr, (uint8_t const*)key, (int)strlen(key), (uint8_t const*)value, (int)strlen(value));
		fdb_error_t error = wait_for(fdb_transaction_commit(tr));
		if (!error)
			break;
		EXPECT(wait_for(fdb_transaction_on_error(tr, error)), 0);
	}
	fdb_transaction_destroy(tr);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int called = 0;

/* Destroys its future inside of the callback, as bindings do. */
static void on_ready(FDBFuture* f, void* parameter) {
	EXPECT(fdb_future_is_ready(f), 1);
	FDBTransaction* tr = parameter;
	FDBFuture* inner = fdb_transaction_get(tr, BYTES("never read"), 0);
	if (!fdb_future_is_ready(inner)) {
		fdb_error_t error = fdb_future_block_until_ready(inner);
		if (error)
			EXPECT(error, 2026);
	}
	fdb_future_destroy(inner);
	fdb_future_destroy(f);
	pthread_mutex_lock(&lock);
	called++;
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
}

static void before_the_network(void) {
	FDBDatabase* db;
	EXPECT(fdb_setup_network(), 2200);
	EXPECT(fdb_select_api_version_impl(9999, 9999), 2203);
	EXPECT(fdb_select_api_version_impl(13, 730), 2203);
	EXPECT(fdb_select_api_version_impl(740, 730), 2202);
	EXPECT(fdb_select_api_version(730), 0);
	EXPECT(fdb_select_api_version(730), 2201);
	EXPECT(fdb_get_max_api_version() >= 730, 1);
	EXPECT(fdb_create_database(NULL, &db) != 0, 1);
	EXPECT(fdb_run_network(), 2008);
	EXPECT(fdb_stop_network(), 2008);
	EXPECT(fdb_network_set_option(12345, NULL, 0), 2007);
	EXPECT(fdb_network_set_option(FDB_NET_OPTION_CLIENT_THREADS_PER_VERSION, BYTES("two")), 2006);
	int64_t threads = 2;
	EXPECT(fdb_network_set_option(FDB_NET_OPTION_CLIENT_THREADS_PER_VERSION, (uint8_t const*)&threads, 8), 0);
	EXPECT(fdb_setup_network(), 0);
	EXPECT(fdb_setup_network(), 2009);
	EXPECT(fdb_add_network_thread_completion_hook(count_hook, &hooks), 0);
	EXPECT(strlen(fdb_get_error(1020)) > 10, 1);
	EXPECT(strlen(fdb_get_error(-5)) > 10, 1);
	EXPECT(fdb_error_predicate(FDB_ERROR_PREDICATE_RETRYABLE, 1020), 1);
	EXPECT(fdb_error_predicate(FDB_ERROR_PREDICATE_MAYBE_COMMITTED, 1020), 0);
	EXPECT(fdb_error_predicate(FDB_ERROR_PREDICATE_MAYBE_COMMITTED, 1021), 1);
}

static void bad_arguments(FDBDatabase* db) {
	FDBDatabase* other;
	EXPECT(fdb_create_database("/no/such/file", &other), 1515);
	EXPECT(fdb_create_database_from_connection_string("nonsense", &other), 2104);
	EXPECT(fdb_database_set_option(db, 12345, NULL, 0), 2007);
	FDBTransaction* tr = begin(db);
	EXPECT(fdb_transaction_set_option(tr, 12345, NULL, 0), 2007);
	EXPECT(fdb_transaction_set_option(tr, FDB_TR_OPTION_TIMEOUT, BYTES("short")), 2006);
	EXPECT(fdb_transaction_add_conflict_range(tr, BYTES("b"), BYTES("a"), FDB_CONFLICT_RANGE_TYPE_READ), 2005);
	EXPECT(fdb_transaction_add_conflict_range(tr, BYTES("a"), BYTES("b"), 7), 2000);
	EXPECT(wait_for(fdb_transaction_get(tr, (uint8_t const*)"a", -1, 0)), 2000);
	EXPECT(wait_for(fdb_transaction_get_range(tr, BYTES("a"), 0, 1, BYTES("b"), 0, 1, 0, 0, 99, 1, 0, 0)), 2000);
	EXPECT(wait_for(fdb_transaction_get_range(tr, BYTES("a"), 0, 1, BYTES("b"), 0, 1, -1, 0, FDB_STREAMING_MODE_WANT_ALL, 1, 0, 0)), 2012);
	fdb_transaction_atomic_op(tr, BYTES("a"), BYTES("b"), 99);
	EXPECT(wait_for(fdb_transaction_commit(tr)), 2018);
	fdb_transaction_reset(tr);
	fdb_transaction_set(tr, (uint8_t const*)"a", -3, BYTES("b"));
	EXPECT(wait_for(fdb_transaction_get_read_version(tr)), 2000);
	EXPECT(wait_for(fdb_transaction_commit(tr)), 2000);
	fdb_transaction_reset(tr);
	fdb_transaction_cancel(tr);
	EXPECT(wait_for(fdb_transaction_get_read_version(tr)), 1025);
	fdb_transaction_destroy(tr);
	FDBTenant* tenant;
	EXPECT(fdb_database_open_tenant(db, BYTES("t"), &tenant), 0);
	EXPECT(fdb_tenant_create_transaction(tenant, &tr), 0);
	EXPECT(wait_for(fdb_transaction_get(tr, BYTES("a"), 0)), 2131);
	fdb_transaction_destroy(tr);
	fdb_tenant_destroy(tenant);
	EXPECT(wait_for(fdb_database_reboot_worker(db, BYTES("x"), 0, 0)), 2108);
}

static void futures(FDBDatabase* db) {
	FDBTransaction* tr = begin(db);
	FDBFuture* f = fdb_transaction_get(tr, BYTES("key"), 0);
	EXPECT(fdb_future_block_until_ready(f), 0);
	fdb_bool_t present;
	uint8_t const* value;
	int length;
	int64_t number;
	EXPECT(fdb_future_get_value(f, &present, &value, &length), 0);
	EXPECT(present, 1);
	EXPECT(length, 5);
	EXPECT(memcmp(value, "value", 5), 0);
	EXPECT(fdb_future_get_int64(f, &number), 2000);
	EXPECT(fdb_future_set_callback(f, NULL, NULL), 2000);
	fdb_future_release_memory(f);
	EXPECT(fdb_future_get_value(f, &present, &value, &length), 1102);
	fdb_future_destroy(f);

	/* A hundred futures with callbacks at once, and a hundred that are destroyed before they are ready. */
	for (int i = 0; i < 100; i++) {
		EXPECT(fdb_future_set_callback(fdb_transaction_get(tr, BYTES("key"), 1), on_ready, tr), 0);
		fdb_future_destroy(fdb_transaction_get(tr, BYTES("key"), 1));
	}
	pthread_mutex_lock(&lock);
	while (called < 100)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);

	FDBFuture* watch = fdb_transaction_watch(tr, BYTES("key"));
	EXPECT(wait_for(fdb_transaction_commit(tr)), 0);
	EXPECT(fdb_future_is_ready(watch), 0);
	EXPECT(fdb_future_get_error(watch), 2015);
	fdb_future_cancel(watch);
	EXPECT(wait_for(watch), 1101);
	EXPECT(fdb_transaction_get_committed_version(tr, &number), 0);
	EXPECT(number, -1);
	fdb_transaction_destroy(tr);

	/* A transaction that is destroyed before its future. */
	tr = begin(db);
	FDBFuture* orphan = fdb_transaction_get_read_version(tr);
	fdb_transaction_destroy(tr);
	fdb_error_t error = wait_for(orphan);
	EXPECT(error == 0 || error == 1025 || error == 1101, 1);
}

/* Streams of changes: what getters point to stays while the future does, and handles outlive their futures. */
static void captures(FDBDatabase* db) {
	FDBKeyRange ranges[] = {{BYTES("c/"), BYTES("c0")}, {BYTES("d/"), BYTES("d0")}};
	FDBFuture* f = fdb_database_register_cdc_stream(db, BYTES("tour of C"), ranges, 2);
	uint64_t id, position_id;
	EXPECT(fdb_future_block_until_ready(f), 0);
	EXPECT(fdb_future_get_uint64(f, &id), 0);
	fdb_future_destroy(f);
	EXPECT(wait_for(fdb_database_register_cdc_stream(db, BYTES("x"), NULL, 0)), 2000);
	EXPECT(wait_for(fdb_database_register_cdc_stream(db, BYTES("x"), ranges, -1)), 2000);
	EXPECT(wait_for(fdb_database_create_cdc_consumer(db, BYTES("no such stream"))), 2000);
	set(db, "c/1", "one");

	f = fdb_database_list_cdc_streams(db);
	FDBCdcStreamInfo const* streams;
	int count;
	EXPECT(fdb_future_block_until_ready(f), 0);
	EXPECT(fdb_future_get_cdc_stream_info_array(f, &streams, &count), 0);
	FDBCdcStreamInfo const* own = &streams[count - 1];
	EXPECT(own->stream_id, id);
	EXPECT(own->range_count, 2);
	EXPECT(memcmp(own->ranges[1].end_key, "d0", 2), 0);
	fdb_future_destroy(f);

	FDBCdcConsumer* consumer;
	f = fdb_database_create_cdc_consumer(db, BYTES("tour of C"));
	EXPECT(fdb_future_block_until_ready(f), 0);
	EXPECT(fdb_future_get_cdc_consumer(f, &consumer), 0);
	fdb_future_destroy(f);
	f = fdb_cdc_consumer_consume(consumer);
	EXPECT(wait_for(fdb_cdc_consumer_acknowledge(consumer)), 2000); /* one call at a time */
	FDBCdcVersionedMutations const* groups;
	int64_t consumed, position;
	EXPECT(fdb_future_block_until_ready(f), 0);
	EXPECT(fdb_future_get_cdc_versioned_mutations(f, &groups, &count, &consumed), 0);
	EXPECT(count, 1);
	EXPECT(groups[0].mutation_count, 1);
	EXPECT(groups[0].mutations[0].type, FDB_CDC_MUTATION_TYPE_SET_VALUE);
	EXPECT(memcmp(groups[0].mutations[0].param2, "one", 3), 0);
	fdb_future_release_memory(f);
	EXPECT(fdb_future_get_cdc_versioned_mutations(f, &groups, &count, &consumed), 1102);
	fdb_future_destroy(f);
	EXPECT(wait_for(fdb_cdc_consumer_acknowledge(consumer)), 0);
	EXPECT(fdb_cdc_consumer_get_position(consumer, &position_id, &position), 0);
	EXPECT(position_id, id);
	EXPECT(position, consumed);

	/* A consumer that is destroyed while its call waits, and one that is given up. */
	f = fdb_cdc_consumer_consume(consumer);
	fdb_cdc_consumer_destroy(consumer);
	fdb_future_destroy(f);
	EXPECT(wait_for(fdb_database_resume_cdc_consumer(db, id, position)), 0);
	EXPECT(wait_for(fdb_database_remove_cdc_stream(db, BYTES("tour of C"))), 0);
	EXPECT(wait_for(fdb_database_remove_cdc_stream(db, BYTES("tour of C"))), 0);
}

/* A forked child gets the error that it has no network; the parent continues to work. */
static void forks(FDBDatabase* db) {
	FDBTransaction* tr = begin(db);
	FDBTransaction* watching = begin(db);
	FDBFuture* pending = fdb_transaction_watch(watching, BYTES("key"));
	pid_t child = fork();
	if (child == 0) {
		alarm(20);
		EXPECT(wait_for(fdb_transaction_get(tr, BYTES("key"), 0)), 2008);
		EXPECT(fdb_future_block_until_ready(pending), 2008);
		EXPECT(fdb_create_database(NULL, &db) != 0, 1);
		EXPECT(fdb_stop_network(), 0);
		fdb_transaction_destroy(tr);
		/* Not _exit: valgrind would check for leaks, and report the memory of the parent's threads as lost. */
		execl("/bin/true", "true", NULL);
		_exit(1);
	}
	int status;
	EXPECT(waitpid(child, &status, 0), child);
	EXPECT(status, 0);
	EXPECT(wait_for(fdb_transaction_get(tr, BYTES("key"), 0)), 0);
	fdb_future_destroy(pending);
	fdb_transaction_destroy(watching);
	fdb_transaction_destroy(tr);
}

int main(int count, char** arguments) {
	EXPECT(count >= 2, 1);
	before_the_network();
	pthread_t network;
	EXPECT(pthread_create(&network, NULL, run_network, NULL), 0);
	FDBDatabase* db;
	EXPECT(fdb_create_database(arguments[1], &db), 0);
	set(db, "key", "value");
	bad_arguments(db);
	futures(db);
	captures(db);
	forks(db);
	printf("ready\n");
	fflush(stdout);
	char line[100];
	if (!fgets(line, sizeof line, stdin))
		return 1;
	set(db, "after", "the kill");

	/* The network is stopped with work in flight: every future gets an error, and no wait hangs. */
	FDBTransaction* tr = begin(db);
	FDBFuture* watch = fdb_transaction_watch(tr, BYTES("key"));
	EXPECT(fdb_stop_network(), 0);
	EXPECT(pthread_join(network, NULL), 0);
	EXPECT(hooks, 1);
	EXPECT(wait_for(watch) != 0, 1);
	EXPECT(wait_for(fdb_transaction_get(tr, BYTES("key"), 0)), 1101);
	EXPECT(fdb_run_network(), 2025);
	EXPECT(fdb_setup_network(), 2025);
	fdb_transaction_destroy(tr);
	fdb_database_destroy(db);
	printf("done\n");
	return 0;
}
