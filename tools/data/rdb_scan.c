/* The file is read three times: all of it, for the checksum; the numbers of each filter; the bits, filter by filter, as
 * they are saved. So no damaged value is used. */
#include "import.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuckoo_dump.h"
#include "fsops.h"
#include "alloc.h"
#include "log_text.h"
#include "output.h"
#include "redisbloom_dump.h"
#include "slice.h"
#include "valkey_dump.h"
#include "errbuf.h"

#define BUFFER_BYTES (256 * 1024)

/* ---- reading from a place of the file ---- */

struct place {
    const struct rdb_scan *scan;
    uint64_t at;
    struct progress *progress; /* NULL: none */
    unsigned char buffer[BUFFER_BYTES];
};

static int read_on(void *ctx, void *buf, size_t len, size_t *n_out)
{
    const struct fsops *fs = fsops_posix();
    struct place *place = ctx;
    int rc = fs->pread(fs->ctx, place->scan->fd, buf, len, place->at, n_out);

    if (rc == 0)
        place->at += *n_out;
    if (place->progress)
        progress_update(place->progress, place->at);
    return rc;
}

static void read_from(struct rdb_reader *reader, struct place *place, const struct rdb_scan *scan, uint64_t at,
                      struct errbuf *err)
{
    place->scan = scan;
    place->at = at;
    place->progress = NULL;
    rdb_reader_stream(reader, read_on, place, place->buffer, sizeof(place->buffer), at, err);
}

/* 0, or -1 with a text. */
static int check_status(int rc, struct errbuf *err)
{
    if (rc < 0)
        errbuf_set(err, "%s", strerror(-rc));
    return rc == 0 ? 0 : -1;
}

/* ---- contents of the file ---- */

static void count_kind(struct rdb_scan *scan, const char *kind)
{
    size_t i = 0;

    while (i < scan->nkinds && strcmp(scan->kinds[i].name, kind) != 0)
        i++;
    if (i == RDB_MAX_KINDS)
        return;
    if (i == scan->nkinds) {
        snprintf(scan->kinds[i].name, sizeof(scan->kinds[i].name), "%s", kind);
        scan->nkinds++;
    }
    scan->kinds[i].keys++;
}

/* The types of filters. */
static const struct type {
    uint64_t id;
    const char *name;
    bool cuckoo;
} types[] = {
    {REDISBLOOM_TYPE_ID, REDISBLOOM_TYPE_NAME, false},
    {VALKEY_TYPE_ID, VALKEY_TYPE_NAME, false},
    {CUCKOO_TYPE_ID, CUCKOO_TYPE_NAME, true},
    {CUCKOO_OWN_TYPE_ID, CUCKOO_OWN_TYPE_NAME, true},
};

static int on_key(void *ctx, const struct rdb_key *key)
{
    struct rdb_scan *scan = ctx;

    size_t type = 0;
    while (type < sizeof(types) / sizeof(types[0]) && (!key->module || RDB_MODULE_TYPE(key->module) != types[type].id))
        type++;
    if (type == sizeof(types) / sizeof(types[0])) {
        count_kind(scan, key->kind);
        return 0;
    }
    TRY(GROW(scan->found, scan->n, scan->room));
    struct rdb_found *found = &scan->found[scan->n];
    *found = (struct rdb_found){.db = key->db,
                                .name = slice_copy((struct slice){key->name, key->name_len}),
                                .name_len = key->name_len,
                                .expires_ms = key->expires_ms,
                                .cuckoo = types[type].cuckoo,
                                .type = key->module,
                                .type_name = types[type].name,
                                .at = key->at};
    if (!found->name)
        return -ENOMEM;
    scan->n++;
    if (key->name_cut)
        rdb_scan_refuse(scan, found, "its name is longer than 65535 bytes");
    return 0;
}

void rdb_scan_refuse(struct rdb_scan *scan, struct rdb_found *found, const char *reason)
{
    if (found->reason)
        return;
    scan->bytes -= found->bytes;
    found->reason = strdup(reason);
}

/* ---- kinds of the filters ---- */

struct numbers {
    union {
        struct redisbloom_filter redisbloom;
        struct valkey_filter valkey;
    };
    struct dump_plan plan;
    uint64_t items[BLOOM_MAX_LAYERS]; /* of the layers; of a cuckoo filter they are in the plan */
    struct place place;
};

static int read_redisbloom(struct rdb_reader *reader, unsigned version, struct numbers *numbers,
                           struct bloom_filter *filter)
{
    struct redisbloom_filter *value = &numbers->redisbloom;
    struct dump_plan *plan = &numbers->plan;
    TRY(redisbloom_read(reader, version, value, filter ? dump_put_bits : NULL, filter));
    TRY(redisbloom_check(value, &plan->params, plan->shapes, &plan->bytes, reader->err));
    plan->nlayers = (unsigned)value->nlayers;
    for (unsigned i = 0; i < plan->nlayers; i++)
        numbers->items[i] = value->layers[i].count;
    return 0;
}

static int read_valkey(struct rdb_reader *reader, unsigned version, struct numbers *numbers,
                       struct bloom_filter *filter)
{
    struct valkey_filter *value = &numbers->valkey;
    TRY(valkey_read(reader, version, value, filter ? dump_put_bits : NULL, filter));
    TRY(valkey_plan(value, (unsigned)value->nlayers, &numbers->plan, reader->err));
    for (unsigned i = 0; i < value->nlayers; i++)
        numbers->items[i] = value->layers[i].items;
    return 0;
}

/* Reads all of a value: its numbers, and its bits into the filter, NULL for none. */
static int read_value(struct rdb_scan *scan, const struct rdb_found *found, struct numbers *numbers,
                      struct bloom_filter *filter, struct errbuf *err)
{
    unsigned version = RDB_MODULE_VERSION(found->type);
    struct rdb_reader reader;

    read_from(&reader, &numbers->place, scan, found->at, err);
    memset(numbers->items, 0, sizeof(numbers->items));
    numbers->plan.items = 0;
    if (found->cuckoo)
        return cuckoo_read_value(&reader, found->type, NULL, filter, &numbers->plan);
    return RDB_MODULE_TYPE(found->type) == VALKEY_TYPE_ID ? read_valkey(&reader, version, numbers, filter)
                                                          : read_redisbloom(&reader, version, numbers, filter);
}

static void look_at(struct rdb_scan *scan, struct rdb_found *found, struct numbers *numbers)
{
    const struct dump_plan *plan = &numbers->plan;
    struct errbuf err = {{0}};

    if (check_status(read_value(scan, found, numbers, NULL, &err), &err) != 0) {
        rdb_scan_refuse(scan, found, err.text);
        return;
    }
    found->params = plan->params;
    found->nlayers = plan->nlayers;
    found->bytes = plan->bytes;
    found->items = plan->items;
    scan->bytes += plan->bytes;
    for (unsigned i = 0; i < plan->nlayers; i++) {
        found->items += numbers->items[i];
        found->capacity += plan->shapes[i].capacity;
    }
}

static int look_at_all(struct rdb_scan *scan, struct errbuf *err)
{
    struct numbers *numbers = malloc(sizeof(*numbers));
    struct progress progress;

    if (!numbers)
        return check_status(-ENOMEM, err);
    progress_begin(&progress, "looking at filters", scan->size);
    for (size_t i = 0; i < scan->n; i++) {
        progress_update(&progress, scan->found[i].at);
        if (!scan->found[i].reason)
            look_at(scan, &scan->found[i], numbers);
    }
    progress_end(&progress);
    free(numbers);
    return 0;
}

static int walk(struct rdb_scan *scan, struct errbuf *err)
{
    struct place *place = malloc(sizeof(*place));
    struct progress progress;
    struct rdb_reader reader;

    if (!place)
        return check_status(-ENOMEM, err);
    read_from(&reader, place, scan, 0, err);
    progress_begin(&progress, "reading", scan->size);
    place->progress = &progress;
    int rc = rdb_file_walk(&reader, on_key, scan, &scan->summary);
    progress_end(&progress);
    free(place);
    if (check_status(rc, err) == 0)
        return 0;
    errbuf_prefix(err, "%s came before", log_count(scan->n, "filter").text);
    return -1;
}

int rdb_scan_open(struct rdb_scan *scan, const char *path, struct errbuf *err)
{
    const struct fsops *fs = fsops_posix();

    *scan = (struct rdb_scan){.path = path, .fd = -1};
    int rc = fs->open(fs->ctx, path, FS_READ, &scan->fd);
    STEP(rc, fs->size(fs->ctx, scan->fd, &scan->size));
    if (rc == -EINVAL || rc == -ESPIPE)
        return errbuf_fail(err, -1, "is no regular file: write it to a file first, as it is read several times");
    if (rc != 0)
        return check_status(rc, err);
    rc = walk(scan, err);
    return rc == 0 ? look_at_all(scan, err) : rc;
}

void rdb_scan_close(struct rdb_scan *scan)
{
    const struct fsops *fs = fsops_posix();

    if (scan->fd >= 0)
        fs->close(fs->ctx, scan->fd);
    for (size_t i = 0; i < scan->n; i++) {
        free(scan->found[i].name);
        free(scan->found[i].reason);
    }
    free(scan->found);
    *scan = (struct rdb_scan){.fd = -1};
}

/* ---- one filter with its bits ---- */

static int load(struct rdb_scan *scan, const struct rdb_found *found, struct bloom_pool *pool, struct numbers *numbers,
                struct bloom_filter **filter_out, struct errbuf *err)
{
    TRY(read_value(scan, found, numbers, NULL, err));
    TRY(bloom_filter_create(pool, &numbers->plan.params, numbers->plan.shapes, numbers->plan.nlayers, filter_out, err));
    TRY(read_value(scan, found, numbers, *filter_out, err));
    for (unsigned i = 0; !found->cuckoo && i < numbers->plan.nlayers; i++)
        bloom_filter_set_items(*filter_out, i, numbers->items[i]);
    return 0;
}

int rdb_scan_load(struct rdb_scan *scan, const struct rdb_found *found, struct bloom_pool *pool,
                  struct bloom_filter **filter_out, struct errbuf *err)
{
    struct numbers *numbers = malloc(sizeof(*numbers));
    struct bloom_filter *filter = NULL;
    int rc = numbers ? load(scan, found, pool, numbers, &filter, err) : -ENOMEM;

    free(numbers);
    if (rc == 0) {
        *filter_out = filter;
        return 0;
    }
    bloom_filter_destroy(filter);
    return check_status(rc, err);
}
