/* Shared by the tests in a stand-in engine: test_stand_in.c has their main(). */
#pragma once

#include <stdio.h>
#include <stdlib.h>

#include "stand_in.h"

#define EXPECT(condition, ...)                                        \
    do {                                                              \
        if (!(condition)) {                                           \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, step); \
            fprintf(stderr, __VA_ARGS__);                             \
            fprintf(stderr, "\n%s\n", stand_in_log());                \
            exit(1);                                                  \
        }                                                             \
    } while (0)

extern const char *step;                               /* the name of the test that runs */
extern const char *const prefix[], *const take_over[]; /* two words behind loadmodule */

/* Runs a test in its own process, with a fresh module. */
void in_a_process(const char *name, void (*run)(const void *data), const void *data);

/* Runs a command, and expects this reply. */
void expect(const char *line, const char *reply);

/* Restores what is saved as `bad`, uses it by these commands, and saves and restores it again. False: it is refused. */
bool use_restored(const char *const *uses, size_t n);

/* Cuckoo filters: a part of the scenario that all loads go through; what a second thread frees; the rest. */
void cuckoo_scenario(void);
void cuckoo_freed_in_the_background(const void *data);
void test_cuckoo(void);

void test_replication(void);

/* Values that come short, damaged, or made up. */
void test_values(void);
