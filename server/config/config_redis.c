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
     "there are no modules. The filters of RedisBloom come by `bloomery move` or `bloomery import --rdb`"},
    {"rename-command", false, "commands are taken from users by ACL rules (docs/ACL.md)"},
    {"repl", false, "there are no replicas; `bloomery move --follow` keeps a copy (docs/MIGRATION.md)"},
    {"slave", false, "there are no replicas; `bloomery move --follow` keeps a copy (docs/MIGRATION.md)"},
    {"min-replicas", false, "there are no replicas"},
    {"min-slaves", false, "there are no replicas"},
    {"master", false, "there are no replicas"},
    {"cluster-", false, "the daemon is no node of a cluster; the module is (docs/CLUSTER.md)"},
    {"sentinel", false, "there are no replicas"},
    {"io-threads", false, "all work is on several threads: `threads`"},
    {"maxmemory-", false, "filters are never evicted as keys are; their bits can leave memory: `maxmemory-policy`"},
    {"lfu-", false, "filters are never evicted as keys are"},
    {"lua-", false, "there are no scripts"},
    {"busy-reply", false, "there are no scripts"},
    {"hash-", false, "there are no values but filters"},
    {"list-", false, "there are no values but filters"},
    {"set-", false, "there are no values but filters"},
    {"zset-", false, "there are no values but filters"},
    {"stream-", false, "there are no values but filters"},
    {"hll-", false, "there are no values but filters"},
    {"rdb", false, "a save is files in `dir`, and no RDB file"},
    {"dbfilename", false, "a save is files in `dir`, and no RDB file"},
    {"sanitize-dump", false, "each dump is verified"},
    {"append", false, "the log is segments in `dir`"},
    {"aof-", false, "the log is segments in `dir`"},
    {"no-appendfsync", false, "nothing forks, and a save does not stop the log"},
    {"auto-aof", false, "the log has no other rules"},
    {"active", false, "it is about memory or expiry of values that do not exist here"},
    {"lazyfree", false, "removed filters are always freed by another thread"},
    {"jemalloc", false, "the allocator is glibc's"},
    {"daemonize", false, "the daemon stays in the foreground: systemd or a container runs it"},
    {"supervised", false, "the daemon tells systemd by itself"},
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
               reason || known ? why : "there is no such setting");
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
