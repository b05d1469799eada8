/* bloomery export writes a filter of a data directory as Filter.db files, or as bits with a header if it has
 * RedisBloom's layout (docs/FORMAT.md, section 15). It verifies checksums, and replaces no file. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "filterdb.h"
#include "fsops.h"
#include "log_text.h"
#include "manifest.h"
#include "new_file.h"
#include "output.h"
#include "bloom_layout.h"
#include "check_filter.h"

#define EXPORT "export"

/* ---- output files ---- */

/* The name shows the layout to import, and the version to Cassandra's tools. */
static void target_name(char *out, size_t size, const char *dir, enum bloom_variant variant, unsigned layer,
                        uint64_t key)
{
    int len = snprintf(out, size, "%s/%s-%u%s", dir, bloom_variant_name(variant), layer,
                       bloom_layout_of(variant)->own_numbers ? ".bits" : "-big-Filter.db");
    if (key && len > 0 && (size_t)len < size)
        snprintf(out + len, size - (size_t)len, FILTERDB_KEYED_END "%016" PRIx64, key);
}

/* The file of a layer: `head`, then the bytes behind the header of the store's file, `len` bytes in all. */
struct target {
    char path[4096];
    unsigned char head[BITS_FILE_HEADER_BYTES];
    size_t head_len;
    uint64_t len;
};

/* The file while it is written. */
struct writing {
    const struct target *target;
    struct new_file file;
    struct progress *progress;
    bool failed;
};

/* Writes the bytes that the store has at offset `at`. */
static int put_piece(void *ctx, const unsigned char *bytes, size_t n, uint64_t at)
{
    struct writing *writing = ctx;
    const struct target *target = writing->target;
    size_t skip = at < FILTERDB_HEADER_BYTES ? (size_t)(FILTERDB_HEADER_BYTES - at) : 0;
    uint64_t to = target->head_len + at + skip - FILTERDB_HEADER_BYTES;
    int rc = 0;

    progress_add(writing->progress, n);
    if (skip < n && to < target->len) {
        n -= skip;
        rc = fs_write_all(fsops_posix(), writing->file.fd, bytes + skip,
                          n < target->len - to ? n : (size_t)(target->len - to), to);
    }
    writing->failed |= rc != 0;
    return rc;
}

/* ---- export ---- */

struct export
{
    const char *datadir, *name, *target;
    struct tool_key key; /* the filter's, in the MANIFEST */
    struct pack_reader packs;
    struct progress progress;
    struct output out;
    bool found;
    int status;
};

/* Copies a layer, and verifies its checksum. */
static int copy_layer(struct export *export, struct layer_bytes *layer, struct writing *writing, struct errbuf *why)
{
    const struct manifest_layer *saved = &layer->filter->layers[layer->index];
    int rc = layer_pieces(layer, export->datadir, &export->packs, put_piece, writing, why);

    if (rc != 0)
        return writing->failed ? errbuf_fail(why, rc, "%s: %s", writing->target->path, strerror(-rc)) : rc;
    if (layer->size == filterdb_bytes(saved->shape.nwords) && layer->xxh3 == saved->xxh3)
        return 0;
    return errbuf_fail(why, -EIO, "%s: differs from the MANIFEST", layer->from);
}

static int export_layer(struct export *export, const struct manifest_filter *filter, unsigned i, uint64_t offset,
                        const struct target *target, struct errbuf *why)
{
    struct writing writing = {.target = target, .progress = &export->progress};
    struct layer_bytes layer = {.filter = filter, .index = i, .offset = offset};
    struct errbuf at_end = {{0}};
    int rc = new_file_open(&writing.file, target->path, false, why);

    if (rc != 0) {
        errbuf_prefix(why, "%s", target->path);
        return rc;
    }
    rc = fs_write_all(fsops_posix(), writing.file.fd, target->head, target->head_len, 0);
    if (rc == 0)
        rc = copy_layer(export, &layer, &writing, why);
    else
        errbuf_set(why, "%s: %s", target->path, strerror(-rc));
    int ended = new_file_end(&writing.file, rc, &at_end);
    if (rc == 0 && ended != 0)
        errbuf_set(why, "%s: %s", target->path, at_end.text);
    return ended;
}

static void report_layer(struct export *export, const char *path, const struct manifest_layer *layer)
{
    uint64_t bits = 64 * layer->shape.nwords;

    struct buf *json = output_object(&export->out);

    if (json) {
        output_string(json, "file", path);
        JSON_COUNTS(json, {"k", layer->shape.k}, {"bits", bits}, {"items", layer->items});
        json_end(json, '}');
    } else {
        printf("%s: k %u, %" PRIu64 " bits, %s\n", path, layer->shape.k, bits, log_count(layer->items, "item").text);
    }
}

static int on_filter(void *ctx, const struct manifest_filter *filter, struct errbuf *err)
{
    struct export *export = ctx;
    uint64_t at = filter->pack_offset;
    struct errbuf why = {{0}};
    struct target target;

    (void)err;
    if (filter->name_len != export->key.len || memcmp(filter->name, export->key.bytes, filter->name_len) != 0)
        return 0;
    export->found = true;
    if (bloom_params_is_cuckoo(&filter->params)) {
        export->status = tool_failed(
            EXPORT, "'%s' is a cuckoo filter, which has no such file: dump it from a daemon with CF.SCANDUMP or DUMP",
            export->name);
        return 0;
    }
    if (filter->params.key)
        fprintf(stderr,
                "bloomery " EXPORT
                ": warning: '%s' is KEYED, as the names of its files show: Cassandra cannot query them; use 'bloomery "
                "query --key-file FILE'\n",
                export->name);
    if (mkdir(export->target, 0777) != 0 && errno != EEXIST)
        export->status = tool_failed(EXPORT, "%s: %s", export->target, strerror(errno));
    progress_begin(&export->progress, "writing", manifest_filter_bytes(filter));
    for (unsigned i = 0; i < filter->nlayers && export->status == TOOL_OK; i++) {
        const struct manifest_layer *layer = &filter->layers[i];
        target.head_len = export_file_header(&filter->params, &layer->shape, layer->items, target.head);
        target.len = export_file_bytes(&layer->shape);
        target_name(target.path, sizeof(target.path), export->target, filter->variant, i, filter->params.key);
        int rc = export_layer(export, filter, i, at, &target, &why);
        at += filterdb_bytes(filter->layers[i].shape.nwords);
        progress_hide(&export->progress);
        if (rc != 0)
            export->status =
                tool_failed(EXPORT, rc == -EEXIST ? "%s exists already" : "%s", rc == -EEXIST ? target.path : why.text);
        else
            report_layer(export, target.path, &filter->layers[i]);
    }
    progress_end(&export->progress);
    return 0;
}

static void warn_of_changes(const struct export *export, const struct manifest_save *save)
{
    const struct store_checkpoint checkpoint = {
        .log = save->log, .control = save->control, .frame = save->frame, .accepted = save->accepted};
    struct errbuf err = {{0}};
    int changes = log_has_changes(export->datadir, &checkpoint, NULL, NULL, &err);
    if (changes < 0)
        fprintf(stderr, "bloomery " EXPORT ": warning: log: %s\n", err.text);
    else if (changes > 0)
        fprintf(stderr,
                "bloomery " EXPORT
                ": warning: this is the last save of %s; later changes are in the log. Start the daemon, and stop "
                "it with a save (SHUTDOWN SAVE), to export them, too\n",
                export->datadir);
}

static int find_filter(struct export *export)
{
    const struct manifest_sink sink = {.on_filter = on_filter, .ctx = export};
    struct manifest_save save = {0};
    struct errbuf err = {{0}};
    int rc = tool_read_manifest(export->datadir, &sink, &save, &err);

    if (rc != 0)
        return tool_failed(EXPORT, "%s", err.text);
    warn_of_changes(export, &save);
    if (!export->found)
        return tool_failed(EXPORT, "%s: the last save has no filter '%s'", export->datadir, export->name);
    return export->status;
}

static int key_of(struct export *export, const struct tool_args *args)
{
    unsigned db;
    int status = tool_read_database(args, &db);

    if (status != TOOL_OK)
        return status;
    const struct databases databases = tool_read_databases(export->datadir);
    if (!tool_key_of(&databases, db, "", export->name, strlen(export->name), &export->key))
        return tool_misused(EXPORT, "the name is longer than %d bytes", MANIFEST_MAX_NAME);
    return TOOL_OK;
}

static int run_export(const struct tool_args *args)
{
    struct export export = {.status = TOOL_OK};
    struct errbuf err = {{0}};
    int fd;
    if (strcmp(args->positional[2], "-") == 0) /* the standard output in other programs */
        return tool_misused(EXPORT, "'-': a directory is needed, for a file per layer");
    export.datadir = args->positional[0];
    export.name = args->positional[1];
    export.target = args->positional[2];
    int status = tool_lock(EXPORT, export.datadir, &fd, &err) == TOOL_OK ? key_of(&export, args)
                                                                         : tool_failed(EXPORT, "%s", err.text);
    if (status != TOOL_OK)
        return status;
    pack_reader_init(&export.packs, fsops_posix(), export.datadir);
    output_begin(&export.out, args, true);
    status = output_end(&export.out, find_filter(&export));
    pack_reader_deinit(&export.packs);
    if (fd >= 0)
        close(fd);
    return status;
}

static const struct tool_option export_options[] = {
    TOOL_DATABASE_OPTION("The database of NAME (0)."),
    {.name = "--json", .doc = "An array of objects, one for each layer: file, k, bits, items."},
    {.name = NULL},
};

const struct tool_command tool_export_command = {
    .name = EXPORT,
    .arguments = "DATADIR NAME DIRECTORY",
    .summary = "Extracts a filter of a data directory as Filter.db files.",
    .text = "The daemon must not be running on DATADIR. Writes DIRECTORY/<layout>-<layer>-big-Filter.db for each "
            "layer as of the last save, from its own file or from a pack; later changes in the log are missing, and a "
            "warning says so. Of a KEYED "
            "filter the names end by .keyed- and the id of its key, by which 'import', 'load' and 'query' know it. "
            "Compares the bytes with their checksums, and replaces no existing files.",
    .options = export_options,
    .examples = "bloomery export /var/lib/bloomery urls /tmp/urls",
    .run = run_export,
};
