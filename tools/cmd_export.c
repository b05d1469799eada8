/* bloomery export: a filter of a data directory as Filter.db files. bloomery unpack: all filters of a pack, without the
 * data directory: for when the MANIFEST is lost. Both only write what has the right checksum, and replace nothing. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "filterdb.h"
#include "fsops.h"
#include "manifest.h"
#include "pack.h"
#include "tool.h"

#define EXPORT      "export"
#define UNPACK      "unpack"
#define PIECE_BYTES (1u << 20)

/* ---- files that are written -------------------------------------------------------------------------------------- */

/* Named so that import knows the layout, and Cassandra's tools the version. */
static void target_name(char *out, size_t size, const char *dir, enum bloom_variant variant, unsigned layer)
{
    snprintf(out, size, "%s/%s-%u-big-Filter.db", dir, filterdb_variant_name(variant), layer);
}

static int make_dir(const char *path)
{
    return mkdir(path, 0750) == 0 || errno == EEXIST ? 0 : -errno;
}

static int create(const char *path, bool replace, int *fd_out)
{
    *fd_out = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | (replace ? O_TRUNC : O_EXCL), 0640);
    return *fd_out >= 0 ? 0 : -errno;
}

/* 0 or -errno; then there is no such file. */
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

static int write_file(const char *path, bool replace, const unsigned char *bytes, size_t len)
{
    int fd;
    int rc = create(path, replace, &fd);

    return rc != 0 ? rc : finish(path, fd, fs_write_all(fsops_posix(), fd, bytes, len, 0));
}

/* ---- export ------------------------------------------------------------------------------------------------------ */

struct export
{
    const char *datadir, *name, *target;
    struct pack_reader packs;
    bool found;
    int status;
};

/* A layer that has a file of its own: copied, and compared with its checksum on the way. `why` says what is wrong. */
static int copy_file(const char *from, const char *to, const struct manifest_layer *layer, struct errbuf *why)
{
    const struct fsops *fs = fsops_posix();
    XXH3_state_t *hash = XXH3_createState();
    unsigned char *piece = malloc(PIECE_BYTES);
    const char *failed = from;
    uint64_t at = 0;
    size_t n = 1;
    int in = -1, out = -1;
    int rc = hash && piece ? fs->open(fs->ctx, from, FS_READ, &in) : -ENOMEM;

    if (rc == 0 && (rc = create(to, false, &out)) != 0)
        failed = to;
    if (rc == 0)
        XXH3_64bits_reset(hash);
    while (rc == 0 && n > 0) {
        rc = fs->pread(fs->ctx, in, piece, PIECE_BYTES, at, &n);
        if (rc == 0 && (rc = fs_write_all(fs, out, piece, n, at)) != 0)
            failed = to;
        if (rc == 0)
            XXH3_64bits_update(hash, piece, n);
        at += n;
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

static int export_file(struct export *export, const struct manifest_filter *filter, unsigned i, const char *to,
                       struct errbuf *why)
{
    char from[4096], temporary[4096 + 24];
    struct errbuf first;

    snprintf(from, sizeof(from), "%s/filters/%s/%u-Filter.db", export->datadir, filter->dir, i);
    snprintf(temporary, sizeof(temporary), "%s.%" PRIu64, from, filter->layers[i].generation);
    int rc = copy_file(temporary, to, &filter->layers[i], &first);
    if (rc != -ENOENT) {
        *why = first;
        return rc;
    }
    return copy_file(from, to, &filter->layers[i], why);
}

static int export_packed(struct export *export, const struct manifest_filter *filter, unsigned i, uint64_t offset,
                         const char *to, struct errbuf *why)
{
    const struct manifest_layer *layer = &filter->layers[i];
    size_t size = (size_t)filterdb_bytes(layer->nwords);
    const unsigned char *bytes;

    if (pack_read(&export->packs, filter->pack, offset, size, &bytes, NULL, why) != 0)
        return -EIO;
    if (XXH3_64bits(bytes, size) != layer->xxh3) {
        errbuf_set(why, PACK_DIR "/%" PRIu64 ".pack: not what the MANIFEST says at byte %" PRIu64, filter->pack,
                   offset);
        return -EIO;
    }
    int rc = write_file(to, false, bytes, size);
    errbuf_set(why, "%s: %s", to, strerror(-rc));
    return rc;
}

static int on_filter(void *ctx, const struct manifest_filter *filter, uint64_t offset, struct errbuf *err)
{
    struct export *export = ctx;
    uint64_t at = filter->pack_offset;
    struct errbuf why = {{0}};
    char to[4096];

    (void)offset, (void)err;
    if (filter->name_len != strlen(export->name) || memcmp(filter->name, export->name, filter->name_len) != 0)
        return 0;
    export->found = true;
    int made = make_dir(export->target);
    if (made != 0)
        export->status = tool_failed(EXPORT, "%s: %s", export->target, strerror(-made));
    for (unsigned i = 0; i < filter->nlayers && export->status == TOOL_OK; i++) {
        target_name(to, sizeof(to), export->target, filter->variant, i);
        int rc =
            filter->pack ? export_packed(export, filter, i, at, to, &why) : export_file(export, filter, i, to, &why);
        at += filterdb_bytes(filter->layers[i].nwords);
        if (rc != 0)
            export->status =
                tool_failed(EXPORT, rc == -EEXIST ? "%s is there already" : "%s", rc == -EEXIST ? to : why.text);
        else
            printf("%s: k %u, %" PRIu64 " bits, %" PRIu64 " items\n", to, filter->layers[i].k,
                   64 * filter->layers[i].nwords, filter->layers[i].items);
    }
    return 0;
}

static int on_removed(void *ctx, const struct manifest_removed *removed, uint64_t offset, struct errbuf *err)
{
    (void)ctx, (void)removed, (void)offset, (void)err;
    return 0;
}

static int find_filter(struct export *export)
{
    const struct manifest_sink sink = {.on_filter = on_filter, .on_removed = on_removed, .ctx = export};
    struct errbuf err = {{0}};
    int rc = tool_read_manifest(export->datadir, &sink, NULL, &err);

    if (rc != 0)
        return tool_failed(EXPORT, "%s", err.text);
    if (!export->found)
        return tool_failed(EXPORT, "%s: the last save has no filter '%s'", export->datadir, export->name);
    return export->status;
}

int tool_export(int argc, char **argv)
{
    struct tool_option options[] = {{.name = NULL}};
    const char *arguments[3] = {NULL, NULL, NULL};
    struct export export = {.status = TOOL_OK};
    int fd;
    int status = tool_arguments(argc, argv, options, arguments, 3);

    if (status != TOOL_OK)
        return status;
    export.datadir = arguments[0];
    export.name = arguments[1];
    export.target = arguments[2];
    status = tool_lock(EXPORT, export.datadir, &fd);
    if (status != TOOL_OK)
        return status;
    pack_reader_init(&export.packs, fsops_posix(), export.datadir);
    status = find_filter(&export);
    pack_reader_deinit(&export.packs);
    if (fd >= 0)
        close(fd);
    return status;
}

/* ---- unpack ------------------------------------------------------------------------------------------------------ */

struct unpack {
    const char *pack, *target;
    uint64_t filters, lost; /* bytes in no whole record */
};

/* A pack may have a filter twice, when it changed during a save: the later one holds. */
static int unpack_record(const struct unpack *unpack, const struct pack_record *record)
{
    char natural[NAME_DIR_MAX + 1], dir[4096], to[4096 + 64];
    int rc;

    name_dir(record->name, record->name_len, record->id, natural);
    snprintf(dir, sizeof(dir), "%s/%s-%" PRIu64, unpack->target, natural, record->id);
    rc = make_dir(dir);
    for (unsigned i = 0; i < record->nlayers && rc == 0; i++) {
        target_name(to, sizeof(to), dir, record->variant, i);
        rc = write_file(to, true, record->layers[i], record->sizes[i]);
        if (rc != 0)
            return tool_failed(UNPACK, "%s: %s", to, strerror(-rc));
    }
    return rc == 0 ? TOOL_OK : tool_failed(UNPACK, "%s: %s", dir, strerror(-rc));
}

/* What is damaged is passed over until a whole record begins. */
static int unpack_records(struct unpack *unpack, const unsigned char *bytes, size_t len)
{
    int status = TOOL_OK;

    for (size_t at = PACK_HEADER_BYTES; at < len && status == TOOL_OK;) {
        struct pack_record record;
        size_t record_len;

        if (pack_record_parse(bytes + at, len - at, &record, &record_len) != PACK_RECORD) {
            unpack->lost++;
            at++;
            continue;
        }
        status = unpack_record(unpack, &record);
        unpack->filters++;
        at += record_len;
    }
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

int tool_unpack(int argc, char **argv)
{
    struct tool_option options[] = {{.name = NULL}};
    const char *arguments[2] = {NULL, NULL};
    struct unpack unpack = {0};
    unsigned char *bytes;
    size_t len;
    int status = tool_arguments(argc, argv, options, arguments, 2);

    if (status != TOOL_OK)
        return status;
    unpack.pack = arguments[0];
    unpack.target = arguments[1];
    int rc = read_pack(unpack.pack, &bytes, &len);
    if (rc != 0)
        return tool_failed(UNPACK, "%s: %s", unpack.pack, strerror(-rc));
    /* A new directory: what another pack has of a filter may be older or newer. */
    rc = mkdir(unpack.target, 0750) == 0 ? 0 : -errno;
    status =
        rc == 0 ? unpack_records(&unpack, bytes, len) : tool_failed(UNPACK, "%s: %s", unpack.target, strerror(-rc));
    free(bytes);
    if (status != TOOL_OK)
        return status;
    printf("%s: %" PRIu64 " filters in %s\n", unpack.pack, unpack.filters, unpack.target);
    return unpack.lost == 0 ? TOOL_OK
                            : tool_failed(UNPACK, "%s: %" PRIu64 " bytes are damaged and have been passed over",
                                          unpack.pack, unpack.lost);
}
