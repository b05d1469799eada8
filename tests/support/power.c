#include "power.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "disk_control.h"
#include "tmpdir.h"

#define PATIENCE_MS 300000 /* then disk_trace_open() reports the error */

void power_attach(struct power *power, struct daemon *daemon)
{
    disk_attach();
    daemon_prepare(daemon);
    snprintf(power->path, sizeof(power->path), "%s/trace", daemon->dir);
    disk_record_in(power->path);
}

void power_detach(struct power *power)
{
    disk_detach();
    crash_fs_destroy(power->left);
    memset(power, 0, sizeof(*power));
}

void power_await(const struct power *power)
{
    for (int ms = 0; ms < PATIENCE_MS && !file_exists(power->path); ms++)
        usleep(1000);
}

struct disk_trace *power_trace(struct power *power)
{
    struct disk_trace *trace = disk_trace_open(power->path, power->left);

    power->left = NULL;
    disk_record_in(NULL);
    return trace;
}

struct crash_fs *power_image(struct power *power, const struct disk_trace *trace, const struct daemon *daemon,
                             uint64_t seed)
{
    static const enum crash_mode modes[] = {CRASH_DROP_ALL, CRASH_RANDOM,     CRASH_RANDOM,   CRASH_RANDOM,
                                            CRASH_KEEP_ALL, CRASH_NAMES_ONLY, CRASH_DATA_ONLY};
    enum crash_mode mode = modes[seed % (sizeof(modes) / sizeof(*modes))];
    struct crash_fs *left = disk_trace_crash(trace, mode, seed);

    snprintf(power->what, sizeof(power->what), "power failure %d, seed %llu", (int)mode, (unsigned long long)seed);
    crash_fs_export(left, daemon->data);
    return left;
}

void power_end(struct power *power, struct disk_trace *trace, struct daemon *daemon, uint64_t seed)
{
    disk_trace_play(trace, disk_trace_count(trace));
    power->left = power_image(power, trace, daemon, seed);
    disk_trace_close(trace);
    disk_record_in(power->path);
}

void power_fail(struct power *power, struct daemon *daemon, uint64_t seed)
{
    power_end(power, power_trace(power), daemon, seed);
}

void power_stays(struct power *power, struct daemon *daemon)
{
    struct disk_trace *trace = power_trace(power);

    disk_trace_play(trace, disk_trace_count(trace));
    power->left = disk_trace_crash(trace, CRASH_KEEP_ALL, 0);
    crash_fs_export(power->left, daemon->data);
    snprintf(power->what, sizeof(power->what), "kill -9");
    disk_trace_close(trace);
    disk_record_in(power->path);
}
