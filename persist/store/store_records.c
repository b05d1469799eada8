/* A save, the part of it that is about the records of filters: taken over into the new MANIFEST as they are, in runs.
 * Both the committed MANIFEST and the spool are read once from front to back. */
#include <errno.h>

#include "store_save.h"

struct record_run {
    struct save *save;
    int fd;             /* that they are read from */
    uint64_t from;      /* where the run begins there */
    bool keep;          /* whether its records are in the new MANIFEST */
    XXH3_state_t *hash; /* of what has been read */
};

/* The run ends at `to`, where another one begins. */
static int run_end(struct record_run *run, uint64_t to, bool keep)
{
    int rc = record_copy(&run->save->manifest, run->fd, run->from, to, run->keep, run->hash);

    run->from = to;
    run->keep = keep;
    return rc;
}

/* The next record in the file, at `offset`, is that of the entry `number` of `next`; INDEX_NONE: it is not needed. */
static int run_record(struct record_run *run, uint64_t offset, uint32_t number)
{
    bool keep = number != INDEX_NONE;
    int rc = keep != run->keep ? run_end(run, offset, keep) : 0;

    if (keep)
        run->save->offsets[number] = record_writer_offset(&run->save->manifest) + (offset - run->from);
    return rc;
}

static bool is_carried(const struct save *save, uint32_t number)
{
    return number != INDEX_NONE && !(save->next.entries[number].flags & INDEX_SPOOLED);
}

/* To the end, so that it is known whether it still is what was verified. */
static int write_carried(struct save *save, XXH3_state_t *hash, struct errbuf *err)
{
    const struct store *store = save->store;
    struct record_run run = {.save = save, .fd = store->manifest_fd, .hash = hash};
    int rc = 0;

    for (size_t i = 0; i < store->index.count && rc == 0; i++) {
        const struct index_entry *entry = &store->index.entries[i];
        uint32_t number = index_find_id(&save->next, entry->id);
        rc = run_record(&run, index_offset(entry), is_carried(save, number) ? number : INDEX_NONE);
    }
    if (rc == 0)
        rc = run_end(&run, store->removed_from, false);
    if (rc == 0)
        rc = run_end(&run, store->removed_to, false);
    if (rc != 0)
        return save_manifest_error(store, rc, err);
    if (XXH3_64bits_digest(hash) == store->digest)
        return 0;
    errbuf_set(err, "%s/MANIFEST: has changed since it was verified", store->dir);
    return -EIO;
}

static int write_spooled(struct save *save, XXH3_state_t *hash, struct errbuf *err)
{
    struct record_run run = {.save = save, .fd = save->spool_fd, .hash = hash};
    int rc = record_writer_flush(&save->spool);

    for (uint32_t i = 0; i < save->next.count && rc == 0; i++) {
        const struct index_entry *entry = &save->next.entries[i];
        if (entry->flags & INDEX_SPOOLED)
            rc = run_record(&run, index_offset(entry), entry->flags & INDEX_DROPPED ? INDEX_NONE : i);
    }
    if (rc == 0)
        rc = run_end(&run, record_writer_offset(&save->spool), false);
    if (rc != 0)
        return save_manifest_error(save->store, rc, err);
    if (XXH3_64bits_digest(hash) == record_writer_digest(&save->spool))
        return 0;
    errbuf_set(err, "%s/MANIFEST.spool: has changed since it was written", save->store->dir);
    return -EIO;
}

int save_write_filters(struct save *save, struct errbuf *err)
{
    XXH3_state_t *hash = XXH3_createState();
    int rc = hash ? 0 : save_manifest_error(save->store, -ENOMEM, err);

    if (rc == 0) {
        XXH3_64bits_reset(hash);
        rc = write_carried(save, hash, err);
    }
    if (rc == 0) {
        XXH3_64bits_reset(hash);
        rc = write_spooled(save, hash, err);
    }
    XXH3_freeState(hash);
    return rc;
}

/* The index in the order of the new MANIFEST: in the place of the old one, where there is room. */
void save_adopt_index(struct save *save)
{
    struct store_index *index = &save->store->index;
    size_t kept = 0;

    index_unmap(index);
    for (size_t i = 0; i < index->count; i++) {
        uint32_t number = index_find_id(&save->next, index->entries[i].id);
        if (!is_carried(save, number))
            continue;
        index->entries[kept] = save->next.entries[number];
        index_set_offset(&index->entries[kept++], save->offsets[number]);
    }
    for (size_t i = 0; i < save->next.count; i++) {
        const struct index_entry *entry = &save->next.entries[i];
        if ((entry->flags & (INDEX_SPOOLED | INDEX_DROPPED)) != INDEX_SPOOLED)
            continue;
        index->entries[kept] = *entry;
        index_set_offset(&index->entries[kept++], save->offsets[i]);
    }
    index->count = kept;
    atomic_store(&save->store->count, kept);
}
