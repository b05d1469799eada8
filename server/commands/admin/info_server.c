/* INFO: the process and its resources. */
#include <elf.h>
#include <gnu/libc-version.h>
#include <inttypes.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "clock.h"
#include "info.h"
#include "version.h"
#include "host.h"

#define LEN(array) (sizeof(array) / sizeof((array)[0]))

/* ---- server ---- */

/* The build id that the linker has put into the program, "" if it has not. */
struct build_id {
    char hex[129];
};

static void find_build_id(const char *note, size_t size, struct build_id *id)
{
    while (size >= sizeof(ElfW(Nhdr))) {
        ElfW(Nhdr) header;
        memcpy(&header, note, sizeof(header));
        size_t name_size = (header.n_namesz + 3) & ~(size_t)3, desc_size = (header.n_descsz + 3) & ~(size_t)3;
        const char *name = note + sizeof(header), *desc = name + name_size;
        if (sizeof(header) + name_size + desc_size > size)
            return;
        if (header.n_type == NT_GNU_BUILD_ID && header.n_namesz == 4 && memcmp(name, "GNU", 4) == 0) {
            for (size_t i = 0; i < header.n_descsz && i < sizeof(id->hex) / 2; i++)
                snprintf(id->hex + 2 * i, 3, "%02x", (unsigned char)desc[i]);
            return;
        }
        note += sizeof(header) + name_size + desc_size;
        size -= sizeof(header) + name_size + desc_size;
    }
}

static int look_at_program(struct dl_phdr_info *program, size_t size, void *id)
{
    (void)size;
    for (unsigned i = 0; i < program->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &program->dlpi_phdr[i];
        if (header->p_type == PT_NOTE)
            find_build_id((const char *)(program->dlpi_addr + header->p_vaddr), header->p_memsz, id);
    }
    return 1; /* the first is the program itself */
}

static void listeners(struct info *info)
{
    const struct config *cfg = info->cfg;
    char text[1024] = "";
    size_t used = 0, n = 0;

    for (size_t i = 0; i < cfg->network.bind.count && used < sizeof(text); i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "bind=%s,", cfg->network.bind.items[i]);
    if (info->server->process.port != 0)
        info_line(info, "listener%zu:name=tcp,%sport=%d", n++, text, info->server->process.port);
    if (info->server->process.tls_port != 0)
        info_line(info, "listener%zu:name=tls,%sport=%d", n++, text, info->server->process.tls_port);
    if (cfg->network.unixsocket[0] != '\0')
        info_line(info, "listener%zu:name=unix,bind=%s", n, cfg->network.unixsocket);
}

void info_server(struct info *info)
{
    struct server *server = info->server;
    int64_t uptime_sec = (clock_ms() - server->process.started_ms) / 1000;
    struct build_id id = {""};
    struct utsname os;

    dl_iterate_phdr(look_at_program, &id);
    info_line(info, "redis_version:" REDIS_COMPAT_VERSION);
    info_line(info, "redis_git_sha1:00000000"); /* as in a Redis that was not built in a repository */
    info_line(info, "redis_git_dirty:0");
    info_line(info, "redis_build_id:%s", id.hex[0] != '\0' ? id.hex : "0");
    info_line(info, "redis_mode:%s", info->cfg->cluster.emulation ? "cluster" : "standalone");
    info_line(info, "bloomery_version:" BLOOMERY_VERSION);
    if (uname(&os) == 0)
        info_line(info, "os:%s %s %s", os.sysname, os.release, os.machine);
    info_line(info, "arch_bits:%zu", sizeof(void *) * 8);
    info_line(info, "monotonic_clock:POSIX clock_gettime");
    info_line(info, "multiplexing_api:epoll");
    info_line(info, "atomicvar_api:c11-builtin");
    info_line(info, "gcc_version:%d.%d.%d", __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
    info_line(info, "process_id:%ld", (long)getpid());
    info_line(info, "process_supervised:no");
    info_line(info, "run_id:%s", server->process.run_id);
    info_line(info, "tcp_port:%d", server->process.port ? server->process.port : server->process.tls_port);
    info_line(info, "server_time_usec:%" PRId64, clock_unix_ms() * 1000);
    info_line(info, "uptime_in_seconds:%" PRId64, uptime_sec);
    info_line(info, "uptime_in_days:%" PRId64, uptime_sec / 86400);
    info_line(info, "hz:%d", HOST_TICKS_PER_SECOND);
    info_line(info, "configured_hz:%d", HOST_TICKS_PER_SECOND);
    info_line(info, "executable:%s", server->process.executable);
    info_line(info, "config_file:%s", server->process.config_file);
    info_line(info, "io_threads_active:%d", server->threads.nworkers > 1);
    listeners(info);
    if (server->settings.tls.expires)
        info_line(info, "tls_certificate_expires:%" PRId64, atomic_load(&server->settings.tls.expires));
    info_line(info, "worker_threads:%u", server->threads.nworkers);
}

/* ---- clients ---- */

/* How evenly connections are spread. */
static void worker_connections(struct info *info)
{
    char text[2048] = "";
    size_t used = 0;

    for (unsigned i = 0; i < info->server->threads.nworkers && used < sizeof(text); i++)
        used +=
            (size_t)snprintf(text + used, sizeof(text) - used, "%s%u", i ? "," : "", host_connections(info->server, i));
    info_line(info, "worker_connections:%s", text);
}

void info_clients(struct info *info)
{
    unsigned blocked = 0;

    for (unsigned i = 0; i < info->server->threads.nworkers; i++)
        blocked += host_blocked(info->server, i);
    info_line(info, "connected_clients:%" PRIu64, sessions_count(info->server->clients.sessions));
    info_line(info, "cluster_connections:0");
    info_line(info, "maxclients:%" PRId64, atomic_load(&info->server->clients.max));
    info_line(info, "client_recent_max_input_buffer:%" PRIu64, info->clients.max_input);
    info_line(info, "client_recent_max_output_buffer:%" PRIu64, info->clients.max_output);
    info_line(info, "blocked_clients:%u", blocked);
    info_line(info, "tracking_clients:0");
    info_line(info, "pubsub_clients:%" PRIu64, info->pubsub.clients);
    info_line(info, "watching_clients:%" PRIu64, info->clients.watching);
    info_line(info, "clients_in_timeout_table:0");
    info_line(info, "total_watched_keys:%" PRIu64, info->clients.watched);
    info_line(info, "total_blocking_keys:0");
    info_line(info, "total_blocking_keys_on_nokey:0");
    info_line(info, "monitor_clients:%" PRIu64, info->pubsub.monitors);
    worker_connections(info);
}

/* ---- memory ---- */

uint64_t info_resident_bytes(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    unsigned long long total, resident = 0;

    if (file == NULL)
        return 0;
    if (fscanf(file, "%llu %llu", &total, &resident) != 2)
        resident = 0;
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Memory that the process occupied before it had any filter does not count as fragmentation: with a few small filters
 * it would hide all the rest. */
double info_fragmentation(const struct server *server, uint64_t rss, uint64_t used)
{
    uint64_t expected = used + server->memory.startup_resident;
    return expected == 0 ? 0 : (double)rss / (double)expected;
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole == 0 ? 0 : (double)part * 100 / (double)whole;
}

/* used_memory is the sum of used_memory_dataset and used_memory_overhead, which is the sum of mem_overhead_*,
 * mem_clients_normal and mem_aof_buffer (memory_use.h); maxmemory limits it without mem_not_counted_for_evict. Memory
 * that is reserved but was never written to counts there and not in used_memory_rss; that the process itself needs, the
 * other way round. */
void info_memory(struct info *info)
{
    static const char *const scripts[] = {
        "used_memory_vm_eval", "used_memory_scripts_eval", "number_of_cached_scripts", "number_of_functions",
        "number_of_libraries", "used_memory_vm_functions", "used_memory_functions"};
    static const char *const buffers[] = {"mem_replication_backlog", "mem_total_replication_buffers",
                                          "mem_replica_full_sync_buffer", "mem_clients_slaves"};
    const struct memory_use *use = &info->memory;
    uint64_t used = memory_use_total(use), dataset = memory_use_dataset(use), rss = info_resident_bytes();
    uint64_t peak = server_peak_bytes(info->server), pending, freed;
    peak = peak > used ? peak : used;

    info_line_bytes(info, "used_memory", used);
    info_line_bytes(info, "used_memory_rss", rss);
    info_line_bytes(info, "used_memory_peak", peak);
    info_line(info, "used_memory_peak_perc:%.2f%%", percent(used, peak));
    info_line(info, "used_memory_overhead:%" PRIu64, used - dataset);
    info_line(info, "used_memory_startup:%" PRIu64, info->server->memory.startup_bytes);
    info_line(info, "used_memory_dataset:%" PRIu64, dataset);
    info_line(info, "used_memory_dataset_perc:%.2f%%", percent(dataset, used));
    info_line_bytes(info, "total_system_memory", (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE));
    info_line_bytes(info, "used_memory_lua", 0);
    info_line_bytes(info, "used_memory_vm_total", 0);
    info_line_bytes(info, "used_memory_scripts", 0);
    info_zeros(info, scripts, LEN(scripts));
    info_line_bytes(info, "maxmemory", info->cfg->memory.maxmemory);
    info_line_bytes(info, "maxmemory_clients", memory_clients_limit(info->server, info->cfg));
    static const char *const policies[] = {"noeviction", "reload", "maybe"};
    info_line(info, "maxmemory_policy:%s", policies[info->cfg->memory.maxmemory_policy]);
    info_line(info, "mem_fragmentation_ratio:%.2f", info_fragmentation(info->server, rss, used));
    info_line(info, "mem_fragmentation_bytes:%" PRId64, (int64_t)(rss - used));
    info_line(info, "mem_not_counted_for_evict:%" PRIu64, used - memory_use_limited(use));
    info_zeros(info, buffers, LEN(buffers));
    info_line(info, "mem_clients_normal:%" PRIu64, use->clients);
    info_line(info, "mem_cluster_links:0");
    info_line(info, "mem_aof_buffer:%" PRIu64, use->log);
    info_line(info, "mem_overhead_index:%" PRIu64, use->index);
    info_line(info, "mem_overhead_expires:%" PRIu64, use->expiry);
    info_line(info, "mem_overhead_pubsub:%" PRIu64, use->pubsub);
    info_line(info, "mem_overhead_db_hashtable_rehashing:0");
    info_line(info, "mem_overhead_users:%" PRIu64, use->users);
    info_line(info, "mem_allocator:glibc-%s", gnu_get_libc_version());
    info_line(info, "active_defrag_running:0");
    reclaimer_counts(info->server->reclaimer, &pending, &freed);
    info_line(info, "lazyfree_pending_objects:%" PRIu64, pending);
    info_line(info, "lazyfreed_objects:%" PRIu64, freed);
}

/* ---- cpu ---- */

static void line_time(struct info *info, const char *name, struct timeval time)
{
    info_line(info, "%s:%ld.%06ld", name, (long)time.tv_sec, (long)time.tv_usec);
}

static struct timeval from_usec(int64_t usec)
{
    return (struct timeval){.tv_sec = usec / 1000000, .tv_usec = usec % 1000000};
}

void info_cpu(struct info *info)
{
    struct rusage self = {0}, children = {0};
    struct server *server = info->server;

    getrusage(RUSAGE_SELF, &self);
    getrusage(RUSAGE_CHILDREN, &children);
    line_time(info, "used_cpu_sys", self.ru_stime);
    line_time(info, "used_cpu_user", self.ru_utime);
    line_time(info, "used_cpu_sys_children", children.ru_stime);
    line_time(info, "used_cpu_user_children", children.ru_utime);
    line_time(info, "used_cpu_sys_main_thread", from_usec(atomic_load(&server->process.main_sys_usec)));
    line_time(info, "used_cpu_user_main_thread", from_usec(atomic_load(&server->process.main_user_usec)));
}

/* ---- features that do not exist here ---- */

void info_replication(struct info *info)
{
    info_line(info, "role:master");
    info_line(info, "connected_slaves:0");
    info_line(info, "master_failover_state:no-failover");
    info_line(info, "master_replid:%s", info->server->process.run_id);
    info_line(info, "master_replid2:0000000000000000000000000000000000000000");
    info_line(info, "master_repl_offset:0");
    info_line(info, "second_repl_offset:-1");
    info_line(info, "repl_backlog_active:0");
    info_line(info, "repl_backlog_size:0");
    info_line(info, "repl_backlog_first_byte_offset:0");
    info_line(info, "repl_backlog_histlen:0");
}

void info_modules(struct info *info)
{
    info_line(info, "module:name=bf,ver=%d,api=1,filters=0,usedby=[],using=[],options=[]", REDISBLOOM_COMPAT_VERSION);
}

void info_cluster(struct info *info)
{
    info_line(info, "cluster_enabled:%d", info->cfg->cluster.emulation);
}
