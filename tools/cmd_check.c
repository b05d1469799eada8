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
#include "filterdb.h"
#include "fsops.h"
#include "id_map.h"
#include "log_contents.h"
#include "log_history.h"
#include "log_reader.h"
#include "manifest.h"
#include "name_code.h"
#include "progress.h"
#include "store.h"
#include "terminal.h"
#include "tool.h"
#include "tool_clock.h"

#define COMMAND "check"

struct check {
    const char *datadir;
    const struct fsops *fs;
    struct filter_checker checker;
    struct progress progress;
    struct log_history *history;
    struct manifest_save save;
    uint64_t filters, layers, items, bytes; /* of the MANIFEST */
    uint64_t looked_at;                     /* layers */
    uint64_t damaged;                       /* of these */
    uint64_t impossible;                    /* filters that are impossible, alone or beside another one */
    uint64_t gone;                          /* filters that were deleted or have expired since their save */
    int64_t now_ms;
    struct id_map saved;    /* filters of the MANIFEST; no values */
    struct id_map contents; /* struct contents: filters of the log whose contents are in files */
    struct id_map names;    /* hashes of the names of filters that exist in the end; no values */
    uint64_t creates, loads, deletes, renames, expiries, clears, grows, breaks, swaps;
    struct log_reader_summary log;
    FILE *problems; /* as JSON strings; NULL: the report is for readers */
    uint64_t nproblems;
};

struct contents {
    char *record;
    size_t len;
};

static void complain(struct check *check, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A line on stderr; and one of the problems of the JSON. */
static void complain(struct check *check, const char *fmt, ...)
{
    char text[1024];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    progress_hide(&check->progress);
    fprintf(stderr, "%s%s%s\n", terminal_colour(TERMINAL_RED), text, terminal_colour(TERMINAL_PLAIN));
    if (!check->problems)
        return;
    fputs(check->nproblems++ ? ", " : "", check->problems);
    tool_print_json(check->problems, text, strlen(text));
}

/* A line of the report for readers. */
static void say(const struct check *check, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void say(const struct check *check, const char *fmt, ...)
{
    va_list args;

    if (check->problems)
        return;
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
}

/* ---- filters ---- */

/* The name as in the MANIFEST, cut when it is long. */
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
        complain_of(check, &check->impossible, info, "another filter has the same name");
    return id_map_set(&check->names, hash, NULL);
}

static void check_layers(struct check *check, const struct manifest_filter *filter, const struct store_filter *info)
{
    uint64_t offset = filter->pack_offset; /* if it is in a pack */
    struct errbuf why = {{0}};

    for (unsigned i = 0; i < filter->nlayers; i++) {
        check->looked_at++;
        if (!filter_layer_is_whole(&check->checker, filter, i, offset, &why))
            complain_of(check, &check->damaged, info, why.text);
        offset += filterdb_bytes(filter->layers[i].nwords);
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
        manifest_get_shape(filter, i, &shapes[i]);
    if (!filter_shape_is_possible(&check->checker, &filter->params, shapes, filter->nlayers, growth(check, logged),
                                  &why))
        complain_of(check, &check->impossible, info, why.text);
}

/* Checks a filter of the MANIFEST or of a record of the log. 0 or -ENOMEM. */
static int check_filter(struct check *check, const struct manifest_filter *filter)
{
    struct store_filter info = {
        .id = filter->id, .name = filter->name, .name_len = filter->name_len, .expires_ms = filter->expires_ms};
    enum store_fate fate = log_history_resolve(check->history, &info);

    if (fate != STORE_KEPT || (info.expires_ms != 0 && info.expires_ms <= check->now_ms)) {
        check->gone++;
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
        if (logged->fate != STORE_KEPT || !logged->created || id_map_has(&check->saved, logged->id) ||
            id_map_has(&check->contents, logged->id) ||
            (logged->expires_ms != 0 && logged->expires_ms <= check->now_ms))
            continue;
        if (!can_be_created(check, logged, &why))
            complain_of(check, &check->impossible, &info, why.text);
        rc = take_name(check, &info);
    }
    return rc;
}

/* Those of the save as the log has exchanged them. */
static void check_databases(struct check *check)
{
    log_history_databases(check->history, &check->save.databases);
    if (databases_are_valid(&check->save.databases))
        return;
    check->impossible++;
    complain(check, "damaged: by the log two numbers of databases stand for the same one");
}

/* ---- the MANIFEST ---- */

static int count_filter(void *ctx, const struct manifest_filter *filter, struct errbuf *err)
{
    struct check *check = ctx;

    (void)err;
    check->filters++;
    for (unsigned i = 0; i < filter->nlayers; i++) {
        check->layers++;
        check->items += filter->layers[i].items - filter->layers[i].turn.base;
        check->bytes += filterdb_bytes(filter->layers[i].nwords);
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

    if (tool_read_manifest(check->datadir, &sink, &check->save, &err) != 0) {
        complain(check, "%s", err.text);
        return TOOL_FAILED;
    }
    /* A line may be right and yet contradict another one. */
    if (store_verify(check->datadir, NULL, &err) != 0) {
        complain(check, "damaged: %s", err.text);
        return TOOL_FAILED;
    }
    say(check,
        "MANIFEST: save %" PRIu64 ", %" PRIu64 " filters, %" PRIu64 " layers, %" PRIu64 " items, %" PRIu64 " bytes\n",
        check->save.number, check->filters, check->layers, check->items, check->bytes);
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
    drop_contents(check, id); /* the same record once more */
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
    uint64_t *const counters[] = {
        [LOG_CREATE] = &check->creates, [LOG_LOADED] = &check->loads,    [LOG_DELETE] = &check->deletes,
        [LOG_RENAME] = &check->renames, [LOG_EXPIRY] = &check->expiries, [LOG_CLEAR] = &check->clears,
        [LOG_GROW] = &check->grows,     [LOG_FORGET] = &check->deletes,  [LOG_BREAK] = &check->breaks,
        [LOG_FILLED] = &check->loads,   [LOG_SWAP] = &check->swaps,      [LOG_CLEAR_DATABASE] = &check->clears,
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

static void print_log(const struct check *check, const struct log_reader_summary *sum)
{
    say(check,
        "log: %" PRIu64 " segments from number %" PRIu64 " on, %" PRIu64 " frames, %" PRIu64 " bytes, %" PRIu64
        " adds, %" PRIu64 " control records\n",
        sum->segments, sum->first_segment, sum->frames, sum->bytes, sum->adds, sum->controls);
    if (sum->controls)
        say(check,
            "log: %" PRIu64 " filters created, %" PRIu64 " loaded, %" PRIu64 " deleted, %" PRIu64 " renamed, %" PRIu64
            " given another time, %" PRIu64 " times all deleted, %" PRIu64 " layers\n",
            check->creates, check->loads, check->deletes, check->renames, check->expiries, check->clears, check->grows);
    if (check->swaps)
        say(check, "log: %" PRIu64 " times two databases were exchanged\n", check->swaps);
    if (check->breaks)
        say(check, "log: %" PRIu64 " places where it was switched on, or went on after something it could not take\n",
            check->breaks);
    if (log_history_unjoined(check->history))
        say(check, "log: %" PRIu64 " control records hold only with a save that was not made, and are passed over\n",
            log_history_unjoined(check->history));
    if (sum->torn_bytes)
        say(check,
            "log: at its end %" PRIu64
            " bytes are not valid, and nothing says that they had been synced: they will be cut by the next start, "
            "which keeps them as a file\n",
            sum->torn_bytes);
    if (sum->accepted)
        say(check, "log: damaged in %" PRIu64 " places of which the loss has been accepted\n", sum->accepted);
    if (sum->damages)
        say(check,
            "log: damaged in %" PRIu64 " places; the daemon starts without what is lost with --aof-load-damaged yes\n",
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
        .from = check->save.log,
        .reached = check->save.frame,
        .accepted = check->save.accepted,
        .on_damage = LOG_EXAMINE,
        .progress = on_log_bytes,
        .progress_ctx = &check->progress,
        .report = on_report,
        .report_ctx = check,
        .on_control = on_control,
        .on_process = on_process,
        .ctx = check,
    };
    struct log_reader_summary sum;
    struct log_reader *reader = NULL;
    struct errbuf err = {{0}};
    uint64_t on_disk = 0;

    (void)log_bytes_on_disk(check->fs, check->datadir, check->save.log, &on_disk); /* unknown: a line without a bar */
    progress_begin(&check->progress, "reading the log", on_disk);
    int rc = log_reader_open(&options, &reader, &sum, &err);
    progress_end(&check->progress);
    log_reader_close(reader);
    if (rc != 0) {
        complain(check, "log: %s", err.text);
        return TOOL_FAILED;
    }
    check->log = sum;
    print_log(check, &sum);
    return sum.damages ? TOOL_FAILED : TOOL_OK;
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

    progress_begin(&check->progress, "reading filters", check->bytes);
    int rc = tool_read_manifest(check->datadir, &sink, NULL, &err);
    if (rc == 0 && (created = check_contents(check)) == 0)
        created = check_created(check);
    check_databases(check);
    progress_end(&check->progress);
    if (rc == 0 && created == 0) {
        say(check, "files: %" PRIu64 " whole, %" PRIu64 " damaged or missing\n", check->looked_at - check->damaged,
            check->damaged);
        if (check->gone)
            say(check,
                "filters: %" PRIu64
                " were deleted or have expired since they were saved: their files are not looked at\n",
                check->gone);
        return check->damaged || check->impossible ? TOOL_FAILED : TOOL_OK;
    }
    complain(check, "%s", rc != 0 ? err.text : strerror(ENOMEM));
    return TOOL_FAILED;
}

/* Checks the directories of saves, and looks for foreign files in them. */
static int check_tree(struct check *check)
{
    struct fs_stat root, filters;
    char path[4096];

    snprintf(path, sizeof(path), "%s/filters", check->datadir);
    int rc = check->fs->stat(check->fs->ctx, check->datadir, &root);
    if (rc == 0)
        rc = check->fs->stat(check->fs->ctx, path, &filters);
    if (rc == -ENOENT || (rc == 0 && filters.kind == FS_DIRECTORY && filters.device == root.device))
        return TOOL_OK;
    complain(check, "damaged: %s: %s", path,
             rc != 0                        ? strerror(-rc)
             : filters.kind != FS_DIRECTORY ? "it is no directory"
                                            : "it is on another file system than the rest of the data directory");
    return TOOL_FAILED;
}

/* ---- the whole ---- */

static int check_all(struct check *check)
{
    int manifest = check_manifest(check);
    const struct log_history_options options = {
        .control = check->save.control, .accepted = check->save.accepted != 0, .on_written = on_written, .ctx = check};

    if (filter_checker_init(&check->checker, check->datadir, &check->progress) != 0 ||
        log_history_create(&check->history, &options) != 0)
        return tool_failed(COMMAND, "%s", strerror(ENOMEM));
    int tree = check_tree(check);
    int log = check_log(check);
    int filters = manifest == TOOL_OK ? check_filters(check) : TOOL_FAILED;
    return tree == TOOL_OK && log == TOOL_OK ? filters : TOOL_FAILED;
}

/* ---- as JSON ---- */

static void print_json(const struct check *check, const char *problems, bool whole)
{
    printf("{\"whole\": %s,\n \"manifest\": {\"save\": %" PRIu64 ", \"filters\": %" PRIu64 ", \"layers\": %" PRIu64
           ", \"items\": %" PRIu64 ", \"bytes\": %" PRIu64 "},\n",
           whole ? "true" : "false", check->save.number, check->filters, check->layers, check->items, check->bytes);
    printf(" \"log\": {\"segments\": %" PRIu64 ", \"frames\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"adds\": %" PRIu64
           ", \"controls\": %" PRIu64 ", \"torn_bytes\": %" PRIu64 ", \"damages\": %" PRIu64 ", \"accepted\": %" PRIu64
           "},\n",
           check->log.segments, check->log.frames, check->log.bytes, check->log.adds, check->log.controls,
           check->log.torn_bytes, check->log.damages, check->log.accepted);
    printf(" \"files\": {\"whole\": %" PRIu64 ", \"damaged\": %" PRIu64 "},\n \"impossible\": %" PRIu64
           ",\n \"problems\": [%s]}\n",
           check->looked_at - check->damaged, check->damaged, check->impossible, problems);
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

static int run(const struct tool_args *args)
{
    struct check check = {
        .fs = fsops_posix(), .now_ms = tool_clock_unix_ns() / 1000000, .datadir = args->positional[0]};
    char *problems = NULL;
    size_t problems_len;
    int fd;
    struct errbuf err = {{0}};
    int status;

    if (tool_option(args, "--json") && !(check.problems = open_memstream(&problems, &problems_len)))
        return tool_failed(COMMAND, "%s", strerror(ENOMEM));
    status = tool_lock(check.datadir, &fd, &err);
    if (status == TOOL_OK)
        status = run_locked(&check);
    else if (check.problems)
        complain(&check, "%s", err.text);
    else
        return tool_failed(COMMAND, "%s", err.text);
    if (fd >= 0)
        check.fs->close(check.fs->ctx, fd);
    if (check.problems) {
        fclose(check.problems);
        print_json(&check, problems, status == TOOL_OK);
        free(problems);
    } else {
        printf(status == TOOL_OK ? "whole\n" : "not whole\n");
    }
    return status;
}

static const struct tool_option options[] = {
    {.name = "--json",
     .doc = "One object: whole (true or false), manifest, log, files, impossible, and problems, the lines of stderr."},
    {.name = NULL},
};

const struct tool_command tool_check_command = {
    .name = COMMAND,
    .arguments = "DATADIR",
    .min = 1,
    .max = 1,
    .summary = "Verifies a data directory: MANIFEST, files, log. Changes nothing.",
    .text =
        "The daemon must not be running on DATADIR. Every byte that is needed is read and compared with its checksum. "
        "Prints what there is; what is damaged or missing goes to stderr, a line each. Exit status 0: all is whole "
        "(the tail of a log that was not synced when the daemon ended is no damage); 1: something is not.\n"
        "\n"
        "A damaged file costs its own filter only: the daemon quarantines it. A damaged log stops the start, until it "
        "is brought back from a backup or the loss accepted: bloomeryd --aof-load-damaged yes.",
    .options = options,
    .examples = "cp -a /var/lib/bloomery copy && bloomery check copy --json | jq .whole",
    .run = run,
};
