/* bloomery verify: whether SSTables have the filters that their keys need. Reads the keys of Index.db and asks the
 * filter for each; writes nothing. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bloom_layout.h"
#include "bloom_state.h"
#include "filter_load.h"
#include "filterdb.h"
#include "log_text.h"
#include "output.h"
#include "sstable_files.h"
#include "table.h"

#define COMMAND "verify"

#define FIRST_KEYS 100 /* that tell the layout */
#define SHOWN_KEYS 5   /* of the missing ones */
#define PROBLEMS   16

struct verify {
    struct output out;
    uint64_t sample; /* 0: all keys */
    uint64_t whole, wrong, unread;
    uint64_t places; /* directories, and files of unknown formats, that could not be looked at */
    int status;      /* of these, and of arguments */
};

/* One SSTable. */
struct look {
    struct verify *verify;
    struct table table;
    struct bloom_alone loaded;
    struct bloom_state state;
    uint64_t keys, missing;
    struct bloom_hash first[FIRST_KEYS];
    char problems[PROBLEMS][600];
    unsigned nproblems;
    bool without_filter, ended; /* all keys have been read */
    char not_read[600];         /* the reason why it could not be checked; empty: it was */
};

__attribute__((format(printf, 2, 3))) static void problem(struct look *look, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    if (look->nproblems < PROBLEMS)
        vsnprintf(look->problems[look->nproblems++], sizeof(look->problems[0]), fmt, args);
    va_end(args);
}

/* ---- TOC.txt ---- */

/* Databases load an SSTable without a TOC.txt, too. */
static void look_at_toc(struct look *look)
{
    struct table_toc toc;
    size_t len;
    int rc = table_read_toc(&look->table, &toc);
    const char *at = toc.text, *line;
    look->without_filter = !table_has(&look->table, "Filter.db");
    if (rc != 0 && rc != -ENOENT)
        problem(look, "TOC.txt: %s", fs_error_text(rc));
    while (rc == 0 && (line = table_next_component(&at, &len))) {
        char component[256];
        snprintf(component, sizeof(component), "%.*s", (int)len, line);
        if (!table_has(&look->table, component))
            problem(look, "TOC.txt names %s, which is missing", component);
    }
    if (rc == 0 && !look->without_filter && !table_toc_names(&toc, "Filter.db"))
        problem(look, "TOC.txt does not name Filter.db");
}

/* ---- layouts ---- */

static bool has_first_keys(const struct look *look, const struct bloom_filter *filter)
{
    uint64_t n = look->keys < FIRST_KEYS ? look->keys : FIRST_KEYS;
    for (uint64_t i = 0; i < n; i++)
        if (!bloom_filter_query(filter, look->first[i]))
            return false;
    return true;
}

/* The layout in which the file has the first keys that it lacks in its own layout; NULL: none. */
static const char *right_layout(const struct look *look, enum bloom_variant own)
{
    static const enum bloom_variant layouts[] = {BLOOM_NA, BLOOM_ME, BLOOM_KA};
    const char *right = NULL;
    for (unsigned i = 0; i < 3 && !right; i++) {
        struct filter_file file;
        struct bloom_alone loaded = {NULL};
        struct errbuf err = {{0}};
        const char *name = bloom_variant_name(layouts[i]);
        if (layouts[i] == own || filter_file_open(&file, fsops_posix(), look->table.filter, name, &err) != 0)
            continue;
        if (loaded_filter_read(&loaded, &file, NULL, &err) == 0 && has_first_keys(look, loaded.filter))
            right = name;
        bloom_alone_deinit(&loaded);
        filter_file_close(&file);
    }
    return right;
}

/* ---- keys ---- */

static void on_key(void *ctx, const struct sstable_key *key)
{
    struct look *look = ctx;
    if (look->keys < FIRST_KEYS)
        look->first[look->keys] = key->hash;
    look->keys++;
    if (bloom_filter_query(look->loaded.filter, key->hash))
        return;
    if (look->missing++ >= SHOWN_KEYS)
        return;
    char shown[72];
    char *at = shown + sprintf(shown, "0x");
    for (size_t i = 0; i < key->len && i < 32; i++)
        at += sprintf(at, "%02x", key->ptr[i]);
    if (key->len > 32)
        strcpy(at, "...");
    problem(look, "the key %s is not in the filter: reads miss its partition", shown);
}

/* Compares the set bits with the number that the keys set, within chance and equal sequences of small filters. */
static void look_at_fill(struct look *look, const struct bloom_shape *shape)
{
    double bits = 64.0 * (double)shape->nwords, unset = exp(-(double)shape->k * (double)look->keys / bits);
    double expected = bits * (1 - unset), set = (double)look->state.bits_set;
    double away = 6 * sqrt(bits * unset * (1 - unset)) + 0.01 * expected + 2 * shape->k;
    if (set > expected + away)
        problem(look, "%.0f bits are set, and its keys set about %.0f: it was made for more keys", set, expected);
    else if (set < expected - away && look->missing == 0)
        problem(look, "%.0f bits are set, and its keys set about %.0f", set, expected);
}

static void look_at_keys(struct look *look, const struct bloom_shape *shape)
{
    struct verify *verify = look->verify;
    struct errbuf err = {{0}};
    unsigned before = look->nproblems;
    uint64_t most = verify->sample && verify->sample < FIRST_KEYS ? verify->sample : FIRST_KEYS;
    int rc = table_each_key(&look->table, most, on_key, look, NULL, &err);
    const char *right = rc == 0 && look->missing ? right_layout(look, (enum bloom_variant)shape->variant) : NULL;
    if (right) {
        look->nproblems = before;
        problem(look, "its bits have the layout %s, and the version %.*s has %s: reads miss partitions", right,
                (int)look->table.name.version.len, look->table.name.version.ptr,
                bloom_variant_name((enum bloom_variant)shape->variant));
        return;
    }
    if (rc == 0 && look->keys == FIRST_KEYS && most != verify->sample) {
        look->keys = look->missing = 0;
        look->nproblems = before;
        rc = table_each_key(&look->table, verify->sample, on_key, look, "querying the keys", &err);
    }
    look->ended = rc == 0 && (verify->sample == 0 || look->keys < verify->sample);
    if (rc == 0 && look->keys == 0)
        problem(look, "%s has no key, but an SSTable has at least one", sstable_keys_component(&look->table.name));
    if (rc == SSTABLE_KEYS_DAMAGED)
        problem(look, "%s", err.text);
    else if (rc != 0)
        snprintf(look->not_read, sizeof(look->not_read), "%s", err.text);
    if (look->missing > SHOWN_KEYS)
        problem(look, "%" PRIu64 " of %" PRIu64 " keys are not in the filter", look->missing, look->keys);
    if (look->ended)
        look_at_fill(look, shape);
}

static void look_at_filter(struct look *look)
{
    struct filter_file file;
    struct errbuf err = {{0}};
    int rc = filter_file_open(&file, fsops_posix(), look->table.filter, NULL, &err);
    if (rc == FILTERDB_MALFORMED) {
        problem(look, "Filter.db: %s", err.text);
        return;
    }
    if (rc == 0) {
        rc = loaded_filter_read(&look->loaded, &file, NULL, &err);
        const struct bloom_shape shape = file.shape;
        filter_file_close(&file);
        if (rc == 0) {
            bloom_filter_state(look->loaded.filter, &look->state);
            look_at_keys(look, &shape);
        }
        bloom_alone_deinit(&look->loaded);
    }
    if (rc != 0)
        snprintf(look->not_read, sizeof(look->not_read), "Filter.db: %s", err.text);
}

/* ---- output ---- */

static void print_json(struct look *look, const char *result, struct buf *json)
{
    const struct sstable_name *name = &look->table.name;
    output_string(json, "file", look->table.path);
    json_bytes(json, "keyspace", (struct slice){name->keyspace.ptr, name->keyspace.len});
    json_bytes(json, "table", (struct slice){name->table.ptr, name->table.len});
    json_bytes(json, "version", (struct slice){name->version.ptr, name->version.len});
    json_bytes(json, "generation", (struct slice){name->generation.ptr, name->generation.len});
    json_str(json, "result", result);
    JSON_COUNTS(json, {"keys", look->keys}, {"missing", look->missing});
    if (look->state.bits)
        json_real(json, "rate", look->state.rate);
    json_begin(json, "problems", '[');
    for (unsigned i = 0; i < look->nproblems; i++)
        json_text(json, NULL, (struct slice){look->problems[i], strlen(look->problems[i])});
    if (look->not_read[0])
        json_text(json, NULL, slice_of(look->not_read));
    json_end(json, ']');
    json_end(json, '}');
}

static void print_line(const struct look *look, const char *what, const char *text)
{
    tool_print_result(look->table.path, strlen(look->table.path));
    fputs(what, stdout);
    tool_print_result(text, strlen(text));
    putchar('\n');
}

static void print_lines(const struct look *look)
{
    for (unsigned i = 0; i < look->nproblems; i++)
        print_line(look, ": ", look->problems[i]);
    if (look->not_read[0])
        print_line(look, ": not looked at: ", look->not_read);
    if (look->nproblems || look->not_read[0])
        return;
    if (look->without_filter) {
        print_line(look, ": whole, without a filter", "");
        return;
    }
    char text[100];
    snprintf(text, sizeof(text), "%s%s, rate %.2g", look->ended ? "" : "the first ", log_count(look->keys, "key").text,
             look->state.rate);
    print_line(look, ": whole: ", text);
}

/* Once for each SSTable: it is about the table, not about this file. */
static void warn_of_rate(const struct look *look)
{
    struct statistics_validation validation;
    char path[TABLE_PATH];
    if (table_component(&look->table, "Statistics.db", path) &&
        statistics_db_validation(fsops_posix(), path, &validation) == 0 && filter_rate_warning(validation.rate))
        (void)tool_failed(COMMAND, "warning: %s: %s", look->table.path, filter_rate_warning(validation.rate));
}

static void verify_table(struct verify *verify, struct look *look)
{
    const char *component = sstable_keys_component(&look->table.name);
    look->verify = verify;
    look_at_toc(look);
    if (!look->without_filter && !table_has(&look->table, component))
        snprintf(look->not_read, sizeof(look->not_read), "%s: %s", component, strerror(errno));
    else if (!look->without_filter)
        look_at_filter(look);
    if ((look->nproblems || look->not_read[0]) && access(look->table.path, F_OK) != 0 && errno == ENOENT)
        return; /* it has been compacted: the walk visits its replacement, too */
    const char *result = look->nproblems ? "wrong" : look->not_read[0] ? "not looked at" : "whole";
    verify->wrong += look->nproblems > 0;
    verify->unread += look->nproblems == 0 && look->not_read[0];
    verify->whole += look->nproblems == 0 && !look->not_read[0];
    warn_of_rate(look);
    struct buf *json = output_object(&verify->out);
    if (json)
        print_json(look, result, json);
    else
        print_lines(look);
}

/* ---- choice of SSTables ---- */

static int verify_path(struct verify *verify, const char *path)
{
    struct look *look = calloc(1, sizeof(*look));
    struct errbuf err = {{0}};
    int status = TOOL_OK;
    if (!look)
        return tool_failed(COMMAND, "%s", strerror(ENOMEM));
    if (table_of(&look->table, path, &err) == 0)
        verify_table(verify, look);
    else
        status = tool_failed(COMMAND, "%s: %s", path, err.text);
    free(look);
    return status;
}

static void on_sstable(void *ctx, const struct found_sstable *sstable)
{
    struct verify *verify = ctx;
    int status = verify_path(verify, sstable->shown);
    verify->status = status != TOOL_OK ? status : verify->status;
}

static void on_error(void *ctx, const char *path, const char *reason)
{
    struct verify *verify = ctx;
    verify->places++;
    verify->status = tool_failed(COMMAND, "%s: not looked at: %s", path, reason);
}

static int verify_argument(struct verify *verify, const char *path, bool all)
{
    const struct sstable_walk walk = {.on_sstable = on_sstable, .on_error = on_error, .ctx = verify, .all = all};
    uint64_t before = verify->whole + verify->wrong + verify->unread;
    struct stat st;
    if (stat(path, &st) != 0)
        return tool_failed(COMMAND, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return verify_path(verify, path);
    if (sstable_walk(&walk, path) != 0)
        return tool_failed(COMMAND, "%s", strerror(ENOMEM));
    if (verify->status == TOOL_OK && verify->whole + verify->wrong + verify->unread == before)
        return tool_failed(COMMAND, "%s: no SSTable below it", path);
    return verify->status;
}

static int run_verify(const struct tool_args *args)
{
    struct verify verify = {.status = TOOL_OK};
    int status = tool_number(args, "--sample", 1, UINT64_MAX, &verify.sample);
    if (status != TOOL_OK)
        return status;
    output_begin(&verify.out, args, true);
    for (unsigned i = 0; i < args->npositional; i++) {
        int rc = verify_argument(&verify, args->positional[i], tool_option(args, "--all") != NULL);
        status = rc != TOOL_OK ? rc : status;
    }
    uint64_t n = verify.whole + verify.wrong + verify.unread;
    if (!verify.out.json && (n > 1 || verify.places))
        printf("%s: %" PRIu64 " whole, %" PRIu64 " wrong, %" PRIu64 " not looked at%s%s\n",
               log_count(n, "SSTable").text, verify.whole, verify.wrong, verify.unread,
               verify.places ? "; unreadable: " : "", verify.places ? log_count(verify.places, "place").text : "");
    status = output_end(&verify.out, status);
    if (verify.wrong)
        return TOOL_NONE;
    return status != TOOL_OK || verify.unread ? TOOL_FAILED : TOOL_OK;
}

static const struct tool_option options[] = {
    {.name = "--sample", .value = "N", .doc = "Checks only the first N keys of each SSTable: a quick check."},
    {.name = "--all",
     .doc = "Includes SSTables that reads do not use: snapshots, backups, uploads, secondary indexes."},
    {.name = "--json",
     .doc =
         "An array of objects: file, keyspace, table, version, generation, result ('whole', 'wrong', 'not looked at'), "
         "keys, missing, rate, problems."},
    {.name = NULL},
};

const struct tool_command tool_verify_command = {
    .name = COMMAND,
    .arguments = "DIR|FILE...",
    .summary = "Checks that the filters of SSTables have all partition keys.",
    .text =
        "DIR is the directory of a table, of a keyspace, or a whole data directory of Cassandra or ScyllaDB; FILE is "
        "any file of one SSTable. A filter has no checksum: one cleared bit hides a partition from all reads, and "
        "nothing reports it. This command reads the partition keys and queries the filter for each of them. It names "
        "keys that the filter lacks; bits in the layout of another version; a number of bits that the keys do not "
        "explain; files that are cut, damaged or missing; and a TOC.txt that disagrees. It writes nothing and may run "
        "beside a database. 'bloomery rebuild' makes a right filter.\n\nThe keys are in Index.db. Where the index is "
        "a trie (Cassandra's bti, ScyllaDB's ms and later), they are read from Data.db and Rows.db, where "
        "Partitions.db leads, and the checksums of these parts of Data.db are compared, too.",
    .options = options,
    .examples = "bloomery verify /var/lib/cassandra/data/ks/users-*\n"
                "bloomery verify nb-1-big-Data.db --json",
    .exit_status =
        "0: all are whole. 1: the command has reported a defect. 2: no defect, but some SSTables could not be checked.",
    .greps = true,
    .run = run_verify,
};
