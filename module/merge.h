/* merge: unions, for those who are told of one. Thread: the engine's main thread. */
#ifndef BLOOMERY_MODULE_MERGE_H
#define BLOOMERY_MODULE_MERGE_H

#include "call.h"

/* BF.APPLY key UNION header name places ... (effects.h): makes the union of windows, and tells replicas and the log.
 * False, with nothing changed and the reason in `err`. */
bool merge_apply_union(struct call *call, struct errbuf *err);

#endif
