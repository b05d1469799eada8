/* bloomery export writes a filter of a data directory as Filter.db files, or as bits with a header if it has
 * RedisBloom's layout (docs/FORMAT.md, section 15). bloomery unpack writes all filters of a pack, for when the MANIFEST
 * is lost. Both verify checksums, and replace no file. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "filterdb.h"
#include "fsops.h"
#include "log_text.h"
#include "manifest.h"
#include "name_code.h"
#include "new_file.h"
#include "output.h"
#include "pack.h"
#include "bloom_layout.h"
#include "check_filter.h"

#define EXPORT     "export"
#define UNPACK     "unpack"
#define NAME_SHOWN 64 /* bytes of a filter's name in that of a directory */

/* ---- output files ---- */

/* The name shows the layout to import, and the version to Cassandra's tools; others than Filter.db end in `other`. */
static void target_name(char *out, size_t size, const char *dir, enum bloom_variant variant, unsigned layer,
                        const char *other, uint64_t key)
{
    int len = snprintf(out, size, "%s/%s-%u%s", dir, bloom_variant_name(variant), layer,
                       bloom_layout_of(variant)->own_numbers ? other : "-big-Filter.db");
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

/* '-' means the standard output in other programs, so it is not taken for a directory. */
static int check_target(const char *command, const char *target)
{
    return strcmp(target, "-") != 0 ? TOOL_OK
                                    : tool_misused(command, "'-': a directory is needed, for a file per layer");
}

static int make_dir(const char *path)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST ? 0 : -errno;
}

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

/* Copies a layer from its own file or pack, and verifies its checksum. `from` is the file's path for messages. */
static int copy_layer(struct export *export, const struct manifest_filter *filter, unsigned i, uint64_t offset,
                      struct writing *writing, const char *from, struct errbuf *why)
{
    const struct manifest_layer *layer = &filter->layers[i];
    uint64_t size = filterdb_bytes(layer->shape.nwords), found = size, xxh3 = 0;
    const unsigned char *bytes;
    int rc = 0;

    if (filter->pack) {
        if (pack_read(&export->packs, filter->pack, offset, (size_t)size, &bytes, why) != 0)
            return -EIO;
        xxh3 = XXH3_64bits(bytes, (size_t)size);
        rc = put_piece(writing, bytes, (size_t)size, 0);
    } else {
        rc = file_pieces(from, put_piece, writing, &found, &xxh3);
    }
    if (rc == 0 && (found != size || xxh3 != layer->xxh3))
        return errbuf_fail(why, -EIO, "%s: differs from the MANIFEST", from);
    return rc == 0 ? 0 : errbuf_fail(why, rc, "%s: %s", writing->failed ? writing->target->path : from, strerror(-rc));
}

static void path_of(const struct export *export, const struct manifest_filter *filter, unsigned i, uint64_t offset,
                    char *path, size_t size)
{
    struct file_name name = {.kind = FILE_PACK, .number = filter->pack};
    char file[FILE_NAME_SIZE];

    if (!filter->pack)
        name = manifest_layer_file(filter, i);
    file_name_format(&name, file);
    int len = snprintf(path, size, "%s/" FILTERS_DIR "/%s", export->datadir, file);
    if (filter->pack && len > 0 && (size_t)len < size)
        snprintf(path + len, size - (size_t)len, ": byte %" PRIu64, offset);
}

static int export_layer(struct export *export, const struct manifest_filter *filter, unsigned i, uint64_t offset,
                        const struct target *target, struct errbuf *why)
{
    struct writing writing = {.target = target, .progress = &export->progress};
    struct errbuf at_end = {{0}};
    char from[4096 + 32];
    int rc = new_file_open(&writing.file, target->path, false, why);

    if (rc != 0) {
        errbuf_prefix(why, "%s", target->path);
        return rc;
    }
    path_of(export, filter, i, offset, from, sizeof(from));
    rc = fs_write_all(fsops_posix(), writing.file.fd, target->head, target->head_len, 0);
    if (rc == 0)
        rc = copy_layer(export, filter, i, offset, &writing, from, why);
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
    int made = make_dir(export->target);
    if (made != 0)
        export->status = tool_failed(EXPORT, "%s: %s", export->target, strerror(-made));
    progress_begin(&export->progress, "writing", manifest_filter_bytes(filter));
    for (unsigned i = 0; i < filter->nlayers && export->status == TOOL_OK; i++) {
        const struct manifest_layer *layer = &filter->layers[i];
        target.head_len = export_file_header(&filter->params, &layer->shape, layer->items, target.head);
        target.len = export_file_bytes(&layer->shape);
        target_name(target.path, sizeof(target.path), export->target, filter->variant, i, ".bits", filter->params.key);
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
    int status = check_target(EXPORT, args->positional[2]);

    if (status != TOOL_OK)
        return status;
    export.datadir = args->positional[0];
    export.name = args->positional[1];
    export.target = args->positional[2];
    status = tool_lock(EXPORT, export.datadir, &fd, &err) == TOOL_OK ? key_of(&export, args)
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

/* ---- unpack ---- */

struct unpack {
    const char *pack, *target;
    uint64_t filters, lost; /* lost: bytes outside of whole records */
};

/* If a filter changed during a save, its pack has it twice: the later one counts. */
static int unpack_record(const struct unpack *unpack, const struct pack_record *record)
{
    size_t prefix = database_prefix_of_key(record->name, record->name_len), whole = record->name_len - prefix;
    size_t len = whole < NAME_SHOWN ? whole : NAME_SHOWN;
    const char *shown = record->name + prefix;
    char name[3 * NAME_SHOWN], dir[4096], to[4096 + 64];

    name_encode(shown, len, name); /* as much as a file system takes; the id makes it unique */
    snprintf(dir, sizeof(dir), "%s/%.*s-%" PRIu64, unpack->target, (int)name_encoded_len(shown, len), name, record->id);
    int rc = make_dir(dir);
    for (unsigned i = 0; i < record->nlayers && rc == 0; i++) {
        target_name(to, sizeof(to), dir, record->variant, i, ".layer", 0); /* a pack does not tell its target */
        struct errbuf err = {{0}};
        struct new_file file;
        if (new_file_open(&file, to, true, &err) != 0 ||
            new_file_end(&file, fs_write_all(fsops_posix(), file.fd, record->layers[i], record->sizes[i], 0), &err) !=
                0)
            return tool_failed(UNPACK, "%s: %s", to, err.text);
    }
    return rc == 0 ? TOOL_OK : tool_failed(UNPACK, "%s: %s", dir, strerror(-rc));
}

/* Skips damaged bytes up to the next whole record. */
static int unpack_records(struct unpack *unpack, const unsigned char *bytes, size_t len)
{
    struct progress progress;
    int status = TOOL_OK;

    progress_begin(&progress, "writing", len);
    for (size_t at = PACK_HEADER_BYTES; at < len && status == TOOL_OK;) {
        struct pack_record record;
        size_t record_len;

        if (pack_record_parse(bytes + at, len - at, &record, &record_len) != PACK_RECORD) {
            unpack->lost++;
            at++;
            continue;
        }
        progress_update(&progress, at);
        status = unpack_record(unpack, &record);
        unpack->filters++;
        at += record_len;
    }
    progress_end(&progress);
    return status;
}

static int read_pack(const char *path, unsigned char **bytes_out, size_t *len_out)
{
    const struct fsops *fs = fsops_posix();
    unsigned char *bytes = NULL;
    uint64_t size = 0;
    int fd;
    TRY(fs->open(fs->ctx, path, FS_READ, &fd));
    int rc = fs->size(fs->ctx, fd, &size);
    if (rc == 0 && !(bytes = malloc((size_t)size + 1)))
        rc = -ENOMEM;
    STEP(rc, fs_read_all(fs, fd, bytes, (size_t)size, 0));
    fs->close(fs->ctx, fd);
    if (rc != 0) {
        free(bytes);
        bytes = NULL;
    }
    *bytes_out = bytes;
    *len_out = (size_t)size;
    return rc;
}

static int run_unpack(const struct tool_args *args)
{
    struct unpack unpack = {.pack = args->positional[0], .target = args->positional[1]};
    unsigned char *bytes;
    size_t len;
    int status = check_target(UNPACK, unpack.target);

    if (status != TOOL_OK)
        return status;
    int rc = read_pack(unpack.pack, &bytes, &len);
    if (rc != 0)
        return tool_failed(UNPACK, "%s: %s", unpack.pack, fs_error_text(rc));
    /* A new directory: another pack may have an older or newer version of a filter. */
    rc = mkdir(unpack.target, 0750) == 0 ? 0 : -errno;
    status =
        rc == 0 ? unpack_records(&unpack, bytes, len) : tool_failed(UNPACK, "%s: %s", unpack.target, strerror(-rc));
    free(bytes);
    if (status != TOOL_OK)
        return status;
    struct output out;
    struct buf *json = output_single(&out, args);
    if (json) {
        JSON_COUNTS(json, {"filters", unpack.filters}, {"damaged_bytes", unpack.lost});
        json_end(json, '}');
    } else {
        printf("%s: %s in %s\n", unpack.pack, log_count(unpack.filters, "filter").text, unpack.target);
    }
    status = output_end(&out, TOOL_OK);
    return unpack.lost == 0 || status != TOOL_OK
               ? status
               : tool_failed(UNPACK, "%s: %" PRIu64 " bytes are damaged and were skipped", unpack.pack, unpack.lost);
}

static const struct tool_option unpack_options[] = {
    {.name = "--json", .doc = "The result as an object: filters, damaged_bytes."},
    {.name = NULL},
};

const struct tool_command tool_unpack_command = {
    .name = UNPACK,
    .arguments = "PACK DIRECTORY",
    .summary = "Extracts all filters of a pack, without its MANIFEST.",
    .text = "For a lost MANIFEST: a pack describes its own filters. Makes DIRECTORY and writes "
            "DIRECTORY/<name>-<id>/<layout>-<layer>-big-Filter.db for every layer of a whole record (in "
            "RedisBloom's layout <layout>-<layer>.layer). Only the MANIFEST knows superseded records: of two "
            "packs, the one with the higher number is newer.",
    .options = unpack_options,
    .examples = "bloomery unpack /var/lib/bloomery/filters/17.pack /tmp/rescued",
    .run = run_unpack,
};
