/* bloomery check: verifies a data directory to the last byte without changing it: the MANIFEST, the log, and the files
 * of all filters that exist after the log's last record. A directory that passes starts with no filter in quarantine;
 * one that fails does not start, or starts with filters in quarantine. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "check_filter.h"
#include "clock.h"
#include "filterdb.h"
#include "fsops.h"
#include "id_map.h"
#include "log_payload.h"
#include "log_history.h"
#include "log_reader.h"
#include "log_text.h"
#include "manifest.h"
#include "name_code.h"
#include "output.h"
#include "store_loader.h"

#define COMMAND "check"

/* Of the MANIFEST. */
struct inventory {
    struct manifest_save save;
    uint64_t filters, layers, items, bytes;
};

struct log_inventory {
    struct log_reader_summary sum;
    uint64_t creates, loads, deletes, renames, expiries, clears, grows, breaks, swaps;
};

struct findings {
    uint64_t looked_at;  /* layers */
    uint64_t damaged;    /* of these */
    uint64_t impossible; /* filters that are impossible, alone or beside another one */
    uint64_t gone;       /* filters that were deleted or have expired since their save */
};

struct check {
    const char *datadir;
    const struct fsops *fs;
    struct filter_checker checker;
    struct progress progress;
    struct log_history *history;
    struct inventory manifest;
    struct log_inventory log;
    struct findings found;
    int64_t now_ms;
    struct id_map saved;    /* filters of the MANIFEST; no values */
    struct id_map contents; /* struct contents: filters of the log whose contents are in files */
    struct id_map names;    /* hashes of the names of filters that exist in the end; no values */
    struct output out;
    struct buf problems; /* JSON strings; empty without --json, where stderr alone has them */
};

struct contents {
    char *record;
    size_t len;
};

static void complain(struct check *check, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Writes a line to stderr, and adds it to the problems of the JSON. */
static void complain(struct check *check, const char *fmt, ...)
{
    char text[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    progress_hide(&check->progress);
    fprintf(stderr, "%s%s%s\n", terminal_colour(TERMINAL_RED), text, terminal_colour(TERMINAL_PLAIN));
    if (check->out.json)
        output_string(&check->problems, NULL, text);
}

/* A line of the report for readers. */
__attribute__((format(printf, 2, 3))) static void say(const struct check *check, const char *fmt, ...)
{
    va_list args;

    if (check->out.json)
        return;
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
}

/* ---- filters ---- */

/* The name as in the MANIFEST, truncated if it is long. */
static void print_name(const struct store_filter *info, char *out, size_t size)
{
    size_t prefix = database_prefix_of_key(info->name, info->name_len), shown = info->name_len - prefix;
    size_t len = shown < size / 3 - 2 ? shown : size / 3 - 2;

    name_encode(info->name + prefix, len, out);
    strcpy(out + name_encoded_len(info->name + prefix, len), len < shown ? "..." : "");
}

static void complain_of(struct check *check, uint64_t *counter, const struct store_filter *info, const char *why)
{
    char name[256];

    ++*counter;
    print_name(info, name, sizeof(name));
    complain(check, "damaged: filter '%s', id %" PRIu64 ": %s", name, info->id, why);
}

/* Notes the name: a second filter of the same name could not be found. 0 or -ENOMEM. */
static int take_name(struct check *check, const struct store_filter *info)
{
    uint64_t hash = XXH3_64bits(info->name, info->name_len);

    hash += hash == 0;
    if (id_map_has(&check->names, hash))
        complain_of(check, &check->found.impossible, info, "another filter has the same name");
    return id_map_set(&check->names, hash, NULL);
}

static void check_layers(struct check *check, const struct manifest_filter *filter, const struct store_filter *info)
{
    uint64_t offset = filter->pack_offset; /* if it is in a pack */
    struct errbuf why = {{0}};

    for (unsigned i = 0; i < filter->nlayers; i++) {
        check->found.looked_at++;
        if (!filter_layer_is_whole(&check->checker, filter, i, offset, &why))
            complain_of(check, &check->found.damaged, info, why.text);
        offset += filterdb_bytes(filter->layers[i].shape.nwords);
    }
}

/* The layers that the log adds to the filter. NULL: none. */
static const struct log_filter *growth(const struct check *check, const struct log_filter *logged)
{
    return logged && !log_history_growth_is_settled(check->history, logged) ? logged : NULL;
}

/* Checks the shape that the filter has after the log's replay. */
static void check_shape(struct check *check, const struct manifest_filter *filter, const struct store_filter *info)
{
    const struct log_filter *logged = log_history_get(check->history, filter->id);
    struct bloom_shape shapes[BLOOM_MAX_LAYERS];
    struct errbuf why = {{0}};

    for (unsigned i = 0; i < filter->nlayers; i++)
        shapes[i] = filter->layers[i].shape;
    if (!filter_shape_is_possible(&check->checker, &filter->params, shapes, filter->nlayers, growth(check, logged),
                                  &why))
        complain_of(check, &check->found.impossible, info, why.text);
}

/* Checks a filter of the MANIFEST or of a record of the log. 0 or -ENOMEM. */
static int check_filter(struct check *check, const struct manifest_filter *filter)
{
    struct store_filter info = {
        .id = filter->id, .name = filter->name, .name_len = filter->name_len, .expires_ms = filter->expires_ms};
    bool there = log_history_resolve(check->history, &info);

    if (!there || (info.expires_ms != 0 && info.expires_ms <= check->now_ms)) {
        check->found.gone++;
        return 0;
    }
    check_shape(check, filter, &info);
    check_layers(check, filter, &info);
    return take_name(check, &info);
}

/* Whether the filter that a record creates, empty or with contents, is possible. */
static bool can_be_created(struct check *check, const struct log_filter *logged, struct errbuf *why)
{
    struct bloom_shape shapes[BLOOM_MAX_LAYERS] = {logged->shape};
    struct log_contents contents = {.nlayers = 1};

    if (logged->contents && log_contents_decode(logged->contents, logged->contents_len, &contents)) {
        for (unsigned i = 0; i < contents.nlayers; i++)
            shapes[i] = contents.layers[i].shape;
    }
    return filter_shape_is_possible(&check->checker, &logged->params, shapes, contents.nlayers, growth(check, logged),
                                    why);
}

static int check_created(struct check *check)
{
    const struct log_filter *logged;
    struct log_history_place at = {NULL, 0};
    int rc = 0;

    while (rc == 0 && (logged = log_history_next(check->history, &at))) {
        const struct store_filter info = {.id = logged->id, .name = logged->name, .name_len = logged->name_len};
        struct errbuf why = {{0}};
        if (logged->gone || !logged->created || id_map_has(&check->saved, logged->id) ||
            id_map_has(&check->contents, logged->id) ||
            (logged->expires_ms != 0 && logged->expires_ms <= check->now_ms))
            continue;
        if (!can_be_created(check, logged, &why))
            complain_of(check, &check->found.impossible, &info, why.text);
        rc = take_name(check, &info);
    }
    return rc;
}

/* The databases of the save after the exchanges of the log. */
static void check_databases(struct check *check)
{
    log_history_databases(check->history, &check->manifest.save.databases);
    if (databases_are_valid(&check->manifest.save.databases))
        return;
    check->found.impossible++;
    complain(check, "damaged: in the log two database numbers mean the same database");
}

/* ---- the MANIFEST ---- */

static int count_filter(void *ctx, const struct manifest_filter *filter, struct errbuf *err)
{
    struct check *check = ctx;
    struct inventory *manifest = &check->manifest;

    (void)err;
    manifest->filters++;
    for (unsigned i = 0; i < filter->nlayers; i++) {
        manifest->layers++;
        manifest->items += filter->layers[i].items - filter->layers[i].turn.base;
        manifest->bytes += filterdb_bytes(filter->layers[i].shape.nwords);
    }
    return id_map_set(&check->saved, filter->id, NULL);
}

static int on_filter(void *ctx, const struct manifest_filter *filter, struct errbuf *err)
{
    (void)err;
    return check_filter(ctx, filter);
}

/* Checks the MANIFEST without the files that it names. TOOL_OK, or TOOL_FAILED after a message. */
static int check_manifest(struct check *check)
{
    const struct manifest_sink sink = {.on_filter = count_filter, .ctx = check};
    struct errbuf err = {{0}};

    if (tool_read_manifest(check->datadir, &sink, &check->manifest.save, &err) != 0) {
        complain(check, "%s", err.text);
        return TOOL_FAILED;
    }
    /* A valid line may still contradict another one. */
    if (store_visit(check->datadir, NULL, NULL, NULL, &err) != 0) {
        complain(check, "damaged: %s", err.text);
        return TOOL_FAILED;
    }
    say(check, "MANIFEST: save %" PRIu64 ", %s, %s, %s, %" PRIu64 " bytes\n", check->manifest.save.number,
        log_count(check->manifest.filters, "filter").text, log_count(check->manifest.layers, "layer").text,
        log_count(check->manifest.items, "item").text, check->manifest.bytes);
    return TOOL_OK;
}

/* ---- the log ---- */

static void drop_contents(struct check *check, uint64_t id)
{
    struct contents *contents = id_map_remove(&check->contents, id);

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
    id_map_deinit(&check->contents);
}

static int on_written(void *ctx, const struct log_control *control, struct errbuf *err)
{
    struct check *check = ctx;
    uint64_t id;
    int rc = store_record_id(control->record, control->record_len, &id, err);

    if (rc != 0)
        return rc == STORE_DAMAGED ? LOG_DAMAGED : rc;
    drop_contents(check, id); /* the same record again */
    struct contents *contents = calloc(1, sizeof(*contents));
    char *record = malloc(control->record_len + 1);
    if (!contents || !record || id_map_set(&check->contents, id, contents) != 0) {
        free(contents);
        free(record);
        return -ENOMEM;
    }
    memcpy(record, control->record, control->record_len);
    *contents = (struct contents){record, control->record_len};
    return 0;
}

static int on_control(void *ctx, uint64_t number, const struct log_control *control, struct errbuf *err)
{
    struct check *check = ctx;
    struct log_inventory *log = &check->log;
    uint64_t *const counters[] = {
        [LOG_CREATE] = &log->creates, [LOG_LOADED] = &log->loads,    [LOG_DELETE] = &log->deletes,
        [LOG_RENAME] = &log->renames, [LOG_EXPIRY] = &log->expiries, [LOG_CLEAR] = &log->clears,
        [LOG_GROW] = &log->grows,     [LOG_FORGET] = &log->deletes,  [LOG_BREAK] = &log->breaks,
        [LOG_FILLED] = &log->loads,   [LOG_SWAP] = &log->swaps,      [LOG_CLEAR_DATABASE] = &log->clears,
        [LOG_TURN] = &log->grows,
    };

    ++*counters[control->kind];
    return log_history_control(check->history, number, control, err);
}

static void on_process(void *ctx)
{
    log_history_process(((struct check *)ctx)->history);
}

static void on_report(void *ctx, enum store_severity severity, const char *text)
{
    (void)severity;
    complain(ctx, "log: %s", text);
}

static void print_log(const struct check *check)
{
    const struct log_inventory *log = &check->log;
    const struct log_reader_summary *sum = &log->sum;

    say(check, "log: %s from number %" PRIu64 " on, %s, %" PRIu64 " bytes, %s, %s\n",
        log_count(sum->segments, "segment").text, sum->first_segment, log_count(sum->frames, "frame").text, sum->bytes,
        log_count(sum->adds, "add").text, log_count(sum->controls, "control record").text);
    if (sum->controls)
        say(check,
            "log: %s created, %" PRIu64 " loaded, %" PRIu64 " deleted, %" PRIu64 " renamed, %" PRIu64
            " given another time, %s all deleted, %s\n",
            log_count(log->creates, "filter").text, log->loads, log->deletes, log->renames, log->expiries,
            log_count(log->clears, "time").text, log_count(log->grows, "layer").text);
    if (log->swaps)
        say(check, "log: %s two databases were exchanged\n", log_count(log->swaps, "time").text);
    if (log->breaks)
        say(check, "log: %s where it was switched on, or continued after a lost record\n",
            log_count(log->breaks, "place").text);
    if (log_history_unjoined(check->history))
        say(check, "log: %" PRIu64 " control records depend on a save that does not exist, and are skipped\n",
            log_history_unjoined(check->history));
    if (sum->torn_bytes)
        say(check,
            "log: at its end %" PRIu64
            " bytes are invalid and not known to be synced: the next start will cut them and keep them in a file\n",
            sum->torn_bytes);
    if (sum->accepted)
        say(check, "log: damaged in %" PRIu64 " places whose loss has been accepted\n", sum->accepted);
    if (sum->damages)
        say(check,
            "log: damaged in %" PRIu64 " places; --aof-load-damaged yes starts the daemon without the lost changes\n",
            sum->damages);
}

static void on_log_bytes(void *ctx, uint64_t bytes)
{
    progress_add(ctx, bytes);
}

static int check_log(struct check *check)
{
    struct log_reader_options options = {
        .fs = check->fs,
        .dir = check->datadir,
        .from = check->manifest.save.log,
        .reached = check->manifest.save.frame,
        .accepted = check->manifest.save.accepted,
        .on_damage = LOG_EXAMINE,
        .progress = on_log_bytes,
        .progress_ctx = &check->progress,
        .report = on_report,
        .report_ctx = check,
        .on_control = on_control,
        .on_process = on_process,
        .ctx = check,
    };
    struct log_reader *reader = NULL;
    struct errbuf err = {{0}};
    uint64_t on_disk = 0;

    (void)log_bytes_on_disk(check->fs, check->datadir, check->manifest.save.log, &on_disk);
    progress_begin(&check->progress, "reading the log", on_disk);
    int rc = log_reader_open(&options, &reader, &check->log.sum, &err);
    progress_end(&check->progress);
    log_reader_close(reader);
    if (rc != 0) {
        complain(check, "log: %s", err.text);
        return TOOL_FAILED;
    }
    print_log(check);
    return check->log.sum.damages ? TOOL_FAILED : TOOL_OK;
}

/* ---- the state after the log ---- */

static int check_contents(struct check *check)
{
    const struct manifest_sink sink = {.on_filter = on_filter, .ctx = check};
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < check->contents.nslots; i++) {
        const struct contents *contents = check->contents.slots[i].value;
        struct manifest_parser parser;
        struct errbuf err = {{0}};

        if (!contents || id_map_has(&check->saved, check->contents.slots[i].id))
            continue;
        manifest_parser_init_at(&parser, &sink, 0);
        rc = manifest_parser_feed(&parser, contents->record, contents->len, &err);
        manifest_parser_deinit(&parser);
    }
    return rc;
}

static int check_filters(struct check *check)
{
    const struct manifest_sink sink = {.on_filter = on_filter, .ctx = check};
    struct errbuf err = {{0}};
    int created = 0;

    progress_begin(&check->progress, "reading filters", check->manifest.bytes);
    int rc = tool_read_manifest(check->datadir, &sink, NULL, &err);
    if (rc == 0 && (created = check_contents(check)) == 0)
        created = check_created(check);
    check_databases(check);
    progress_end(&check->progress);
    if (rc == 0 && created == 0) {
        say(check, "files: %" PRIu64 " whole, %" PRIu64 " damaged or missing\n",
            check->found.looked_at - check->found.damaged, check->found.damaged);
        if (check->found.gone)
            say(check,
                "filters: %" PRIu64
                " were deleted or have expired since they were saved: their files are not checked\n",
                check->found.gone);
        return check->found.damaged || check->found.impossible ? TOOL_FAILED : TOOL_OK;
    }
    complain(check, "%s", rc != 0 ? err.text : strerror(ENOMEM));
    return TOOL_FAILED;
}

/* Checks the directory of the files. */
static int check_tree(struct check *check)
{
    struct fs_stat root, filters;
    char path[4096];

    snprintf(path, sizeof(path), "%s/.", check->datadir); /* symbolic links are followed, as by the daemon */
    int rc = check->fs->stat(check->fs->ctx, path, &root);
    snprintf(path, sizeof(path), "%s/filters/.", check->datadir);
    STEP(rc, check->fs->stat(check->fs->ctx, path, &filters));
    if (rc == -ENOENT || (rc == 0 && filters.device == root.device))
        return TOOL_OK;
    complain(check, "damaged: %s/filters: %s", check->datadir,
             rc != 0 ? strerror(-rc) : "it is not on the file system of the data directory");
    return TOOL_FAILED;
}

static int look_at_keys(struct check *check)
{
    struct errbuf err = {{0}};

    if (check_keys(check->datadir, !check->out.json, &err) == 0)
        return TOOL_OK;
    complain(check, "damaged: %s", err.text);
    return TOOL_FAILED;
}

/* ---- the whole ---- */

static int check_all(struct check *check)
{
    int manifest = check_manifest(check);
    const struct log_history_options options = {.control = check->manifest.save.control,
                                                .accepted = check->manifest.save.accepted != 0,
                                                .on_written = on_written,
                                                .ctx = check};

    if (filter_checker_init(&check->checker, check->datadir, &check->progress) != 0 ||
        log_history_create(&check->history, &options) != 0)
        return tool_failed(COMMAND, "%s", strerror(ENOMEM));
    int tree = check_tree(check), keys = look_at_keys(check);
    int log = manifest == TOOL_OK ? check_log(check) : TOOL_FAILED; /* otherwise it is not known where the log begins */
    int filters = manifest == TOOL_OK ? check_filters(check) : TOOL_FAILED;
    return tree == TOOL_OK && keys == TOOL_OK && log == TOOL_OK ? filters : TOOL_FAILED;
}

/* ---- as JSON ---- */

static void print_json(struct check *check, struct buf *json, bool whole)
{
    const struct inventory *saved = &check->manifest;
    const struct log_reader_summary *log = &check->log.sum;

    json_bool(json, "whole", whole);
    json_begin(json, "manifest", '{');
    JSON_COUNTS(json, {"save", saved->save.number}, {"filters", saved->filters}, {"layers", saved->layers},
                {"items", saved->items}, {"bytes", saved->bytes});
    json_end(json, '}');
    json_begin(json, "log", '{');
    JSON_COUNTS(json, {"segments", log->segments}, {"frames", log->frames}, {"bytes", log->bytes}, {"adds", log->adds},
                {"controls", log->controls}, {"torn_bytes", log->torn_bytes}, {"damages", log->damages},
                {"accepted", log->accepted});
    json_end(json, '}');
    json_begin(json, "files", '{');
    JSON_COUNTS(json, {"whole", check->found.looked_at - check->found.damaged}, {"damaged", check->found.damaged});
    json_end(json, '}');
    json_count(json, "impossible", check->found.impossible);
    json_begin(json, "problems", '[');
    buf_append(json, buf_head(&check->problems), buf_len(&check->problems));
    json_end(json, ']');
    json_end(json, '}');
}

/* ---- the command ---- */

static int run_locked(struct check *check)
{
    int status = check_all(check);

    drop_all_contents(check);
    id_map_deinit(&check->saved);
    id_map_deinit(&check->names);
    log_history_destroy(check->history);
    filter_checker_deinit(&check->checker);
    return status;
}

static int run_check(const struct tool_args *args)
{
    struct check check = {.fs = fsops_posix(), .now_ms = clock_unix_ms(), .datadir = args->positional[0]};
    struct errbuf err = {{0}};
    int fd;

    output_begin(&check.out, args, false);
    buf_init(&check.problems, SIZE_MAX);
    int status = tool_lock(COMMAND, check.datadir, &fd, &err);
    if (status == TOOL_OK)
        status = run_locked(&check);
    else if (check.out.json)
        complain(&check, "%s", err.text);
    else
        return tool_failed(COMMAND, "%s", err.text);
    if (fd >= 0)
        check.fs->close(check.fs->ctx, fd);
    struct buf *json = output_object(&check.out);
    if (json)
        print_json(&check, json, status == TOOL_OK);
    else
        printf("%s\n", status == TOOL_OK ? "whole" : "not whole");
    buf_deinit(&check.problems);
    return output_end(&check.out, status);
}

static const struct tool_option options[] = {
    {.name = "--json",
     .doc = "One object: whole (true or false), manifest, log, files, impossible, and problems, the lines of stderr."},
    {.name = NULL},
};

const struct tool_command tool_check_command = {
    .name = COMMAND,
    .arguments = "DATADIR",
    .summary = "Verifies a data directory: MANIFEST, files, log. Changes nothing.",
    .text = "The daemon must not be running on DATADIR. The command reads every needed byte and compares it with its "
            "checksum. It prints an inventory; stderr has a line for each damaged or missing item. Exit status 0: "
            "everything is whole (the unsynced tail of a log is not damage); 1: something is damaged or "
            "missing.\n\nA damaged file costs only its filter: the daemon "
            "quarantines it. A damaged log stops the start, until it is "
            "restored from a backup or the loss is accepted: bloomeryd --aof-load-damaged yes.",
    .options = options,
    .examples = "cp -a /var/lib/bloomery copy && bloomery check copy --json | jq .whole",
    .run = run_check,
};
