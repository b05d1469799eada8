/* stand_in: an engine of one page for tests of the module under sanitizers: keys in a list, replies as text, values
 * saved to memory. Any of its functions can be missing, any allocation can fail, any read can come short.
 *
 * Thread: one; a second one only frees. One module at a time; a test of a fresh one forks. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#ifdef __SANITIZE_THREAD__
#define UNDER_THREAD_SANITIZER true
#else
#define UNDER_THREAD_SANITIZER false
#endif

/* Names of all functions, "CreateCommand" ...; those that the module cannot do without. */
size_t stand_in_functions(void);
const char *stand_in_function(size_t i);
bool stand_in_is_required(size_t i);

/* Loads the module into an engine without the function `missing` (NULL: with all). The words are those behind
 * loadmodule. Whether it has loaded. A further load is of the same instance, as by dlopen(). */
bool stand_in_load(const char *path, const char *missing, int argc, const char *const *argv);

void stand_in_take(const char *name); /* another module has this type or command; NULL: none has */

const char *stand_in_log(void); /* what it has logged */

/* Runs a command, words separated by spaces; `data` (may be NULL) is one more word. The reply, as text: "1", "[1 0 1]",
 * "-ERR ...". Valid until the next call. The timers that it has begun are run before that. */
const char *stand_in_run(const char *line, const void *data, size_t len);

/* The bytes of the reply's last string. */
const void *stand_in_bytes(size_t *len_out);

void stand_in_obey(bool obey);         /* the next commands come from a primary */
const char *stand_in_replicated(void); /* what has been replicated since the last call: a line for each command */

/* Saves a value and loads it under another name: all of it, or with an error after `reads` fields. Whether it was
 * taken. */
bool stand_in_save(const char *name);
bool stand_in_restore(const char *name, size_t reads);
size_t stand_in_saved_fields(void);
void stand_in_damage(size_t field, size_t byte, unsigned char bit); /* of what was saved */
void stand_in_seal(void); /* puts the checksums of Bloomery's own chunks right again */

/* When a key that is there ends, as Unix time in ms; -1: never. */
void stand_in_set_expiry(const char *name, long long unix_ms);
long long stand_in_expiry(const char *name);

/* The commands that the module's log rewrite emits, run against a copy under this name. */
void stand_in_rewrite(const char *name, const char *to);

void stand_in_fail_allocation(size_t n); /* the nth from now on fails, once; 0: none */
size_t stand_in_allocations(void);       /* since stand_in_fail_allocation() */
size_t stand_in_held(void);              /* allocations that have not been freed */

/* Takes a key away, and has its value freed by another thread, as UNLINK does where the type says that it pays. */
void stand_in_unlink(const char *name);

void stand_in_end(void); /* frees all keys */
