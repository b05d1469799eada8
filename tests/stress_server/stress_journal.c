/* The journal without a server: threads that add and create filters, awaited tickets, saves that rotate and cut, a
 * disk that sometimes fails. In the end the log has every record exactly once, and no add before the records it
 * needs. */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "journal.h"
#include "log_frame.h"
#include "log_reader.h"
#include "rng.h"
#include "stress.h"
#include "tmpdir.h"

#define THREADS 3
#define ADDS    30000
#define IDS     400

static struct journal *journal;
static pthread_mutex_t registry = PTHREAD_MUTEX_INITIALIZER;
static _Atomic bool exists[IDS + 1]; /* a filter that others may add to */
static _Atomic uint64_t announced[THREADS];
static _Atomic unsigned failures, states;
static struct fsops ops; /* the real one, except for syncs that fail */
static _Atomic uint64_t syncs;

static int flaky_sync(void *ctx, int fd)
{
    (void)ctx;
    if (atomic_fetch_add(&syncs, 1) % 97 == 50) {
        atomic_fetch_add(&failures, 1);
        return -EIO;
    }
    return fsops_posix()->sync(fsops_posix()->ctx, fd);
}

static void on_barrier(void *ctx)
{
    (void)ctx;
    pthread_mutex_lock(&registry);
    pthread_mutex_unlock(&registry);
}

static void on_announce(void *ctx, unsigned worker, uint64_t ticket)
{
    (void)ctx;
    atomic_store(&announced[worker], ticket);
}

static void on_room(void *ctx, unsigned worker)
{
    (void)ctx, (void)worker;
}

static void on_state(void *ctx, bool failed, const char *text)
{
    (void)ctx, (void)failed, (void)text;
    atomic_fetch_add(&states, 1);
}

/* The filter can be seen before its record is in the queue, as in the registry: the barrier must handle this. */
static void make_filter(uint64_t id)
{
    struct log_control control = {
        .kind = LOG_CREATE,
        .id = id,
        .name = "f",
        .name_len = 1,
        .params = {.capacity = 100, .error_rate = 0.01},
        .shape = {.nwords = 1, .k = 1},
    };
    pthread_mutex_lock(&registry);
    atomic_store(&exists[id], true);
    for (int i = 0; i < 20; i++)
        sched_yield();
    journal_note(journal, &control);
    pthread_mutex_unlock(&registry);
}

static void wait_for(unsigned me, uint64_t ticket)
{
    while (atomic_load(&announced[me]) < ticket)
        usleep(20);
}

static void *producer(void *arg)
{
    unsigned me = (unsigned)(uintptr_t)arg;
    struct rng rng = {.state = {me + 1, 2, 3, 4}};
    struct journal_ring *ring = journal_ring(journal, me);
    for (uint64_t n = 0; n < ADDS; n++) {
        uint64_t id = 1 + rng_below(&rng, IDS);
        if (!atomic_load(&exists[id])) {
            if (id % THREADS != me) { /* its maker has not reached it yet */
                id = me ? me : THREADS;
                if (!atomic_load(&exists[id]))
                    make_filter(id);
            } else {
                make_filter(id);
            }
        }
        EXPECT(ring_reserve(ring, 4) == 0, "no memory");
        journal_ops.add(ring, id, (struct bloom_hash){me, n}, 0, n + 1);
        if (n % 64 == 0)
            journal_poke(journal, me);
        if (n % 500 == 0)
            wait_for(me, journal_ticket(journal, me, 1));
        if (n % 5000 == 17) {
            journal_hold(journal, ring);
            journal_ops.add(ring, id, (struct bloom_hash){me + 100, n}, 0, 1);
            journal_ops.add(ring, id, (struct bloom_hash){me + 100, n}, 0, 2);
            journal_release(journal);
        }
    }
    wait_for(me, journal_ticket(journal, me, 1));
    return NULL;
}

static _Atomic bool going = true;

static void *saver(void *arg)
{
    (void)arg;
    while (atomic_load(&going)) {
        struct errbuf err = {""};
        uint64_t segment = 0;
        struct journal_info info;
        if (journal_rotate(journal, &segment, &err) == 0)
            EXPECT(segment > 0, "no segment");
        if (journal_sync(journal, &err) != 0)
            EXPECT(strstr(err.text, "error") != NULL, "%s", err.text);
        journal_info(journal, &info);
        usleep(10000);
    }
    return NULL;
}

/* ---- the content of the log ---- */

struct seen {
    unsigned char adds[THREADS][ADDS];
    unsigned pairs;
};

static bool made[IDS + 1];
static uint64_t last_control;

static int on_control(void *ctx, uint64_t number, const struct log_control *control, struct errbuf *err)
{
    (void)ctx, (void)err;
    EXPECT(number == last_control + 1, "control record %llu after %llu", (unsigned long long)number,
           (unsigned long long)last_control);
    last_control = number;
    made[control->id] = true;
    return 0;
}

static int on_adds(void *ctx, uint64_t id, unsigned layer, const struct bloom_replay_item *items, size_t n)
{
    struct seen *seen = ctx;
    EXPECT(layer == 0 && id >= 1 && id <= IDS && made[id], "an add to a filter that was never made");
    for (size_t i = 0; i < n; i++) {
        if (items[i].hash.h1 >= 100) {
            seen->pairs++;
            continue;
        }
        EXPECT(items[i].hash.h1 < THREADS && items[i].hash.h2 < ADDS, "an add that nobody made");
        seen->adds[items[i].hash.h1][items[i].hash.h2]++;
    }
    return 0;
}

static void read_back(const char *dir)
{
    struct log_reader_options options = {.dir = dir, .on_control = on_control};
    struct log_reader_summary sum;
    struct log_reader *reader;
    struct errbuf err = {""};
    struct seen *seen = calloc(1, sizeof(*seen));
    EXPECT(seen, "no memory");
    EXPECT(log_reader_open(&options, &reader, &sum, &err) == 0, "%s", err.text);
    for (size_t i = 0; i < log_reader_parts(reader); i++)
        EXPECT(log_reader_adds(reader, i, on_adds, seen, &err) == 0, "%s", err.text);
    log_reader_close(reader);
    for (unsigned t = 0; t < THREADS; t++)
        for (unsigned n = 0; n < ADDS; n++)
            EXPECT(seen->adds[t][n] == 1, "add %u of thread %u is there %u times", n, t, seen->adds[t][n]);
    EXPECT(seen->pairs == 2 * THREADS * (ADDS / 5000), "%u adds in transactions", seen->pairs);
    free(seen);
}

/* The same frame by frame, as left by a crash after any of them: an add needs its filter in this frame or before. */
static bool made_so_far[IDS + 1];

static int on_control_in_order(void *ctx, uint64_t number, const struct log_control *control, struct errbuf *err)
{
    (void)ctx, (void)number, (void)err;
    made_so_far[control->id] = true;
    return 0;
}

static int on_adds_in_order(void *ctx, uint64_t id, unsigned layer, const struct bloom_replay_item *items, size_t n)
{
    (void)ctx, (void)layer, (void)items, (void)n;
    EXPECT(made_so_far[id], "the log has adds to filter %llu before the filter", (unsigned long long)id);
    return 0;
}

static void read_segment_in_order(const char *dir, uint64_t number)
{
    const struct log_visitor visitor = {.on_control = on_control_in_order, .on_adds = on_adds_in_order};
    char name[LOG_FILE_NAME];
    struct log_header header;
    struct log_frame frame;
    struct errbuf err = {""};
    size_t len, n;
    log_file_name(number, LOG_SEGMENT, name);
    struct tmp_path path = tmp_path(dir, "log/%s", name);
    if (!file_exists(path.text))
        return;
    unsigned char *bytes = file_read(path.text, &len);
    if (len > LOG_HEADER_BYTES && log_header_decode(bytes, &header, &err) == 0) {
        uint64_t sequence = header.first;
        for (size_t at = LOG_HEADER_BYTES; at < len; at += n, sequence++) {
            n = log_frame_parse(bytes + at, len - at, header.salt, sequence, &frame);
            if (n == 0)
                break;
            if (frame.payload_len == 0) /* the mark of a clean end */
                continue;
            EXPECT(log_payload_decode(frame.payload, frame.payload_len, frame.has_controls, &visitor, &err) == 0, "%s",
                   err.text);
        }
    }
    free(bytes);
}

int main(void)
{
    pthread_t threads[THREADS], saving;
    char dir[TMPDIR_SIZE];
    struct errbuf err = {""};
    tmpdir_create(dir);
    ops = *fsops_posix();
    ops.sync = flaky_sync;
    struct journal_start start = {
        .fs = &ops,
        .dir = dir,
        .next_segment = 1,
        .next_sequence = 1,
        .next_control = 1,
        .salt = 77,
        .nrings = THREADS,
        .barrier = on_barrier,
        .announce = on_announce,
        .has_room = on_room,
        .state = on_state,
    };
    EXPECT(journal_create(&journal, &start, &err) == 0, "cannot start: %s", err.text);
    journal_set_policy(journal, JOURNAL_ALWAYS);
    journal_record(journal, true);
    for (uintptr_t i = 0; i < THREADS; i++)
        EXPECT(pthread_create(&threads[i], NULL, producer, (void *)i) == 0, "no thread");
    EXPECT(pthread_create(&saving, NULL, saver, NULL) == 0, "no thread");
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&going, false);
    pthread_join(saving, NULL);
    journal_destroy(journal);
    EXPECT(atomic_load(&failures) > 0 && atomic_load(&states) > 0, "the disk never failed");
    read_back(dir);
    for (uint64_t number = 1; number < 10000; number++)
        read_segment_in_order(dir, number);
    tmpdir_remove(dir);
    return 0;
}
