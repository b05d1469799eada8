/* window_clock: the clock of windows (bloom_window.h), and the note by which it goes on after a restart.
 *
 * While the process runs it is monotonic, and goes on while the machine sleeps. The file CLOCK in the data directory
 * says where it stood: within one boot of the machine a restart goes on exactly, whatever has happened to the time of
 * day. After another boot the time of day says how long it stood still, and what is known of the time of day's steps
 * until then is taken off. It never begins before the latest turn that the data directory knows: where the time of day
 * has been set back, nothing is forgotten early. A step forward between two boots cannot be told from time.
 *
 * Thread: window_clock_us(): any. The rest: the thread that loads, then the one that saves. */
#ifndef BLOOMERY_WINDOW_CLOCK_H
#define BLOOMERY_WINDOW_CLOCK_H

#include <stdbool.h>
#include <stdint.h>

#include "bloom_filter.h"
#include "errbuf.h"
#include "fsops.h"

int64_t window_clock_us(void);

/* Where the clock stands, in microseconds, and the two clocks that it can be known from. Memory to memory. */
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

/* How far the clock has to be ahead of the time since the boot, after this note; NULL: there is none. */
int64_t window_clock_ahead(const struct window_clock_note *note, const struct window_clock_now *now);

#define WINDOW_CLOCK_NAME "CLOCK"
#define WINDOW_CLOCK_MAX  160                                                                   /* bytes of the text */
int window_clock_format(const struct window_clock_note *note, char text_out[WINDOW_CLOCK_MAX]); /* its length */
bool window_clock_parse(const char *text, size_t len, struct window_clock_note *note_out);

/* Sets the clock after the note in `dir`. A note that cannot be read or is not one counts as none: `err` then says so,
 * otherwise it is empty. */
void window_clock_start(const struct fsops *fs, const char *dir, struct errbuf *err);

/* Loading: lets the clock not be before this time, and not before the turns of the filter, which may be any. Thread:
 * any. */
void window_clock_floor(int64_t us);
void window_clock_pass(const struct bloom_filter *filter);

bool window_clock_is_needed(void); /* window_clock_pass() has met a window */

/* Writes the note, if it would say something new. 0 or -errno. */
int window_clock_save(const struct fsops *fs, const char *dir, struct errbuf *err) __attribute__((warn_unused_result));

#endif
