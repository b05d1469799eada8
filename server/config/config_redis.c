/* --from-redis-conf: a redis.conf as a bloomery.conf. */
#include <string.h>
#include <strings.h>

#include "config_file.h"
#include "config_internal.h"

/* Why lines are left out, by the beginning of their names; the first match counts. */
static const struct reason {
    const char *begins;
    bool always; /* also where this daemon has a setting of that name */
    const char *why;
} reasons[] = {
    {"dir", true, "a data directory belongs to one server: choose another one for Bloomery"},
    {"pidfile", true, "it is the file of the other server: choose another one"},
    {"logfile", true, "it is the file of the other server: choose another one, or none for the standard output"},
    {"loadmodule", false,
     "Bloomery has no modules. `bloomery move` or `bloomery import --rdb` transfers RedisBloom's filters"},
    {"rename-command", false, "use ACL rules to forbid commands (docs/ACL.md)"},
    {"repl", false, "Bloomery has no replicas; its module has those of the engine (docs/CLUSTER.md)"},
    {"slave", false, "Bloomery has no replicas; its module has those of the engine (docs/CLUSTER.md)"},
    {"min-replicas", false, "Bloomery has no replicas"},
    {"min-slaves", false, "Bloomery has no replicas"},
    {"master", false, "Bloomery has no replicas"},
    {"cluster-", false, "the daemon is not a cluster node; use the module (docs/CLUSTER.md)"},
    {"sentinel", false, "Bloomery has no replicas"},
    {"io-threads", false, "all work uses several threads: `threads`"},
    {"maxmemory-", false, "filters are never dropped; their bits can be evicted: `maxmemory-policy`"},
    {"lfu-", false, "filters are never dropped"},
    {"lua-", false, "Bloomery has no scripts"},
    {"busy-reply", false, "Bloomery has no scripts"},
    {"hash-", false, "Bloomery has filters only"},
    {"list-", false, "Bloomery has filters only"},
    {"set-", false, "Bloomery has filters only"},
    {"zset-", false, "Bloomery has filters only"},
    {"stream-", false, "Bloomery has filters only"},
    {"hll-", false, "Bloomery has filters only"},
    {"rdb", false, "a save writes files in `dir`, not an RDB file"},
    {"dbfilename", false, "a save writes files in `dir`, not an RDB file"},
    {"sanitize-dump", false, "each dump is verified"},
    {"append", false, "the log is segments in `dir`"},
    {"aof-", false, "the log is segments in `dir`"},
    {"no-appendfsync", false, "the daemon does not fork, and a save does not stop the log"},
    {"auto-aof", false, "the log has no other rules"},
    {"active", false, "it concerns memory or expiry of types that Bloomery does not have"},
    {"lazyfree", false, "removed filters are always freed by another thread"},
    {"jemalloc", false, "the allocator is glibc's"},
    {"daemonize", false, "the daemon stays in the foreground: systemd or a container runs it"},
    {"supervised", false, "the daemon always notifies systemd"},
    {"disable-thp", false, "large filters use huge pages"},
    {"oom-score", false, "the service manager sets it (systemd: OOMScoreAdjust=)"},
};

static const struct reason *reason_of(struct slice name)
{
    for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++) {
        size_t len = strlen(reasons[i].begins);
        bool whole = reasons[i].always; /* "dir", and not "directory" */
        if (name.len >= len && (!whole || name.len == len) && strncasecmp(name.ptr, reasons[i].begins, len) == 0)
            return &reasons[i];
    }
    return NULL;
}

bool config_redis_is_other(struct slice name)
{
    const struct reason *reason = reason_of(name);
    return reason && reason->always;
}

void config_redis_leave_out(struct config_taken *taken, const char *source, unsigned number, struct slice name,
                            const char *why)
{
    const struct reason *reason = reason_of(name);
    bool known = config_find(name) != NULL; /* then its value is the reason */
    if (reason && (reason->always || !known))
        why = reason->why;
    struct errbuf line = {""}; /* with control characters escaped */
    errbuf_set(&line, "%s:%u: %.*s: %s", source, number, name.len < 64 ? (int)name.len : 64, name.ptr,
               reason || known ? why : "no such setting");
    config_append(taken->left_out, "# ");
    config_append(taken->left_out, line.text);
    config_append(taken->left_out, "\n");
}

int config_from_redis(struct config *cfg, const char *path, struct buf *out, struct errbuf *err)
{
    struct buf left_out;
    struct config_taken taken = {.left_out = &left_out};
    struct config_merge merge = {.taken = &taken};
    struct errbuf together = {""};
    size_t n;
    const struct config_row *table = config_table(&n);
    buf_init(&left_out, SIZE_MAX);
    int status = config_load_merged(cfg, &merge, path, err);
    if (status == CONFIG_OK) {
        buf_appendf(out, "# What %s sets, for Bloomery.\n", strcmp(path, "-") == 0 ? "the standard input" : path);
        for (size_t i = 0; i < n; i++) {
            if (taken.settings[i])
                config_print_setting(cfg, &table[i], out);
        }
        if (config_check(cfg, CONFIG_FILE, &together) != CONFIG_OK)
            buf_appendf(out, "\n# A start refuses these together: %s\n", together.text);
        if (buf_len(&left_out) > 0)
            config_append(out, "\n# Left out:\n");
        buf_append(out, buf_head(&left_out), buf_len(&left_out));
        out->failed |= buf_failed(&left_out);
    }
    buf_deinit(&left_out);
    return status;
}
