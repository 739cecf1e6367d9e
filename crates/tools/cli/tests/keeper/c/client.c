/* client HOST:PORT - the multi-threaded C library of ZooKeeper, with every answer checked.
 *
 * Its requests are sent without waiting, thousands at a time, and their answers have to come in the same order. Then
 * watches, multiple requests, permissions, and sessions that end or move to another connection. */

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

#define PIPELINED 5000

static const char *server;
static char base[64];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t stirred = PTHREAD_COND_INITIALIZER;

static void check(int holds, const char *format, ...) {
    va_list arguments;
    if (holds)
        return;
    va_start(arguments, format);
    fputs("client: ", stderr);
    vfprintf(stderr, format, arguments);
    fputs("\n", stderr);
    va_end(arguments);
    exit(1);
}

static void answers(int code, int expected, const char *what) {
    check(code == expected, "%s: %s instead of %s", what, zerror(code), zerror(expected));
}

/* Waits until `*counter` is at least `least`. */
static void wait_for(const int *counter, int least, const char *what) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    pthread_mutex_lock(&lock);
    while (*counter < least)
        check(pthread_cond_timedwait(&stirred, &lock, &until) == 0, "%s did not come: %d of %d", what, *counter, least);
    pthread_mutex_unlock(&lock);
}

static void add(int *counter) {
    pthread_mutex_lock(&lock);
    ++*counter;
    pthread_cond_broadcast(&stirred);
    pthread_mutex_unlock(&lock);
}

/* What a watcher has seen; each watcher has one of its own. */
struct seen {
    int count;
    int type;
    char path[128];
};

static void notice(zhandle_t *handle, int type, int state, const char *path, void *context) {
    struct seen *seen = context;
    (void)handle;
    (void)state;
    if (type == ZOO_SESSION_EVENT)
        return;
    seen->type = type;
    snprintf(seen->path, sizeof seen->path, "%s", path);
    add(&seen->count);
}

static void event(struct seen *seen, int count, int type, const char *path) {
    wait_for(&seen->count, count, path);
    check(seen->type == type && strcmp(seen->path, path) == 0, "event %d of %s instead of %d of %s", seen->type, seen->path,
          type, path);
}

static void connected(zhandle_t *handle, int type, int state, const char *path, void *context) {
    (void)handle;
    (void)path;
    if (type == ZOO_SESSION_EVENT && state == ZOO_CONNECTED_STATE)
        add(context);
}

static zhandle_t *connect_as(const clientid_t *id) {
    /* Kept: the handle goes on telling it. */
    int *up = calloc(1, sizeof *up);
    zhandle_t *handle = zookeeper_init(server, connected, 10000, id, up, 0);
    check(handle != NULL, "no handle");
    wait_for(up, 1, "the connection");
    return handle;
}

static const char *path_of(const char *name) {
    static char paths[8][128];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s%s", base, name);
    return path;
}

/* ---- pipelined requests */

static int order, done;

static void created(int code, const char *value, const void *context) {
    char expected[128];
    int number = (int)(long)context;
    snprintf(expected, sizeof expected, "%s/n-%010d", base, number);
    answers(code, ZOK, "a pipelined create");
    check(strcmp(value, expected) == 0, "created %s instead of %s", value, expected);
    check(number == order, "answer %d came as number %d", number, order);
    order++;
    add(&done);
}

static void got(int code, const char *value, int length, const struct Stat *stat, const void *context) {
    int number = (int)(long)context;
    char expected[16];
    snprintf(expected, sizeof expected, "%d", number);
    answers(code, ZOK, "a pipelined get");
    check(length == (int)strlen(expected) && memcmp(value, expected, length) == 0 && stat->version == 0, "data of %d", number);
    check(number == order, "answer %d came as number %d", number, order);
    order++;
    add(&done);
}

static void deleted(int code, const void *context) {
    int number = (int)(long)context;
    answers(code, ZOK, "a pipelined delete");
    check(number == order, "answer %d came as number %d", number, order);
    order++;
    add(&done);
}

static void pipelined(zhandle_t *z) {
    char path[128], data[16];
    struct String_vector names;
    order = done = 0;
    for (long number = 0; number < PIPELINED; number++) {
        int length = snprintf(data, sizeof data, "%ld", number);
        int code = zoo_acreate(z, path_of("/n-"), data, length, &ZOO_OPEN_ACL_UNSAFE, ZOO_SEQUENCE, created, (void *)number);
        answers(code, ZOK, "to send a create");
    }
    wait_for(&done, PIPELINED, "the creates");
    answers(zoo_get_children(z, base, 0, &names), ZOK, "the children");
    check(names.count == PIPELINED, "%d children", names.count);
    deallocate_String_vector(&names);
    order = done = 0;
    for (long number = 0; number < PIPELINED; number++) {
        snprintf(path, sizeof path, "%s/n-%010ld", base, number);
        answers(zoo_aget(z, path, 0, got, (void *)number), ZOK, "to send a get");
    }
    wait_for(&done, PIPELINED, "the gets");
    order = done = 0;
    for (long number = 0; number < PIPELINED; number++) {
        snprintf(path, sizeof path, "%s/n-%010ld", base, number);
        answers(zoo_adelete(z, path, 0, deleted, (void *)number), ZOK, "to send a delete");
    }
    wait_for(&done, PIPELINED, "the deletes");
}

/* ---- one request after the other */

static void nodes(zhandle_t *z) {
    char made[128], data[64];
    int length = sizeof data;
    struct Stat stat, after;
    const char *path = path_of("/node");
    answers(zoo_create2(z, path, "one", 3, &ZOO_OPEN_ACL_UNSAFE, 0, made, sizeof made, &stat), ZOK, "create2");
    check(strcmp(made, path) == 0 && stat.version == 0 && stat.dataLength == 3 && stat.czxid == stat.mzxid, "the new node");
    answers(zoo_create(z, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0), ZNODEEXISTS, "create again");
    answers(zoo_create(z, path_of("/no/parent"), "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0), ZNONODE, "create below nothing");
    answers(zoo_set2(z, path, "second", 6, 7, NULL), ZBADVERSION, "set of a wrong version");
    answers(zoo_set2(z, path, "second", 6, 0, &after), ZOK, "set");
    check(after.version == 1 && after.mzxid > stat.mzxid && after.czxid == stat.czxid, "the changed node");
    answers(zoo_get(z, path, 0, data, &length, &stat), ZOK, "get");
    check(length == 6 && memcmp(data, "second", 6) == 0 && memcmp(&stat, &after, sizeof stat) == 0, "what get gave");
    answers(zoo_set(z, path, NULL, -1, -1), ZOK, "set to nothing");
    length = sizeof data;
    answers(zoo_get(z, path, 0, data, &length, &stat), ZOK, "get of nothing");
    check(length == -1 && stat.dataLength == 0, "nothing has length %d", length);
    answers(zoo_create(z, path_of("/node/child"), "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0), ZOK, "a child");
    answers(zoo_delete(z, path, -1), ZNOTEMPTY, "delete of a parent");
    answers(zoo_delete(z, path_of("/node/child"), 1), ZBADVERSION, "delete of a wrong version");
    answers(zoo_delete(z, path_of("/node/child"), 0), ZOK, "delete");
    answers(zoo_exists(z, path_of("/node/child"), 0, NULL), ZNONODE, "exists");
    answers(zoo_create(z, path_of("/container"), "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_CONTAINER, NULL, 0), ZOK, "container");
    answers(zoo_create_ttl(z, path_of("/ttl"), "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT_WITH_TTL, 3600000, NULL, 0), ZOK,
            "a node with a time to live");
}

static void watches(zhandle_t *z) {
    struct seen made = {0}, changed = {0}, below = {0}, removed = {0};
    struct String_vector names;
    zhandle_t *other = connect_as(NULL);
    const char *path = path_of("/watched");
    char data[16];
    int length = sizeof data;
    answers(zoo_wexists(z, path, notice, &made, NULL), ZNONODE, "wexists");
    answers(zoo_create(other, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0), ZOK, "create");
    event(&made, 1, ZOO_CREATED_EVENT, path);
    answers(zoo_wget(z, path, notice, &changed, data, &length, NULL), ZOK, "wget");
    answers(zoo_wget_children(z, path, notice, &below, &names), ZOK, "wget_children");
    deallocate_String_vector(&names);
    answers(zoo_set(other, path, "x", 1, -1), ZOK, "set");
    event(&changed, 1, ZOO_CHANGED_EVENT, path);
    answers(zoo_create(other, path_of("/watched/child"), "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0), ZOK, "create");
    event(&below, 1, ZOO_CHILD_EVENT, path);
    /* Each was told once. */
    answers(zoo_set(other, path, "y", 1, -1), ZOK, "set");
    answers(zoo_delete(other, path_of("/watched/child"), -1), ZOK, "delete");
    answers(zoo_exists(z, path, 0, NULL), ZOK, "exists");
    check(made.count == 1 && changed.count == 1 && below.count == 1, "a watch told twice");
    answers(zoo_wexists(z, path, notice, &removed, NULL), ZOK, "wexists");
    answers(zoo_remove_watches(z, path, ZWATCHTYPE_DATA, notice, &removed, 0), ZOK, "remove_watches");
    answers(zoo_remove_watches(z, path, ZWATCHTYPE_DATA, notice, &removed, 0), ZNOWATCHER, "remove_watches again");
    answers(zookeeper_close(other), ZOK, "close");
}

static void many(zhandle_t *z) {
    zoo_op_t operations[4];
    zoo_op_result_t results[4];
    char first[128], second[128];
    struct Stat stat;
    const char *path = path_of("/many"), *numbered = path_of("/many/n-");
    zoo_create_op_init(&operations[0], path, "m", 1, &ZOO_OPEN_ACL_UNSAFE, 0, first, sizeof first);
    zoo_create_op_init(&operations[1], numbered, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_SEQUENCE, second, sizeof second);
    zoo_set_op_init(&operations[2], path, "new", 3, 0, &stat);
    zoo_check_op_init(&operations[3], path, 1);
    answers(zoo_multi(z, 4, operations, results), ZOK, "multi");
    check(strcmp(first, path) == 0 && strcmp(second, path_of("/many/n-0000000000")) == 0 && stat.version == 1, "multi");
    zoo_delete_op_init(&operations[0], path_of("/many/n-0000000000"), -1);
    zoo_check_op_init(&operations[1], path, 9);
    zoo_delete_op_init(&operations[2], path, -1);
    answers(zoo_multi(z, 3, operations, results), ZBADVERSION, "a multi that fails");
    check(results[0].err == ZOK && results[1].err == ZBADVERSION && results[2].err == ZRUNTIMEINCONSISTENCY, "parts");
    answers(zoo_exists(z, path_of("/many/n-0000000000"), 0, NULL), ZOK, "what a failed multi deleted");
}

static void logged_in(int code, const void *context) {
    int *codes = (int *)context;
    codes[1] = code;
    add(&codes[0]);
}

static void permissions(zhandle_t *z) {
    struct ACL_vector list;
    struct Stat stat;
    int codes[2] = {0, 0};
    const char *path = path_of("/guarded");
    zhandle_t *other = connect_as(NULL);
    answers(zoo_add_auth(other, "digest", "user:password", 13, logged_in, codes), ZOK, "add_auth");
    wait_for(&codes[0], 1, "the login");
    answers(codes[1], ZOK, "the login");
    answers(zoo_create(other, path, "s", 1, &ZOO_CREATOR_ALL_ACL, 0, NULL, 0), ZOK, "create");
    answers(zoo_set(z, path, "t", 1, -1), ZNOAUTH, "a stranger's set");
    answers(zoo_create(z, path_of("/nobody"), "", 0, &ZOO_CREATOR_ALL_ACL, 0, NULL, 0), ZINVALIDACL, "a stranger's own");
    answers(zoo_get_acl(other, path, &list, &stat), ZOK, "get_acl");
    check(list.count == 1 && strcmp(list.data[0].id.scheme, "digest") == 0 && list.data[0].perms == 31, "the list");
    deallocate_ACL_vector(&list);
    answers(zoo_set_acl(other, path, 0, &ZOO_OPEN_ACL_UNSAFE), ZOK, "set_acl");
    answers(zoo_set(z, path, "t", 1, -1), ZOK, "a set that anybody may");
    answers(zookeeper_close(other), ZOK, "close");
}

/* A process that dies without a word leaves its session; another goes on with it. */
static clientid_t orphaned(const char *path) {
    int ends[2];
    clientid_t id;
    check(pipe(ends) == 0, "no pipe");
    if (fork() == 0) {
        zhandle_t *mine = connect_as(NULL);
        answers(zoo_create(mine, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_EPHEMERAL, NULL, 0), ZOK, "create");
        id = *zoo_client_id(mine);
        _exit(write(ends[1], &id, sizeof id) != sizeof id);
    }
    close(ends[1]);
    check(read(ends[0], &id, sizeof id) == sizeof id, "no session of the process that died");
    close(ends[0]);
    return id;
}

static void sessions(zhandle_t *z, clientid_t id) {
    struct seen gone = {0};
    struct Stat stat;
    const char *path = path_of("-fleeting");
    zhandle_t *again = connect_as(&id);
    check(zoo_client_id(again)->client_id == id.client_id, "another session");
    answers(zoo_create(again, path_of("-fleeting/child"), "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0),
            ZNOCHILDRENFOREPHEMERALS, "a child of a node that ends with its session");
    answers(zoo_wexists(z, path, notice, &gone, &stat), ZOK, "exists");
    check(stat.ephemeralOwner == id.client_id, "the owner");
    answers(zookeeper_close(again), ZOK, "close");
    event(&gone, 1, ZOO_DELETED_EVENT, path);
}

int main(int count, char **arguments) {
    zhandle_t *z;
    clientid_t id;
    check(count == 2, "client HOST:PORT");
    server = arguments[1];
    zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
    snprintf(base, sizeof base, "/client-%ld-%d", (long)time(NULL), (int)getpid());
    /* Before there are threads, which a new process would not have. */
    id = orphaned(path_of("-fleeting"));
    z = connect_as(NULL);
    answers(zoo_create(z, base, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0), ZOK, "the first node");
    pipelined(z);
    nodes(z);
    watches(z);
    many(z);
    permissions(z);
    sessions(z, id);
    answers(zookeeper_close(z), ZOK, "close");
    puts("the C client got every answer that it should");
    return 0;
}
