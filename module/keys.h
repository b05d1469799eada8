/* keys: the keys of KEYED filters, from the file of bf-key-file.
 *
 * Thread: the engine's main thread. */
#ifndef BLOOMERY_MODULE_KEYS_H
#define BLOOMERY_MODULE_KEYS_H

#include "bloom_keyring.h"

/* The pool that gets the keys, and the file of the setting at the start. False with a text. */
bool keys_init(struct bloom_pool *pool, const char *path, struct errbuf *err);
bool keys_are_ready(void); /* keys_init() has been called */

/* Puts the keys of the file into force; without one ("") there are none. False, with nothing changed, and a text. */
bool keys_read(const char *path, struct errbuf *err);

uint64_t keys_first(void); /* the id of the key for new filters; 0: none */

#endif
