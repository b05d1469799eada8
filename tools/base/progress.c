#include "progress.h"

#include <stdio.h>
#include <unistd.h>

#include "clock.h"
#include "tool.h"

#define SHOW_MS  100
#define BAR_WIDE 30

void progress_begin(struct progress *progress, const char *what, uint64_t total)
{
    *progress = (struct progress){.what = what, .total = total, .shows = isatty(STDERR_FILENO)};
    if (progress->shows)
        progress->begun_ms = progress->last_ms = clock_ms();
}

static void show(struct progress *progress, uint64_t done, int64_t now)
{
    double mb = (double)done / 1e6, seconds = (double)(now - progress->begun_ms) / 1e3;
    double share = progress->total ? (double)done / (double)progress->total : 0;
    int bar = share < 1 ? (int)(share * BAR_WIDE) : BAR_WIDE;

    fprintf(stderr, "\r%s ", progress->what);
    if (progress->total)
        fprintf(stderr, "[%s%.*s%s%*s] %3.0f %%, ", terminal_colour(TERMINAL_GREEN), bar,
                "##############################", terminal_colour(TERMINAL_PLAIN), BAR_WIDE - bar, "", 100 * share);
    fprintf(stderr, "%.0f MB, %.0f MB/s", mb, seconds > 0 ? mb / seconds : 0);
    if (share > 0.02 && share < 1 && seconds > 2) /* before that it would be a guess */
        fprintf(stderr, ", %.0f s left", seconds / share - seconds);
    fputs("\033[K", stderr);
    fflush(stderr);
    progress->shown = true;
}

void progress_update(struct progress *progress, uint64_t done)
{
    progress->done = done;
    if (!progress->shows)
        return;
    int64_t now = clock_ms();
    if (now - progress->last_ms < SHOW_MS)
        return;
    progress->last_ms = now;
    show(progress, done, now);
}

void progress_add(struct progress *progress, uint64_t bytes)
{
    progress_update(progress, progress->done + bytes);
}

void progress_hide(struct progress *progress)
{
    if (progress->shown)
        fputs("\r\033[K", stderr);
    progress->shown = false;
}

void progress_end(struct progress *progress)
{
    progress_hide(progress);
    progress->shows = false;
}
