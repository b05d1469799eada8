#include "sim_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "check.h"
#include "persistence.h"
#include "main_loop.h"
#include "registry.h"
#include "schedule.h"
#include "server.h"
#include "server_create.h"
#include "sstables.h"

#define POOL_THREADS "3"
#define RETRY_NS     100000000
#define PAGE         ((size_t)64 << 10) /* of small filters (slab.h) */

static struct {
    struct server *server;
    pthread_t thread;
    unsigned workers;
    const char *const *settings;
    enum sim_daemon_state state;
    unsigned askers; /* threads that ask for the end, and use the server */
    int status;
    struct errbuf err;
    char socket[64];
} it;

static void set(struct config *config, const char *name, const char *value)
{
    struct errbuf err = {""};
    struct slice name_slice = {name, strlen(name)}, value_slice = {value, strlen(value)};
    if (config_set(config, name_slice, value_slice, CONFIG_FILE, &err) != CONFIG_OK) {
        fprintf(stderr, "sim_daemon: %s\n", err.text);
        abort();
    }
}

void sim_daemon_socket(char path[64], pid_t pid)
{
    snprintf(path, 64, "%s/bloomery-sim-%07ld", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", (long)pid);
}

static struct config *make_config(void)
{
    struct config *config = calloc(1, sizeof(*config));
    const char *log = getenv("BLOOMERY_SIM_LOG");
    __typeof__(&getpid) real_getpid;
    *(void **)&real_getpid = schedule_real("getpid");
    CHECK(config && config_init(config) == 0);
    sim_daemon_socket(it.socket, real_getpid());
    set(config, "dir", "data");
    set(config, "port", "0");
    set(config, "unixsocket", it.socket);
    set(config, "load-threads", "2");
    set(config, "logfile", log ? log : "/dev/null");
    for (const char *const *at = it.settings; *at; at += 2)
        set(config, at[0], at[1]);
    return config;
}

static void on_loaded(struct server *server)
{
    main_loop_loaded(server);
    it.state = SIM_SERVES;
}

static int run(struct server *server)
{
    int status = server_start(server, PARTS_ALL, &it.err);
    if (status)
        return status;
    status = load_start(server, on_loaded);
    if (status)
        return status;
    struct main_loop *ml = server->threads.main_loop;
    main_loop_run(ml);
    if (main_loop_is_loading(ml))
        status = load_join(server, &it.err);
    if (ml->load.state == LOAD_FAILED)
        it.err = ml->load.failure;
    return ml->load.state == LOAD_FAILED ? -EIO : ml->end.lost;
}

static void *daemon_main(void *arg)
{
    struct config *config = make_config();
    (void)arg;
    it.status = server_create(&it.server, config, it.workers, &it.err);
    if (it.status) {
        config_deinit(config);
        free(config);
    } else {
        it.status = run(it.server);
        while (it.askers)
            schedule_sleep(RETRY_NS);
        it.state = SIM_ENDS;
        server_destroy(it.server);
    }
    it.server = NULL;
    it.state = SIM_ENDED;
    return NULL;
}

void sim_daemon_start(unsigned workers, const char *const *settings)
{
    setenv("UV_THREADPOOL_SIZE", POOL_THREADS, 1);
    it.workers = workers;
    it.settings = settings;
    it.state = SIM_STARTS;
    it.err.text[0] = '\0';
    CHECK(pthread_create(&it.thread, NULL, daemon_main, NULL) == 0);
}

enum sim_daemon_state sim_daemon_state(void)
{
    return it.state;
}

int sim_daemon_status(void)
{
    return it.status;
}

const char *sim_daemon_reason(void)
{
    return it.err.text;
}

void sim_daemon_join(void)
{
    pthread_join(it.thread, NULL);
}

/* In a thread of the daemon's, as SHUTDOWN does it; refused while the disk fails. */
static void *shut_down(void *arg)
{
    struct errbuf err;
    while (!it.server->calls.shutdown(it.server, arg, &err))
        schedule_sleep(RETRY_NS);
    it.askers--;
    return NULL;
}

static void end(struct shutdown_request request)
{
    pthread_t thread;
    while (it.state == SIM_STARTS)
        schedule_sleep(1000000);
    if (it.state == SIM_SERVES) {
        it.askers++;
        CHECK(pthread_create(&thread, NULL, shut_down, &request) == 0);
        pthread_join(thread, NULL);
    }
    pthread_join(it.thread, NULL);
}

void sim_daemon_stop(void)
{
    end((struct shutdown_request){.save = SHUTDOWN_SAVE_BY_RULES});
}

void sim_daemon_tear_down(void)
{
    end((struct shutdown_request){.save = SHUTDOWN_NOSAVE, .force = true});
}

int sim_connect(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    strcpy(address.sun_path, it.socket);
    CHECK(fd >= 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        close(fd);
        return -1;
    }
    schedule_io();
    schedule_point();
    return fd;
}

/* ---- memory ---- */

/* Entries of one size share pages, and each entry may have a size of its own. One more page has the nodes of names, and
 * one was emptied last. */
size_t sim_daemon_sstable_bytes(size_t *most_out)
{
    struct sstables_numbers numbers;
    *most_out = 0;
    if (!it.server->sstables)
        return 0;
    sstables_numbers(it.server->sstables, &numbers);
    *most_out = (numbers.filters + 2) * PAGE;
    return registry_slab_bytes(sstables_registry(it.server->sstables));
}

static struct {
    unsigned one_in, of_thread_in;
    const char *thread;
    uint64_t failures;
} memory;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);

static bool fails(void)
{
    if (!schedule_is_on() || schedule_is_client())
        return false;
    unsigned one_in =
        memory.of_thread_in && strcmp(schedule_name(), memory.thread) == 0 ? memory.of_thread_in : memory.one_in;
    if (!one_in || schedule_random() % one_in)
        return false;
    memory.failures++;
    return true;
}

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails() ? NULL : __real_realloc(old, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails() ? NULL : __real_aligned_alloc(alignment, size);
}

void sim_memory_fail(unsigned one_in)
{
    memory.one_in = one_in;
}

void sim_memory_fail_in(const char *thread, unsigned one_in)
{
    memory.thread = thread;
    memory.of_thread_in = one_in;
}

uint64_t sim_memory_failures(void)
{
    return memory.failures;
}
