/* Replies compared byte by byte with those recorded from Redis 8.0.2 with RedisBloom 8.8.0 (recorded/; in command_bf
 * every row of ours is asked for, the recording asked for the whole table). A line "> words" is a command, "< line" a
 * line of its reply, "- line" one of RedisBloom's only and "+ line" one of Bloomery's only (options that RedisBloom
 * does not have, tips that it has since), "@new" a new connection; a reply marked @srv is the server's own and not
 * compared. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

#define MAX_TEXT  65536
#define MAX_WORDS 64

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Undoes the escapes \r \n \\ \" and \xHH of one character; returns the rest. */
static const char *unescape(const char *at, char *c_out)
{
    if (*at != '\\') {
        *c_out = *at;
        return at + 1;
    }
    if (at[1] == 'x' && hex(at[2]) >= 0 && hex(at[3]) >= 0) {
        *c_out = (char)(hex(at[2]) * 16 + hex(at[3]));
        return at + 4;
    }
    *c_out = at[1] == 'r' ? '\r' : at[1] == 'n' ? '\n' : at[1];
    return at + 2;
}

/* Splits a command line into words, "quoted" ones too; their bytes go to `bytes`. */
static size_t split(const char *line, struct slice *words, char *bytes)
{
    size_t n = 0;

    while (*line != '\0') {
        bool quoted = *line == '"';
        char *start = bytes;

        line += quoted;
        while (*line != '\0' && *line != (quoted ? '"' : ' '))
            line = unescape(line, bytes++);
        line += quoted;
        while (*line == ' ')
            line++;
        cr_assert_lt(n, MAX_WORDS);
        words[n++] = (struct slice){start, (size_t)(bytes - start)};
    }
    return n;
}

static char *read_line(FILE *file, char *line, size_t size)
{
    if (fgets(line, (int)size, file) == NULL)
        return NULL;
    line[strcspn(line, "\n")] = '\0';
    return line;
}

/* Plays the file; returns the number of replies compared. */
static unsigned play(const char *name, int version)
{
    char path[512], *line, *expected = malloc(MAX_TEXT), *bytes = malloc(MAX_TEXT);
    char text[MAX_TEXT], command[1024] = "";
    struct slice words[MAX_WORDS];
    struct harness h;
    unsigned compared = 0;
    size_t expected_len = 0;
    FILE *file;

    cr_assert(expected != NULL && bytes != NULL);
    snprintf(path, sizeof(path), "%s/%s.resp%d.replies", BLOOMERY_RECORDED_DIR, name, version);
    file = fopen(path, "r");
    cr_assert_not_null(file, "%s", path);
    harness_init(&h);
    harness_reconnect(&h, version);
    do {
        line = read_line(file, text, sizeof(text));
        if (line != NULL && line[0] == '-')
            continue;
        if (line != NULL && (line[0] == '<' || line[0] == '+')) {
            for (const char *at = line + 2; *at != '\0';)
                at = unescape(at, &expected[expected_len++]);
            memcpy(expected + expected_len, "\r\n", 2);
            expected_len += 2;
            continue;
        }
        if (strcmp(command, "@new") == 0) {
            harness_reconnect(&h, version);
        } else if (command[0] != '\0') {
            bool own = strncmp(command, "@srv ", 5) == 0;
            size_t n = split(own ? command + 5 : command, words, bytes), len;
            const char *reply = harness_run(&h, words, n, &len);

            if (!own) {
                cr_expect(len == expected_len && memcmp(reply, expected, len) == 0,
                          "%s, RESP%d\ngot:\n%s\nexpected:\n%.*s", command, version, reply, (int)expected_len,
                          expected);
                compared++;
            }
        }
        expected_len = 0;
        snprintf(command, sizeof(command), "%s", line == NULL ? "" : line + 2);
    } while (line != NULL);
    fclose(file);
    harness_deinit(&h);
    free(expected);
    free(bytes);
    return compared;
}

Test(recorded, what_command_says_of_bf_in_resp2)
{
    cr_expect_gt(play("command_bf", 2), 20);
}

Test(recorded, what_command_says_of_bf_in_resp3)
{
    cr_expect_gt(play("command_bf", 3), 20);
}

Test(recorded, connections_in_resp2)
{
    cr_expect_gt(play("connect", 2), 50);
}

Test(recorded, connections_in_resp3)
{
    cr_expect_gt(play("connect", 3), 50);
}
