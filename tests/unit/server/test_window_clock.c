/* The clock of windows: where it continues after a restart, with any times of the other clocks. */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "tmpdir.h"
#include "window_clock.h"

#define HOUR INT64_C(3600000000)

static const struct window_clock_note note = {.boot = "here", .ahead_boot_us = 1000 * HOUR, .ahead_unix_us = 0};

Test(window_clock, without_a_note_it_is_the_time_of_day)
{
    const struct window_clock_now now = {.boot = "here", .boot_us = 3 * HOUR, .unix_us = 1003 * HOUR};

    cr_assert_eq(window_clock_ahead(NULL, &now), 1000 * HOUR);
}

Test(window_clock, within_a_boot_the_time_of_day_does_not_matter)
{
    const struct window_clock_now back = {.boot = "here", .boot_us = 3 * HOUR, .unix_us = 1 * HOUR};
    const struct window_clock_now on = {.boot = "here", .boot_us = 3 * HOUR, .unix_us = 9999 * HOUR};

    cr_assert_eq(window_clock_ahead(&note, &back), 1000 * HOUR);
    cr_assert_eq(window_clock_ahead(&note, &on), 1000 * HOUR);
}

Test(window_clock, after_another_boot_known_steps_are_taken_off)
{
    const struct window_clock_now now = {.boot = "there", .boot_us = HOUR, .unix_us = 1010 * HOUR};
    struct window_clock_note set_back = note;

    cr_assert_eq(window_clock_ahead(&note, &now) + now.boot_us, 1010 * HOUR);
    set_back.ahead_unix_us = 5 * HOUR; /* the time of day had been set back by five hours */
    cr_assert_eq(window_clock_ahead(&set_back, &now) + now.boot_us, 1015 * HOUR);
}

Test(window_clock, a_note_has_one_form)
{
    static const char *const wrong[] = {
        "",
        "bloomery-clock 1 boot=- ahead-boot-us=1 ahead-unix-us=2",
        "bloomery-clock 2 boot=- ahead-boot-us=1 ahead-unix-us=2\n",
        "bloomery-clock 1 boot=- ahead-boot-us=01 ahead-unix-us=2\n",
        "bloomery-clock 1 boot=- ahead-boot-us=1 ahead-unix-us=2\n\n",
        "bloomery-clock 1  boot=- ahead-boot-us=1 ahead-unix-us=2\n",
        "bloomery-clock 1 boot=- ahead-boot-us=9000000000000000000 ahead-unix-us=2\n",
        "bloomery-clock 1 boot=0123456789012345678901234567890123456789 ahead-boot-us=1 ahead-unix-us=2\n",
    };
    static const char old[] = "bloomery-clock 1 boot=- ahead-boot-us=1 ahead-unix-us=2\n";
    char text[WINDOW_CLOCK_MAX];
    struct window_clock_note again;
    int len = window_clock_format(&note, WINDOW_CLOCK_VERSION, text);

    cr_assert(window_clock_parse(text, (size_t)len, &again));
    cr_assert_str_eq(again.boot, "here");
    cr_assert_eq(again.ahead_boot_us, note.ahead_boot_us);
    for (int i = 0; i < len * 8; i++) {
        text[i / 8] ^= (char)(1 << i % 8);
        cr_assert(!window_clock_parse(text, (size_t)len, &again), "%d: %s", i, text);
        text[i / 8] ^= (char)(1 << i % 8);
    }
    cr_assert(window_clock_parse(old, strlen(old), &again), "0.3.2 wrote this");
    for (int i = 0; i < len; i++)
        cr_assert(!window_clock_parse(text, (size_t)i, &again));
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        cr_assert(!window_clock_parse(wrong[i], strlen(wrong[i]), &again), "%s", wrong[i]);
}

Test(window_clock, a_restart_goes_on_from_the_file)
{
    const struct fsops *fs = fsops_posix();
    struct errbuf err = {""};
    char dir[TMPDIR_SIZE];

    tmpdir_create(dir);
    cr_assert_eq(window_clock_start(fs, dir, &err), 0, "%s", err.text);
    cr_assert_str_empty(err.text);
    window_clock_floor(window_clock_us() + 100 * HOUR);
    int64_t before = window_clock_us();
    cr_assert_eq(window_clock_save(fs, dir, &err), 0, "%s", err.text);
    cr_assert_eq(window_clock_start(fs, dir, &err), 0, "%s", err.text);
    cr_assert(window_clock_us() >= before && window_clock_us() < before + HOUR);
    file_write(tmp_path(dir, WINDOW_CLOCK_NAME).text, "nonsense", 8);
    cr_assert_eq(window_clock_start(fs, dir, &err), 0, "%s", err.text);
    cr_assert(strstr(err.text, "is not a clock file"), "%s", err.text);
    cr_assert(window_clock_us() < before - 50 * HOUR);
    file_write_text(tmp_path(dir, WINDOW_CLOCK_NAME).text, "bloomery-clock 3 boot=- ahead=0\n");
    cr_assert_eq(window_clock_start(fs, dir, &err), -EPROTO);
    cr_assert(strstr(err.text, "written by a newer version"), "%s", err.text);
    remove(tmp_path(dir, WINDOW_CLOCK_NAME).text);
    cr_assert_eq(mkdir(tmp_path(dir, WINDOW_CLOCK_NAME).text, 0700), 0);
    cr_assert_lt(window_clock_start(fs, dir, &err), 0, "what cannot be read may be there");
    tmpdir_remove(dir);
}
