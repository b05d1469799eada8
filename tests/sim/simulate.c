/* Runs the daemon in simulated lives: simulate [FIRST [COUNT]] runs COUNT seeds from FIRST on; COUNT 1 repeats a seed
 * that has failed. With a third word it prints their traces. simulate --forever runs fresh seeds until one fails. A
 * seed gives each life its settings, the order of its threads, its clients, its faults and its end; the next life
 * begins with the disk of the one before. BLOOMERY_SIM_LOG=FILE receives the daemon's log; BLOOMERY_SIM_VERBOSE=1 shows
 * each life. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "arena.h"
#include "rng.h"
#include "schedule.h"
#include "sim_commands.h"
#include "sim_daemon.h"
#include "sim_disk.h"
#include "sim_sstables.h"
#include "sim_world.h"

#define LIVES_MAX 4

static struct totals {
    uint64_t lives, commands, points, checked, faults, evictions;
    uint64_t done[OP_KINDS];
    struct model_false falses;
} totals;

static bool verbose;

static void plan(struct sim_life *life, struct rng *rng, bool last)
{
    static const unsigned switches[] = {0, 2, 4, 16, 64, 256};
    static const unsigned branches[] = {0, 0, 20, 200, 2000};
    static const unsigned points[] = {100, 1000, 20000};
    life->seed = rng_next(rng);
    life->workers = 1 + (unsigned)rng_below(rng, 3);
    life->switch_in = switches[rng_below(rng, 6)];
    life->branch_in = branches[rng_below(rng, 5)];
    life->point_ns = points[rng_below(rng, 3)];
    life->nsteps = 20 + (unsigned)rng_below(rng, 180);
    life->end = last ? END_STOP : (enum sim_end)rng_below(rng, 3);
    life->end_after =
        life->end == END_STOP || rng_below(rng, 4) == 0 ? 0 : 1 + rng_below(rng, 1 + rng_below(rng, 6000));
    life->disk_fails_in = rng_below(rng, 4) == 0 ? 10 + (unsigned)rng_below(rng, 200) : 0;
    life->memory_fails_in = rng_below(rng, 6) == 0 ? 20 + (unsigned)rng_below(rng, 400) : 0;
    life->end_at_start = life->first || last || rng_below(rng, 8) ? 0 : 1 + rng_below(rng, 800);
    life->fails_at_start = !life->first && rng_below(rng, 4) == 0;
    life->memory = rng_below(rng, 6) ? MEMORY_FREE : (enum sim_memory)(1 + rng_below(rng, 3));
    life->memory_bytes = 200000 + rng_below(rng, 600000);
    life->last = last;
    life->lazy = rng_below(rng, 4) == 0;
    life->rules = rng_below(rng, 4) == 0;
    life->sstables = rng_below(rng, 5) == 0;
    if (last)
        life->disk_fails_in = life->memory_fails_in = 0;
    life->now_ns += rng_below(rng, UINT64_C(5000000000));
    life->over = false;
}

/* Between two lives the time of day may be set. After a boot a window goes by it: set forward, items may expire early;
 * set back, they stay longer. */
static void set_clocks(struct sim_life *life, struct rng *rng)
{
    struct model *model = life->model;
    uint64_t was_ms = schedule_day_ms_at(life->now_ns, life->day_ms);
    int64_t step_ms = rng_below(rng, 4) ? 0 : (int64_t)rng_below(rng, 200000) - 100000;
    life->day_ms += step_ms;
    life->forward |= step_ms > 0;
    life->back |= step_ms < 0;
    model->jumps += step_ms != 0;
    if (verbose && step_ms)
        printf("  the time of day: %+lld ms\n", (long long)step_ms);
    for (unsigned i = 0; i < MODEL_CLIENTS; i++)
        for (unsigned j = 0; j < MODEL_NAMES; j++) {
            if (step_ms < 0)
                filter_set_back(&life->names[i][j], was_ms);
            if ((life->end == END_POWER || life->booted) && (life->forward || life->back) &&
                model_family_of(model->clients[i].family, j) == FAMILY_WINDOW) {
                life->names[i][j].may = (UINT64_C(1) << MODEL_ITEMS) - 1; /* what was forgotten may come back */
                filter_forget(FAMILY_WINDOW, &life->names[i][j]);
            }
        }
    if (life->end != END_POWER)
        return;
    life->boot_ns = life->now_ns;
    life->booted = true;
    life->forward = life->back = false;
}

/* False: the life has failed, and its reason is printed. */
static bool run_life(struct sim_life *life)
{
    int status = 0;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        sim_live(life);
    waitpid(pid, &status, 0);
    char socket[64];
    sim_daemon_socket(socket, pid);
    unlink(socket);
    if (life->sstables)
        sim_sstables_remove();
    if (verbose)
        printf("  end %d policy %d workers %u faults %u %u: points %llu, trace %016llx\n", (int)life->end,
               (int)life->policy, life->workers, life->disk_fails_in, life->memory_fails_in,
               (unsigned long long)life->points, (unsigned long long)life->trace);
    if (!life->over)
        printf("the daemon has died: status %x\n", (unsigned)status);
    if (life->model->failure[0])
        printf("%s\n", life->model->failure);
    return life->over && !life->model->failure[0];
}

static bool run_seed(uint64_t seed, uint64_t *trace_out)
{
    struct rng rng;
    bool good = true;
    rng_init(&rng, seed);
    arena_empty();
    sim_disk_create();
    struct sim_life *life = arena_calloc(1, sizeof(*life));
    life->shown = verbose;
    life->model = model_create();
    for (unsigned i = 0; i < MODEL_CLIENTS; i++) {
        life->model->clients[i].family = (enum family)rng_below(&rng, FAMILIES);
        for (unsigned j = 0; j < MODEL_NAMES; j++)
            life->names[i][j] = filter_absent();
    }
    struct window_kind *window = &life->model->window;
    *window = (struct window_kind){UINT64_C(1000000000) * (1 + rng_below(&rng, 3)), .refresh = rng_below(&rng, 2)};
    window->parts = 1 + (unsigned)rng_below(&rng, 8);
    window->items = window->parts + (unsigned)rng_below(&rng, 20);
    for (unsigned i = 0; i < MODEL_CLIENTS; i++)
        life->sleeps |= life->model->clients[i].family == FAMILY_WINDOW;
    for (unsigned i = 0; i < MODEL_SHARED; i++)
        life->shared[i] = filter_absent();
    life->model->shared_family[1] = (enum family)rng_below(&rng, FAMILY_WINDOW);
    life->now_ns = UINT64_C(5000000000);
    unsigned nlives = 2 + (unsigned)rng_below(&rng, LIVES_MAX - 1);
    bool log = rng_below(&rng, 5) != 0;
    *trace_out = 0;
    for (unsigned i = 0; good && i < nlives; i++) {
        static const enum crash_mode modes[] = {CRASH_DROP_ALL, CRASH_RANDOM, CRASH_RANDOM, CRASH_NAMES_ONLY,
                                                CRASH_DATA_ONLY};
        life->first = i == 0;
        life->policy = log ? (enum sim_policy)rng_below(&rng, 3) : POLICY_NO_LOG;
        plan(life, &rng, i + 1 == nlives);
        good = run_life(life);
        set_clocks(life, &rng);
        sim_disk_crash(life->end == END_POWER ? modes[rng_below(&rng, 5)] : CRASH_KEEP_ALL, rng_next(&rng));
        *trace_out = *trace_out * 31 + life->trace;
        totals.lives++;
        totals.points += life->points;
        totals.faults += life->faults;
        totals.evictions += life->evictions;
    }
    for (unsigned i = 0; i < OP_KINDS; i++)
        totals.done[i] += life->model->done[i];
    totals.falses.seen += life->model->falses.seen;
    totals.falses.asked += life->model->falses.asked;
    totals.commands += life->model->commands;
    totals.checked += life->model->checked;
    return good;
}

static void print_totals(uint64_t count, double seconds, uint64_t trace)
{
    printf("%llu seeds in %.1f s (%.0f per second): %llu lives, %llu commands, %llu points, %llu names checked after a "
           "restart, %llu faults; trace of the last %016llx\n",
           (unsigned long long)count, seconds, (double)count / seconds, (unsigned long long)totals.lives,
           (unsigned long long)totals.commands, (unsigned long long)totals.points, (unsigned long long)totals.checked,
           (unsigned long long)totals.faults, (unsigned long long)trace);
    printf("done:");
    for (unsigned i = 0; i < OP_KINDS; i++)
        printf(" %s %llu,", model_word((enum op_kind)i), (unsigned long long)totals.done[i]);
    printf(" %llu evictions, false positives %llu of %llu\n", (unsigned long long)totals.evictions,
           (unsigned long long)totals.falses.seen, (unsigned long long)totals.falses.asked);
}

/* A few choices of the daemon depend on addresses (the lock of a filter, out of several): they are the same in each run
 * if the system permits fixed addresses. */
static void keep_addresses(char **argv)
{
    int now = personality(UINT32_MAX);
    if (now >= 0 && !(now & ADDR_NO_RANDOMIZE) && personality((unsigned long)now | ADDR_NO_RANDOMIZE) >= 0)
        execv("/proc/self/exe", argv);
}

/* A working directory for SSTables. The daemon knows their paths from there on, which are the same in each run. */
static void enter_directory(char path[64])
{
    const char *log = getenv("BLOOMERY_SIM_LOG");
    char whole[PATH_MAX];
    if (log && *log != '/' && getcwd(whole, sizeof(whole) - strlen(log) - 1))
        setenv("BLOOMERY_SIM_LOG", strcat(strcat(whole, "/"), log), 1);
    sim_daemon_socket(path, getpid());
    strcat(path, ".d");
    if ((mkdir(path, 0700) != 0 && errno != EEXIST) || chdir(path) != 0) {
        perror(path);
        exit(1);
    }
    sim_sstables_remove(); /* of a process that was killed and had this number */
}

/* False: the seed has failed, or does not repeat. */
static bool check_seed(uint64_t seed, bool again, uint64_t *trace_out)
{
    uint64_t trace;
    bool good = run_seed(seed, trace_out);
    if (!good)
        printf("FAILED: seed %llu; again by: simulate %llu\n", (unsigned long long)seed, (unsigned long long)seed);
    else if (again && (!run_seed(seed, &trace) || trace != *trace_out)) {
        printf("FAILED: seed %llu does not repeat: %016llx, then %016llx\n", (unsigned long long)seed,
               (unsigned long long)*trace_out, (unsigned long long)trace);
        good = false;
    }
    return good;
}

/* Fresh seeds, until one fails. */
static void run_forever(void)
{
    uint64_t first = 0, trace, n = 0;
    if (getrandom(&first, 6, 0) != 6)
        return;
    printf("from seed %llu on\n", (unsigned long long)first);
    while (check_seed(first + n, false, &trace))
        if (++n % 1000 == 0)
            printf("%llu seeds\n", (unsigned long long)n);
    printf("%llu seeds passed before it\n", (unsigned long long)n);
}

int main(int argc, char **argv)
{
    uint64_t failed = 0, trace = 0;
    struct timespec begin, end;
    static char text[1 << 16];
    char directory[64], item[NAME_SIZE];
    keep_addresses(argv);
    setvbuf(stdout, text, _IOFBF,
            sizeof(text)); /* it would take memory at its first use, and move all that comes after */
    verbose = getenv("BLOOMERY_SIM_VERBOSE") != NULL;
    arena_create();
    enter_directory(directory);
    (void)command_item(item, FAMILY_CUCKOO, 0); /* finds them all, once for all lives */
    if (argc > 1 && strcmp(argv[1], "--forever") == 0) {
        run_forever();
        rmdir(directory);
        return 1;
    }
    uint64_t first = argc > 1 ? strtoull(argv[1], NULL, 0) : 1, count = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (uint64_t seed = first; seed < first + count; seed++) {
        failed += !check_seed(seed, seed % 100 == 0, &trace);
        if (argc > 3)
            printf("%llu %016llx\n", (unsigned long long)seed, (unsigned long long)trace);
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    double seconds = (double)(end.tv_sec - begin.tv_sec) + (double)(end.tv_nsec - begin.tv_nsec) / 1e9;
    rmdir(directory);
    if (argc <= 3)
        print_totals(count, seconds, trace);
    return failed ? 1 : 0;
}
