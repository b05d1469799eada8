/* The end of the log, cut and changed at every byte: a part that may not have been synced is cut and reported;
 * damage to synced data stops the start, with a reason. `bloomery check` agrees with the start. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client.h"
#include "daemon.h"
#include "log_clients.h"
#include "tmpdir.h"

#define FRAMES 10
#define TORN   2 /* of these are cut and changed */

static struct daemon daemon_under_test;
static const char *const always[] = {"--appendfsync", "always", "--threads", "1", NULL};

static struct tmp_path segment;
static unsigned char *bytes; /* of the segment */
static size_t len;
static size_t ends[FRAMES + 1]; /* [n]: end of the frame of add n; [0]: end of that of the filter */

static void discard(void)
{
    daemon_discard(&daemon_under_test);
    free(bytes);
    bytes = NULL;
}

static size_t end_of_segment(void)
{
    free(bytes);
    bytes = file_read(segment.text, &len);
    return log_end(segment.text);
}

/* A frame for each add: the next add is sent after the reply. False if a mark is between them, as on a machine that
 * stood still for 0.2 s. */
static bool make_frames(void)
{
    bool same = true;

    daemon_start(&daemon_under_test, always);
    segment = tmp_path(daemon_under_test.data, "log/00000001.log");
    redisContext *client = client_open(daemon_under_test.port);
    expect(client, "+OK", "BF.RESERVE f 0.0000001 100");
    ends[0] = end_of_segment();
    for (int i = 1; i <= FRAMES; i++) {
        expect(client, ":1", "BF.ADD f item:%d", i);
        ends[i] = end_of_segment();
        cr_assert_gt(ends[i], ends[i - 1]);
        same &= i < 2 || ends[i] - ends[i - 1] == ends[1] - ends[0];
    }
    client_kill(client, &daemon_under_test);
    memset(bytes + ends[FRAMES], 0, len - ends[FRAMES]); /* a mark, too */
    return same;
}

static void make_log(void)
{
    while (!make_frames())
        discard();
}

TestSuite(log_tail, .init = make_log, .fini = discard, .timeout = 3000);

/* Makes the image the log's only segment: starts begin others. Nothing else says where the log ends. */
static void put_back(const unsigned char *image, size_t image_len)
{
    struct tmp_path log = tmp_path(daemon_under_test.data, "log");

    tmpdir_remove(log.text);
    unlink(tmp_path(daemon_under_test.data, "TAIL").text);
    cr_assert_eq(mkdir(log.text, 0700), 0);
    file_write(segment.text, image, image_len);
}

/* The current log has `frames` adds before an end that is cut if `cut`. */
static void expect_frames(int frames, bool cut, const char *what, size_t at)
{
    const char *output;
    char text[64];

    cr_assert_eq(check_tool(&daemon_under_test, &output), 0, "%s %zu: %s", what, at, output);
    snprintf(text, sizeof(text), "%d adds", frames);
    cr_assert(strstr(output, text) && (strstr(output, "will cut them") != NULL) == cut, "%s %zu: %s", what, at, output);
    daemon_start(&daemon_under_test, always);
    output = daemon_output(&daemon_under_test);
    cr_assert_eq(strstr(output, "is cut") != NULL, cut, "%s %zu: %s", what, at, output);
    redisContext *client = client_open(daemon_under_test.port);
    cr_assert_eq(client_number(client, "BF.CARD f"), frames, "%s %zu", what, at);
    for (int i = 1; i <= FRAMES; i++)
        cr_assert_eq(client_number(client, "BF.EXISTS f item:%d", i), i <= frames, "%s %zu: item %d", what, at, i);
    if (at % 8 == 0) { /* it continues */
        expect(client, ":1", "BF.ADD f more");
        client = client_after_kill(client, &daemon_under_test, NULL);
        cr_assert_eq(client_number(client, "BF.CARD f"), frames + 1, "%s %zu", what, at);
        expect(client, ":1", "BF.EXISTS f more");
    }
    client_kill(client, &daemon_under_test);
}

static void expect_refusal(const char *what, size_t at)
{
    const char *output;

    cr_assert_eq(check_tool(&daemon_under_test, &output), 1, "%s %zu: %s", what, at, output);
    cr_assert(strstr(output, "00000001.log is damaged"), "%s %zu: %s", what, at, output);
    cr_assert(!daemon_try(&daemon_under_test, always), "%s %zu: it starts: %s", what, at,
              daemon_output(&daemon_under_test));
    output = daemon_output(&daemon_under_test);
    cr_assert(strstr(output, "00000001.log is damaged") && strstr(output, "bloomery check"), "%s %zu: %s", what, at,
              output);
}

static int frames_before(size_t at)
{
    int frames = 0;

    while (frames < FRAMES && ends[frames + 1] <= at)
        frames++;
    return frames;
}

/* Zeros are no part of a missing frame, though a frame can begin with them. */
static bool is_torn(const unsigned char *image, size_t from, size_t to)
{
    while (from < to && image[from] == 0)
        from++;
    return from < to;
}

/* The file ends at a byte, or continues from there with zeros. */
Test(log_tail, a_log_that_ends_at_any_byte_of_its_last_frames_is_cut_there)
{
    unsigned char *image = malloc(len);

    cr_assert_not_null(image);
    for (size_t at = ends[FRAMES - TORN]; at <= ends[FRAMES]; at++) {
        int frames = frames_before(at);
        bool torn = is_torn(bytes, ends[frames], at);

        put_back(bytes, at);
        expect_frames(frames, torn, "the file ends at byte", at);
        /* A cut within a frame's trailing zeros leaves the frame whole. */
        memcpy(image, bytes, at);
        memset(image + at, 0, len - at);
        if (memcmp(image, bytes, ends[frames < FRAMES ? frames + 1 : frames]) == 0 && frames < FRAMES) {
            frames++;
            torn = false;
        }
        put_back(image, len);
        expect_frames(frames, torn, "zeros from byte", at);
    }
    free(image);
}

/* Nothing proves that the last frame had been written. */
Test(log_tail, a_changed_byte_in_the_last_frame_cuts_it)
{
    for (size_t at = ends[FRAMES - 1]; at < ends[FRAMES]; at++) {
        bytes[at] ^= (unsigned char)(1u << at % 8);
        put_back(bytes, len);
        expect_frames(FRAMES - 1, true, "changed byte", at);
        bytes[at] ^= (unsigned char)(1u << at % 8);
    }
}

/* For earlier frames the last one proves it. */
Test(log_tail, a_changed_byte_in_a_frame_before_the_last_stops_the_start)
{
    for (size_t at = ends[FRAMES - 2]; at < ends[FRAMES - 1]; at++) {
        bytes[at] ^= (unsigned char)(1u << at % 8);
        put_back(bytes, len);
        expect_refusal("changed byte", at);
        bytes[at] ^= (unsigned char)(1u << at % 8);
    }
    put_back(bytes, len);
    expect_frames(FRAMES, false, "nothing changed", 0);
}

/* ---- a log that had fallen idle ---- */

static const char *const everysec[] = {"--appendfsync", "everysec", "--threads", "1", NULL};
static const char *const accepting[] = {"--aof-load-damaged", "yes", NULL};

/* Adds, idle seconds, kill -9, one bit flipped 20 bytes before the end: these bytes had been synced, so the start
 * and `bloomery check` report their loss as damage; only an explicit setting accepts it. */
static void flip_a_bit_of_an_idle_log(const char *const *args, int adds, unsigned idle_seconds)
{
    const char *output;
    int status = 0;

    for (int i = 0; i < 3 && status == 0; i++, idle_seconds *= 4) { /* a machine may stand still for some seconds */
        discard();
        daemon_start(&daemon_under_test, args);
        segment = tmp_path(daemon_under_test.data, "log/00000001.log");
        redisContext *client = client_open(daemon_under_test.port);
        client_add_items(client, "f", 0, adds);
        sleep(idle_seconds);
        client_kill(client, &daemon_under_test);
        file_flip_bit(segment.text, (log_end(segment.text) - 20) * 8 + 3);
        status = check_tool(&daemon_under_test, &output);
    }
    cr_assert_eq(status, 1, "%s", output);
    cr_assert(strstr(output, "states that it was synced") && !strstr(output, "accepted") && !strstr(output, "is cut"),
              "%s", output);
    cr_assert(!daemon_try(&daemon_under_test, NULL), "it starts: %s", daemon_output(&daemon_under_test));
    output = daemon_output(&daemon_under_test);
    cr_assert(strstr(output, "states that it was synced") && !strstr(output, "accepted"), "%s", output);
    daemon_start(&daemon_under_test, accepting);
    daemon_wait_output(&daemon_under_test, "the loss is accepted");
}

Test(log_tail, always_a_bit_flipped_after_300_adds_and_2_idle_seconds_is_damage)
{
    flip_a_bit_of_an_idle_log(always, 300, 2);
}

Test(log_tail, everysec_a_bit_flipped_in_a_burst_that_had_been_synced_for_5_seconds_is_damage)
{
    flip_a_bit_of_an_idle_log(everysec, 20000, 5);
}

/* A clean end says so too: the next start need not write anything again. */
Test(log_tail, a_log_that_was_ended_well_is_known_to_be_synced)
{
    discard();
    redisContext *client = client_start(&daemon_under_test, everysec);
    client_add_items(client, "f", 0, 10);
    client_stop(client, &daemon_under_test);
    file_flip_bit(tmp_path(daemon_under_test.data, "log/00000001.log").text, (4096 + 30) * 8);
    cr_assert(!daemon_try(&daemon_under_test, NULL), "it starts: %s", daemon_output(&daemon_under_test));
}

/* The header was on the disk before any frame. */
Test(log_tail, a_changed_byte_in_the_header_stops_the_start)
{
    for (size_t at = 0; at < 64; at++) {
        bytes[at] ^= (unsigned char)(1u << at % 8);
        put_back(bytes, len);
        expect_refusal("changed byte of the header", at);
        bytes[at] ^= (unsigned char)(1u << at % 8);
    }
}
