/* The list of sessions and its lines. Threads have their own test (stress_sessions.c). */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "session.h"

static void session_init(struct session *session)
{
    memset(session, 0, sizeof(*session));
    session->origin.fd = 12;
    session->worker = 3;
    session->origin.created_ms = 1000;
    strcpy(session->origin.addr, "127.0.0.1:50000");
    strcpy(session->origin.laddr, "127.0.0.1:6379");
    atomic_store(&session->resp, 2);
    atomic_store(&session->meters.last_ms, 5000);
}

static void format_one(void *out, struct session *session)
{
    session_format(session, 9999, out);
    buf_append(out, "\n", 1);
}

/* The listing as a string; the caller frees it. */
static char *list(struct sessions *sessions)
{
    struct buf out;

    buf_init(&out, 1 << 24);
    sessions_each(sessions, format_one, &out);
    buf_append(&out, "", 1);
    cr_assert_not(buf_failed(&out));
    return out.data;
}

/* The fields of CLIENT LIST, which clients parse by name. */
Test(sessions, a_line_has_the_fields_of_redis_with_real_values)
{
    struct sessions *sessions;
    struct session session;
    char *text;

    cr_assert_eq(sessions_create(&sessions), 0);
    session_init(&session);
    sessions_add(sessions, &session);
    cr_assert_eq(session_set(sessions, &session, SESSION_NAME, slice_of("me")), 0);
    cr_assert_eq(session_set(sessions, &session, SESSION_LIB_NAME, slice_of("redis-py")), 0);
    cr_assert_eq(session_set(sessions, &session, SESSION_LIB_VER, slice_of("5.0.1")), 0);
    atomic_store(&session.meters.command, "client|list");
    atomic_store(&session.meters.input_bytes, 26);
    atomic_store(&session.meters.output_bytes, 1000);
    atomic_store(&session.meters.memory, 4711);
    text = list(sessions);
    char expected[1024];
    snprintf(
        expected, sizeof(expected),
        "id=1 addr=127.0.0.1:50000 laddr=127.0.0.1:6379 fd=12 name=me age=8 idle=4 flags=N db=0 sub=0 psub=0 ssub=0 "
        "multi=-1 watch=0 qbuf=26 qbuf-free=0 argv-mem=0 multi-mem=0 rbs=0 rbp=0 obl=0 oll=1 omem=1000 tot-mem=%zu "
        "events=rw cmd=client|list user=default redir=-1 resp=2 lib-name=redis-py lib-ver=5.0.1 io-thread=3\n",
        (size_t)4711);
    cr_expect_str_eq(text, expected);
    free(text);
    sessions_remove(sessions, &session);
    sessions_destroy(sessions);
}

/* A session's time may be later than the time read on another thread. */
Test(sessions, ages_are_never_negative)
{
    struct sessions *sessions;
    struct session session;
    struct buf out;

    cr_assert_eq(sessions_create(&sessions), 0);
    session_init(&session);
    sessions_add(sessions, &session);
    buf_init(&out, 4096);
    session_format(&session, 10, &out);
    buf_append(&out, "", 1);
    cr_expect_not_null(strstr(buf_head(&out), " age=0 idle=0 "));
    cr_expect_not_null(strstr(buf_head(&out), " cmd=NULL "), "before the first command");
    buf_deinit(&out);
    sessions_remove(sessions, &session);
    sessions_destroy(sessions);
}

/* More sessions than are visited under one lock, some removed from the middle. */
Test(sessions, are_listed_oldest_first)
{
    enum { N = 300 };
    struct sessions *sessions;
    struct session *all = calloc(N, sizeof(*all));
    char *text, *line;
    uint64_t expected = 0;

    cr_assert(all != NULL);
    cr_assert_eq(sessions_create(&sessions), 0);
    for (size_t i = 0; i < N; i++) {
        session_init(&all[i]);
        sessions_add(sessions, &all[i]);
        cr_expect_eq(all[i].id, i + 1);
    }
    cr_expect_eq(sessions_count(sessions), N);
    for (size_t i = 2; i < N; i += 3) { /* ids 3, 6, 9, ..., 300 */
        if (all[i].id != 300)
            sessions_remove(sessions, &all[i]);
    }
    cr_expect_eq(sessions_count(sessions), N - N / 3 + 1);

    text = list(sessions);
    for (line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        do {
            expected++;
        } while (expected % 3 == 0 && expected != 300);
        cr_expect_eq(strtoull(line + 3, NULL, 10), expected);
    }
    cr_expect_eq(expected, 300);
    free(text);

    for (size_t i = 0; i < N; i++) {
        if (all[i].id % 3 != 0 || all[i].id == 300)
            sessions_remove(sessions, &all[i]);
    }
    cr_expect_eq(sessions_count(sessions), 0);
    text = list(sessions);
    cr_expect_str_empty(text);
    free(text);
    session_init(&all[0]);
    sessions_add(sessions, &all[0]);
    cr_expect_eq(all[0].id, N + 1, "an id is never given again");
    sessions_remove(sessions, &all[0]);
    sessions_destroy(sessions);
    free(all);
}

Test(sessions, texts_take_visible_ascii_only_and_stay_when_refused)
{
    static const char *const bad[] = {"a b", "a\n", "\r", "\t", "\x7f", "\xc3\xa4", " "};
    struct sessions *sessions;
    struct session session;

    cr_assert_eq(sessions_create(&sessions), 0);
    session_init(&session);
    sessions_add(sessions, &session);
    cr_expect_eq(session_set(sessions, &session, SESSION_NAME, slice_of("!good~")), 0);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        cr_expect_eq(session_set(sessions, &session, SESSION_NAME, slice_of(bad[i])), 1, "'%s'", bad[i]);
    cr_expect_eq(session_set(sessions, &session, SESSION_NAME, (struct slice){"a\0b", 3}), 1);
    cr_expect_str_eq(session.texts.of[SESSION_NAME], "!good~");
    cr_expect_null(session.texts.of[SESSION_LIB_NAME]);
    cr_expect_eq(session_set(sessions, &session, SESSION_NAME, (struct slice){NULL, 0}), 0);
    cr_expect_null(session.texts.of[SESSION_NAME]);
    sessions_remove(sessions, &session);
    sessions_destroy(sessions);
    sessions_destroy(NULL);
}
