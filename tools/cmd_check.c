/* bloomery check: what a data directory holds, verified to the last byte, without changing anything in it: the MANIFEST, the
 * Filter.db files that it names, the log, and the files that the log names. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "done_note.h"
#include "filterdb.h"
#include "fsops.h"
#include "id_map.h"
#include "log_reader.h"
#include "manifest.h"
#include "pack.h"
#include "store.h"
#include "tool.h"

#define COMMAND     "check"
#define PIECE_BYTES (1u << 20)

struct check {
    const char *datadir;
    const struct fsops *fs;
    unsigned char *piece;
    struct pack_reader packs;
    struct manifest_save save;
    uint64_t filters, layers, items, bytes;
    uint64_t damaged; /* files */
    struct id_map saved;    /* filters of the MANIFEST; no values */
    struct id_map contents; /* struct contents: filters of the log whose contents are in files */
    uint64_t creates, loads, deletes, renames, expiries, clears, grows, breaks;
};

struct contents {
    char *record;
    size_t len;
};

static void complain(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void complain(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
}

/* ---- Filter.db files ------------------------------------------------------------------------------------------------ */

/* The checksum of a file. 0 or -errno. */
static int digest(struct check *check, const char *path, uint64_t *size_out, uint64_t *xxh3_out)
{
    XXH3_state_t *hash = XXH3_createState();
    uint64_t at = 0;
    size_t n = 1;
    int fd = -1;
    int rc = hash ? check->fs->open(check->fs->ctx, path, FS_READ, &fd) : -ENOMEM;

    if (rc == 0)
        XXH3_64bits_reset(hash);
    while (rc == 0 && n) {
        rc = check->fs->pread(check->fs->ctx, fd, check->piece, PIECE_BYTES, at, &n);
        if (rc == 0)
            XXH3_64bits_update(hash, check->piece, n);
        at += n;
    }
    if (rc == 0) {
        *size_out = at;
        *xxh3_out = XXH3_64bits_digest(hash);
    }
    if (fd >= 0)
        check->fs->close(check->fs->ctx, fd);
    XXH3_freeState(hash);
    return rc;
}

/* A file is under its temporary name until the save that made it has put it into place. */
static bool layer_is_whole(struct check *check, const struct manifest_filter *filter, unsigned i, char *why, size_t size)
{
    const struct manifest_layer *layer = &filter->layers[i];
    uint64_t bytes = 0, xxh3 = 0;
    char path[4096];

    for (int placed = 0; placed < 2; placed++) {
        int len = snprintf(path, sizeof(path), "%s/filters/%s/%u-Filter.db", check->datadir, filter->dir, i);
        if (!placed)
            snprintf(path + len, sizeof(path) - (size_t)len, ".%" PRIu64, layer->generation);
        int rc = digest(check, path, &bytes, &xxh3);
        if (rc == 0 && bytes == filterdb_bytes(layer->nwords) && xxh3 == layer->xxh3)
            return true;
        if (rc != 0)
            snprintf(why, size, "%s: %s", path, strerror(-rc));
        else if (bytes != filterdb_bytes(layer->nwords))
            snprintf(why, size, "%s: it has %" PRIu64 " bytes instead of %" PRIu64, path, bytes, filterdb_bytes(layer->nwords));
        else
            snprintf(why, size, "%s: its checksum is %016" PRIx64 " instead of %016" PRIx64, path, xxh3, layer->xxh3);
    }
    return false;
}

static bool packed_layer_is_whole(struct check *check, const struct manifest_filter *filter, unsigned i,
                                  uint64_t offset, char *why, size_t size)
{
    const struct manifest_layer *layer = &filter->layers[i];
    size_t len = (size_t)filterdb_bytes(layer->nwords);
    const unsigned char *bytes;
    struct errbuf err = {{0}};

    if (pack_read(&check->packs, filter->pack, offset, len, &bytes, NULL, &err) != 0) {
        snprintf(why, size, "%s", err.text);
        return false;
    }
    uint64_t xxh3 = XXH3_64bits(bytes, len);
    if (xxh3 == layer->xxh3)
        return true;
    snprintf(why, size,
             PACK_DIR "/%" PRIu64 ".pack: layer %u, at byte %" PRIu64 ": its checksum is %016" PRIx64
                      " instead of %016" PRIx64,
             filter->pack, i, offset, xxh3, layer->xxh3);
    return false;
}

/* The name as in the MANIFEST, cut when it is long. */
static void print_name(const struct manifest_filter *filter, char *out, size_t size)
{
    size_t len = filter->name_len < size / 3 - 2 ? filter->name_len : size / 3 - 2;

    name_encode(filter->name, len, out);
    strcpy(out + name_encoded_len(filter->name, len), len < filter->name_len ? "..." : "");
}

static void check_filter(struct check *check, const struct manifest_filter *filter)
{
    uint64_t offset_in_pack = filter->pack_offset;
    char why[4400], name[256];

    for (unsigned i = 0; i < filter->nlayers; i++) {
        check->layers++;
        check->items += filter->layers[i].items;
        check->bytes += filterdb_bytes(filter->layers[i].nwords);
        bool whole = filter->pack ? packed_layer_is_whole(check, filter, i, offset_in_pack, why, sizeof(why))
                                  : layer_is_whole(check, filter, i, why, sizeof(why));
        offset_in_pack += filterdb_bytes(filter->layers[i].nwords);
        if (whole)
            continue;
        check->damaged++;
        print_name(filter, name, sizeof(name));
        complain("damaged: filter '%s', id %" PRIu64 ": %s", name, filter->id, why);
    }
}

static int on_filter(void *ctx, const struct manifest_filter *filter, uint64_t offset, struct errbuf *err)
{
    struct check *check = ctx;

    (void)offset, (void)err;
    check->filters++;
    check_filter(check, filter);
    return id_map_set(&check->saved, filter->id, NULL);
}

static int on_removed(void *ctx, const struct manifest_removed *removed, uint64_t offset, struct errbuf *err)
{
    (void)ctx, (void)removed, (void)offset, (void)err;
    return 0;
}

/* TOOL_OK, or TOOL_FAILED after a message. */
static int check_manifest(struct check *check)
{
    const struct manifest_sink sink = {.on_filter = on_filter, .on_removed = on_removed, .ctx = check};
    struct errbuf err = {{0}};

    if (tool_read_manifest(check->datadir, &sink, &check->save, &err) != 0) {
        complain("%s", err.text);
        return TOOL_FAILED;
    }
    /* What a line says may be in order, and yet contradict another one. */
    if (store_verify(check->datadir, NULL, &err) != 0) {
        complain("damaged: %s", err.text);
        return TOOL_FAILED;
    }
    printf("MANIFEST: save %" PRIu64 ", %" PRIu64 " filters, %" PRIu64 " layers, %" PRIu64 " items, %" PRIu64 " bytes\n",
           check->save.generation, check->filters, check->layers, check->items, check->bytes);
    printf("files: %" PRIu64 " whole, %" PRIu64 " damaged or missing\n", check->layers - check->damaged, check->damaged);
    uint64_t done = done_note_read(check->fs, check->datadir);
    if (done > check->save.generation)
        complain("MANIFEST: it is of save %" PRIu64 ", and MANIFEST.done says that save %" PRIu64
                 " took place: an older one has been put here",
                 check->save.generation, done);
    return check->damaged || done > check->save.generation ? TOOL_FAILED : TOOL_OK;
}

/* ---- files that the log names --------------------------------------------------------------------------------------- */

static void drop_contents(struct check *check, uint64_t id)
{
    struct contents *contents = id ? id_map_remove(&check->contents, id) : NULL;

    if (contents)
        free(contents->record);
    free(contents);
}

static void drop_all_contents(struct check *check)
{
    for (size_t i = 0; i < check->contents.nslots;) {
        if (check->contents.slots[i].id)
            drop_contents(check, check->contents.slots[i].id); /* another may be in this slot now */
        else
            i++;
    }
}

/* What a save has dealt with is in the MANIFEST. */
static int note_contents(struct check *check, uint64_t number, const struct log_control *control)
{
    if (number <= check->save.control)
        return 0;
    drop_contents(check, control->replaced_id);
    if (control->kind == LOG_CLEAR)
        drop_all_contents(check);
    if (control->kind == LOG_DELETE || control->kind == LOG_FORGET || control->kind == LOG_LOADED ||
        control->kind == LOG_FILLED)
        drop_contents(check, control->id);
    if (control->kind != LOG_LOADED)
        return 0;
    struct contents *contents = calloc(1, sizeof(*contents));
    char *record = malloc(control->record_len + 1);
    if (!contents || !record || id_map_set(&check->contents, control->id, contents) != 0) {
        free(contents);
        free(record);
        return -ENOMEM;
    }
    memcpy(record, control->record, control->record_len);
    *contents = (struct contents){record, control->record_len};
    return 0;
}

static int on_record(void *ctx, const struct manifest_filter *filter, uint64_t offset, struct errbuf *err)
{
    struct check *check = ctx;

    (void)offset, (void)err;
    if (!id_map_has(&check->saved, filter->id))
        check_filter(check, filter);
    return 0;
}

static int check_contents(struct check *check)
{
    const struct manifest_sink sink = {.on_filter = on_record, .on_removed = on_removed, .ctx = check};
    uint64_t before = check->damaged;

    for (size_t i = 0; i < check->contents.nslots; i++) {
        const struct contents *contents = check->contents.slots[i].value;
        struct manifest_parser parser;
        struct errbuf err = {{0}};

        if (!check->contents.slots[i].id)
            continue;
        int rc = manifest_parser_init_at(&parser, &sink, 0);
        if (rc == 0)
            rc = manifest_parser_feed(&parser, contents->record, contents->len, &err);
        manifest_parser_deinit(&parser);
        if (rc == 0)
            continue;
        complain("log: the record of filter %" PRIu64 ": %s", check->contents.slots[i].id, rc < 0 ? strerror(-rc) : err.text);
        check->damaged++;
    }
    return check->damaged == before ? TOOL_OK : TOOL_FAILED;
}

/* ---- the log -------------------------------------------------------------------------------------------------------- */

static int on_control(void *ctx, uint64_t number, const struct log_control *control, struct errbuf *err)
{
    struct check *check = ctx;
    uint64_t *const counters[] = {
        [LOG_CREATE] = &check->creates, [LOG_LOADED] = &check->loads,    [LOG_DELETE] = &check->deletes,
        [LOG_RENAME] = &check->renames, [LOG_EXPIRY] = &check->expiries, [LOG_CLEAR] = &check->clears,
        [LOG_GROW] = &check->grows,     [LOG_FORGET] = &check->deletes, [LOG_BREAK] = &check->breaks,
        [LOG_FILLED] = &check->loads,
    };

    (void)err;
    ++*counters[control->kind];
    return note_contents(check, number, control);
}

static void on_report(void *ctx, enum store_severity severity, const char *text)
{
    (void)ctx, (void)severity;
    complain("log: %s", text);
}

static int check_log(struct check *check)
{
    struct log_reader_options options = {
        .fs = check->fs,
        .dir = check->datadir,
        .from = check->save.log,
        .reached = check->save.frame,
        .accepted = check->save.accepted,
        .accept_loss = true, /* to show all of it */
        .report = on_report,
        .on_control = on_control,
        .ctx = check,
    };
    struct log_reader_summary sum;
    struct log_reader *reader = NULL;
    struct errbuf err = {{0}};
    int rc = log_reader_open(&options, &reader, &sum, &err);

    log_reader_close(reader);
    if (rc != 0) {
        complain("log: %s", err.text);
        return TOOL_FAILED;
    }
    printf("log: %" PRIu64 " segments from number %" PRIu64 " on, %" PRIu64 " frames, %" PRIu64 " bytes, %" PRIu64
           " adds, %" PRIu64 " control records\n",
           sum.segments, sum.first_segment, sum.frames, sum.bytes, sum.adds, sum.controls);
    if (sum.controls)
        printf("log: %" PRIu64 " filters created, %" PRIu64 " loaded, %" PRIu64 " deleted, %" PRIu64 " renamed, %" PRIu64
               " given another time, %" PRIu64 " times all deleted, %" PRIu64 " layers\n",
               check->creates, check->loads, check->deletes, check->renames, check->expiries, check->clears, check->grows);
    if (check->breaks)
        printf("log: %" PRIu64 " places where it was switched on, or went on after something it could not take\n", check->breaks);
    if (sum.torn_bytes)
        printf("log: a tail of %" PRIu64 " bytes had not been synced and will be cut by the next start\n", sum.torn_bytes);
    if (sum.damages)
        printf("log: damaged in %" PRIu64 " places; the daemon starts without what is lost with --aof-load-damaged yes\n",
               sum.damages);
    int status = check_contents(check);
    return sum.damages ? TOOL_FAILED : status;
}

/* ---- the whole ------------------------------------------------------------------------------------------------------ */

int tool_check(int argc, char **argv)
{
    struct tool_option options[] = {{.name = NULL}};
    struct check check = {.fs = fsops_posix()};
    int fd;
    int status = tool_arguments(argc, argv, options, &check.datadir, 1);

    if (status != TOOL_OK)
        return status;
    status = tool_lock(COMMAND, check.datadir, &fd);
    if (status != TOOL_OK)
        return status;
    check.piece = malloc(PIECE_BYTES);
    pack_reader_init(&check.packs, check.fs, check.datadir);
    status = check.piece ? check_manifest(&check) : tool_failed(COMMAND, "%s", strerror(ENOMEM));
    if (check_log(&check) != TOOL_OK)
        status = TOOL_FAILED;
    drop_all_contents(&check);
    id_map_deinit(&check.contents);
    id_map_deinit(&check.saved);
    free(check.piece);
    pack_reader_deinit(&check.packs);
    if (fd >= 0)
        check.fs->close(check.fs->ctx, fd);
    printf(status == TOOL_OK ? "whole\n" : "not whole\n");
    return status;
}
