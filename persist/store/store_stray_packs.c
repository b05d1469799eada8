/* Packs that no record needs. One that is older than the MANIFEST has been superseded, and goes. A newer one is the rest of a
 * save that did not end; or the MANIFEST is an older one that somebody has put back, and it holds filters of the one that
 * was there. Nothing tells the two apart, so a start puts it aside: the packs of one save at the most, until there has
 * been another. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "store_save.h"

#define ASIDE_DIR "unclaimed"

struct pack_strays {
    struct store *store;
    bool report;
    struct store_load_summary *counts;
    bool has_aside;   /* an earlier start has put some aside, and no save has ended since */
    uint64_t aside;   /* packs that this one has */
    uint64_t bytes;   /* of them */
    uint64_t example; /* number of one of them */
};

static int path_aside(const struct store *store, struct path *path, uint64_t number)
{
    char file[sizeof(ASIDE_DIR) + PACK_NAME_SIZE] = ASIDE_DIR "/";

    pack_name(number, file + sizeof(ASIDE_DIR));
    return path_root(store, path, file, NULL);
}

static int visit_aside(void *ctx, const char *name)
{
    struct pack_strays *strays = ctx;
    struct store *store = strays->store;
    uint64_t number = pack_number(name);
    struct path path;

    if (number == 0 || path_aside(store, &path, number) != 0)
        return 0;
    if (number <= store->save.generation) {
        (void)store->fs->unlink(store->fs->ctx, path.text);
        return 0;
    }
    strays->has_aside = generation_pass(store, number) || strays->has_aside; /* it may be put back */
    return 0;
}

static void tidy_aside(struct pack_strays *strays)
{
    struct store *store = strays->store;
    struct path path;

    if (path_root(store, &path, ASIDE_DIR, NULL) != 0 ||
        store->fs->list(store->fs->ctx, path.text, visit_aside, strays) != 0)
        return;
    if (!strays->has_aside)
        (void)store->fs->rmdir(store->fs->ctx, path.text); /* if it is empty */
}

static bool put_aside(struct pack_strays *strays, const struct path *from, uint64_t number)
{
    struct store *store = strays->store;
    struct fs_stat st = {.size = 0};
    struct path dir, to;

    if (path_root(store, &dir, ASIDE_DIR, NULL) != 0 || path_aside(store, &to, number) != 0)
        return false;
    (void)store->fs->stat(store->fs->ctx, from->text, &st);
    (void)store->fs->mkdir(store->fs->ctx, dir.text);
    if (store->fs->rename(store->fs->ctx, from->text, to.text) != 0)
        return false;
    strays->aside++;
    strays->bytes += st.size;
    strays->example = number;
    return true;
}

/* False: it cannot be removed. */
static bool remove_stray(struct pack_strays *strays, uint64_t number)
{
    struct store *store = strays->store;
    struct path path;

    if (path_pack(store, &path, number, NULL) != 0)
        return false;
    if (!generation_pass(store, number))
        return false;
    if (strays->report && !strays->has_aside && number > store->save.generation)
        return put_aside(strays, &path, number);
    int rc = store->fs->unlink(store->fs->ctx, path.text);
    if (rc != 0 && rc != -ENOENT)
        atomic_store(&store->leftovers, true); /* the next save tries again */
    return rc == 0;
}

static int visit_pack(void *ctx, const char *name)
{
    struct pack_strays *strays = ctx;
    struct store *store = strays->store;
    uint64_t number = pack_number(name);

    if (number && id_map_has(&store->packs.slots, number))
        return 0;
    if (number && remove_stray(strays, number)) {
        strays->counts->leftovers++;
        return 0;
    }
    strays->counts->foreign++;
    if (strays->report)
        store_report(store, STORE_WARNING, PACK_DIR "/%s is not known to the MANIFEST and is left alone", name);
    return 0;
}

int packs_strays(struct store *store, bool report, struct store_load_summary *counts, struct errbuf *err)
{
    struct pack_strays strays = {.store = store, .report = report, .counts = counts};
    struct path path;
    int rc = path_root(store, &path, PACK_DIR, err);

    if (rc != 0)
        return rc;
    if (report)
        tidy_aside(&strays);
    rc = store->fs->list(store->fs->ctx, path.text, visit_pack, &strays);
    if (strays.aside > 0)
        store_report(store, STORE_NOTICE,
                     "%" PRIu64 " packs are newer than the MANIFEST, which does not name them (" PACK_DIR "/%" PRIu64
                     ".pack, %" PRIu64 " bytes in all): a save did not end, or the MANIFEST is an older one. They are in " ASIDE_DIR
                     "/ now, until a start after the next save",
                     strays.aside, strays.example, strays.bytes);
    if (rc == -ENOENT)
        return 0;
    if (rc == -ENOTDIR) { /* saves that need one will say what is wrong */
        counts->foreign++;
        if (report)
            store_report(store, STORE_WARNING, "%s is not a directory", path.text);
        return 0;
    }
    if (rc != 0)
        errbuf_set(err, "%s: cannot read the directory: %s", path.text, strerror(-rc));
    return rc;
}
