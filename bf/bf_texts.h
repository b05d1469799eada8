/* bf_texts: the errors of BF.* that do not follow from a command's words alone. RedisBloom's, where it has them. */
#ifndef BLOOMERY_BF_TEXTS_H
#define BLOOMERY_BF_TEXTS_H

#define BF_NOT_FOUND   "ERR not found"
#define BF_EXISTS      "ERR item exists"
#define BF_WRONG_TYPE  "WRONGTYPE Operation against a key holding the wrong kind of value"
#define BF_FULL        "ERR non scaling filter is full"
#define BF_NO_ROOM     "ERR problem inserting into filter: %s" /* the reason */
#define BF_NO_MEMORY   "ERR could not create filter: out of memory"
#define BF_BAD         "ERR received bad data" /* and the reason */
#define BF_KEY_EXISTS  BF_BAD ": the key exists"
#define BF_DROPPED     "; the filter that was being loaded has been dropped"
#define BF_NO_ITERATOR "ERR invalid iterator: begin with 0, go on with what the last reply said"
#define BF_NOT_NUMERIC "Second argument must be numeric"

/* The key of a KEYED filter is not here; without a key in force for new ones. */
#define BF_NO_KEY                                                                                                   \
    "ERR the key %s of this filter is missing: add its line to the key file, then CONFIG SET bf-key-file again or " \
    "SIGHUP"
#define BF_NEW_NO_KEY "ERR there is no key for new filters: set bf-key-file"

#endif
