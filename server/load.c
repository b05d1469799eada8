#include "load.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "server.h"

static struct slice name_of(const struct store_filter *info)
{
    return (struct slice){info->name, info->name_len};
}

/* What has expired while nobody was there is not loaded; the next save removes its files. */
static enum store_fate on_resolve(void *ctx, struct store_filter *info)
{
    struct server *server = ctx;
    if (info->expires_ms == 0 || info->expires_ms > server_unix_ms())
        return STORE_KEPT;
    atomic_fetch_add_explicit(&server->load_expired, 1, memory_order_relaxed);
    return STORE_GONE;
}

/* Gives a filter that has just come under its name the time that was saved. */
static void let_expire(struct server *server, const struct store_filter *info)
{
    if (info->expires_ms != 0 && registry_expire(server->registry, name_of(info), info->expires_ms, 0) == -ENOMEM)
        log_warning(&server->log, "filter %" PRIu64 " will not expire: out of memory", info->id);
}

static struct bloom_filter *on_alloc(void *ctx, const struct store_filter *info, struct bloom_class *class,
                                     void **user_out, struct errbuf *err)
{
    struct server *server = ctx;
    struct entry *entry;
    int status = registry_create_filter(server->registry, name_of(info), info->id, class, &entry, err);
    if (status == REGISTRY_EXISTS)
        errbuf_set(err, "another filter has the same name");
    else if (status < 0)
        errbuf_set(err, "%s", strerror(-status));
    if (status != REGISTRY_OK)
        return NULL;
    *user_out = entry;
    return entry_filter(entry);
}

static void on_loaded(void *ctx, const struct store_filter *info, struct bloom_filter *filter, void *user)
{
    (void)filter;
    entry_mark_clean(user);
    let_expire(ctx, info);
}

static void on_discard(void *ctx, struct bloom_filter *filter, void *user)
{
    struct server *server = ctx;
    (void)filter;
    registry_delete(server->registry, entry_created_name(user));
}

static void on_quarantined(void *ctx, const struct store_filter *info, const char *reason)
{
    struct server *server = ctx;
    if (registry_create_quarantined(server->registry, name_of(info), info->id, reason) != REGISTRY_OK)
        log_warning(&server->log, "filter %" PRIu64 " could not be put into quarantine", info->id);
    else
        let_expire(server, info);
}

void load_report(void *ctx, enum store_severity severity, const char *text)
{
    struct server *server = ctx;
    log_write(&server->log, severity == STORE_WARNING ? LOG_LEVEL_WARNING : LOG_LEVEL_NOTICE, "%s", text);
}

static void on_forget(void *ctx, uint64_t id)
{
    store_forget(ctx, id);
}

int load_data(struct server *server, struct errbuf *err)
{
    const struct config *config = server_config(server);
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    unsigned nthreads = config->load_threads ? (unsigned)config->load_threads : processors > 0 ? (unsigned)processors : 1;
    struct store_loader loader = {.resolve = on_resolve,
                                  .alloc = on_alloc,
                                  .loaded = on_loaded,
                                  .discard = on_discard,
                                  .quarantined = on_quarantined,
                                  .ctx = server};
    struct store_load_summary summary;
    int64_t start = server_now_ms();
    if (store_load(server->store, server->pool, nthreads, &loader, &summary, err) != 0)
        return -1;
    registry_set_next_id(server->registry, store_next_id(server->store));
    registry_on_forget(server->registry, on_forget, server->store);
    log_notice(&server->log,
               "loaded %" PRIu64 " filters, %" PRIu64 " layers, %" PRIu64 " bytes in %" PRId64 " ms; %" PRIu64
               " quarantined, %zu had expired",
               summary.filters, summary.layers, summary.bytes, server_now_ms() - start, summary.quarantined,
               atomic_load_explicit(&server->load_expired, memory_order_relaxed));
    return 0;
}
