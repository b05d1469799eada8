#include "datadir_start.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "datadir_make.h"
#include "registry.h"
#include "persistence.h"
#include "rcu.h"
#include "saver.h"
#include "server_create.h"
#include "store.h"

#define SAVED_BYTES_MAX                                                                          \
    (UINT64_C(16) << 20) /* a log can state filters of gigabytes, which must not be written here \
                          */

static void set(struct config *config, const char *name, const char *value)
{
    CHECK(config_set(config, slice_of(name), slice_of(value), CONFIG_FILE, NULL) == CONFIG_OK);
}

static struct server *create(const char *dir, bool accept_damage)
{
    struct config *config = calloc(1, sizeof(*config));
    struct server *server;

    CHECK(config && config_init(config) == 0);
    set(config, "dir", dir);
    set(config, "load-threads", "1");
    set(config, "aof-load-damaged", accept_damage ? "yes" : "no");
    CHECK(server_create(&server, config, 1, NULL) == 0);
    return server;
}

/* ---- the content */

struct look {
    struct server *server;
    struct started *started;
};

static void on_name(void *ctx, struct slice name, struct entry *entry)
{
    struct look *look = ctx;
    struct registry *registry = look->server->registry;
    int64_t expires_ms = 0;

    CHECK(registry_find_expiry(registry, name, &expires_ms) == entry);
    look->started->digest += datadir_digest(entry->id, name.ptr, name.len, expires_ms, entry_filter(entry));
    look->started->filters++;
    look->started->quarantined += entry_filter(entry) == NULL;
    CHECK((entry_filter(entry) == NULL) == (entry_quarantine_reason(entry) != NULL));
    if (!entry_filter(entry) && strstr(entry_quarantine_reason(entry), "memory"))
        look->started->out_of_memory = true;
    CHECK(entry->id < registry_next_id(registry));
}

static void look_at(struct server *server, struct started *started)
{
    struct look look = {server, started};
    uint64_t cursor = 0;

    rcu_reader_begin();
    do
        cursor = registry_scan(server->registry, cursor, 16, on_name, &look);
    while (cursor);
    rcu_reader_end();
    started->bytes = bloom_pool_bytes(server->pool);
}

/* ---- the run ---- */

static void on_done(struct server *server)
{
    (void)server;
}

static void run(struct server *server, bool save, struct started *started)
{
    CHECK(load_start(server, on_done) == 0);
    started->refused = load_join(server, &started->err) != 0;
    CHECK(!started->refused || started->err.text[0] != '\0');
    started->out_of_memory = started->refused && strstr(started->err.text, "memory");
    if (started->refused)
        return;
    look_at(server, started);
    if (save && started->bytes <= SAVED_BYTES_MAX)
        started->saved = saver_run_final(server->persistence->saver, 0, NULL) == 0;
}

void datadir_start(const char *dir, bool accept_damage, bool save, struct started *started_out)
{
    struct server *server = create(dir, accept_damage);
    *started_out = (struct started){.err = {""}};
    int status = server_start(server, PARTS_DATA, &started_out->err);
    CHECK((status == 0) == (started_out->err.text[0] == '\0'));
    started_out->refused = status != 0;
    started_out->refused_by_store = status == STORE_DAMAGED;
    if (status == 0)
        run(server, save, started_out);
    printf("start: %s, %zu filters, %zu in quarantine, %016llx%s\n",
           started_out->refused ? started_out->err.text : "ready", started_out->filters, started_out->quarantined,
           (unsigned long long)started_out->digest, started_out->saved ? ", saved" : "");
    server_destroy(server);
}
