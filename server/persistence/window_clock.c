#include "window_clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "bloom_window.h"
#include "clock.h"
#include "manifest.h"

#define STEP_US 1000000 /* a step of the time of day that is worth a note */

static _Atomic int64_t ahead_boot_us;
static struct window_clock_note noted; /* as in the file */
static bool is_noted;
static _Atomic bool has_windows; /* among the filters that were loaded */

int64_t window_clock_us(void)
{
    return clock_boot_us() + atomic_load_explicit(&ahead_boot_us, memory_order_relaxed);
}

int64_t window_clock_ahead(const struct window_clock_note *note, const struct window_clock_now *now)
{
    if (note && note->boot[0] && strcmp(note->boot, now->boot) == 0)
        return note->ahead_boot_us;
    return now->unix_us + (note ? note->ahead_unix_us : 0) - now->boot_us;
}

/* ---- the note ---- */

int window_clock_format(const struct window_clock_note *note, int version, char text_out[WINDOW_CLOCK_MAX])
{
    int n = snprintf(text_out, WINDOW_CLOCK_MAX,
                     "bloomery-clock %d boot=%s ahead-boot-us=%" PRId64 " ahead-unix-us=%" PRId64, version,
                     note->boot[0] ? note->boot : "-", note->ahead_boot_us, note->ahead_unix_us);
    size_t room = WINDOW_CLOCK_MAX - (size_t)n;
    if (version == 1)
        return n + snprintf(text_out + n, room, "\n");
    return n + snprintf(text_out + n, room, " xxh3=%016" PRIx64 "\n", (uint64_t)XXH3_64bits(text_out, (size_t)n));
}

bool window_clock_parse(const char *text, size_t len, struct window_clock_note *note_out)
{
    char copy[WINDOW_CLOCK_MAX + 1], again[WINDOW_CLOCK_MAX];
    int version;

    if (len >= WINDOW_CLOCK_MAX || memchr(text, '\0', len))
        return false;
    memcpy(copy, text, len);
    copy[len] = '\0';
    if (sscanf(copy, "bloomery-clock %1d boot=%39s ahead-boot-us=%" SCNd64 " ahead-unix-us=%" SCNd64, &version,
               note_out->boot, &note_out->ahead_boot_us, &note_out->ahead_unix_us) != 4 ||
        version < 1 || version > WINDOW_CLOCK_VERSION)
        return false;
    if (strcmp(note_out->boot, "-") == 0)
        note_out->boot[0] = '\0';
    /* One form only; and times of some thousand years, which can be added up. */
    const int64_t most = INT64_C(1) << 58;
    return (size_t)window_clock_format(note_out, version, again) == len && memcmp(again, text, len) == 0 &&
           note_out->ahead_boot_us > -most && note_out->ahead_boot_us < most && note_out->ahead_unix_us > -most &&
           note_out->ahead_unix_us < most;
}

static struct window_clock_now read_clocks(const struct fsops *fs)
{
    struct window_clock_now now = {.boot_us = clock_boot_us(), .unix_us = clock_unix_us()};
    fs_boot(fs, now.boot);
    return now;
}

/* 0: it is valid if *valid_out, and otherwise absent, or damaged as `err` says. Or -errno. */
static int read_note(const struct fsops *fs, const char *path, struct window_clock_note *note_out, bool *valid_out,
                     struct errbuf *err)
{
    char text[WINDOW_CLOCK_MAX + 1];
    size_t n = 0;
    unsigned version;
    int fd, rc = fs->open(fs->ctx, path, FS_READ, &fd);
    if (rc == 0) {
        rc = fs->pread(fs->ctx, fd, text, sizeof(text) - 1, 0, &n);
        fs->close(fs->ctx, fd);
    }
    text[n] = '\0';
    *valid_out = rc == 0 && window_clock_parse(text, n, note_out);
    if (*valid_out || rc == -ENOENT)
        return 0;
    if (rc != 0)
        return errbuf_fail(err, rc, "cannot read %s: %s", path, strerror(-rc));
    if (sscanf(text, "bloomery-clock %u ", &version) == 1 && version > WINDOW_CLOCK_VERSION)
        return errbuf_fail(err, -EPROTO,
                           "%s: " WRITTEN_BY_NEWER ": its format has version %u, and this program knows version %d",
                           path, version, WINDOW_CLOCK_VERSION);
    errbuf_set(err, "%s is not a clock file", path);
    return 0;
}

int window_clock_start(const struct fsops *fs, const char *dir, struct errbuf *err)
{
    struct window_clock_now now = read_clocks(fs);
    char path[4096 + 16];

    err->text[0] = '\0';
    snprintf(path, sizeof(path), "%s/" WINDOW_CLOCK_NAME, dir);
    TRY(read_note(fs, path, &noted, &is_noted, err));
    atomic_store(&ahead_boot_us, window_clock_ahead(is_noted ? &noted : NULL, &now));
    return 0;
}

void window_clock_floor(int64_t us)
{
    int64_t least = us - clock_boot_us(), ahead = atomic_load(&ahead_boot_us);
    while (ahead < least && !atomic_compare_exchange_weak(&ahead_boot_us, &ahead, least))
        continue;
}

void window_clock_pass(const struct bloom_filter *filter)
{
    if (!bloom_filter_forgets(filter))
        return;
    atomic_store(&has_windows, true);
    window_clock_floor(bloom_window_latest_us(filter));
}

bool window_clock_is_lost(void)
{
    return !is_noted && atomic_load(&has_windows);
}

int window_clock_save(const struct fsops *fs, const char *dir, struct errbuf *err)
{
    struct window_clock_now now = read_clocks(fs);
    struct window_clock_note note = {.ahead_boot_us = atomic_load(&ahead_boot_us)};

    note.ahead_unix_us = now.boot_us + note.ahead_boot_us - now.unix_us;
    memcpy(note.boot, now.boot, sizeof(note.boot));
    if (is_noted && strcmp(noted.boot, note.boot) == 0 && noted.ahead_boot_us == note.ahead_boot_us &&
        llabs(noted.ahead_unix_us - note.ahead_unix_us) < STEP_US)
        return 0;
    char text[WINDOW_CLOCK_MAX];
    struct path path, fresh;
    TRY(path_format(&path, err, "%s/" WINDOW_CLOCK_NAME, dir));
    TRY(path_format(&fresh, err, "%s/" WINDOW_CLOCK_NAME ".new", dir));
    int rc = fs_write_file(fs, fresh.text, text, (size_t)window_clock_format(&note, WINDOW_CLOCK_VERSION, text));
    STEP(rc, fs->rename(fs->ctx, fresh.text, path.text));
    STEP(rc, fs->sync_dir(fs->ctx, dir));
    if (rc != 0)
        return errbuf_fail(err, rc, "cannot write the clock file, %s/" WINDOW_CLOCK_NAME ": %s", dir, strerror(-rc));
    noted = note;
    is_noted = true;
    return 0;
}
