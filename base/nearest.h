/* nearest: finds the known word that is most similar to an unknown one. Thread: any. */
#ifndef BLOOMERY_NEAREST_H
#define BLOOMERY_NEAREST_H

#include <stddef.h>

#include "slice.h"

/* The distance of two words, without regard to case: the number of characters to insert, delete, replace, or exchange
 * with their neighbour (optimal string alignment). SIZE_MAX for words of more than NEAREST_MAX characters. */
#define NEAREST_MAX 32
size_t nearest_distance(struct slice a, struct slice b);

/* Whether the distance is that of a slip: at most 2, and less than half of the word. */
bool nearest_is_slip(struct slice unknown, size_t distance);

#endif
