/* Large layers, which are read directly into their place: of every size at which a case begins or ends, in every
 * variant, with and without direct I/O; damaged; hardly used. */
#include <criterion/criterion.h>
#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "cuckoo.h"
#include "fault_fs.h"
#include "filterdb.h"
#include "layer_file.h"
#include "stage.h"

#define ROOM_WORDS  (BLOOM_ROOM_MIN_BYTES / 8) /* the smallest layer that has a room */
#define PIECE_WORDS (LAYER_PIECE_BYTES / 8)
#define ITEMS       3000

static const struct bloom_params fixed = {.capacity = 10000, .error_rate = 0.01, .expansion = 0};
static const struct bloom_params growing = {.capacity = 1500000, .error_rate = 0.01, .expansion = 2};

static struct fault_fs fault;

static void set_up(void)
{
    fault_fs_init(&fault, fsops_posix());
    stage_set_up(&fault.ops, 0);
}

TestSuite(store_large, .init = set_up, .fini = stage_tear_down, .timeout = 3000);

/* A filter of one layer with this many words; the first and the last one have set bits. */
static void add(const char *name, enum bloom_variant variant, uint64_t nwords)
{
    struct bloom_shape shape = {.nwords = nwords, .k = 5, .variant = (uint8_t)variant};
    struct rig_filter *filter = rig_add(&rig, name, &fixed, &shape);
    struct bloom_layer_view view;

    rig_fill(filter, nwords, ITEMS);
    bloom_filter_layer(filter->filter, 0, &view);
    atomic_fetch_or(&view.words[0], UINT64_C(0x0123456789abcdef));
    atomic_fetch_or(&view.words[nwords - 1], UINT64_C(0xfedcba9876543210));
}

static void sizes_come_back(void)
{
    static const uint64_t sizes[] = {
        LAYER_SMALL_BYTES / 8 - 2,
        LAYER_SMALL_BYTES / 8 - 1, /* the largest small one, the first that is not small */
        ROOM_WORDS - 2,
        ROOM_WORDS - 1, /* no room yet; a piece to the last byte */
        ROOM_WORDS,
        ROOM_WORDS + 1, /* a second piece of one word, of two */
        ROOM_WORDS + 510,
        ROOM_WORDS + 511,
        ROOM_WORDS + 512, /* whole blocks, and a word less and more */
        2 * PIECE_WORDS - 1,
        2 * PIECE_WORDS, /* two whole pieces */
        LAYER_HELP_MIN / 8 - 2,
        LAYER_HELP_MIN / 8 + 8191, /* without helpers and with one; a whole mapping */
    };
    char name[32];

    for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        for (int variant = BLOOM_NA; variant <= BLOOM_KA; variant++) {
            snprintf(name, sizeof(name), "%zu-%d", i, variant);
            add(name, (enum bloom_variant)variant, sizes[i]);
        }
    }
    save();
    uint64_t digest = rig_digest(&rig);
    size_t count = rig.count;
    stage_restart(&fault.ops, 2);
    cr_assert_eq(rig.loaded.quarantined, 0, "%s", rig.reports);
    cr_assert_eq(rig.count, count);
    cr_assert_eq(rig_digest(&rig), digest);
}

Test(store_large, every_size_comes_back)
{
    sizes_come_back();
}

Test(store_large, every_size_comes_back_without_direct_io)
{
    fault.refuse_direct = true;
    sizes_come_back();
}

/* With files in memory. */
Test(store_large, every_size_comes_back_from_tmpfs)
{
    struct statfs fs;
    char before[TMPDIR_SIZE];

    if (statfs("/dev/shm", &fs) != 0 || fs.f_type != TMPFS_MAGIC || access("/dev/shm", W_OK) != 0 ||
        fs.f_bavail * (uint64_t)fs.f_bsize < UINT64_C(400) << 20)
        cr_skip_test("no room on /dev/shm");
    memcpy(before, dir, sizeof(dir));
    setenv("TMPDIR", "/dev/shm", 1);
    stage_tear_down();
    set_up();
    cr_assert_neq(strcmp(before, dir), 0);
    sizes_come_back();
}

/* With all available threads; and layers of a chain, each in its own room. */
Test(store_large, a_large_file_and_a_chain_come_back)
{
    add("large", BLOOM_NA, LAYER_SHARE_MIN / 8 + 12345);
    add("turned", BLOOM_KA, LAYER_SHARE_MIN / 8 + 1);
    rig_fill(rig_add(&rig, "chain", &growing, NULL), 0, 2000000);
    cr_assert_gt(bloom_filter_nlayers(rig_find(&rig, "chain")->filter), 1);
    save();
    stage_expect_saved(&fault.ops);
    rig_fill(rig_find(&rig, "chain"), 2000000, 1000); /* further adds */
    cr_assert(rig_has(rig_find(&rig, "chain"), 2000999));
}

static int (*fault_open)(void *ctx, const char *path, unsigned flags, int *fd_out);

/* The file systems of tests may refuse direct writes; this one takes them. */
static int open_any(void *ctx, const char *path, unsigned flags, int *fd_out)
{
    return fault_open(ctx, path, flags & ~(unsigned)FS_DIRECT, fd_out);
}

/* The words of a cuckoo filter are read once: a second try, without direct writes, would find those of later. */
Test(store_large, a_cuckoo_filter_that_could_not_be_written_is_not_read_again)
{
    const struct cuckoo_numbers numbers = {.capacity = 3000000, .bucket_size = 2, .iterations = 20, .expansion = 1};
    struct bloom_params params;
    struct bloom_shape shape;
    int rc = -EINVAL;

    cr_assert_eq(cuckoo_plan(&numbers, &params, &shape, &err), BLOOM_OK, "%s", err.text);
    struct bloom_filter *filter = rig_add(&rig, "cuckoo", &params, &shape)->filter;
    for (uint64_t i = 0; i < ITEMS; i++)
        cr_assert_eq(cuckoo_add(filter, cuckoo_hash(&i, sizeof(i)), false, NULL, &err), BLOOM_ADDED);
    fault_open = fault.ops.open;
    fault.ops.open = open_any;
    for (size_t at = 1; rc != 0; at++) {
        rig_find(&rig, "cuckoo")->dirty = true;
        fault_fs_arm(&fault, at, FAULT_ERROR, -EINVAL, false);
        rc = rig_save(&rig, store, &summary, &err);
        cr_assert_lt(at, 100u);
        rc = fault.hit ? -EINVAL : rc;
    }
    fault.fail_at = 0;
    stage_expect_saved(&fault.ops);
}

/* ---- damage ---- */

#define DAMAGED_WORDS (LAYER_HELP_MIN / 8 + 4321)
#define DAMAGED_BYTES (8 + 8 * DAMAGED_WORDS)
#define DAMAGED_FILE  (rig_place(NULL, dir, "damaged", 0).path)

static void save_two(void)
{
    add("damaged", BLOOM_NA, DAMAGED_WORDS);
    add("whole", BLOOM_NA, DAMAGED_WORDS);
    save();
}

static void assert_quarantined(const char *reason)
{
    stage_restart(&fault.ops, 2);
    struct rig_filter *filter = rig_find(&rig, "damaged");
    cr_assert(filter && !filter->filter);
    cr_assert_not_null(strstr(filter->reason, reason), "'%s' instead of '%s'", filter->reason, reason);
    cr_assert_eq(rig.loaded.quarantined, 1);
    cr_assert(rig_has(rig_find(&rig, "whole"), DAMAGED_WORDS + ITEMS - 1));
}

Test(store_large, a_file_that_is_shorter_is_refused)
{
    static const struct {
        size_t len;
        const char *reason;
    } table[] = {
        {DAMAGED_BYTES - 1, "truncated: 8423184 bytes expected, 8423183 found"},
        {DAMAGED_BYTES / 4096 * 4096, "bytes expected, 8421376 found"},
        {LAYER_PIECE_BYTES, "bytes expected, 2097152 found"},
        {4096, "bytes expected, 4096 found"},
        {7, "7 bytes, shorter than the header of 8"},
        {0, "empty file"},
    };

    save_two();
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        file_truncate(DAMAGED_FILE, table[i].len);
        fault.refuse_direct = i % 2 == 0;
        assert_quarantined(table[i].reason);
    }
}

Test(store_large, a_file_that_is_longer_is_refused)
{
    save_two();
    file_truncate(DAMAGED_FILE, DAMAGED_BYTES + 8);
    assert_quarantined("8 bytes behind the 1052897 words it announces");
    file_truncate(DAMAGED_FILE, 20 * DAMAGED_BYTES);
    assert_quarantined("bytes behind the 1052897 words it announces");
}

Test(store_large, another_header_is_refused)
{
    save_two();
    file_flip_bit(DAMAGED_FILE, 8 * 3); /* hash count: big-endian */
    assert_quarantined("header says hash count 4, the MANIFEST 5");
    file_flip_bit(DAMAGED_FILE, 8 * 3);
    file_flip_bit(DAMAGED_FILE, 8 * 7);
    assert_quarantined("words");
}

Test(store_large, a_flipped_bit_is_found_wherever_it_is)
{
    const size_t bits[] = {64, 8 * (size_t)LAYER_PIECE_BYTES - 1, 8 * (size_t)LAYER_PIECE_BYTES, 8 * DAMAGED_BYTES - 1};

    save_two();
    for (size_t i = 0; i < sizeof(bits) / sizeof(*bits); i++) {
        file_flip_bit(DAMAGED_FILE, bits[i]);
        assert_quarantined("checksum is");
        file_flip_bit(DAMAGED_FILE, bits[i]);
    }
}

/* ---- memory ---- */

static size_t resident(const struct bloom_layer_view *view)
{
    static unsigned char pages[(64u << 20) / 4096];
    size_t len = (size_t)filterdb_bytes(view->shape.nwords), n = 0;

    cr_assert_leq(len, 64u << 20);
    cr_assert_eq(mincore(view->room, len, pages), 0);
    for (size_t i = 0; i < (len + 4095) / 4096; i++)
        n += pages[i] & 1;
    return n * 4096;
}

/* Copied by reads, it would take as much memory as a filter in use. */
Test(store_large, a_filter_that_is_hardly_used_stays_small)
{
    struct bloom_shape shape = {.nwords = (32u << 20) / 8, .k = 5, .variant = BLOOM_NA};
    struct bloom_layer_view view;

    if (sysconf(_SC_PAGESIZE) != 4096)
        cr_skip_test("pages are larger here");
    rig_fill(rig_add(&rig, "little", &fixed, &shape), 0, 1);
    save();
    uint64_t digest = rig_digest(&rig);
    stage_restart(&fault.ops, 2);
    cr_assert_eq(rig.loaded.quarantined, 0, "%s", rig.reports);
    bloom_filter_layer(rig_find(&rig, "little")->filter, 0, &view);
    cr_assert_gt(resident(&view), 0);
    cr_assert_leq(resident(&view), 7 * (2u << 20)); /* the header, an item's bits, the end: of sixteen */
    cr_assert_eq(rig_digest(&rig), digest);
}
