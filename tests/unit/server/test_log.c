#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "log.h"
#include "log_text.h"
#include "tmpdir.h"

static struct log the_log;
static struct errbuf err;
static char dir[TMPDIR_SIZE], path[TMPDIR_SIZE + 8], *content;

static void set_up(void)
{
    tmpdir_create(dir);
    snprintf(path, sizeof(path), "%s/log", dir);
    cr_assert_eq(log_init(&the_log, path, LOG_LEVEL_NOTICE, &err), 0, "%s", err.text);
}

static void tear_down(void)
{
    log_deinit(&the_log);
    free(content);
    tmpdir_remove(dir);
}

TestSuite(log, .init = set_up, .fini = tear_down);

/* The content of a file, NUL-terminated; valid until the next call. */
static char *read_file(const char *name)
{
    size_t len;

    free(content);
    content = (char *)file_read(name, &len);
    cr_assert_eq(strlen(content), len, "the file has a NUL");
    return content;
}

static size_t count_lines(const char *s)
{
    size_t n = 0;

    for (; *s != '\0'; s++)
        n += *s == '\n';
    return n;
}

/* The message of a line, after time, process and level, without the line end. */
static char *message_of(char *line)
{
    char *end = strchr(line, '\n');

    cr_assert_not_null(end);
    *end = '\0';
    for (int spaces = 0; spaces < 3; spaces++) {
        line = strchr(line, ' ');
        cr_assert_not_null(line);
        line++;
    }
    return line;
}

/* Time in UTC with milliseconds, process, level, message. */
Test(log, a_line_has_time_process_level_and_message)
{
    int year, month, day, hour, minute, second, ms, end = 0;
    long pid;
    char level[16], message[64];

    log_warning(&the_log, "disk %d full", 3);
    cr_assert_eq(sscanf(read_file(path), "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ %ld %15s %63[^\n]%n", &year, &month, &day, &hour,
                        &minute, &second, &ms, &pid, level, message, &end),
                 10, "%s", content);
    cr_assert_geq(year, 2024);
    cr_assert_eq(pid, getpid());
    cr_assert_str_eq(level, "warning");
    cr_assert_str_eq(message, "disk 3 full");
    cr_assert_str_eq(content + end, "\n");
}

/* For collectors of logs, with any bytes in the message. */
Test(log, a_line_as_fields)
{
    struct log_limit limit = {.lines = 1, .seconds = 1};
    char text[LOG_LINE_MAX * 2], *at;

    log_set_format(&the_log, LOG_JSON);
    log_warning(&the_log, "name \"a\\b\" %s", "\xff\n");
    at = strstr(read_file(path), "Z\",\"pid\":");
    cr_assert(strncmp(content, "{\"time\":\"20", 11) == 0 && at, "%s", content);
    snprintf(text, sizeof(text), "%ld,\"level\":\"warning\",\"message\":\"name \\\"a\\\\b\\\" \\\\xff\\\\x0a\"}\n",
             (long)getpid());
    cr_assert_str_eq(at + strlen("Z\",\"pid\":"), text);

    cr_assert_eq(truncate(path, 0), 0);
    for (int i = 0; i < 3; i++)
        log_limited(&the_log, &limit, 5000, LOG_LEVEL_NOTICE, "m");
    log_limited(&the_log, &limit, 6000, LOG_LEVEL_NOTICE, "next");
    cr_assert(strstr(read_file(path), "\"message\":\"next\",\"left_out\":2}\n"), "%s", content);

    cr_assert_eq(truncate(path, 0), 0);
    log_set_format(&the_log, LOG_LOGFMT);
    log_limited(&the_log, &limit, 6000, LOG_LEVEL_NOTICE, "m");
    log_limited(&the_log, &limit, 7000, LOG_LEVEL_NOTICE, "a=\"b\"");
    cr_assert(strncmp(read_file(path), "time=20", 7) == 0, "%s", content);
    cr_assert(strstr(content, " level=notice message=\"a=\\\"b\\\"\" left_out=1\n"), "%s", content);

    cr_assert_eq(truncate(path, 0), 0);
    memset(text, '"', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    log_set_format(&the_log, LOG_JSON);
    log_notice(&the_log, "%s", text);
    size_t len = strlen(read_file(path));
    cr_assert_leq(len, LOG_LINE_MAX);
    cr_assert_str_eq(content + len - strlen("\\\"...\"}\n"), "\\\"...\"}\n");
    cr_assert_eq(count_lines(content), 1);
}

/* Messages below the level are not written; the level may change at any time. */
Test(log, the_level_is_a_threshold)
{
    static const enum log_level levels[] = {LOG_LEVEL_DEBUG, LOG_LEVEL_VERBOSE, LOG_LEVEL_NOTICE, LOG_LEVEL_WARNING};

    for (int threshold = LOG_LEVEL_DEBUG; threshold <= LOG_LEVEL_NOTHING; threshold++) {
        size_t before = count_lines(read_file(path));

        log_set_level(&the_log, (enum log_level)threshold);
        for (int i = 0; i < 4; i++) {
            log_write(&the_log, levels[i], "message");
            cr_assert_eq(log_enabled(&the_log, levels[i]), i >= threshold);
        }
        cr_assert_eq(count_lines(read_file(path)) - before, (size_t)(4 - threshold));
    }
}

/* With any bytes from a client, a message stays one line of printable text. */
Test(log, bytes_from_outside_are_escaped)
{
    log_notice(&the_log, "name '%s'", "a\r\nb\x1b[2J\x7f\xff\t.");
    cr_assert_eq(count_lines(read_file(path)), 1);
    cr_assert_str_eq(message_of(content), "name 'a\\x0d\\x0ab\\x1b[2J\\x7f\\xff\\x09.'");
}

/* A line that is too long is cut and marked; it never exceeds the limit, with any escapes. */
Test(log, long_messages_are_cut)
{
    static char text[10000];
    static const char fill[] = {'x', '\n'};

    for (size_t f = 0; f < sizeof(fill); f++) {
        for (size_t len = 400; len < sizeof(text); len += len < 2200 ? 1 : 2000) {
            char *line, *message;
            size_t line_len;

            memset(text, fill[f], len);
            text[len] = '\0';
            cr_assert_eq(truncate(path, 0), 0);
            log_notice(&the_log, "%s", text);
            line = read_file(path);
            line_len = strlen(line);
            cr_assert_leq(line_len, LOG_LINE_MAX);
            cr_assert_eq(count_lines(line), 1);
            message = message_of(line);
            if (strlen(message) != len * (fill[f] == 'x' ? 1 : 4)) {
                cr_assert_str_eq(message + strlen(message) - 3, "...");
                cr_assert_gt(line_len, LOG_LINE_MAX - 8, "cut too early");
            }
        }
    }
}

/* A limited number per second; the next written line has the number of lines left out. */
Test(log, a_limited_message_says_how_many_were_left_out)
{
    struct log_limit limit = {.lines = 3, .seconds = 1};

    for (int i = 0; i < 10; i++)
        log_limited(&the_log, &limit, 5000 + i, LOG_LEVEL_NOTICE, "m%d", i);
    cr_assert_eq(count_lines(read_file(path)), 3);
    log_limited(&the_log, &limit, 5999, LOG_LEVEL_NOTICE, "still");
    cr_assert_eq(count_lines(read_file(path)), 3);
    cr_assert_eq(truncate(path, 0), 0);
    log_limited(&the_log, &limit, 6000, LOG_LEVEL_NOTICE, "next");
    log_limited(&the_log, &limit, 5999, LOG_LEVEL_NOTICE, "a reading from before");
    log_limited(&the_log, &limit, 6001, LOG_LEVEL_NOTICE, "third");
    log_limited(&the_log, &limit, 5999, LOG_LEVEL_NOTICE, "an old clock does not begin the second again");
    cr_assert_eq(count_lines(read_file(path)), 3);
    cr_assert_str_eq(message_of(content), "next (left out before: 8 similar messages)");
}

/* A limit may cover more than a second. */
Test(log, a_limit_may_be_a_line_an_hour)
{
    struct log_limit limit = {.lines = 1, .seconds = 3600};

    for (int64_t now_ms = 100; now_ms < 3 * 3600 * 1000; now_ms += 15000)
        log_limited(&the_log, &limit, now_ms, LOG_LEVEL_NOTICE, "scraped");
    cr_assert_eq(count_lines(read_file(path)), 3);
    cr_assert_str_eq(message_of(strchr(content, '\n') + 1), "scraped (left out before: 239 similar messages)");
}

/* Under systemd journalctl -p finds a line by its level, and shows only its own time. */
Test(log, lines_for_the_journal_have_its_priorities_and_no_time)
{
    struct log journal;
    struct stat st;
    char stream[64];
    int saved = dup(STDERR_FILENO), fd = open(path, O_WRONLY | O_APPEND);

    cr_assert(saved >= 0 && fd >= 0 && fstat(fd, &st) == 0 && dup2(fd, STDERR_FILENO) >= 0);
    snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
    setenv("JOURNAL_STREAM", stream, 1);
    bool is_journal = log_stderr_is_journal();
    cr_assert_eq(log_init(&journal, NULL, LOG_LEVEL_DEBUG, &err), 0);
    log_write(&journal, LOG_LEVEL_DEBUG, "d");
    log_write(&journal, LOG_LEVEL_VERBOSE, "v");
    log_notice(&journal, "n");
    log_warning(&journal, "w");
    dup2(saved, STDERR_FILENO); /* elsewhere: the variable was inherited and names another descriptor */
    bool is_still = log_stderr_is_journal();
    log_deinit(&journal);
    close(saved);
    close(fd);
    cr_assert(is_journal && !is_still);
    cr_assert_str_eq(read_file(path), "<7>d\n<6>v\n<5>n\n<4>w\n");
}

Test(log, numbers_are_for_people)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } sizes[] = {
        {0, "0 bytes"},      {1, "1 byte"},          {999, "999 bytes"},        {1000, "1.0 kB"},
        {9949, "9.9 kB"},    {9950, "10 kB"},        {999499, "999 kB"},        {999500, "1.0 MB"},
        {1234567, "1.2 MB"}, {4200000000, "4.2 GB"}, {17592186044416, "18 TB"}, {UINT64_MAX, "18 EB"},
    };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        cr_expect_str_eq(log_bytes(sizes[i].bytes).text, sizes[i].text);
    cr_expect_str_eq(log_count(0, "filter").text, "0 filters");
    cr_expect_str_eq(log_count(1, "filter").text, "1 filter");
    cr_expect_str_eq(log_count(2, "filter").text, "2 filters");
}

/* Lines below the level are neither written nor counted as left out. */
Test(log, limits_count_only_enabled_messages)
{
    struct log_limit limit = {.lines = 1, .seconds = 1};

    for (int i = 0; i < 5; i++)
        log_limited(&the_log, &limit, 1000, LOG_LEVEL_DEBUG, "quiet");
    log_limited(&the_log, &limit, 1000, LOG_LEVEL_NOTICE, "loud");
    cr_assert_str_eq(message_of(read_file(path)), "loud");
}

/* A cut line keeps its count of lines left out. */
Test(log, the_note_survives_a_long_message)
{
    static char text[5000];
    struct log_limit limit = {.lines = 1, .seconds = 1};
    char *message;

    memset(text, 'y', sizeof(text) - 1);
    log_limited(&the_log, &limit, 1000, LOG_LEVEL_NOTICE, "first");
    log_limited(&the_log, &limit, 1000, LOG_LEVEL_NOTICE, "second");
    cr_assert_eq(truncate(path, 0), 0);
    log_limited(&the_log, &limit, 2000, LOG_LEVEL_NOTICE, "%s", text);
    cr_assert_leq(strlen(read_file(path)), LOG_LINE_MAX);
    message = message_of(content);
    cr_assert_str_eq(strstr(message, "..."), "... (left out before: 1 similar message)");
}

#define THREADS  8
#define MESSAGES 500

static void *write_many(void *arg)
{
    for (int i = 0; i < MESSAGES; i++)
        log_notice(&the_log, "thread %d message %d %s", *(int *)arg, i, "a tail that makes the line longer than most");
    return NULL;
}

/* Lines of many threads do not mix, also while the file is reopened, and none is lost. */
Test(log, lines_of_threads_do_not_mix)
{
    pthread_t threads[THREADS];
    int numbers[THREADS];
    bool seen[THREADS][MESSAGES] = {{false}};
    size_t lines = 0;

    for (int t = 0; t < THREADS; t++) {
        numbers[t] = t;
        cr_assert_eq(pthread_create(&threads[t], NULL, write_many, &numbers[t]), 0);
    }
    for (int i = 0; i < 50; i++)
        cr_assert_eq(log_reopen(&the_log, &err), 0);
    for (int t = 0; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    for (char *line = read_file(path), *next; *line != '\0'; line = next, lines++) {
        int t, m, end = 0;

        next = strchr(line, '\n') + 1;
        cr_assert_eq(sscanf(message_of(line), "thread %d message %d a tail that makes the line longer than most%n", &t,
                            &m, &end),
                     2);
        cr_assert_gt(end, 0);
        cr_assert(!seen[t][m]);
        seen[t][m] = true;
    }
    cr_assert_eq(lines, THREADS * MESSAGES);
    cr_assert_eq(log_lost(&the_log), 0);
}

/* After a rotation the old file stays unchanged, and a new one is started. */
Test(log, reopening_follows_a_rotation)
{
    char rotated[160];
    struct stat st;

    snprintf(rotated, sizeof(rotated), "%s.1", path);
    log_notice(&the_log, "before");
    cr_assert_eq(rename(path, rotated), 0);
    log_notice(&the_log, "between");
    cr_assert_eq(log_reopen(&the_log, &err), 0, "%s", err.text);
    log_notice(&the_log, "after");
    cr_assert_eq(count_lines(read_file(rotated)), 2);
    cr_assert_str_eq(message_of(read_file(path)), "after");
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(st.st_mode & 07, 0, "others may not read it");
}

/* When the new file cannot be opened, the old one stays in use. */
Test(log, a_failed_reopening_keeps_the_old_file)
{
    char moved[TMPDIR_SIZE + 8], logged[160];

    snprintf(moved, sizeof(moved), "%s.moved", dir);
    cr_assert_eq(rename(dir, moved), 0);
    cr_assert_eq(log_reopen(&the_log, &err), -ENOENT);
    cr_assert_not_null(strstr(err.text, "/log': No such file or directory"), "%s", err.text);
    log_notice(&the_log, "still here");
    snprintf(logged, sizeof(logged), "%s/log", moved);
    cr_assert_str_eq(message_of(read_file(logged)), "still here");
    cr_assert_eq(rename(moved, dir), 0);
}

/* A file that cannot be opened at start is an error with its name; an existing one is continued. */
Test(log, opening_continues_a_file_or_says_why_not)
{
    struct log other;
    char expected[160];

    cr_assert_eq(log_init(&other, dir, LOG_LEVEL_NOTICE, &err), -EISDIR);
    snprintf(expected, sizeof(expected), "log file '%s': Is a directory", dir);
    cr_assert_str_eq(err.text, expected);
    log_notice(&the_log, "one");
    cr_assert_eq(log_init(&other, path, LOG_LEVEL_NOTICE, &err), 0);
    log_notice(&other, "two");
    log_deinit(&other);
    cr_assert_eq(count_lines(read_file(path)), 2);
}

/* A full disk costs lines, which are counted, and nothing else; errno is the caller's own. */
Test(log, lines_that_cannot_be_written_are_counted)
{
    struct log full;

    cr_assert_eq(log_init(&full, "/dev/full", LOG_LEVEL_NOTICE, &err), 0, "%s", err.text);
    errno = EXDEV;
    log_notice(&full, "lost");
    cr_assert_eq(errno, EXDEV);
    cr_assert_eq(log_lost(&full), 1);
    log_deinit(&full);
}

/* Without a path the standard error is used, and never closed. */
Test(log, the_standard_error_is_the_default)
{
    struct log standard;

    cr_assert_eq(log_init(&standard, "", LOG_LEVEL_NOTICE, &err), 0);
    cr_assert_eq(log_reopen(&standard, &err), 0);
    log_deinit(&standard);
    cr_assert_geq(fcntl(STDERR_FILENO, F_GETFD), 0);
}
