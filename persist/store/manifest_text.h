/* manifest_text: what the formatter and the parser of the MANIFEST share. Internal to persist. */
#ifndef BLOOMERY_MANIFEST_TEXT_H
#define BLOOMERY_MANIFEST_TEXT_H

#include <stddef.h>

#include "manifest.h"

#define MANIFEST_MAGIC     "bloomery-manifest 4"
#define MANIFEST_MAGIC_3   "bloomery-manifest 3" /* does not say how far the log had come; is still read */
#define MANIFEST_MAGIC_2   "bloomery-manifest 2" /* and has no packs; so is this */
#define MANIFEST_RATE_SIZE 32

/* The one form of an error rate. */
void manifest_format_rate(double rate, char out[MANIFEST_RATE_SIZE]);

/* Room for `more` bytes behind the text. 0 or -ENOMEM. */
int manifest_text_reserve(struct manifest_text *text, size_t more);

#endif
