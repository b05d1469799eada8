/* ended_test: a test of Criterion that ends with the given statement, within the test: Criterion counts no failure in a
 * .fini.
 *
 *   ENDED_TEST(suite, claim, rig_end()) { ... } */
#pragma once

#define ENDED_TEST(suite, name, ending)      \
    static void suite##_##name##_body(void); \
    Test(suite, name)                        \
    {                                        \
        suite##_##name##_body();             \
        ending;                              \
    }                                        \
    static void suite##_##name##_body(void)
