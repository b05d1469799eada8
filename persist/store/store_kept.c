/* A save checks the files that it keeps. The next start cannot use a removed or truncated file of the last save, but
 * its bits are in memory: the save writes its filters again. A file whose length is right is taken as good: its bytes
 * were checked when they were read, or were written by this process. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "filterdb.h"
#include "log_text.h"
#include "manifest_file.h"
#include "store_internal.h"
#include "store_save.h"
#include "errbuf.h"

/* The report names only the first lost file. */
static void note_lost(struct save *save, const struct file_name *name, const char *how)
{
    struct lost_files *lost = &save->lost;
    char file[FILE_NAME_SIZE];

    if (lost->files++ > 0)
        return;
    file_name_format(name, file);
    snprintf(lost->first, sizeof(lost->first), FILTERS_DIR "/%s %s", file, how);
}

/* A file that cannot be checked counts as lost. */
static bool is_whole(struct save *save, const struct file_name *name, uint64_t bytes)
{
    struct fs_stat st;
    struct path path;
    int rc = path_file(save->store, &path, name, NULL);

    STEP(rc, save->fs->stat(save->fs->ctx, path.text, &st));
    if (rc == 0 && st.kind == FS_FILE && st.size == bytes)
        return true;
    note_lost(save, name, rc == -ENOENT ? "is missing" : rc == 0 ? "has another length" : "cannot be looked at");
    return false;
}

bool kept_is_whole(struct save *save, const struct manifest_filter *record)
{
    bool whole = true;

    for (unsigned i = 0; i < record->nlayers; i++) {
        const struct file_name name = manifest_layer_file(record, i);
        whole = is_whole(save, &name, filterdb_bytes(record->layers[i].shape.nwords)) && whole;
    }
    return whole;
}

/* Without the directory no file can be written. */
static int look_at_directory(struct save *save, struct errbuf *err)
{
    const struct store *store = save->store;
    struct fs_stat st;
    struct path path;
    int rc = path_root(store, &path, FILTERS_DIR, err);

    if (rc != 0 || save->fs->stat(save->fs->ctx, path.text, &st) != -ENOENT)
        return rc;
    rc = save->fs->mkdir(save->fs->ctx, path.text);
    STEP(rc, save->fs->sync_dir(save->fs->ctx, store->dir));
    return rc == 0 ? 0 : errbuf_fail(err, rc, "%s: cannot be created again: %s", path.text, fs_error_text(rc));
}

static void look_at_packs(struct save *save)
{
    struct packs *packs = &save->store->packs;

    for (size_t i = 0; i < packs->count; i++) {
        struct pack_use *pack = &packs->table[i];
        const struct file_name name = {.kind = FILE_PACK, .number = pack->number};
        pack->lost = pack->live > 0 && !is_whole(save, &name, pack->size);
    }
}

/* Entries are in the order of their records, so the MANIFEST is read from front to back. A quarantined filter is not in
 * memory: the operator takes care of its files. */
static int look_at_entry(struct save *save, struct index_entry *entry, struct errbuf *err)
{
    struct store *store = save->store;
    const struct manifest_filter *record;
    bool lost;

    if (entry->flags & INDEX_PACKED) {
        lost = store->packs.table[entry->slot].lost && fate_state(store, entry->id) < FATE_QUARANTINED;
    } else if (fate_state(store, entry->id) >= FATE_QUARANTINED) {
        return 0;
    } else {
        int rc = record_read(&save->committed, entry->offset, &record, err);
        if (rc != 0) {
            errbuf_prefix(err, "%s/" MANIFEST_NAME, store->dir);
            return rc;
        }
        lost = !kept_is_whole(save, record);
    }
    reading_set_flag(store, entry, INDEX_LOST, lost);
    return 0;
}

int kept_look(struct save *save, struct errbuf *err)
{
    struct store_index *index = &save->store->committed.index;
    int rc = look_at_directory(save, err);

    if (rc == 0)
        look_at_packs(save);
    for (size_t i = 0; rc == 0 && i < index->count; i++)
        rc = look_at_entry(save, &index->entries[i], err);
    return rc;
}

void kept_report(struct save *save)
{
    const struct lost_files *lost = &save->lost;
    char more[64] = "";

    if (lost->files > 1)
        snprintf(more, sizeof(more), ", and %" PRIu64 " more files like it", lost->files - 1);
    if (lost->written > 0)
        store_report(save->store, STORE_WARNING, "%s%s: the previous save needs it; written again from memory: %s",
                     lost->first, more, log_count(lost->written, "filter").text);
    if (lost->gone > 0)
        store_report(save->store, STORE_WARNING, "%s%s: the bits of %s are in this file only: put it back", lost->first,
                     more, log_count(lost->gone, "filter").text);
}

/* ---- files of filters that were given up ---- */

/* These are files of quarantined filters that an operator has deleted. They get a second name in `quarantine/<id of the
 * filter>/` before a MANIFEST leaves them out. So nothing needs repair after a crash, and a file that no MANIFEST names
 * can always be removed. A save that cannot keep them fails: an operator may want to repair them. */

#define QUARANTINE_DIR "quarantine"

struct keeping {
    struct store *store;
    const struct fsops *fs;
    const struct manifest_filter *filter;
    struct path dir; /* quarantine/<id> */
};

static int failed(int rc, const char *path, struct errbuf *err)
{
    return errbuf_fail(err, rc, "%s: files of a filter that was given up cannot be kept there: %s", path,
                       fs_error_text(rc));
}

static int target_path(const struct keeping *keeping, const struct file_name *name, struct path *path,
                       struct errbuf *err)
{
    char file[FILE_NAME_SIZE];

    file_name_format(name, file);
    return path_format(path, err, "%s/%s", keeping->dir.text, file);
}

/* The path of a file, and the path under which it is kept. */
static int find_paths(const struct keeping *keeping, const struct file_name *name, struct path *from, struct path *to,
                      struct errbuf *err)
{
    TRY(path_file(keeping->store, from, name, err));
    return target_path(keeping, name, to, err);
}

/* Not every file system has links. */
static int second_name(const struct fsops *fs, const char *from, const char *to)
{
    int rc = fs->link(fs->ctx, from, to);

    if (rc == -EEXIST) /* by a save that failed later */
        return 0;
    if (rc != 0 && rc != -ENOENT && rc != -ENOTDIR)
        rc = fs->rename(fs->ctx, from, to);
    return rc == -ENOENT || rc == -ENOTDIR ? 0 : rc; /* it is missing: that may be why it could not be loaded */
}

static int keep_file(const struct keeping *keeping, unsigned layer, struct errbuf *err)
{
    const struct file_name name = manifest_layer_file(keeping->filter, layer);
    struct path from, to;
    int rc = find_paths(keeping, &name, &from, &to, err);

    if (rc == 0 && (rc = second_name(keeping->fs, from.text, to.text)) != 0)
        failed(rc, to.text, err);
    return rc;
}

/* The disk fails to read the bytes: the pack is kept as a whole. */
static int keep_pack(const struct keeping *keeping, int error, struct errbuf *err)
{
    const struct file_name name = {.kind = FILE_PACK, .number = keeping->filter->pack};
    struct path from, to;
    TRY(find_paths(keeping, &name, &from, &to, err));
    int rc = keeping->fs->link(keeping->fs->ctx, from.text, to.text);
    if (rc == -EEXIST)
        return 0;
    if (rc != 0)
        return failed(error, from.text, err);
    store_report(keeping->store, STORE_WARNING,
                 "%s cannot be read: %s; the filter in it that was given up is kept with it as %s", from.text,
                 strerror(-error), to.text);
    return 0;
}

/* Writes the layers in a pack to files, even damaged or cut layers. */
static int keep_packed(const struct keeping *keeping, struct errbuf *err)
{
    const struct manifest_filter *filter = keeping->filter;
    uint64_t offset = filter->pack_offset;
    struct pack_reader reader;
    int rc = 0;

    pack_reader_init(&reader, keeping->fs, keeping->store->dir);
    for (unsigned i = 0; rc == 0 && i < filter->nlayers; i++) {
        size_t size = (size_t)filterdb_bytes(filter->layers[i].shape.nwords), have = 0;
        const struct file_name name = {FILE_LAYER, filter->variant, i};
        const unsigned char *bytes;
        struct path to;
        rc = pack_read(&reader, filter->pack, offset, size, &bytes, &have, err);
        offset += size;
        if (rc == -ENOENT || rc == FS_ENDS)
            rc = 0;
        if (rc < 0 && !fs_error_passes(rc)) {
            rc = keep_pack(keeping, rc, err);
            break;
        }
        if (rc == 0 && have > 0 && (rc = target_path(keeping, &name, &to, err)) == 0 &&
            (rc = fs_write_file(keeping->fs, to.text, bytes, have)) != 0)
            failed(rc, to.text, err);
    }
    pack_reader_deinit(&reader);
    return rc;
}

static int make_dir(const struct keeping *keeping, const char *path, const char *parent, struct errbuf *err)
{
    const struct fsops *fs = keeping->fs;
    int rc = fs->mkdir(fs->ctx, path);

    if (rc == 0 || rc == -EEXIST)
        rc = fs->sync_dir(fs->ctx, parent);
    return rc == 0 ? 0 : failed(rc, path, err);
}

int save_keep_files(struct save *save, const struct manifest_filter *filter, struct errbuf *err)
{
    struct keeping keeping = {.store = save->store, .fs = save->fs, .filter = filter};
    char id[sizeof(QUARANTINE_DIR) + 24];
    struct path quarantine;

    snprintf(id, sizeof(id), QUARANTINE_DIR "/%" PRIu64, filter->id);
    TRY(path_root(save->store, &quarantine, QUARANTINE_DIR, err));
    TRY(path_root(save->store, &keeping.dir, id, err));
    TRY(make_dir(&keeping, quarantine.text, save->store->dir, err));
    TRY(make_dir(&keeping, keeping.dir.text, quarantine.text, err));
    if (filter->pack)
        TRY(keep_packed(&keeping, err));
    for (unsigned i = 0; !filter->pack && i < filter->nlayers; i++)
        TRY(keep_file(&keeping, i, err));
    int rc = save->fs->sync_dir(save->fs->ctx, keeping.dir.text);
    if (rc != 0)
        return failed(rc, keeping.dir.text, err);
    store_report(save->store, STORE_NOTICE, "filter '%s' was given up; its files are in %s",
                 show_name(filter->name, filter->name_len).text, keeping.dir.text);
    return 0;
}
