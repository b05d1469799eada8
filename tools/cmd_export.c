/* bloomery export writes a filter of a data directory as Filter.db files, or one in RedisBloom's layout as its bits
 * behind a header of their own (docs/FORMAT.md, section 15). bloomery unpack writes all filters of a pack, without the
 * data directory, in case the MANIFEST is lost. Both write only bytes with the right checksum, and replace no file. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "bytes.h"
#include "filterdb.h"
#include "fsops.h"
#include "manifest.h"
#include "name_code.h"
#include "pack.h"
#include "progress.h"
#include "redisbloom.h"
#include "tool.h"

#define EXPORT      "export"
#define UNPACK      "unpack"
#define PIECE_BYTES (1u << 20)
#define NAME_SHOWN  64 /* bytes of a filter's name in that of a directory */

/* ---- output files ---- */

/* The name tells import the layout, and Cassandra's tools the version; what is no Filter.db ends in `other`. */
static void target_name(char *out, size_t size, const char *dir, enum bloom_variant variant, unsigned layer,
                        const char *other)
{
    snprintf(out, size, "%s/%s-%u%s", dir, bloom_variant_name(variant), layer,
             bloom_variant_is_redisbloom(variant) ? other : "-big-Filter.db");
}

#define BITS_HEADER_BYTES 72

/* The file of a layer: `head`, and what the store has of it from `skip` on, up to `len` bytes in all. */
struct output {
    char path[4096];
    unsigned char head[BITS_HEADER_BYTES];
    size_t head_len;
    size_t skip;
    uint64_t len;
};

static void put_bits_header(struct output *output, const struct bloom_params *params, const struct bloom_shape *shape,
                            uint64_t items)
{
    unsigned char *at = output->head;

    memcpy(at, "BLOOMRBL", 8);
    at = le32_put(at + 8, 1); /* version */
    at = le32_put(at, params->redisbloom);
    at = le64_put(at, params->expansion);
    at = le64_put(at, shape->capacity);
    at = le_double_put(at, shape->error_rate);
    at = le_double_put(at, shape->bpe);
    at = le64_put(at, redisbloom_layer_bytes(shape) * 8);
    at = le64_put(at, items);
    at = le32_put(at, shape->k);
    at = le32_put(at, shape->n2);
    output->head_len = (size_t)(at - output->head);
    output->skip = FILTERDB_HEADER_BYTES;
    output->len = output->head_len + redisbloom_layer_bytes(shape);
}

static void describe_output(struct output *output, const char *dir, const struct manifest_filter *filter, unsigned i)
{
    struct bloom_shape shape;

    manifest_get_shape(filter, i, &shape);
    output->head_len = output->skip = 0;
    output->len = filterdb_bytes(shape.nwords);
    if (bloom_variant_is_redisbloom(shape.variant))
        put_bits_header(output, &filter->params, &shape, filter->layers[i].items);
    target_name(output->path, sizeof(output->path), dir, filter->variant, i, ".bits");
}

/* '-' means the standard output to other programs; nobody creates a directory of that name on purpose. */
static int check_target(const char *command, const char *target)
{
    return strcmp(target, "-") != 0 ? TOOL_OK
                                    : tool_misused(command, "'-': a directory is needed; its files are one a layer");
}

static int make_dir(const char *path)
{
    return mkdir(path, 0777) == 0 || errno == EEXIST ? 0 : -errno;
}

static int create(const char *path, bool replace, int *fd_out)
{
    *fd_out = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (replace ? O_TRUNC : O_EXCL), 0666);
    return *fd_out >= 0 ? 0 : -errno;
}

/* 0; or -errno, and the file is removed. */
static int finish(const char *path, int fd, int rc)
{
    if (rc == 0 && fsync(fd) != 0)
        rc = -errno;
    if (close(fd) != 0 && rc == 0)
        rc = -errno;
    if (rc != 0)
        unlink(path);
    return rc;
}

/* Writes the `n` bytes that the store has at `at`. */
static int put_piece(const struct output *output, int fd, const unsigned char *bytes, size_t n, uint64_t at)
{
    size_t skip = at < output->skip ? (size_t)(output->skip - at) : 0;
    uint64_t to = output->head_len + at + skip - output->skip;

    if (skip >= n || to >= output->len)
        return 0;
    n -= skip;
    return fs_write_all(fsops_posix(), fd, bytes + skip, n < output->len - to ? n : (size_t)(output->len - to), to);
}

static int put_head(const struct output *output, int *fd_out)
{
    int rc = create(output->path, false, fd_out);

    return rc != 0 ? rc : fs_write_all(fsops_posix(), *fd_out, output->head, output->head_len, 0);
}

static int write_file(const char *path, bool replace, const unsigned char *bytes, size_t len)
{
    int fd;
    int rc = create(path, replace, &fd);

    return rc != 0 ? rc : finish(path, fd, fs_write_all(fsops_posix(), fd, bytes, len, 0));
}

/* ---- export ---- */

struct export
{
    const char *datadir, *name, *target;
    struct tool_key key; /* the filter's, in the MANIFEST */
    struct pack_reader packs;
    struct progress progress;
    bool found, json;
    unsigned reported;
    int status;
};

/* Copies a layer that has a file of its own and verifies its checksum on the way. `why` receives the reason of a
 * failure. */
static int copy_file(const char *from, const struct output *output, const struct manifest_layer *layer,
                     struct progress *progress, struct errbuf *why)
{
    const char *to = output->path;
    const struct fsops *fs = fsops_posix();
    XXH3_state_t *hash = XXH3_createState();
    unsigned char *piece = malloc(PIECE_BYTES);
    const char *failed = from;
    uint64_t at = 0;
    size_t n = 1;
    int in = -1, out = -1;
    int rc = hash && piece ? fs->open(fs->ctx, from, FS_READ, &in) : -ENOMEM;

    if (rc == 0 && (rc = put_head(output, &out)) != 0)
        failed = to;
    if (rc == 0)
        XXH3_64bits_reset(hash);
    while (rc == 0 && n > 0) {
        rc = fs->pread(fs->ctx, in, piece, PIECE_BYTES, at, &n);
        if (rc == 0 && (rc = put_piece(output, out, piece, n, at)) != 0)
            failed = to;
        if (rc == 0)
            XXH3_64bits_update(hash, piece, n);
        at += n;
        progress_add(progress, n);
    }
    errbuf_set(why, "%s: %s", failed, strerror(-rc));
    if (rc == 0 && (at != filterdb_bytes(layer->nwords) || XXH3_64bits_digest(hash) != layer->xxh3)) {
        errbuf_set(why, "%s: not what the MANIFEST says", from);
        rc = -EIO;
    }
    if (out >= 0) {
        int done = rc;
        rc = finish(to, out, rc);
        if (done == 0)
            errbuf_set(why, "%s: %s", to, strerror(-rc));
    }
    if (in >= 0)
        fs->close(fs->ctx, in);
    XXH3_freeState(hash);
    free(piece);
    return rc;
}

static int export_file(struct export *export, const struct manifest_filter *filter, unsigned i,
                       const struct output *output, struct errbuf *why)
{
    const struct file_name name = manifest_layer_file(filter, i);
    char from[4096], file[FILE_NAME_SIZE];

    file_name_format(&name, file);
    snprintf(from, sizeof(from), "%s/" FILTERS_DIR "/%s", export->datadir, file);
    return copy_file(from, output, &filter->layers[i], &export->progress, why);
}

static int export_packed(struct export *export, const struct manifest_filter *filter, unsigned i, uint64_t offset,
                         const struct output *output, struct errbuf *why)
{
    const struct manifest_layer *layer = &filter->layers[i];
    size_t size = (size_t)filterdb_bytes(layer->nwords);
    const unsigned char *bytes;

    if (pack_read(&export->packs, filter->pack, offset, size, &bytes, NULL, why) != 0)
        return -EIO;
    if (XXH3_64bits(bytes, size) != layer->xxh3) {
        errbuf_set(why, FILTERS_DIR "/%" PRIu64 ".pack: not what the MANIFEST says at byte %" PRIu64, filter->pack,
                   offset);
        return -EIO;
    }
    int fd = -1, rc = put_head(output, &fd);
    if (rc == 0)
        rc = put_piece(output, fd, bytes, size, 0);
    if (fd >= 0)
        rc = finish(output->path, fd, rc);
    errbuf_set(why, "%s: %s", output->path, strerror(-rc));
    return rc;
}

static void report_layer(struct export *export, const char *path, const struct manifest_layer *layer)
{
    uint64_t bits = 64 * layer->nwords;

    if (export->json) {
        fputs(export->reported++ ? ",\n {\"file\": " : "{\"file\": ", stdout);
        tool_print_json(stdout, path, strlen(path));
        printf(", \"k\": %u, \"bits\": %" PRIu64 ", \"items\": %" PRIu64 "}", layer->k, bits, layer->items);
    } else {
        printf("%s: k %u, %" PRIu64 " bits, %" PRIu64 " items\n", path, layer->k, bits, layer->items);
    }
}

static uint64_t bytes_of(const struct manifest_filter *filter)
{
    uint64_t bytes = 0;

    for (unsigned i = 0; i < filter->nlayers; i++)
        bytes += filterdb_bytes(filter->layers[i].nwords);
    return bytes;
}

static int on_filter(void *ctx, const struct manifest_filter *filter, struct errbuf *err)
{
    struct export *export = ctx;
    uint64_t at = filter->pack_offset;
    struct errbuf why = {{0}};
    struct output output;

    (void)err;
    if (filter->name_len != export->key.len || memcmp(filter->name, export->key.bytes, filter->name_len) != 0)
        return 0;
    export->found = true;
    int made = make_dir(export->target);
    if (made != 0)
        export->status = tool_failed(EXPORT, "%s: %s", export->target, strerror(-made));
    progress_begin(&export->progress, "writing", bytes_of(filter));
    for (unsigned i = 0; i < filter->nlayers && export->status == TOOL_OK; i++) {
        describe_output(&output, export->target, filter, i);
        int rc = filter->pack ? export_packed(export, filter, i, at, &output, &why)
                              : export_file(export, filter, i, &output, &why);
        at += filterdb_bytes(filter->layers[i].nwords);
        progress_hide(&export->progress);
        if (rc != 0)
            export->status = tool_failed(EXPORT, rc == -EEXIST ? "%s is there already" : "%s",
                                         rc == -EEXIST ? output.path : why.text);
        else
            report_layer(export, output.path, &filter->layers[i]);
    }
    progress_end(&export->progress);
    return 0;
}

static int find_filter(struct export *export)
{
    const struct manifest_sink sink = {.on_filter = on_filter, .ctx = export};
    struct errbuf err = {{0}};
    int rc = tool_read_manifest(export->datadir, &sink, NULL, &err);

    if (rc != 0)
        return tool_failed(EXPORT, "%s", err.text);
    if (!export->found)
        return tool_failed(EXPORT, "%s: the last save has no filter '%s'", export->datadir, export->name);
    return export->status;
}

/* A MANIFEST that cannot be read is reported when the filter is looked for. */
static int key_of(struct export *export, const struct tool_args *args)
{
    struct manifest_save save = {0};
    const struct manifest_sink nothing = {.on_filter = tool_pass_over};
    unsigned db;
    int status = tool_read_database(EXPORT, args, &db);

    if (status != TOOL_OK)
        return status;
    (void)tool_read_manifest(export->datadir, &nothing, &save, &(struct errbuf){{0}});
    if (!tool_key_of(&save.databases, db, "", export->name, strlen(export->name), &export->key))
        return tool_misused(EXPORT, "the name is longer than %d bytes", MANIFEST_MAX_NAME);
    return TOOL_OK;
}

static int run_export(const struct tool_args *args)
{
    struct export export = {.status = TOOL_OK, .json = tool_option(args, "--json") != NULL};
    struct errbuf err = {{0}};
    int fd;
    int status = check_target(EXPORT, args->positional[2]);

    if (status != TOOL_OK)
        return status;
    export.datadir = args->positional[0];
    export.name = args->positional[1];
    export.target = args->positional[2];
    status =
        tool_lock(export.datadir, &fd, &err) == TOOL_OK ? key_of(&export, args) : tool_failed(EXPORT, "%s", err.text);
    if (status != TOOL_OK)
        return status;
    pack_reader_init(&export.packs, fsops_posix(), export.datadir);
    fputs(export.json ? "[" : "", stdout);
    status = find_filter(&export);
    fputs(export.json ? "]\n" : "", stdout);
    pack_reader_deinit(&export.packs);
    if (fd >= 0)
        close(fd);
    return status;
}

static const struct tool_option export_options[] = {
    TOOL_DATABASE_OPTION("The database that NAME is in; 0 without it."),
    {.name = "--json", .doc = "An array of objects, one for each layer: file, k, bits, items."},
    {.name = NULL},
};

const struct tool_command tool_export_command = {
    .name = EXPORT,
    .arguments = "DATADIR NAME DIRECTORY",
    .min = 3,
    .max = 3,
    .summary = "Takes a filter out of a data directory as Filter.db files.",
    .text =
        "The daemon must not be running on DATADIR. Writes DIRECTORY/<layout>-<layer>-big-Filter.db for each layer "
        "as the last save has it, whether it has a file of its own there or is in a pack; what is in the log is not "
        "in it. The bytes are compared with their checksums; files that are there are not replaced.",
    .options = export_options,
    .examples = "bloomery export /var/lib/bloomery urls /tmp/urls",
    .run = run_export,
};

/* ---- unpack ---- */

struct unpack {
    const char *pack, *target;
    uint64_t filters, lost; /* lost: bytes outside of whole records */
};

/* A pack has a filter twice if it changed during a save: the later one counts. */
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
        target_name(to, sizeof(to), dir, record->variant, i, ".layer"); /* a pack does not say what it is made for */
        rc = write_file(to, true, record->layers[i], record->sizes[i]);
        if (rc != 0)
            return tool_failed(UNPACK, "%s: %s", to, strerror(-rc));
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
    int rc = fs->open(fs->ctx, path, FS_READ, &fd);

    if (rc != 0)
        return rc;
    rc = fs->size(fs->ctx, fd, &size);
    if (rc == 0 && !(bytes = malloc((size_t)size + 1)))
        rc = -ENOMEM;
    if (rc == 0)
        rc = fs_read_all(fs, fd, bytes, (size_t)size, 0);
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
        return tool_failed(UNPACK, "%s: %s", unpack.pack, strerror(-rc));
    /* A new directory: another pack may have an older or newer version of a filter. */
    rc = mkdir(unpack.target, 0750) == 0 ? 0 : -errno;
    status =
        rc == 0 ? unpack_records(&unpack, bytes, len) : tool_failed(UNPACK, "%s: %s", unpack.target, strerror(-rc));
    free(bytes);
    if (status != TOOL_OK)
        return status;
    if (tool_option(args, "--json"))
        printf("{\"filters\": %" PRIu64 ", \"damaged_bytes\": %" PRIu64 "}\n", unpack.filters, unpack.lost);
    else
        printf("%s: %" PRIu64 " filters in %s\n", unpack.pack, unpack.filters, unpack.target);
    return unpack.lost == 0 ? TOOL_OK
                            : tool_failed(UNPACK, "%s: %" PRIu64 " bytes are damaged and have been passed over",
                                          unpack.pack, unpack.lost);
}

static const struct tool_option unpack_options[] = {
    {.name = "--json", .doc = "The result as an object: filters, damaged_bytes."},
    {.name = NULL},
};

const struct tool_command tool_unpack_command = {
    .name = UNPACK,
    .arguments = "PACK DIRECTORY",
    .min = 2,
    .max = 2,
    .summary = "Takes all filters out of a pack, without its MANIFEST.",
    .text = "For when the MANIFEST is lost: a pack says by itself which filters are in it. Makes DIRECTORY and writes "
            "DIRECTORY/<name>-<id>/<layout>-<layer>-big-Filter.db for every record that is whole. Without the MANIFEST "
            "nothing says which records have been superseded: of two packs, the one with the higher number is newer.",
    .options = unpack_options,
    .examples = "bloomery unpack /var/lib/bloomery/filters/pack-00000017 /tmp/rescued",
    .run = run_unpack,
};
