/* Reports of the store, and answers about it as a whole. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "manifest_file.h"
#include "name_code.h"
#include "store_internal.h"
#include "lock.h"

/* ---- small things ---- */

void store_report(struct store *store, enum store_severity severity, const char *fmt, ...)
{
    struct errbuf text = {0};
    char raw[ERRBUF_SIZE];
    va_list args;

    if (!store->report)
        return;
    va_start(args, fmt);
    vsnprintf(raw, sizeof(raw), fmt, args);
    va_end(args);
    errbuf_set(&text, "%s", raw);
    lock_take(&store->lock);
    store->report(store->report_ctx, severity, text.text);
    lock_give(&store->lock);
}

struct shown_name show_name(const char *name, size_t len)
{
    struct shown_name shown;
    size_t n = 0;

    for (size_t i = 0; i < len && n < 60; i++) {
        if (name[i] == '.') {
            shown.text[n++] = '.';
            continue;
        }
        name_encode(name + i, 1, shown.text + n);
        n += name_encoded_len(name + i, 1);
    }
    strcpy(shown.text + n, n >= 60 ? "..." : "");
    return shown;
}

/* ---- answers ---- */

uint64_t store_next_id(const struct store *store)
{
    return atomic_load(&store->next_id);
}

uint64_t store_number(const struct store *store)
{
    return atomic_load(&store->number);
}

uint64_t store_opened_bytes(const struct store *store)
{
    return store->opened.bytes;
}

struct store_checkpoint store_checkpoint(const struct store *store)
{
    return (struct store_checkpoint){store->committed.save.log, store->committed.save.control,
                                     store->committed.save.frame, store->committed.save.accepted,
                                     store->committed.save.databases};
}

/* Records are read one after another: this call is rare. */
int store_find(struct store *store, const char *name, size_t name_len, uint64_t *id_out, struct errbuf *err)
{
    struct record_reader reader;
    int rc = record_reader_init(&reader, store->fs, store->committed.fd);

    if (rc != 0)
        errbuf_set(err, "out of memory");
    for (size_t i = 0; i < store->committed.index.count && rc == 0; i++) {
        const struct manifest_filter *filter;

        rc = record_read(&reader, store->committed.index.entries[i].offset, &filter, err);
        if (rc != 0 || filter->name_len != name_len || memcmp(filter->name, name, name_len) != 0)
            continue;
        if (id_out)
            *id_out = filter->id;
        record_reader_deinit(&reader);
        return 0;
    }
    record_reader_deinit(&reader);
    return rc != 0 ? rc : STORE_NOT_FOUND;
}

int store_still_ours(struct store *store, struct errbuf *err)
{
    struct path path;
    int rc = path_root(store, &path, "LOCK", err);

    if (rc == 0)
        rc = store->fs->is_at(store->fs->ctx, store->lock_fd, path.text);
    if (rc == -ESTALE)
        errbuf_set(err,
                   "%s: not the file that this process has locked: the data directory has been moved, removed or "
                   "replaced, and may be another process's now",
                   path.text);
    else if (rc != 0)
        errbuf_set(err, "%s: %s", path.text, fs_error_text(rc));
    return rc;
}
