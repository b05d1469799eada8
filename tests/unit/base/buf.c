#include "buf.h"
#include "alloc_fault.h"

#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void assert_content(const struct buf *buf, const char *expected)
{
    cr_assert_eq(buf_len(buf), strlen(expected), "%zu bytes instead of \"%s\"", buf_len(buf), expected);
    if (buf_len(buf) > 0)
        cr_assert_arr_eq(buf_head(buf), expected, buf_len(buf));
}

/* Appended bytes come out in order, and consuming takes them from the front. */
Test(buf, is_a_queue_of_bytes)
{
    struct buf buf;

    buf_init(&buf, 1000);
    assert_content(&buf, "");
    buf_append(&buf, "hello ", 6);
    buf_append(&buf, NULL, 0);
    buf_append(&buf, "world", 5);
    assert_content(&buf, "hello world");
    buf_consume(&buf, 6);
    assert_content(&buf, "world");
    buf_truncate(&buf, 2);
    assert_content(&buf, "wo");
    buf_truncate(&buf, 0);
    assert_content(&buf, "");
    cr_assert_eq(buf.end, 0, "an emptied buffer starts over");
    buf_append(&buf, "abc", 3);
    buf_consume(&buf, 3);
    cr_assert_eq(buf.end, 0, "however it was emptied");
    buf_deinit(&buf);
    buf_deinit(&buf);
    cr_assert_eq(alloc_live(), 0);
}

/* A long random use equals a plain model of it; memory follows the content, not the bytes passed through. */
Test(buf, equals_a_model_under_random_use)
{
    enum { CAP = 5000 };
    static char model[CAP];
    size_t model_len = 0;
    struct buf buf;

    srand(7);
    buf_init(&buf, CAP);
    for (int round = 0; round < 200000; round++) {
        size_t n = (size_t)rand() % (rand() % 10 == 0 ? 900 : 30);
        if (rand() % 2 == 0 && model_len + n <= CAP) {
            char bytes[900];
            for (size_t i = 0; i < n; i++)
                bytes[i] = (char)rand();
            buf_append(&buf, bytes, n);
            memcpy(model + model_len, bytes, n);
            model_len += n;
        } else {
            n = n < model_len ? n : model_len;
            buf_consume(&buf, n);
            model_len -= n;
            memmove(model, model + n, model_len);
        }
        cr_assert(!buf_failed(&buf));
        cr_assert_eq(buf_len(&buf), model_len);
        cr_assert_leq(buf.size, CAP);
        cr_assert_leq(buf.end, buf.size);
        if (model_len > 0)
            cr_assert_arr_eq(buf_head(&buf), model, model_len);
    }
    buf_deinit(&buf);
}

/* A stream of small writes and reads does not grow the buffer. */
Test(buf, reuses_consumed_room)
{
    struct buf buf;

    buf_init(&buf, SIZE_MAX);
    for (int i = 0; i < 100000; i++) {
        buf_append(&buf, "0123456789", 10);
        if (i >= 8)
            buf_consume(&buf, 10);
    }
    cr_assert_eq(buf_len(&buf), 80);
    cr_assert_leq(buf.size, 256);
    buf_deinit(&buf);
}

/* Writing a megabyte byte by byte costs a logarithmic number of allocations. */
Test(buf, grows_by_doubling)
{
    struct buf buf;

    buf_init(&buf, SIZE_MAX);
    alloc_fault_at(-1);
    for (int i = 0; i < 1 << 20; i++)
        buf_append(&buf, "x", 1);
    cr_assert_leq(alloc_calls(), 20);
    cr_assert_eq(buf.size, 1 << 20);
    buf_deinit(&buf);
}

/* Content up to the cap is taken, also with consumed bytes before it; one more byte fails for good, and the content
 * stays. */
Test(buf, cap_is_exact_and_failure_sticky)
{
    static const size_t caps[] = {1, 10, 255, 256, 257, 300, 1000, 4096};
    char bytes[4097];

    memset(bytes, 'a', sizeof(bytes));
    for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++) {
        for (size_t consumed = 0; consumed <= caps[i]; consumed += 1 + caps[i] / 7) {
            struct buf buf;
            buf_init(&buf, caps[i]);
            buf_append(&buf, bytes, caps[i]);
            buf_consume(&buf, consumed);
            buf_append(&buf, bytes, consumed);
            cr_assert(!buf_failed(&buf), "cap %zu, consumed %zu", caps[i], consumed);
            cr_assert_eq(buf_len(&buf), caps[i]);
            cr_assert_eq(buf.size, caps[i]);

            buf_append(&buf, "b", 1);
            cr_assert(buf_failed(&buf), "cap %zu", caps[i]);
            cr_assert_eq(buf_len(&buf), caps[i]);
            buf_consume(&buf, 1);
            cr_assert_null(buf_reserve(&buf, 1), "room alone does not end a failure");
            buf_truncate(&buf, 0);
            buf_append(&buf, "b", 1);
            cr_assert(buf_failed(&buf) && buf_len(&buf) == 0);
            buf_deinit(&buf);
            cr_assert(!buf_failed(&buf), "deinit ends it");
            cr_assert_eq(buf.cap, caps[i]);
        }
    }
}

/* Sizes near SIZE_MAX are refused, not wrapped. */
Test(buf, reserve_overflow_fails)
{
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 1, SIZE_MAX - 10, SIZE_MAX / 2};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        struct buf buf;
        buf_init(&buf, SIZE_MAX / 4);
        buf_append(&buf, "0123456789", 10);
        cr_assert_null(buf_reserve(&buf, sizes[i]));
        cr_assert(buf_failed(&buf));
        assert_content(&buf, "0123456789");
        buf_deinit(&buf);
    }

    struct buf buf; /* without a cap to help */
    buf_init(&buf, SIZE_MAX);
    buf_append(&buf, "0123456789", 10);
    cr_assert_null(buf_reserve(&buf, SIZE_MAX - 5));
    cr_assert(buf_failed(&buf));
    buf_deinit(&buf);
}

/* After a failure of any allocation the buffer returns the error, keeps its content whole, and gives its memory
 * back. */
Test(buf, survives_every_allocation_failure)
{
    for (int n = 0;; n++) {
        struct buf buf;
        size_t written = 0;

        buf_init(&buf, SIZE_MAX);
        alloc_fault_at(n);
        for (int i = 0; i < 100; i++) {
            buf_append(&buf, "0123456789abcdefghijklmnopqrstuvwxyz0123456789", 46);
            written += buf_failed(&buf) ? 0 : 46;
            if (i % 3 == 2 && buf_len(&buf) >= 46) {
                buf_consume(&buf, 46);
                written -= 46;
            }
        }
        cr_assert_eq(buf_len(&buf) % 46, 0);
        cr_assert(buf_failed(&buf) || buf_len(&buf) == written);
        for (size_t i = 0; i < buf_len(&buf); i += 46)
            cr_assert_arr_eq(buf_head(&buf) + i, "0123456789abcdefghijklmnopqrstuvwxyz0123456789", 46);

        bool failed = buf_failed(&buf);
        buf_deinit(&buf);
        cr_assert_eq(alloc_live(), 0, "leak with failure at %d", n);
        if (!failed) {
            cr_assert_geq(n, 4, "the sweep must have met several allocations");
            break;
        }
    }
}

/* Formatted text is never cut; text that does not fit below the cap is a failure that leaves the content unchanged. */
Test(buf, formatted_text_is_whole_or_a_failure)
{
    char expected[2000];
    struct buf buf;

    buf_init(&buf, 1500);
    snprintf(expected, sizeof(expected), "<%1000d>", 7);
    buf_appendf(&buf, "<%1000d>", 7);
    assert_content(&buf, expected);
    buf_appendf(&buf, "%1000d", 7);
    cr_assert(buf_failed(&buf));
    assert_content(&buf, expected);
    buf_deinit(&buf);
    buf_appendf(&buf, "%s", "");
    assert_content(&buf, "");
    cr_assert_not(buf_failed(&buf));
    buf_deinit(&buf);
    cr_assert_eq(alloc_live(), 0);
}

/* Another thread can read the memory of a buffer while it grows and when it is freed. */
Test(buf, shows_its_size)
{
    _Atomic size_t shown = 1;
    struct buf buf;

    buf_init(&buf, 100000);
    buf.size_shown = &shown;
    for (int i = 0; i < 5000; i++) {
        buf_append(&buf, "0123456789", 10);
        cr_assert_eq(shown, buf.size);
    }
    cr_assert_geq(shown, 50000);
    buf_deinit(&buf);
    cr_assert_eq(shown, 0);
    buf_append(&buf, "x", 1);
    cr_assert_eq(shown, buf.size);
    buf_deinit(&buf);
}
