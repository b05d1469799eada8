/* expiry_rig: a registry with its own clock, whose effects are recorded, for tests in one thread. */
#pragma once

#include <criterion/criterion.h>
#include <stdint.h>

#include "rcu.h"
#include "registry.h"
#include "registry_effect.h"

extern struct registry *registry;
extern struct reclaimer *reclaimer;
extern struct bloom_class *small_class;
extern int64_t now;                 /* the registry's clock; 1000 at the start */
extern void (*clock_is_read)(void); /* called at each read; NULL: nothing */
extern char told[65536];            /* the effects so far: "created a, expiry a until 1000, ..." */
extern size_t scanned;              /* names that count_scanned() was called for */

/* The effects since the last time. */
#define TOLD(text)                      \
    do {                                \
        cr_expect_str_eq(told, (text)); \
        told[0] = '\0';                 \
    } while (0)

void rig_setup(void); /* for a TestSuite */
void rig_teardown(void);

void expect_all_freed(void); /* removes all filters: the pool counts the bytes of all words */

struct slice name_of(unsigned i); /* "f<i>", valid until the fourth call after */

struct entry *create(const char *name);
int expire(const char *name, int64_t at, unsigned conditions);
struct entry *find(const char *name);
int64_t expires(const char *name); /* -2: no such filter */
struct registry_expiry numbers(void);

void count_scanned(void *ctx, struct slice name, struct entry *entry);
size_t scan_all(void); /* returns the number of filters */
