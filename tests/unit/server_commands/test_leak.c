/* A removed filter leaks if the reclaimer has no memory for it, and the daemon ends normally. */
#include "harness.h"

#include <criterion/criterion.h>

#include "alloc_countdown.h"

Test(leak, a_filter_that_cannot_be_handed_over_does_not_abort_the_end)
{
    struct harness h;
    harness_init(&h);
    cr_assert_str_eq(harness_call(&h, NULL, "BF.ADD", "name", "item", NULL), ":1\r\n");
    alloc_exhausted_start();
    const char *reply = harness_call(&h, NULL, "DEL", "name", NULL);
    cr_assert(alloc_countdown_stop(), "the reclaimer needs memory");
    cr_assert_str_eq(reply, ":1\r\n");
    harness_deinit(&h);
}
