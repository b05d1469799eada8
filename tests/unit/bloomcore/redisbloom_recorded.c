/* Recordings of RedisBloom 8.8 and 2.8.20: its filters and their answers. */
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "bloom_batch.h"
#include "golden.h"
#include "redisbloom_rig.h"
#include "rng.h"

#define RECORDED BLOOMERY_GOLDEN_DIR "/redisbloom"

TestSuite(redisbloom_recorded, .init = setup, .fini = teardown);

static uint64_t le(const unsigned char *at, unsigned bytes)
{
    uint64_t value = 0;

    memcpy(&value, at, bytes);
    return value;
}

static double real(const unsigned char *at)
{
    double value;

    memcpy(&value, at, sizeof(value));
    return value;
}

/* The header of a SCANDUMP. */
static void read_header(const unsigned char *at, size_t len, struct redisbloom_filter *out)
{
    out->nlayers = le(at + 8, 4);
    out->options = le(at + 12, 4);
    out->growth = le(at + 16, 4);
    cr_assert_eq(len, 20 + 53 * out->nlayers);
    at += 20;
    for (unsigned i = 0; i < out->nlayers; i++, at += 53)
        out->layers[i] = (struct redisbloom_layer){.bits = le(at + 8, 8),
                                                   .count = le(at + 16, 8),
                                                   .error = real(at + 24),
                                                   .bpe = real(at + 32),
                                                   .hashes = le(at + 40, 4),
                                                   .entries = le(at + 44, 8),
                                                   .n2 = at[52]};
}

/* The bytes of the chunks, layer by layer, in pieces of any size. */
static void put_bits(struct bloom_filter *filter, struct rng *rng, unsigned *layer, uint64_t *offset,
                     const unsigned char *bytes, size_t len)
{
    while (len > 0) {
        struct bloom_layer_view view;

        bloom_filter_layer(filter, *layer, &view);
        uint64_t left = bloom_shape_bytes(&view.shape) - *offset;
        size_t run = 1 + (size_t)rng_below(rng, 5000);
        run = run < len ? run : len;
        run = run < left ? run : (size_t)left;
        bloom_filter_put_bytes(filter, *layer, *offset, bytes, run);
        bloom_filter_put_bytes(filter, *layer, *offset, bytes, run / 2); /* repeated */
        bytes += run;
        len -= run;
        *offset += run;
        if (*offset == bloom_shape_bytes(&view.shape)) {
            *offset = 0;
            ++*layer;
        }
    }
}

static struct bloom_filter *read_scandump(const char *dir)
{
    static struct redisbloom_filter header;
    struct bloom_filter *filter = NULL;
    struct rng rng;
    size_t len;
    char *text = (char *)golden_file(&len, "%s/scandump.json", dir), *at = text;
    unsigned layer = 0;
    uint64_t offset = 0;

    rng_init(&rng, 1);
    while ((at = strstr(at, "\"hex\": \""))) {
        char *end = strchr(at += strlen("\"hex\": \""), '"');
        *end = '\0';
        size_t bytes = golden_unhex(at);
        if (!filter) {
            read_header((unsigned char *)at, bytes, &header);
            filter = filter_from(&header);
        } else {
            put_bits(filter, &rng, &layer, &offset, (unsigned char *)at, bytes);
        }
        at = end + 1;
    }
    cr_assert_eq(layer, header.nlayers);
    free(text);
    return filter;
}

/* As in the recording: the parameters of BF.RESERVE, or the filter that BF.ADD makes. */
static struct bloom_filter *reserve(const char *dir)
{
    double rate = 0.01;
    uint64_t capacity = 100;
    uint32_t expansion = 2;
    size_t len;
    char *text = (char *)golden_file(&len, "%s/meta.json", dir), *at = strstr(text, "\"reserve\": [");

    if (at) {
        char *end = strchr(at, ']');
        char *option;

        *end = '\0';
        rate = strtod(strchr(strchr(at, '['), '"') + 1, NULL);
        capacity = strtoull(strchr(at, ',') + 1, NULL, 10);
        if ((option = strstr(at, "EXPANSION")))
            expansion = (uint32_t)strtoul(strchr(option, ',') + 1, NULL, 10);
        if (strstr(at, "NONSCALING"))
            expansion = 0;
    }
    free(text);
    return filter_new(fmin(rate, REDISBLOOM_MAX_RATE), capacity, expansion);
}

static void add_items(const char *dir, struct bloom_filter *filter)
{
    struct golden_lines lines;

    golden_lines_open(&lines, "%s/items.hex", dir);
    while (golden_lines_next(&lines)) {
        size_t len = golden_unhex(lines.fields[0]);
        (void)add(filter, lines.fields[0], len);
    }
    golden_lines_close(&lines);
}

static void expect_queries(const char *dir, const struct bloom_filter *filter)
{
    struct golden_lines lines;
    struct bloom_item items[BLOOM_BATCH];
    char *copies[BLOOM_BATCH];
    unsigned n = 0, all = 0;
    uint32_t wanted = 0;

    golden_lines_open(&lines, "%s/probes.tsv", dir);
    for (bool more = true; more;) {
        more = golden_lines_next(&lines);
        if (more) {
            size_t len = golden_unhex(lines.fields[0]);
            bool present = golden_u64(lines.fields[1]);
            cr_assert_eq(query(filter, lines.fields[0], len), present, "%s: probe %u", dir, all);
            copies[n] = memcpy(malloc(len + 1), lines.fields[0], len);
            items[n] = (struct bloom_item){copies[n], len};
            wanted |= (uint32_t)present << n++;
            all++;
        }
        if (n == BLOOM_BATCH || !more) {
            struct bloom_batch batch;

            bloom_batch_start(&batch, filter, items, n);
            cr_assert_eq(bloom_batch_query(&batch, filter), wanted, "%s: probes before %u", dir, all);
            while (n > 0)
                free(copies[--n]);
            wanted = 0;
        }
    }
    cr_assert_eq(all, 3000);
    golden_lines_close(&lines);
}

/* In batches if `batched`. */
static void expect_adds(const char *dir, struct bloom_filter *filter, bool batched)
{
    struct golden_lines lines;

    golden_lines_open(&lines, "%s/more.tsv", dir);
    while (golden_lines_next(&lines)) {
        enum bloom_add wanted = strncmp(lines.fields[1], "ERR", 3) == 0 ? BLOOM_FULL
                                : golden_u64(lines.fields[1])           ? BLOOM_ADDED
                                                                        : BLOOM_PRESENT;
        size_t len = golden_unhex(lines.fields[0]);
        enum bloom_add got = BLOOM_PRESENT;

        if (batched) {
            struct bloom_batch batch;
            uint32_t added;

            bloom_batch_start(&batch, filter, &(struct bloom_item){lines.fields[0], len}, 1);
            if (bloom_batch_add_all(&batch, 0, filter, NULL, NULL, &added, &got) == 1)
                got = added ? BLOOM_ADDED : BLOOM_PRESENT;
        } else {
            got = add(filter, lines.fields[0], len);
        }
        cr_assert_eq(got, wanted, "%s", dir);
    }
    golden_lines_close(&lines);
}

static void expect_info(const char *dir, const struct bloom_filter *filter)
{
    size_t len;
    char *text = (char *)golden_file(&len, "%s/meta.json", dir), *after = strstr(text, "\"info_after_more\"");

    cr_assert_not_null(after);
    cr_assert_eq((double)bloom_filter_capacity(filter), golden_json_number(after, "Capacity"), "%s", dir);
    cr_assert_eq(bloom_filter_nlayers(filter), golden_json_number(after, "Number of filters"), "%s", dir);
    cr_assert_eq((double)bloom_filter_items(filter), golden_json_number(after, "Number of items inserted"), "%s", dir);
    free(text);
}

static unsigned check_recording(const char *dir)
{
    for (unsigned way = 0; way < 2; way++) {
        struct bloom_filter *recorded = read_scandump(dir), *made = reserve(dir);

        add_items(dir, made);
        expect_same(dir, made, recorded);
        expect_queries(dir, recorded);
        expect_adds(dir, recorded, way);
        expect_adds(dir, made, way);
        expect_info(dir, recorded);
        expect_same(dir, made, recorded);
        filter_free(recorded);
        filter_free(made);
    }
    return 1;
}

static unsigned check_recordings(const char *dir)
{
    DIR *list = opendir(dir);
    unsigned found = 0;

    for (struct dirent *entry; list && (entry = readdir(list));) {
        char path[4096], items[4200];

        snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
        snprintf(items, sizeof(items), "%s/items.hex", path);
        if (entry->d_name[0] != '.' && access(items, R_OK) == 0)
            found += check_recording(path);
    }
    if (list)
        closedir(list);
    return found;
}

/* Every probe and add answers as recorded; a filter made with the same commands has the same bits and layers. */
Test(redisbloom_recorded, answers_as_recorded)
{
    cr_assert_geq(check_recordings(RECORDED), 11);
    cr_assert_geq(check_recordings(RECORDED "/v2.8.20"), 3);
}

Test(redisbloom_recorded, answers_as_recorded_where_there_are_all_recordings)
{
    if (access(BLOOMERY_SHARED_GOLDEN_DIR "/redisbloom", R_OK) != 0)
        cr_skip_test("they are not here");
    cr_assert_geq(check_recordings(BLOOMERY_SHARED_GOLDEN_DIR "/redisbloom"), 12);
}
