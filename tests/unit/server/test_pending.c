/* The file of pending records, after a kill of the process at any moment, and after a power failure. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "journal_ring.h"
#include "rng.h"
#include "tmpdir.h"

#define RINGS    2
#define CONTROLS RINGS /* the stream of control records */
#define FIRST    7     /* number of the first control record */
#define PAGE     4096

static char dir[TMPDIR_SIZE];
static struct log_pending *pending;
static struct journal_ring *rings[RINGS];
static struct journal_controls controls;
static uint64_t added[RINGS]; /* records in each ring; record n of ring r is item (r, n) of filter 1 + r */
static uint64_t frame;

static void setup(void)
{
    tmpdir_create(dir);
    const struct log_pending_options options = {.fs = fsops_posix(),
                                                .dir = dir,
                                                .process = 3,
                                                .generation = 5,
                                                .salt = 99,
                                                .nstreams = RINGS + 1,
                                                .frame = 10,
                                                .control = FIRST};
    cr_assert_eq(log_pending_create(&pending, &options), 0);
    for (unsigned i = 0; i < RINGS; i++)
        cr_assert_eq(ring_create(&rings[i], pending, i), 0);
    controls_init(&controls, pending, CONTROLS, FIRST);
    frame = 10;
    memset(added, 0, sizeof(added));
}

static void teardown(void)
{
    for (unsigned i = 0; i < RINGS; i++)
        ring_destroy(rings[i]);
    controls_deinit(&controls);
    log_pending_destroy(pending, true);
    tmpdir_remove(dir);
}

TestSuite(pending, .init = setup, .fini = teardown, .timeout = 120);

/* Some of them are pairs of a claim, at any place of a run and of a chunk. */
static void add(unsigned ring, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++, added[ring]++) {
        uint64_t number = added[ring];
        unsigned layer = (unsigned)(number / 100 % 3);
        const struct bloom_hash hash[2] = {{ring, number}, {ring, number + 1}};
        cr_assert_eq(ring_reserve(rings[ring], 4), 0);
        if (i + 1 == n || number % 7 > 2 || number % 100 == 99) {
            ring_add(rings[ring], 1 + ring, hash[0], layer, number + 1);
            continue;
        }
        ring_add_both(rings[ring], 1 + ring, hash, layer, number + 1);
        i++, added[ring]++;
    }
}

/* A control record with a name of this length; its id is its number. */
static void note(size_t name_len)
{
    static char name[60000];
    memset(name, 'x', sizeof(name));
    const struct log_control control = {.kind = LOG_RENAME, .id = controls.next, .name = name, .name_len = name_len};
    cr_assert_eq(controls_reserve(&controls, name_len + 256), 0);
    cr_assert_eq(controls_put(&controls, &control), 0);
}

/* Like the log thread: takes everything; `written`: the frame got into the log. */
static void make_frame(bool written)
{
    struct pending_place places[RINGS + 1];
    for (unsigned i = 0; i < RINGS; i++) {
        struct ring_mark mark = ring_snapshot(rings[i]);
        struct ring_run run;
        while ((run = ring_peek(rings[i], &mark)).n)
            ring_done(rings[i], run.n);
        places[i] = ring_taken(rings[i]);
    }
    places[CONTROLS] = controls_end(&controls);
    controls.bytes.len = 0;
    log_pending_frame(pending, ++frame, controls.next, places);
    if (!written)
        return;
    for (unsigned i = 0; i < RINGS; i++)
        ring_release(rings[i]);
    controls_release(&controls, places[CONTROLS]);
}

/* ---- contents after a start ---- */

struct found {
    bool fits;
    uint64_t first[RINGS], adds[RINGS]; /* numbers first .. first + adds - 1, each once */
    uint64_t first_control, controls;
};

static int on_control(void *ctx, uint64_t number, const struct log_control *control, struct errbuf *err)
{
    struct found *found = ctx;
    (void)err;
    cr_assert_eq(control->id, number);
    if (!found->controls++)
        found->first_control = number;
    return 0;
}

static int on_adds(void *ctx, uint64_t id, unsigned layer, const struct bloom_replay_item *items, size_t n)
{
    struct found *found = ctx;
    cr_assert(id >= 1 && id <= RINGS);
    for (size_t i = 0; i < n; i++) {
        uint64_t number = items[i].hash.h2;
        cr_assert_eq(items[i].hash.h1, id - 1);
        cr_assert_eq(items[i].ordinal, number + 1);
        cr_assert_eq(layer, number / 100 % 3);
        if (!found->adds[id - 1]++)
            found->first[id - 1] = number;
        cr_assert_eq(number, found->first[id - 1] + found->adds[id - 1] - 1, "each once, in order");
    }
    return 0;
}

static struct found read_path(const char *path, uint64_t last_frame)
{
    struct found found = {0};
    struct pending_found file;
    struct errbuf err = {""};
    int status = log_pending_read(fsops_posix(), path, last_frame, &file, &err);
    cr_assert(status == 0 || status == LOG_DAMAGED, "%d: %s", status, err.text);
    if (status)
        return found;
    cr_assert(file.process == 3 && file.generation == 5);
    found.fits = file.fits;
    const struct log_visitor visitor = {.on_control = on_control, .on_adds = on_adds, .ctx = &found};
    cr_assert_eq(log_payload_decode(file.payload.ptr, file.payload.len, file.has_controls, &visitor, &err), LOG_OK,
                 "%s", err.text);
    log_bytes_deinit(&file.payload);
    return found;
}

static struct found read_now(uint64_t last_frame)
{
    return read_path(tmp_path(dir, "log/00000003.pending").text, last_frame);
}

/* After a kill, everything since the last frame in the log is found, in any amount. */
Test(pending, all_that_the_log_has_not_got_is_there)
{
    struct rng rng;
    rng_init(&rng, 1);
    uint64_t before[RINGS] = {0}, controls_before = FIRST;
    for (int round = 0; round < 60; round++) {
        for (unsigned i = 0; i < RINGS; i++)
            add(i, rng_below(&rng, rng_below(&rng, 4) ? 50 : 9000));
        for (uint64_t n = rng_below(&rng, 4); n > 0; n--)
            note(rng_below(&rng, 5) ? 10 : 59000);
        struct found found = read_now(frame);
        cr_assert(found.fits);
        for (unsigned i = 0; i < RINGS; i++) {
            cr_assert_eq(found.adds[i], added[i] - before[i]);
            cr_assert(!found.adds[i] || found.first[i] == before[i]);
        }
        cr_assert_eq(found.controls, controls.next - controls_before);
        cr_assert(!found.controls || found.first_control == controls_before);
        make_frame(round % 3 != 0);
        if (round % 3 == 0) { /* the frame is on its way: the log may have it, or not */
            found = read_now(frame - 1);
            cr_assert(found.fits && found.adds[0] == added[0] - before[0] && found.adds[1] == added[1] - before[1]);
            for (unsigned i = 0; i < RINGS; i++)
                ring_release(rings[i]);
            controls_release(&controls, controls_end(&controls));
        }
        found = read_now(frame);
        cr_assert(found.fits && !found.adds[0] && !found.adds[1] && !found.controls);
        for (unsigned i = 0; i < RINGS; i++)
            before[i] = added[i];
        controls_before = controls.next;
    }
}

/* The file belongs to the last frame of the log, or to the one before as long as all records since that are still in
 * it. */
Test(pending, it_is_used_only_with_the_frame_that_it_goes_with)
{
    add(0, 10);
    note(10);
    make_frame(true);
    add(0, 20000);
    make_frame(true);
    add(0, 5);
    cr_assert(!read_now(10).fits);
    cr_assert(!read_now(13).fits);
    cr_assert_eq(read_now(12).adds[0], 5u);
    add(1, 20000); /* in the chunks given back by the second frame */
    struct found found = read_now(11);
    cr_assert(!found.fits && !found.adds[0], "half of a frame is worse than nothing of it");
}

static void hold(void)
{
    struct pending_chunk *const last[2] = {rings[0]->tail, controls.tail};
    log_pending_hold(pending, 0, ring_end(rings[0]), controls_end(&controls), last);
}

/* Nothing of an open transaction is taken, everything of a finished one is. */
Test(pending, a_transaction_is_there_as_a_whole_or_not_at_all)
{
    for (int round = 0; round < 3; round++) {
        add(0, 1000);
        add(1, 10);
        note(10);
        struct found before = read_now(frame);
        hold();
        add(0, round == 1 ? 10000 : 10);
        note(59000);
        note(10);
        struct found found = read_now(frame);
        cr_assert(found.fits && memcmp(&found, &before, sizeof(found)) == 0);
        log_pending_release(pending);
        found = read_now(frame);
        cr_assert_eq(found.controls, before.controls + 2);
        cr_assert_eq(found.adds[0], before.adds[0] + (round == 1 ? 10000u : 10u));
        if (round == 1)
            make_frame(true);
    }
}

/* cp reads the file front to back while the process continues: the head is from before a transaction, the rest from
 * its middle. Half of the transaction would look like the result of a kill. */
Test(pending, a_copy_that_was_made_while_a_transaction_began_is_not_used)
{
    for (int large = 0; large < 2; large++) {
        size_t len, before_len;
        add(0, 1000);
        note(10);
        unsigned char *before = file_read(tmp_path(dir, "log/00000003.pending").text, &before_len);
        hold();
        add(0, large ? 10000 : 10);
        note(10);
        unsigned char *copy = file_read(tmp_path(dir, "log/00000003.pending").text, &len);
        memcpy(copy, before, PENDING_HEAD_PART);
        file_write(tmp_path(dir, "copy").text, copy, len);
        struct found found = read_path(tmp_path(dir, "copy").text, frame);
        cr_assert(!found.fits && !found.adds[0] && !found.controls);
        log_pending_release(pending);
        free(before);
        free(copy);
    }
}

/* A power failure leaves pages of different moments, and of none: only recorded data is taken, each record at most
 * once and in order (on_adds() checks it), and never before the frame. */
Test(pending, pages_of_any_moment_do_no_harm)
{
    struct rng rng;
    size_t len, old_len = 0, used = 0;
    unsigned char *old = NULL;
    rng_init(&rng, 2);
    for (int round = 0; round < 300; round++) {
        for (unsigned i = 0; i < RINGS; i++)
            add(i, rng_below(&rng, round % 8 ? 300 : 6000));
        note(rng_below(&rng, 5) ? 10 : 20000);
        unsigned char *now = file_read(tmp_path(dir, "log/00000003.pending").text, &len);
        unsigned char *torn = malloc(len);
        memcpy(torn, now, len);
        for (size_t page = 0; page < len / PAGE; page++) {
            uint64_t fate = rng_below(&rng, 4 + (uint64_t)round % 40);
            if (fate == 0)
                memset(torn + page * PAGE, 0, PAGE);
            else if (fate == 1 && (page + 1) * PAGE <= old_len)
                memcpy(torn + page * PAGE, old + page * PAGE, PAGE);
            else if (fate == 2)
                torn[page * PAGE + rng_below(&rng, PAGE)] ^= (unsigned char)(1 + rng_below(&rng, 255));
        }
        file_write(tmp_path(dir, "torn").text, torn, len);
        struct found found = read_path(tmp_path(dir, "torn").text, frame - rng_below(&rng, 2));
        used += found.fits;
        free(torn);
        free(old);
        old = now;
        old_len = len;
        if (rng_below(&rng, 2))
            make_frame(true);
    }
    free(old);
    cr_assert_gt(used, 10u, "most of what was tried is refused at once: %zu", used);
}
