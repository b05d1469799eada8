/* A save checks the files that it keeps. The next start cannot use a removed or truncated file of the last save, but
 * its bits are in memory: the save writes its filters again. A file whose length is right is taken as good: its bytes
 * were checked when they were read, or were written by this process. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

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
        lost = store->packs.table[entry->slot].lost && fate_state(store, entry->id) != FATE_QUARANTINED;
    } else if (fate_state(store, entry->id) == FATE_QUARANTINED) {
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
