#include "processors.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "thread.h"

/* Writes "0-3,6", cut where the room ends, which holds all practical lists. */
static void format_set(const cpu_set_t *set, char *text_out, size_t size)
{
    size_t len = 0;
    text_out[0] = '\0';
    for (unsigned first = 0, last; first < CPU_SETSIZE && len < size; first = last + 1) {
        for (last = first; last + 1 < CPU_SETSIZE && CPU_ISSET(first, set) && CPU_ISSET(last + 1, set);)
            last++;
        if (!CPU_ISSET(first, set))
            continue;
        len += (size_t)snprintf(text_out + len, size - len, "%s%u", len ? "," : "", first);
        if (last > first && len < size)
            len += (size_t)snprintf(text_out + len, size - len, "-%u", last);
    }
}

static int take_list(enum thread_kind kind, const char *name, const char *list, struct errbuf *missing_out,
                     struct errbuf *err)
{
    cpu_set_t wanted, got, missing;
    char text[128], have[128];
    if (list[0] == '\0' || !config_cpus(slice_of(list), &wanted)) /* checked before, it is well-formed */
        return 0;
    int status = thread_pin(kind, &wanted, &got);
    if (status == -EINVAL)
        errbuf_set(err, "'%s' %s: this process may use none of these processors", name, list);
    else if (status)
        errbuf_set(err, "'%s' %s: %s", name, list, strerror(-status));
    if (status)
        return status;
    CPU_XOR(&missing, &wanted, &got);
    if (CPU_COUNT(&missing) == 0)
        return 0;
    format_set(&missing, text, sizeof(text));
    format_set(&got, have, sizeof(have));
    errbuf_set(missing_out, "'%s' names processors that this process cannot have (%s); it goes on with %s", name, text,
               have);
    return 0;
}

int processors_take(const struct config *config, struct processors_missing *missing_out, struct errbuf *err)
{
    *missing_out = (struct processors_missing){.texts = {{""}}};
    struct errbuf *missing = missing_out->texts;
    int status = take_list(THREAD_SERVER, "server-cpulist", config->process.server_cpulist, &missing[0], err);
    if (!status)
        status = take_list(THREAD_BACKGROUND, "bio-cpulist", config->process.bio_cpulist, &missing[1], err);
    if (!status)
        status = take_list(THREAD_SAVER, "bgsave-cpulist", config->process.bgsave_cpulist, &missing[2], err);
    if (!status)
        thread_begin_main();
    return status;
}
