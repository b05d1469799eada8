/* window_clock: the clock of windows (bloom_window.h), and the note by which it continues after a restart.
 *
 * While the process runs the clock is monotonic, and it runs while the machine sleeps. The file CLOCK in the data
 * directory notes its value, from the first start on. Within one boot of the machine a restart continues exactly, even
 * if the time of day was changed. After another boot the time of day gives the pause, less its known steps before. The
 * clock never begins before the latest turn in the data directory: if the time of day was set back, nothing is
 * forgotten early. A step forward between two boots looks like time.
 *
 * Thread: window_clock_us(): any. The rest: the thread that loads, then the one that saves. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "errbuf.h"
#include "fsops.h"

int64_t window_clock_us(void);

/* The clock's value in microseconds, relative to the two clocks that it is computed from. */
struct window_clock_note {
    char boot[40];         /* the boot of the machine, "" if it is not known */
    int64_t ahead_boot_us; /* of the time since the boot */
    int64_t ahead_unix_us; /* of the time of day */
};
struct window_clock_now {
    char boot[40];
    int64_t boot_us; /* since the boot */
    int64_t unix_us; /* time of day */
};

/* The clock's lead over the time since the boot, by this note; NULL: none. */
int64_t window_clock_ahead(const struct window_clock_note *note, const struct window_clock_now *now);

#define WINDOW_CLOCK_NAME    "CLOCK"
#define WINDOW_CLOCK_MAX     160 /* bytes of the text */
#define WINDOW_CLOCK_VERSION 2   /* 1, of 0.3.2, has no checksum */
/* Its length. */
int window_clock_format(const struct window_clock_note *note, int version, char text_out[WINDOW_CLOCK_MAX]);
bool window_clock_parse(const char *text, size_t len, struct window_clock_note *note_out);

/* Sets the clock by the note in `dir`. 0: without a valid note, which `err` says, by the time of day. -errno with the
 * reason: the note is there and cannot be read, or a newer version has written it (-EPROTO). */
int window_clock_start(const struct fsops *fs, const char *dir, struct errbuf *err);

/* Loading: moves the clock to this time, or to the latest turn of the filter, if it is behind. Thread: any. */
void window_clock_floor(int64_t us);
void window_clock_pass(const struct bloom_filter *filter);

/* After loading, before the first save: there are windows, and no valid note of their clock. */
bool window_clock_is_lost(void);

/* Writes the note if it has changed. 0 or -errno. */
int window_clock_save(const struct fsops *fs, const char *dir, struct errbuf *err) __attribute__((warn_unused_result));
