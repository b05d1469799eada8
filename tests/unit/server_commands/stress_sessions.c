/* Several threads, like workers, add and remove sessions and change their texts, while others list them: every session
 * present throughout is in every listing, once, in order, with a whole text. */
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"

#define WORKERS    3
#define LISTERS    2
#define PER_WORKER 150 /* more than are formatted under one lock */
#define ROUNDS     4000
#define LISTINGS   120
#define PERMANENT  100 /* sessions present from the beginning to the end: ids 1..PERMANENT */

static struct sessions *sessions;
static struct session permanent[PERMANENT];
static _Atomic bool failed;

static void fail(const char *what, uint64_t value)
{
    fprintf(stderr, "%s (%" PRIu64 ")\n", what, value);
    atomic_store(&failed, true);
}

static void set_name(struct session *session, unsigned value)
{
    char name[64];
    int len = snprintf(name, sizeof(name), "name-%u-%u", value, value);

    if (session_set(sessions, session, SESSION_NAME, (struct slice){name, (size_t)len}) != 0)
        fail("session_set", value);
}

static void *worker_main(void *arg)
{
    struct session *own = calloc(PER_WORKER, sizeof(*own));
    bool listed[PER_WORKER] = {false};
    unsigned seed = 17 * (unsigned)(uintptr_t)arg + 1;

    for (int round = 0; round < ROUNDS; round++) {
        size_t i = (size_t)rand_r(&seed) % PER_WORKER;

        if (!listed[i]) {
            memset(&own[i], 0, sizeof(own[i]));
            own[i].worker = (uint32_t)(uintptr_t)arg;
            strcpy(own[i].origin.addr, "127.0.0.1:1");
            atomic_store(&own[i].resp, 2);
            sessions_add(sessions, &own[i]);
            listed[i] = true;
        } else if (rand_r(&seed) % 3 == 0) {
            sessions_remove(sessions, &own[i]);
            listed[i] = false;
        } else {
            set_name(&own[i], (unsigned)round);
            atomic_store_explicit(&own[i].meters.output_bytes, (uint64_t)round, memory_order_relaxed);
            atomic_store_explicit(&own[i].meters.command, "bf.add", memory_order_relaxed);
        }
    }
    for (size_t i = 0; i < PER_WORKER; i++) {
        if (listed[i])
            sessions_remove(sessions, &own[i]);
    }
    free(own);
    return NULL;
}

/* A name is "name-n-n", never a mixture of two. */
static void check_name(const char *line)
{
    const char *name = strstr(line, " name=");
    unsigned first, second;

    if (name == NULL)
        fail("no name", 0);
    else if (name[6] != ' ' && (sscanf(name, " name=name-%u-%u ", &first, &second) != 2 || first != second))
        fail("a name in pieces", 0);
}

static void format_one(void *out, struct session *session)
{
    session_format(session, 1000, out);
    buf_append(out, "\n", 1);
}

static void *lister_main(void *arg)
{
    (void)arg;
    for (int i = 0; i < LISTINGS && !atomic_load(&failed); i++) {
        uint64_t last = 0, seen = 0;
        struct buf out;
        char *rest, *line;

        buf_init(&out, 1 << 24);
        sessions_each(sessions, format_one, &out);
        buf_append(&out, "", 1);
        line = strtok_r(out.data, "\n", &rest);
        for (; line != NULL; line = strtok_r(NULL, "\n", &rest)) {
            uint64_t id = strtoull(line + 3, NULL, 10);

            if (id <= last)
                fail("a listing out of order", id);
            last = id;
            seen += id <= PERMANENT;
            check_name(line);
        }
        if (seen != PERMANENT)
            fail("permanent sessions in a listing", seen);
        buf_deinit(&out);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[WORKERS + LISTERS];

    if (sessions_create(&sessions) != 0)
        return 1;
    for (size_t i = 0; i < PERMANENT; i++) {
        sessions_add(sessions, &permanent[i]);
        set_name(&permanent[i], (unsigned)i);
    }
    for (size_t i = 0; i < WORKERS + LISTERS; i++) {
        if (pthread_create(&threads[i], NULL, i < WORKERS ? worker_main : lister_main, (void *)i) != 0)
            return 1;
    }
    for (size_t i = 0; i < WORKERS + LISTERS; i++)
        pthread_join(threads[i], NULL);
    if (sessions_count(sessions) != PERMANENT)
        fail("sessions left", sessions_count(sessions));
    for (size_t i = 0; i < PERMANENT; i++)
        sessions_remove(sessions, &permanent[i]);
    sessions_destroy(sessions);
    return atomic_load(&failed);
}
