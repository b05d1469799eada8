/* effects: reports a change to replicas, the engine's log, watchers and listeners.
 *
 * Replication is exact: no replica computes a result that depends on settings. The stream creates a filter with its
 * parameters and its shape, and layers with their shapes, which depend on the arithmetic of a machine. A batch
 * follows as it came, or with its added items. <prefix>.APPLY carries effects that no client command expresses:
 *
 *     BF.APPLY key MAKE header            an empty filter
 *     BF.APPLY key LAYER index header     its next layer
 *     BF.APPLY key ITEMS count ...        the counts of its layers, after a merge
 *     BF.APPLY key ADD hash ...           items added to a KEYED filter: applying this needs no key
 *     BF.APPLY key CFADD hash ...         the same of a cuckoo filter
 *     BF.APPLY key CFDEL hash             an item of a KEYED cuckoo filter is deleted
 *     BF.APPLY key TURN layer number unix-us header    a part of a window takes this layer, an old one or the next
 *     BF.APPLY key DROP number            a window's parts below this number are gone
 *     BF.APPLY key UNION header name places ...    the union of windows: which layers of each went into which of its
 *                                         own; its header is of all layers, with the numbers of their parts
 *
 * Adds to a window are replicated like adds to any filter, also if they were answered 0 but placed (REFRESH). A replica
 * places their items in the newest part without a test.
 *
 * For other cuckoo filters RedisBloom's commands are enough: CF.RESERVE with every number, CF.ADD and CF.INSERT with
 * the added items, and the header of CF.LOADCHUNK. No setting changes their result. All operations on a filter are the
 * same everywhere, including evictions, growth and compactions.
 *
 * A call that the engine replicates verbatim replicates nothing else: the engines' interface forbids a mixture.
 *
 * A header is the first chunk of a dump (dump.h) of a filter with this one layer: all parameters and the shape.
 *
 * With take-over the engine's log has RedisBloom's commands for filters of its type instead, so RedisBloom can read the
 * log. BF.RESERVE replaces MAKE, and layers have no record, since the same adds create them again.
 *
 * With `take-over valkey` log and replicas of filters of valkey-bloom's type have its commands: BF.INSERT with all
 * numbers and the seed replaces MAKE, and layers have no record.
 *
 * Thread: the engine's main thread. */
#pragma once

#include "bloom_window.h"
#include "call.h"
#include "cuckoo_shape.h"

/* The filter of the call has been created, empty. `expires_ms` is Unix time, 0: never; this sets it, too. */
void effect_made(struct call *call, int64_t expires_ms);

/* It has got a layer, of this shape. */
void effect_growth(struct call *call, unsigned layer, const struct bloom_shape *shape);

/* A part of a window has taken a layer. */
void effect_turn(struct call *call, unsigned layer, const struct bloom_shape *shape, const struct bloom_turn *turn);

/* Drops the parts of a window below this number, and replicates that. */
void effect_dropped(struct call *call, uint64_t below);

/* BF.MERGE has made the filter of the call. Replicates the command, and the counts. The counts are estimates: the last
 * digit of a logarithm depends on the machine. */
void effect_merged(struct call *call);

/* It has become a union of windows; `words` are the names and places. With the counts. */
void effect_united(struct call *call, struct engine_string *const *words, size_t n);

/* Of the words from `first` on, those whose bit is set in `added` have been added; `n` bits from bit `from` on. */
void effect_added(struct call *call, size_t first, const uint32_t *added, size_t from, size_t n);

/* The cuckoo filter of the call has been created, with these numbers. */
void effect_cuckoo_made(struct call *call, const struct cuckoo_numbers *numbers);

/* An item with this hash, the one of the command, has been deleted from a cuckoo filter. */
void effect_cuckoo_deleted(struct call *call, uint64_t hash);

/* Of the n words from `first` on, those whose bit is set in `added` have been added to a cuckoo filter. `as_it_came`:
 * the command has the same effect on a replica, and nothing has been replicated yet. */
void effect_cuckoo_added(struct call *call, size_t first, const uint32_t *added, size_t n, bool as_it_came);

/* BF.APPLY, after it has made a filter, or a layer. */
void effect_applied(struct call *call, bool made);

/* The key of the call has been deleted. */
void effect_deleted(struct call *call);

/* The key has changed: WATCH fails, cached replies are invalid. `event` goes to keyspace events; NULL: no event. */
void effect_changed(struct call *call, const char *event);
void effect_event(struct call *call, const char *event);
